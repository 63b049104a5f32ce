//! Endpoints are killed at any instruction while they exchange messages. Messages that they had
//! sent whole must arrive whole and in order; nothing may be seen of the others. Calls that wait
//! only for a dead endpoint must end, and no other call may end.
//!
//! `COREWIRE_TORTURE_KILLS` sets the number of deaths (default: 60). `COREWIRE_SEED` repeats a run
//! as far as the kernel allows.

use std::collections::HashMap;

use crate::roles::{Directory, Random, Role};
use corewire::{Domain, Endpoint, MessageError, OperationHandle, Peer, Selector, Status};
use corewire_processes::talk::{HELLO, bytes_of, length_of};

const TALKERS: usize = 4;
/// A tag that no endpoint ever sends.
const NEVER: u64 = u64::MAX - 1;

fn kills() -> u64 {
    let given = std::env::var("COREWIRE_TORTURE_KILLS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(60)
}

/// The sink, and its view of the talkers.
struct Sink {
    endpoint: Endpoint,
    buffer: Vec<u8>,
    /// For each peer: its name, and the number of its next message.
    talkers: HashMap<Peer, (String, u64)>,
}

impl Sink {
    /// Checks a message that has arrived.
    fn check(&mut self, status: Status) {
        let bytes = &self.buffer[..usize::try_from(status.bytes).unwrap()];
        if status.tag == HELLO {
            let name = String::from_utf8(bytes.to_vec()).unwrap();
            assert_eq!(self.endpoint.name_of(status.source), Some(&*name));
            self.talkers.insert(status.source, (name, 0));
            return;
        }
        let (name, next) = self.talkers.get_mut(&status.source).expect("nobody talks before HELLO");
        assert_eq!(status.tag, *next, "a message of {name} is missing, or came twice");
        assert_eq!(status.bytes, length_of(status.tag) as u64);
        assert!(*bytes == bytes_of(status.tag, bytes.len()), "message {next} of {name} is torn");
        *next += 1;
    }

    fn receive(&mut self, selector: Selector) -> Result<(), MessageError> {
        let status = self.endpoint.receive_into(selector, &mut self.buffer)?;
        self.check(status);
        Ok(())
    }

    /// Receives until the peer of this name has sent its first message. Returns the peer.
    fn await_hello(&mut self, name: &str) -> Peer {
        loop {
            if let Some((&peer, _)) = self.talkers.iter().find(|(_, talker)| talker.0 == name) {
                return peer;
            }
            self.receive(Selector::any()).unwrap();
        }
    }

    fn await_end(&mut self, request: OperationHandle) -> Result<Status, MessageError> {
        loop {
            if let Some(completion) = self.endpoint.test(request).unwrap() {
                return completion.result;
            }
            let selector = Selector::any();
            if let Some(status) =
                self.endpoint.try_receive_into(selector, &mut self.buffer).unwrap()
            {
                self.check(status);
            }
        }
    }
}

fn is_death(error: &MessageError) -> bool {
    matches!(error, MessageError::PeerDied { .. })
}

// Keeps P70.
#[test]
fn talkers_die_and_what_they_had_sent_arrives() {
    let directory = Directory::new("talkers-die");
    let mut random = Random::from_environment();
    let domain = Domain::open_at(directory.path()).unwrap();
    // Few cells and rings, so that all talkers sometimes wait for room.
    let builder = domain.endpoint("sink").peers(16).rings(8).cells(4, 16 << 10);
    let mut sink = Sink {
        endpoint: builder.create().unwrap(),
        buffer: vec![0; 300_000],
        talkers: HashMap::new(),
    };
    let for_ever = sink.endpoint.ireceive(Selector::tag(NEVER), vec![0; 8]).unwrap();
    let mut started = 0;
    let mut start = |directory: &Directory| {
        let name = format!("talker-{started}");
        started += 1;
        (name.clone(), Role::start("talker", directory, &name, &[]))
    };
    let mut roles: Vec<_> = (0..TALKERS).map(|_| start(&directory)).collect();
    for _ in 0..kills() {
        let victim = usize::try_from(random.below(TALKERS as u64)).unwrap();
        let peer = sink.await_hello(&roles[victim].0);
        for _ in 0..random.below(400) {
            sink.receive(Selector::any()).unwrap();
        }
        // The victim has messages sent to it and a receive waiting for it; then it dies.
        let sends: Vec<_> = (0..random.below(3))
            .map(|_| sink.endpoint.isend(peer, 1, vec![1; 150_000]).unwrap())
            .collect();
        let listening =
            sink.endpoint.ireceive(Selector::tag(NEVER).from(peer), vec![0; 8]).unwrap();
        roles[victim].1.kill();
        let (name, fresh) = start(&directory);
        let mut dead = std::mem::replace(&mut roles[victim], (name, fresh));
        let error = loop {
            match sink.receive(Selector::masked(0, 1 << 63).from(peer)) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert!(is_death(&error), "{error}");
        let (_, next) = sink.talkers.remove(&peer).unwrap();
        let sent = dead.1.latest("sent ", 0);
        assert!(next > sent || next == 0 && sent == 0, "{next} of more than {sent} have come");
        assert!(is_death(&sink.await_end(listening).unwrap_err()));
        for send in sends {
            // The message may have been sent in time.
            if let Err(error) = sink.await_end(send) {
                assert!(is_death(&error), "{error}");
            }
        }
        let error = sink.endpoint.send(peer, 0, b"?").unwrap_err();
        assert!(is_death(&error), "{error}");
        assert!(sink.endpoint.test(for_ever).unwrap().is_none());
    }
    assert_eq!(sink.endpoint.counter("violations"), Ok(0));
    assert_eq!(sink.endpoint.counter("deaths"), Ok(kills()));
    sink.endpoint.cancel(for_ever).unwrap();
    assert_eq!(sink.await_end(for_ever).unwrap_err(), MessageError::Cancelled);
}
