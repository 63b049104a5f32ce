//! Sending.

use corewire_ring::message::{Envelope, Memory, Source};

use super::Engine;
use crate::error::MessageError;
use crate::grants::Grants;
use crate::operations::{OperationHandle, Options};
use crate::peers::Lent;
use crate::selector::Peer;
use crate::transport::{Room, Transport};

impl<T: Transport> Engine<T> {
    /// Sends a short message, if nothing stands in its way. False if not; nothing was done then. Most
    /// messages go this way.
    #[inline(always)]
    pub fn try_inject(&mut self, peer: Peer, envelope: &Envelope, message: &[u8]) -> bool {
        let transport = &mut self.peers.transport;
        !transport.has_notice() && transport.try_inject(peer, envelope, message)
    }

    /// Sends as much of a message as there is room for, from byte `sent` on, and counts `sent` up. True if
    /// all of it has been sent. A message of which a part has been sent must be sent to its end: by further
    /// calls with the same arguments, or by [`send_rest`](Self::send_rest).
    ///
    /// # Errors
    /// Why nothing can be sent to this peer; [`MessageError::Transport`].
    pub fn send_step(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, MessageError> {
        self.peers.send_step(peer, envelope, source, sent)
    }

    /// Sends the rest of a message, of which `sent` bytes have been sent, as soon as there is room; copies it.
    pub fn send_rest(&mut self, peer: Peer, envelope: Envelope, source: &impl Source, sent: u64) {
        self.peers.send_rest(peer, envelope, source, sent);
    }

    /// Keeps a copy of a message for a peer of which only the name is known, until it is linked. False if the peer is
    /// linked, or too much is kept for it.
    ///
    /// # Errors
    /// Why nothing can be sent to this peer.
    pub fn send_when_linked(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        source: &impl Source,
    ) -> Result<bool, MessageError> {
        self.peers.send_when_linked(peer, envelope, source)
    }

    /// Begins to send `memory`, and never waits. A message that fits now has been sent when this returns.
    ///
    /// # Errors
    /// As for [`send_step`](Self::send_step); what fails later is the operation's result.
    pub fn start_send(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        memory: Memory,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        self.peers.start_send(peer, envelope, memory, options)
    }

    /// More sends follow at once: they may leave together. Ends with [`flush`](Self::flush), which must be called before
    /// the caller waits, or with [`progress`](Self::progress).
    #[inline(always)]
    pub fn gather(&mut self) {
        self.peers.transport.gather();
    }

    /// What was gathered leaves now.
    #[inline(always)]
    pub fn flush(&mut self) {
        self.peers.transport.flush();
    }

    /// Whether messages wait for room, or have not left yet. Acknowledgements that wait for room do not count: a peer that does
    /// not read its own keeps no endpoint from closing.
    #[must_use]
    pub fn has_pending_sends(&self) -> bool {
        self.peers.has_pending_sends() || self.peers.transport.has_unsent()
    }

    /// Whether an operation or a send is under way, so that arrivals and room may be waited for.
    #[must_use]
    pub fn has_operations(&self) -> bool {
        self.peers.has_operations()
    }

    /// Whether peers may have something for this endpoint although no receive is being called: an operation is under way, or
    /// memory is exposed, or was.
    #[must_use]
    pub fn waits_for_peers(&self) -> bool {
        self.peers.has_operations() || self.peers.has_exposed()
    }

    /// The room that is waited for.
    #[must_use]
    pub fn wanted_room(&self) -> Vec<Room> {
        self.peers.wanted_room()
    }

    /// The same room, as it is waited for now: `None` if what must be sent first is waited for instead.
    #[must_use]
    pub fn room_for(&self, room: Room) -> Option<Room> {
        self.peers.room_for(room)
    }

    /// Before a wait for sends sleeps: sends as data what was offered, has not been begun, and fits in the
    /// transport, as if it had not been offered. True if there was such a message.
    pub fn relieve(&mut self) -> bool {
        // The peer's notices may lie behind a message that is left with it.
        let matching = &self.incoming.matching;
        self.peers.relieve(|peer| matching.held_of(peer).is_some())
    }

    // A call that waits until its message has been copied.

    /// Offers a large message of a call that waits. `None` if it must be sent by [`send_step`](Self::send_step).
    ///
    /// # Errors
    /// As for [`send_step`](Self::send_step).
    pub fn offer_lent(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        source: &impl Source,
    ) -> Result<Option<Lent>, MessageError> {
        let lent = self.peers.offer_lent(peer, envelope, source)?;
        if lent.is_some() {
            self.begin_blocking(source.bytes());
        }
        Ok(lent)
    }

    /// How the send of a message that was offered has ended, if it has. Sends it as data if the peer asks for that.
    pub fn end_of_lent(
        &mut self,
        lent: &Lent,
        source: &impl Source,
    ) -> Option<Result<(), MessageError>> {
        self.peers.end_of_lent(lent, source)
    }

    /// The call ends, and its memory is its caller's again. True if the message counts as sent: what the peer does not
    /// have yet is copied.
    pub fn end_lent(&mut self, lent: Lent, source: &impl Source) -> bool {
        self.end_blocking();
        self.peers.end_lent(lent, source)
    }

    /// A call begins to wait until its message of `bytes` bytes has been sent. Until it ends, one message of each peer
    /// that is no longer is kept beyond the budget, also one that has come before.
    pub fn begin_blocking(&mut self, bytes: u64) {
        self.incoming.begin_blocking(&mut self.peers, bytes);
    }

    /// The call has ended.
    pub fn end_blocking(&mut self) {
        self.incoming.end_blocking();
    }

    // Grants.

    /// The same engine, which grants its peers this.
    #[must_use]
    pub fn with_grants(mut self, grants: Grants) -> Self {
        self.peers.set_grants(grants);
        self
    }

    /// The peer of `row` is asked for a larger grant, if a message of `bytes` bytes needs it and the peer may grant it.
    pub fn want_grant(&mut self, row: u32, bytes: u64) {
        self.peers.want_grant(row, bytes);
    }

    /// What the peer of `row` grants this endpoint now, and the most that it may ever grant; 0 if it has granted
    /// nothing yet.
    #[must_use]
    pub fn granted(&self, row: u32) -> (u64, u64) {
        self.peers.granted(row)
    }

    /// Whether a message that does not fit in what the peer of `row` grants is refused, or waits.
    #[must_use]
    pub fn refuses(&self, row: u32) -> bool {
        self.peers.refuses(row)
    }
}
