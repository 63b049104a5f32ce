//! Neighbours that are stopped but not dead, and one that dies while another process waits for it.

mod roles;

use std::time::Duration;

use corewire::{Domain, JoinError, SendError};
use roles::{Directory, Role};

const CHANNEL: &str = "a";

/// Starts a process that waits for the channel, and stops it.
fn stopped_waiter(directory: &Directory) -> Role {
    let mut waiter = Role::start("look", directory, CHANNEL, &[]);
    waiter.until("waiting");
    directory.waiter(CHANNEL);
    waiter.stop();
    waiter
}

#[test]
fn a_stopped_waiter_holds_back_the_first_message() {
    let directory = Directory::new("stopped-waiter");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut waiter = stopped_waiter(&directory);
    let mut sender = domain.sender(CHANNEL).create().unwrap();
    assert_eq!(sender.try_send(b"first"), Err(SendError::Joining { count: 1 }));
    let after = Duration::from_millis(20);
    let told = sender.send_timeout(b"first", after);
    assert!(matches!(told, Err(SendError::Timeout { .. } | SendError::Joining { .. })), "{told:?}");
    waiter.go_on();
    sender.send(b"first").unwrap();
    assert_eq!(waiter.until("waited"), "from 0");
}

#[test]
fn a_waiter_that_dies_holds_nobody_up() {
    let directory = Directory::new("dead-waiter");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut waiter = stopped_waiter(&directory);
    let mut sender = domain.sender(CHANNEL).create().unwrap();
    assert_eq!(sender.try_send(b"first"), Err(SendError::Joining { count: 1 }));
    waiter.kill();
    sender.send(b"first").unwrap();
}

#[test]
fn receivers_of_a_stopped_sender_may_leave() {
    let directory = Directory::new("stopped-sender");
    let mut sender = Role::start("sender", &directory, CHANNEL, &[]);
    sender.until("created");
    let domain = Domain::open_at(directory.path()).unwrap();
    let [mut stays, mut leaves] = [0; 2].map(|_| domain.receiver(CHANNEL).join().unwrap());
    sender.stop();
    for receiver in [&mut stays, &mut leaves] {
        while receiver.try_receive().unwrap().is_some() {}
        // No party reports it as dead.
        assert!(receiver.receive_timeout(Duration::from_millis(1)).unwrap().is_none());
    }
    drop(leaves);
    sender.go_on();
    // The stream continues for the receiver that stayed.
    let next = stays.next_sequence();
    assert_eq!(stays.receive().unwrap().sequence(), next);
}

#[test]
fn a_stopped_owner_lets_nobody_join_and_other_names_are_not_affected() {
    let directory = Directory::new("stopped-owner");
    let mut owner = Role::start("sender", &directory, CHANNEL, &[]);
    owner.until("created");
    let domain = Domain::open_at(directory.path()).unwrap();
    owner.stop();
    let error = domain.receiver(CHANNEL).join().unwrap_err();
    assert!(matches!(error, JoinError::NoAnswer { .. }), "{error}");
    let mut sender = domain.sender("other").create().unwrap();
    let mut receiver = domain.receiver("other").join().unwrap();
    sender.send(b"as ever").unwrap();
    assert_eq!(receiver.receive().unwrap()[..], *b"as ever");
    owner.go_on();
    domain.receiver(CHANNEL).join().unwrap();
}
