//! How soon a message comes from a peer that was silent for a second, to a receive that polls for anybody's,
//! beside messages of one that is not. The peers look for requests all the while, as a process does that waits
//! for work.

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
const SILENT: u32 = 8;
/// How often each of them speaks.
const TURNS: usize = 16;
/// How long each is silent in between, at least.
const SILENCE_S: f64 = 1.0;
/// The tag of what ends it.
const OVER: u64 = u64::MAX;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut plan = Plan::new(Kind::EndpointSilent, options)?;
    plan.receivers = 1;
    let rig = Rig::start(plan, 4096, 1)?;
    let mut endpoint = rig.domain()?.endpoint("parent").wait(Wait::Spin).create()?;
    let talker = endpoint.peer_when_created("talker", None)?;
    // Everybody says that it is there.
    let mut peers = Vec::new();
    for _ in 0..SILENT {
        peers.push(endpoint.receive(Selector::any())?.status.source);
    }
    let (mut hot, mut silent) = (vec![], vec![]);
    for turn in 0..=TURNS {
        for &peer in &peers {
            let start = Instant::now();
            while start.elapsed().as_secs_f64() < SILENCE_S / f64::from(SILENT) {
                hot.push(ask(&mut endpoint, talker)?);
            }
            let ns = ask(&mut endpoint, peer)?;
            // In the first turn it was not silent for so long.
            if turn > 0 {
                silent.push(ns);
            }
        }
    }
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

/// How long a message takes that a peer is asked for: it holds when it was sent.
#[inline(always)]
fn ask(endpoint: &mut Endpoint, peer: corewire::Peer) -> Result<f64, Failure> {
    endpoint.send(peer, 0, b"")?;
    let mut word = [0; BYTES];
    endpoint.receive_into(Selector::any(), &mut word)?;
    let now = ticks();
    let sent = u64::from_le_bytes(word);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 ticks")]
    let ns = now.saturating_sub(sent) as f64 * tick_ns();
    Ok(ns)
}

/// All the peers, in one process, which looks at them in turn.
pub(super) fn peer(peer: &Peer) -> Result<(), Failure> {
    let domain = &peer.domain;
    let mut talker = domain.endpoint("talker").wait(Wait::Spin).create()?;
    let to_parent = talker.peer_when_created("parent", None)?;
    let mut ends = vec![(talker, to_parent)];
    for index in 0..SILENT {
        let mut endpoint = domain.endpoint(&format!("silent-{index}")).create()?;
        let to = endpoint.peer("parent")?;
        endpoint.send(to, 0, b"here")?;
        ends.push((endpoint, to));
    }
    loop {
        for (endpoint, to) in &mut ends {
            match endpoint.try_receive_into(Selector::any(), &mut [])? {
                Some(status) if status.tag == OVER => return Ok(()),
                Some(_) => endpoint.send(*to, 0, &ticks().to_le_bytes())?,
                None => {}
            }
        }
    }
}
