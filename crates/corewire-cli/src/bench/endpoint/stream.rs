//! Eight bytes back to back, compared with a bare ring of the same number of slots.

use std::hint::black_box;
use std::time::Instant;

use corewire_published::yardstick::BareRing;
use corewire_ring::sync::pause;

use super::super::peer::Peer;
use super::super::rig::{Kind, Plan, Rig};
use super::super::statistics::Spread;
use super::super::{Options, Report};
use super::{check, ends, receive_number};
use crate::failure::Failure;

/// Number of messages in a block of about 10 ms.
const MESSAGES: u64 = 300_000;
/// Number of slots of an endpoint's own rings.
const SLOTS: usize = 256;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut plan = Plan::new(Kind::EndpointStream, options)?;
    plan.receivers = 1;
    plan.count = MESSAGES;
    let mut rig = Rig::start(plan, BareRing::bytes(SLOTS, 1), 1)?;
    let plan = rig.plan.clone();
    let bare = BareRing::new(&rig.work_memory()?, SLOTS, 1);
    let (mut endpoint, other) = ends(rig.domain()?, &plan, "parent", "peer")?;
    let mut rates = [vec![], vec![], vec![]];
    for round in 0..=plan.rounds {
        let (first, end) = (round * plan.count, (round + 1) * plan.count);
        let start = Instant::now();
        bare.send(first, end, pause);
        rig.await_peer(0, 2 * round + 1)?;
        let baseline = rate(plan.count, start);
        let start = Instant::now();
        for number in first..end {
            endpoint.send(other, 1, &black_box(number).to_le_bytes())?;
        }
        rig.await_peer(0, 2 * round + 2)?;
        let ours = rate(plan.count, start);
        if round > 0 {
            rates[0].push(baseline);
            rates[1].push(ours);
            rates[2].push(ours / baseline);
        }
    }
    let [bare, ours] = [&rates[0], &rates[1]].map(|rates| Spread::of(rates).median);
    report.value("bare_pair_messages_per_s", bare.round());
    report.value("stream_messages_per_s", ours.round());
    let spread = Spread::of(&rates[2]);
    for (key, value) in [
        ("stream_ratio", spread.median),
        ("stream_ratio_min", spread.min),
        ("stream_ratio_max", spread.max),
    ] {
        report.value(key, (value * 1000.0).round() / 1000.0);
    }
    report.note(format!("{:<44} {:>10.1} M messages/s", "a bare ring of 256 slots", bare / 1e6));
    report.note(format!("{:<44} {:>10.1} M messages/s", "8 bytes back to back", ours / 1e6));
    report.note(format!(
        "{:<44} {:>10.3} (median of {}; {:.3} to {:.3})",
        "ratio to the bare ring",
        spread.median,
        rates[2].len(),
        spread.min,
        spread.max
    ));
    endpoint.close()?;
    rig.finish()
}

pub(super) fn peer(peer: &Peer) -> Result<(), Failure> {
    let plan = &peer.plan;
    let bare = BareRing::new(&peer.work, SLOTS, 1);
    let (mut endpoint, _) = ends(&peer.domain, plan, "peer", "parent")?;
    let mut sum = 0;
    for round in 0..=plan.rounds {
        let (first, end) = (round * plan.count, (round + 1) * plan.count);
        sum += bare.receive(0, first, end, pause);
        peer.done(2 * round + 1);
        for number in first..end {
            check(receive_number(&mut endpoint)?, number)?;
        }
        peer.done(2 * round + 2);
    }
    black_box(sum);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 messages")]
fn rate(count: u64, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64().max(1e-9)
}
