//! The delay of a message from a peer that was silent for a second, to a receive that polls for
//! messages of any peer, compared with messages of a peer that is active all the time. The peers poll
//! for requests all the time, like a process that waits for work.

use corewire::{Endpoint, Peer as Other, Selector, Wait};
use corewire_os::processor::ticks;

use super::BYTES;
use crate::bench::prelude::*;

/// The order is the number of silent peers.
pub(in super::super) const ROLE: Role<u32> = Role { name: "silent endpoints", work: peer };

/// Number of silent peers, which are asked one after the other, and how often each is asked. In the
/// first case all peers, including the active one, are as many as an endpoint polls.
/// In the second case there are more, and their messages are announced.
const POLLED: (u32, usize) = (63, 16);
const ANNOUNCED: (u32, usize) = (96, 4);
/// Minimum time for which each peer is silent between two messages.
const SILENCE: Duration = Duration::from_secs(1);
/// Messages of the active peer between two reads of the clock.
const HOT_AT_A_TIME: u64 = 512;
/// The tag of the message that ends the measurement.
const OVER: u64 = u64::MAX;

/// Delays of messages, in nanoseconds.
struct Found {
    hot: Vec<f64>,
    silent: Vec<f64>,
}

pub(super) fn run(report: &mut Report) -> Result<(), Failure> {
    let ends = |times: &[f64]| [0.5, 0.99].map(|part| percentile(times, part));
    let found = measure(POLLED)?;
    let (hot, silent) = (ends(&found.hot), ends(&found.silent));
    report.p50_p99("hot_ns", "from a peer that talks", hot);
    report.p50_p99("silent_ns", "from one of 63 silent for a second", silent);
    report.value("silent_messages", found.silent.len());
    report.number("silent_ratio_p99", "ratio of the p99s", silent[1] / hot[1]);
    let announced = ends(&measure(ANNOUNCED)?.silent);
    report.p50_p99("announced_ns", "from one of 96, which announces it", announced);
    Ok(())
}

fn measure((peers, turns): (u32, usize)) -> Result<Found, Failure> {
    let crew = setup(1).start(&ROLE, |_| peers)?;
    let mut endpoint = crew.domain()?.endpoint("parent").wait(Wait::Spin).create()?;
    let talker = endpoint.peer_when_created("talker", None)?;
    // Every silent peer announces itself.
    let mut silent = Vec::new();
    for _ in 0..peers {
        silent.push(endpoint.receive(Selector::any())?.source());
    }
    let mut found = Found { hot: vec![], silent: vec![] };
    let gap = SILENCE / peers;
    for turn in 0..=turns {
        for &peer in &silent {
            let start = Instant::now();
            for step in 1.. {
                // Not immediately when the message is due, but after some messages of the active peer: it
                // may be due because this process has not run for a while.
                let is_due = step % HOT_AT_A_TIME == 0 && start.elapsed() >= gap;
                // A single call site asks all peers and receives their messages. A copy of the code for
                // the silent peers would have been idle as long as they.
                let ns = ask(&mut endpoint, if is_due { peer } else { talker })?;
                if !is_due {
                    found.hot.push(ns);
                    continue;
                }
                // In the first turn the peer was not silent for a whole second.
                if turn > 0 {
                    found.silent.push(ns);
                }
                break;
            }
        }
    }
    endpoint.send(talker, OVER, b"")?;
    endpoint.close()?;
    crew.finish()?;
    Ok(found)
}

/// Asks a peer for a message, which holds its send time. Returns the delay of the message.
#[inline(never)]
fn ask(endpoint: &mut Endpoint, peer: Other) -> Result<f64, Failure> {
    endpoint.send(peer, 0, b"")?;
    let mut word = [0; BYTES];
    endpoint.receive_into(Selector::any(), &mut word)?;
    let now = ticks();
    let sent = u64::from_le_bytes(word);
    Ok(nanoseconds(now.saturating_sub(sent)))
}

/// All peers, in one process that polls them in turn.
fn peer(worker: &Worker, silent: u32) -> Result<(), Failure> {
    let domain = worker.domain()?;
    let mut talker = domain.endpoint("talker").wait(Wait::Spin).create()?;
    let to_parent = talker.peer_when_created("parent", None)?;
    let mut ends = vec![(talker, to_parent)];
    for index in 0..silent {
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
