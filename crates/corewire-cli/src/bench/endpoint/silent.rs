//! How soon a message comes from a peer that was silent for a second, to a receive that polls for anybody's,
//! beside messages of one that is not.

use std::time::Instant;

use corewire::{Endpoint, Selector, Wait};
use corewire_os::processor::{tick_ns, ticks};

use super::super::peer::Peer;
use super::super::rig::{Kind, Plan, Rig};
use super::super::statistics::percentile;
use super::super::{Options, Report};
use super::BYTES;
use crate::failure::Failure;

/// Peers that are silent, one after the other, until it is their turn again.
const SILENT: usize = 64;
/// How often each of them speaks.
const TURNS: usize = 16;
/// How long each is silent in between, at least.
const SILENCE_S: f64 = 1.0;
/// The tag of a request, which says who is to answer: one of the silent, or who talks all the time.
const TALKER: u64 = SILENT as u64;
const OVER: u64 = u64::MAX;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut plan = Plan::new(Kind::EndpointSilent, options)?;
    plan.receivers = 1;
    let rig = Rig::start(plan, 4096, 1)?;
    let domain = rig.domain()?;
    let mut endpoint = domain.endpoint("parent").wait(Wait::Spin).create()?;
    let talker = endpoint.peer_when_created("talker", None)?;
    // Everybody says that it is there.
    for _ in 0..SILENT {
        endpoint.receive(Selector::any())?;
    }
    let (mut hot, mut silent) = (vec![], vec![]);
    let pause_s = SILENCE_S / SILENT_F;
    for _ in 0..=TURNS {
        for who in 0..SILENT as u64 {
            let start = Instant::now();
            while start.elapsed().as_secs_f64() < pause_s {
                hot.push(ask(&mut endpoint, talker, TALKER)?);
            }
            silent.push(ask(&mut endpoint, talker, who)?);
        }
    }
    // In their first turn they were not silent for so long.
    silent.drain(..SILENT);
    endpoint.send(talker, OVER, b"")?;
    let [hot_p50, hot_p99] = [0.5, 0.99].map(|part| percentile(&hot, part));
    let [p50, p99] = [0.5, 0.99].map(|part| percentile(&silent, part));
    report.figure("hot_ns_p50", "from one who talks, p50", hot_p50, "ns");
    report.figure("hot_ns_p99", "from one who talks, p99", hot_p99, "ns");
    report.figure("silent_ns_p50", "from one silent for a second, p50", p50, "ns");
    report.figure("silent_ns_p99", "from one silent for a second, p99", p99, "ns");
    report.value("silent_messages", silent.len());
    report.value("silent_ratio_p99", (p99 / hot_p99 * 1000.0).round() / 1000.0);
    report.note(format!("{:<44} {:>10.3}", "ratio of the p99s", p99 / hot_p99));
    endpoint.close()?;
    rig.finish()
}

/// The same as a number.
const SILENT_F: f64 = 64.0;

/// How long a message takes that one of the peers is asked for: it holds when it was sent.
#[inline(always)]
fn ask(endpoint: &mut Endpoint, talker: corewire::Peer, who: u64) -> Result<f64, Failure> {
    endpoint.send(talker, who, b"")?;
    let mut word = [0; BYTES];
    endpoint.receive_into(Selector::any(), &mut word)?;
    let now = ticks();
    let sent = u64::from_le_bytes(word);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 ticks")]
    let ns = now.saturating_sub(sent) as f64 * tick_ns();
    Ok(ns)
}

/// All the peers, in one process.
pub(super) fn peer(peer: &Peer) -> Result<(), Failure> {
    let domain = &peer.domain;
    let mut talker = domain.endpoint("talker").wait(Wait::Spin).create()?;
    let to_parent = talker.peer_when_created("parent", None)?;
    let mut silent = Vec::new();
    for index in 0..SILENT {
        let mut endpoint = domain.endpoint(&format!("silent-{index}")).create()?;
        let to = endpoint.peer("parent")?;
        endpoint.send(to, 0, b"here")?;
        silent.push((endpoint, to));
    }
    loop {
        let status = talker.receive_into(Selector::any(), &mut [])?;
        if status.tag == OVER {
            return Ok(());
        }
        let index = usize::try_from(status.tag).unwrap_or(SILENT);
        match silent.get_mut(index) {
            Some((endpoint, to)) => endpoint.send(*to, 0, &ticks().to_le_bytes())?,
            None => talker.send(to_parent, 0, &ticks().to_le_bytes())?,
        }
    }
}
