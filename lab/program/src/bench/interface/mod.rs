//! Calls through code that is generated from an interface file.
//!
//! | part | measures | compared with |
//! |---|---|---|
//! | [`by_hand`] | `ump`, cores apart: round trips of 8 and 48 bytes, a stream of one-way messages, allocations of a call | the same bytes exchanged by hand between two endpoints |
//! | [`same_core`] | `lmp`, both sides on one core: round trips of 8 bytes | a SEQPACKET socket |
//! | [`types`] | the thesis' ten types of messages over each driver | dynamic arrays with the same bytes of fixed size |
//!
//! Both sides are pinned. Blocks of about 10 ms alternate.

pub(super) mod by_hand;
pub(super) mod same_core;
pub(super) mod types;

use corewire_harness::report::Report;

use super::options::{Options, PROGRAM};
use corewire_harness::failure::Failure;

pub(super) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report::default();
    report.value("rounds", options.rounds);
    by_hand::run(options.rounds, &mut report)?;
    same_core::run(options.rounds, &mut report)?;
    types::run(options.rounds, &mut report)?;
    Ok(report)
}
