//! Calls by `ump` between two cores, compared with the same bytes that two endpoints exchange by hand: a request with a
//! tag, and its reply, received by its tag.

use std::thread;

use corewire::{Domain, Endpoint, Peer as Other, Selector};
use corewire_harness::calls::ways::{Bound, UMP, work};
use corewire_harness::calls::{Block, Client, check};
use corewire_os::allocations;

use crate::bench::prelude::*;

pub(in super::super) const ROLE: Role<()> = Role { name: "interface by hand", work: peer };

/// Messages of a stream, sent in about 10 ms.
const MESSAGES: u64 = 200_000;
/// Calls whose allocations are counted.
const COUNTED: u64 = 10_000;
/// The names of both endpoints.
const ASKS: &str = "asks-by-hand";
const ANSWERS: &str = "answers-by-hand";
/// Tags of the messages by hand: one with a reply, one of a stream, one that asks how many have arrived, and the last.
const ASK: u64 = 1;
const ONE_WAY: u64 = 2;
const COUNT: u64 = 3;
const OVER: u64 = 4;
/// The longest message.
const BYTES_MAX: usize = 48;

pub(super) fn run(rounds: u64, report: &mut Report) -> Result<(), Failure> {
    let mut bound = Bound::start(&UMP, PROGRAM, &ROLE, &())?;
    let mut endpoint = bound.crew().domain()?.endpoint(ASKS).create()?;
    let other = endpoint.peer_when_created(ANSWERS, None)?;
    let mut sizes = [const { Block::new() }; 4];
    let blocks = alternate(rounds, |_| {
        let client = &mut bound.client;
        let [hand_8, call_8, hand_48, call_48] = &mut sizes;
        Ok::<_, Failure>([
            hand_8.time_ns(|number| exchange::<8>(&mut endpoint, other, ASK, number))?,
            call_8.time_ns(|number| check(client.payload64_1(number), &number))?,
            hand_48.time_ns(|number| exchange::<48>(&mut endpoint, other, ASK, number))?,
            call_48.time_ns(|number| line(client, number))?,
            stream_by_hand(&mut endpoint, other)?,
            stream(client)?,
        ])
    })?;
    describe(&blocks, report);
    count_allocations(&mut bound.client, report)?;
    bound.crew().describe(report);
    endpoint.send(other, OVER, b"")?;
    bound.finish()?;
    Ok(endpoint.close()?)
}

fn describe(blocks: &Blocks, report: &mut Report) {
    for (block, bytes) in [(0, 8), (2, 48)] {
        let [by_hand, called] = [block, block + 1].map(|block| blocks.median(block));
        let key = format!("by_hand_{bytes}_ns");
        report.figure(&key, &format!("{bytes} bytes by hand, round trip"), by_hand, "ns");
        let key = format!("call_{bytes}_ns");
        report.figure(&key, &format!("{bytes} bytes, a call by ump"), called, "ns");
        let (key, words) =
            (format!("call_{bytes}_ratio"), format!("{bytes} bytes, call to by hand"));
        report.ratios(&key, &words, &blocks.ratios(block + 1, block));
    }
    report.rate("by_hand_messages_per_s", "8 bytes one way by hand", blocks.median(4));
    report.rate("one_way_messages_per_s", "8 bytes one way, generated", blocks.median(5));
    report.ratios("stream_ratio", "one way, generated to by hand", &blocks.ratios(5, 4));
}

/// Sends a number in the last of `N` bytes, and checks the number that comes back.
#[inline(always)]
fn exchange<const N: usize>(
    endpoint: &mut Endpoint,
    other: Other,
    tag: u64,
    number: u64,
) -> Result<(), Failure> {
    let mut message = [0; N];
    if let Some(word) = message.last_chunk_mut() {
        *word = number.to_le_bytes();
    }
    endpoint.send(other, tag, &message)?;
    endpoint.receive_into(Selector::tag(tag).from(other), &mut message)?;
    let found = message.last_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    if found == number { Ok(()) } else { Err(Failure::other("another number came back")) }
}

fn line(client: &mut Client, number: u64) -> Result<(), Failure> {
    check(client.line(1, 2, 3, 4, 5, number).map(|out| out.x), &number)
}

/// Messages per second, until the last one has arrived.
fn stream_by_hand(endpoint: &mut Endpoint, other: Other) -> Result<f64, Failure> {
    let start = Instant::now();
    for number in 0..MESSAGES {
        endpoint.send(other, ONE_WAY, &black_box(number).to_le_bytes())?;
    }
    exchange::<8>(endpoint, other, COUNT, MESSAGES)?;
    Ok(per_second(MESSAGES, start))
}

fn stream(client: &mut Client) -> Result<f64, Failure> {
    let before = counts(client)?.0;
    let start = Instant::now();
    for number in 0..MESSAGES {
        client.one_way(black_box(number)).map_err(Failure::other)?;
    }
    let after = counts(client)?.0;
    let rate = per_second(MESSAGES, start);
    if after - before != MESSAGES {
        return Err(Failure::other("a message is missing"));
    }
    Ok(rate)
}

/// How many one-way messages have arrived, and how often the service's thread has allocated memory.
fn counts(client: &mut Client) -> Result<(u64, u64), Failure> {
    let counts = client.counts().map_err(Failure::other)?;
    Ok((counts.received, counts.allocations))
}

/// Counts the allocations of both sides in calls, and in one-way messages.
fn count_allocations(client: &mut Client, report: &mut Report) -> Result<(), Failure> {
    type Send = fn(&mut Client, u64) -> Result<(), Failure>;
    let one_way: Send = |client, number| client.one_way(number).map_err(Failure::other);
    for (name, words, send) in [("call", "a call", line as Send), ("one_way", "one way", one_way)] {
        let (served, called) = (counts(client)?.1, allocations::of_this_thread());
        (0..COUNTED).try_for_each(|number| send(client, number))?;
        let called = allocations::of_this_thread() - called;
        let served = counts(client)?.1 - served;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let [called, served] = [called, served].map(|count| count as f64 / COUNTED as f64);
        for (side, count) in [("client", called), ("service", served)] {
            let words = format!("allocations of the {side}, {words}");
            report.number(&format!("{name}_{side}_allocations"), &words, count);
        }
    }
    Ok(())
}

/// The service, and a thread that answers by hand.
fn peer(worker: &Worker, (): ()) -> Result<(), Failure> {
    let domain = worker.domain()?;
    let by_hand = thread::spawn(move || answer(&domain));
    work(worker)?;
    by_hand.join().map_err(|_| Failure::other("a thread panicked"))?
}

fn answer(domain: &Domain) -> Result<(), Failure> {
    let mut endpoint = domain.endpoint(ANSWERS).create()?;
    let other = endpoint.peer_when_created(ASKS, None)?;
    let mut message = [0; BYTES_MAX];
    let mut received = 0;
    loop {
        let status = endpoint.receive_into(Selector::any(), &mut message)?;
        match status.tag {
            ASK => {
                let length = usize::try_from(status.bytes).unwrap_or(BYTES_MAX);
                endpoint.send(other, ASK, message.get(..length).unwrap_or(&message))?;
            }
            ONE_WAY => received += 1,
            COUNT => {
                endpoint.send(other, COUNT, &u64::to_le_bytes(std::mem::take(&mut received)))?
            }
            _ => return Ok(endpoint.close()?),
        }
    }
}
