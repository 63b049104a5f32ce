//! The cost of a channel's policy: streaming under `Overwrite` or `Evict`, where messages are copied
//! out and checked, compared with `Block`, where messages are read in place. All in the same run, in
//! alternating blocks. Every message is received as it was sent, or counted as missed.

use std::ops::Range;

use corewire::{Sender, SnapshotReceiver};
use corewire_ring::sync::Ordering;
use zerocopy::IntoBytes;

use super::prelude::*;

pub(super) const ROLE: Role<Options> = Role { name: "policy", work: peer };

/// Length of a message.
const BYTES: usize = 48;
/// Number of messages in a block of about 10 ms.
const MESSAGES: u64 = 2_500_000;
/// How long a receiver may delay the sender of the channel that evicts: longer than any block.
const EVICT_AFTER: Duration = Duration::from_secs(10);

/// The receiver's word with the number of messages that it received in a block.
const DELIVERED: usize = 0;

/// The channels that are measured, which are also the names of their figures.
const CHANNELS: [&str; 3] = ["block", "overwrite", "evict"];

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut crew = setup(1).start(&ROLE, |_| options.clone())?;
    let mut senders =
        [sender(&crew, options, 0)?, sender(&crew, options, 1)?, sender(&crew, options, 2)?];
    for sender in &mut senders {
        sender.wait_for_receivers(1)?;
    }
    let mut missed = 0;
    // The first three figures are the rates of delivery, the others those of sending.
    let blocks = alternate(options.rounds, |round| {
        let Range { start: first, end } = numbers(round, MESSAGES);
        let mut rates = [0.0; 2 * CHANNELS.len()];
        for (index, sender) in senders.iter_mut().enumerate() {
            let start = Instant::now();
            send(sender, first, end)?;
            crew.await_step(0, round * 3 + index as u64 + 1)?;
            let seconds = start.elapsed().as_secs_f64();
            let delivered = crew.board().word(0, DELIVERED).load(Ordering::Relaxed);
            #[expect(clippy::cast_precision_loss, reason = "a few million")]
            let per_second = |messages: u64| messages as f64 / seconds;
            rates[index] = per_second(delivered);
            rates[CHANNELS.len() + index] = per_second(MESSAGES);
            if round > WARM_UP {
                missed += MESSAGES - delivered;
            }
        }
        Ok::<_, Failure>(rates)
    })?;
    report.value("bytes", BYTES);
    report.value("slots", options.slots);
    report.value("rounds", options.rounds);
    for (index, name) in CHANNELS.iter().enumerate() {
        let rate = blocks.median(index);
        report.value(&format!("{name}_messages_per_s"), rate.round());
        report.note(format!("{name:<44} {:>10.1} M messages/s delivered", rate / 1e6));
    }
    report.value("overwrite_missed", missed);
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let percent = missed as f64 / (options.rounds * MESSAGES) as f64 * 100.0;
    report.note(format!("{:<44} {percent:>10.3} % of what was sent", "missed under overwrite"));
    let delivered = blocks.ratio(1, 0);
    report.value("overwrite_delivered_ratio", thousandths(delivered.median));
    report.spread_note("overwrite, delivered, ratio to block", delivered);
    report.number("evict_ratio", "evict, ratio to block", blocks.ratio(2, 0).median);
    let sent = blocks.ratios(CHANNELS.len() + 1, 0);
    report.ratio("overwrite, sent and accounted for, to block", &sent);
    drop(senders);
    crew.finish_with(report)
}

fn sender(crew: &Crew, options: &Options, which: usize) -> Result<Sender, Failure> {
    let builder = crew.domain()?.sender(CHANNELS[which]).slots(options.slots).receivers(1);
    let builder = builder.wait(options.wait()).prefault(true);
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

/// The receiver of all three channels.
fn peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let domain = worker.domain()?;
    let builder = |name: &str| domain.receiver(name).wait(options.wait());
    let mut block = builder(CHANNELS[0]).join_when_created()?;
    let mut others = [
        builder(CHANNELS[1]).snapshots().join_when_created()?,
        builder(CHANNELS[2]).snapshots().join_when_created()?,
    ];
    let mut sum = 0u64;
    for round in all(options.rounds) {
        let numbers = numbers(round, MESSAGES);
        let end = numbers.end;
        for number in numbers {
            let message = block.receive()?;
            sum = sum.wrapping_add(check(&message, number)?);
        }
        done(worker, round * 3 + 1, MESSAGES);
        for (index, receiver) in (2..).zip(&mut others) {
            let (delivered, part) = copy_until(receiver, end)?;
            sum = sum.wrapping_add(part);
            done(worker, round * 3 + index, delivered);
        }
    }
    black_box(sum);
    Ok(())
}

fn done(worker: &Worker, step: u64, delivered: u64) {
    worker.board().word(worker.index(), DELIVERED).store(delivered, Ordering::Relaxed);
    worker.reach(step);
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
