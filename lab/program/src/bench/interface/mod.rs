//! Calls through code that is generated from an interface file.
//!
//! | part | measures | compared with |
//! |---|---|---|
//! | [`by_hand`] | `ump`, cores apart: round trips of 8 and 48 bytes, a stream of one-way messages, allocations of a call | the same bytes exchanged by hand between two endpoints |
//! | [`same_core`] | `lmp`, both sides on one core: round trips of 8 bytes | a SEQPACKET socket |
//! | [`types`] | the thesis' ten types of messages over each driver (Grest, section 5.2) | dynamic arrays with the same bytes of fixed size |
//!
//! Both sides are pinned. Blocks of about 10 ms alternate.

pub(super) mod by_hand;

use corewire_harness::calls::ways::{Bound, LMP, WAYS, work};
use corewire_harness::calls::{Block, check, types};
use corewire_os::processor;
use rustix::net::accept;

use super::endpoint::same_core::{connected, exchange_by_socket, listener};
use super::prelude::*;

pub(super) const SAME_CORE_ROLE: Role<()> =
    Role { name: "interface on one core", work: same_core_peer };
pub(super) const TYPES_ROLE: Role<()> = Role { name: "interface types", work: types::work };

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    report.value("rounds", options.rounds);
    by_hand::run(options.rounds, report)?;
    same_core(options.rounds, report)?;
    let processors = processor::allowed()?.len();
    for way in WAYS.iter().filter(|way| way.is_possible(processors)) {
        let blocks = types::measure(way, PROGRAM, &TYPES_ROLE, options.rounds)?;
        types::describe(way, &blocks, report);
    }
    Ok(())
}

/// Calls by `lmp`, client and service on one core, with the default wait of both: each must give the processor to the
/// other one. Compared with a SEQPACKET socket.
fn same_core(rounds: u64, report: &mut Report) -> Result<(), Failure> {
    let mut bound = Bound::start(&LMP, PROGRAM, &SAME_CORE_ROLE, &())?;
    // The service listens before it lets clients bind.
    let socket = connected(bound.crew().directory())?;
    let [mut by_socket, mut called] = [Block::new(), Block::new()];
    let blocks = alternate(rounds, |_| {
        let by_socket = by_socket.time_ns(|_| exchange_by_socket(&socket, true))?;
        let called = called.time_ns(|number| check(bound.client.payload64_1(number), &number))?;
        Ok::<_, Failure>([by_socket, called])
    })?;
    let [by_socket, called] = [0, 1].map(|block| blocks.median(block));
    let words = "same core, SEQPACKET, 8 bytes, round trip";
    report.figure("same_core_seqpacket_ns", words, by_socket, "ns");
    report.figure("same_core_call_ns", "same core, a call by lmp", called, "ns");
    report.ratios("same_core_ratio", "same core, call to socket", &blocks.ratios(1, 0));
    drop(socket);
    bound.finish()
}

/// The service, and a thread that answers on the socket until it is closed.
fn same_core_peer(worker: &Worker, (): ()) -> Result<(), Failure> {
    let listener = listener(worker.directory())?;
    std::thread::spawn(move || {
        let Ok(socket) = accept(&listener) else { return };
        while exchange_by_socket(&socket, false).is_ok() {}
    });
    work(worker)
}
