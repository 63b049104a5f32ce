//! Neighbours that are stopped but not dead, and one that dies while another process waits for it.

use std::time::{Duration, Instant};

use crate::roles::{Directory, Role};
use corewire::{CreateError, Domain, JoinError, SendError};
use corewire_layout::name::SocketName;
use corewire_os::directory::RuntimeDirectory;

const CHANNEL: &str = "a";

/// Starts a process that waits for the channel, and stops it.
fn stopped_waiter(directory: &Directory) -> Role {
    stopped(directory, &[])
}

/// The same, but it reads channels of every policy.
fn stopped_copier(directory: &Directory) -> Role {
    stopped(directory, &["snapshots"])
}

fn stopped(directory: &Directory, options: &[&str]) -> Role {
    let mut waiter = Role::start("look", directory, CHANNEL, options);
    waiter.until("waiting");
    directory.waiter(CHANNEL);
    waiter.stop();
    waiter
}

/// More than any test takes.
const LONG: Duration = Duration::from_secs(3600);

// Keeps P4.
#[test]
fn a_stopped_waiter_holds_back_the_first_message_for_as_long_as_was_said() {
    let directory = Directory::new("stopped-waiter");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut waiter = stopped_waiter(&directory);
    let mut sender = domain.sender(CHANNEL).invitation_timeout(LONG).create().unwrap();
    assert_eq!(sender.try_send(b"first"), Err(SendError::Joining { count: 1 }));
    assert_eq!(domain.observe(CHANNEL).unwrap().look().joining, [waiter.child.id()]);
    let after = Duration::from_millis(20);
    let told = sender.send_timeout(b"first", after);
    assert!(matches!(told, Err(SendError::Timeout { .. } | SendError::Joining { .. })), "{told:?}");
    waiter.go_on();
    sender.send(b"first").unwrap();
    assert_eq!(waiter.until("waited"), "from 0");
}

/// How many channels are shown, and the pids of the processes that do not answer.
fn shown(directory: &Directory) -> (usize, Vec<u32>) {
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut pids = Vec::new();
    let seen = domain.observe_all(Duration::from_secs(2)).unwrap();
    let count = seen.len();
    for sighting in seen {
        match sighting.observed {
            Ok(_) => {}
            Err(JoinError::NoAnswer { pid, .. }) => pids.push(pid),
            Err(error) => panic!("{}: {error}", sighting.name),
        }
    }
    (count - pids.len(), pids)
}

// Keeps P94.
#[test]
fn a_stopped_process_with_many_names_hides_nobody() {
    let directory = Directory::new("stopped-many");
    let mut stopped = Role::start("names", &directory, "a", &["count=300"]);
    let mut live = Role::start("names", &directory, "z", &["count=3"]);
    stopped.until("created");
    live.until("created");
    stopped.stop();
    assert_eq!(shown(&directory), (3, vec![stopped.child.id(); 300]));
    stopped.go_on();
    assert_eq!(shown(&directory), (303, Vec::new()));
}

// Keeps P94.
/// Eight observers with a connection for each of 300 names would fill the queue of connections.
#[test]
fn observers_at_the_same_time_see_everything() {
    let directory = Directory::new("observers");
    let mut role = Role::start("names", &directory, "a", &["count=300"]);
    role.until("created");
    std::thread::scope(|scope| {
        let observers = [(); 8].map(|()| scope.spawn(|| shown(&directory)));
        for observer in observers {
            assert_eq!(observer.join().unwrap(), (300, Vec::new()));
        }
    });
}

/// Fills the queue of connections of every process in the directory that does not accept any.
fn fill_queues(directory: &Directory) {
    let runtime =
        RuntimeDirectory::open(directory.path(), corewire_os::directory::Role::Owner).unwrap();
    let files = std::fs::read_dir(directory.path()).unwrap();
    let sockets: Vec<_> = files
        .filter_map(|file| SocketName::of_file(&file.unwrap().file_name().to_string_lossy()))
        .collect();
    for socket in sockets {
        while runtime.connect_now(socket).is_ok() {}
    }
}

// Keeps P90.
#[test]
fn a_stopped_process_with_a_full_queue_delays_nobody() {
    let directory = Directory::new("stopped-full");
    let waiters = [(); 3].map(|()| stopped_copier(&directory));
    fill_queues(&directory);
    let domain = Domain::open_at(directory.path()).unwrap();
    let began = Instant::now();
    let mut sender = domain.sender(CHANNEL).overwrite().create().unwrap();
    sender.try_send(b"first").unwrap();
    // A connection that is waited for takes seconds, for each of them.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    for waiter in waiters {
        comes_late(waiter, 1);
    }
}

// Keeps P90.
#[test]
fn a_stopped_owner_with_a_full_queue_does_not_answer_in_the_time_that_was_said() {
    let directory = Directory::new("stopped-full-owner");
    let mut owner = Role::start("names", &directory, "c", &["count=1"]);
    owner.until("created");
    owner.stop();
    fill_queues(&directory);
    let domain = Domain::open_at(directory.path()).unwrap();
    let timeout = Duration::from_millis(700);
    let error = domain.receiver("c0").join_timeout(timeout).unwrap_err();
    assert!(matches!(&error, JoinError::NoAnswer { after, .. } if *after == timeout), "{error}");
    owner.go_on();
}

#[test]
fn an_endpoint_is_not_asked_to_be_a_channel() {
    let directory = Directory::new("endpoint-shared");
    let domain = Domain::open_at(directory.path()).unwrap();
    let _endpoint = domain.endpoint("e").create().unwrap();
    let error = domain.sender("e").open_shared(2).map(drop).unwrap_err();
    assert!(matches!(error, CreateError::AlreadyExists(_)), "{error}");
}

/// A waiter that comes late is told that it did, and gets what it asked for.
fn comes_late(mut waiter: Role, late_by: u64) {
    waiter.go_on();
    assert_eq!(waiter.until("waited"), format!("from {late_by}"));
    assert!(waiter.is_success());
}

// Keeps P4.
#[test]
fn a_stopped_waiter_does_not_hold_back_a_sender_that_overwrites() {
    let directory = Directory::new("stopped-overwrite");
    let domain = Domain::open_at(directory.path()).unwrap();
    let waiter = stopped_copier(&directory);
    let mut sender = domain.sender(CHANNEL).overwrite().create().unwrap();
    sender.try_send(b"first").unwrap();
    comes_late(waiter, 1);
}

// Keeps P4.
#[test]
fn a_stopped_waiter_holds_back_a_sender_that_evicts_for_its_patience() {
    let directory = Directory::new("stopped-evict");
    let domain = Domain::open_at(directory.path()).unwrap();
    let waiter = stopped_copier(&directory);
    let mut sender = domain.sender(CHANNEL).evict(Duration::from_millis(50)).create().unwrap();
    assert_eq!(sender.try_send(b"first"), Err(SendError::Joining { count: 1 }));
    sender.send(b"first").unwrap();
    comes_late(waiter, 1);
}

// Keeps P4.
#[test]
fn a_stopped_waiter_holds_back_a_sender_that_blocks_for_a_bounded_time() {
    let directory = Directory::new("stopped-block");
    let domain = Domain::open_at(directory.path()).unwrap();
    let waiter = stopped_copier(&directory);
    let timeout = Duration::from_millis(50);
    let mut sender = domain.sender(CHANNEL).invitation_timeout(timeout).create().unwrap();
    assert_eq!(sender.try_send(b"first"), Err(SendError::Joining { count: 1 }));
    for _ in 0..3 {
        sender.send(b"first, second, third").unwrap();
    }
    comes_late(waiter, 3);
    // A late receiver may still ask for the oldest.
    let mut late = domain.receiver(CHANNEL).from_oldest().join_when_created().unwrap();
    assert_eq!(late.late_by(), 0);
    assert_eq!(late.receive().unwrap().sequence(), 0);
    let late = domain.receiver(CHANNEL).from_oldest_if_possible().join_when_created().unwrap();
    assert_eq!(late.late_by(), 0);
}

// Keeps P4.
#[test]
fn a_stopped_waiter_holds_back_a_shared_channel_for_a_bounded_time() {
    let directory = Directory::new("stopped-shared");
    let domain = Domain::open_at(directory.path()).unwrap();
    let waiter = stopped_copier(&directory);
    let builder = domain.sender(CHANNEL).invitation_timeout(Duration::from_millis(50));
    let mut creator = builder.clone().open_shared(4).unwrap();
    let mut other = builder.open_shared(4).unwrap();
    assert!(matches!(other.try_send(b"first"), Err(SendError::Full { .. })));
    assert_eq!(domain.observe(CHANNEL).unwrap().look().joining, [waiter.child.id()]);
    other.send(b"first").unwrap();
    creator.send(b"second").unwrap();
    comes_late(waiter, 2);
    // Several senders have no oldest message to begin with.
    let late = domain.receiver(CHANNEL).from_oldest_if_possible().join_when_created().unwrap();
    assert_eq!(late.late_by(), 2);
}

// Keeps P4.
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
