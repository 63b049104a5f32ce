//! Calls through monitors, compared with calls by `ump` between two cores: round trips of 8, 96 and 1000 bytes, and a stream
//! of 32 bytes. [`circuits::start`] places the parties, and the report says where.

use corewire_harness::calls::{Block, check};
use corewire_harness::circuits::flooded::{self, Flooded};
use corewire_harness::circuits::many::{self, Many};
use corewire_harness::circuits::{self, Parties, apart};
use corewire_harness::report::Report;
use corewire_harness::role::Role;
use corewire_harness::rounds::{Blocks, alternate};

use super::options::{Options, PROGRAM};
use corewire_harness::failure::Failure;

/// The parties of calls, where each has a processor.
pub(super) const APART_ROLE: Role<apart::Part> = Role { name: "circuits apart", work: apart::work };
/// The processes of the measurement of many circuits.
pub(super) const MANY_ROLE: Role<many::Part> = Role { name: "many circuits", work: many::work };
/// Those of binding while links are flooded.
pub(super) const FLOODED_ROLE: Role<flooded::Part> =
    Role { name: "flooded circuits", work: flooded::work };

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

pub(super) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report::default();
    report.value("rounds", options.rounds);
    let mut parties = circuits::start(PROGRAM, &APART_ROLE, MONITORS, 1)?;
    let placement = parties.placement();
    report.value("placement", placement.clone());
    report.note(format!("calls and stream: {placement}"));
    let mut waiting = Block::new();
    let mut sizes = vec![Block::new(); WAYS * SHAPES.len()];
    let blocks = alternate(options.rounds, |_| {
        let mut times = Vec::new();
        for (index, size) in sizes.iter_mut().enumerate() {
            times.push(time(&mut *parties, index % WAYS, index / WAYS, size)?);
        }
        times.push(parties.chain(0).stream()?);
        times.push(parties.chain(1).stream()?);
        times.push(time_waiting(&mut *parties, &mut waiting)?);
        Ok::<_, Failure>(times)
    })?;
    describe(&blocks, &mut report);
    drop(parties);
    for circuits in CROWDS {
        let parties = circuits::start(PROGRAM, &APART_ROLE, CROWD_MONITORS, circuits)?;
        run_crowd(options, circuits, parties, &mut report)?;
    }
    report.note("many circuits, and binding: a process each, where the kernel puts them");
    describe_flooded(&flooded::measure(PROGRAM, &FLOODED_ROLE)?, &mut report);
    describe_many(&many::measure(PROGRAM, &MANY_ROLE, CIRCUITS)?, &mut report);
    Ok(report)
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
fn run_crowd(
    options: &Options,
    circuits: usize,
    mut parties: Box<dyn Parties>,
    report: &mut Report,
) -> Result<(), Failure> {
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
        let plural = if monitors == 1 { "" } else { "s" };
        let words = format!("8 bytes, {monitors} monitor{plural}, {circuits} circuits at random");
        let key = format!("random_{monitors}_of_{circuits}");
        report.figure(&format!("{key}_ns"), &words, blocks.median(monitors), "ns");
        let words = format!("{words}, to direct");
        report.spread_with_line(&format!("{key}_ratio"), &words, &blocks.ratios(monitors, 0));
    }
    Ok(())
}

/// A number that looks random.
fn mixed(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

/// The mean time of a direct call that waits for its reply.
fn time_waiting(parties: &mut dyn Parties, size: &mut Block) -> Result<f64, Failure> {
    let client = parties.chain(0).client();
    size.time_ns(|number| check(client.payload64_1(number), &number))
}

fn describe(blocks: &Blocks, report: &mut Report) {
    let stream = WAYS * SHAPES.len();
    let words = "8 bytes, direct, a call that waits";
    report.figure("direct_waiting_8_ns", words, blocks.median(stream + 2), "ns");
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
    report.rate("direct_messages_per_s", "32 bytes one way, direct", blocks.median(stream));
    report.rate("monitor_messages_per_s", "32 bytes one way, 1 monitor", blocks.median(stream + 1));
    report.spread_with_line(
        "stream_ratio",
        "one way, to direct",
        &blocks.ratios(stream + 1, stream),
    );
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn describe_many(many: &Many, report: &mut Report) {
    let Many { circuits, setup_s, teardown_s, .. } = *many;
    report.value("circuits", circuits as u64);
    report.figure("setup_s", &format!("{circuits} circuits, set-up"), setup_s, "s");
    report.figure("teardown_s", "the same, tear-down", teardown_s, "s");
    for (monitor, bytes) in many.bytes_each.iter().enumerate() {
        let words = format!("memory of monitor {monitor} for each");
        report.figure(&format!("monitor_{monitor}_bytes_each"), &words, *bytes, "bytes");
        let [before, most, after] = many.resident_bytes[monitor].map(|bytes| bytes as f64);
        let words = format!("memory of monitor {monitor} afterwards, to before");
        report.figure(&format!("monitor_{monitor}_after_ratio"), &words, after / before, "");
        let words = format!("memory of monitor {monitor} given back, of what it had taken");
        let share = (most - after) / (most - before) * 100.0;
        report.figure(&format!("monitor_{monitor}_given_back_percent"), &words, share, "%");
    }
    let words = format!("processor time of both monitors, {} idle circuits", many.idle_circuits);
    report.figure("idle_percent", &words, many.idle_share * 100.0, "%");
}

fn describe_flooded(flooded: &Flooded, report: &mut Report) {
    let Flooded { idle_us, idle_p99_us, flooded_us, flooded_p99_us, messages_per_s } = *flooded;
    report.figure("bind_us", "binding, nothing else happens", idle_us.median, "us");
    report.figure("bind_p99_us", "the same, one in a hundred", idle_p99_us, "us");
    report.figure("bind_flooded_us", "binding, links are flooded", flooded_us.median, "us");
    report.figure("bind_flooded_p99_us", "the same, one in a hundred", flooded_p99_us, "us");
    let ratio = flooded_p99_us / idle_p99_us;
    report.figure("bind_flooded_p99_ratio", "one in a hundred, flooded to idle", ratio, "");
    report.rate("flood_messages_per_s", "the flood, 32 bytes each", messages_per_s);
}
