//! Every system call of a scenario fails once, at each place where it is made, with each error that
//! it can return. No scenario has a guest. The result must be a clear error or a recovery, and
//! nothing may be left behind. A process of its own: it traces its children, and reaps all of them.
//!
//! A role runs a scenario while this test lets its system calls through one by one
//! (`seccomp_unotify(2)`) and makes one of them fail. The role repeats the call of the library that
//! failed, drops everything, counts what is left, and runs the scenario again.
//!
//! By default each place gets one of its errors, in turn; with `COREWIRE_FAULTS=full` it gets all
//! of them.

#[path = "faults/calls.rs"]
mod calls;
#[path = "faults/peers.rs"]
mod peers;
mod roles;
#[path = "faults/supervisor.rs"]
mod supervisor;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use corewire::{Access, Domain};

use calls::CALLS;
use peers::{Part, Peer};
use roles::{Directory, Role};
use supervisor::{Fault, LIMIT, Run, Site, say, supervise};

/// The files that dead processes have left, to be copied into a role's directory.
struct Graveyard(Directory);

impl Graveyard {
    fn dig() -> Self {
        let directory = Directory::new("faults-graveyard");
        let mut senders: Vec<Role> = ["dead", "dead-too"]
            .map(|name| Role::start("sender", &directory, name, &["access=users:1"]))
            .into();
        senders.iter_mut().for_each(|sender| drop(sender.until("created")));
        let mut waiter = Role::start("receiver", &directory, "never", &["access=users:1"]);
        while !directory.files().iter().any(|file| file.starts_with("w.")) {
            thread::yield_now();
        }
        senders.iter_mut().for_each(Role::kill);
        waiter.kill();
        Self(directory)
    }

    /// A link to a socket is as dead as the socket. A file that is locked must be copied.
    fn copy_to(&self, target: &Directory) {
        for file in self.0.files() {
            let (from, to) = (self.0.path().join(&file), target.path().join(&file));
            if file.starts_with("p.") {
                std::fs::hard_link(from, to).unwrap();
            } else {
                std::fs::copy(from, to).unwrap();
            }
        }
    }
}

/// A scenario, and what the other end does in it.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    peer: Part,
}

static SCENARIOS: [Scenario; 9] = [
    Scenario { name: "alone", peer: Part::Nothing },
    Scenario { name: "owner", peer: Part::Receives },
    Scenario { name: "waiter", peer: Part::Sends },
    Scenario { name: "inviter", peer: Part::Waits },
    Scenario { name: "sweeper", peer: Part::Nothing },
    Scenario { name: "host", peer: Part::Nothing },
    Scenario { name: "shared", peer: Part::Nothing },
    Scenario { name: "copier", peer: Part::Nothing },
    Scenario { name: "listener", peer: Part::Nothing },
];

/// One run in a separate directory. Returns the run and what was wrong with it.
fn run(
    scenario: Scenario,
    graveyard: &Graveyard,
    number: usize,
    fault: Option<Fault>,
) -> Option<(Run, Vec<String>)> {
    let directory = Directory::new(&format!("faults-{}-{number}", scenario.name));
    if matches!(scenario.name, "sweeper" | "host") {
        drop(Domain::open_at(directory.path()).unwrap());
        graveyard.copy_to(&directory);
    }
    let mut peer = Peer::new(scenario.peer, &directory);
    let run = supervise(scenario.name, &directory, fault, &mut peer)?;
    let mut wrong = wrongs(&run, fault);
    wrong.extend(peer.failures());
    let is_told = run.lines.iter().any(|line| line.starts_with("error: "));
    if peer.has_missed() && !is_told && !fault.is_some_and(has_full_queue) {
        wrong.push("a receiver that waited has missed the first message".to_owned());
    }
    drop(peer);
    // The next process removes every file that is still there.
    drop(Domain::builder().path(directory.path()).access(Access::Owner).open().unwrap());
    wrong.extend(remaining(&directory).iter().map(|file| format!("{file} stays")));
    Some((run, wrong))
}

/// The files that stay in `directory`. The peer's control thread may still serve a connection of the
/// role when the peer is dropped: then the peer's socket goes as soon as the thread is done.
fn remaining(directory: &Directory) -> Vec<String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let files = directory.files();
        if files.is_empty() || Instant::now() > deadline {
            return files;
        }
        thread::yield_now();
    }
}

/// Is it that a process's queue of connections is full?
fn has_full_queue(fault: Fault) -> bool {
    CALLS[fault.site.call].name == "connect" && fault.errno == libc::EAGAIN
}

fn wrongs(run: &Run, fault: Option<Fault>) -> Vec<String> {
    let mut wrong = Vec::new();
    if run.is_timed_out {
        wrong.push("it hangs".to_owned());
    } else if !run.is_success || !run.complaint.is_empty() {
        wrong.push(format!("it complains: {}", run.complaint));
    }
    // A file that could not be removed, or that seems to belong to another process, is left for the
    // next process.
    let may_stay = fault.is_some_and(|fault| match CALLS[fault.site.call].name {
        "unlinkat" => true,
        "flock" => fault.errno == libc::EAGAIN,
        _ => false,
    });
    for line in &run.lines {
        let is_file = line.starts_with("first left: file");
        let is_error = fault.is_some_and(|fault| is_clear(line, fault));
        if !(is_error || line == "done" || (is_file && may_stay)) {
            wrong.push(line.clone());
        }
    }
    wrong
}

/// Whether `line` says what failed, as `error: CALL: TEXT`. The text ends with the error.
fn is_clear(line: &str, fault: Fault) -> bool {
    line.starts_with("error: ")
        && (line.ends_with(&format!("error {})", fault.errno))
            // The C library returns EAGAIN whatever a thread lacks.
            || line.contains("start the control thread: ")
            // The queue of connections stayed full.
            || (has_full_queue(fault) && line.contains(" did not answer within ")))
}

/// The faults for `sites`: all errors of each site, or one.
fn faults(sites: &[Site], is_full: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    for &site in sites {
        let errors = CALLS[site.call].errors;
        let turn = site.count % errors.len();
        let chosen = if is_full { errors } else { &errors[turn..=turn] };
        faults.extend(chosen.iter().map(|&errno| Fault { site, errno }));
    }
    faults
}

#[derive(Default)]
struct Tally {
    injected: usize,
    missed: usize,
    errors: usize,
    recoveries: usize,
    /// The texts of the errors, and the number of times each occurred.
    texts: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

// Keeps P14, P43.
#[test]
fn every_system_call_fails_once_at_each_site() {
    let is_full = std::env::var("COREWIRE_FAULTS").is_ok_and(|value| value == "full");
    let graveyard = Graveyard::dig();
    let mut work = Vec::new();
    let mut site_count = 0;
    for scenario in SCENARIOS {
        let Some((run, wrong)) = run(scenario, &graveyard, 0, None) else { return };
        assert!(wrong.is_empty(), "{} without a fault: {wrong:?}", scenario.name);
        println!("{}: {} sites", scenario.name, run.sites.len());
        site_count += run.sites.len();
        work.extend(faults(&run.sites, is_full).into_iter().map(|fault| (scenario, fault)));
    }
    let next = AtomicUsize::new(0);
    let tally = Mutex::new(Tally::default());
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(&(scenario, fault)) = work.get(number) else { return };
                    let (run, wrong) = run(scenario, &graveyard, number + 1, Some(fault)).unwrap();
                    tally.lock().unwrap().add(scenario, fault, &run, &wrong);
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    for (text, count) in &tally.texts {
        println!("{count:5} {text}");
    }
    let Tally { injected, missed, errors, recoveries, .. } = tally;
    say(&format!(
        "faults: {site_count} sites, {injected} faults: {errors} ended in an error, {recoveries} in a \
         recovery; {missed} more were not reached"
    ));
    assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
}

impl Tally {
    fn add(&mut self, scenario: Scenario, fault: Fault, run: &Run, wrong: &[String]) {
        let count = if run.is_injected { &mut self.injected } else { &mut self.missed };
        *count += 1;
        let errors = run.lines.iter().filter(|line| line.starts_with("error: "));
        let errors: Vec<_> = errors.collect();
        if run.is_injected {
            let end = if errors.is_empty() { &mut self.recoveries } else { &mut self.errors };
            *end += 1;
        }
        for error in errors {
            let call = CALLS[fault.site.call].name;
            *self.texts.entry(format!("{call}: {error}")).or_default() += 1;
        }
        if !wrong.is_empty() {
            self.wrong.push(format!("{}, {fault}: {wrong:?}", scenario.name));
        }
    }
}
