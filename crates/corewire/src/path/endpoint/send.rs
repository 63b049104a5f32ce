//! Sending.
//!
//! Where there is no room, the message stays pending, and any later call sends it. `send` waits, and receives meanwhile.

use std::time::Duration;

use corewire_endpoint::transport::Room;
use corewire_endpoint::{
    Caller, Envelope, Lent, Memory, MessageError, OperationHandle, Options, Peer, Source,
};

use super::{Endpoint, after};
use crate::wait::Patience;

impl Endpoint {
    /// Sends `message` to `peer`, waiting for room if necessary. The envelope is a tag, or an [`Envelope`] with an
    /// immediate or without a tag. When this returns, the memory may be reused, but the peer may not have received the
    /// message yet. A message that does not fit in the cells is sent when the peer has received it, or
    /// keeps it within its budget: until then the call waits.
    ///
    /// If the call is interrupted after a part of the message has been sent, later calls send the rest, and this call
    /// returns as if the message had been sent.
    ///
    /// # Errors
    /// [`MessageError::PeerDied`], `PeerLeft`, `PeerCutOff`, `UnknownPeer`, `Interrupted`, `Forked`, or
    /// `Transport`: no memory for a ring.
    #[inline(always)]
    pub fn send(
        &mut self,
        peer: Peer,
        envelope: impl Into<Envelope>,
        message: &[u8],
    ) -> Result<(), MessageError> {
        let envelope = envelope.into();
        if self.engine.try_inject(peer, &envelope, message) {
            return Ok(());
        }
        // A name of its own: `message` need not lie in memory on the way above.
        let source = message;
        self.send_slowly(peer, envelope, &source, Patience::Forever)
    }

    /// Sends `message` if there is room now for it or for its beginning. Never blocks. The message goes through cells,
    /// whatever its length, or stays in this endpoint's heap as far as the peer
    /// [grants](crate::EndpointBuilder::grants) that.
    ///
    /// # Errors
    /// [`MessageError::Full`] if there is no room; `ReceiverFull` if the peer
    /// [refuses](crate::EndpointBuilder::refuse_beyond_grants) more than it grants; otherwise as for
    /// [`send`](Self::send).
    #[inline(always)]
    pub fn try_send(
        &mut self,
        peer: Peer,
        envelope: impl Into<Envelope>,
        message: &[u8],
    ) -> Result<(), MessageError> {
        let envelope = envelope.into();
        if self.engine.try_inject(peer, &envelope, message) {
            return Ok(());
        }
        // As in `send`.
        let source = message;
        self.send_now(peer, envelope, &source)
    }

    /// Like [`send`](Self::send), but waits for at most `timeout`.
    ///
    /// The call ends late if the peer is reading a message of more than 32 KiB in this endpoint's memory then: by a
    /// piece of at most 256 KiB that this endpoint is helping to copy, and by a copy of the whole message into new
    /// memory, since the caller's is free when the call returns. It never waits for the peer. On an AMD EPYC the
    /// piece took 30 us and the copy 10 us for 256 KiB, 35 us for 1 MiB, 170 to 380 us for 4 MiB, and milliseconds
    /// for 16 MiB, mostly to get the memory. The call returns `Ok` then. [`isend`](Self::isend) copies nothing: the
    /// endpoint keeps the memory.
    ///
    /// # Errors
    /// [`MessageError::Timeout`]; otherwise as for [`send`](Self::send).
    pub fn send_timeout(
        &mut self,
        peer: Peer,
        envelope: impl Into<Envelope>,
        message: &[u8],
        timeout: Duration,
    ) -> Result<(), MessageError> {
        self.send_slowly(peer, envelope.into(), &message, Patience::until(timeout))
    }

    /// Sends the bytes of `parts`, one after the other, as one message.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_gather(
        &mut self,
        peer: Peer,
        envelope: impl Into<Envelope>,
        parts: &[&[u8]],
    ) -> Result<(), MessageError> {
        self.send_slowly(peer, envelope.into(), &parts, Patience::Forever)
    }

    /// More messages follow at once: those to other hosts may be kept back, to leave together, until a call waits, finds nothing to
    /// receive or makes [`progress`](Self::progress), or about 64 KiB are there. Without it each leaves by itself, which costs a system
    /// call. Messages within this machine leave at once in any case.
    ///
    /// ```
    /// use corewire::{Domain, Selector};
    ///
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-cork-{}", std::process::id()));
    /// let domain = Domain::open_at(&directory)?;
    /// let mut meter = domain.endpoint("meter").create()?;
    /// let mut log = domain.endpoint("log").create()?;
    /// let to_log = meter.peer("log")?;
    /// meter.cork();
    /// for sample in 0..100_u64 {
    ///     meter.send(to_log, 1, &sample.to_le_bytes())?;
    /// }
    /// meter.progress()?; // all have left now
    /// # for _ in 0..100 { log.receive(Selector::any())?; }
    /// # drop((meter, log, domain)); std::fs::remove_dir_all(&directory)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn cork(&mut self) {
        self.engine.gather();
    }

    /// Begins to send `memory`, and never waits. The completion returns the memory. A send of up to 128 KiB for which
    /// there is room now ends at once; a longer one when the peer has received the message, or has been sent it
    /// through cells.
    ///
    /// # Errors
    /// As for [`send`](Self::send); a later failure is the operation's result.
    pub fn isend(
        &mut self,
        peer: Peer,
        envelope: impl Into<Envelope>,
        memory: impl Into<Memory>,
    ) -> Result<OperationHandle, MessageError> {
        self.isend_with(peer, envelope, memory, Options::default())
    }

    /// Like [`isend`](Self::isend), with a number of the caller's choice, and another way to report the end.
    ///
    /// # Errors
    /// As for [`isend`](Self::isend).
    pub fn isend_with(
        &mut self,
        peer: Peer,
        envelope: impl Into<Envelope>,
        memory: impl Into<Memory>,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        let memory = memory.into();
        self.poller.expect_handling(memory.len() as u64);
        self.handle_notices()?;
        self.engine.start_send(peer, envelope.into(), memory, options)
    }

    /// Like [`send`](Self::send), but waits for as long as `patience` says.
    pub(super) fn send_patiently(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        message: &&[u8],
        patience: Patience,
    ) -> Result<(), MessageError> {
        if self.engine.try_inject(peer, &envelope, message) {
            return Ok(());
        }
        self.send_slowly(peer, envelope, message, patience)
    }

    pub(super) fn send_now(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        source: &impl Source,
    ) -> Result<(), MessageError> {
        self.send_source(peer, envelope, source, Patience::None)
    }

    /// Sends a message, and says why there was no room if there is no time to wait for it.
    pub(super) fn send_source(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        source: &impl Source,
        patience: Patience,
    ) -> Result<(), MessageError> {
        let bytes = source.bytes();
        let is_late = |error: &MessageError| matches!(error, MessageError::Timeout { .. });
        match self.send_slowly(peer, envelope, source, patience) {
            Err(error) if is_late(&error) && matches!(patience, Patience::None) => {
                if source.block().is_none()
                    && self.engine.send_when_linked(peer, envelope, source)?
                {
                    return Ok(());
                }
                Err(match self.engine.name_of(peer).cloned() {
                    Some(name) if !self.is_refused(peer, &envelope, source) => {
                        MessageError::Full { name }
                    }
                    _ => self.full_error(peer, bytes),
                })
            }
            ended => ended,
        }
    }

    /// Whether the peer refuses a message now, because its grant is spent.
    fn is_refused(&mut self, peer: Peer, envelope: &Envelope, source: &impl Source) -> bool {
        let bytes = source.bytes();
        let is_long = bytes > envelope.inline_bytes_max() as u64;
        is_long
            && source.block().is_none()
            && self.engine.transport_mut().refuses(peer.row(), envelope, bytes)
    }

    /// The slow half of every send.
    #[cold]
    #[inline(never)]
    pub(super) fn send_slowly(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        source: &impl Source,
        patience: Patience,
    ) -> Result<(), MessageError> {
        self.poller.expect_handling(source.bytes());
        self.handle_notices()?;
        if self.engine.transport_mut().must_look_for_grants() {
            self.engine.progress(None)?;
        }
        if !matches!(patience, Patience::None)
            && source.block().is_none()
            && let Some(lent) = self.engine.offer_lent(peer, envelope, source)?
        {
            return self.wait_for_lent(lent, source, patience);
        }
        let mut sent = 0;
        let send = |endpoint: &mut Self, sent: &mut u64| match endpoint
            .engine
            .send_step(peer, envelope, source, sent)
        {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        };
        // Before any wait.
        if let Some(end) = send(self, &mut sent) {
            return end;
        }
        // A message in a block needs one slot.
        let bytes = if source.block().is_some() { 0 } else { source.bytes() };
        let room =
            Some(Room { row: peer.row(), envelope, bytes, is_in_place: false, is_begun: false });
        let ended = match patience {
            Patience::None => Err(MessageError::Timeout { after: Duration::ZERO }),
            _ => {
                self.engine.begin_blocking(bytes);
                let look =
                    |endpoint: &mut Self, _: Option<&mut Caller<'_>>| send(endpoint, &mut sent);
                let ended = self.wait_for(patience, None, room, look);
                self.engine.end_blocking();
                ended
            }
        };
        match ended {
            Ok(end) => end,
            Err(MessageError::Forked) => Err(MessageError::Forked),
            Err(error) if sent > 0 => {
                if error == MessageError::Interrupted {
                    // Left for the next call that waits.
                    self.interrupter().interrupt();
                }
                // The peer has the beginning of the message already, so the rest must follow.
                self.engine.send_rest(peer, envelope, source, sent);
                Ok(())
            }
            Err(MessageError::Timeout { .. }) => {
                Err(MessageError::Timeout { after: after(patience) })
            }
            Err(other) => Err(other),
        }
    }

    /// Waits until the peer has a large message that was offered. If that takes too long, the message was never
    /// sent, or counts as sent if the peer has begun to read it.
    fn wait_for_lent(
        &mut self,
        lent: Lent,
        source: &impl Source,
        patience: Patience,
    ) -> Result<(), MessageError> {
        let ended = self.wait_for(patience, None, None, |endpoint, _| {
            endpoint.engine.end_of_lent(&lent, source)
        });
        if matches!(ended, Err(MessageError::Forked)) {
            return Err(MessageError::Forked);
        }
        let is_sent = self.engine.end_lent(lent, source);
        match ended {
            Ok(end) => end,
            Err(error) if is_sent => {
                if error == MessageError::Interrupted {
                    // Left for the next call that waits.
                    self.interrupter().interrupt();
                }
                Ok(())
            }
            Err(MessageError::Timeout { .. }) => {
                Err(MessageError::Timeout { after: after(patience) })
            }
            Err(other) => Err(other),
        }
    }
}
