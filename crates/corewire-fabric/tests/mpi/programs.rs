//! Programs that check what they receive.
//!
//! Every test here keeps P230.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use corewire::{Domain, Observed};

use crate::job::Job;
use crate::mpis::Mpi;
use crate::place::Place;

/// How long the counters are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The numbers of ranks with which a program runs.
fn ranks(usual: &[usize]) -> Vec<usize> {
    let Ok(given) = std::env::var("COREWIRE_MPI_RANKS") else { return usual.to_vec() };
    let given = given.split(',').map(|ranks| ranks.parse().expect("a list like 1,2,4,7,16"));
    given.collect()
}

/// What corewire has carried: messages and bytes of all endpoints of the runtime directory, and how many there are. The
/// bytes of a message are counted by both sides, those of a copy to or from a peer's memory by the side that makes it.
#[derive(Debug, Default)]
struct Carried {
    endpoints: usize,
    messages: u64,
    bytes: u64,
}

fn carried(place: &Place) -> Carried {
    let domain = Domain::open_at(&place.runtime()).unwrap();
    let mut all = Carried::default();
    for sighting in domain.observe_all(PATIENCE).unwrap() {
        if let Ok(Observed::Endpoint(endpoint)) = sighting.observed {
            let view = endpoint.look();
            assert!(view.name.starts_with("mpi-"), "{}", view.name);
            all.endpoints += 1;
            all.messages += view.peers.iter().map(|peer| peer.sent_messages).sum::<u64>();
            let bytes = view.peers.iter().map(|peer| peer.sent_bytes + peer.received_bytes);
            all.bytes += bytes.sum::<u64>();
        }
    }
    all
}

/// Runs a program with each number of ranks. At its end every rank has an endpoint, and at least as much as `least` says
/// has gone over corewire (messages and bytes, from the number of ranks).
fn run(mpi: &Mpi, name: &str, usual: &[usize], least: fn(u64) -> (u64, u64)) {
    let program = mpi.compile(name);
    for ranks in ranks(usual) {
        let place = Place::new(name);
        let mut job = Job::start(&place, mpi.launcher(ranks).arg(&program));
        let (messages, bytes) = least(ranks as u64);
        job.line("look");
        // A count is told to an observer in the next call of MPI.
        let began = Instant::now();
        let carried = loop {
            let carried = carried(&place);
            let is_enough = carried.messages >= messages && carried.bytes >= bytes;
            if is_enough || began.elapsed() > PATIENCE {
                break carried;
            }
        };
        job.answer();
        let output = job.expect_success();
        println!("{}, {name}, {ranks} ranks: {carried:?}", mpi.name);
        assert!(carried.endpoints >= ranks, "{carried:?}:\n{output}");
        assert!(carried.messages >= messages && carried.bytes >= bytes, "{carried:?}:\n{output}");
        let left = place.files();
        assert_eq!(left, Vec::<String>::new(), "left in the runtime directory");
        if name == "ring" {
            expect_hellos(&output, ranks);
        }
    }
}

fn expect_hellos(output: &str, ranks: usize) {
    let mut hellos = BTreeMap::new();
    for line in output.lines().filter_map(|line| line.strip_prefix("hello ")) {
        *hellos.entry(line.to_owned()).or_insert(0) += 1;
    }
    let expected = (0..ranks).map(|rank| (format!("{rank} of {ranks}"), 1)).collect();
    assert_eq!(hellos, expected, "{output}");
}

pub(crate) fn ring(mpi: &Mpi) {
    run(mpi, "ring", &[2, 4], |ranks| match ranks {
        1 => (0, 0),
        // 200 rounds of a token and of 3,000 bytes to either side.
        _ => (600 * ranks, 2 * 200 * ranks * 6000),
    });
}

pub(crate) fn messages(mpi: &Mpi) {
    run(mpi, "messages", &[2, 4], |ranks| (100 * (ranks - 1), 2 * 3 * 300_000));
}

pub(crate) fn collectives(mpi: &Mpi) {
    // The all-to-all of 40,000 numbers (10,000 if there are many ranks), twice.
    run(mpi, "collectives", &[2, 4], |ranks| match ranks {
        1 => (0, 0),
        2..=4 => (100 * ranks, 2 * ranks * (ranks - 1) * 2 * 160_000),
        _ => (100 * ranks, 2 * ranks * (ranks - 1) * 2 * 40_000),
    });
}

pub(crate) fn one_sided(mpi: &Mpi) {
    // Half of 512 KiB is put and read by each, in two windows.
    run(mpi, "one_sided", &[2, 4], |ranks| (100 * ranks, ranks * 4 * (256 << 10)));
}

pub(crate) fn ping_pong(mpi: &Mpi) {
    // 1 MiB twice to and fro, and as much again in all shorter ones.
    run(mpi, "ping_pong", &[2], |_| (8 * 257, 2 * (4 << 20)));
}
