//! Round trips through ZIMP as published, compared with round trips through channels: between the same
//! two processes, on the same cores, in alternating blocks.

use corewire_published::rings::{Zimp, ZimpReceiver, ZimpSender};
use corewire_ring::region::Region;
use corewire_ring::sync::pause;

use super::latency::{
    ROUND_TRIPS, answer, await_hang_up, check_number, ends, one_way_times, put_number,
};
use super::peer::Peer;
use super::rig::{Kind, Plan, Rig};
use super::statistics::{Spread, percentile};
use super::stream::yield_if;
use super::{Options, Report};
use crate::failure::Failure;
use crate::model;

/// Number of entries of a ring, as in the paper's own code.
const ENTRIES: u32 = 50;
/// Maximum message length. With longer messages the time is mostly that of copying.
const BYTES_MAX: usize = 4096;

pub(super) fn run(options: &Options) -> Result<Report, Failure> {
    let mut plan = Plan::new(Kind::Zimp, options)?;
    if plan.bytes > BYTES_MAX {
        let limit = format!("8 to {BYTES_MAX} here, not {}", plan.bytes);
        return Err(Failure::usage(format!("bench zimp --bytes: {limit}")));
    }
    plan.receivers = 1;
    plan.count = ROUND_TRIPS;
    let bytes = plan.bytes;
    let mut rig = Rig::start(plan, 2 * ring_bytes(bytes), 1)?;
    let plan = rig.plan.clone();
    let [there, back] = rings(&rig.work_memory()?, bytes)?;
    let (mut zimp_sender, mut zimp_receiver) = (there.sender(), back.receiver(0));
    let (mut sender, mut receiver) = ends(rig.domain()?, &plan, "there", "back")?;
    let (mut zimp_ns, mut ours_ns, mut ratios) = (vec![], vec![], vec![]);
    let mut message = vec![0u8; bytes];
    let mut reply = vec![0u8; bytes];
    for round in 0..=plan.rounds {
        let zimp = one_way_times(round, plan.count, |number| {
            put_number(&mut message, number);
            send(&mut zimp_sender, &message, || rig.look())?;
            receive(&mut zimp_receiver, &mut reply, || rig.look())?;
            check_number(&reply, number)
        })?;
        let ours = one_way_times(round, plan.count, |number| {
            put_number(&mut message, number);
            sender.send(&message)?;
            check_number(&receiver.receive()?, number)
        })?;
        // The first round is only warm-up.
        if round > 0 {
            let [zimp, ours] = [zimp, ours].map(|times| percentile(&times, 0.5));
            zimp_ns.push(zimp);
            ours_ns.push(ours);
            ratios.push(zimp / ours);
        }
    }
    rig.await_peer(0, 1)?;
    let mut report = Report::new();
    report.value("bytes", bytes);
    report.value("rounds", plan.rounds);
    report.figure("zimp_one_way_ns_p50", "ZIMP, one way, p50", Spread::of(&zimp_ns).median, "ns");
    report.figure("one_way_ns_p50", "a channel, one way, p50", Spread::of(&ours_ns).median, "ns");
    report.ratio("ZIMP to the channel of the same round", &ratios);
    if bytes <= 48 {
        let predicted = (model::zimp_to_broadcast()? * 1000.0).round() / 1000.0;
        report.value("model_ratio", predicted);
        report.note(format!("{:<44} {predicted:>10.3}", "the same on the model"));
    }
    rig.describe(&mut report);
    drop((sender, receiver));
    rig.finish()?;
    Ok(report)
}

/// The peer, which answers.
pub(super) fn peer(peer: &Peer) -> Result<(), Failure> {
    let plan = &peer.plan;
    let [there, back] = rings(&peer.work, plan.bytes)?;
    let (mut zimp_sender, mut zimp_receiver) = (back.sender(), there.receiver(0));
    let (mut sender, mut receiver) = ends(&peer.domain, plan, "back", "there")?;
    let mut message = vec![0u8; plan.bytes];
    // The kernel ends this process with its parent, so there is nothing to check.
    let look = || {
        yield_if(plan.oversubscribed);
        Ok(())
    };
    for _ in 0..=plan.rounds {
        for _ in 0..plan.count {
            receive(&mut zimp_receiver, &mut message, look)?;
            send(&mut zimp_sender, &message, look)?;
        }
        answer(&mut sender, &mut receiver, &mut message, plan.count)?;
    }
    peer.done(1);
    await_hang_up(receiver);
    Ok(())
}

const fn ring_bytes(bytes: usize) -> usize {
    Zimp::bytes(ENTRIES, 1, bytes).next_multiple_of(4096)
}

/// One ring in each direction.
fn rings(memory: &Region, bytes: usize) -> Result<[Zimp; 2], Failure> {
    let ring = |index: usize| -> Result<Zimp, Failure> {
        let part = super::rig::part(memory, index * ring_bytes(bytes), ring_bytes(bytes))?;
        Ok(Zimp::new(&part, ENTRIES, 1, bytes))
    };
    Ok([ring(0)?, ring(1)?])
}

fn send(
    sender: &mut ZimpSender,
    message: &[u8],
    look: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    poll(look, || {
        let Some(mut entry) = sender.try_claim(pause) else { return false };
        entry.bytes_mut().copy_from_slice(message);
        entry.send(message.len());
        true
    })
}

fn receive(
    receiver: &mut ZimpReceiver,
    target: &mut [u8],
    look: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    poll(look, || receiver.try_receive(|message| target.copy_from_slice(message)).is_some())
}

/// Polls until `is_done` returns true. Calls `look` after every 1024 polls.
#[inline(always)]
fn poll(
    mut look: impl FnMut() -> Result<(), Failure>,
    mut is_done: impl FnMut() -> bool,
) -> Result<(), Failure> {
    const POLLS: u32 = 1 << 10;
    loop {
        for _ in 0..POLLS {
            if is_done() {
                return Ok(());
            }
        }
        look()?;
    }
}
