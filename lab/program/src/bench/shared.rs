//! The cost of several senders in one channel: one active sender of a shared channel, compared with a
//! bare loop that claims each slot by a compare-and-swap; and its batches of 16, compared with the
//! channel of one sender. All in the same run, in alternating blocks.

use std::ops::Range;

use corewire::SharedSender;
use corewire_harness::places::let_ahead;
use corewire_published::yardstick::{BARE_BYTES, BareRing};
use corewire_ring::sync::pause;
use zerocopy::IntoBytes;

use super::prelude::*;
use super::stream::{receive_numbers, send_in_place};

pub(super) const ROLE: Role<Options> = Role { name: "shared", work: peer };

/// Number of messages in a block of about 10 ms, with a claim for each message, and with batches.
const CLAIMED_MESSAGES: u64 = 250_000;
const BATCHED_MESSAGES: u64 = 2_000_000;
const BATCH: usize = 16;

/// The blocks: the key of each, and what it is.
const BLOCKS: [(&str, &str); 4] = [
    ("bare_claims", "bare loop, a compare-and-swap each"),
    ("shared", "shared channel, one active sender"),
    ("one_sender", "channel of one sender"),
    ("shared_batches", "shared channel, batches of 16"),
];

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let slots = options.slots;
    let setup = setup(1).memory_bytes(BareRing::bytes(slots, 1));
    let mut crew = setup.start(&ROLE, |_| options.clone())?;
    let bare = BareRing::new(&crew.board().work()?, slots, 1);
    let domain = crew.domain()?;
    let builder = |name: &str| domain.sender(name).slots(slots).receivers(1).wait(options.wait());
    let mut shared = builder("shared").open_shared(2)?;
    let mut one = builder("one").prefault(true).create()?;
    shared.wait_for_receivers(1)?;
    one.wait_for_receivers(1)?;
    let blocks = alternate(options.rounds, |round| {
        let claimed = numbers(round, CLAIMED_MESSAGES);
        let many = numbers(round, BATCHED_MESSAGES);
        let start = Instant::now();
        bare.send_by_claims(claimed.start, claimed.end, pause);
        crew.await_step(0, round * 4 + 1)?;
        let bare = per_second(CLAIMED_MESSAGES, start);
        let start = Instant::now();
        send_each(&mut shared, claimed)?;
        crew.await_step(0, round * 4 + 2)?;
        let each = per_second(CLAIMED_MESSAGES, start);
        let start = Instant::now();
        send_in_place(&mut one, many.clone())?;
        crew.await_step(0, round * 4 + 3)?;
        let in_place = per_second(BATCHED_MESSAGES, start);
        let start = Instant::now();
        send_batches(&mut shared, many)?;
        crew.await_step(0, round * 4 + 4)?;
        Ok::<_, Failure>([bare, each, in_place, per_second(BATCHED_MESSAGES, start)])
    })?;
    report.value("bytes", BARE_BYTES);
    report.value("slots", slots);
    report.value("rounds", options.rounds);
    for (index, (key, words)) in BLOCKS.into_iter().enumerate() {
        report.rate(&format!("{key}_messages_per_s"), words, blocks.median(index));
    }
    let batches = blocks.ratio(3, 2);
    report.spread("batch_ratio", batches);
    report.spread_note("batches, ratio to one sender", batches);
    report.ratio("each by itself, ratio to bare claims", &blocks.ratios(1, 0));
    drop((shared, one));
    crew.finish_with(report)
}

#[inline(never)]
fn send_each(sender: &mut SharedSender, numbers: Range<u64>) -> Result<(), Failure> {
    for number in numbers {
        let words = black_box([number; BARE_BYTES / 8]);
        sender.send(words.as_bytes())?;
    }
    Ok(())
}

#[inline(never)]
fn send_batches(sender: &mut SharedSender, numbers: Range<u64>) -> Result<(), Failure> {
    for start in numbers.step_by(BATCH) {
        let messages: [_; BATCH] =
            std::array::from_fn(|index| [start + index as u64; BARE_BYTES / 8]);
        let messages = black_box(&messages);
        sender.send_all(&messages.each_ref().map(IntoBytes::as_bytes))?;
    }
    Ok(())
}

/// The receiver of all four kinds of blocks.
fn peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let domain = worker.domain()?;
    let bare = BareRing::new(&worker.board().work()?, options.slots, 1);
    let builder = |name: &str| domain.receiver(name).wait(options.wait());
    let mut shared = builder("shared").join_when_created()?;
    let mut one = builder("one").join_when_created()?;
    let mut sum = 0u64;
    for round in all(options.rounds) {
        let claimed = numbers(round, CLAIMED_MESSAGES);
        let many = numbers(round, BATCHED_MESSAGES);
        let lets_ahead = |run| let_ahead(run, options.slots, worker.must_yield());
        sum = sum.wrapping_add(bare.receive(0, claimed.clone(), lets_ahead, pause));
        worker.reach(round * 4 + 1);
        sum = sum.wrapping_add(receive_numbers(&mut shared, claimed)?);
        worker.reach(round * 4 + 2);
        sum = sum.wrapping_add(receive_numbers(&mut one, many.clone())?);
        worker.reach(round * 4 + 3);
        sum = sum.wrapping_add(receive_numbers(&mut shared, many)?);
        worker.reach(round * 4 + 4);
    }
    black_box(sum);
    Ok(())
}
