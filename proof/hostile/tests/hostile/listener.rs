//! Processes that connect to a listener and send anything, and one that answers anything to a process that connects.
//! A channel of the attacked process loses nothing meanwhile, and nothing of the attack is left.

use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use crate::wire::{CHANNEL, Census, Directory, Live, Raw, alone, borrow};
use corewire::{ConnectServiceError, Listener};
use corewire_hostile::Random;
use corewire_layout::frame::{FRAME_BYTES, Frame, Reason};
use corewire_layout::name::{ChannelName, NameKind, NameRecord};
use corewire_os::directory::{Role, RuntimeDirectory};
use corewire_os::event::wait_readable;
use corewire_os::process;

const NAME: &str = "service";
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

fn name() -> ChannelName {
    ChannelName::new(NAME).unwrap()
}

/// Accepts and closes all connections that wait, and returns their number.
fn accept_all(listener: &Listener) -> usize {
    std::iter::from_fn(|| listener.try_accept().unwrap()).count()
}

// Keeps P151.
#[test]
fn whatever_clients_of_a_listener_send_disturbs_nobody() {
    let _alone = alone();
    let directory = Directory::new("listener");
    let mut live = Live::new(&directory);
    let listener = live.domain.listener(NAME).unwrap();
    let path = directory.socket();
    let mut random = Random::from_environment();
    let life = process::own_life().unwrap();
    let before = Census::at_rest();
    let (mut accepted, mut answered) = (0, 0);
    for round in 0..2000u32 {
        let raw = Raw::connect(&path);
        if round % 3 == 1 {
            let name = ChannelName::new(CHANNEL).unwrap();
            assert!(raw.say(&Frame::Observe { name }, &[]));
        }
        let many: Vec<OwnedFd> =
            (0..random.below(60)).map(|_| life.as_fd().try_clone_to_owned().unwrap()).collect();
        let mut packet = Frame::Connect { name: name() }.to_bytes().to_vec();
        if round % 4 == 2 {
            let at = usize::try_from(random.below(FRAME_BYTES as u64)).unwrap();
            packet[at] ^= 1 << random.below(8);
        }
        let given = [life.as_fd()];
        raw.send(&packet, &given[..round as usize % 2]);
        // What follows is for the program that accepts the connection, or for nobody.
        for _ in 0..random.below(4) {
            let packet = vec![7; usize::try_from(random.below(4000)).unwrap() + 1];
            if !raw.send(&packet, &borrow(&many)) {
                break;
            }
        }
        // A client that waits for the answer is not lost. One that hangs up before may be.
        if round % 2 == 1 {
            while !matches!(raw.hear().unwrap().0, Frame::Done) {}
            answered += 1;
        }
        if round % 5 == 0 {
            accepted += accept_all(&listener);
        }
        live.send();
    }
    // The control thread may still have requests to read.
    Census::at_rest();
    accepted += accept_all(&listener);
    before.is_back();
    assert!(accepted >= answered && answered == 1000, "{accepted} of {answered}");
    live.domain.connect(NAME, LONG).unwrap();
    drop(listener);
    live.finish();
}

#[test]
fn any_frames_for_an_answer_are_an_error_of_the_client() {
    let _alone = alone();
    let directory = Directory::new("trap");
    let mut live = Live::new(&directory);
    let trap = RuntimeDirectory::open(&directory.0, Role::Owner).unwrap();
    let (listener, socket) = trap.listen().unwrap();
    let claim = trap.claim(&name()).unwrap();
    claim.write(NameRecord { kind: NameKind::Listener, socket, incarnation: 5 }).unwrap();
    let life = process::own_life().unwrap();
    let before = Census::at_rest();
    let mut random = Random::from_environment();
    let answers = [
        Frame::Done,
        Frame::Refused(Reason::NotFound),
        Frame::Refused(Reason::ListenerFull { max: 1 }),
        Frame::Connect { name: name() },
        Frame::Observe { name: name() },
        Frame::Ring,
        Frame::Rows(vec![1, 2, 3]),
    ];
    for round in 0..700 {
        let mut packet = answers[round % answers.len()].to_bytes().to_vec();
        match random.below(6) {
            0 => packet.truncate(usize::try_from(random.below(257)).unwrap()),
            1 => packet.resize(1 + usize::try_from(random.below(5000)).unwrap(), 1),
            2 => {}
            _ => {
                let at = usize::try_from(random.below(256)).unwrap();
                packet[at] ^= 1 << random.below(8);
            }
        }
        let connected = thread::scope(|scope| {
            let answering = scope.spawn(|| {
                wait_readable(&[listener.as_fd()], None).unwrap();
                let raw = Raw(listener.accept().unwrap().into_fd());
                rustix::io::ioctl_fionbio(&raw.0, false).unwrap();
                assert!(matches!(raw.hear(), Some((Frame::Connect { .. }, _))));
                let given = [life.as_fd()];
                raw.send(&packet, &given[..round % 2]);
                raw
            });
            let connected = live.domain.connect(NAME, LONG);
            drop(answering.join().unwrap());
            connected
        });
        let is_yes = Frame::parse(&packet) == Ok(Frame::Done);
        assert_eq!(connected.is_ok(), is_yes, "{packet:?}: {connected:?}");
        live.send();
    }
    // A process that says nothing delays its client for as long as that will wait.
    let short = Duration::from_millis(20);
    let error = live.domain.connect(NAME, short).unwrap_err();
    assert!(matches!(error, ConnectServiceError::NoAnswer { .. }), "{error}");
    drop(listener.accept().unwrap());
    before.is_back();
    drop(life);
    claim.release(&trap);
    live.finish();
}
