//! Calls under way, and peers that come and go: what an engine keeps of them.

use std::collections::{BTreeMap, VecDeque};

use crate::error::MessageError;
use crate::selector::Peer;

/// The calls of an engine.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) last: u64,
    /// The operations that wait for replies, by number.
    pub(crate) waiting: BTreeMap<u64, u32>,
}

/// A peer has come or gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerEvent {
    /// It has come.
    Came(Peer),
    /// It has gone.
    Gone {
        /// The peer.
        peer: Peer,
        /// `PeerDied`, `PeerLeft` or `PeerCutOff`.
        why: MessageError,
    },
}

/// The events of an engine that have not been taken. A peer that has gone keeps its row until its event is taken, so
/// there are at most two for each row.
#[derive(Debug, Default)]
pub(crate) struct PeerEvents {
    pub(crate) is_watching: bool,
    pub(crate) queue: VecDeque<PeerEvent>,
}

impl PeerEvents {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
