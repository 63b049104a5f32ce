//! Benchmarks that do not come to their end. (What they measure is not for tests to say.)

use std::fs::read_to_string;

use corewire_os::process::{life_of, processor_seconds};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::scratch::{PATIENCE, Running, Scratch, eventually};

#[test]
fn a_benchmark_that_is_killed_leaves_no_process() {
    let scratch = Scratch::new("bench-killed");
    let mut bench = Running::start(&mut scratch.command("bench stream --rounds 1001"));
    let id = bench.child.id();
    let mut peers = vec![];
    eventually(|| {
        assert!(bench.child.try_wait().unwrap().is_none(), "it ended by itself");
        let children = read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        peers = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>();
        // Some of its time has gone by: it is in a loop by now.
        peers.first().is_some_and(|&peer| processor_seconds(peer).is_ok_and(|used| used > 0.1))
    });
    let lives: Vec<_> = peers.iter().map(|&pid| life_of(pid).unwrap()).collect();
    bench.child.kill().unwrap();
    let limit = Timespec::try_from(PATIENCE).unwrap();
    for life in &lives {
        let ended = poll(&mut [PollFd::new(life, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ended, 1, "a peer still runs");
    }
    bench.finish();
}
