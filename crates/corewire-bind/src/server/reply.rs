//! What a service's program answers with: replies, now or later, and events.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::asked::Asked;
use super::client_id::ClientId;
use super::later::{LaterEvent, LaterMessage, Version};
use super::mailbox::{Mail, Mailbox};
use super::sending::Sending;
use crate::capability::{Capabilities, Received};
use crate::error::{CallError, EncodeError};
use crate::exchange::Form;
use crate::identity::Identity;
use crate::lane::backlog::Frame;
use crate::tag::{Tag, status};
use crate::totals::Answer;

/// The reply to a request, while its handler runs. Dropping it tells the caller that there will be none.
///
/// It is one pointer, and what it is about stays where it was written: on its way through generated code and a handler it
/// would be copied several times, and a copy of 16 bytes that were written 8 at a time waits until they are in the cache.
#[must_use = "a reply that is dropped tells its caller"]
pub struct Reply<'a>(&'a mut Sending);

const _: () = assert!(size_of::<Reply<'_>>() == size_of::<usize>());

impl<'a> Reply<'a> {
    #[inline(always)]
    pub(super) const fn new(
        sending: &'a mut Sending,
        client: ClientId,
        tag: Tag,
        began: Option<Instant>,
    ) -> Self {
        sending.asked = Asked { client, tag, began, is_error: false, is_owed: true };
        Self(sending)
    }

    /// Counts what it sends as an error of the interface.
    pub const fn failing(self) -> Self {
        self.0.asked.is_error = true;
        self
    }

    /// How long it took until now, if it is timed.
    #[inline(always)]
    fn took(&self) -> Option<Duration> {
        self.0.asked.began.map(|began| began.elapsed())
    }

    /// It has been sent: a caller that waits for it does not wait for this.
    #[inline(always)]
    fn count(&mut self, bytes: usize, took: Option<Duration>) {
        let Asked { tag, is_error, .. } = self.0.asked;
        self.0.totals.reply(Answer { ordinal: tag.ordinal(), bytes, is_error, took });
    }

    /// What a reply of another kind needs, which takes its place.
    pub(super) const fn take(&mut self) -> (&mut Sending, ClientId, Tag) {
        self.0.asked.is_owed = false;
        let Asked { client, tag, .. } = self.0.asked;
        (self.0, client, tag)
    }

    /// Sends it, or tells the caller that there is none.
    fn answer(
        &mut self,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
    ) -> Result<(), CallError> {
        let (bytes, took) = (frame.bytes.len(), self.took());
        let (sending, client, _) = self.take();
        let sent = sending.reply(client, frame, capabilities);
        self.count(bytes, took);
        sent.map_err(|_| CallError::NotSent)
    }

    /// The client that asked.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        self.0.asked.client
    }

    /// Its process, by the kernel's word.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let row = self.0.clients.get(self.client());
        row.map_or(Identity { uid: u32::MAX, gid: u32::MAX, pid: 0 }, |row| row.identity)
    }

    /// Which version of a message both sides know, by its index in the description.
    #[must_use]
    pub fn form(&self, wire: usize) -> Form {
        self.0.clients.get(self.client()).map_or(Form::Current, |row| row.forms.get(wire))
    }

    /// Sends a reply of these bytes, and never waits: what does not fit is sent when there is room.
    #[inline(always)]
    pub fn send(mut self, bytes: &[u8]) {
        let took = self.took();
        let (sending, client, tag) = self.take();
        if !sending.has_sent(client, tag, bytes) {
            // Only capabilities can fail.
            let _ = sending.reply(client, Frame::new(tag, bytes), &Capabilities::new());
        }
        self.count(bytes.len(), took);
    }

    /// Like [`send`](Self::send), with capabilities.
    ///
    /// # Errors
    /// [`CallError::NotSent`] if they cannot be sent; the caller is told.
    pub fn send_all(
        mut self,
        bytes: &[u8],
        capabilities: &Capabilities<'_>,
    ) -> Result<(), CallError> {
        let tag = self.0.asked.tag;
        self.answer(Frame::new(tag, bytes), capabilities)
    }

    /// Sends what `encode` writes. False if it fails, or the capabilities cannot be sent: the caller is told that there will
    /// be no reply, and the service's report says why.
    #[inline]
    pub fn send_with<'c>(
        mut self,
        encode: impl FnOnce(&mut Vec<u8>, &mut Capabilities<'c>) -> Result<(), EncodeError>,
    ) -> bool {
        let mut scratch = std::mem::take(&mut self.0.scratch);
        let mut capabilities = Capabilities::new();
        let encoded = encode(&mut scratch, &mut capabilities);
        let Asked { client, tag, .. } = self.0.asked;
        let took = self.took();
        let sent = match encoded {
            Ok(()) if capabilities.all().is_empty() && self.0.has_sent(client, tag, &scratch) => {
                self.0.asked.is_owed = false;
                self.count(scratch.len(), took);
                Ok(())
            }
            Ok(()) => self.answer(Frame::new(tag, &scratch), &capabilities),
            Err(error) => Err(error.into()),
        };
        self.0.scratch = scratch;
        self.0.mailbox.is_sent(tag.ordinal(), &sent)
    }

    /// Separates the reply from the handler: it may be sent at any time, from any thread.
    pub fn later(mut self, wire: usize) -> LaterReply {
        let (form, began) = (self.form(wire), self.0.asked.began);
        let (sending, client, tag) = self.take();
        LaterReply::new(Arc::clone(&sending.mailbox), client, form, tag, began, true)
    }

    /// Tells the caller that the service does not know the request.
    pub fn unknown(self) {
        self.refuse(status::UNKNOWN);
    }

    /// Tells the caller that the service could not decode the request.
    pub fn malformed(self) {
        self.refuse(status::MALFORMED);
    }

    /// Tells the caller that the service could not take the capabilities of the request.
    pub(super) fn not_taken(self) {
        self.refuse(status::NOT_TAKEN);
    }

    #[cold]
    fn refuse(mut self, status: u64) {
        self.note(status);
    }

    #[cold]
    fn note(&mut self, status: u64) {
        self.0.asked.is_error = true;
        let note = Frame::note(self.0.asked.tag, status);
        // It has no capabilities, which alone can fail.
        let _ = self.answer(note, &Capabilities::new());
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if self.0.asked.is_owed {
            self.note(status::DROPPED);
        }
    }
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("client", &self.client()).finish_non_exhaustive()
    }
}

/// A reply that a handler keeps. Dropping it tells the caller that there will be none.
#[must_use = "a reply that is dropped tells its caller"]
pub struct LaterReply {
    mailbox: Arc<Mailbox>,
    client: ClientId,
    form: Form,
    tag: Tag,
    /// When the request came, if it is timed.
    began: Option<Instant>,
    is_error: bool,
    is_owed: bool,
    /// Whether the caller has been answered already: nothing is sent.
    is_void: bool,
}

impl LaterReply {
    pub(super) const fn new(
        mailbox: Arc<Mailbox>,
        client: ClientId,
        form: Form,
        tag: Tag,
        began: Option<Instant>,
        is_owed: bool,
    ) -> Self {
        let is_void = !is_owed;
        Self { mailbox, client, form, tag, began, is_error: false, is_owed, is_void }
    }

    /// Counts what it sends as an error of the interface.
    pub const fn failing(mut self) -> Self {
        self.is_error = true;
        self
    }

    /// The client that asked.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// The version of the reply that both sides know.
    #[must_use]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// Gives a reply of these bytes to the service's thread, which sends it. Never waits.
    pub fn send(mut self, bytes: &[u8]) {
        self.is_owed = false;
        self.put(None, bytes.to_vec(), Vec::new());
    }

    /// Like [`send`](Self::send), for what `encode` writes. False if it fails, or the capabilities cannot be copied: the
    /// caller is told that there will be no reply, and the service's report says why. If the capabilities cannot be sent
    /// then, the caller is told.
    pub fn send_with<'c>(
        mut self,
        encode: impl FnOnce(&mut Vec<u8>, &mut Capabilities<'c>) -> Result<(), EncodeError>,
    ) -> bool {
        let (mut bytes, mut capabilities) = (Vec::new(), Capabilities::new());
        let encoded = encode(&mut bytes, &mut capabilities).map_err(CallError::from);
        let sent = encoded.and_then(|()| match capabilities.to_owned() {
            Ok(capabilities) => {
                self.is_owed = false;
                self.put(None, bytes, capabilities);
                Ok(())
            }
            Err(_) => {
                self.is_owed = false;
                self.put(Some(status::NOT_SENT), Vec::new(), Vec::new());
                Err(CallError::NotSent)
            }
        });
        self.mailbox.is_sent(self.tag.ordinal(), &sent)
    }

    fn put(&self, status: Option<u64>, bytes: Vec<u8>, capabilities: Vec<Received>) {
        let (tag, began) = (self.tag, self.began);
        let is_error = self.is_error || status.is_some();
        let reply = LaterMessage { tag, status, bytes, capabilities, is_error, began };
        if !self.is_void {
            // A service that has ended has told its clients so.
            let _ = self.mailbox.put(Mail::Reply(self.client, reply));
        }
    }
}

impl Drop for LaterReply {
    fn drop(&mut self) {
        if self.is_owed {
            self.put(Some(status::DROPPED), Vec::new(), Vec::new());
        }
    }
}

impl fmt::Debug for LaterReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaterReply").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Sends messages to clients, from any thread of the service's process. The service's thread sends them while it
/// serves.
#[derive(Clone)]
pub struct Outbox(pub(super) Arc<Mailbox>);

impl Outbox {
    /// Sends to one client; to all that are bound if `client` is `None`. Never waits. A client that has gone gets
    /// nothing. `versions` are the current version of the message and each earlier one, in the order of the description.
    ///
    /// # Errors
    /// [`CallError::PeerLeft`] if the service has ended; [`CallError::Busy`] if 16 MiB of events wait for the service's
    /// thread; [`CallError::NotSent`] if the capabilities cannot be copied.
    pub fn send(
        &self,
        client: Option<ClientId>,
        ordinal: u16,
        wire: usize,
        versions: Vec<impl Into<Version>>,
        capabilities: &Capabilities<'_>,
    ) -> Result<(), CallError> {
        let versions = versions.into_iter().map(Into::into).collect();
        let capabilities = capabilities.to_owned().map_err(|_| CallError::NotSent)?;
        self.0.put_event(client, LaterEvent { ordinal, wire, versions, capabilities })
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outbox")
    }
}

/// Ends a service from another thread.
#[derive(Clone)]
pub struct Stopper(pub(super) Arc<Mailbox>);

impl Stopper {
    /// Lets the service's current or next call return. Never blocks.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopper")
    }
}
