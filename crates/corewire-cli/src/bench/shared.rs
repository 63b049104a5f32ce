//! The cost of several senders in one channel: one active sender of a shared channel, compared with a
//! bare loop that claims each slot by a compare-and-swap; and its batches of 16, compared with the
//! channel of one sender. All in the same run, in alternating blocks.

use std::hint::black_box;
use std::time::Instant;

use corewire::{Receiver, Sender, SharedSender};
use corewire_published::yardstick::{BARE_BYTES, BareRing, payload};
use zerocopy::IntoBytes;

use super::peer::Peer;
use super::rig::{Kind, Plan, Rig};
use super::statistics::Spread;
use super::{Options, Report};
use crate::failure::Failure;

/// Number of messages in a block of about 10 ms, with a claim for each message, and with batches.
const CLAIMED_MESSAGES: u64 = 250_000;
const BATCHED_MESSAGES: u64 = 2_000_000;
const BATCH: usize = 16;

pub(super) fn run(options: &Options) -> Result<Report, Failure> {
    let mut plan = Plan::new(Kind::Shared, options)?;
    if !plan.slots.is_power_of_two() {
        return Err(Failure::usage(format!("--slots: a power of two, not {}", plan.slots)));
    }
    plan.receivers = 1;
    plan.count = CLAIMED_MESSAGES;
    plan.baseline_count = BATCHED_MESSAGES;
    let mut rig = Rig::start(plan, BareRing::bytes(options_slots(options), 1), 1)?;
    let plan = rig.plan.clone();
    let bare = BareRing::new(&rig.work_memory()?, plan.slots, 1);
    let domain = rig.domain()?;
    let builder = domain.sender("shared").slots(plan.slots).receivers(1).wait(plan.wait.into());
    let mut shared = builder.open_shared(2)?;
    let builder = domain.sender("one").slots(plan.slots).receivers(1).wait(plan.wait.into());
    let mut one = builder.prefault(true).create()?;
    shared.wait_for_receivers(1)?;
    one.wait_for_receivers(1)?;
    let mut rates = [vec![], vec![], vec![], vec![]];
    for round in 0..=plan.rounds {
        let (first, end) = (round * plan.count, (round + 1) * plan.count);
        let many = round * plan.baseline_count..(round + 1) * plan.baseline_count;
        let step = |which: u64| round * 4 + which;
        let mut block = [0.0; 4];
        let start = Instant::now();
        bare.send_by_claims(first, end, corewire_ring::sync::pause);
        rig.await_peer(0, step(1))?;
        block[0] = rate(plan.count, start);
        let start = Instant::now();
        send_each(&mut shared, first, end)?;
        rig.await_peer(0, step(2))?;
        block[1] = rate(plan.count, start);
        let start = Instant::now();
        send_in_place(&mut one, many.start, many.end)?;
        rig.await_peer(0, step(3))?;
        block[2] = rate(plan.baseline_count, start);
        let start = Instant::now();
        send_batches(&mut shared, many.start, many.end)?;
        rig.await_peer(0, step(4))?;
        block[3] = rate(plan.baseline_count, start);
        if round > 0 {
            rates.iter_mut().zip(block).for_each(|(rates, rate)| rates.push(rate));
        }
    }
    let mut report = Report::new();
    report.value("bytes", BARE_BYTES);
    report.value("slots", plan.slots);
    report.value("rounds", plan.rounds);
    let names = [
        ("bare_claims", "bare loop, a compare-and-swap each"),
        ("shared", "shared channel, one active sender"),
        ("one_sender", "channel of one sender"),
        ("shared_batches", "shared channel, batches of 16"),
    ];
    for ((key, words), rates) in names.into_iter().zip(&rates) {
        let rate = Spread::of(rates).median;
        report.value(&format!("{key}_messages_per_s"), rate.round());
        report.note(format!("{words:<44} {:>10.1} M messages/s", rate / 1e6));
    }
    let ratios = |over: usize, under: usize| -> Vec<f64> {
        rates[over].iter().zip(&rates[under]).map(|(a, b)| a / b).collect()
    };
    let batches = Spread::of(&ratios(3, 2));
    report.value("batch_ratio", (batches.median * 1000.0).round() / 1000.0);
    report.value("batch_ratio_min", (batches.min * 1000.0).round() / 1000.0);
    report.value("batch_ratio_max", (batches.max * 1000.0).round() / 1000.0);
    report.note(format!(
        "{:<44} {:>10.3} ({:.3} to {:.3})",
        "batches, ratio to one sender", batches.median, batches.min, batches.max
    ));
    report.ratio("each by itself, ratio to bare claims", &ratios(1, 0));
    rig.describe(&mut report);
    drop((shared, one));
    rig.finish()?;
    Ok(report)
}

fn options_slots(options: &Options) -> usize {
    usize::try_from(options.slots).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 messages")]
fn rate(count: u64, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64().max(1e-9)
}

#[inline(never)]
fn send_each(sender: &mut SharedSender, first: u64, end: u64) -> Result<(), Failure> {
    for number in first..end {
        let words = black_box([number; BARE_BYTES / 8]);
        sender.send(words.as_bytes())?;
    }
    Ok(())
}

#[inline(never)]
fn send_batches(sender: &mut SharedSender, first: u64, end: u64) -> Result<(), Failure> {
    for start in (first..end).step_by(BATCH) {
        let messages: [_; BATCH] =
            std::array::from_fn(|index| [start + index as u64; BARE_BYTES / 8]);
        let messages = black_box(&messages);
        sender.send_all(&messages.each_ref().map(IntoBytes::as_bytes))?;
    }
    Ok(())
}

#[inline(never)]
fn send_in_place(sender: &mut Sender, first: u64, end: u64) -> Result<(), Failure> {
    for number in first..end {
        let mut loan = sender.loan(BARE_BYTES)?;
        loan.copy_from_slice([number.to_le_bytes(); BARE_BYTES / 8].as_flattened());
        loan.send();
    }
    Ok(())
}

/// The receiver of all four kinds of blocks.
pub(super) fn peer(peer: &Peer) -> Result<(), Failure> {
    let plan = &peer.plan;
    let bare = BareRing::new(&peer.work, plan.slots, 1);
    let builder = |name: &str| peer.domain.receiver(name).wait(plan.wait.into());
    let mut shared = builder("shared").join_when_created()?;
    let mut one = builder("one").join_when_created()?;
    let mut sum = 0u64;
    for round in 0..=plan.rounds {
        let (first, end) = (round * plan.count, (round + 1) * plan.count);
        let many = round * plan.baseline_count..(round + 1) * plan.baseline_count;
        sum = sum.wrapping_add(bare.receive(0, first, end, corewire_ring::sync::pause));
        peer.done(round * 4 + 1);
        sum = sum.wrapping_add(receive(&mut shared, first, end)?);
        peer.done(round * 4 + 2);
        sum = sum.wrapping_add(receive(&mut one, many.start, many.end)?);
        peer.done(round * 4 + 3);
        sum = sum.wrapping_add(receive(&mut shared, many.start, many.end)?);
        peer.done(round * 4 + 4);
    }
    black_box(sum);
    Ok(())
}

#[inline(never)]
fn receive(receiver: &mut Receiver, first: u64, end: u64) -> Result<u64, Failure> {
    let mut sum = 0u64;
    for number in first..end {
        let message = receiver.receive()?;
        let (head, last) = payload::ends(&message);
        if head != number {
            return Err(Failure::other(format!("message {head} arrived where {number} was due")));
        }
        sum = sum.wrapping_add(last);
    }
    Ok(sum)
}
