//! What other threads of the service's process have it send.

use std::time::Instant;

use crate::capability::Received;
use crate::message::COST_BYTES;
use crate::tag::Tag;

/// A message in one of its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// How many of the current version's capabilities it has: earlier versions lack the last ones.
    pub capability_count: usize,
}

/// With all capabilities.
impl From<Vec<u8>> for Version {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, capability_count: usize::MAX }
    }
}

/// A reply that another thread has left in the mailbox.
#[derive(Debug)]
pub(super) struct LaterMessage {
    pub(super) tag: Tag,
    pub(super) status: Option<u64>,
    pub(super) bytes: Vec<u8>,
    pub(super) capabilities: Vec<Received>,
    /// Whether it counts as an error.
    pub(super) is_error: bool,
    /// When the request came, if it is timed.
    pub(super) began: Option<Instant>,
}

/// An event that another thread has left in the mailbox, in every version that a client may know, the current one first.
#[derive(Debug)]
pub(super) struct LaterEvent {
    pub(super) ordinal: u16,
    pub(super) wire: usize,
    pub(super) versions: Vec<Version>,
    pub(super) capabilities: Vec<Received>,
}

impl LaterEvent {
    pub(super) fn cost_bytes(&self) -> usize {
        self.versions.iter().map(|version| version.bytes.len() + COST_BYTES).sum()
    }
}
