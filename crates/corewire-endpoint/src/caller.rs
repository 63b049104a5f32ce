//! A receive while it is being called, and a message that was claimed.

use std::fmt;

use corewire_ring::message::Space;

use crate::error::MessageError;
use crate::list::Key;
use crate::message::Target;
use crate::selector::{Peer, Selector, Status};

/// A receive that is being called: it ends with its call.
pub struct Caller<'a> {
    pub(crate) selector: Selector,
    pub(crate) target: &'a mut dyn Target,
    pub(crate) state: CallerState,
    /// It also reports peers that come and go.
    pub(crate) reports_peers: bool,
    pub(crate) writing: Writing,
    /// It asks for one message, which was claimed.
    pub(crate) is_claimed: bool,
}

/// Whether the sender of a large message may write to a receive's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    Never,
    /// If the target is memory that the engine can keep when the receive ends.
    IfOwned,
    Always,
}

#[derive(Debug)]
pub(crate) enum CallerState {
    Waiting,
    Filling(Status),
    Ended(Result<Status, MessageError>),
}

impl fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { selector, state, .. } = self;
        f.debug_struct("Caller").field("selector", selector).field("state", state).finish()
    }
}

impl<'a> Caller<'a> {
    /// A receive of a message that `selector` asks for, into `target`.
    pub fn new(selector: Selector, target: &'a mut dyn Target) -> Self {
        let (state, writing) = (CallerState::Waiting, Writing::IfOwned);
        let (reports_peers, is_claimed) = (false, false);
        Self { selector, target, state, reports_peers, writing, is_claimed }
    }

    /// As [`new`](Self::new), for a receive that also reports peers that come and go. Its caller must call
    /// [`Engine::next_peer_event_for`](crate::Engine::next_peer_event_for) before and after each [`Engine::progress`](crate::Engine::progress).
    #[must_use]
    pub fn reporting_peers(self) -> Self {
        Self { reports_peers: true, ..self }
    }

    /// As [`new`](Self::new), for a receive without a time limit: the sender of a large message may write to its
    /// target. If the receive is interrupted, [`Engine::leave`](crate::Engine::leave) waits until the sender has written its piece.
    #[must_use]
    pub fn patient(self) -> Self {
        Self { writing: Writing::Always, ..self }
    }

    /// Whether the sender of a large message may write to its target.
    pub(crate) fn lets_sender_write(&self) -> bool {
        match self.writing {
            Writing::Never => false,
            Writing::IfOwned => self.target.adopts(),
            Writing::Always => true,
        }
    }

    /// The only peer whose message it asks for, if there is one.
    #[must_use]
    pub fn source(&self) -> Option<Peer> {
        self.selector.source()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, CallerState::Waiting)
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.state, CallerState::Ended(_))
    }

    pub(crate) fn peer_is_gone(&mut self, peer: Peer, error: MessageError) {
        if self.is_waiting() && self.selector.source() == Some(peer) {
            self.state = CallerState::Ended(Err(error));
        }
    }
}

/// A message that was claimed: no other receive gets it. It must be received or given back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a message that was claimed stays until it is received or given back"]
pub struct Matched {
    pub(crate) key: Key,
    pub(crate) space: Space,
    /// Whose it is, its tag and its length.
    pub status: Status,
}

/// What came of a look for a message that goes the short way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looked<M> {
    /// There is nothing.
    Nothing,
    /// A message was received.
    Received(M),
    /// Something has arrived that does not go the short way.
    Other,
}
