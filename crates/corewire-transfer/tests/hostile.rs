//! Descriptions from a peer that writes anything into them: an error or a message, nothing beyond the target.

use corewire_ring::message::{Memory, Sink};
use corewire_transfer::mechanisms::{
    BothSides, CopyError, DESCRIPTION_BYTES_MAX, Description, KernelGet, Mapped, Mechanism,
    MessageQueue, PairLink, Peer, Role, SharedBuffer, Step,
};
use proptest::prelude::*;

/// A change to some bytes, and to the length.
#[derive(Debug, Clone)]
struct Damage {
    bytes: Vec<(usize, u8)>,
    length: Option<usize>,
}

fn damage() -> impl Strategy<Value = Damage> {
    let bytes = proptest::collection::vec((0usize..96, any::<u8>()), 0..6);
    (bytes, proptest::option::of(0usize..DESCRIPTION_BYTES_MAX + 100))
        .prop_map(|(bytes, length)| Damage { bytes, length })
}

impl Damage {
    fn apply(&self, description: &mut Description) {
        let bytes = &mut description.bytes;
        for &(at, value) in &self.bytes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if let Some(length) = self.length {
            bytes.resize(length, 0);
        }
    }
}

const BYTES: usize = 100_000;
const ROOM: usize = BYTES + 50;

fn receive_damaged<M>(mut sender: M, mut receiver: M, damage: &Damage) -> Result<u64, CopyError>
where
    M: Mechanism,
    M::Memory: From<Memory>,
{
    let mut memory = sender.allocate(&[BYTES - 7, 7]).unwrap();
    memory.put(0, &vec![7; BYTES]);
    let mut source = sender.register(memory).unwrap();
    let target = Memory::from(vec![vec![1; 60], vec![1; ROOM - 60]]);
    let mut target = receiver.register(target.into()).unwrap();
    let (mut from, to) = (source.description(), target.description());
    damage.apply(&mut from);
    let (mut waits, mut is_sent) = (0, false);
    let outcome = loop {
        is_sent =
            is_sent || matches!(sender.copy_remote(&mut source, &to), Ok(Step::Done(_)) | Err(_));
        match receiver.copy_local(&mut target, &from) {
            Ok(Step::Done(bytes)) => break Ok(bytes),
            // What has been promised does not come.
            Ok(Step::Wait) if waits > 100 => break Err(CopyError::PeerEnded),
            Ok(Step::Wait) => waits += 1,
            Ok(Step::More) => {}
            Err(error) => break Err(error),
        }
    };
    assert!(receiver.deregister(target).is_ok());
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_description_is_an_error_or_fits(damage in damage(), which in 0..5) {
        let own = || Peer::own().unwrap();
        let links = || PairLink::between_threads(16, 16 << 10).unwrap();
        macro_rules! with {
            ($mechanism:ident, $near:expr, $far:expr) => {
                receive_damaged(
                    $mechanism::initialise(own(), Role::Source, $near).unwrap(),
                    $mechanism::initialise(own(), Role::Target, $far).unwrap(),
                    &damage,
                )
            };
        }
        let received = match which {
            0 => with!(KernelGet, (), ()),
            1 => with!(Mapped, (), ()),
            2 => { let (near, far) = links(); with!(BothSides, near, far) }
            3 => { let (near, far) = links(); with!(SharedBuffer, near, far) }
            _ => { let (near, far) = links(); with!(MessageQueue, near, far) }
        };
        if let Ok(bytes) = received {
            prop_assert!(bytes <= ROOM as u64);
        }
        if damage.bytes.is_empty() && damage.length.is_none() {
            prop_assert_eq!(received, Ok(BYTES as u64));
        }
    }
}

#[test]
fn a_description_is_for_one_mechanism_and_role() {
    let own = || Peer::own().unwrap();
    let (near, far) = PairLink::between_threads(16, 16 << 10).unwrap();
    let mut get = KernelGet::initialise(own(), Role::Target, ()).unwrap();
    let mut target = get.register(Memory::from(vec![0; 10])).unwrap();
    let mut buffer = SharedBuffer::initialise(own(), Role::Source, near).unwrap();
    let source = buffer.register(Memory::from(vec![0; 10])).unwrap();
    let error = get.copy_local(&mut target, &source.description()).unwrap_err();
    assert_eq!(error.to_string(), "the other side sent 1 as mechanism and role");
    let own_description = target.description();
    assert!(get.copy_local(&mut target, &own_description).is_err());
    let mut queue = MessageQueue::initialise(own(), Role::Target, far).unwrap();
    let misused = queue.copy_local(&mut target, &source.description()).unwrap_err();
    assert_eq!(misused.to_string(), "the piece belongs to another mechanism");
    let misused = get.copy_remote(&mut target, &own_description).unwrap_err();
    assert_eq!(misused.to_string(), "the other side must make this call");
}

#[test]
fn limits_are_named() {
    let own = Peer::own().unwrap();
    let mut get = KernelGet::initialise(own.clone(), Role::Source, ()).unwrap();
    let parts = Memory::from(vec![vec![1]; 1025]);
    let error = get.register(parts).unwrap_err();
    assert_eq!(error.to_string(), "memory in 1025 parts: at most 1024 are possible");
    assert_eq!(error.memory.len(), 1025);
    let pieces: Vec<_> = (0..1024).map(|_| get.register(Memory::from(vec![1])).unwrap()).collect();
    let error = get.register(Memory::from(vec![1])).unwrap_err();
    let text =
        "no number is free for another piece of memory: at most 1024 are registered at a time";
    assert_eq!(error.to_string(), text);
    for piece in pieces {
        get.deregister(piece).unwrap();
    }
    assert!(get.register(Memory::from(vec![1])).is_ok());
    let mut mapped = Mapped::initialise(own, Role::Source, ()).unwrap();
    let error = mapped.register(Memory::from(vec![1]).into()).unwrap_err();
    assert_eq!(error.to_string(), "mapped memory: the source must come from Mechanism::allocate");
}

/// A piece serves several messages, and what a mechanism cannot use again it says.
#[test]
fn a_piece_serves_again() {
    let own = Peer::own().unwrap();
    let mut sender = Mapped::initialise(own.clone(), Role::Source, ()).unwrap();
    let mut receiver = Mapped::initialise(own, Role::Target, ()).unwrap();
    let mut memory = sender.allocate(&[3]).unwrap();
    memory.put(0, &[1, 2, 3]);
    let source = sender.register(memory).unwrap();
    let mut target = receiver.register(Memory::from(vec![0; 3]).into()).unwrap();
    for _ in 0..3 {
        let step = receiver.copy_local(&mut target, &source.description());
        assert_eq!(step, Ok(Step::Done(3)));
    }
    // Registered again, the same memory is another piece.
    let old = source.description();
    let memory = sender.deregister(source).unwrap();
    let source = sender.register(memory).unwrap();
    assert_eq!(receiver.copy_local(&mut target, &old), Err(CopyError::Deregistered));
    assert_eq!(receiver.copy_local(&mut target, &source.description()), Ok(Step::Done(3)));
}
