//! Messages and bytes per second, to one receiver or several. The baseline is a bare loop: for messages
//! that fit into a slot, a ring with the same number of slots; for larger messages, the best of 2 to
//! 256 buffers that are handed over in turn.

use std::hint::black_box;
use std::time::Instant;

use corewire::{Receiver, Sender};
use corewire_published::yardstick::{BARE_BYTES, BUFFERS_MAX, BareBuffers, BareRing, payload};
use corewire_ring::sync::pause;
use zerocopy::IntoBytes;

use super::peer::Peer;
use super::rig::{Kind, Plan, Rig};
use super::statistics::{Spread, percentile};
use super::{Options, Report};
use crate::failure::Failure;

/// Number of messages that fit into a slot, in a block of about 10 ms.
const SMALL_MESSAGES: u64 = 2_500_000;
/// Bytes of larger messages in a block of about 10 ms.
const LARGE_BYTES: u64 = 128 << 20;
/// Maximum size of the buffers of a baseline.
const BUFFERS_BYTES_MAX: usize = 256 << 20;

pub(super) fn run(options: &Options) -> Result<Report, Failure> {
    if options.bytes <= BARE_BYTES as u64 { small(options) } else { large(options) }
}

fn small(options: &Options) -> Result<Report, Failure> {
    let mut plan = Plan::new(Kind::Stream, options)?;
    if !plan.slots.is_power_of_two() {
        return Err(Failure::usage(format!("--slots: a power of two, not {}", plan.slots)));
    }
    plan.count = SMALL_MESSAGES / plan.receivers as u64;
    let memory = BareRing::bytes(plan.slots, plan.receivers);
    let mut rig = Rig::start(plan, memory, options_receivers(options))?;
    let plan = rig.plan.clone();
    let bare = BareRing::new(&rig.work_memory()?, plan.slots, plan.receivers);
    let mut sender = sender(&rig, &plan)?;
    sender.wait_for_receivers(plan.receivers)?;
    let (mut bare_rates, mut rates) = (vec![], vec![]);
    for round in 0..=plan.rounds {
        let (first, end) = (round * plan.count, (round + 1) * plan.count);
        let start = Instant::now();
        bare.send(first, end, || yield_if(plan.oversubscribed));
        let bare_rate = rate(plan.count, start);
        let start = Instant::now();
        if options.copy {
            send_copies(&mut sender, plan.bytes, first, end)?;
        } else if plan.bytes == BARE_BYTES {
            send_in_place::<BARE_BYTES>(&mut sender, first, end)?;
        } else {
            send_in_place_of(&mut sender, plan.bytes, first, end)?;
        }
        for index in 0..plan.receivers {
            rig.await_peer(index, round + 1)?;
        }
        if round > 0 {
            bare_rates.push(bare_rate);
            rates.push(rate(plan.count, start));
        }
    }
    let report = summary(&rig, &plan, options, &bare_rates, &rates, None);
    drop(sender);
    rig.finish()?;
    Ok(report)
}

/// A receiver of messages that fit into a slot.
pub(super) fn peer(peer: &Peer) -> Result<(), Failure> {
    let plan = &peer.plan;
    let bare = BareRing::new(&peer.work, plan.slots, plan.receivers);
    let mut receiver = peer.domain.receiver("stream").wait(plan.wait.into()).join_when_created()?;
    let mut sums = 0u64;
    for round in 0..=plan.rounds {
        let (first, end) = (round * plan.count, (round + 1) * plan.count);
        let yields = || yield_if(plan.oversubscribed);
        sums = sums.wrapping_add(bare.receive(plan.index as u64, first, end, yields));
        sums = sums.wrapping_add(receive_small(&mut receiver, first, end)?);
        peer.done(round + 1);
    }
    black_box(sums);
    Ok(())
}

#[inline(never)]
fn receive_small(receiver: &mut Receiver, first: u64, end: u64) -> Result<u64, Failure> {
    let mut sum = 0u64;
    for number in first..end {
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
fn send_in_place<const BYTES: usize>(
    sender: &mut Sender,
    first: u64,
    end: u64,
) -> Result<(), Failure> {
    for number in first..end {
        let mut loan = sender.loan(BYTES)?;
        loan.copy_from_slice([number.to_le_bytes(); 6].as_flattened());
        loan.send();
    }
    Ok(())
}

#[inline(never)]
fn send_in_place_of(
    sender: &mut Sender,
    bytes: usize,
    first: u64,
    end: u64,
) -> Result<(), Failure> {
    for number in first..end {
        let mut loan = sender.loan(bytes)?;
        payload::fill(&mut loan, number);
        loan.send();
    }
    Ok(())
}

#[inline(never)]
fn send_copies(sender: &mut Sender, bytes: usize, first: u64, end: u64) -> Result<(), Failure> {
    let mut words = black_box([7u64; BARE_BYTES / 8]);
    for number in first..end {
        words[0] = number.to_le();
        sender.send(&words.as_bytes()[..bytes.min(BARE_BYTES)])?;
    }
    Ok(())
}

fn large(options: &Options) -> Result<Report, Failure> {
    let mut plan = Plan::new(Kind::Buffers, options)?;
    if plan.receivers != 1 {
        return Err(Failure::usage(format!(
            "bench fan-out --bytes {}: the baseline for more than {BARE_BYTES} bytes has one \
             receiver; use bench stream",
            plan.bytes
        )));
    }
    plan.count = (LARGE_BYTES / options.bytes).max(4);
    plan.baseline_count = plan.count;
    plan.buffers = [2, 4, 8, 16, 32, 64, 128, 256]
        .into_iter()
        .filter(|&buffers| buffers == 2 || buffers * plan.bytes <= BUFFERS_BYTES_MAX)
        .collect();
    let most = plan.buffers.iter().copied().max().unwrap_or(2).min(BUFFERS_MAX);
    // Each number of buffers has its own part of the memory, because each baseline counts from its own
    // start.
    let each = BareBuffers::bytes(plan.bytes, most).next_multiple_of(4096);
    let memory = each * plan.buffers.len();
    let mut rig = Rig::start(plan, memory, 1)?;
    let plan = rig.plan.clone();
    let baselines = baselines(&rig.work_memory()?, &plan)?;
    let mut sender = sender(&rig, &plan)?;
    sender.wait_for_receivers(1)?;
    let mut bare_rates = vec![vec![]; baselines.len()];
    let mut rates = vec![];
    for round in 0..=plan.rounds {
        let (first, end) = (round * plan.count, (round + 1) * plan.count);
        for (baseline, rates) in baselines.iter().zip(&mut bare_rates) {
            let start = Instant::now();
            baseline.send(first, end, |number, buffer| payload::fill(buffer, number));
            if round > 0 {
                rates.push(rate(plan.count, start));
            }
        }
        let start = Instant::now();
        for number in first..end {
            if options.copy {
                let mut message = vec![0; plan.bytes];
                payload::fill(&mut message, number);
                sender.send(&message)?;
            } else {
                let mut loan = sender.loan(plan.bytes)?;
                payload::fill(&mut loan, number);
                loan.send();
            }
        }
        rig.await_peer(0, round + 1)?;
        if round > 0 {
            rates.push(rate(plan.count, start));
        }
    }
    let medians: Vec<f64> = bare_rates.iter().map(|rates| percentile(rates, 0.5)).collect();
    let best = (0..medians.len()).max_by(|&a, &b| medians[a].total_cmp(&medians[b])).unwrap_or(0);
    let buffers = plan.buffers[best];
    let mut report = summary(&rig, &plan, options, &bare_rates[best], &rates, Some(buffers));
    let by_buffers = plan.buffers.iter().zip(&medians).map(|(buffers, rate)| {
        #[expect(clippy::cast_precision_loss, reason = "a message's length")]
        let gb_per_s = rate * plan.bytes as f64 / 1e9;
        (buffers.to_string(), ((gb_per_s * 1000.0).round() / 1000.0).into())
    });
    let by_buffers: serde_json::Map<_, _> = by_buffers.collect();
    report.value("baseline_gb_per_s_by_buffers", by_buffers);
    drop(sender);
    rig.finish()?;
    Ok(report)
}

/// The receiver of larger messages.
pub(super) fn buffers_peer(peer: &Peer) -> Result<(), Failure> {
    let plan = &peer.plan;
    let baselines = baselines(&peer.work, plan)?;
    let mut receiver = peer.domain.receiver("stream").wait(plan.wait.into()).join_when_created()?;
    for round in 0..=plan.rounds {
        let (first, end) = (round * plan.count, (round + 1) * plan.count);
        for baseline in &baselines {
            let mut wrong = None;
            baseline.receive(first, end, |number, buffer| {
                if payload::sum(buffer) != payload::expected_sum(plan.bytes, number) {
                    wrong = Some(number);
                }
            });
            if let Some(number) = wrong {
                return Err(Failure::other(format!("buffer {number} arrived damaged")));
            }
        }
        for number in first..end {
            let message = receiver.receive()?;
            if payload::sum(&message) != payload::expected_sum(plan.bytes, number) {
                return Err(out_of_order(payload::ends(&message).0, number));
            }
        }
        peer.done(round + 1);
    }
    Ok(())
}

fn baselines(
    memory: &corewire_ring::region::Region,
    plan: &Plan,
) -> Result<Vec<BareBuffers>, Failure> {
    let each = memory.bytes() / plan.buffers.len() / 4096 * 4096;
    let parts = plan.buffers.iter().enumerate().map(|(index, &buffers)| {
        let part = super::rig::part(memory, index * each, each)?;
        Ok(BareBuffers::new(&part, plan.bytes, buffers))
    });
    parts.collect()
}

fn sender(rig: &Rig, plan: &Plan) -> Result<Sender, Failure> {
    let builder = rig
        .domain()?
        .sender("stream")
        .slots(plan.slots)
        .receivers(plan.receivers)
        .wait(plan.wait.into())
        .largest_message(plan.bytes.max(4096))
        .prefault(true);
    Ok(builder.create()?)
}

fn summary(
    rig: &Rig,
    plan: &Plan,
    options: &Options,
    bare_rates: &[f64],
    rates: &[f64],
    buffers: Option<usize>,
) -> Report {
    let mut report = Report::new();
    let receivers = plan.receivers;
    let (bare, ours) = (Spread::of(bare_rates).median, Spread::of(rates).median);
    report.value("bytes", plan.bytes);
    report.value("receivers", receivers);
    report.value("slots", plan.slots);
    report.value("copy", options.copy);
    report.value("rounds", plan.rounds);
    report.value("messages_per_s", ours.round());
    report.value("baseline_messages_per_s", bare.round());
    #[expect(clippy::cast_precision_loss, reason = "a message's length")]
    let to_gb = |rate: f64| rate * plan.bytes as f64 / 1e9;
    report.value("gb_per_s", (to_gb(ours) * 1000.0).round() / 1000.0);
    report.value("baseline_gb_per_s", (to_gb(bare) * 1000.0).round() / 1000.0);
    let name = match buffers {
        None => format!("bare loop, {} slots, {receivers} receivers", plan.slots),
        Some(buffers) => format!("bare loop, the best of 2 to 256: {buffers} buffers"),
    };
    if let Some(buffers) = buffers {
        report.value("baseline_buffers", buffers);
    }
    let how = if options.copy { "send(&[u8])" } else { "loan, read in place" };
    for (name, rate) in [(name, bare), (format!("channel, {how}"), ours)] {
        let line =
            format!("{name:<44} {:>10.3} M messages/s {:>8.2} GB/s", rate / 1e6, to_gb(rate));
        report.note(line);
    }
    let ratios: Vec<f64> = rates.iter().zip(bare_rates).map(|(ours, bare)| ours / bare).collect();
    report.ratio("ratio to the bare loop of the same round", &ratios);
    rig.describe(&mut report);
    report
}

fn options_receivers(options: &Options) -> usize {
    usize::try_from(options.receivers).unwrap_or(1)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 messages")]
fn rate(count: u64, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64().max(1e-9)
}

pub(super) fn yield_if(oversubscribed: bool) {
    if oversubscribed {
        std::thread::yield_now();
    } else {
        pause();
    }
}

fn out_of_order(found: u64, due: u64) -> Failure {
    Failure::other(format!("message {found} arrived where {due} was due"))
}
