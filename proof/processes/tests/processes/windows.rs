//! Windows among processes that are killed and stopped, that may only read, that fork, and that run programs at random.
//!
//! `COREWIRE_TORTURE_KILLS` sets the number of kills (default: 40), `COREWIRE_WINDOW_OPERATIONS` that of operations of the
//! programs (default: 40,000).

use std::ops::RangeInclusive;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

use corewire::{Domain, Window, WindowError, WindowLocking, WindowRights};

use crate::roles::{Directory, Random, Role};

/// Longer than anything takes on a crowded machine.
const LIMIT: Duration = Duration::from_secs(600);
const ADDERS: u64 = 3;

fn given(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn adder(directory: &Directory, place: u64) -> Role {
    let mut role =
        Role::start("add-under-lock", directory, "w", &[&format!("count={place}"), "park"]);
    role.until("attached");
    role
}

/// The two sums, as they are while nobody adds.
fn sums(window: &mut Window) -> [u64; 2] {
    let held = window.lock_timeout(WindowLocking::Exclusive, LIMIT).unwrap();
    let held = held.expect("the lock of one that was killed is free");
    [0, 8].map(|offset| held.load(offset).unwrap())
}

// Keeps P248.
#[test]
fn a_killed_holder_leaves_the_lock_and_at_most_one_operation_more() {
    let directory = Directory::new("window-kills");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut window = domain.window("w", 4096).create().unwrap();
    let mut random = Random::from_environment();
    let mut adders: Vec<_> = (0..ADDERS).map(|place| adder(&directory, place)).collect();
    let kills = given("COREWIRE_TORTURE_KILLS", 40);
    let mut returned = 0;
    for kill in 1..=kills + ADDERS {
        let place = if kill > kills { kill - kills - 1 } else { random.below(ADDERS) };
        for _ in 0..random.below(3000) {
            std::hint::spin_loop();
        }
        let index = usize::try_from(place).unwrap();
        adders[index].kill();
        // It was between the two numbers at most; those that live are in no operation.
        let [first, second] = sums(&mut window);
        assert!((second..=second + kill).contains(&first), "{first} and {second} at kill {kill}");
        let word = window.at::<u64>(8 * (2 + place)).unwrap();
        returned += word.swap(0);
        if kill <= kills {
            adders[index] = adder(&directory, place);
        }
    }
    let [first, second] = sums(&mut window);
    let all = kills + ADDERS;
    assert!((returned..=returned + all).contains(&first), "{first} of {returned}, {all} kills");
    println!("{all} kills: {returned} additions returned, {first} and {second} were made");
    assert!(returned > 0);
}

// Keeps P248.
#[test]
fn one_that_is_stopped_keeps_the_lock() {
    let directory = Directory::new("window-stopped");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut window = domain.window("w", 4096).create().unwrap();
    for (options, kind) in
        [(&[][..], WindowLocking::Shared), (&["shared"][..], WindowLocking::Exclusive)]
    {
        let mut holder = Role::start("hold-window", &directory, "w", options);
        holder.until("locked");
        holder.stop();
        // Longer than a sleep of the waiter.
        let is_free = window.lock_timeout(kind, Duration::from_millis(250)).unwrap().is_some();
        assert!(!is_free, "{kind:?}");
        holder.go_on();
        holder.hang_up();
        assert!(window.lock_timeout(kind, LIMIT).unwrap().is_some());
        assert!(holder.is_success());
    }
}

// Keeps P249.
#[test]
fn a_killed_reader_and_a_killed_holder_are_missed() {
    let directory = Directory::new("window-missed");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut window = domain.window("w", 4096).create().unwrap();
    for options in [&["count=1"][..], &["count=1", "shared"][..]] {
        let mut holder = Role::start("hold-window", &directory, "w", options);
        holder.until("attached");
        // It has taken part in a fence.
        window.fence(2).unwrap();
        holder.until("locked");
        assert_eq!(window.participants().len(), 2);
        let who = window.participants()[1].0;
        window.post(&[who]).unwrap();
        holder.kill();
        assert!(window.lock_timeout(WindowLocking::Exclusive, LIMIT).unwrap().is_some());
        assert!(matches!(window.wait(), Err(WindowError::Gone { .. })));
        let error = window.fence(2).unwrap_err();
        assert!(matches!(error, WindowError::Gone { .. }), "{error}");
        // The next one enters that fence.
        let mut next = Role::start("hold-window", &directory, "w", options);
        window.fence(2).unwrap();
        next.until("locked");
        next.hang_up();
        assert!(next.is_success());
        // It has left after that fence, which the next one tells, once.
        let error = window.fence(2).unwrap_err();
        assert!(matches!(error, WindowError::Gone { .. }), "{error}");
        assert!(window.fence_timeout(1, LIMIT).unwrap(), "one is enough");
    }
}

// Keeps P248.
#[test]
fn one_that_has_lost_its_connection_has_no_lock() {
    let directory = Directory::new("window-closed");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut window = domain.window("w", 4096).create().unwrap();
    let mut closer = Role::start("close-window", &directory, "w", &[]);
    closer.until("closed");
    let held = window.lock_timeout(WindowLocking::Exclusive, LIMIT).unwrap();
    assert!(held.is_some(), "it is taken for ended");
    closer.say("unlock");
    assert_eq!(
        closer.until("then"),
        "this participant of window w has lost its connection to the owner"
    );
    // What it gave back was not its own any more.
    let other = &mut domain.attach_window("w", WindowRights::ATOMIC).unwrap();
    assert!(other.try_lock(WindowLocking::Shared).unwrap().is_none());
    drop(held);
    assert!(other.try_lock(WindowLocking::Shared).unwrap().is_some());
}

// Keeps P249.
#[test]
fn the_death_of_the_owner_ends_what_waits() {
    let directory = Directory::new("window-orphans");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut owner = Role::start("own-window", &directory, "w", &[]);
    owner.until("created");
    let attach = || domain.attach_window("w", WindowRights::ATOMIC).unwrap();
    let (mut fences, mut starts, mut counts, mut locks) = (attach(), attach(), attach(), attach());
    // Nobody frees the lock of one that has died once the owner is stopped.
    let mut holder = Role::start("hold-window", &directory, "w", &["count=1"]);
    fences.fence(2).unwrap();
    holder.until("locked");
    owner.stop();
    holder.kill();
    assert!(locks.try_lock(WindowLocking::Exclusive).unwrap().is_none());
    let waiting = [
        thread::spawn(move || fences.fence(9)),
        thread::spawn(move || starts.start()),
        thread::spawn(move || counts.wait_counter(0, 1).map(drop)),
        thread::spawn(move || locks.lock(WindowLocking::Shared).map(drop)),
    ];
    let pid = owner.child.id();
    owner.kill();
    for one in waiting {
        let error = one.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), format!("the process of window w (pid {pid}) has died"));
    }
}

// Keeps P247.
#[test]
fn what_may_only_be_read_is_not_written() {
    let directory = Directory::new("window-intruder");
    let domain = Domain::open_at(directory.path()).unwrap();
    for others in [WindowRights::READ, WindowRights::ATOMIC] {
        let window = domain.window("w", 4096).rights_of_others(others).create().unwrap();
        let mut intruder = Role::start("intrude-window", &directory, "w", &[]);
        assert_eq!(intruder.until("refused"), "by the library");
        assert_eq!(intruder.until("refused"), "by its descriptor");
        assert_eq!(intruder.until("refused"), "by a map of its descriptor");
        assert_eq!(intruder.until("refused"), "to its map");
        intruder.until("stores");
        let status = intruder.child.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
        assert_eq!(window.load::<u64>(0), Ok(0));
    }
}

// Keeps P250.
#[test]
fn a_forked_child_has_no_window() {
    let directory = Directory::new("window-fork");
    let mut role = Role::start("fork-window", &directory, "w", &[]);
    role.until("forked");
    assert!(role.is_success());
}

// Keeps P246.
#[test]
fn programs_at_random_do_what_a_plain_copy_does() {
    let operations = given("COREWIRE_WINDOW_OPERATIONS", 40_000) / 4;
    run_programs("window-programs", 1..=4, operations, &[]);
}

// Keeps P246.
#[test]
fn a_window_needs_no_copies_by_the_kernel() {
    let refused = [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev];
    let refused = refused.map(|call| format!("refuse={call}:{}", libc::EPERM));
    run_programs("window-no-copies", 2..=2, 2000, &refused.each_ref().map(String::as_str));
}

/// Runs programs at random, each by so many processes with these options beside.
fn run_programs(test: &str, processes: RangeInclusive<u64>, operations: u64, beside: &[&str]) {
    let directory = Directory::new(test);
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut random = Random::from_environment();
    for processes in processes {
        let _window = domain.window("w", 64 + 8192).create().unwrap();
        let seed = random.below(u64::MAX);
        let follower = |own: u64| {
            let options = [
                format!("count={operations}"),
                format!("receivers={processes}"),
                format!("group={own}"),
                format!("waiter={seed}"),
            ];
            let options: Vec<&str> =
                options.iter().map(String::as_str).chain(beside.iter().copied()).collect();
            Role::start("follow", &directory, "w", &options)
        };
        let followers: Vec<_> = (0..processes).map(follower).collect();
        for mut one in followers {
            one.until("followed");
            assert!(one.is_success(), "with seed {seed}");
        }
    }
}
