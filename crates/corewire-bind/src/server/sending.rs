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

use super::asked::Asked;
use super::circuits::Circuits;
use super::client_id::ClientId;
use super::clients::{Clients, Row};
use super::lane::Lane;
use super::later::LaterEvent;
use super::mailbox::Mailbox;
use super::socket_client::SocketClient;
use crate::capability::Capabilities;
use crate::exchange::Form;
use crate::lane::backlog::{Admission, Frame, Held, NotSent, Weight};
use crate::message::COST_BYTES;
use crate::tag::{Control, Tag, status};
use crate::totals::Totals;

/// The part of a service that a reply borrows.
pub(super) struct Sending {
    pub(super) endpoint: Endpoint,
    pub(super) clients: Clients,
    pub(super) circuits: Circuits,
    pub(super) scratch: Vec<u8>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) totals: Totals,
    /// How much memory what is decoded of one message may take.
    pub(super) decoded_bytes_max: usize,
    /// The request whose handler runs.
    pub(super) asked: Asked,
    /// Whether a call other than a receive has ended because of mail, which a receive will not report again.
    pub(super) was_interrupted: bool,
    /// Messages that wait until there is room in a ring.
    pub(super) kept_count: usize,
    sent: Vec<Completion>,
    /// Clients that were cut off, and whose end has not been reported.
    pub(super) cut_off: Vec<ClientId>,
}

impl Sending {
    pub(super) fn new(endpoint: Endpoint, mailbox: Arc<Mailbox>, decoded_bytes_max: usize) -> Self {
        Self {
            totals: Totals::new(mailbox.description()),
            endpoint,
            clients: Clients::default(),
            circuits: Circuits::default(),
            scratch: Vec::new(),
            mailbox,
            decoded_bytes_max,
            asked: Asked::NONE,
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
            match row.lane.socket() {
                Some(socket_client) => socket_client.lose_event(),
                None => {
                    row.lost_count += 1;
                    self.send_lost(client);
                }
            }
        }
    }

    /// The usual way: sends to a ring in which nothing waits for room. False if the message was not sent.
    #[inline(always)]
    pub(super) fn has_sent(&mut self, client: ClientId, tag: Tag, bytes: &[u8]) -> bool {
        match self.clients.get(client) {
            Some(row) if row.kept.count == 0 && row.lost_count == 0 => match &row.lane {
                Lane::Ring { peer, .. } => match self.endpoint.try_send(*peer, tag.0, bytes) {
                    Ok(()) => true,
                    Err(error) => {
                        self.was_interrupted |= error == MessageError::Interrupted;
                        false
                    }
                },
                &Lane::Circuit { index } => {
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
        let Some(row) = self.clients.get(client) else { return Ok(()) };
        match row.lane.socket() {
            None => self.send_or_keep(client, frame, capabilities, weight),
            Some(socket_client) => {
                let (socket_client, part_bytes) = (Arc::clone(socket_client), row.part_bytes());
                let how = (weight, part_bytes);
                self.send_on_socket(client, &socket_client, frame, capabilities, how)
            }
        }
    }

    /// Sends on a socket, whose other thread sends what finds no room.
    fn send_on_socket(
        &mut self,
        client: ClientId,
        socket_client: &SocketClient,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
        (weight, part_bytes): (Weight, usize),
    ) -> Result<(), NotSent> {
        match socket_client.deliver(frame, capabilities, weight, part_bytes) {
            Ok(Admission::CutOff) => self.cut_off(client, TOO_MUCH),
            Err(SocketError::Os(_)) if !capabilities.all().is_empty() => return Err(NotSent),
            Err(SocketError::Os(errno)) => {
                let why = format!("error {errno} of the system");
                self.cut_off(client, &format!("a message to it could not be sent: {why}"));
            }
            // The socket thread sees that the socket is closed.
            _ => {}
        }
        Ok(())
    }

    /// What waits for a client in its ring or its circuit; `None` for others.
    fn held(&self, row: &Row) -> Option<Held> {
        match &row.lane {
            Lane::Ring { .. } => Some(row.kept.held()),
            &Lane::Circuit { index } => Some(self.circuits.held(index)),
            _ => None,
        }
    }

    /// Sends by a ring or a circuit now if there is room and nothing waits, and otherwise keeps a copy until there is
    /// room.
    #[cold]
    fn send_or_keep(
        &mut self,
        client: ClientId,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
        weight: Weight,
    ) -> Result<(), NotSent> {
        let held = self.clients.get(client).and_then(|row| self.held(row));
        let (Some(held), Some(row)) = (held, self.clients.row(client)) else { return Ok(()) };
        match held.admit(weight, frame.cost_bytes(), row.part_bytes()) {
            Admission::Lose => row.lost_count += 1,
            Admission::CutOff => self.cut_off(client, TOO_MUCH),
            Admission::Send => {
                self.put_lost(client)?;
                self.put(client, frame, capabilities)?;
            }
        }
        Ok(())
    }

    /// Tells a client how many events were left out, if some were.
    fn put_lost(&mut self, client: ClientId) -> Result<(), NotSent> {
        let Some(row) = self.clients.row(client) else { return Ok(()) };
        let lost_count = std::mem::take(&mut row.lost_count);
        if lost_count == 0 {
            return Ok(());
        }
        let lost = Frame::note(row.lane.control(client, Control::Lost), lost_count);
        self.put(client, lost, &Capabilities::new())
    }

    /// Sends now, or keeps a copy.
    fn put(
        &mut self,
        client: ClientId,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
    ) -> Result<(), NotSent> {
        match self.clients.get(client).map(|row| &row.lane) {
            Some(Lane::Ring { peer, socket_client } | Lane::CutOff { peer, socket_client }) => {
                let (peer, has_capabilities) = (*peer, !capabilities.all().is_empty());
                if has_capabilities {
                    // They go first: they must be there when their message is.
                    let beside = socket_client.as_ref().ok_or(NotSent)?;
                    beside.send_beside(frame.tag, capabilities).map_err(|_| NotSent)?;
                }
                self.put_in_ring(client, peer, frame, has_capabilities);
                Ok(())
            }
            Some(&Lane::Circuit { index }) => {
                self.circuits.send(&mut self.endpoint, index, frame, capabilities)
            }
            _ => Ok(()),
        }
    }

    /// The service ends: what was sent arrives.
    pub(super) fn finish_circuits(&mut self) {
        self.circuits.finish(&mut self.endpoint);
    }

    /// Sends what waits for circuits, and tells clients for which nothing waits any more that events are missing.
    pub(super) fn flush_circuits(&mut self) {
        self.circuits.flush(&mut self.endpoint);
        while let Some(client) = self.circuits.take_sent() {
            self.send_lost(client);
        }
    }

    /// Sends in a ring, whose capabilities have gone, or keeps a copy.
    fn put_in_ring(
        &mut self,
        client: ClientId,
        peer: Peer,
        frame: Frame<'_>,
        has_capabilities: bool,
    ) {
        let status = if has_capabilities { Some(status::CAPABILITIES) } else { frame.status };
        let tagged = Envelope::tagged(frame.tag.0);
        let envelope = status.map_or(tagged, |status| tagged.with_immediate(status));
        let Some(row) = self.clients.row(client) else { return };
        if row.kept.count == 0 {
            loop {
                match self.endpoint.try_send(peer, envelope, frame.bytes) {
                    Err(MessageError::Interrupted) => self.was_interrupted = true,
                    Err(MessageError::Full { .. } | MessageError::ReceiverFull { .. }) => break,
                    Ok(()) => return,
                    Err(error) => {
                        return self.failed(client, &error);
                    }
                }
            }
        }
        let context = client.to_bits();
        let options = Options { context, report: Report::Queue, ..Options::default() };
        loop {
            match self.endpoint.isend_with(peer, envelope, frame.bytes.to_vec(), options) {
                Err(MessageError::Interrupted) => self.was_interrupted = true,
                Err(error) => return self.failed(client, &error),
                Ok(_) => break,
            }
        }
        row.kept.add(frame.cost_bytes());
        self.kept_count += 1;
    }

    /// A message to a client in a ring was not sent. If the client has gone, an event reports that. Otherwise the client
    /// must not wait for a reply, or miss an event without a word.
    #[cold]
    fn failed(&mut self, client: ClientId, error: &MessageError) {
        use MessageError::{Forked, PeerCutOff, PeerDied, PeerLeft, PeerLost, UnknownPeer};
        let (PeerDied { .. }
        | PeerLeft { .. }
        | PeerLost { .. }
        | PeerCutOff { .. }
        | UnknownPeer
        | Forked) = error
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
        let ended = self.endpoint.now().completions(&mut sent, usize::MAX);
        self.was_interrupted |= matches!(ended, Err(MessageError::Interrupted));
        let are_some = !sent.is_empty();
        for completion in sent.drain(..) {
            self.kept_count -= 1;
            let client = ClientId::of_bits(completion.context);
            let Some(row) = self.clients.row(client) else { continue };
            row.kept.remove(completion.memory.len() + COST_BYTES);
            match completion.result {
                Err(error) => self.failed(client, &error),
                Ok(_) => self.send_lost(client),
            }
        }
        self.sent = sent;
        are_some
    }

    /// Tells a client in a ring, or behind a circuit, that events are missing, once nothing waits before that.
    #[cold]
    fn send_lost(&mut self, client: ClientId) {
        let held = self.clients.get(client).and_then(|row| self.held(row));
        if held.is_some_and(|held| held.count == 0) {
            let _ = self.put_lost(client);
        }
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
        match &row.lane {
            Lane::CutOff { .. } => {}
            // It has not been reported as bound.
            Lane::Accepted { socket_client, .. } => {
                socket_client.refuse(reason);
                self.clients.remove(client);
            }
            Lane::Socket(socket_client) => {
                socket_client.refuse(reason);
                self.clients.remove(client);
                self.cut_off.push(client);
            }
            &Lane::Circuit { index } => {
                self.circuits.close(index, End::Refused, reason);
                self.clients.remove(client);
                self.cut_off.push(client);
            }
            Lane::Ring { peer, socket_client } => {
                // Its number stays taken: messages of it may still come.
                row.lane = Lane::CutOff { peer: *peer, socket_client: socket_client.clone() };
                row.streams = None;
                self.cut_off.push(client);
                let tag = Tag::control(client.binding(), Control::Refuse);
                let _ = self.put(client, Frame::new(tag, reason.as_bytes()), &Capabilities::new());
            }
        }
    }
}

/// Messages that are none, of a client of another user.
const REFUSED_MAX: u32 = 16;

pub(super) const TOO_MUCH: &str =
    "it has more replies under way than it may, and does not read them";
