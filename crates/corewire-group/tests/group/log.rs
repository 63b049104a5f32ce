//! The log among members of one process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_group::{
    Communicator, Decided, DecidedEntry, Decision, Group, GroupError, JoinGroupError, Proposed,
    Replicated, StateMachine,
};
use corewire_os::locked::SharedLock;

/// How long what must happen may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A domain of its own, which goes with it.
struct Scratch(PathBuf, Domain);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corewire-{test}-{}", std::process::id()));
        let domain = Domain::open_at(&path).unwrap();
        Self(path, domain)
    }

    fn join(&self, name: &str) -> Group {
        Group::builder(&self.1, name).join_timeout(PATIENCE).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn eventually(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it did not happen within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// The next commands, as text.
fn texts(decided: &mut Decided, count: usize) -> Vec<String> {
    let entry = || match decided.next_timeout(PATIENCE).unwrap() {
        Some(Decision::Entry(entry)) => String::from_utf8(entry.command.to_vec()).unwrap(),
        other => panic!("it is not decided: {other:?}"),
    };
    std::iter::repeat_with(entry).take(count).collect()
}

#[test]
fn all_members_have_the_same_log() {
    let scratch = Scratch::new("same-log");
    let groups = [(); 3].map(|()| scratch.join("log"));
    for (index, group) in groups.iter().enumerate() {
        assert_eq!(group.propose(format!("from {index}").as_bytes()).unwrap(), index as u64);
    }
    for group in &groups {
        let texts = texts(&mut group.decided(0), 3);
        assert_eq!(texts, ["from 0", "from 1", "from 2"]);
    }
}

// Keeps P207.
#[test]
fn a_newcomer_gets_the_whole_log() {
    let scratch = Scratch::new("newcomer");
    let first = scratch.join("log");
    for number in 0..1000 {
        first.submit(format!("{number}").as_bytes()).unwrap();
    }
    let second = scratch.join("log");
    assert_eq!(second.propose(b"mine").unwrap(), 1000);
    let texts = texts(&mut second.decided(0), 1001);
    assert!(texts.iter().take(1000).enumerate().all(|(at, text)| *text == at.to_string()));
}

#[test]
fn commands_of_all_lengths_that_are_submitted_together_are_decided_in_order() {
    for largest in [1, 100, 64 << 10] {
        let scratch = Scratch::new(&format!("lengths-{largest}"));
        let join = || Group::builder(&scratch.1, "log").largest_command(largest).join().unwrap();
        let groups = [join(), join(), join()];
        let length_of =
            |number: usize| [0, 1, 99, 300, 5000, 20_000, 64 << 10][number % 7].min(largest);
        let command = |who: usize, number: usize| -> Vec<u8> {
            let byte = |at: usize| u8::try_from((who + number + at) % 251).unwrap();
            (0..length_of(number)).map(byte).collect()
        };
        // Nobody reads meanwhile, and the last ones wait for no call.
        for number in 1..=300 {
            for (who, group) in groups.iter().enumerate() {
                assert_eq!(group.submit(&command(who, number)).unwrap(), number as u64);
            }
        }
        let logs = groups.iter().map(|group| {
            let entries = group.decided(0).take(900).map(|decision| match decision {
                Decision::Entry(entry) => entry,
                Decision::Snapshot { next, .. } => panic!("a snapshot before {next}"),
            });
            entries.collect::<Vec<DecidedEntry>>()
        });
        let logs: Vec<_> = logs.collect();
        assert!(logs[0] == logs[1] && logs[1] == logs[2]);
        for (who, group) in groups.iter().enumerate() {
            let own = logs[0].iter().filter(|entry| entry.from == group.member());
            let own: Vec<_> = own.collect();
            assert_eq!(own.len(), 300);
            for (number, entry) in (1..).zip(own) {
                assert_eq!(entry.number, number as u64);
                assert!(entry.command[..] == command(who, number), "{who}, {number}");
            }
        }
    }
}

// Keeps P207.
#[test]
fn the_others_go_on_when_a_member_ends() {
    let scratch = Scratch::new("ends");
    let mut groups = vec![scratch.join("log"), scratch.join("log"), scratch.join("log")];
    groups[1].propose(b"one").unwrap();
    // It leads, and accepts.
    drop(groups.remove(0));
    assert_eq!(groups[1].propose(b"two").unwrap(), 1);
    assert_eq!(groups[0].propose(b"three").unwrap(), 2);
    eventually(|| groups.iter().all(|group| group.view().unwrap().members.len() == 2));
    for group in &groups {
        assert_eq!(texts(&mut group.decided(0), 3), ["one", "two", "three"]);
    }
    // Of two members both are needed.
    let last = groups.remove(1);
    drop(groups);
    let lost = last.propose(b"four").unwrap_err();
    assert!(matches!(lost, GroupError::Lost { .. }), "{lost}");
    assert_eq!(texts(&mut last.decided(0), 3), ["one", "two", "three"]);
    assert_eq!(last.decided(3).next(), None);
}

// Keeps P207.
#[test]
fn a_member_that_leaves_hands_its_roles_over() {
    let scratch = Scratch::new("leaves");
    let mut groups: Vec<Group> = (0..3).map(|_| scratch.join("log")).collect();
    for left in 0..3 {
        groups[0].propose(b"before").unwrap();
        groups.remove(0).leave(PATIENCE).unwrap();
        if let Some(group) = groups.last() {
            assert_eq!(group.propose(b"after").unwrap(), 2 * left + 1);
        }
    }
    // Nobody is left, so this is another group.
    assert_eq!(scratch.join("log").propose(b"new").unwrap(), 0);
}

#[test]
fn what_is_decided_outlives_the_member_but_does_not_keep_it() {
    let scratch = Scratch::new("outlives");
    let (first, second) = (scratch.join("log"), scratch.join("log"));
    first.propose(b"one").unwrap();
    let mut decided = first.decided(0);
    first.leave(PATIENCE).unwrap();
    assert_eq!(second.propose(b"two").unwrap(), 1);
    assert_eq!(texts(&mut decided, 1), ["one"]);
    // Two that leave at once: one of them is the last.
    let third = scratch.join("log");
    std::thread::scope(|scope| {
        for group in [second, third] {
            scope.spawn(|| group.leave(PATIENCE).unwrap());
        }
    });
    assert_eq!(scratch.join("log").propose(b"new").unwrap(), 0);
}

#[test]
fn mistakes_are_named() {
    let scratch = Scratch::new("group-mistakes");
    let group = Group::builder(&scratch.1, "log").largest_command(100).join().unwrap();
    let error = group.propose(&[0; 101]).unwrap_err().to_string();
    assert_eq!(error, "command of 101 bytes: group log permits at most 100");
    group.propose(&[0; 100]).unwrap();
    let error = Group::builder(&scratch.1, "a/b").join().unwrap_err();
    assert!(matches!(error, JoinGroupError::Name(_)), "{error}");
    let _door = scratch.1.listener("other.door").unwrap();
    let late = Group::builder(&scratch.1, "other").join_timeout(Duration::from_millis(1));
    let error = late.unwrap_err().to_string();
    assert!(error.contains("is about to become a member"), "{error}");
}

// Keeps P209.
#[test]
fn a_log_in_a_file_outlives_its_members() {
    let scratch = Scratch::new("file");
    let file = scratch.0.join("orders");
    let join = || Group::builder(&scratch.1, "log").file(&file).join_timeout(PATIENCE).unwrap();
    let mut groups: Vec<Group> = (0..3).map(|_| join()).collect();
    for number in 0..10 {
        groups[number % 3].propose(format!("{number}").as_bytes()).unwrap();
    }
    // It leads, and accepts: another one writes the file from here on.
    groups.remove(0).leave(PATIENCE).unwrap();
    assert_eq!(groups[1].propose(b"10").unwrap(), 10);
    drop(groups.remove(0));
    drop(groups);
    let first = join();
    assert_eq!(first.propose(b"11").unwrap(), 11);
    let second = join();
    for group in [&first, &second] {
        let all: Vec<String> = (0..12).map(|number| number.to_string()).collect();
        assert_eq!(texts(&mut group.decided(0), 12), all);
    }
    // What stands for the first entries is in the file, too.
    first.truncate(8, b"eight").unwrap();
    assert_eq!(first.propose(b"12").unwrap(), 12);
    drop((first, second));
    let mut decided = join().decided(0);
    let snapshot = decided.next_timeout(PATIENCE).unwrap();
    assert_eq!(snapshot, Some(Decision::Snapshot { next: 8, state: b"eight".as_slice().into() }));
    assert_eq!(texts(&mut decided, 5), ["8", "9", "10", "11", "12"]);
}

#[test]
fn the_name_of_a_group_leaves_room_for_its_members() {
    let scratch = Scratch::new("names");
    let join = |bytes: usize| Group::builder(&scratch.1, &"x".repeat(bytes)).join_timeout(PATIENCE);
    let group = join(64).unwrap();
    group.propose(b"one").unwrap();
    Communicator::builder(&scratch.1, &group, &group.view().unwrap()).connect().unwrap();
    let refused = join(65).unwrap_err().to_string();
    assert_eq!(refused, "group name of 65 bytes: at most 64 are possible");
    let refused = Group::builder(&scratch.1, "a b").join_timeout(PATIENCE).unwrap_err().to_string();
    assert!(refused.starts_with("group name \"a b\": character ' ' is not allowed"), "{refused}");
}

#[test]
fn the_longest_command_has_a_limit_that_is_named() {
    let scratch = Scratch::new("largest");
    for asked in [0, (256 << 20) + 1, usize::MAX / 2, usize::MAX] {
        let builder = Group::builder(&scratch.1, "log").largest_command(asked);
        let refused = builder.join_timeout(PATIENCE).unwrap_err().to_string();
        let expected = format!("longest command of {asked} bytes: 1 to 268435456 are possible");
        assert_eq!(refused, expected);
    }
    let group = Group::builder(&scratch.1, "log").largest_command(256 << 20).join().unwrap();
    assert_eq!(group.largest_command(), 256 << 20);
}

// Keeps P220.
#[test]
fn a_file_is_its_groups_also_while_nobody_writes_it() {
    let scratch = Scratch::new("between");
    let file = scratch.0.join("orders");
    let join = || Group::builder(&scratch.1, "log").file(&file).join_timeout(PATIENCE).unwrap();
    let (first, others_of_it) = (join(), [join(), join()]);
    let lock = scratch.0.join(".orders.corewire-lock");
    let other = || Group::builder(&scratch.1, "other").file(&file);
    // The acceptor has just ended, or is about to begin.
    drop(first);
    let refused = other().join_timeout(Duration::from_millis(50)).unwrap_err().to_string();
    assert!(refused.contains("another process has"), "{refused}");
    assert!(SharedLock::take(&lock, b"others", Instant::now()).unwrap().is_none());
    drop(others_of_it);
    // A process that another test starts has all descriptors for a moment, and so the lock.
    let until = Instant::now() + PATIENCE;
    while SharedLock::take(&lock, b"others", Instant::now()).unwrap().is_none() {
        assert!(Instant::now() < until, "the lock is free when the last member has ended");
        std::thread::yield_now();
    }
    other().join_timeout(PATIENCE).unwrap();
}

// Keeps P209.
#[test]
fn members_have_the_same_file() {
    let scratch = Scratch::new("files");
    let builder = || Group::builder(&scratch.1, "log");
    let file = scratch.0.join("orders");
    let group = builder().file(&file).join_timeout(PATIENCE).unwrap();
    let other = scratch.0.join("others");
    for (builder, error) in [
        (builder(), "this process was not given one".to_owned()),
        (builder().file(&other), format!("not in {}", other.display())),
        (builder().file(scratch.0.join("nowhere/log")), "cannot find the directory of".to_owned()),
    ] {
        let said = builder.join_timeout(PATIENCE).unwrap_err().to_string();
        assert!(said.contains(&error), "{said}");
    }
    assert!(!other.exists());
    // A path may have any bytes, and lead to nothing but a file.
    use std::os::unix::ffi::OsStrExt;
    let odd = scratch.0.join(std::ffi::OsStr::from_bytes(b"odd-\xff"));
    let odd = || Group::builder(&scratch.1, "odd").file(&odd).join_timeout(PATIENCE).unwrap();
    let both = [odd(), odd()];
    assert_eq!(both[1].propose(b"one").unwrap(), 0);
    let device = builder().file("/dev/null").join_timeout(PATIENCE).unwrap_err().to_string();
    assert!(device.contains("is not the file of a log"), "{device}");
    // Another group does not get it, though it is in the same process.
    let taken = Group::builder(&scratch.1, "other").file(&file);
    let taken = taken.join_timeout(Duration::from_millis(50)).unwrap_err().to_string();
    assert!(taken.contains("another process has"), "{taken}");
    let late = Group::builder(&scratch.1, "memory").join_timeout(PATIENCE).unwrap();
    let said = Group::builder(&scratch.1, "memory").file(&file).join_timeout(PATIENCE);
    assert!(said.unwrap_err().to_string().contains("has its log in memory only"));
    std::fs::remove_file(&file).unwrap();
    let said = group.propose(b"one").unwrap_err().to_string();
    assert!(said.contains("was removed or replaced"), "{said}");
    drop(late);
}

/// All commands, one after the other.
#[derive(Default)]
struct All(Vec<u8>);

impl StateMachine for All {
    type Output = usize;

    fn apply(&mut self, entry: &DecidedEntry) -> usize {
        self.0.extend_from_slice(&entry.command);
        self.0.len()
    }

    fn snapshot(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn restore(&mut self, snapshot: &[u8]) {
        self.0 = snapshot.to_vec();
    }
}

// Keeps P207.
#[test]
fn a_snapshot_takes_the_place_of_entries_for_newcomers_too() {
    let scratch = Scratch::new("snapshots");
    let new = || Replicated::new(scratch.join("log"), All::default()).snapshot_every(100);
    let (mut first, mut second) = (new(), new());
    let bytes: Vec<u8> = (0..=249).collect();
    for (number, byte) in bytes.iter().enumerate() {
        let one = if number % 3 == 0 { &mut first } else { &mut second };
        let (index, output) = (number as u64, number + 1);
        assert_eq!(one.propose(&[*byte]).unwrap(), Proposed::Applied { index, output });
    }
    assert_eq!(first.read_at(249).unwrap().0, bytes);
    assert_eq!(first.applied_count(), 250);
    eventually(|| first.read().0 == bytes && second.read().0 == bytes);
    let third = scratch.join("log");
    let Some(Decision::Snapshot { next, state }) = third.decided(0).next() else {
        panic!("entries are kept");
    };
    assert_eq!((next, &state[..]), (200, &bytes[..200]));
    let mut third = Replicated::new(third, All::default());
    assert_eq!(third.propose(&[99]).unwrap().output(), Some(251));
    assert!(third.read().0.starts_with(&bytes));
}

// Keeps P207.
#[test]
fn long_entries_give_way_to_a_snapshot_by_their_bytes() {
    let scratch = Scratch::new("long-entries");
    let mut first = Replicated::new(scratch.join("log"), All::default());
    for _ in 0..20 {
        first.propose(&[1; 64 << 10]).unwrap();
    }
    // After 1 MiB; the next one is due after four times its bytes.
    let second = scratch.join("log");
    let Some(Decision::Snapshot { next, state }) = second.decided(0).next() else {
        panic!("entries are kept");
    };
    assert_eq!((next, state.len()), (16, 1 << 20));
    let mut second = Replicated::new(second, All::default());
    assert_eq!(second.read_at(19).unwrap().0.len(), 20 * (64 << 10));
}

/// Every third entry.
#[derive(Default)]
struct EveryThird(Vec<DecidedEntry>);

impl StateMachine for EveryThird {
    type Output = ();

    fn apply(&mut self, entry: &DecidedEntry) {
        if entry.index.is_multiple_of(3) {
            self.0.push(entry.clone());
        }
    }

    fn snapshot(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restore(&mut self, _: &[u8]) {}
}

#[test]
fn entries_that_a_program_keeps_stay_whole_while_the_log_goes_on() {
    const LENGTHS: [usize; 7] = [0, 1, 100, 1000, 5000, 20_000, 60_000];
    let scratch = Scratch::new("kept-entries");
    let mut members = [(); 2].map(|()| Replicated::new(scratch.join("log"), EveryThird::default()));
    let command = |number: u64| {
        let of = usize::try_from(number).unwrap() % LENGTHS.len();
        vec![u8::try_from(number % 251).unwrap(); LENGTHS[of]]
    };
    for number in 0..400 {
        let one = &mut members[usize::from(number / 50 % 2 == 1)];
        one.group().submit(&command(number)).unwrap();
        if number % 10 == 9 {
            one.group().flush(PATIENCE).unwrap();
            // Entries give way to snapshots, by their bytes.
            members.iter_mut().for_each(|member| _ = member.read());
        }
    }
    let mut kept = Vec::new();
    for mut member in members {
        let state = member.read_at(399).unwrap();
        // A snapshot may stand for entries that this member has not read.
        assert!(!state.0.is_empty());
        kept.extend(state.0.iter().cloned());
    }
    for entry in kept {
        assert_eq!(entry.command, command(entry.index), "{}", entry.index);
    }
}
