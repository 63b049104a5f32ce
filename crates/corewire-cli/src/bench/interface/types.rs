//! The thesis' ten types of messages over each driver (papers/003, section 5.2).

use corewire_os::processor;
use corewire_study::calls::types::{describe, measure, work};
use corewire_study::calls::ways::WAYS;
use corewire_study::harness::report::Report;
use corewire_study::harness::role::Role;

use super::PROGRAM;
use crate::failure::Failure;

pub(in super::super) const ROLE: Role<(), Failure> =
    Role { name: "interface types", work: |worker, order| Ok(work(worker, order)?) };

pub(super) fn run(rounds: u64, report: &mut Report) -> Result<(), Failure> {
    let processors = processor::allowed()?.len();
    for way in WAYS.iter().filter(|way| way.is_possible(processors)) {
        describe(way, &measure(way, PROGRAM, &ROLE, rounds)?, report);
    }
    Ok(())
}
