//! The file of a log: what is read back, what is damage, what is cut and kept.
//!
//! Every test here keeps P209.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::*;
use crate::member::Member;

fn nothing(_: &str) {}

/// A directory that goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let name = format!("corewire-group-file-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    fn write(&self, bytes: &[u8]) {
        std::fs::write(self.log(), bytes).unwrap();
    }

    /// The files beside the log that keep what was cut off, which are removed.
    fn take_kept(&self) -> Vec<u8> {
        let mut kept = Vec::new();
        for number in 1.. {
            let name = self.0.join(format!("log.cut-{number}"));
            let Ok(bytes) = std::fs::read(&name) else { break };
            kept.extend(bytes);
            std::fs::remove_file(&name).unwrap();
        }
        kept
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn entries(numbers: impl IntoIterator<Item = u64>) -> Vec<Entry<Command>> {
    let from = Member { place: 1, life: 7 };
    let entry = |number: u64| {
        let command = Command::copy(&vec![b'x'; usize::try_from(number % 64).unwrap()]);
        Entry { from, number, command }
    };
    numbers.into_iter().map(entry).collect()
}

/// The lock of a group that has the file at this path.
fn lock_of(path: &Path) -> SharedLock {
    SharedLock::take(&FileId::of(path).unwrap().lock(), b"group", Instant::now()).unwrap().unwrap()
}

fn load(path: &Path) -> Result<(u64, Vec<u64>), LogFileError> {
    load_with(path, &nothing)
}

fn load_with(path: &Path, tell: &Tell) -> Result<(u64, Vec<u64>), LogFileError> {
    let (file, contents) = LogFile::load(path, &lock_of(path), tell)?.unwrap();
    assert_eq!(contents.entries, entries(contents.entries.iter().map(|entry| entry.number)));
    Ok((file.next(), contents.entries.iter().map(|entry| entry.number).collect()))
}

fn open(path: &Path) -> LogFile {
    LogFile::load(path, &lock_of(path), &nothing).unwrap().unwrap().0
}

/// What the file is when the process is killed now: the header is written, and nothing is settled.
fn as_if_killed(file: LogFile) {
    // The lock goes with the descriptor; `settle` only waits for the disk.
    drop(file);
}

#[test]
fn a_file_gives_back_what_was_appended() {
    let scratch = Scratch::new("appended");
    let mut file = open(&scratch.log());
    file.append(entries(1..=3)).unwrap();
    file.append(entries(4..=4)).unwrap();
    assert!(
        LogFile::load(&scratch.log(), &lock_of(&scratch.log()), &nothing).unwrap().is_none(),
        "it is in use"
    );
    // What reads it takes no lock away.
    assert!(!std::fs::read(scratch.log()).unwrap().is_empty());
    assert!(
        LogFile::load(&scratch.log(), &lock_of(&scratch.log()), &nothing).unwrap().is_none(),
        "it is still in use"
    );
    drop(file);
    assert_eq!(load(&scratch.log()).unwrap(), (4, vec![1, 2, 3, 4]));
}

/// A log of `batches` batches that was left in order, or whose process was killed while it wrote one more: its bytes, how
/// many entries were on the disk for certain, and from where on its end may be torn.
fn made(scratch: &Scratch, count: u64, batch: u64, is_killed: bool) -> (Vec<u8>, u64, usize) {
    let _ = std::fs::remove_file(scratch.log());
    let mut file = open(&scratch.log());
    for first in (1..=count).step_by(usize::try_from(batch).unwrap()) {
        file.append(entries(first..first + batch)).unwrap();
    }
    let synced = usize::try_from(file.length).unwrap();
    if is_killed {
        // Half of a batch that nobody was told of.
        let mut buffer = Vec::new();
        for entry in entries(count + 1..=count + 2) {
            let content = Content::Entry(entry.number - 1, entry);
            file.header.marks.write(&mut buffer, file.length, &content);
        }
        file.file.write_all_at(&buffer[..buffer.len() - 9], file.length).unwrap();
        as_if_killed(file);
    } else {
        drop(file);
    }
    (std::fs::read(scratch.log()).unwrap(), count, synced)
}

/// What is read of a changed file is at least what was on the disk, or the file is left as it is, with an error. What is cut
/// is counted and kept.
fn is_never_less(scratch: &Scratch, bytes: &[u8], synced: u64, what: &str) -> bool {
    scratch.write(bytes);
    let told = Mutex::new(Vec::new());
    let tell = {
        let told: &'static Mutex<Vec<String>> = Box::leak(Box::new(told));
        (told, move |text: &str| told.lock().unwrap().push(text.to_owned()))
    };
    let (told, tell) = tell;
    match load_with(&scratch.log(), &tell) {
        Ok((next, numbers)) => {
            assert!(next >= synced, "{next} of {synced}: {what}");
            assert_eq!(numbers, Vec::from_iter(1..=next), "{what}");
            let after = std::fs::read(scratch.log()).unwrap();
            let kept = scratch.take_kept();
            if after.len() < bytes.len() {
                let cut = &bytes[after.len()..];
                let without_zeros =
                    cut.len() - cut.iter().rev().take_while(|byte| **byte == 0).count();
                assert!(kept.len() >= without_zeros && kept[..] == cut[..kept.len()], "{what}");
                let told = told.lock().unwrap().join("; ");
                assert!(told.contains(&format!("cut {} bytes", cut.len())), "{told}: {what}");
            } else {
                assert!(kept.is_empty(), "{what}");
            }
            true
        }
        Err(error) => {
            let is_named = matches!(
                error,
                LogFileError::Damaged { .. }
                    | LogFileError::NotALog(_)
                    | LogFileError::Empty(_)
                    | LogFileError::Version { .. }
            );
            assert!(is_named, "{error}: {what}");
            assert_eq!(std::fs::read(scratch.log()).unwrap(), bytes, "it is left as it is: {what}");
            assert!(scratch.take_kept().is_empty());
            false
        }
    }
}

#[test]
fn nothing_that_was_on_the_disk_is_lost_without_an_error() {
    let scratch = Scratch::new("changed");
    // Every byte takes minutes: these are what the headers use, and a few of each record of the long one.
    let is_full = std::env::var("COREWIRE_LOG_BYTES").is_ok_and(|bytes| bytes == "all");
    for (count, batch, step) in [(6, 2, 1), (200, 10, if is_full { 1 } else { 97 })] {
        for is_killed in [false, true] {
            let (bytes, synced, end) = made(&scratch, count, batch, is_killed);
            let name = |what: &str, at: usize| format!("{what} at {at}, {count}, {is_killed}");
            let is_read = |bytes: &[u8], what: &str| is_never_less(&scratch, bytes, synced, what);
            assert!(is_read(&bytes, "as it is"));
            let headers = if is_full { [0..4096, 4096..8192] } else { [0..64, 4090..4150] };
            let records = (8192..bytes.len()).step_by(step);
            let places = || headers.iter().cloned().flatten().chain(records.clone());
            for at in places() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                is_read(&changed, &name("a bit", at));
                changed[at] = 0;
                is_read(&changed, &name("a zero", at));
            }
            for length in places() {
                let is_whole = is_read(&bytes[..length], &name("cut", length));
                assert!(!is_whole || length >= end, "cut at {length}");
            }
            for tail in [&[0; 5000][..], &bytes[8192..], &bytes[..8192], &bytes[8192..8300], b"x"] {
                let longer = [&bytes[..], tail].concat();
                is_read(&longer, &name("a tail", tail.len()));
            }
        }
    }
}

#[test]
fn a_terabyte_that_nobody_wrote_is_cut_at_once() {
    let scratch = Scratch::new("hole");
    let mut file = open(&scratch.log());
    file.append(entries(1..=3)).unwrap();
    drop(file);
    let file = OpenOptions::new().write(true).open(scratch.log()).unwrap();
    file.set_len(1 << 40).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let at = Arc::clone(&told);
    let tell = move |text: &str| at.lock().unwrap().push(text.to_owned());
    assert_eq!(load_with(&scratch.log(), &tell).unwrap(), (3, vec![1, 2, 3]));
    let told = told.lock().unwrap().join("; ");
    assert!(told.contains("cut 1099511") && told.contains("only zeros"), "{told}");
}

#[test]
fn a_torn_tail_is_cut_at_every_length_and_kept() {
    let scratch = Scratch::new("torn");
    let (bytes, synced, end) = made(&scratch, 4, 2, true);
    for length in end..bytes.len() {
        assert!(is_never_less(&scratch, &bytes[..length], synced, &format!("{length}")));
        // It goes on from there.
        let mut file = open(&scratch.log());
        let next = file.next();
        file.append(entries([next + 1])).unwrap();
        drop(file);
        assert_eq!(load(&scratch.log()).unwrap().0, next + 1);
    }
}

/// The machine fails: of the last header, and of the records behind the last `fdatasync`, any may be on the disk.
#[test]
fn an_older_header_loses_nothing() {
    let scratch = Scratch::new("older");
    let mut file = open(&scratch.log());
    file.append(entries(1..=2)).unwrap();
    let before = std::fs::read(scratch.log()).unwrap();
    file.append(entries(3..=5)).unwrap();
    drop(file);
    let mut bytes = std::fs::read(scratch.log()).unwrap();
    bytes[..8192].copy_from_slice(&before[..8192]);
    scratch.write(&bytes);
    assert_eq!(load(&scratch.log()).unwrap(), (5, vec![1, 2, 3, 4, 5]));
    // A hole in what was written last.
    bytes[before.len()..before.len() + 24].fill(0);
    scratch.write(&bytes);
    assert_eq!(load(&scratch.log()).unwrap(), (2, vec![1, 2]));
    assert_eq!(scratch.take_kept(), bytes[before.len()..]);
}

#[test]
fn a_snapshot_takes_the_place_of_entries() {
    let scratch = Scratch::new("snapshot");
    let mut file = open(&scratch.log());
    file.append(entries(1..=5)).unwrap();
    let state = entries([9])[0].command.clone();
    let snapshot = Snapshot { next: 3, last: Default::default(), state: state.clone() };
    file.compact(snapshot, &nothing).unwrap();
    file.append(entries(6..=6)).unwrap();
    drop(file);
    let (file, contents) =
        LogFile::load(&scratch.log(), &lock_of(&scratch.log()), &nothing).unwrap().unwrap();
    assert_eq!(file.next(), 6);
    assert_eq!(contents.snapshot.map(|snapshot| (snapshot.next, snapshot.state)), Some((3, state)));
    assert_eq!(contents.entries, entries(4..=6));
    drop(file);
    // A new file was whole when it took its name.
    let bytes = std::fs::read(scratch.log()).unwrap();
    scratch.write(&bytes[..8192]);
    assert!(matches!(load(&scratch.log()), Err(LogFileError::Damaged { next: 0, .. })));
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 2, "only the lock is beside it");
}

#[test]
fn another_acceptor_keeps_what_was_not_published_beside() {
    let scratch = Scratch::new("begin");
    let mut file = open(&scratch.log());
    file.append(entries(1..=3)).unwrap();
    let published = file.length;
    file.append(entries(4..=5)).unwrap();
    drop(file);
    let bytes = std::fs::read(scratch.log()).unwrap();
    let mut file =
        LogFile::begin_at(&scratch.log(), &lock_of(&scratch.log()), 3, &nothing).unwrap().unwrap();
    assert_eq!(scratch.take_kept(), bytes[usize::try_from(published).unwrap()..]);
    file.append(entries(40..=40)).unwrap();
    drop(file);
    assert_eq!(load(&scratch.log()).unwrap(), (4, vec![1, 2, 3, 40]));
    let late = LogFile::begin_at(&scratch.log(), &lock_of(&scratch.log()), 9, &nothing).map(drop);
    assert_eq!(late, Err(LogFileError::Replaced(scratch.log())), "entries are missing");
    scratch.write(b"");
    let empty = LogFile::begin_at(&scratch.log(), &lock_of(&scratch.log()), 4, &nothing).map(drop);
    assert_eq!(empty, Err(LogFileError::Empty(scratch.log())));
}

#[test]
fn other_files_are_left_alone() {
    let scratch = Scratch::new("other");
    for text in ["x", "a letter to a friend, long enough to be a log by its length"] {
        scratch.write(text.as_bytes());
        let opened = LogFile::load(&scratch.log(), &lock_of(&scratch.log()), &nothing).map(drop);
        assert_eq!(opened, Err(LogFileError::NotALog(scratch.log())));
        assert_eq!(std::fs::read_to_string(scratch.log()).unwrap(), text);
    }
    scratch.write(b"");
    assert_eq!(load(&scratch.log()), Err(LogFileError::Empty(scratch.log())));
    assert_eq!(FileId::of(&scratch.0), Err(LogFileError::NotALog(scratch.0.clone())));
    assert!(FileId::of(&scratch.0.join("nowhere/log")).is_err());
    std::fs::create_dir(scratch.0.join("sub")).unwrap();
    let by_another_way = scratch.0.join("sub/../log");
    assert_eq!(FileId::of(&by_another_way), FileId::of(&scratch.log()));
    // A log whose name looks like that of a file that is being written, and what a killed process has left.
    std::fs::remove_file(scratch.log()).unwrap();
    let mut other = open(&scratch.0.join("log.corewire-new"));
    other.append(entries(1..=1)).unwrap();
    let left = scratch.0.join(".log.corewire-new.0123456789abcdef");
    std::fs::write(&left, "half").unwrap();
    open(&scratch.log()).append(entries(1..=1)).unwrap();
    assert_eq!(load(&scratch.log()).unwrap().0, 1);
    assert!(!left.exists());
    drop(other);
    assert_eq!(load(&scratch.0.join("log.corewire-new")).unwrap(), (1, vec![1]));
}

// Keeps P220.
#[test]
fn a_file_with_another_name_begins_no_group_and_is_left_alone() {
    let scratch = Scratch::new("linked");
    open(&scratch.log()).append(entries(1..=2)).unwrap();
    let mut torn = std::fs::read(scratch.log()).unwrap();
    torn.extend([7; 5]);
    scratch.write(&torn);
    let other = scratch.0.join("other");
    std::fs::hard_link(scratch.log(), &other).unwrap();
    for name in [&scratch.log(), &other] {
        assert_eq!(load(name), Err(LogFileError::Linked(name.clone())));
        assert_eq!(std::fs::read(name).unwrap(), torn);
    }
    // The group that lives goes on.
    drop(LogFile::begin_at(&scratch.log(), &lock_of(&scratch.log()), 2, &nothing).unwrap());
    std::fs::remove_file(other).unwrap();
    assert_eq!(load(&scratch.log()).unwrap(), (2, vec![1, 2]));
}

// Keeps P220.
#[test]
fn a_group_whose_lock_was_removed_cuts_nothing() {
    let scratch = Scratch::new("unlocked");
    let lock = lock_of(&scratch.log());
    open(&scratch.log()).append(entries(1..=1)).unwrap();
    std::fs::remove_file(lock.path()).unwrap();
    // Another group has its own by now.
    open(&scratch.log()).append(entries(2..=3)).unwrap();
    let removed = Err(LogFileError::LockReplaced(lock.path().to_owned()));
    let begun = LogFile::begin_at(&scratch.log(), &lock, 1, &nothing).map(drop);
    assert_eq!(begun, removed);
    assert_eq!(LogFile::load(&scratch.log(), &lock, &nothing).map(drop), removed);
    assert_eq!(load(&scratch.log()).unwrap(), (3, vec![1, 2, 3]));
}

#[test]
fn a_file_that_was_removed_or_cut_is_noticed() {
    let scratch = Scratch::new("removed");
    let mut file = open(&scratch.log());
    file.append(entries(1..=1)).unwrap();
    std::fs::remove_file(scratch.log()).unwrap();
    assert_eq!(file.append(entries(2..=2)), Err(LogFileError::Replaced(scratch.log())));
    let mut file = open(&scratch.log());
    file.append(entries(1..=1)).unwrap();
    scratch.write(b"");
    assert_eq!(file.append(entries(2..=2)), Err(LogFileError::Replaced(scratch.log())));
}

/// A file as version 1 has written it.
fn of_version_1(numbers: u64) -> Vec<u8> {
    let marks = format::Marks { mark: 0x1234_5678, seed: 9 };
    let mut bytes = format::MAGIC.to_vec();
    for word in [1, marks.mark, marks.seed, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(40_u64.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new_with_initial(0);
    hasher.update(&bytes[..28]);
    hasher.update(&bytes[32..40]);
    bytes[28..32].copy_from_slice(&hasher.finalize().to_le_bytes());
    for (index, entry) in (0..).zip(entries(1..=numbers)) {
        let synced = bytes.len() as u64;
        marks.write(&mut bytes, synced, &Content::Entry(index, entry));
    }
    bytes
}

#[test]
fn a_file_of_version_1_is_read_and_written_anew() {
    let scratch = Scratch::new("version-1");
    let bytes = of_version_1(5);
    scratch.write(&[&bytes[..], b"torn"].concat());
    assert_eq!(load(&scratch.log()).unwrap(), (5, vec![1, 2, 3, 4, 5]));
    assert_eq!(scratch.take_kept(), b"torn");
    let after = std::fs::read(scratch.log()).unwrap();
    assert_eq!(format::word(&after, 16), 3);
    assert_eq!(load(&scratch.log()).unwrap().0, 5);
    let mut damaged = bytes;
    damaged[60] ^= 1;
    scratch.write(&damaged);
    assert!(matches!(load(&scratch.log()), Err(LogFileError::Damaged { next: 0, .. })));
    assert_eq!(std::fs::read(scratch.log()).unwrap(), damaged);
}

#[test]
fn what_can_be_read_of_a_damaged_log_is_copied() {
    let scratch = Scratch::new("salvage");
    let (mut bytes, ..) = made(&scratch, 6, 1, false);
    let second = 8192
        + (bytes[8192..].windows(4).skip(8).position(|at| *at == bytes[8192..8196])).unwrap()
        + 8;
    bytes[second + 30] ^= 1;
    scratch.write(&bytes);
    assert!(matches!(load(&scratch.log()), Err(LogFileError::Damaged { next: 1, .. })));
    let copy = scratch.0.join("copy");
    let salvaged = salvage_log(&scratch.log(), &copy).unwrap();
    assert_eq!(
        (salvaged.entries, salvaged.missing),
        (5, Vec::from([std::ops::Range { start: 1, end: 2 }]))
    );
    assert_eq!(load(&copy).unwrap(), (5, vec![1, 3, 4, 5, 6]));
    assert_eq!(std::fs::read(scratch.log()).unwrap(), bytes);
    assert!(salvage_log(&scratch.log(), &copy).is_err(), "it exists");
}
