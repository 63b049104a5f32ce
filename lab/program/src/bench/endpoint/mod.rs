//! Endpoints: the time of a short message through a matched receive, the cost of an empty poll, the
//! delay of a message from a peer that was silent, round trips on one core, short messages back to back,
//! and 64 processes that send to one receiver. Most parts measure a baseline in the same run, in
//! alternating blocks.

mod common;
pub(super) mod many;
pub(super) mod one_way;
mod poll;
pub(super) mod same_core;
pub(super) mod silent;
pub(super) mod stream;

use corewire_harness::report::Report;

use super::options::Options;
use common::Effort;
use corewire_harness::failure::Failure;

/// Rounds of a quick run.
const QUICK_ROUNDS: u64 = 9;

const FULL: Effort = Effort { poll_rounds: 21, polls: 1_000_000, many_seconds: 5.0 };
const QUICK: Effort = Effort { poll_rounds: QUICK_ROUNDS, polls: 100_000, many_seconds: 0.4 };

pub(super) fn run(options: &Options, quick: bool) -> Result<Report, Failure> {
    let mut options = options.clone();
    let effort = if quick { QUICK } else { FULL };
    if quick {
        options.rounds = options.rounds.min(QUICK_ROUNDS);
    }
    let mut report = Report::default();
    one_way::run(&options, &mut report)?;
    poll::run(effort, &mut report)?;
    same_core::run(&options, &mut report)?;
    if !quick {
        silent::run(&mut report)?;
    }
    stream::run(&options, &mut report)?;
    many::run(&options, effort, &mut report)?;
    Ok(report)
}
