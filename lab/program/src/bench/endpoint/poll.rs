//! The cost of a poll that finds nothing, with one peer and with 64 peers.

use std::hint::black_box;
use std::time::Instant;

use corewire::{Domain, Endpoint, Selector};
use corewire_harness::report::Report;
use corewire_harness::rounds::{Blocks, alternate};
use corewire_harness::statistics::{Spread, thousandths};
use corewire_os::random_u128;

use super::common::Effort;
use corewire_harness::failure::Failure;

const IDLE_PEERS: usize = 64;

pub(super) fn run(effort: Effort, report: &mut Report) -> Result<(), Failure> {
    let directory = std::env::temp_dir().join(format!("corewire-poll-{:032x}", random_u128()?));
    let domain = Domain::open_at(&directory)?;
    let measured = measure(&domain, effort);
    drop(domain);
    let _ = std::fs::remove_dir_all(&directory);
    let blocks = measured?;
    report.figure("empty_poll_ns_1_peer", "an empty poll, 1 peer", blocks.median(0), "ns");
    report.figure("empty_poll_ns_64_peers", "the same, 64 idle peers", blocks.median(1), "ns");
    let Spread { median, min, max } = blocks.ratio(1, 0);
    report.value("empty_poll_ratio", thousandths(median));
    let rounds = effort.poll_rounds;
    report.note(format!(
        "{:<44} {median:>10.3} (median of {rounds}; {min:.3} to {max:.3})",
        "64 peers to 1"
    ));
    Ok(())
}

fn measure(domain: &Domain, effort: Effort) -> Result<Blocks, Failure> {
    let (mut one, _peers) = with_peers(domain, "one", 1)?;
    let (mut many, _others) = with_peers(domain, "many", IDLE_PEERS)?;
    alternate(effort.poll_rounds, |_| {
        Ok([time(&mut one, effort.polls)?, time(&mut many, effort.polls)?])
    })
}

/// An endpoint that has received a message from each of `count` peers.
fn with_peers(
    domain: &Domain,
    name: &str,
    count: usize,
) -> Result<(Endpoint, Vec<Endpoint>), Failure> {
    let mut endpoint = domain.endpoint(name).create()?;
    let mut peers = Vec::new();
    for index in 0..count {
        let mut peer = domain.endpoint(&format!("{name}-{index}")).create()?;
        let to = peer.peer(name)?;
        peer.send(to, 0, b"here")?;
        endpoint.receive(Selector::any())?;
        peers.push(peer);
    }
    Ok((endpoint, peers))
}

#[inline(never)]
fn time(endpoint: &mut Endpoint, polls: u32) -> Result<f64, Failure> {
    let mut buffer = [0; 64];
    let start = Instant::now();
    for _ in 0..polls {
        black_box(endpoint.try_receive_into(Selector::any(), black_box(&mut buffer))?);
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(polls))
}
