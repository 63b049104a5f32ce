use super::super::part::{Part, PartRules};
use super::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let name = format!("corewire-checkpoint-{test}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn open(&self, rank: usize, ranks: usize) -> Result<Files, CheckpointFileError> {
        Files::open(&self.0, &std::env::temp_dir(), "heat", rank, ranks, None)
    }

    fn files(&self, rank: usize) -> Files {
        self.open(rank, 2).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "heat.lock");
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn checkpoint(number: u64) -> Checkpoint {
    behind(number - 1, number)
}

fn behind(before: u64, number: u64) -> Checkpoint {
    let mut part = Part::new(2, PartRules::default());
    part.send(1, Command(b"to one".as_slice().into()));
    part.checkpoint(number);
    let (mark, state) = (part.mark().clone(), vec![7; 1000].into());
    Checkpoint { mark, before, is_final: false, state }
}

#[test]
fn a_file_gives_back_its_checkpoint_and_later_ones_go() {
    let scratch = Scratch::new("back");
    let files = scratch.files(0);
    assert_eq!(files.newest(), Ok(0));
    assert!(files.restore(0).unwrap().is_none());
    for (before, number) in [(0, 2), (2, 5), (5, 6)] {
        files.write(&behind(before, number)).unwrap();
    }
    assert_eq!(files.newest(), Ok(6));
    let restored = files.restore(3).unwrap().unwrap();
    assert_eq!((restored.mark, &restored.state[..]), (checkpoint(5).mark, &[7; 1000][..]));
    assert_eq!(scratch.names(), ["heat.0.2", "heat.0.5"]);
    assert!(files.restore(0).unwrap().is_none());
    assert_eq!(scratch.names(), [""; 0]);
}

#[test]
fn files_that_no_state_needs_are_removed() {
    let scratch = Scratch::new("unneeded");
    let (zero, one) = (scratch.files(0), scratch.files(1));
    for number in 1..=4 {
        zero.write(&checkpoint(number)).unwrap();
    }
    assert_eq!(scratch.names().len(), 4, "rank 1 has none: all begin again");
    let mut other = checkpoint(3);
    other.mark.received[0] = 9;
    one.write(&other).unwrap();
    zero.write(&checkpoint(7)).unwrap();
    assert_eq!(scratch.names(), ["heat.0.3", "heat.0.4", "heat.0.7", "heat.1.3"]);
    let progress = zero.progress(7).unwrap();
    let [Progress { rank: 1, number: 3, received }] = &progress[..] else { panic!("{progress:?}") };
    assert_eq!(received[..], [9, 0]);
    assert!(zero.progress(2).unwrap().is_empty());
}

#[test]
fn damaged_files_are_named() {
    let scratch = Scratch::new("damaged");
    let files = scratch.files(0);
    files.write(&checkpoint(1)).unwrap();
    let path = scratch.0.join("heat.0.1");
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        // Four bytes mean nothing.
        if (36..40).contains(&at) {
            continue;
        }
        let error = files.restore(1).unwrap_err().to_string();
        assert!(error.contains("heat.0.1"), "{error}");
        std::fs::write(&path, &whole[..at]).unwrap();
        let error = files.restore(1).unwrap_err().to_string();
        assert!(error.contains("heat.0.1"), "{error}");
    }
    std::fs::write(&path, &whole).unwrap();
    let other = scratch.open(0, 3).unwrap();
    let error = other.restore(1).unwrap_err();
    assert_eq!(error, CheckpointFileError::Ranks { path, found: 2, own: 3 });
}

#[test]
fn a_computation_whose_lock_or_directory_is_gone_writes_nothing_more() {
    let scratch = Scratch::new("replaced");
    let files = scratch.files(0);
    files.write(&checkpoint(1)).unwrap();
    std::fs::remove_file(scratch.0.join("heat.lock")).unwrap();
    let is_replaced = |done: Result<(), _>| matches!(done, Err(CheckpointFileError::Replaced(_)));
    assert!(is_replaced(files.write(&checkpoint(2))));
    assert!(is_replaced(files.restore(0).map(drop)));
    // Another domain has the lock by now.
    let other = Files::open(&scratch.0, Path::new("/"), "heat", 0, 2, None).unwrap();
    assert!(is_replaced(files.write(&checkpoint(2))));
    assert_eq!(other.newest().unwrap(), 1);
    let moved = scratch.0.with_extension("moved");
    std::fs::rename(&scratch.0, &moved).unwrap();
    std::fs::create_dir(&scratch.0).unwrap();
    assert!(is_replaced(other.write(&checkpoint(2))));
    std::fs::remove_dir_all(&moved).unwrap();
}

// Keeps P220.
#[test]
fn another_domain_other_users_and_links_are_kept_out() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let scratch = Scratch::new("kept-out");
    let files = scratch.files(0);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scratch.0), 0o700);
    let (other, lock) = (Path::new("/"), scratch.0.join("heat.lock"));
    let refused = Files::open(&scratch.0, other, "heat", 1, 2, None).unwrap_err();
    assert!(refused.to_string().contains("another domain has a computation \"heat\""), "{refused}");
    // One of another name, or of the same domain.
    Files::open(&scratch.0, other, "cold", 1, 2, None).unwrap();
    scratch.files(1).write(&checkpoint(1)).unwrap();
    assert_eq!((mode(&scratch.0.join("heat.1.1")), mode(&lock)), (0o600, 0o600));
    // Links are not followed, neither by those that write nor by those that read.
    let target = scratch.0.join("target");
    std::fs::write(&target, "theirs").unwrap();
    symlink(&target, scratch.0.join("heat.0.new")).unwrap();
    symlink(&target, scratch.0.join("heat.0.7")).unwrap();
    let half = scratch.0.join(".heat.0.new.0123456789abcdef");
    std::fs::write(&half, "half").unwrap();
    files.sweep().unwrap();
    assert!(!half.exists());
    let refused = [files.write(&checkpoint(7)).map(drop), files.has_finished(0).map(drop)];
    for refused in refused {
        assert_eq!(refused, Err(CheckpointFileError::Damaged(scratch.0.join("heat.0.7"))));
    }
    files.write(&checkpoint(8)).unwrap();
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "theirs");
    drop(files);
    std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(0o777)).unwrap();
    let refused = scratch.open(0, 2).unwrap_err().to_string();
    assert!(refused.contains("with mode 777"), "{refused}");
}
