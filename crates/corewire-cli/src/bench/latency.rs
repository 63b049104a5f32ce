//! The time from process to process: half of the time for a message there and a message back. The
//! baseline is a bare cache line in each direction.

use corewire::{Receiver, Sender};
use corewire_os::processor::{tick_ns, ticks};
use corewire_published::yardstick::RawLines;

use super::peer::Peer;
use super::rig::{Kind, Plan, Rig};
use super::statistics::{Spread, percentile};
use super::{Options, Report, WaitName};
use crate::failure::Failure;

/// Lines that the baseline walks over, in each direction.
pub(super) const RAW_LINES: usize = 1024;
/// Number of round trips in a block of about 10 ms.
pub(super) const ROUND_TRIPS: u64 = 30_000;

pub(super) fn run(options: &Options) -> Result<Report, Failure> {
    let mut plan = Plan::new(Kind::Latency, options)?;
    plan.receivers = 1;
    plan.count = if plan.bytes > 65_536 { 200 } else { ROUND_TRIPS };
    plan.baseline_count = ROUND_TRIPS;
    let mut rig = Rig::start(plan, RawLines::bytes(RAW_LINES), 1)?;
    let plan = rig.plan.clone();
    let raw = RawLines::new(&rig.work_memory()?, RAW_LINES);
    let (mut sender, mut receiver) = ends(rig.domain()?, &plan, "there", "back")?;
    let (mut raw_ns, mut p50_ns, mut ratios, mut all) = (vec![], vec![], vec![], vec![]);
    let mut message = vec![0u8; plan.bytes];
    for round in 0..=plan.rounds {
        let baseline = time_raw(&raw, round, plan.baseline_count)?;
        let times = one_way_times(round, plan.count, |number| {
            put_number(&mut message, number);
            sender.send(&message)?;
            check_number(&receiver.receive()?, number)
        })?;
        // The first round is only warm-up.
        if round > 0 {
            let p50 = percentile(&times, 0.5);
            raw_ns.push(baseline);
            p50_ns.push(p50);
            ratios.push(p50 / baseline);
            all.extend(times);
        }
    }
    rig.await_peer(0, 1)?;
    let mut report = Report::new();
    let baseline = Spread::of(&raw_ns);
    report.value("bytes", plan.bytes);
    report.value("rounds", plan.rounds);
    report.figure("raw_line_one_way_ns", "a bare cache line, one way", baseline.median, "ns");
    let p50 = percentile(&all, 0.5);
    report.figure("one_way_ns_p50", "a message, one way, p50", p50, "ns");
    report.figure("one_way_ns_p99", "a message, one way, p99", percentile(&all, 0.99), "ns");
    report.ratio("p50 to the bare line of the same round", &ratios);
    rig.describe(&mut report);
    drop((sender, receiver));
    rig.finish()?;
    Ok(report)
}

/// The peer, which answers.
pub(super) fn peer(peer: &Peer) -> Result<(), Failure> {
    let plan = &peer.plan;
    let raw = RawLines::new(&peer.work, RAW_LINES);
    let (mut sender, mut receiver) = ends(&peer.domain, plan, "back", "there")?;
    let mut message = vec![0u8; plan.bytes];
    for round in 0..=plan.rounds {
        for number in 0..plan.baseline_count {
            raw.pong(round * plan.baseline_count + number);
        }
        answer(&mut sender, &mut receiver, &mut message, plan.count)?;
    }
    peer.done(1);
    await_hang_up(receiver);
    Ok(())
}

/// Receives the next `count` messages and sends them back.
pub(super) fn answer(
    sender: &mut Sender,
    receiver: &mut Receiver,
    message: &mut [u8],
    count: u64,
) -> Result<(), Failure> {
    for _ in 0..count {
        message.copy_from_slice(&receiver.receive()?);
        sender.send(message)?;
    }
    Ok(())
}

/// Waits until the parent hangs up. The peer must not hang up before the parent has its last message.
pub(super) fn await_hang_up(mut receiver: Receiver) {
    let _ = receiver.receive();
}

/// The one-way time of a bare cache line on this machine, in nanoseconds.
pub(crate) fn raw_line_one_way_ns() -> Result<f64, Failure> {
    let options = Options {
        bytes: 8,
        receivers: 1,
        rounds: 11,
        slots: 2,
        copy: false,
        wait: WaitName::Spin,
        json: false,
    };
    let mut plan = Plan::new(Kind::RawLine, &options)?;
    plan.baseline_count = ROUND_TRIPS;
    let rig = Rig::start(plan, RawLines::bytes(RAW_LINES), 1)?;
    let raw = RawLines::new(&rig.work_memory()?, RAW_LINES);
    let times = (0..=rig.plan.rounds).map(|round| time_raw(&raw, round, ROUND_TRIPS));
    let times = times.collect::<Result<Vec<f64>, _>>()?;
    rig.finish()?;
    Ok(percentile(&times[1..], 0.5))
}

/// The peer of [`raw_line_one_way_ns`].
pub(super) fn raw_line_peer(peer: &Peer) -> Result<(), Failure> {
    let raw = RawLines::new(&peer.work, RAW_LINES);
    (0..(peer.plan.rounds + 1) * peer.plan.baseline_count).for_each(|number| raw.pong(number));
    Ok(())
}

/// The median one-way time of a block of round trips over bare lines.
pub(super) fn time_raw(raw: &RawLines, round: u64, count: u64) -> Result<f64, Failure> {
    let times = one_way_times(round, count, |number| {
        raw.ping(number);
        Ok(())
    })?;
    Ok(percentile(&times, 0.5))
}

/// Half of the time of each round trip of block `round`, which has `count` round trips.
#[inline(always)]
pub(super) fn one_way_times(
    round: u64,
    count: u64,
    mut round_trip: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<Vec<f64>, Failure> {
    let mut times = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
    let mut last = ticks();
    for number in round * count..(round + 1) * count {
        round_trip(number)?;
        let now = ticks();
        times.push(one_way_ns(now - last));
        last = now;
    }
    Ok(times)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 ticks")]
fn one_way_ns(ticks: u64) -> f64 {
    ticks as f64 * tick_ns() / 2.0
}

pub(super) fn ends(
    domain: &corewire::Domain,
    plan: &Plan,
    sends: &str,
    receives: &str,
) -> Result<(Sender, Receiver), Failure> {
    let mut sender = domain
        .sender(sends)
        .slots(plan.slots)
        .receivers(1)
        .wait(plan.wait.into())
        .largest_message(plan.bytes.max(4096))
        .prefault(true)
        .create()?;
    let receiver = domain.receiver(receives).wait(plan.wait.into()).join_when_created()?;
    sender.wait_for_receivers(1)?;
    Ok((sender, receiver))
}

pub(super) fn put_number(message: &mut [u8], number: u64) {
    if let Some(word) = message.first_chunk_mut::<8>() {
        *word = number.to_le_bytes();
    }
}

pub(super) fn check_number(message: &[u8], number: u64) -> Result<(), Failure> {
    let found = message.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
    if found == number {
        return Ok(());
    }
    Err(Failure::other(format!("message {found} came back where {number} was due")))
}
