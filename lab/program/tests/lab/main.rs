//! What measures, run like a user runs it.

mod bench;
mod model;
#[cfg(feature = "rivals")]
mod study;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// One measurement at a time: each pins its processes to the same cores, and rings are slow without a core
/// for each process.
static TURN: Mutex<()> = Mutex::new(());

/// The program with these arguments, separated by spaces, and nothing on its input.
fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corewire-lab"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

/// Runs it to its end.
fn run(arguments: &str) -> Output {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    command(arguments).output().expect("the program is there")
}

/// A run that is to succeed: what it printed.
#[track_caller]
fn printed(arguments: &str) -> String {
    let done = run(arguments);
    assert!(done.status.success(), "{arguments}: {done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// A run that is to succeed: the JSON that it printed.
#[track_caller]
fn json(arguments: &str) -> serde_json::Value {
    serde_json::from_str(&printed(arguments)).unwrap()
}

/// A run that is to fail with `code`, and to say why in one line that holds `word`.
#[track_caller]
fn refused(arguments: &str, code: i32, word: &str) {
    let done = run(arguments);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{arguments}: {said}");
    assert!(said.starts_with("corewire: ") && said.lines().count() == 1, "{said:?}");
    assert!(said.contains(word), "{word:?} is not in {said:?}");
    assert!(done.stdout.is_empty(), "{arguments}: {done:?}");
}

/// A directory that is removed after the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corewire-lab-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    #[cfg(feature = "rivals")]
    fn text(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn wrong_usage_is_one_line_and_code_2() {
    for (arguments, word) in [
        ("frob", "frob"),
        ("bench frob", "frob"),
        ("bench latency --bytes 7", "8..=268435456"),
        ("bench stream --slots 100", "a power of two, not 100"),
        ("model", "RING"),
        ("model frob", "frob"),
        ("model broadcast --receivers 0", "1..=255"),
        ("model broadcast --slots 100", "power of two from 2 to 16384, not 100"),
        ("model broadcast --topology /etc/hostname", "/etc/hostname: not a topology"),
    ] {
        refused(arguments, 2, word);
    }
    for command in ["bench latency", "model"] {
        let help = printed(&format!("{command} --help"));
        assert!(help.contains("Example"), "{help}");
    }
}
