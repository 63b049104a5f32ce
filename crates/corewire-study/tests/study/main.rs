//! Tests of the study, run like a user runs it.

mod active;
mod collectives;
mod commands;
mod interfaces;
mod mechanisms;
mod nemesis;
mod protocols;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// One study at a time: each pins its processes to the same cores, and rings are slow without a core
/// for each process.
static TURN: Mutex<()> = Mutex::new(());

/// Runs the program and waits for its end.
fn study(arguments: &[&str]) -> Output {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    command(arguments).output().expect("the program is there")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corewire-study"));
    command.args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory that is removed after the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("study-test-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
