//! Calls through monitors, compared with calls by `ump` between two cores: round trips of 8, 96 and 1000 bytes, and a stream
//! of 32 bytes. [`circuits::start`] places the parties, and the report says where.

use corewire_harness::calls::{Block, check};
use corewire_harness::circuits::{self, Part, Parties, flooded, many};

use super::prelude::*;

/// The processes of all parts.
pub(super) const ROLE: Role<Part> = Role { name: "circuits", work: circuits::work };

/// How many circuits are many.
const CIRCUITS: usize = 100_000;
/// Circuits that take turns at random: some that caches hold, and many.
const CROWDS: [usize; 2] = [1000, CIRCUITS];
/// Monitors on the way of those.
const CROWD_MONITORS: usize = 2;
/// Monitors on the longest way.
const MONITORS: usize = 3;
/// Ways: the direct one, and those through monitors.
const WAYS: usize = MONITORS + 1;
/// What is measured on each way.
const SHAPES: [&str; 3] = ["8", "96", "1000"];

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    report.value("rounds", options.rounds);
    let mut parties = circuits::start(PROGRAM, &ROLE, MONITORS, 1)?;
    report.value("placement", parties.placement());
    report.note(format!("calls and stream: {}", parties.placement()));
    let mut waiting = Block::new();
    let mut sizes = vec![Block::new(); WAYS * SHAPES.len()];
    let blocks = alternate(options.rounds, |_| {
        let mut times = Vec::new();
        for (index, size) in sizes.iter_mut().enumerate() {
            times.push(time(&mut *parties, index % WAYS, index / WAYS, size)?);
        }
        times.push(parties.chain(0).stream()?);
        times.push(parties.chain(1).stream()?);
        let client = parties.chain(0).client();
        times.push(waiting.time_ns(|number| check(client.payload64_1(number), &number))?);
        Ok::<_, Failure>(times)
    })?;
    describe(&blocks, report);
    drop(parties);
    for circuits in CROWDS {
        run_crowd(options, circuits, report)?;
    }
    report.note("many circuits, and binding: a process each, where the kernel puts them");
    flooded::measure(PROGRAM, &ROLE, report)?;
    many::measure(PROGRAM, &ROLE, CIRCUITS, report)
}

/// The mean time of a call, which is started, and then waited for: so are calls through monitors, whose service may be in
/// the same thread.
fn time(
    parties: &mut dyn Parties,
    way: usize,
    shape: usize,
    size: &mut Block,
) -> Result<f64, Failure> {
    let chain = parties.chain(way);
    match shape {
        0 => size.time_ns(|number| {
            check(chain.call(|client| client.start_payload64_1(number)), &number)
        }),
        1 => size.time_ns(|number| {
            let words = [number; 12];
            check(chain.call(|client| client.start_two_lines(words)), &words)
        }),
        _ => size.time_ns(|number| {
            let bytes = [number.to_le_bytes()[0]; 1000];
            check(chain.call(|client| client.start_buffer(&bytes)).map(|same| same == bytes), &true)
        }),
    }
}

/// Calls of 8 bytes, each through another one of so many circuits.
fn run_crowd(options: &Options, circuits: usize, report: &mut Report) -> Result<(), Failure> {
    let mut parties = circuits::start(PROGRAM, &ROLE, CROWD_MONITORS, circuits)?;
    report.value(&format!("placement_of_{circuits}"), parties.placement());
    report.note(format!("{circuits} circuits at random: {}", parties.placement()));
    let mut sizes = vec![Block::new(); CROWD_MONITORS + 1];
    let blocks = alternate(options.rounds, |_| {
        let mut times = Vec::new();
        for (way, size) in sizes.iter_mut().enumerate() {
            let chain = parties.chain(way);
            let clients = if way == 0 { 1 } else { circuits };
            let found = size.time_ns(|number| {
                let call = chain
                    .call_by(mixed(number) % clients, |client| client.start_payload64_1(number));
                check(call, &number)
            });
            times.push(found?);
        }
        Ok::<_, Failure>(times)
    })?;
    for monitors in 1..=CROWD_MONITORS {
        let words = format!("8 bytes, {}, {circuits} circuits at random", named(monitors));
        let key = format!("random_{monitors}_of_{circuits}");
        describe_way(report, &key, &words, &blocks, [monitors, 0]);
    }
    Ok(())
}

/// A number that looks random.
fn mixed(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

fn named(monitors: usize) -> String {
    format!("{monitors} monitor{}", if monitors == 1 { "" } else { "s" })
}

/// Block `ours`, compared with block `direct`.
fn describe_way(
    report: &mut Report,
    key: &str,
    words: &str,
    blocks: &Blocks,
    [ours, direct]: [usize; 2],
) {
    report.figure(&format!("{key}_ns"), words, blocks.median(ours), "ns");
    let words = format!("{words}, to direct");
    report.ratios(&format!("{key}_ratio"), &words, &blocks.ratios(ours, direct));
}

fn describe(blocks: &Blocks, report: &mut Report) {
    let stream = WAYS * SHAPES.len();
    let words = "8 bytes, direct, a call that waits";
    report.figure("direct_waiting_8_ns", words, blocks.median(stream + 2), "ns");
    for (shape, bytes) in SHAPES.iter().enumerate() {
        let direct = shape * WAYS;
        let words = format!("{bytes} bytes, direct, round trip");
        report.figure(&format!("direct_{bytes}_ns"), &words, blocks.median(direct), "ns");
        for monitors in 1..WAYS {
            let words = format!("{bytes} bytes, {}", named(monitors));
            let key = format!("monitors_{monitors}_{bytes}");
            describe_way(report, &key, &words, blocks, [direct + monitors, direct]);
        }
    }
    report.rate("direct_messages_per_s", "32 bytes one way, direct", blocks.median(stream));
    report.rate("monitor_messages_per_s", "32 bytes one way, 1 monitor", blocks.median(stream + 1));
    report.ratios("stream_ratio", "one way, to direct", &blocks.ratios(stream + 1, stream));
}
