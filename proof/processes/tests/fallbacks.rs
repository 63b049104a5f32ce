//! Behaviour where the kernel refuses `membarrier` or every read from a socket, and in a forked
//! child. A process of its own: its threads are refused system calls, and fork.

mod roles;

use corewire::{Domain, Event, JoinError, MessageError, ReceiveError, Selector};
use roles::{Directory, Role};

/// A sender and a receiver put each other to sleep repeatedly. Every wake-up must arrive.
fn sleeps_are_woken(test: &str, sender_options: &[&str], receiver_options: &[&str]) {
    let directory = Directory::new(test);
    let common = ["count=60000", "park", "nap-one-in=4", "slots=64"];
    let options = |own: &[&'static str]| [&common[..], own].concat();
    let own: Vec<&'static str> = sender_options.iter().map(|o| leak(o)).collect();
    let mut sender = Role::start("counted-sender", &directory, "c", &options(&own));
    let own: Vec<&'static str> = receiver_options.iter().map(|o| leak(o)).collect();
    let mut receiver = Role::start("counted-receiver", &directory, "c", &options(&own));
    sender.until("ready");
    receiver.until("ready");
    receiver.say("go");
    sender.say("go");
    for role in [&mut sender, &mut receiver] {
        let counters = role.until("counters");
        println!("{test}: {counters}");
        assert!(counters.contains("cap_finds=0"), "{counters}");
        role.say("read");
    }
    assert!(sender.is_success() && receiver.is_success());
}

fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

#[test]
fn nobody_is_refused() {
    sleeps_are_woken("nobody-refused", &[], &[]);
    sleeps_are_woken("nobody-refused-hint", &["receivers=9"], &[]);
}

// Keeps P17.
#[test]
fn the_sender_is_refused() {
    sleeps_are_woken("sender-refused", &["no-membarrier"], &[]);
}

// Keeps P17.
#[test]
fn the_receiver_is_refused() {
    sleeps_are_woken("receiver-refused", &[], &["no-membarrier"]);
    sleeps_are_woken("receiver-refused-hint", &["receivers=9"], &["no-membarrier"]);
}

// Keeps P17.
#[test]
fn both_are_refused() {
    sleeps_are_woken("both-refused", &["no-membarrier"], &["no-membarrier"]);
}

// Keeps P15, P142.
#[test]
fn a_forked_child_has_no_handles_and_can_start_anew() {
    let directory = Directory::new("fork");
    let mut role = Role::start("fork", &directory, "c", &[]);
    role.until("forked well");
    assert!(role.is_success());
}

/// To the others, the process has left, although it continues as another program. (A channel that was not closed ends as
/// if its sender had died.)
fn nothing_outlives_exec(test: &str, options: &[&str]) {
    let directory = Directory::new(test);
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut watcher = domain.endpoint("watcher").create().unwrap();
    let _watched = domain.sender("watched").create().unwrap();
    let mut role = Role::start("exec", &directory, "c", options);
    role.until("created");
    assert!(matches!(watcher.receive_event(Selector::any()), Ok(Event::Came(_))));
    let mut receiver = domain.receiver("c").join().unwrap();
    role.say("go");
    assert_eq!(role.until("left"), "[]");
    assert_eq!(receiver.receive().map(drop), Err(ReceiveError::SenderDied));
    match watcher.receive_event(Selector::any()).unwrap() {
        Event::Gone { why: MessageError::PeerLeft { .. }, .. } => {}
        other => panic!("the process lives: {other:?}"),
    }
    let observer = domain.observe("watched").unwrap();
    while !observer.look().receivers.is_empty() {
        std::thread::yield_now();
    }
    let counters = observer.look().counters;
    let count = |name| counters.iter().find(|(it, _)| *it == name).unwrap().1;
    assert_eq!(["leaves", "deaths"].map(count), [1, 0]);
    role.say("go");
    assert!(role.is_success());
}

// Keeps P218.
#[test]
fn a_program_that_is_executed_has_nothing_of_its_predecessors() {
    nothing_outlives_exec("exec", &[]);
    nothing_outlives_exec("exec-shared", &["shared"]);
}

/// A receiver that sleeps with this option wakes up to check many times as often as one without it.
/// Both must learn of the sender's death.
fn looks_up_often(test: &str, option: &str) {
    const MANY: u64 = 20;
    let directory = Directory::new(test);
    let mut sender = Role::start("counted-sender", &directory, "c", &["count=1"]);
    let mut sleepers = [&["park", option][..], &["park"]]
        .map(|options| Role::start("sleeper", &directory, "c", options));
    sleepers.iter_mut().for_each(|sleeper| drop(sleeper.until("joined")));
    sender.until("ready");
    let domain = Domain::open_at(directory.path()).unwrap();
    let observer = domain.observe("c").unwrap();
    let sleeps_of = |role: &Role| {
        let view = observer.look();
        let row = view.receivers.iter().find(|receiver| receiver.pid == role.child.id()).unwrap();
        row.counters.iter().find(|(name, _)| *name == "sleeps").unwrap().1
    };
    // Wait until both sleep.
    while sleepers.iter().any(|sleeper| sleeps_of(sleeper) == 0) {
        std::thread::yield_now();
    }
    let before = [0, 1].map(|index| sleeps_of(&sleepers[index]));
    while sleeps_of(&sleepers[0]) < before[0] + 10 * MANY {
        std::thread::yield_now();
    }
    let other = sleeps_of(&sleepers[1]) - before[1];
    assert!(other <= MANY, "{other} sleeps where the kernel gives everything");
    sender.kill();
    for mut sleeper in sleepers {
        assert_eq!(sleeper.until("ended"), "the sender died");
        assert!(sleeper.is_success());
    }
}

#[test]
fn a_filter_that_is_put_on_later_makes_sleeps_short() {
    looks_up_often("filter-later", "filter-later");
}

/// A sleeper that cannot wait on two words is woken by a message as ever, and finds the sender's death.
#[test]
fn without_futex_waitv_sleepers_are_woken_and_told() {
    let directory = Directory::new("no-waitv");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut sleeper = Role::start("sleeper", &directory, "c", &["park", "no-waitv"]);
    let mut sender = Role::start("counted-sender", &directory, "c", &["count=1"]);
    sleeper.until("joined");
    sender.until("ready");
    // Asleep.
    let observer = domain.observe("c").unwrap();
    let is_asleep = || observer.look().receivers.iter().any(|receiver| receiver.is_asleep);
    while !is_asleep() {
        std::thread::yield_now();
    }
    sender.say("go");
    sleeper.until("received");
    while !is_asleep() {
        std::thread::yield_now();
    }
    sender.kill();
    assert_eq!(sleeper.until("ended"), "the sender died");
    assert!(sleeper.is_success());
}

/// A sender that cannot accept any connection is alive. A receiver that watches it must find that
/// out, with the kernel's help and without, and must find out when it dies.
fn a_crowded_sender_is_alive(test: &str, options: &[&str]) {
    let directory = Directory::new(test);
    let domain = Domain::open_at(directory.path()).unwrap();
    let host = domain.sender("c").open_shared(4).unwrap();
    let mut crowded = Role::start("crowded-sender", &directory, "c", &[]);
    crowded.until("crowded");
    let mut sleeper = Role::start("sleeper", &directory, "c", &[&["park"], options].concat());
    sleeper.until("joined");
    let observer = domain.observe("c").unwrap();
    drop(host);
    let sleeps = || {
        let view = observer.look();
        let counters = view.receivers.first().map(|receiver| receiver.counters.clone());
        counters.into_iter().flatten().find(|(name, _)| *name == "sleeps").map(|(_, count)| count)
    };
    // Long after the receiver has checked which senders are left.
    let before = sleeps();
    while sleeps().is_some_and(|count| Some(count) < before.map(|before| before + 3)) {
        std::thread::yield_now();
    }
    crowded.say("go");
    assert_eq!(sleeper.until("received"), "alive");
    crowded.kill();
    assert_eq!(sleeper.until("ended"), "the sender died");
    assert!(sleeper.is_success());
}

#[test]
fn a_sender_that_can_take_nobody_in_is_not_taken_for_dead() {
    a_crowded_sender_is_alive("crowded", &[]);
}

#[test]
fn without_process_descriptors_a_sender_that_can_take_nobody_in_is_not_taken_for_dead() {
    a_crowded_sender_is_alive("crowded-no-life", &["no-peer-life"]);
}

// Keeps P218.
#[test]
fn a_receiver_that_cannot_be_read_from_is_told_and_keeps_its_place() {
    let directory = Directory::new("deaf-sender");
    let mut sender = Role::start("deaf-sender", &directory, "a", &[]);
    sender.until("created");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut receiver = domain.receiver("a").join().unwrap();
    sender.until("deaf");
    // The sender cannot read the receiver's request.
    let asked = receiver.readiness().map(drop);
    assert!(matches!(asked, Err(JoinError::Refused { .. })), "{asked:?}");
    sender.say("go");
    assert_eq!(&*receiver.receive().unwrap(), b"alive");
    drop(receiver);
    sender.until("alone");
    sender.hang_up();
    assert!(sender.is_success());
}

// Keeps P218.
#[test]
fn a_sender_that_cannot_be_read_from_is_not_taken_for_dead() {
    let directory = Directory::new("deaf-receiver");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut sender = domain.sender("a").create().unwrap();
    let mut receiver = Role::start("deaf-receiver", &directory, "a", &[]);
    sender.wait_for_receivers(1).unwrap();
    // The receiver cannot read the sender's answer.
    let asked = receiver.until("readiness");
    assert!(asked.starts_with("Err(channel a: the owner is out of"), "{asked}");
    sender.send(b"alive").unwrap();
    assert_eq!(receiver.until("ended"), format!("Ok({:?})", b"alive"));
    assert!(receiver.is_success());
}

// Keeps P93.
#[test]
fn a_limit_on_file_sizes_is_an_error_and_no_signal() {
    let directory = Directory::new("limited");
    let mut role = Role::start("limited", &directory, "c", &[]);
    let error = role.until("large");
    assert!(error.contains("at most 1048576 are allowed (RLIMIT_FSIZE"), "{error}");
    assert_eq!(role.until("small"), "Ok(())");
    assert!(role.is_success());
}
