//! Calls by `lmp`, client and service on one core, with the default wait of both: each must give the processor to the
//! other one. Compared with a SEQPACKET socket.

use corewire_harness::calls::ways::{Bound, LMP, work};
use corewire_harness::calls::{Block, check};
use corewire_harness::report::Report;
use corewire_harness::role::{Role, Worker};
use corewire_harness::rounds::alternate;
use rustix::net::{accept, bind, connect, listen};

use super::super::endpoint::same_core::{address, exchange_by_socket, failed, new_socket};
use super::PROGRAM;
use corewire_harness::failure::Failure;

pub(in super::super) const ROLE: Role<()> = Role { name: "interface on one core", work: peer };

pub(super) fn run(rounds: u64, report: &mut Report) -> Result<(), Failure> {
    let mut bound = Bound::start(&LMP, PROGRAM, &ROLE, &())?;
    let socket = new_socket()?;
    // The service listens before it lets clients bind.
    connect(&socket, &address(bound.crew().directory())?).map_err(failed)?;
    let [mut by_socket, mut called] = [Block::default(), Block::default()];
    let blocks = alternate(rounds, |_| {
        let by_socket = by_socket.time_ns(|_| exchange_by_socket(&socket, true))?;
        let called = called.time_ns(|number| check(bound.client.payload64_1(number), &number))?;
        Ok::<_, Failure>([by_socket, called])
    })?;
    let [by_socket, called] = [0, 1].map(|block| blocks.median(block));
    let words = "same core, SEQPACKET, 8 bytes, round trip";
    report.figure("same_core_seqpacket_ns", words, by_socket, "ns");
    report.figure("same_core_call_ns", "same core, a call by lmp", called, "ns");
    let ratios = blocks.ratios(1, 0);
    report.spread_with_line("same_core_ratio", "same core, call to socket", &ratios);
    drop(socket);
    bound.finish()
}

/// The service, and a thread that answers on the socket until it is closed.
fn peer(worker: &Worker, (): ()) -> Result<(), Failure> {
    let listener = new_socket()?;
    bind(&listener, &address(worker.directory())?).map_err(failed)?;
    listen(&listener, 1).map_err(failed)?;
    std::thread::spawn(move || {
        let Ok(socket) = accept(&listener) else { return };
        while exchange_by_socket(&socket, false).is_ok() {}
    });
    work(worker)
}
