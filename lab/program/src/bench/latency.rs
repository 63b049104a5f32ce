//! The time from process to process: half of the time for a message there and a message back. The
//! baseline is a bare cache line in each direction.

use corewire::{Domain, Receiver, Sender};
use corewire_harness::distance::describe_one_core;
use corewire_harness::line::LINES;

use super::prelude::*;

pub(super) const ROLE: Role<Options> = Role { name: "latency", work: peer };

/// Number of round trips in a block of about 10 ms.
pub(super) const ROUND_TRIPS: u64 = 30_000;
/// The same for messages that take long.
const LONG_ROUND_TRIPS: u64 = 200;
const LONG_BYTES_MIN: usize = 65_537;

fn round_trips(options: &Options) -> u64 {
    if options.bytes >= LONG_BYTES_MIN { LONG_ROUND_TRIPS } else { ROUND_TRIPS }
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut crew = setup(1).start(&ROLE, |_| options.clone())?;
    let mut raw = crew.board().raw_line()?;
    let (mut sender, mut receiver) = ends(crew.domain()?, options, "there", "back")?;
    let mut times_of_all = vec![];
    let mut message = vec![0u8; options.bytes];
    let blocks = alternate(options.rounds, |round| {
        let baseline = raw.ask(ROUND_TRIPS);
        let times = one_way_times(numbers(round, round_trips(options)), |number| {
            put_number(&mut message, number);
            sender.send(&message)?;
            check_number(&receiver.receive()?, number)
        })?;
        let p50 = keep(&mut times_of_all, times, round);
        let line = raw.ask(LINES as u64);
        Ok::<_, Failure>([baseline, p50, line])
    })?;
    crew.await_step(0, 1)?;
    report.value("bytes", options.bytes);
    report.value("rounds", options.rounds);
    describe(report, "a message", &blocks, &times_of_all);
    describe_one_core(report, &blocks.ratios(1, 0), [blocks.of(0), blocks.of(2)]);
    drop((sender, receiver));
    crew.finish_with(report)
}

/// Keeps the times of a round that counts, and returns the typical one.
pub(super) fn keep(kept: &mut Vec<f64>, times: Vec<f64>, round: u64) -> f64 {
    let p50 = typical(&times);
    if round > WARM_UP {
        kept.extend(times);
    }
    p50
}

/// The figures of bare lines, block 0, and of messages, block 1.
pub(super) fn describe(report: &mut Report, message: &str, blocks: &Blocks, times: &[f64]) {
    let baseline = blocks.median(0);
    report.figure("raw_line_one_way_ns", "a bare cache line, one way", baseline, "ns");
    let ends = [typical(times), percentile(times, 0.99)];
    report.p50_p99("one_way_ns", &format!("{message}, one way"), ends);
    report.ratio("p50 to the bare line of the same round", &blocks.ratios(1, 0));
}

/// The peer, which answers.
fn peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let mut raw = worker.board().raw_line()?;
    let (mut sender, mut receiver) = ends(&worker.domain()?, &options, "back", "there")?;
    let mut message = vec![0u8; options.bytes];
    for _ in all(options.rounds) {
        raw.answer(ROUND_TRIPS);
        answer(&mut sender, &mut receiver, &mut message, round_trips(&options))?;
        raw.answer(LINES as u64);
    }
    worker.reach(1);
    await_hang_up(receiver);
    Ok(())
}

/// Receives the next `count` messages and sends them back.
pub(super) fn answer(
    sender: &mut Sender,
    receiver: &mut Receiver,
    message: &mut [u8],
    count: u64,
) -> Result<(), Failure> {
    for _ in 0..count {
        message.copy_from_slice(&receiver.receive()?);
        sender.send(message)?;
    }
    Ok(())
}

/// Waits until the parent hangs up. The peer must not hang up before the parent has its last message.
pub(super) fn await_hang_up(mut receiver: Receiver) {
    let _ = receiver.receive();
}

pub(super) fn ends(
    domain: &Domain,
    options: &Options,
    sends: &str,
    receives: &str,
) -> Result<(Sender, Receiver), Failure> {
    let mut sender = options.sender(domain, sends, 1)?;
    let receiver = domain.receiver(receives).wait(options.wait()).join_when_created()?;
    sender.wait_for_receivers(1)?;
    Ok((sender, receiver))
}

pub(super) fn put_number(message: &mut [u8], number: u64) {
    if let Some(word) = message.first_chunk_mut::<8>() {
        *word = number.to_le_bytes();
    }
}

pub(super) fn check_number(message: &[u8], number: u64) -> Result<(), Failure> {
    let found = message.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
    if found == number {
        return Ok(());
    }
    Err(Failure::other(format!("message {found} came back where {number} was due")))
}
