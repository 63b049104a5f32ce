//! The cost of a channel's policy: streaming under `Overwrite` or `Evict`, where messages are copied
//! out and checked, compared with `Block`, where messages are read in place. All in the same run, in
//! alternating blocks. Every message is received as it was sent, or counted as missed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use corewire::{Sender, SnapshotReceiver};
use corewire_ring::sync::Ordering;
use zerocopy::IntoBytes;

use super::peer::Peer;
use super::rig::{Kind, Plan, Rig, done_word};
use super::statistics::Spread;
use super::{Options, Report};
use crate::failure::Failure;

/// Length of a message.
const BYTES: usize = 48;
/// Number of messages in a block of about 10 ms.
const MESSAGES: u64 = 2_500_000;
/// How long a receiver may delay the sender of the channel that evicts: longer than any block.
const EVICT_AFTER: Duration = Duration::from_secs(10);

/// The channels that are measured, which are also the names of their figures.
const CHANNELS: [&str; 3] = ["block", "overwrite", "evict"];

pub(super) fn run(options: &Options) -> Result<Report, Failure> {
    let mut plan = Plan::new(Kind::Policy, options)?;
    plan.count = MESSAGES;
    plan.receivers = 1;
    let mut rig = Rig::start(plan, 4096, 1)?;
    let plan = rig.plan.clone();
    let mut senders = [sender(&rig, 0)?, sender(&rig, 1)?, sender(&rig, 2)?];
    for sender in &mut senders {
        sender.wait_for_receivers(1)?;
    }
    let mut rates = [vec![], vec![], vec![]];
    let mut sent_rates = [vec![], vec![], vec![]];
    let mut missed = 0;
    for round in 0..=plan.rounds {
        let (first, end) = (round * plan.count, (round + 1) * plan.count);
        for (index, sender) in senders.iter_mut().enumerate() {
            let start = Instant::now();
            send(sender, first, end)?;
            rig.await_peer(0, round * 3 + index as u64 + 1)?;
            let seconds = start.elapsed().as_secs_f64();
            let delivered = rig.memory.word64(delivered_word()).load(Ordering::Relaxed);
            if round > 0 {
                #[expect(clippy::cast_precision_loss, reason = "a few million")]
                rates[index].push(delivered as f64 / seconds);
                #[expect(clippy::cast_precision_loss, reason = "a few million")]
                sent_rates[index].push(plan.count as f64 / seconds);
                missed += plan.count - delivered;
            }
        }
    }
    let mut report = Report::new();
    report.value("bytes", BYTES);
    report.value("slots", plan.slots);
    report.value("rounds", plan.rounds);
    for (name, rates) in CHANNELS.iter().zip(&rates) {
        let rate = Spread::of(rates).median;
        report.value(&format!("{name}_messages_per_s"), rate.round());
        report.note(format!("{:<44} {:>10.1} M messages/s delivered", name, rate / 1e6));
    }
    report.value("overwrite_missed", missed);
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = missed as f64 / (plan.rounds * plan.count) as f64;
    report.note(format!(
        "{:<44} {:>10.3} % of what was sent",
        "missed under overwrite",
        share * 100.0
    ));
    let ratios = |of: &[f64]| -> Vec<f64> {
        of.iter().zip(&rates[0]).map(|(rate, block)| rate / block).collect()
    };
    let delivered = Spread::of(&ratios(&rates[1]));
    report.value("overwrite_delivered_ratio", (delivered.median * 1000.0).round() / 1000.0);
    report.note(format!(
        "{:<44} {:>10.3} ({:.3} to {:.3})",
        "overwrite, delivered, ratio to block", delivered.median, delivered.min, delivered.max
    ));
    let evict = Spread::of(&ratios(&rates[2]));
    report.value("evict_ratio", (evict.median * 1000.0).round() / 1000.0);
    report.note(format!("{:<44} {:>10.3}", "evict, ratio to block", evict.median));
    report.ratio("overwrite, sent and accounted for, to block", &ratios(&sent_rates[1]));
    rig.describe(&mut report);
    drop(senders);
    rig.finish()?;
    Ok(report)
}

fn sender(rig: &Rig, which: usize) -> Result<Sender, Failure> {
    let builder = rig
        .domain()?
        .sender(CHANNELS[which])
        .slots(rig.plan.slots)
        .receivers(1)
        .wait(rig.plan.wait.into())
        .prefault(true);
    Ok(match which {
        0 => builder.create()?,
        1 => builder.overwrite().create()?,
        _ => builder.evict(EVICT_AFTER).create()?,
    })
}

#[inline(never)]
fn send(sender: &mut Sender, first: u64, end: u64) -> Result<(), Failure> {
    let mut words = [0u64; BYTES / 8];
    for number in first..end {
        words = black_box([number; BYTES / 8]);
        sender.send(words.as_bytes())?;
    }
    black_box(words);
    Ok(())
}

/// Offset of the word with the number of messages that the receiver received in a block.
fn delivered_word() -> usize {
    done_word(0) + 8
}

/// The receiver of all three channels.
pub(super) fn peer(peer: &Peer) -> Result<(), Failure> {
    let plan = &peer.plan;
    let builder = |name: &str| peer.domain.receiver(name).wait(plan.wait.into());
    let mut block = builder(CHANNELS[0]).join_when_created()?;
    let mut others = [
        builder(CHANNELS[1]).snapshots().join_when_created()?,
        builder(CHANNELS[2]).snapshots().join_when_created()?,
    ];
    let mut sum = 0u64;
    for round in 0..=plan.rounds {
        let end = (round + 1) * plan.count;
        for number in round * plan.count..end {
            let message = block.receive()?;
            sum = sum.wrapping_add(check(&message, number)?);
        }
        done(peer, round * 3 + 1, plan.count);
        for (index, receiver) in (2..).zip(&mut others) {
            let (delivered, part) = copy_until(receiver, end)?;
            sum = sum.wrapping_add(part);
            done(peer, round * 3 + index, delivered);
        }
    }
    black_box(sum);
    Ok(())
}

fn done(peer: &Peer, step: u64, delivered: u64) {
    peer.memory.word64(delivered_word()).store(delivered, Ordering::Relaxed);
    peer.done(step);
}

#[inline(never)]
fn copy_until(receiver: &mut SnapshotReceiver, end: u64) -> Result<(u64, u64), Failure> {
    let (first, missed_before) = (receiver.next_sequence(), receiver.missed());
    let (mut sum, mut delivered) = (0u64, 0u64);
    let mut copy = [0; BYTES];
    while receiver.next_sequence() < end {
        let mut snapshot = receiver.receive()?;
        if snapshot.len() != BYTES {
            // The header is that of a later message. The copy fails, which leaves the message counted
            // as missed.
            let _ = snapshot.to_vec();
        } else if snapshot.copy_to(0, &mut copy).is_ok() {
            sum = sum.wrapping_add(check(&copy, snapshot.sequence())?);
            delivered += 1;
        }
    }
    let missed = receiver.missed() - missed_before;
    if delivered + missed != end - first {
        let sent = end - first;
        return Err(Failure::other(format!("{delivered} came and {missed} were missed of {sent}")));
    }
    Ok((delivered, sum))
}

/// Checks a message: all its words are its number.
#[inline(always)]
fn check(message: &[u8], number: u64) -> Result<u64, Failure> {
    let words = message.as_chunks::<8>().0;
    let differ = words.iter().fold(0, |differ, word| differ | (u64::from_le_bytes(*word) ^ number));
    if differ != 0 || words.len() != BYTES / 8 {
        return Err(Failure::other(format!("message {number} arrived torn")));
    }
    Ok(number)
}
