//! Round trips through ZIMP as published, compared with round trips through channels: between the same
//! two processes, on the same cores, in alternating blocks.

use corewire_harness::board::part;
use corewire_published::rings::{Zimp, ZimpReceiver, ZimpSender};
use corewire_ring::region::Region;
use corewire_ring::sync::pause;

use super::latency::{ROUND_TRIPS, answer, await_hang_up, check_number, ends, put_number};
use super::prelude::*;
use crate::model;

pub(super) const ROLE: Role<Options> = Role { name: "zimp", work: peer };

/// Number of entries of a ring, as in the paper's own code.
const ENTRIES: u32 = 50;
/// Maximum message length. With longer messages the time is mostly that of copying.
const BYTES_MAX: usize = 4096;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let bytes = options.bytes;
    if bytes > BYTES_MAX {
        let limit = format!("8 to {BYTES_MAX} here, not {bytes}");
        return Err(Failure::usage(format!("bench zimp --bytes: {limit}")));
    }
    let setup = setup(1).memory_bytes(2 * ring_bytes(bytes));
    let mut crew = setup.start(&ROLE, |_| options.clone())?;
    let [there, back] = rings(&crew.board().work()?, bytes)?;
    let (mut zimp_sender, mut zimp_receiver) = (there.sender(), back.receiver(0));
    let (mut sender, mut receiver) = ends(crew.domain()?, options, "there", "back")?;
    let mut message = vec![0u8; bytes];
    let mut reply = vec![0u8; bytes];
    let blocks = alternate(options.rounds, |round| {
        let zimp = one_way_times(numbers(round, ROUND_TRIPS), |number| {
            put_number(&mut message, number);
            send(&mut zimp_sender, &message, || crew.look())?;
            receive(&mut zimp_receiver, &mut reply, || crew.look())?;
            check_number(&reply, number)
        })?;
        let ours = one_way_times(numbers(round, ROUND_TRIPS), |number| {
            put_number(&mut message, number);
            sender.send(&message)?;
            check_number(&receiver.receive()?, number)
        })?;
        Ok::<_, Failure>([zimp, ours].map(|times| typical(&times)))
    })?;
    crew.await_step(0, 1)?;
    report.value("bytes", bytes);
    report.value("rounds", options.rounds);
    report.figure("zimp_one_way_ns_p50", "ZIMP, one way, p50", blocks.median(0), "ns");
    report.figure("one_way_ns_p50", "a channel, one way, p50", blocks.median(1), "ns");
    report.ratio("ZIMP to the channel of the same round", &blocks.ratios(0, 1));
    if bytes <= 48 {
        report.number("model_ratio", "the same on the model", model::zimp_to_broadcast()?);
    }
    drop((sender, receiver));
    crew.finish_with(report)
}

/// The peer, which answers.
fn peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let [there, back] = rings(&worker.board().work()?, options.bytes)?;
    let (mut zimp_sender, mut zimp_receiver) = (back.sender(), there.receiver(0));
    let (mut sender, mut receiver) = ends(&worker.domain()?, &options, "back", "there")?;
    let mut message = vec![0u8; options.bytes];
    // The kernel ends this process with its parent, so there is nothing to check.
    let look = || {
        worker.relax();
        Ok(())
    };
    for _ in all(options.rounds) {
        for _ in 0..ROUND_TRIPS {
            receive(&mut zimp_receiver, &mut message, look)?;
            send(&mut zimp_sender, &message, look)?;
        }
        answer(&mut sender, &mut receiver, &mut message, ROUND_TRIPS)?;
    }
    worker.reach(1);
    await_hang_up(receiver);
    Ok(())
}

const fn ring_bytes(bytes: usize) -> usize {
    Zimp::bytes(ENTRIES, 1, bytes).next_multiple_of(4096)
}

/// One ring in each direction.
fn rings(memory: &Region, bytes: usize) -> Result<[Zimp; 2], Failure> {
    let ring = |index: usize| -> Result<Zimp, Failure> {
        let part = part(memory, index * ring_bytes(bytes), ring_bytes(bytes))?;
        Ok(Zimp::new(&part, ENTRIES, 1, bytes))
    };
    Ok([ring(0)?, ring(1)?])
}

fn send(
    sender: &mut ZimpSender,
    message: &[u8],
    look: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    poll(look, || {
        let Some(mut entry) = sender.try_claim(pause) else { return false };
        entry.bytes_mut().copy_from_slice(message);
        entry.send(message.len());
        true
    })
}

fn receive(
    receiver: &mut ZimpReceiver,
    target: &mut [u8],
    look: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    poll(look, || receiver.try_receive(|message| target.copy_from_slice(message)).is_some())
}

/// Polls until `is_done` returns true. Calls `look` after every 1024 polls.
#[inline(always)]
fn poll(
    mut look: impl FnMut() -> Result<(), Failure>,
    mut is_done: impl FnMut() -> bool,
) -> Result<(), Failure> {
    const POLLS: u32 = 1 << 10;
    loop {
        for _ in 0..POLLS {
            if is_done() {
                return Ok(());
            }
        }
        look()?;
    }
}
