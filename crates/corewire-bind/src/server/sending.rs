//! What a service sends: replies, events, notes. It never waits for a client.
//!
//! What finds no room is kept until there is some, up to a bound for each client. Beyond it events are left out and
//! counted, and the client is told where they are missing. Replies are never left out: a client may not have
//! more calls under way than the bound allows for, and one that does is cut off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire::{Completion, Endpoint, Envelope, MessageError, Options, Peer, Report};
use corewire_circuit::wire::packet::End;
use corewire_os::packet::{self, SocketError};
use rustix::event::PollFlags;

use super::circuits::Circuits;
use super::clients::{ClientId, Clients, Way};
use super::mailbox::Mailbox;
use super::reply::Version;
use super::{Dispatch, Incoming, Reply, porter};
use crate::capability::{Capabilities, Received};
use crate::client::OWED_BYTES_MAX;
use crate::exchange::Form;
use crate::link::WAITING_BYTES_MAX;
use crate::message::COST_BYTES;
use crate::tag::{Control, Tag, status};

/// Bytes that are kept for one client: all events, and the replies that it may be owed: of calls that it has started, of
/// those that it has abandoned, and as much again for versions of messages that are longer than the client's.
const KEPT_BYTES_MAX: usize = WAITING_BYTES_MAX + 4 * OWED_BYTES_MAX;
/// Longer replies: one that was started, one abandoned, one that the client's thread waits for; and an event.
const KEPT_LONG_MAX: usize = 4;

/// What is sent, besides capabilities.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) tag: Tag,
    pub(super) status: Option<u64>,
    pub(super) bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    pub(super) const fn new(tag: Tag, bytes: &'a [u8]) -> Self {
        Self { tag, status: None, bytes }
    }

    pub(super) const fn note(tag: Tag, status: u64) -> Self {
        Self { tag, status: Some(status), bytes: &[] }
    }

    pub(super) const fn cost_bytes(&self) -> usize {
        self.bytes.len() + COST_BYTES
    }
}

/// A reply that another thread has left in the mailbox.
#[derive(Debug)]
pub(super) struct LaterMessage {
    pub(super) tag: Tag,
    pub(super) status: Option<u64>,
    pub(super) bytes: Vec<u8>,
    pub(super) capabilities: Vec<Received>,
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

/// The part of a service that a reply borrows.
pub(super) struct Sending {
    pub(super) endpoint: Endpoint,
    pub(super) clients: Clients,
    pub(super) circuits: Circuits,
    pub(super) scratch: Vec<u8>,
    pub(super) mailbox: Arc<Mailbox>,
    /// Whether a call other than a receive has ended because of mail, which a receive will not report again.
    pub(super) was_interrupted: bool,
    /// Messages that wait until there is room in a ring.
    pub(super) kept_count: usize,
    sent: Vec<Completion>,
    /// Clients that were cut off, and whose end has not been reported.
    pub(super) cut_off: Vec<ClientId>,
}

/// Messages that wait for a client, and their bytes with what they cost besides.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Kept {
    pub(super) count: usize,
    /// Of those that are not long.
    pub(super) bytes: usize,
    long_count: usize,
}

impl Kept {
    pub(super) fn add(&mut self, cost_bytes: usize) {
        self.count += 1;
        match cost_bytes > OWED_BYTES_MAX {
            true => self.long_count += 1,
            false => self.bytes += cost_bytes,
        }
    }

    pub(super) fn remove(&mut self, cost_bytes: usize) {
        self.count -= 1;
        match cost_bytes > OWED_BYTES_MAX {
            true => self.long_count -= 1,
            false => self.bytes -= cost_bytes,
        }
    }

    /// Whether the client has asked for more than it may.
    const fn is_over(&self) -> bool {
        self.bytes > KEPT_BYTES_MAX || self.long_count > KEPT_LONG_MAX
    }
}

/// Whether a message can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    Reply,
    Event,
}

impl Sending {
    pub(super) fn new(endpoint: Endpoint, mailbox: Arc<Mailbox>) -> Self {
        Self {
            endpoint,
            clients: Clients::default(),
            circuits: Circuits::default(),
            scratch: Vec::new(),
            mailbox,
            was_interrupted: false,
            kept_count: 0,
            sent: Vec::new(),
            cut_off: Vec::new(),
        }
    }

    /// Whether nothing waits to be sent or reported.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.kept_count == 0
            && self.cut_off.is_empty()
            && !self.was_interrupted
            && self.circuits.is_quiet()
    }

    /// Calls the program, the slow way: generated code is there twice.
    #[inline(never)]
    pub(super) fn dispatch_slowly(
        &mut self,
        client: ClientId,
        tag: Tag,
        bytes: &[u8],
        capabilities: &mut Vec<Received>,
        dispatch: &mut impl Dispatch,
    ) -> bool {
        self.dispatch(client, tag, bytes, capabilities, dispatch)
    }

    /// Calls the program. Returns whether the message is none of the interface.
    #[inline(always)]
    pub(super) fn dispatch(
        &mut self,
        client: ClientId,
        tag: Tag,
        bytes: &[u8],
        capabilities: &mut Vec<Received>,
        dispatch: &mut impl Dispatch,
    ) -> bool {
        let forms = self.clients.forms_of(client);
        let incoming = Incoming { bytes, forms, capabilities };
        let taken = match tag.token() {
            0 => dispatch.message(tag.ordinal(), incoming, client),
            _ => dispatch.request(tag.ordinal(), incoming, Reply::new(self, client, tag)),
        };
        taken.is_err()
    }

    /// Sends a reply. A client that has gone gets nothing.
    ///
    /// # Errors
    /// The capabilities could not be sent: the caller has been told.
    #[cold]
    pub(super) fn reply(
        &mut self,
        client: ClientId,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
    ) -> Result<(), NotSent> {
        let sent = self.send(client, frame, capabilities, Weight::Reply);
        if sent.is_err() {
            let note = Frame::note(frame.tag, status::NOT_SENT);
            let _ = self.send(client, note, &Capabilities::new(), Weight::Reply);
        }
        sent
    }

    /// Sends an event, in the version that the client knows.
    pub(super) fn event(&mut self, client: ClientId, event: &LaterEvent) {
        let Some(row) = self.clients.get(client) else { return };
        let version = match row.forms.get(event.wire) {
            Form::Current => event.versions.first(),
            Form::Earlier(index) => event.versions.get(usize::from(index) + 1),
            Form::Absent => None,
        };
        let Some(version) = version else { return };
        let frame = Frame::new(Tag::new(client.binding(), event.ordinal, 0), &version.bytes);
        let capabilities = Capabilities::first_of(&event.capabilities, version.capability_count);
        if self.send(client, frame, &capabilities, Weight::Event).is_err()
            && let Some(row) = self.clients.row(client)
        {
            // Too many descriptors wait for this client: it misses the event.
            match &row.way {
                Way::Socket(guest) => guest.lose_event(),
                _ => {
                    row.lost_count += 1;
                    self.tell_lost(client);
                }
            }
        }
    }

    /// The usual way: sends to a ring in which nothing waits for room. False if the message was not sent.
    #[inline(always)]
    pub(super) fn has_sent(&mut self, client: ClientId, tag: Tag, bytes: &[u8]) -> bool {
        match self.clients.get(client) {
            Some(row) if row.kept.count == 0 && row.lost_count == 0 => match &row.way {
                Way::Ring { peer, .. } => match self.endpoint.try_send(*peer, tag.0, bytes) {
                    Ok(()) => true,
                    Err(error) => {
                        self.was_interrupted |= error == MessageError::Interrupted;
                        false
                    }
                },
                &Way::Circuit { index } => {
                    self.circuits.has_sent(&mut self.endpoint, index, tag, bytes)
                }
                _ => false,
            },
            _ => false,
        }
    }

    fn send(
        &mut self,
        client: ClientId,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
        weight: Weight,
    ) -> Result<(), NotSent> {
        let is_plain = frame.status.is_none() && capabilities.all().is_empty();
        if is_plain && self.has_sent(client, frame.tag, frame.bytes) {
            return Ok(());
        }
        let Some(row) = self.clients.row(client) else { return Ok(()) };
        match &row.way {
            &Way::Ring { peer, .. } => self.send_or_keep(client, peer, frame, capabilities, weight),
            _ => self.send_otherwise(client, frame, capabilities, weight),
        }
    }

    /// Sends to a client that has no ring.
    fn send_otherwise(
        &mut self,
        client: ClientId,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
        weight: Weight,
    ) -> Result<(), NotSent> {
        let Some(row) = self.clients.row(client) else { return Ok(()) };
        match &row.way {
            Way::Socket(guest) => {
                let guest = Arc::clone(guest);
                if guest.unsent().is_over() && weight == Weight::Reply {
                    self.cut_off(client, TOO_MUCH);
                    return Ok(());
                }
                let sent = match weight {
                    Weight::Reply => guest.send(frame, capabilities),
                    Weight::Event => guest.send_event(frame, capabilities),
                };
                match sent {
                    Err(SocketError::Os(_)) if !capabilities.all().is_empty() => Err(NotSent),
                    Err(SocketError::Os(errno)) => {
                        let why = format!("error {errno} of the system");
                        self.cut_off(client, &format!("a message to it could not be sent: {why}"));
                        Ok(())
                    }
                    // The porter sees that the socket is closed.
                    _ => Ok(()),
                }
            }
            &Way::Circuit { index } => {
                self.send_by_circuit(client, index, frame, capabilities, weight)
            }
            _ => Ok(()),
        }
    }

    /// Sends through a circuit, or keeps a copy until there is room.
    fn send_by_circuit(
        &mut self,
        client: ClientId,
        index: u32,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
        weight: Weight,
    ) -> Result<(), NotSent> {
        let (bytes, count) = self.circuits.unsent(index);
        let bytes = bytes + count * COST_BYTES;
        let Some(row) = self.clients.row(client) else { return Ok(()) };
        match weight {
            // One of any length is kept.
            Weight::Event if count > 0 && bytes + frame.cost_bytes() > WAITING_BYTES_MAX => {
                row.lost_count += 1;
                return Ok(());
            }
            Weight::Reply if count > KEPT_LONG_MAX && bytes > KEPT_BYTES_MAX => {
                self.cut_off(client, TOO_MUCH);
                return Ok(());
            }
            _ => {}
        }
        let lost_count = std::mem::take(&mut row.lost_count);
        let none = Capabilities::new();
        if lost_count > 0 {
            let lost = Frame::note(Tag::control(0, Control::Lost), lost_count);
            self.circuits.send(&mut self.endpoint, index, lost, &none)?;
        }
        self.circuits.send(&mut self.endpoint, index, frame, capabilities)
    }

    /// The service ends: what was sent arrives.
    pub(super) fn finish_circuits(&mut self) {
        self.circuits.finish(&mut self.endpoint);
    }

    /// Sends what waits for circuits, and tells clients for which nothing waits any more that events are missing.
    pub(super) fn flush_circuits(&mut self) {
        self.circuits.flush(&mut self.endpoint);
        while let Some(client) = self.circuits.take_sent() {
            self.tell_lost(client);
        }
    }

    /// Sends to a ring now if there is room and nothing waits, and otherwise keeps a copy until there is room.
    #[cold]
    fn send_or_keep(
        &mut self,
        client: ClientId,
        peer: Peer,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
        weight: Weight,
    ) -> Result<(), NotSent> {
        let Some(row) = self.clients.row(client) else { return Ok(()) };
        match weight {
            // One of any length is kept.
            Weight::Event
                if row.kept.count > 0
                    && row.kept.bytes + frame.cost_bytes() > WAITING_BYTES_MAX =>
            {
                row.lost_count += 1;
                return Ok(());
            }
            Weight::Reply if row.kept.is_over() => {
                self.cut_off(client, TOO_MUCH);
                return Ok(());
            }
            _ => {}
        }
        let lost_count = std::mem::take(&mut row.lost_count);
        if lost_count > 0 {
            let lost = Frame::note(Tag::control(client.binding(), Control::Lost), lost_count);
            self.put(client, peer, lost, &Capabilities::new())?;
        }
        self.put(client, peer, frame, capabilities)
    }

    /// Sends now, or keeps a copy.
    fn put(
        &mut self,
        client: ClientId,
        peer: Peer,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
    ) -> Result<(), NotSent> {
        let mut envelope = Envelope::tagged(frame.tag.0);
        if let Some(status) = frame.status {
            envelope = envelope.with_immediate(status);
        }
        if !capabilities.all().is_empty() {
            envelope = envelope.with_immediate(status::CAPABILITIES);
            let row = self.clients.row(client);
            if let Some(Way::Ring { guest, .. }) = row.map(|row| &row.way) {
                // They go first: they must be there when their message is.
                guest.send_beside(frame.tag, capabilities).map_err(|_| NotSent)?;
            }
        }
        let Some(row) = self.clients.row(client) else { return Ok(()) };
        if row.kept.count == 0 {
            loop {
                match self.endpoint.try_send(peer, envelope, frame.bytes) {
                    Err(MessageError::Interrupted) => self.was_interrupted = true,
                    Err(MessageError::Full { .. } | MessageError::ReceiverFull { .. }) => break,
                    Ok(()) => return Ok(()),
                    Err(error) => {
                        self.failed(client, &error);
                        return Ok(());
                    }
                }
            }
        }
        let context = client.to_bits();
        let options = Options { context, report: Report::Queue, ..Options::default() };
        loop {
            match self.endpoint.isend_with(peer, envelope, frame.bytes.to_vec(), options) {
                Err(MessageError::Interrupted) => self.was_interrupted = true,
                Err(error) => {
                    self.failed(client, &error);
                    return Ok(());
                }
                Ok(_) => break,
            }
        }
        row.kept.add(frame.cost_bytes());
        self.kept_count += 1;
        Ok(())
    }

    /// A message to a client in a ring was not sent. If the client has gone, an event reports that. Otherwise the client
    /// must not wait for a reply, or miss an event without a word.
    #[cold]
    fn failed(&mut self, client: ClientId, error: &MessageError) {
        use MessageError::{Forked, PeerCutOff, PeerDied, PeerLeft, UnknownPeer};
        let (PeerDied { .. } | PeerLeft { .. } | PeerCutOff { .. } | UnknownPeer | Forked) = error
        else {
            return self.cut_off(client, &format!("a message to it could not be sent: {error}"));
        };
    }

    /// Takes note of messages that do not wait any more: they were sent, or could not be, or their client has gone. False
    /// if there are none.
    pub(super) fn has_forgotten_sent(&mut self) -> bool {
        self.kept_count > 0 && self.forget_sent()
    }

    #[cold]
    fn forget_sent(&mut self) -> bool {
        let mut sent = std::mem::take(&mut self.sent);
        let ended = self.endpoint.try_completions(&mut sent, usize::MAX);
        self.was_interrupted |= matches!(ended, Err(MessageError::Interrupted));
        let are_some = !sent.is_empty();
        for completion in sent.drain(..) {
            self.kept_count -= 1;
            let client = ClientId::of_bits(completion.context);
            let Some(row) = self.clients.row(client) else { continue };
            row.kept.remove(completion.memory.len() + COST_BYTES);
            match completion.result {
                Err(error) => self.failed(client, &error),
                Ok(_) => self.tell_lost(client),
            }
        }
        self.sent = sent;
        are_some
    }

    /// Tells a client in a ring, or behind a circuit, that events are missing, once nothing waits before that.
    #[cold]
    fn tell_lost(&mut self, client: ClientId) {
        let Some(row) = self.clients.row(client) else { return };
        if row.lost_count == 0 {
            return;
        }
        let (count, none) = (row.lost_count, Capabilities::new());
        let _ = match row.way {
            Way::Ring { peer, .. } if row.kept.count == 0 => {
                row.lost_count = 0;
                let lost = Frame::note(Tag::control(client.binding(), Control::Lost), count);
                self.put(client, peer, lost, &none)
            }
            Way::Circuit { index } if self.circuits.unsent(index).1 == 0 => {
                row.lost_count = 0;
                let lost = Frame::note(Tag::control(0, Control::Lost), count);
                self.circuits.send(&mut self.endpoint, index, lost, &none)
            }
            _ => Ok(()),
        };
    }

    /// Whether a client must be told that events are missing, once what is kept for it has gone.
    pub(super) fn owes_notes(&self) -> bool {
        self.circuits.is_stuck()
            || self.kept_count > 0 && self.clients.bound().any(|row| row.lost_count > 0)
    }

    /// Announces that the caller is about to wait for the endpoint's descriptor, also for room for what is kept. False if
    /// there is something to do before.
    pub(super) fn arm(&mut self) -> Result<bool, MessageError> {
        let is_armed = self.endpoint.arm()?;
        // Looks for what a receive has sent meanwhile: the descriptor announces only what happens from now on.
        self.flush_circuits();
        self.was_interrupted |= self.circuits.take_interrupted();
        Ok(is_armed && !self.has_forgotten_sent() && !self.was_interrupted)
    }

    /// Waits for that.
    #[cold]
    pub(super) fn wait(&mut self, left: Option<Duration>) -> Result<(), MessageError> {
        if self.arm()? {
            let until = left.and_then(|left| Instant::now().checked_add(left));
            // Whatever is wrong with the descriptor: the caller looks again.
            let _ = packet::wait(self.endpoint.readiness(), PollFlags::IN, until);
        }
        Ok(())
    }

    /// Takes note of a message that is none. A client that goes on is cut off.
    #[cold]
    pub(super) fn count_refused(&mut self, client: ClientId) {
        let Some(row) = self.clients.row(client) else { return };
        row.refused_count += 1;
        if row.refused_count > REFUSED_MAX
            && row.identity.uid != rustix::process::geteuid().as_raw()
        {
            self.cut_off(client, "it sent too much that is no message of the interface");
        }
    }

    /// Sends nothing more to a client but the reason, and handles nothing more of it.
    #[cold]
    pub(super) fn cut_off(&mut self, client: ClientId, reason: &str) {
        let Some(row) = self.clients.row(client) else { return };
        let end = match &row.way {
            Way::Ring { peer, guest } => Way::CutOff { peer: *peer, guest: Arc::clone(guest) },
            Way::Socket(guest) => {
                porter::refuse(guest, reason);
                self.clients.remove(client);
                self.cut_off.push(client);
                return;
            }
            &Way::Circuit { index } => {
                self.circuits.close(index, End::Refused, reason);
                self.clients.remove(client);
                self.cut_off.push(client);
                return;
            }
            // It has not been reported as bound.
            Way::Accepted { guest, .. } => {
                porter::refuse(guest, reason);
                self.clients.remove(client);
                return;
            }
            Way::CutOff { .. } => return,
        };
        let refused = if let Way::CutOff { peer, .. } = &end { Some(*peer) } else { None };
        // Its number stays taken: messages of it may still come.
        row.way = end;
        self.cut_off.push(client);
        if let Some(peer) = refused {
            let frame =
                Frame::new(Tag::control(client.binding(), Control::Refuse), reason.as_bytes());
            let _ = self.put(client, peer, frame, &Capabilities::new());
        }
    }
}

/// Messages that are none, of a client of another user.
const REFUSED_MAX: u32 = 16;

pub(super) const TOO_MUCH: &str =
    "it has more replies under way than it may, and does not read them";

/// Capabilities could not be sent: the other side has too many on their way, or one of them was not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotSent;
