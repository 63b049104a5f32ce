//! `fan-out`.

use std::fs::File;

use rustix::process::{Pid, Signal, kill_process};

use crate::scratch::{Running, Scratch, eventually, files_in, noise};

#[test]
fn every_receiver_gets_the_file() {
    let scratch = Scratch::new("fan-out");
    let bytes = noise(3_000_001);
    let path = scratch.file(&bytes);
    let done = Running::start(scratch.command("fan-out --receivers 3").arg(&path)).finish();
    done.expect_code(0);
    assert_eq!(done.errors, "", "no progress bar where there is no terminal");
    let text = done.text();
    assert_eq!(text.lines().filter(|line| line.ends_with("  ok")).count(), 3, "{text}");
    for word in ["3,000,001", "GB/s", "messages/s", "max lag", "p50", "p99", "copy", "raw line"] {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
    let too_long = |line: &&str| line.chars().count() > 80;
    assert_eq!(text.lines().skip(1).find(too_long), None);
    assert!(files_in(&scratch.temporary()).is_empty(), "{:?}", files_in(&scratch.temporary()));
    assert!(!scratch.runtime().exists(), "it has no business there");
}

#[test]
fn figures_are_there_for_scripts() {
    let scratch = Scratch::new("fan-out-json");
    // Messages in slots, in the window and in the large area, the last one shorter.
    for (bytes, chunk, messages) in
        [(100_001, 48, 2084), (100_001, 1000, 101), (9_000_001, 3 << 20, 3)]
    {
        let path = scratch.file(&noise(bytes));
        let mut command = scratch.command("fan-out --json --receivers 2");
        let done =
            Running::start(command.arg(&path).args(["--chunk", &chunk.to_string()])).finish();
        done.expect_code(0);
        let found = done.json();
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
fn a_receiver_that_dies_is_named() {
    let scratch = Scratch::new("fan-out-death");
    let path = scratch.file(b"");
    File::options().write(true).open(&path).unwrap().set_len(1 << 28).unwrap();
    let running = Running::start(scratch.command("fan-out --receivers 2").arg(&path));
    let pid = running.child.id();
    let mut receiver = None;
    eventually(|| {
        receiver = receivers_of(pid).first().copied();
        receiver.is_some()
    });
    kill_process(receiver.unwrap(), Signal::KILL).unwrap();
    let done = running.finish();
    done.expect_line(1, "ended too early");
    assert!(files_in(&scratch.temporary()).is_empty(), "{:?}", files_in(&scratch.temporary()));
}

/// The receiver processes that `parent` has started.
fn receivers_of(parent: u32) -> Vec<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let is_receiver = |pid: &&str| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("fan-out-receiver")
    };
    let children = children.unwrap_or_default();
    let receivers = children.split_whitespace().filter(is_receiver);
    receivers.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}
