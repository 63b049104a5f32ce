//! Processes that fork while corewire is at work in them. A process of its own: it counts its children.

mod roles;

use corewire::Domain;
use roles::{Directory, Role};
use rustix::process::{Pid, Signal, kill_process_group};

/// How many forks; a soak sets more.
fn forks() -> String {
    let count = std::env::var("COREWIRE_FORKS").unwrap_or_else(|_| "300".into());
    format!("count={count}")
}

// Keeps P82.
#[test]
fn a_child_forked_at_any_moment_has_nothing_and_can_begin_anew() {
    let directory = Directory::new("forks");
    let mut role = Role::start("forker", &directory, "c", &[&forks()]);
    println!("rounds {}", role.until("rounds"));
    assert_eq!(role.until("failures"), "0");
    assert!(role.is_success());
}

// Keeps P83.
#[test]
fn a_name_is_free_when_its_owner_is_killed_whatever_it_has_forked() {
    let directory = Directory::new("forks-names");
    let domain = Domain::open_at(directory.path()).unwrap();
    for round in 0..20 {
        let name = format!("c{round}");
        let mut role = Role::start("leave-children", &directory, &name, &[]);
        role.until("created");
        let group = Pid::from_child(&role.child);
        role.kill();
        let taken = domain.sender(&name).create().map(drop);
        let _ = kill_process_group(group, Signal::KILL);
        assert_eq!(taken.map_err(|error| error.to_string()), Ok(()), "round {round}");
    }
}

// Keeps P84.
/// Without priority inheritance the real-time thread would burn its core until the kernel throttles it,
/// after most of a second.
#[test]
fn a_real_time_thread_is_not_held_up_by_one_of_lower_priority() {
    let directory = Directory::new("real-time");
    let mut role = Role::start("real-time", &directory, "c", &["count=20000"]);
    let line = role.line().unwrap_or_default();
    if let Some(why) = line.strip_prefix("refused ") {
        println!("skipped: {why}");
        return;
    }
    let longest_ns: u64 = line.strip_prefix("longest ").unwrap().parse().unwrap();
    println!("longest {longest_ns} ns");
    assert!(longest_ns < 100_000_000, "one operation used {longest_ns} ns of processor time");
}

// Keeps P84.
/// A thread that waits in the kernel for a holder that may not wake it would wait for ever.
#[test]
fn a_thread_that_may_not_hand_the_lock_over_holds_nobody_up() {
    let directory = Directory::new("mixed-filters");
    let mut role = Role::start("mixed-filters", &directory, "c", &["count=50000"]);
    assert_eq!(role.line().as_deref(), Some("done"), "{}", role.ending());
    assert!(role.is_success());
}

// Keeps P84.
/// The filter may come while one thread holds the lock and others wait for it in the kernel.
#[test]
fn a_filter_that_comes_later_holds_nobody_up() {
    let directory = Directory::new("later-filter");
    for _ in 0..20 {
        let mut role =
            Role::start("mixed-filters", &directory, "c", &["count=2000", "filter-later"]);
        assert_eq!(role.line().as_deref(), Some("done"), "{}", role.ending());
        assert!(role.is_success());
    }
}
