//! Endpoints: the time of a short message through a matched receive, the cost of an empty poll, the
//! delay of a message from a peer that was silent, round trips on one core, short messages back to back, and 64 processes that
//! send to one receiver. Most parts measure a baseline in the same run, in alternating blocks.

mod many;
mod one_way;
mod poll;
mod same_core;
mod silent;
mod stream;

use corewire::{Endpoint, Peer as Other, Selector};
use corewire_os::processor;

use super::peer::Peer;
use super::rig::Plan;
use super::{Options, Report};
use crate::failure::Failure;

/// Length of the messages in all parts.
const BYTES: usize = 8;

/// Rounds of a quick run.
const QUICK_ROUNDS: u64 = 9;

/// How long the parts take.
#[derive(Debug, Clone, Copy)]
struct Effort {
    /// Rounds of empty polls, and polls in each.
    poll_rounds: u64,
    polls: u32,
    /// Time for which the messages of many senders are counted.
    many_seconds: f64,
}

const FULL: Effort = Effort { poll_rounds: 21, polls: 1_000_000, many_seconds: 5.0 };
const QUICK: Effort = Effort { poll_rounds: QUICK_ROUNDS, polls: 100_000, many_seconds: 0.4 };

pub(super) fn run(options: &Options, quick: bool) -> Result<Report, Failure> {
    let mut options = options.clone();
    let effort = if quick { QUICK } else { FULL };
    if quick {
        options.rounds = options.rounds.min(QUICK_ROUNDS);
    }
    let mut report = Report::new();
    let cpus = processor::allowed()?;
    one_way::run(&options, &mut report)?;
    poll::run(effort, &mut report)?;
    // Each part pins this process.
    processor::keep_to(&cpus)?;
    same_core::run(&options, &mut report)?;
    processor::keep_to(&cpus)?;
    if !quick {
        silent::run(&options, &mut report)?;
        processor::keep_to(&cpus)?;
    }
    stream::run(&options, &mut report)?;
    processor::keep_to(&cpus)?;
    many::run(&options, effort, &mut report)?;
    Ok(report)
}

/// The peer processes of [`one_way`], [`silent`], [`stream`] and [`many`].
pub(super) fn one_way_peer(peer: &Peer) -> Result<(), Failure> {
    one_way::peer(peer)
}

pub(super) fn same_core_peer(peer: &Peer) -> Result<(), Failure> {
    same_core::peer(peer)
}

pub(super) fn silent_peer(peer: &Peer) -> Result<(), Failure> {
    silent::peer(peer)
}

pub(super) fn stream_peer(peer: &Peer) -> Result<(), Failure> {
    stream::peer(peer)
}

pub(super) fn many_peer(peer: &Peer) -> Result<(), Failure> {
    many::peer(peer)
}

/// Creates this process's endpoint, and waits for that of the other process.
fn ends(
    domain: &corewire::Domain,
    plan: &Plan,
    own: &str,
    other: &str,
) -> Result<(Endpoint, Other), Failure> {
    let mut endpoint = domain.endpoint(own).wait(plan.wait.into()).create()?;
    let other = endpoint.peer_when_created(other, None)?;
    Ok((endpoint, other))
}

/// Receives the next message, which is one number.
#[inline(always)]
fn receive_number(endpoint: &mut Endpoint) -> Result<u64, Failure> {
    let mut word = [0; BYTES];
    endpoint.receive_into(Selector::any(), &mut word)?;
    Ok(u64::from_le_bytes(word))
}

fn check(found: u64, due: u64) -> Result<(), Failure> {
    if found == due {
        return Ok(());
    }
    Err(Failure::other(format!("message {found} arrived where {due} was due")))
}
