//! `scripts/test` says how it has ended, whatever ends it.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long what must happen may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A copy of the script among programs that do nothing, except the `cargo` of this text.
fn copy_with(test: &str, cargo: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("corewire-script-{test}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(place.join("scripts")).unwrap();
    fs::create_dir(place.join("bin")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/test");
    fs::copy(script, place.join("scripts/test")).unwrap();
    let write = |file: &str, text: &str| {
        fs::write(place.join(file), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(place.join(file), PermissionsExt::from_mode(0o755)).unwrap();
    };
    for script in ["setup", "portable", "models", "kill"] {
        write(&format!("scripts/{script}"), "exit 0");
    }
    write("bin/cargo", cargo);
    place
}

fn start(place: &Path) -> Child {
    let path = format!("{}:{}", place.join("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.arg(place.join("scripts/test")).env("PATH", path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// What it printed and its exit code.
fn finish(mut child: Child) -> (String, Option<i32>) {
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    (output, child.wait().unwrap().code())
}

#[test]
fn all_steps_that_passed_are_listed() {
    let place = copy_with("passed", "exit 0");
    let (output, code) = finish(start(&place));
    assert_eq!(code, Some(0), "{output}");
    assert!(
        output.contains("passed   quick models, kill points, lints")
            && output.contains("all passed"),
        "{output}"
    );
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn a_step_that_fails_is_named() {
    let place = copy_with("failed", "exit 9");
    let (output, code) = finish(start(&place));
    assert_eq!(code, Some(9), "{output}");
    assert!(output.contains("FAILED   tests\n") && !output.contains("all passed"), "{output}");
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn a_run_that_a_signal_ends_has_failed() {
    for (signal, name) in [(Signal::TERM, "term"), (Signal::HUP, "hup")] {
        let place = copy_with(name, "touch began; exec sleep 1000");
        let child = start(&place);
        let began = Instant::now();
        while !place.join("began").exists() {
            assert!(began.elapsed() < PATIENCE, "the step begins");
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        // Its output ends when nothing that it has started is left.
        let (output, code) = finish(child);
        assert_eq!(code, Some(128 + signal.as_raw()), "{output}");
        assert!(output.contains("FAILED   tests\n") && !output.contains("all passed"), "{output}");
        fs::remove_dir_all(place).unwrap();
    }
}

#[test]
fn a_test_program_that_does_not_end_says_where_it_waits() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/limited");
    let mut command = Command::new("bash");
    command.arg(&script).args(["sh", "-c", "sleep 1000 & wait"]).env("COREWIRE_TEST_LIMIT", "1");
    let done = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(done.status.signal(), Some(9));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("have not ended within 1 s"), "{said}");
    // What it has started, too, has ended: it would have kept the output open.
    assert!(said.contains("sh -c sleep 1000 & wait") && said.contains(": sleep 1000"), "{said}");
    assert!(said.contains("\n#0 ") || said.contains("waits in the kernel"), "{said}");

    let mut command = Command::new("bash");
    let done = command.arg(&script).args(["sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!((done.status.code(), &done.stderr[..]), (Some(7), &b""[..]));
}
