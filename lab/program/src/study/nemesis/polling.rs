//! What it costs to receive from one of many peers, counted on the model of coherent caches.

use corewire_coherence::caches::Machine;
use corewire_coherence::rings::{self, ManyToOne, Talk};

use super::results::Polling;
use crate::study::failure::{Doing, Failure};

/// Numbers of peers.
const PEERS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 255];
/// Messages that are counted.
const MESSAGES: u64 = 512;

/// Counts all rings with all numbers of peers.
pub(crate) fn count() -> Result<Vec<Polling>, Failure> {
    let mut all = Vec::new();
    for (name, make) in RINGS {
        for talk in [Talk::One, Talk::All] {
            for peers in PEERS {
                all.push(row(name, make(peers), talk, peers)?);
            }
        }
    }
    Ok(all)
}

type Make = fn(u32) -> ManyToOne;

const RINGS: [(&str, Make); 3] = [
    ("corewire", |peers| rings::endpoints(peers)),
    ("nemesis", |peers| rings::nemesis(peers, false)),
    ("fastboxes", |peers| rings::nemesis(peers, true)),
];

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn row(name: &str, ring: ManyToOne, talk: Talk, peers: u32) -> Result<Polling, Failure> {
    let figures = ring.measure(Machine::default(), talk, MESSAGES).doing("run the model")?;
    let a_message = |total: u64| total as f64 / figures.messages as f64;
    Ok(Polling {
        ring: name.to_owned(),
        peers,
        all_send: talk == Talk::All,
        receiver_transfers: a_message(figures.receiver.transfers()),
        sender_transfers: a_message(figures.senders.transfers()),
        message_ns: a_message(figures.time_ns),
    })
}
