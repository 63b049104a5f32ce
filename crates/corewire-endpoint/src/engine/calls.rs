//! Requests and replies. A request has a number, which its reply repeats; both are matched apart from all
//! other messages. A reply that nobody waits for any more is dropped as it arrives.

use corewire_ring::message::{Envelope, Memory, Source, Space};

use super::Engine;
use crate::error::MessageError;
use crate::operations::{OperationHandle, Options};
use crate::selector::{Peer, Selector};
use crate::transport::Transport;

impl<T: Transport> Engine<T> {
    // The caller.

    /// The number of the next call.
    #[inline(always)]
    pub fn new_call(&mut self) -> u64 {
        self.peers.new_call()
    }

    /// The envelope of the request of a call.
    #[inline(always)]
    #[must_use]
    pub const fn request_envelope(number: u64) -> Envelope {
        Envelope::numbered(Space::Request, number)
    }

    /// The envelope of the reply of a call.
    #[inline(always)]
    #[must_use]
    pub const fn reply_envelope(number: u64) -> Envelope {
        Envelope::numbered(Space::Reply, number)
    }

    /// What a receive of a call's reply asks for.
    #[inline(always)]
    #[must_use]
    pub const fn reply_selector(number: u64, peer: Peer) -> Selector {
        Selector::reply(number, peer)
    }

    /// Begins to send the request `request`, and to receive its reply, into memory from the pool. Never
    /// waits.
    ///
    /// # Errors
    /// Why nothing can be sent to this peer; what fails later is the operation's result.
    pub fn start_call(
        &mut self,
        peer: Peer,
        request: Memory,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        self.peers.start_call(peer, request, options)
    }

    // The server.

    /// Replies to the request that `peer` sent with this number. Never waits: what does not fit is copied
    /// and sent when there is room.
    ///
    /// # Errors
    /// Why nothing can be sent to this peer.
    pub fn reply(
        &mut self,
        peer: Peer,
        number: u64,
        reply: &impl Source,
    ) -> Result<(), MessageError> {
        self.peers.answer(peer, Self::reply_envelope(number), reply)
    }

    /// Tells the peer that sent a request that nobody will reply to it.
    pub fn drop_request(&mut self, peer: Peer, number: u64) {
        self.peers.drop_request(peer, number);
    }
}
