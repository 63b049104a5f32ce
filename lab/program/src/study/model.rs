//! Results that need more cores than most machines have: the rings' own code, counted on a model of
//! coherent caches; and what ZIMP's macro-benchmarks would cost with a core for each role.

use corewire_coherence::caches::{Counts, Machine};
use corewire_coherence::rings::{self, Figures, Ring};
use corewire_coherence::scheduler::Rhythm;

use crate::study::failure::{Doing, Failure};
use crate::study::protocols::Protocol;
use crate::study::protocols::results::OnModel;
use crate::study::results::Model;

/// Numbers of receivers.
const RECEIVERS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 255];
const SLOTS: u64 = 256;
/// Rounds of the ring that are counted.
const ROUNDS: u64 = 2;

/// Counts all rings with all numbers of receivers.
pub(crate) fn count() -> Result<Vec<Model>, Failure> {
    let mut rows = Vec::new();
    for ring in ["barrelfish_mp", "zimp", "corewire"] {
        for receivers in RECEIVERS {
            rows.push(row(ring, receivers)?);
        }
    }
    Ok(rows)
}

fn make(ring: &str, receivers: u32) -> Result<Ring, Failure> {
    match ring {
        "barrelfish_mp" => Ok(rings::barrelfish_mp(receivers, SLOTS)),
        "zimp" => Ok(rings::zimp(receivers, SLOTS)),
        _ => rings::broadcast(receivers, SLOTS).doing("make a channel for the model"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn row(ring: &str, receivers: u32) -> Result<Model, Failure> {
    let made = make(ring, receivers)?;
    let figures = made.measure(Machine::default(), Rhythm::Stream, ROUNDS * SLOTS, 0);
    let Figures { messages, sender, receivers: each, time_ns } = figures.doing("run the model")?;
    let a_message = |total: u64| total as f64 / messages as f64;
    let sum = |of: fn(&Counts) -> u64| of(&sender) + each.iter().map(of).sum::<u64>();
    let worst = each.iter().map(Counts::transfers).max().unwrap_or(0);
    Ok(Model {
        ring: ring.to_owned(),
        receivers,
        sender_transfers: a_message(sender.transfers()),
        receiver_transfers: a_message(worst),
        invalidations: a_message(sum(|counts| counts.invalidations)),
        read_modify_writes: a_message(sum(|counts| counts.modifies)),
        stream_ns: a_message(time_ns),
    })
}

/// A protocol with 48-byte messages, every role on a core of its own.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn count_flow(protocol: Protocol, nodes: &[u32]) -> Result<Vec<OnModel>, Failure> {
    let mut rows = Vec::new();
    for &nodes in nodes {
        for ring in ["barrelfish_mp", "zimp", "corewire"] {
            let whole = match protocol {
                Protocol::Paxos => rings::agreement(nodes, |receivers| make(ring, receivers))?,
                Protocol::Checkpoint => rings::gathering(nodes, |receivers| make(ring, receivers))?,
            };
            let made = whole.measure(Machine::default(), Rhythm::Stream, ROUNDS * SLOTS, 0);
            let figures = made.doing("run the model")?;
            let sum = |of: fn(&Counts) -> u64| {
                of(&figures.sender) + figures.receivers.iter().map(of).sum::<u64>()
            };
            let each = |total: u64| total as f64 / figures.messages as f64;
            rows.push(OnModel {
                ring: ring.to_owned(),
                nodes,
                each_ns: each(figures.time_ns),
                transfers: each(sum(Counts::transfers)),
                read_modify_writes: each(sum(|counts| counts.modifies)),
            });
        }
    }
    Ok(rows)
}
