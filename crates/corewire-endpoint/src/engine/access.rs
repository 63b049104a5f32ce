//! Access to memory that peers expose, and to this endpoint's.

use corewire_layout::access::{Kind, Part, Rights};
use corewire_ring::message::{Exposed, Memory, Sink, Source};

use super::Engine;
use crate::error::MessageError;
use crate::operations::{OperationHandle, Options};
use crate::peers::Request;
use crate::selector::Peer;
use crate::transport::Transport;

impl<T: Transport> Engine<T> {
    /// Lets peers access memory under `key`, or under a key that no other memory of this endpoint ever has. Returns the key.
    /// `origin` is what peers call its first byte.
    ///
    /// # Errors
    /// [`MessageError::KeyInUse`].
    pub fn expose(
        &mut self,
        memory: Exposed,
        key: Option<u64>,
        origin: u64,
        rights: Rights,
    ) -> Result<u64, MessageError> {
        self.peers.expose(memory, key, origin, rights)
    }

    /// Peers access the memory of `key` no more, but for copies that are under way.
    ///
    /// # Errors
    /// [`MessageError::UnknownKey`].
    pub fn conceal(&mut self, key: u64) -> Result<(), MessageError> {
        self.peers.conceal(key)
    }

    /// Copies `source` to the memory of a peer, in this call. False if that is not possible now; then it may have been done
    /// in part, and must be begun by [`start_put`](Self::start_put).
    ///
    /// # Errors
    /// Why nothing goes to this peer.
    pub fn try_put(
        &mut self,
        peer: Peer,
        parts: &[Part],
        source: &impl Source,
    ) -> Result<bool, MessageError> {
        self.hear_of(peer)?;
        self.peers.copy_to(peer, parts, source)
    }

    /// The answers to requests that were taken back are read here, if nothing but copies is made any more: short ones are
    /// asked of the peer again then.
    #[inline]
    fn hear_of(&mut self, peer: Peer) -> Result<(), MessageError> {
        if self.peers.owes_answers(peer) {
            self.progress(None)?;
        }
        Ok(())
    }

    /// Copies from the memory of a peer, in this call. False as for [`try_put`](Self::try_put).
    ///
    /// # Errors
    /// Why nothing comes from this peer.
    pub fn try_get(
        &mut self,
        peer: Peer,
        parts: &[Part],
        target: &mut dyn Sink,
    ) -> Result<bool, MessageError> {
        self.hear_of(peer)?;
        self.peers.copy_from(peer, parts, target)
    }

    /// Begins to copy `memory` to the memory of a peer, and never waits.
    ///
    /// # Errors
    /// Why nothing goes to this peer; what fails later is the operation's result.
    pub fn start_put(
        &mut self,
        peer: Peer,
        parts: &[Part],
        memory: Memory,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        self.peers.start_access(peer, Request::put(parts, memory), options)
    }

    /// As [`start_put`](Self::start_put); then tells the peer's program `signal`. Ends when the peer's engine has it.
    ///
    /// # Errors
    /// As for [`start_put`](Self::start_put).
    pub fn start_put_and_signal(
        &mut self,
        peer: Peer,
        parts: &[Part],
        memory: Memory,
        signal: u64,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        let request = Request { signal: Some(signal), ..Request::put(parts, memory) };
        self.peers.start_access(peer, request, options)
    }

    /// Whether an access to a peer's memory is not complete.
    #[must_use]
    pub fn has_accesses(&self) -> bool {
        self.peers.has_accesses()
    }

    /// Number of accesses to this peer's memory that are not complete.
    #[must_use]
    pub fn pending_accesses(&self, peer: Peer) -> usize {
        self.peers.pending_accesses(peer)
    }

    /// Before the caller sleeps: makes copies that peers were asked for, and have not begun. True if there was any.
    pub fn take_back_accesses(&mut self) -> bool {
        self.peers.take_back_all()
    }

    /// Whether peers may signal: [`poll`](Self::poll) tells of that as [`OperationKind::Signal`](crate::OperationKind::Signal).
    pub fn take_signals(&mut self, takes_signals: bool) {
        self.peers.take_signals(takes_signals);
    }

    /// Begins to copy from the memory of a peer to `memory`, and never waits.
    ///
    /// # Errors
    /// As for [`start_put`](Self::start_put).
    pub fn start_get(
        &mut self,
        peer: Peer,
        parts: &[Part],
        memory: Memory,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        let request = Request { target: memory, ..Request::new(Kind::Get, parts) };
        self.peers.start_access(peer, request, options)
    }

    /// Begins to change numbers in the memory of a peer, and never waits: see [`Kind`]. What was there before goes to
    /// `target`, if the kind tells it.
    ///
    /// # Errors
    /// As for [`start_put`](Self::start_put).
    pub fn start_change(
        &mut self,
        peer: Peer,
        kind: Kind,
        parts: &[Part],
        (compared, operands): (Memory, Memory),
        target: Memory,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        let request = Request { operands, compared, target, ..Request::new(kind, parts) };
        self.peers.start_access(peer, request, options)
    }
}
