//! Runs every example in a domain of its own, and looks at what it prints.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A runtime directory, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let name = format!("corewire-example-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("COREWIRE_RUNTIME_DIR", &self.0).stdout(Stdio::piped());
        command
    }

    fn run(&self, program: &str) -> String {
        printed(&self.command(program).output().unwrap())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn hello_crosses_processes() {
    let directory = Directory::new("hello");
    let program = env!("CARGO_BIN_EXE_hello");
    let receiver = directory.command(program).arg("receive").spawn().unwrap();
    let sender = directory.command(program).arg("send").output().unwrap();
    assert_eq!(printed(&sender), "");
    let received = printed(&receiver.wait_with_output().unwrap());
    assert_eq!(received, "hello, cores\nwritten in place\n");
}

#[test]
fn fan_out_reads_every_byte() {
    let sum: u64 = (0..200u64).map(|number| number * 100_000).sum();
    let line = format!("200 messages, sum of all bytes {sum}\n");
    assert_eq!(Directory::new("fan-out").run(env!("CARGO_BIN_EXE_fan_out")), line.repeat(3));
}

#[test]
fn typed_refuses_another_type() {
    let printed = Directory::new("typed").run(env!("CARGO_BIN_EXE_typed"));
    assert_eq!(printed, "7 at 101\nrefused: 16 bytes\n");
}

#[test]
fn readiness_ends_with_the_stream() {
    let printed = Directory::new("readiness").run(env!("CARGO_BIN_EXE_readiness"));
    assert_eq!(printed, "received 1000 messages\n");
}

#[test]
fn observe_sees_the_lag() {
    let printed = Directory::new("observe").run(env!("CARGO_BIN_EXE_observe"));
    assert!(printed.contains("40 sent, 64 slots"), "{printed}");
    assert!(printed.contains("lag 24"), "{printed}");
    assert!(printed.contains("joins 1"), "{printed}");
}
