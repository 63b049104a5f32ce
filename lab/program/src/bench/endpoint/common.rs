//! What the parts of the benchmark of endpoints share.

use corewire::{Domain, Endpoint, Peer as Other, Selector};

use super::super::options::Options;
use corewire_harness::failure::Failure;

/// Length of the messages in all parts.
pub(super) const BYTES: usize = 8;

/// How long the parts take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// Rounds of empty polls, and polls in each.
    pub(super) poll_rounds: u64,
    pub(super) polls: u32,
    /// Time for which the messages of many senders are counted.
    pub(super) many_seconds: f64,
}

/// Creates this process's endpoint, and waits for that of the other process.
pub(super) fn ends(
    domain: &Domain,
    options: &Options,
    own: &str,
    other: &str,
) -> Result<(Endpoint, Other), Failure> {
    let mut endpoint = domain.endpoint(own).wait(options.wait()).create()?;
    let other = endpoint.peer_when_created(other, None)?;
    Ok((endpoint, other))
}

/// Receives the next message, which is one number.
#[inline(always)]
pub(super) fn receive_number(endpoint: &mut Endpoint) -> Result<u64, Failure> {
    let mut word = [0; BYTES];
    endpoint.receive_into(Selector::any(), &mut word)?;
    Ok(u64::from_le_bytes(word))
}

pub(super) fn check(found: u64, due: u64) -> Result<(), Failure> {
    if found == due {
        return Ok(());
    }
    Err(Failure::other(format!("message {found} arrived where {due} was due")))
}
