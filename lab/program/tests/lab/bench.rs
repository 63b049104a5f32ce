//! Benchmarks that do not come to their end, and what all of them report. (What they measure is not for
//! tests to say.)

use std::fs::read_to_string;
use std::process::Stdio;
use std::time::{Duration, Instant};

use corewire_os::process::{life_of, processor_seconds};
use corewire_os::processor::{allowed, pin_to};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{command, json, printed, refused};

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_benchmark_that_is_killed_leaves_no_process() {
    let mut bench = command("bench stream --rounds 1001").stdout(Stdio::null()).spawn().unwrap();
    let id = bench.id();
    let mut peers = vec![];
    let (start, mut is_at_work) = (Instant::now(), false);
    while !is_at_work {
        assert!(start.elapsed() < PATIENCE, "no peer works after {PATIENCE:?}");
        assert!(bench.try_wait().unwrap().is_none(), "it ended by itself");
        let children = read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        peers = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>();
        // Some of its time has gone by: it is in a loop by now.
        is_at_work =
            peers.first().is_some_and(|&peer| processor_seconds(peer).is_ok_and(|used| used > 0.1));
    }
    let lives: Vec<_> = peers.iter().map(|&pid| life_of(pid).unwrap()).collect();
    bench.kill().unwrap();
    let limit = Timespec::try_from(PATIENCE).unwrap();
    for life in &lives {
        let ended = poll(&mut [PollFd::new(life, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ended, 1, "a peer still runs");
    }
    bench.wait().unwrap();
}

#[test]
fn a_benchmark_says_at_which_distance_it_ran() {
    for (bench, keys) in [
        ("zimp --rounds 3", &["zimp_one_way_ns_p50", "one_way_ns_p50", "ratio_min"][..]),
        ("wake", &["after_60_us_bare_futex_ns_p50", "after_1000_us_ratio"]),
    ] {
        let found = json(&format!("bench {bench} --json"));
        for key in keys {
            assert!(found[key].as_f64().is_some_and(|figure| figure > 0.0), "{key}: {found}");
        }
        let distance = found["distance"].as_str().expect("a distance");
        assert!(["one core", "two cores", "changed"].contains(&distance), "{found}");
        // A single core has no line to another one.
        let is_single = found["cores"] == 1;
        assert_eq!(found["line_ns"].as_f64().is_some_and(|ns| ns > 0.0), !is_single, "{found}");
    }
    let text = printed("bench zimp --rounds 3");
    let last = text.lines().last().expect("lines").to_owned();
    assert!(last.starts_with("core"), "{last}");
}

#[test]
fn the_benchmark_of_interfaces_has_a_key_for_each_figure() {
    if allowed().unwrap().len() < 2 {
        eprintln!("skipped: one processor");
        return;
    }
    let found = json("bench interface --rounds 3 --json");
    let is_positive = |key: &str| {
        assert!(found[key].as_f64().is_some_and(|figure| figure > 0.0), "{key}: {found}");
    };
    for key in [
        "by_hand_8_ns",
        "call_8_ns",
        "call_8_ratio",
        "call_8_ratio_max",
        "by_hand_48_ns",
        "call_48_ns",
        "call_48_ratio",
        "by_hand_messages_per_s",
        "one_way_messages_per_s",
        "stream_ratio",
        "same_core_seqpacket_ns",
        "same_core_call_ns",
        "same_core_ratio",
    ] {
        is_positive(key);
    }
    for way in ["local", "lmp", "ump_same_core", "ump"] {
        let types = ["empty", "payload32_1", "payload32_4", "payload32_8", "payload64_1"];
        let more = ["payload64_4", "payload64_8", "buffer1", "buffer100", "buffer1000", "fixed100"];
        for name in types.into_iter().chain(more) {
            is_positive(&format!("types_{way}_{name}_ns"));
        }
        is_positive(&format!("types_{way}_dynamic_100_ratio"));
        is_positive(&format!("types_{way}_dynamic_1000_ratio_min"));
    }
    // A send that finds no room, and a message that arrives before a receive asks for it, may allocate. Both happen where
    // other processes take the processors.
    assert_eq!(found["call_client_allocations"].as_f64(), Some(0.0), "{found}");
    for key in
        ["call_service_allocations", "one_way_client_allocations", "one_way_service_allocations"]
    {
        assert!(found[key].as_f64().is_some_and(|count| count <= 0.05), "{key}: {found}");
    }
}

/// A run compares its keys with those of `--help`, and each is the key of one figure.
#[test]
fn benchmarks_have_the_keys_that_help_lists() {
    if allowed().unwrap().len() < 2 {
        eprintln!("skipped: one processor");
        return;
    }
    for bench in [
        "latency",
        "zimp",
        "stream --copy",
        "stream --bytes 1048576",
        "fan-out --receivers 2",
        "endpoint --quick",
        "clients --clients 20",
        "collective",
        "shared",
        "wake",
        "policy",
        "queue",
        "latest",
    ] {
        let found = json(&format!("bench {bench} --rounds 3 --json"));
        let help = printed(&format!("bench {} --help", bench.split(' ').next().unwrap()));
        let is_listed = |key: &str| {
            let words = help.lines().filter_map(|line| line.strip_prefix("  "));
            words.clone().any(|line| line.split(' ').next() == Some(key))
        };
        for key in found.as_object().unwrap().keys() {
            // What stands for several keys is not looked for here.
            let name = key.trim_end_matches("_min").trim_end_matches("_max");
            let parts = ["after_", "_8", "_65536", "barrier", "_update_", "_unchanged_", "_age_"];
            let has_parts = parts.iter().any(|part| key.contains(part))
                || bench == "latest" && key.contains("_read_");
            assert!(is_listed(name) || has_parts, "{bench}: {key} is not in {}", help);
        }
    }
}

#[test]
fn a_benchmark_that_needs_two_processors_says_so_on_one() {
    // Processes that this thread starts stay there.
    pin_to(allowed().unwrap()[0]).unwrap();
    for bench in ["latency", "endpoint --quick", "interface"] {
        refused(&format!("bench {bench}"), 1, "2 processors");
    }
    assert_eq!(json("bench stream --rounds 3 --json")["cores"], 1);
}
