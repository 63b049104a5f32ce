//! Results that need more cores than most machines have: the rings' own code, counted on a model of coherent caches.

use corewire_coherence::caches::{Counts, Machine};
use corewire_coherence::rings::{self, Figures, Ring};
use corewire_coherence::scheduler::Rhythm;

use super::results::Model;
use crate::study::failure::{Doing, Failure};

/// The rings that are counted.
pub(crate) const RINGS: [&str; 3] = ["barrelfish_mp", "zimp", "corewire"];
/// Numbers of receivers.
const RECEIVERS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 255];
const SLOTS: u64 = 256;
/// Rounds of the ring that are counted.
const ROUNDS: u64 = 2;

/// Makes one of [`RINGS`].
pub(crate) fn make(ring: &str, receivers: u32) -> Result<Ring, Failure> {
    match ring {
        "barrelfish_mp" => Ok(rings::barrelfish_mp(receivers, SLOTS)),
        "zimp" => Ok(rings::zimp(receivers, SLOTS)),
        _ => rings::broadcast(receivers, SLOTS).doing("make a channel for the model"),
    }
}

/// Runs a ring, or a protocol of rings.
pub(crate) fn measure(ring: Ring) -> Result<Figures, Failure> {
    let figures = ring.measure(Machine::default(), Rhythm::Stream, ROUNDS * SLOTS, 0);
    figures.doing("run the model")
}

/// Counts all rings with all numbers of receivers.
pub(super) fn count() -> Result<Vec<Model>, Failure> {
    let cases = RINGS.into_iter().flat_map(|ring| RECEIVERS.map(|receivers| (ring, receivers)));
    cases.map(|(ring, receivers)| row(ring, receivers)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn row(ring: &str, receivers: u32) -> Result<Model, Failure> {
    let Figures { messages, sender, receivers: each, time_ns } = measure(make(ring, receivers)?)?;
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
