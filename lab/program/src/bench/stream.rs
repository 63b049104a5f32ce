//! Messages and bytes per second, to one receiver or several. The baseline is a bare loop: for messages
//! that fit into a slot, a ring with the same number of slots; for larger messages, the best of 2 to
//! 256 buffers that are handed over in turn.

use std::ops::Range;

use corewire::{Receiver, Sender};
use corewire_harness::board::part;
use corewire_harness::distance::describe_one_core;
use corewire_harness::line::LINES;
use corewire_harness::places::{let_ahead, relax};
use corewire_published::yardstick::{BARE_BYTES, BUFFERS_MAX, BareBuffers, BareRing, payload};
use corewire_ring::region::Region;
use zerocopy::IntoBytes;

use super::prelude::*;

pub(super) const SLOTS_ROLE: Role<Options> = Role { name: "slots", work: small_peer };
pub(super) const BUFFERS_ROLE: Role<Options> = Role { name: "buffers", work: large_peer };

/// Number of messages that fit into a slot, in a block of about 10 ms.
const SMALL_MESSAGES: u64 = 2_500_000;
/// Bytes of larger messages in a block of about 10 ms.
const LARGE_BYTES: u64 = 128 << 20;
/// Maximum size of the buffers of a baseline.
const BUFFERS_BYTES_MAX: usize = 256 << 20;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if options.bytes <= BARE_BYTES { small(options, report) } else { large(options, report) }
}

/// Number of messages that fit into a slot, in a block.
fn small_messages(options: &Options) -> u64 {
    SMALL_MESSAGES / options.receivers as u64
}

/// Whether the time of a line is measured before and after each round: between one sender and one receiver that have a
/// processor each.
fn measures_line(options: &Options, must_yield: bool) -> bool {
    options.receivers == 1 && !must_yield
}

fn small(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let &Options { slots, receivers, bytes, .. } = options;
    let count = small_messages(options);
    let setup = setup(receivers).memory_bytes(BareRing::bytes(slots, receivers));
    let mut crew = setup.start(&SLOTS_ROLE, |_| options.clone())?;
    let bare = BareRing::new(&crew.board().work()?, slots, receivers);
    let mut sender = options.sender(crew.domain()?, "stream", receivers)?;
    sender.wait_for_receivers(receivers)?;
    let must_yield = crew.is_oversubscribed();
    let mut line =
        if measures_line(options, must_yield) { Some(crew.board().raw_line()?) } else { None };
    let blocks = alternate(options.rounds, |round| {
        let line_before = line.as_mut().map(|line| line.ask(LINES as u64));
        let Range { start: first, end } = numbers(round, count);
        let start = Instant::now();
        bare.send(first, end, || relax(must_yield));
        let bare_rate = per_second(count, start);
        let start = Instant::now();
        if options.copy {
            send_copies(&mut sender, bytes, first..end)?;
        } else if bytes == BARE_BYTES {
            send_in_place(&mut sender, first..end)?;
        } else {
            send_in_place_of(&mut sender, bytes, first..end)?;
        }
        for index in 0..receivers {
            crew.await_step(index, round + 1)?;
        }
        let rates = [bare_rate, per_second(count, start)];
        let line_after = line.as_mut().map(|line| line.ask(LINES as u64));
        Ok::<_, Failure>(rates.into_iter().chain(line_before).chain(line_after))
    })?;
    describe(options, &blocks, [0, 1], None, report);
    describe_one_core(report, &blocks.ratios(1, 0), [blocks.of(2), blocks.of(3)]);
    drop(sender);
    crew.finish_with(report)
}

/// A receiver of messages that fit into a slot.
fn small_peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let bare = BareRing::new(&worker.board().work()?, options.slots, options.receivers);
    let domain = worker.domain()?;
    let mut receiver = domain.receiver("stream").wait(options.wait()).join_when_created()?;
    let mut sums = 0u64;
    let measures_line = measures_line(&options, worker.must_yield());
    let mut line = if measures_line { Some(worker.board().raw_line()?) } else { None };
    let mut answer_line = || line.iter_mut().for_each(|line| line.answer(LINES as u64));
    for round in all(options.rounds) {
        answer_line();
        let Range { start: first, end } = numbers(round, small_messages(&options));
        let own = worker.index() as u64;
        let lets_ahead = |run| let_ahead(run, options.slots, worker.must_yield());
        sums = sums.wrapping_add(bare.receive(own, first..end, lets_ahead, || worker.relax()));
        sums = sums.wrapping_add(receive_numbers(&mut receiver, first..end)?);
        worker.reach(round + 1);
        answer_line();
    }
    black_box(sums);
    Ok(())
}

/// Receives messages with these numbers, and adds up their last words.
#[inline(never)]
pub(super) fn receive_numbers(
    receiver: &mut Receiver,
    numbers: Range<u64>,
) -> Result<u64, Failure> {
    let mut sum = 0u64;
    for number in numbers {
        let message = receiver.receive()?;
        let (head, last) = payload::ends(&message);
        if head != number {
            return Err(out_of_order(head, number));
        }
        sum = sum.wrapping_add(last);
    }
    Ok(sum)
}

#[inline(never)]
pub(super) fn send_in_place(sender: &mut Sender, numbers: Range<u64>) -> Result<(), Failure> {
    for number in numbers {
        let mut loan = sender.loan(BARE_BYTES)?;
        loan.copy_from_slice([number.to_le_bytes(); BARE_BYTES / 8].as_flattened());
        loan.send();
    }
    Ok(())
}

#[inline(never)]
fn send_in_place_of(sender: &mut Sender, bytes: usize, numbers: Range<u64>) -> Result<(), Failure> {
    for number in numbers {
        let mut loan = sender.loan(bytes)?;
        payload::fill(&mut loan, number);
        loan.send();
    }
    Ok(())
}

#[inline(never)]
fn send_copies(sender: &mut Sender, bytes: usize, numbers: Range<u64>) -> Result<(), Failure> {
    let mut words = black_box([7u64; BARE_BYTES / 8]);
    for number in numbers {
        words[0] = number.to_le();
        sender.send(&words.as_bytes()[..bytes.min(BARE_BYTES)])?;
    }
    Ok(())
}

/// Number of larger messages in a block.
fn large_messages(options: &Options) -> u64 {
    (LARGE_BYTES / options.bytes as u64).max(4)
}

/// Numbers of buffers that the baseline tries.
fn buffers(options: &Options) -> Vec<usize> {
    let fits = |&buffers: &usize| buffers == 2 || buffers * options.bytes <= BUFFERS_BYTES_MAX;
    [2, 4, 8, 16, 32, 64, 128, 256].into_iter().filter(fits).collect()
}

/// Bytes of memory for each of these. Each number of buffers has its own part of the memory, because
/// each baseline counts from its own start.
fn buffers_bytes(options: &Options) -> usize {
    let most = buffers(options).into_iter().max().unwrap_or(2).min(BUFFERS_MAX);
    BareBuffers::bytes(options.bytes, most).next_multiple_of(4096)
}

fn large(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let bytes = options.bytes;
    if options.receivers != 1 {
        return Err(Failure::usage(format!(
            "bench fan-out --bytes {bytes}: the baseline for more than {BARE_BYTES} bytes has one \
             receiver; use bench stream"
        )));
    }
    let (count, buffers) = (large_messages(options), buffers(options));
    let setup = setup(1).memory_bytes(buffers_bytes(options) * buffers.len());
    let mut crew = setup.start(&BUFFERS_ROLE, |_| options.clone())?;
    let baselines = baselines(&crew.board().work()?, options)?;
    let mut sender = options.sender(crew.domain()?, "stream", 1)?;
    sender.wait_for_receivers(1)?;
    // One block for each number of buffers, and the last one for the channel.
    let blocks = alternate(options.rounds, |round| {
        let numbers = numbers(round, count);
        let mut rates = vec![];
        for baseline in &baselines {
            let start = Instant::now();
            baseline.send(numbers.start, numbers.end, |number, buffer| {
                payload::fill(buffer, number);
            });
            rates.push(per_second(count, start));
        }
        let start = Instant::now();
        for number in numbers {
            if options.copy {
                let mut message = vec![0; bytes];
                payload::fill(&mut message, number);
                sender.send(&message)?;
            } else {
                let mut loan = sender.loan(bytes)?;
                payload::fill(&mut loan, number);
                loan.send();
            }
        }
        crew.await_step(0, round + 1)?;
        rates.push(per_second(count, start));
        Ok::<_, Failure>(rates)
    })?;
    let medians: Vec<f64> = (0..buffers.len()).map(|index| blocks.median(index)).collect();
    let best = (0..medians.len()).max_by(|&a, &b| medians[a].total_cmp(&medians[b])).unwrap_or(0);
    describe(options, &blocks, [best, buffers.len()], Some(buffers[best]), report);
    let by_buffers = buffers
        .iter()
        .zip(&medians)
        .map(|(buffers, rate)| (buffers.to_string(), thousandths(gb_per_s(*rate, options)).into()));
    report.value("baseline_gb_per_s_by_buffers", by_buffers.collect::<serde_json::Map<_, _>>());
    drop(sender);
    crew.finish_with(report)
}

/// The receiver of larger messages.
fn large_peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let bytes = options.bytes;
    let baselines = baselines(&worker.board().work()?, &options)?;
    let domain = worker.domain()?;
    let mut receiver = domain.receiver("stream").wait(options.wait()).join_when_created()?;
    for round in all(options.rounds) {
        let numbers = numbers(round, large_messages(&options));
        for baseline in &baselines {
            let mut wrong = None;
            baseline.receive(numbers.start, numbers.end, |number, buffer| {
                if payload::sum(buffer) != payload::expected_sum(bytes, number) {
                    wrong = Some(number);
                }
            });
            if let Some(number) = wrong {
                return Err(Failure::other(format!("buffer {number} arrived damaged")));
            }
        }
        for number in numbers {
            let message = receiver.receive()?;
            if payload::sum(&message) != payload::expected_sum(bytes, number) {
                return Err(out_of_order(payload::ends(&message).0, number));
            }
        }
        worker.reach(round + 1);
    }
    Ok(())
}

fn baselines(memory: &Region, options: &Options) -> Result<Vec<BareBuffers>, Failure> {
    let each = buffers_bytes(options);
    let parts = buffers(options).into_iter().enumerate().map(|(index, buffers)| {
        let part = part(memory, index * each, each)?;
        Ok(BareBuffers::new(&part, options.bytes, buffers))
    });
    parts.collect()
}

/// Messages a second, as 10^9 bytes a second.
#[expect(clippy::cast_precision_loss, reason = "a message's length")]
fn gb_per_s(rate: f64, options: &Options) -> f64 {
    rate * options.bytes as f64 / 1e9
}

/// Describes the blocks of the bare loop, of so many buffers or of slots, and of the channel.
fn describe(
    options: &Options,
    blocks: &Blocks,
    [bare, ours]: [usize; 2],
    buffers: Option<usize>,
    report: &mut Report,
) {
    let &Options { bytes, receivers, slots, copy, rounds, .. } = options;
    report.value("bytes", bytes);
    report.value("receivers", receivers);
    report.value("slots", slots);
    report.value("copy", copy);
    report.value("rounds", rounds);
    let bare_words = match buffers {
        None => format!("bare loop, {slots} slots, {receivers} receivers"),
        Some(buffers) => format!("bare loop, the best of 2 to 256: {buffers} buffers"),
    };
    if let Some(buffers) = buffers {
        report.value("baseline_buffers", buffers);
    }
    let how = if copy { "send(&[u8])" } else { "loan, read in place" };
    let ours_words = format!("channel, {how}");
    for (key, words, block) in [("baseline_", bare_words, bare), ("", ours_words, ours)] {
        let rate = blocks.median(block);
        let gb_per_s = gb_per_s(rate, options);
        report.value(&format!("{key}messages_per_s"), rate.round());
        report.value(&format!("{key}gb_per_s"), thousandths(gb_per_s));
        let rate = rate / 1e6;
        report.note(format!("{words:<44} {rate:>10.3} M messages/s {gb_per_s:>8.2} GB/s"));
    }
    report.ratio("ratio to the bare loop of the same round", &blocks.ratios(ours, bare));
}

fn out_of_order(found: u64, due: u64) -> Failure {
    Failure::other(format!("message {found} arrived where {due} was due"))
}
