//! A data lane that is a ring, at either end: a pair of endpoints.

use std::time::{Duration, Instant};

use corewire::{Endpoint, Envelope, MessageError, OperationHandle, Options, Peer};

use crate::wire::{Hop, Kind, Label};

/// How long an end that closes waits for room.
const FINISH_WITHIN: Duration = Duration::from_millis(500);

/// The way to the endpoint at the other end. A frame that finds no room is kept by the own endpoint, which sends it as soon
/// as there is some, and wakes this process; until then no other frame is taken.
#[derive(Debug)]
pub struct RingLane {
    peer: Peer,
    kept: Option<OperationHandle>,
    /// Whether a call other than a receive was interrupted, which a receive will not report again.
    was_interrupted: bool,
}

impl RingLane {
    /// The lane to a peer.
    #[must_use]
    pub const fn new(peer: Peer) -> Self {
        Self { peer, kept: None, was_interrupted: false }
    }

    /// The lane to the endpoint of this name, to which the own endpoint is linked already. Never waits: `None` if it is not
    /// linked any more.
    pub fn to(endpoint: &mut Endpoint, name: &str) -> Option<Self> {
        let mut was_interrupted = false;
        let peers = loop {
            match endpoint.peers() {
                Err(MessageError::Interrupted) => was_interrupted = true,
                peers => break peers.ok()?,
            }
        };
        let peer = peers.into_iter().find(|peer| endpoint.name_of(*peer) == Some(name))?;
        Some(Self { was_interrupted, ..Self::new(peer) })
    }

    /// The peer.
    #[must_use]
    pub const fn peer(&self) -> Peer {
        self.peer
    }

    /// Says the secret by which the link is known. The ring is new, and has room.
    pub fn say_hello(&mut self, endpoint: &mut Endpoint, secret: u64) {
        self.frame(endpoint, Label::of_word(secret), Hop::new(Kind::Hello), &[]);
    }

    /// Sends a frame. False if there is no room now, and the frame was not taken.
    #[inline]
    pub fn frame(
        &mut self,
        endpoint: &mut Endpoint,
        label: Label,
        hop: Hop,
        payload: &[u8],
    ) -> bool {
        if self.kept.is_some() {
            return false;
        }
        let envelope = Envelope::tagged(label.to_word()).with_immediate(hop.to_word());
        loop {
            match endpoint.try_send(self.peer, envelope, payload) {
                Err(MessageError::Full { .. } | MessageError::ReceiverFull { .. }) => break,
                Err(MessageError::Interrupted) => self.was_interrupted = true,
                // Otherwise the peer has gone, which a receive reports.
                _ => return true,
            }
        }
        self.keep(endpoint, envelope, payload)
    }

    #[cold]
    fn keep(&mut self, endpoint: &mut Endpoint, envelope: Envelope, payload: &[u8]) -> bool {
        loop {
            let (memory, options) = (payload.to_vec(), Options::default());
            match endpoint.isend_with(self.peer, envelope, memory, options) {
                Err(MessageError::Interrupted) => self.was_interrupted = true,
                kept => {
                    self.kept = kept.ok();
                    return true;
                }
            }
        }
    }

    /// Whether a frame waits for room.
    #[inline]
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.kept.is_some()
    }

    /// Looks whether the frame that waited has been sent. True if it has: there may be room for more.
    pub fn has_room_again(&mut self, endpoint: &mut Endpoint) -> bool {
        let Some(handle) = self.kept else { return false };
        match endpoint.test(handle) {
            Ok(None) => false,
            Err(MessageError::Interrupted) => {
                self.was_interrupted = true;
                false
            }
            // Sent, or the peer has gone.
            _ => {
                self.kept = None;
                true
            }
        }
    }

    /// Gives the frame up that waits for room: the link has ended, and the peer may live on.
    pub fn abandon(self, endpoint: &mut Endpoint) {
        if let Some(handle) = self.kept {
            // Of an operation that is over already there is nothing to cancel.
            let _ = endpoint.cancel(handle);
            while matches!(endpoint.test(handle), Err(MessageError::Interrupted)) {}
        }
    }

    /// Waits until the frame that found no room has been sent, if the peer makes room in time: for an end that closes. A
    /// monitor does so at once unless it is stopped.
    pub fn finish(&mut self, endpoint: &mut Endpoint) {
        let until = Instant::now().checked_add(FINISH_WITHIN);
        while let (Some(handle), Some(until)) = (self.kept, until) {
            let left = until.saturating_duration_since(Instant::now());
            match endpoint.within(left).wait(handle) {
                Ok(None) if !left.is_zero() => {}
                Err(MessageError::Interrupted) if !left.is_zero() => self.was_interrupted = true,
                _ => self.kept = None,
            }
        }
    }

    /// Whether a call was interrupted. Until this is asked it stays so.
    #[inline]
    pub const fn take_interrupted(&mut self) -> bool {
        std::mem::replace(&mut self.was_interrupted, false)
    }

    /// The caller's own call was interrupted.
    pub const fn set_interrupted(&mut self) {
        self.was_interrupted = true;
    }

    /// Whether a call was interrupted, and nobody has asked.
    #[inline]
    #[must_use]
    pub const fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }
}
