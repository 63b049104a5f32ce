//! Calls through monitors, all of whose parties poll on cores of their own, compared with calls by `ump` between two cores.
//!
//! Round trips of 8, 96 and 1000 bytes, and a stream of 32 bytes. [`Rig`] places the parties.

use corewire_os::processor;
use corewire_study::calls::{Block, check};
use corewire_study::circuits::rig::{Chain, Rig};
use corewire_study::harness::report::Report;
use corewire_study::harness::rounds::{Blocks, alternate};
use corewire_study::harness::setup::Setup;

use super::options::{Options, PROGRAM};
use crate::failure::Failure;

/// Monitors on the longest way.
const MONITORS: usize = 3;
/// Ways: the direct one, and those through monitors.
const WAYS: usize = MONITORS + 1;
/// What is measured on each way.
const SHAPES: [&str; 3] = ["8", "96", "1000"];

pub(super) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report::default();
    report.value("rounds", options.rounds);
    let crew = Setup::new(PROGRAM, 0).crew()?;
    let cpus = processor::allowed().map_err(Failure::other)?;
    let &[one, other, ..] = &cpus[..] else {
        return Err(Failure::other("circuits are measured between two processors"));
    };
    let mut rig = Rig::start(crew.directory(), MONITORS, [one, other])?;
    let mut sizes = vec![Block::new(); WAYS * SHAPES.len()];
    let blocks = alternate(options.rounds, |_| {
        let mut times = Vec::new();
        for (index, size) in sizes.iter_mut().enumerate() {
            times.push(time(&mut rig, index % WAYS, index / WAYS, size)?);
        }
        times.push(rig.stream_direct()?);
        times.push(rig.stream(1)?);
        Ok::<_, Failure>(times)
    })?;
    describe(&blocks, &mut report);
    Ok(report)
}

fn time(rig: &mut Rig, way: usize, shape: usize, size: &mut Block) -> Result<f64, Failure> {
    if way == 0 {
        let client = rig.direct();
        return match shape {
            0 => size.time_ns(|number| check(client.payload64_1(number), &number)),
            1 => size.time_ns(|number| check(client.two_lines([number; 12]), &[number; 12])),
            _ => size.time_ns(|number| {
                let bytes = [number.to_le_bytes()[0]; 1000];
                check(client.buffer(&bytes).map(|same| same == bytes), &true)
            }),
        }
        .map_err(Into::into);
    }
    let chain = rig.chain(way);
    let found = match shape {
        0 => size.time_ns(|number| same(chain, number)),
        1 => size.time_ns(|number| {
            let words = [number; 12];
            match chain.call(|client| client.start_two_lines(words))? == words {
                true => Ok(()),
                false => Err(different()),
            }
        }),
        _ => size.time_ns(|number| {
            let bytes = [number.to_le_bytes()[0]; 1000];
            match chain.call(|client| client.start_buffer(&bytes))? == bytes {
                true => Ok(()),
                false => Err(different()),
            }
        }),
    };
    found.map_err(Into::into)
}

fn same(chain: &mut Chain, number: u64) -> Result<(), corewire_study::failure::Failure> {
    match chain.call(|client| client.start_payload64_1(number))? == number {
        true => Ok(()),
        false => Err(different()),
    }
}

fn different() -> corewire_study::failure::Failure {
    corewire_study::failure::Failure::other("a call returned something else than it was given")
}

fn describe(blocks: &Blocks, report: &mut Report) {
    for (shape, bytes) in SHAPES.iter().enumerate() {
        let first = shape * WAYS;
        let words = format!("{bytes} bytes, direct, round trip");
        report.figure(&format!("direct_{bytes}_ns"), &words, blocks.median(first), "ns");
        for monitors in 1..WAYS {
            let block = first + monitors;
            let plural = if monitors == 1 { "" } else { "s" };
            let words = format!("{bytes} bytes, {monitors} monitor{plural}");
            let key = format!("monitors_{monitors}_{bytes}");
            report.figure(&format!("{key}_ns"), &words, blocks.median(block), "ns");
            let words = format!("{words}, to direct");
            report.spread_with_line(&format!("{key}_ratio"), &words, &blocks.ratios(block, first));
        }
    }
    let stream = WAYS * SHAPES.len();
    report.rate("direct_messages_per_s", "32 bytes one way, direct", blocks.median(stream));
    report.rate("monitor_messages_per_s", "32 bytes one way, 1 monitor", blocks.median(stream + 1));
    report.spread_with_line("stream_ratio", "one way, to direct", &blocks.ratios(stream + 1, stream));
}
