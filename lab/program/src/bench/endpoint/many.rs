//! Sixty-four processes that send to one receiver, on fewer cores: does every sender get its turn, and
//! what does a message cost, compared with a single sender on the receiver's own core?

use corewire::{Memory, Selector};
use corewire_harness::calls::ways::first_processor;
use corewire_os::process::processor_seconds;

use super::{BYTES, Effort, check};
use crate::bench::prelude::*;

pub(in super::super) const ROLE: Role<Options> = Role { name: "many endpoints", work: peer };

const SENDERS: usize = 64;
/// The tag of the message that ends the measurement.
const OVER: u64 = u64::MAX;

/// The results with some number of senders.
struct Found {
    counts: Vec<u64>,
    messages_per_s: f64,
    processor_ns: f64,
}

pub(super) fn run(options: &Options, effort: Effort, report: &mut Report) -> Result<(), Failure> {
    let one = measure(options, effort, 1)?;
    let many = measure(options, effort, SENDERS)?;
    let slowest = many.counts.iter().copied().min().unwrap_or(0);
    let sum: u64 = many.counts.iter().sum();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 messages")]
    let fairness = slowest as f64 * SENDERS as f64 / sum.max(1) as f64;
    report.value("many_senders", SENDERS);
    for (key, words, found) in [
        ("many", "64 senders, processor time of a message", &many),
        ("one", "1 sender on the receiver's core, the same", &one),
    ] {
        let key = format!("{key}_processor_ns_per_message");
        report.figure(&key, words, found.processor_ns, "ns");
    }
    report.rate("many_messages_per_s", "64 senders (oversubscribed)", many.messages_per_s);
    report.number("many_slowest_to_mean", "the slowest sender to the mean", fairness);
    let ratio = many.processor_ns / one.processor_ns;
    report.number("many_processor_ratio", "processor time, 64 senders to 1", ratio);
    Ok(())
}

/// Counts the messages that `senders` processes send in a while. No message may be lost.
fn measure(options: &Options, effort: Effort, senders: usize) -> Result<Found, Failure> {
    let places = if senders == 1 { Places::On(first_processor()?) } else { Places::Anywhere };
    let crew = setup(senders).places(places).start(&ROLE, |_| options.clone())?;
    let mut endpoint = crew.domain()?.endpoint("sink").wait(options.wait()).create()?;
    // Every sender announces itself: the tag is its index.
    let mut peers = vec![];
    for _ in 0..senders {
        let status = endpoint.receive_into(Selector::any(), &mut [])?;
        peers.push((status.tag, status.source));
    }
    peers.sort_by_key(|&(index, _)| index);
    for &(_, peer) in &peers {
        endpoint.send(peer, 0, b"")?;
    }
    let used = |crew: &Crew| -> Result<f64, Failure> {
        Ok(crew.processor_seconds()? + processor_seconds(std::process::id())?)
    };
    let mut counts = vec![0u64; senders];
    let (start, before) = (Instant::now(), used(&crew)?);
    let mut word = [0; BYTES];
    let mut total = 0u64;
    while !total.is_multiple_of(4096) || start.elapsed().as_secs_f64() < effort.many_seconds {
        let status = endpoint.receive_into(Selector::any(), &mut word)?;
        count(&mut counts, status.tag, word)?;
        total += 1;
    }
    let (seconds, processor) = (start.elapsed().as_secs_f64(), used(&crew)? - before);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 messages")]
    let (messages_per_s, processor_ns) =
        (total as f64 / seconds, processor * 1e9 / total.max(1) as f64);
    let found = Found { counts: counts.clone(), messages_per_s, processor_ns };
    for (_, peer) in peers {
        let _ = endpoint.isend(peer, OVER, Memory::default())?;
    }
    // Receives the messages that are still in flight, and then the number of messages that each sender
    // has sent.
    let mut left = senders;
    while left > 0 {
        let status = endpoint.receive_into(Selector::any(), &mut word)?;
        if status.tag >= OVER - SENDERS as u64 {
            let index = usize::try_from(OVER - 1 - status.tag).unwrap_or(usize::MAX);
            check(counts.get(index).copied().unwrap_or_default(), u64::from_le_bytes(word))?;
            left -= 1;
        } else {
            count(&mut counts, status.tag, word)?;
        }
    }
    endpoint.close()?;
    crew.finish()?;
    Ok(found)
}

/// Counts a message of the sender with this index, and checks its number.
#[inline(always)]
fn count(counts: &mut [u64], index: u64, word: [u8; BYTES]) -> Result<(), Failure> {
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    let count = counts.get_mut(index).ok_or_else(|| Failure::other("a strange tag"))?;
    check(u64::from_le_bytes(word), *count)?;
    *count += 1;
    Ok(())
}

/// A sender: its messages are numbered, and their tag is its index.
fn peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let domain = worker.domain()?;
    let tag = worker.index() as u64;
    let mut endpoint = domain.endpoint(&format!("source-{tag}")).wait(options.wait()).create()?;
    let sink = endpoint.peer_when_created("sink", None)?;
    endpoint.send(sink, tag, b"")?;
    endpoint.receive_into(Selector::any(), &mut [])?;
    let mut number = 0u64;
    while endpoint.try_receive_into(Selector::tag(OVER), &mut [])?.is_none() {
        for _ in 0..64 {
            endpoint.send(sink, tag, &number.to_le_bytes())?;
            number += 1;
        }
    }
    endpoint.send(sink, OVER - 1 - tag, &number.to_le_bytes())?;
    Ok(endpoint.close()?)
}
