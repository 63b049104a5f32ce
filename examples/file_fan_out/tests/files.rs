//! Files to several processes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A place for the files of one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("corewire-file-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("tmp")).unwrap();
        Self(path)
    }

    /// A file of `bytes` bytes without a pattern that a wrong order would hide in.
    fn file(&self, bytes: usize) -> PathBuf {
        let path = self.0.join("file");
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        fs::write(&path, words.flatten().take(bytes).collect::<Vec<_>>()).unwrap();
        path
    }

    fn start(&self, args: &str, file: &Path) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_file_fan_out"));
        command.args(args.split_whitespace()).arg(file);
        command.env("COREWIRE_RUNTIME_DIR", self.0.join("run")).env("TMPDIR", self.0.join("tmp"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn run(&self, args: &str, file: &Path) -> Output {
        self.start(args, file).wait_with_output().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing is left, and nothing is done in the user's own domain.
        assert_eq!(fs::read_dir(self.0.join("tmp")).unwrap().count(), 0, "files are left");
        assert!(!self.0.join("run").exists(), "it has no business there");
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// It failed with `code`, and said why in one line that holds `word`.
#[track_caller]
fn expect_line(done: &Output, code: i32, word: &str) {
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{said}");
    assert!(said.starts_with("file_fan_out: ") && said.lines().count() == 1, "{said:?}");
    assert!(said.contains(word), "{word:?} is not in {said:?}");
}

#[test]
fn every_receiver_gets_the_file() {
    let scratch = Scratch::new("all");
    let done = scratch.run("--receivers 3", &scratch.file(3_000_001));
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), ""));
    let said = text(&done.stdout);
    assert_eq!(said.lines().filter(|line| line.ends_with("  ok")).count(), 3, "{said}");
    for word in ["3,000,001", "GB/s", "messages/s", "max lag", "p50", "p99", "copy", "raw line"] {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
    let too_long = |line: &&str| line.chars().count() > 80;
    assert_eq!(said.lines().skip(1).find(too_long), None);
}

#[test]
fn figures_are_there_for_scripts() {
    let scratch = Scratch::new("json");
    // Messages in slots, in the window and in the large area, the last one shorter.
    for (bytes, chunk, messages) in
        [(100_001, 48, 2084), (100_001, 1000, 101), (9_000_001, 3 << 20, 3)]
    {
        let args = format!("--json --receivers 2 --chunk {chunk}");
        let done = scratch.run(&args, &scratch.file(bytes));
        assert!(done.status.success(), "{done:?}");
        let found: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(found["bytes"], bytes);
        assert_eq!(found["chunk_bytes"], chunk);
        assert_eq!(found["processes"], 3);
        assert_eq!(found["sha256"].as_str().unwrap().len(), 64);
        assert!(found["delivered_gb_per_s"].as_f64().unwrap() > 0.0);
        assert!(found["baselines"]["copy_gb_per_s"].as_f64().unwrap() > 0.0);
        let receivers = found["receivers"].as_array().unwrap();
        assert_eq!(receivers.len(), 2);
        for receiver in receivers {
            assert_eq!(receiver["bytes"], bytes);
            assert_eq!(receiver["sha256_is_right"], true);
            let (gb, rate) = (receiver["gb_per_s"].as_f64(), receiver["messages_per_s"].as_f64());
            let count = rate.unwrap() * bytes as f64 / (gb.unwrap() * 1e9);
            assert!((count - f64::from(messages)).abs() < 0.5, "{count} messages of {chunk}");
            let (p50, p99) = (&receiver["latency_p50_ns"], &receiver["latency_p99_ns"]);
            assert!(p50.as_u64().unwrap() <= p99.as_u64().unwrap());
        }
    }
}

#[test]
fn what_cannot_be_sent_is_named() {
    let scratch = Scratch::new("wrong");
    for (file, word) in [
        ("/no/such/file", "/no/such/file"),
        ("/", "not a regular file"),
        ("/dev/zero", "not a regular"),
    ] {
        expect_line(&scratch.run("--receivers 1", Path::new(file)), 2, word);
    }
    expect_line(&scratch.run("--receivers 1", &scratch.file(0)), 2, "empty");
    expect_line(&scratch.run("--receivers 0", Path::new("/")), 2, "1 to 1024 receivers");
}

#[test]
fn a_receiver_that_dies_is_named() {
    let scratch = Scratch::new("death");
    let path = scratch.file(0);
    File::options().write(true).open(&path).unwrap().set_len(1 << 28).unwrap();
    let running = scratch.start("--receivers 2", &path);
    let (start, mut receiver) = (Instant::now(), None);
    while receiver.is_none() {
        assert!(start.elapsed() < PATIENCE, "no receiver was started");
        receiver = receivers_of(running.id()).first().copied();
    }
    kill_process(receiver.unwrap(), Signal::KILL).unwrap();
    expect_line(&running.wait_with_output().unwrap(), 1, "ended too early");
}

/// The receiver processes that `parent` has started.
fn receivers_of(parent: u32) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let is_receiver = |pid: &&str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("receive-of-fan-out")
    };
    let children = children.unwrap_or_default();
    let receivers = children.split_whitespace().filter(is_receiver);
    receivers.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}
