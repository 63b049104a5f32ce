//! Endpoints: the time of a short message through a matched receive, the cost of an empty poll, the
//! delay of a message from a peer that was silent, round trips on one core, short messages back to back,
//! and 64 processes that send to one receiver. Most parts measure a baseline in the same run, in
//! alternating blocks.

pub(super) mod many;
pub(super) mod same_core;
pub(super) mod silent;

use corewire::{Domain, Endpoint, Peer as Other, Selector};
use corewire_harness::places::let_ahead;
use corewire_os::random_u128;
use corewire_published::yardstick::BareRing;
use corewire_ring::sync::pause;

use super::latency::{self, ROUND_TRIPS};
use super::prelude::*;

pub(super) const ONE_WAY_ROLE: Role<Options> = Role { name: "endpoint", work: one_way_peer };
pub(super) const STREAM_ROLE: Role<Options> = Role { name: "endpoint stream", work: stream_peer };

/// Length of the messages in all parts.
const BYTES: usize = 8;
/// The tag of messages one way.
const TAG: u64 = 7;
/// Number of messages of a stream in a block of about 10 ms.
const MESSAGES: u64 = 300_000;
/// Number of slots of an endpoint's own rings.
const SLOTS: usize = 256;
const IDLE_PEERS: usize = 64;

/// How long the parts take.
#[derive(Debug, Clone, Copy)]
struct Effort {
    /// Rounds of empty polls, and polls in each.
    poll_rounds: u64,
    polls: u32,
    /// Time for which the messages of many senders are counted.
    many_seconds: f64,
}

/// Rounds of a quick run.
const QUICK_ROUNDS: u64 = 9;

const FULL: Effort = Effort { poll_rounds: 21, polls: 1_000_000, many_seconds: 5.0 };
const QUICK: Effort = Effort { poll_rounds: QUICK_ROUNDS, polls: 100_000, many_seconds: 0.4 };

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut options = options.clone();
    let effort = if options.quick { QUICK } else { FULL };
    if options.quick {
        options.rounds = options.rounds.min(QUICK_ROUNDS);
    }
    one_way(&options, report)?;
    poll(effort, report)?;
    same_core::run(&options, report)?;
    if !options.quick {
        silent::run(report)?;
    }
    stream(&options, report)?;
    many::run(&options, effort, report)
}

/// Creates this process's endpoint, and waits for that of the other process.
fn ends(
    domain: &Domain,
    options: &Options,
    own: &str,
    other: &str,
) -> Result<(Endpoint, Other), Failure> {
    let mut endpoint = domain.endpoint(own).wait(options.wait()).create()?;
    let other = endpoint.peer_when_created(other, None)?;
    Ok((endpoint, other))
}

fn check(found: u64, due: u64) -> Result<(), Failure> {
    if found == due {
        return Ok(());
    }
    Err(Failure::other(format!("message {found} arrived where {due} was due")))
}

/// Eight bytes one way, through a receive that matches tag and sender, compared with a bare cache line.
fn one_way(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let crew = setup(1).start(&ONE_WAY_ROLE, |_| options.clone())?;
    let mut raw = crew.board().raw_line()?;
    let (mut endpoint, other) = ends(crew.domain()?, options, "parent", "peer")?;
    let selector = Selector::tag(TAG).from(other);
    let mut times_of_all = vec![];
    let blocks = alternate(options.rounds, |round| {
        let baseline = raw.ask(ROUND_TRIPS);
        let times = one_way_times(numbers(round, ROUND_TRIPS), |number| {
            endpoint.send(other, TAG, &number.to_le_bytes())?;
            let mut word = [0; BYTES];
            endpoint.receive_into(selector, &mut word)?;
            check(u64::from_le_bytes(word), number)
        })?;
        Ok::<_, Failure>([baseline, latency::keep(&mut times_of_all, times, round)])
    })?;
    report.value("bytes", BYTES);
    report.value("rounds", options.rounds);
    latency::describe(report, "8 bytes", &blocks, &times_of_all);
    endpoint.close()?;
    crew.finish_with(report)
}

fn one_way_peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let mut raw = worker.board().raw_line()?;
    let (mut endpoint, other) = ends(&worker.domain()?, &options, "peer", "parent")?;
    let selector = Selector::tag(TAG).from(other);
    for _ in all(options.rounds) {
        raw.answer(ROUND_TRIPS);
        for _ in 0..ROUND_TRIPS {
            let mut word = [0; BYTES];
            endpoint.receive_into(selector, &mut word)?;
            endpoint.send(other, TAG, &word)?;
        }
    }
    Ok(endpoint.close()?)
}

/// The cost of a poll that finds nothing, with one peer and with 64 peers.
fn poll(effort: Effort, report: &mut Report) -> Result<(), Failure> {
    let directory = std::env::temp_dir().join(format!("corewire-poll-{:032x}", random_u128()?));
    let domain = Domain::open_at(&directory)?;
    let measured = measure_polls(&domain, effort);
    drop(domain);
    let _ = std::fs::remove_dir_all(&directory);
    let blocks = measured?;
    report.figure("empty_poll_ns_1_peer", "an empty poll, 1 peer", blocks.median(0), "ns");
    report.figure("empty_poll_ns_64_peers", "the same, 64 idle peers", blocks.median(1), "ns");
    report.value("empty_poll_ratio", thousandths(blocks.ratio(1, 0).median));
    report.ratios_note("64 peers to 1", &blocks.ratios(1, 0));
    Ok(())
}

fn measure_polls(domain: &Domain, effort: Effort) -> Result<Blocks, Failure> {
    let (mut one, _peers) = with_peers(domain, "one", 1)?;
    let (mut many, _others) = with_peers(domain, "many", IDLE_PEERS)?;
    alternate(effort.poll_rounds, |_| {
        Ok([poll_ns(&mut one, effort.polls)?, poll_ns(&mut many, effort.polls)?])
    })
}

/// An endpoint that has received a message from each of `count` peers.
fn with_peers(
    domain: &Domain,
    name: &str,
    count: usize,
) -> Result<(Endpoint, Vec<Endpoint>), Failure> {
    let mut endpoint = domain.endpoint(name).create()?;
    let mut peers = Vec::new();
    for index in 0..count {
        let mut peer = domain.endpoint(&format!("{name}-{index}")).create()?;
        let to = peer.peer(name)?;
        peer.send(to, 0, b"here")?;
        endpoint.receive(Selector::any())?;
        peers.push(peer);
    }
    Ok((endpoint, peers))
}

#[inline(never)]
fn poll_ns(endpoint: &mut Endpoint, polls: u32) -> Result<f64, Failure> {
    let mut buffer = [0; 64];
    let start = Instant::now();
    for _ in 0..polls {
        black_box(endpoint.try_receive_into(Selector::any(), black_box(&mut buffer))?);
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(polls))
}

/// Eight bytes back to back, compared with a bare ring of the same number of slots.
fn stream(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let setup = setup(1).memory_bytes(BareRing::bytes(SLOTS, 1));
    let mut crew = setup.start(&STREAM_ROLE, |_| options.clone())?;
    let bare = BareRing::new(&crew.board().work()?, SLOTS, 1);
    let (mut endpoint, other) = ends(crew.domain()?, options, "parent", "peer")?;
    let blocks = alternate(options.rounds, |round| {
        let numbers = numbers(round, MESSAGES);
        let start = Instant::now();
        bare.send(numbers.start, numbers.end, pause);
        crew.await_step(0, 2 * round + 1)?;
        let baseline = per_second(MESSAGES, start);
        let start = Instant::now();
        for number in numbers {
            endpoint.send(other, 1, &black_box(number).to_le_bytes())?;
        }
        crew.await_step(0, 2 * round + 2)?;
        Ok::<_, Failure>([baseline, per_second(MESSAGES, start)])
    })?;
    report.rate("bare_pair_messages_per_s", "a bare ring of 256 slots", blocks.median(0));
    report.rate("stream_messages_per_s", "8 bytes back to back", blocks.median(1));
    report.ratios("stream_ratio", "ratio to the bare ring", &blocks.ratios(1, 0));
    endpoint.close()?;
    crew.finish()
}

fn stream_peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let bare = BareRing::new(&worker.board().work()?, SLOTS, 1);
    let (mut endpoint, _) = ends(&worker.domain()?, &options, "peer", "parent")?;
    let mut sum = 0;
    for round in all(options.rounds) {
        let numbers = numbers(round, MESSAGES);
        sum += bare.receive(
            0,
            numbers.clone(),
            |run| let_ahead(run, SLOTS, worker.must_yield()),
            pause,
        );
        worker.reach(2 * round + 1);
        for number in numbers {
            let mut word = [0; BYTES];
            endpoint.receive_into(Selector::any(), &mut word)?;
            check(u64::from_le_bytes(word), number)?;
        }
        worker.reach(2 * round + 2);
    }
    black_box(sum);
    Ok(())
}
