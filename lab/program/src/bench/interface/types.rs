//! The thesis' ten types of messages over each driver (papers/003, section 5.2).

use corewire_harness::calls::types::{describe, measure, work};
use corewire_harness::calls::ways::WAYS;
use corewire_harness::report::Report;
use corewire_harness::role::Role;
use corewire_os::processor;

use super::PROGRAM;
use corewire_harness::failure::Failure;

pub(in super::super) const ROLE: Role<()> =
    Role { name: "interface types", work: |worker, order| work(worker, order) };

pub(super) fn run(rounds: u64, report: &mut Report) -> Result<(), Failure> {
    let processors = processor::allowed()?.len();
    for way in WAYS.iter().filter(|way| way.is_possible(processors)) {
        describe(way, &measure(way, PROGRAM, &ROLE, rounds)?, report);
    }
    Ok(())
}
