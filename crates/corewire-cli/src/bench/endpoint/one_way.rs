//! Eight bytes one way, through a receive that matches tag and sender, compared with a bare cache line.

use corewire::Selector;
use corewire_published::yardstick::RawLines;

use super::super::latency::{RAW_LINES, ROUND_TRIPS, one_way_times, time_raw};
use super::super::peer::Peer;
use super::super::rig::{Kind, Plan, Rig};
use super::super::statistics::{Spread, percentile};
use super::super::{Options, Report};
use super::{BYTES, check, ends};
use crate::failure::Failure;

const TAG: u64 = 7;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut plan = Plan::new(Kind::Endpoint, options)?;
    plan.receivers = 1;
    plan.count = ROUND_TRIPS;
    plan.baseline_count = ROUND_TRIPS;
    let rig = Rig::start(plan, RawLines::bytes(RAW_LINES), 1)?;
    let plan = rig.plan.clone();
    let raw = RawLines::new(&rig.work_memory()?, RAW_LINES);
    let (mut endpoint, other) = ends(rig.domain()?, &plan, "parent", "peer")?;
    let selector = Selector::tag(TAG).from(other);
    let (mut raw_ns, mut ratios, mut all) = (vec![], vec![], vec![]);
    for round in 0..=plan.rounds {
        let baseline = time_raw(&raw, round, plan.baseline_count)?;
        let times = one_way_times(round, plan.count, |number| {
            endpoint.send(other, TAG, &number.to_le_bytes())?;
            let mut word = [0; BYTES];
            endpoint.receive_into(selector, &mut word)?;
            check(u64::from_le_bytes(word), number)
        })?;
        // The first round is only warm-up.
        if round > 0 {
            raw_ns.push(baseline);
            ratios.push(percentile(&times, 0.5) / baseline);
            all.extend(times);
        }
    }
    report.value("bytes", BYTES);
    report.value("rounds", plan.rounds);
    let baseline = Spread::of(&raw_ns).median;
    report.figure("raw_line_one_way_ns", "a bare cache line, one way", baseline, "ns");
    let [p50, p99] = [0.5, 0.99].map(|part| percentile(&all, part));
    report.figure("one_way_ns_p50", "8 bytes, one way, p50", p50, "ns");
    report.figure("one_way_ns_p99", "8 bytes, one way, p99", p99, "ns");
    report.ratio("p50 to the bare line of the same round", &ratios);
    rig.describe(report);
    endpoint.close()?;
    rig.finish()
}

pub(super) fn peer(peer: &Peer) -> Result<(), Failure> {
    let plan = &peer.plan;
    let raw = RawLines::new(&peer.work, RAW_LINES);
    let (mut endpoint, other) = ends(&peer.domain, plan, "peer", "parent")?;
    let selector = Selector::tag(TAG).from(other);
    for round in 0..=plan.rounds {
        for number in 0..plan.baseline_count {
            raw.pong(round * plan.baseline_count + number);
        }
        for _ in 0..plan.count {
            let mut word = [0; BYTES];
            endpoint.receive_into(selector, &mut word)?;
            endpoint.send(other, TAG, &word)?;
        }
    }
    Ok(endpoint.close()?)
}
