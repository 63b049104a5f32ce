//! Exposed memory: what is put is there, rights and lengths are kept, and numbers are changed one after the other.

use corewire::{
    AccessDenial, Domain, Endpoint, ExposedMemory, Memory, MessageError, NumberChange, NumberKind,
    NumberRelation, OperationKind, Options, Peer, RemoteChange, RemotePart, Report, WindowRights,
};

use crate::scratch::Scratch;

/// An endpoint that exposes memory of `bytes` bytes, served by a thread; another one; its peer, and the key.
struct Two {
    owner: corewire::ProgressingEndpoint,
    memory: ExposedMemory,
    other: Endpoint,
    peer: Peer,
    key: u64,
}

fn two(domain: &Domain, bytes: usize, rights: WindowRights) -> Two {
    let mut owner = domain.endpoint("owner").create().unwrap();
    let memory = ExposedMemory::new(bytes).unwrap();
    let key = owner.expose(&memory, rights).unwrap();
    let owner = owner.with_progress_thread().unwrap();
    let mut other = domain.endpoint("other").create().unwrap();
    let peer = other.peer("owner").unwrap();
    Two { owner, memory, other, peer, key }
}

impl Two {
    fn part(&self, offset: u64, bytes: usize) -> RemotePart {
        RemotePart { key: self.key, offset, bytes: bytes as u64 }
    }

    fn bytes(&self, offset: usize, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        assert!(self.memory.get(offset, &mut bytes));
        bytes
    }

    /// Why a put of 8 bytes there is denied.
    fn denial(&mut self, key: u64, offset: u64) -> AccessDenial {
        let part = RemotePart { key, offset, bytes: 8 };
        match self.other.put(self.peer, &[part], &[1; 8]) {
            Err(MessageError::Denied { name, key: of, offset: at, bytes: 8, denial }) => {
                assert_eq!((name.as_str(), of, at), ("owner", key, offset));
                denial
            }
            other => panic!("{other:?}"),
        }
    }
}

// Keeps P254.
#[test]
fn what_is_put_is_there_and_is_got() {
    let scratch = Scratch::new("exposed-put");
    let mut two = two(scratch.domain(), 300_000, WindowRights::ATOMIC);
    for length in [0, 1, 8, 47, 1024, 1025, 4000, 4001, 100_000] {
        let bytes: Vec<u8> = (1..252u8).cycle().take(length).collect();
        let part = two.part(777, length);
        two.other.put(two.peer, &[part], &bytes).unwrap();
        assert!(two.bytes(777, length) == bytes, "{length} bytes");
        let mut found = vec![0; length];
        two.other.get(two.peer, &[part], &mut found).unwrap();
        assert!(found == bytes, "{length} bytes");
    }
    let parts = [two.part(0, 3), two.part(200_000, 5000), two.part(100, 2)];
    let bytes: Vec<u8> = (0..241u8).cycle().take(5005).collect();
    two.other.put(two.peer, &parts, &bytes).unwrap();
    assert_eq!(two.bytes(0, 3), bytes[..3]);
    assert!(two.bytes(200_000, 5000) == bytes[3..5003]);
    assert_eq!(two.bytes(100, 2), bytes[5003..]);
    let mut found = vec![0; 5005];
    two.other.get(two.peer, &parts, &mut found).unwrap();
    assert!(found == bytes);
}

// Keeps P254.
#[test]
fn what_is_not_allowed_is_named() {
    let scratch = Scratch::new("exposed-denied");
    let mut two = two(scratch.domain(), 64, WindowRights::READ);
    let key = two.key;
    assert_eq!(two.denial(key, 0), AccessDenial::Rights);
    assert_eq!(two.denial(key + 1, 0), AccessDenial::Key);
    let added = two.other.change(two.peer, (key, 0), NumberChange::Add, 1u32);
    assert!(matches!(added, Err(MessageError::Denied { denial: AccessDenial::Rights, .. })));
    let mut found = [1; 64];
    let part = two.part(0, 64);
    two.other.get(two.peer, &[part], &mut found).unwrap();
    assert_eq!(found, [0; 64]);
    for (offset, bytes) in [(1, 64), (64, 1), (u64::MAX, 64), (u64::MAX - 63, 64)] {
        let part = two.part(offset, bytes);
        let error = two.other.get(two.peer, &[part], &mut found[..bytes]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("beyond the memory") && text.contains("owner"), "{text}");
    }
    let part = two.part(0, 8);
    let error = two.other.put(two.peer, &[part], &[0; 7]).unwrap_err();
    assert_eq!(error, MessageError::PartsDiffer { parts: 8, given: 7 });
    let kind = RemoteChange::Update(NumberChange::Add, NumberKind::U32);
    let operands = (Memory::default(), vec![0; 6].into());
    let part = two.part(0, 6);
    let error = two
        .other
        .ichange(two.peer, kind, &[part], operands, Memory::default(), Options::default())
        .unwrap_err();
    assert_eq!(error, MessageError::PartOfNumber { bytes: 6, width: 4 });

    two.owner.lock().unwrap().conceal(key).unwrap();
    assert_eq!(two.denial(key, 0), AccessDenial::Key);
    let again = two.owner.lock().unwrap().conceal(key);
    assert_eq!(again, Err(MessageError::UnknownKey { key }));
    let chosen = |two: &Two, key| {
        two.owner.lock().unwrap().expose_as(&two.memory, WindowRights::ATOMIC, Some(key), 1000)
    };
    assert_eq!(chosen(&two, 5), Ok(5));
    assert_eq!(chosen(&two, 5), Err(MessageError::KeyInUse { key: 5 }));
    assert_eq!(two.denial(5, 999), AccessDenial::Bounds);
    let part = RemotePart { key: 5, offset: 1056, bytes: 8 };
    two.other.put(two.peer, &[part], &[9; 8]).unwrap();
    assert_eq!(two.bytes(48, 16), [[0; 8], [9; 8]].concat());
}

#[test]
fn numbers_are_changed_one_after_the_other() {
    let scratch = Scratch::new("exposed-numbers");
    let mut two = two(scratch.domain(), 64, WindowRights::ATOMIC);
    let (peer, at) = (two.peer, (two.key, 8));
    let other = &mut two.other;
    assert_eq!(other.change(peer, at, NumberChange::Replace, 2.5f64), Ok(0.0));
    assert_eq!(other.change(peer, at, NumberChange::Multiply, 4f64), Ok(2.5));
    assert_eq!(other.change(peer, at, NumberChange::Keep, 0f64), Ok(10.0));
    assert_eq!(other.compare_and_swap(peer, at, 10f64, 1.0), Ok(10.0));
    assert_eq!(other.compare_and_swap(peer, at, 10f64, 2.0), Ok(1.0));
    assert_eq!(other.change(peer, (two.key, 3), NumberChange::Add, 7u16), Ok(0), "not aligned");
    // Many at once, of several parts, each with what it was.
    let parts = [two.part(16, 8), two.part(32, 4)];
    let kind = RemoteChange::Fetch(NumberChange::Add, NumberKind::U32);
    let operands = || [1u32, 2, 3].map(u32::to_le_bytes).concat();
    for round in 0..3 {
        let both = (Memory::default(), operands().into());
        let handle =
            two.other.ichange(peer, kind, &parts, both, vec![0; 12], Options::default()).unwrap();
        let completion = two.other.wait(handle).unwrap();
        assert_eq!(completion.result.map(|status| status.bytes), Ok(12));
        let found = completion.memory.into_vec();
        assert_eq!(found, [1u32, 2, 3].map(|it| (it * round).to_le_bytes()).concat());
    }
    let kind = RemoteChange::Compare(NumberRelation::Greater, NumberKind::U32);
    let both = (9u32.to_le_bytes().to_vec().into(), 100u32.to_le_bytes().to_vec().into());
    let part = two.part(32, 4);
    let handle =
        two.other.ichange(peer, kind, &[part], both, vec![0; 4], Options::default()).unwrap();
    two.other.wait(handle).unwrap().result.unwrap();
    assert_eq!(two.bytes(32, 4), 9u32.to_le_bytes(), "9 is not greater than 9");
}

// Keeps P254.
#[test]
fn accesses_are_done_in_the_order_in_which_they_began() {
    let scratch = Scratch::new("exposed-order");
    let mut two = two(scratch.domain(), 200_000, WindowRights::ATOMIC);
    let (peer, key) = (two.peer, two.key);
    let options = Options { report: Report::Queue, ..Options::default() };
    let mut expected = 0u64;
    for round in 0..50u64 {
        // Short ones, which the owner is asked for, long ones, and changes, of the same number.
        for step in 0..20u64 {
            let value = round * 100 + step + 1;
            match step % 4 {
                0 => {
                    let part = two.part(0, 8);
                    two.other.iput(peer, &[part], value.to_le_bytes().to_vec(), options).unwrap();
                    expected = value;
                }
                1 => {
                    let mut bytes = vec![0; 100_000];
                    bytes[..8].copy_from_slice(&value.to_le_bytes());
                    let part = two.part(0, 100_000);
                    two.other.iput(peer, &[part], bytes, options).unwrap();
                    expected = value;
                }
                _ => {
                    let kind = RemoteChange::Update(NumberChange::Add, NumberKind::U64);
                    let operands = (Memory::default(), 3u64.to_le_bytes().to_vec().into());
                    let part = two.part(0, 8);
                    two.other
                        .ichange(peer, kind, &[part], operands, Memory::default(), options)
                        .unwrap();
                    expected += 3;
                }
            }
        }
        let part = RemotePart { key, offset: 0, bytes: 8 };
        let mut found = [0; 8];
        two.other.get(peer, &[part], &mut found).unwrap();
        assert_eq!(u64::from_le_bytes(found), expected, "round {round}");
    }
}

#[test]
fn a_signal_follows_what_was_put() {
    let scratch = Scratch::new("exposed-signal");
    let domain = scratch.domain();
    let mut owner = domain.endpoint("owner").create().unwrap();
    let memory = ExposedMemory::new(10_000).unwrap();
    let key = owner.expose(&memory, WindowRights::WRITE).unwrap();
    let mut other = domain.endpoint("other").create().unwrap();
    let peer = other.peer("owner").unwrap();
    let part = RemotePart { key, offset: 0, bytes: 10_000 };
    let mut signal = |owner: &mut Endpoint, part: RemotePart| {
        let options = Options::default();
        let handle = other.iput_and_signal(peer, &[part], vec![7; 10_000], u64::MAX, options);
        let handle = handle.unwrap();
        let mut told = Vec::new();
        let end = loop {
            let tell = |end: corewire::End<'_>| {
                told.push((end.kind, end.result.ok().and_then(|status| status.immediate)));
            };
            owner.poll(8, tell).unwrap();
            if let Some(end) = other.test(handle).unwrap() {
                break end.result.map(drop);
            }
        };
        (told, end)
    };
    let (told, end) = signal(&mut owner, part);
    assert!(told.is_empty() && matches!(end, Err(MessageError::Denied { .. })), "{end:?}");
    owner.take_signals(true);
    let (told, end) = signal(&mut owner, RemotePart { offset: 1, ..part });
    assert!(told.is_empty(), "nothing was put: {told:?}");
    assert!(matches!(end, Err(MessageError::Denied { denial: AccessDenial::Bounds, .. })));
    let (told, end) = signal(&mut owner, part);
    assert_eq!((told, end), (vec![(OperationKind::Signal, Some(u64::MAX))], Ok(())));
    let mut found = vec![0; 10_000];
    assert!(memory.get(0, &mut found) && found == [7; 10_000]);
}

#[test]
fn more_than_a_table_holds_is_exposed() {
    let scratch = Scratch::new("exposed-many");
    let mut two = two(scratch.domain(), 8, WindowRights::READ);
    let memories: Vec<_> = (0..1100u64)
        .map(|number| {
            let memory = ExposedMemory::new(8).unwrap();
            assert!(memory.put(0, &number.to_le_bytes()));
            let rights = WindowRights::READ;
            (two.owner.lock().unwrap().expose(&memory, rights).unwrap(), memory)
        })
        .collect();
    let check = |two: &mut Two| {
        for (number, (key, _)) in (0u64..).zip(&memories) {
            let mut found = [0; 8];
            let part = RemotePart { key: *key, offset: 0, bytes: 8 };
            two.other.get(two.peer, &[part], &mut found).unwrap();
            assert_eq!(u64::from_le_bytes(found), number);
        }
    };
    check(&mut two);
    // Entries that are free again are used again.
    for _ in 0..2000 {
        let memory = ExposedMemory::new(8).unwrap();
        let key = two.owner.lock().unwrap().expose(&memory, WindowRights::READ).unwrap();
        two.owner.lock().unwrap().conceal(key).unwrap();
    }
    check(&mut two);
}
