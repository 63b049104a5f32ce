//! Serving: what comes next, and what is done with it.

use std::sync::Arc;
use std::time::Duration;

use corewire::{Event, MessageError, OwnedMessage, Selector, Status};
use corewire_circuit::ends::Arrival;
use corewire_circuit::link::hub::Bytes;
use corewire_circuit::link::trace;
use corewire_circuit::patience::{Late, Patience};
use corewire_circuit::wire::{Hop, Label, lines_of};

use super::circuits::Owned;
use super::client_id::ClientId;
use super::clients::Row;
use super::core::{Found, ServerCore};
use super::dispatch::{Dispatch, dispatch, dispatch_slowly};
use super::later::LaterMessage;
use super::mailbox::{Mail, Taken};
use super::reply::Reply;
use super::socket_client::SocketClient;
use crate::capability::{Capabilities, Received};
use crate::error::ServeError;
use crate::lane::LaneError;
use crate::lane::backlog::Frame;
use crate::message::{BUFFER_BYTES, Message};
use crate::tag::{Control, PART, Tag, status};
use crate::totals::Answer;

/// How much of what is not the program's, such as events of its outbox and messages that are refused, a call handles once
/// its time is over.
const LOOKS_MAX: usize = 64;

/// Looks that find nothing but messages of which a part has come, before the service sleeps.
const HALVES_MAX: usize = 16;
/// How long it sleeps then, unless something comes.
const HALF: Duration = Duration::from_millis(1);

/// What [`ServerCore::long`] did.
enum Long {
    Handled(Option<Found>),
    /// Not all of it has come.
    Half,
}

impl ServerCore {
    /// Serves the next request, message, arrival or departure. Returns false if the service was stopped, or if
    /// nothing came within `timeout`; `None` waits without a limit. If much has come that is not for the program, such
    /// as messages that are refused, it returns true when the time is over.
    ///
    /// # Errors
    /// [`ServeError::Message`].
    #[inline]
    pub fn serve_one(
        &mut self,
        timeout: Option<Duration>,
        program: &mut impl Dispatch,
    ) -> Result<bool, ServeError> {
        if self.has_mail || !self.sending.is_quiet() {
            return self.serve_slowly(timeout, None, program);
        }
        // The way of nearly all messages: short, in a ring, and nothing else to do.
        let (endpoint, any) = (&mut self.sending.endpoint, Selector::any());
        let status = match timeout {
            None => match endpoint.receive_short(any, &mut *self.buffer) {
                Some(status) => status,
                None => return self.serve_slowly(timeout, None, program),
            },
            Some(_) => match endpoint.now().receive_event_into(any, &mut *self.buffer) {
                Ok(Some(Event::Received(status))) => status,
                // The way of a program that polls.
                Ok(None) if timeout == Some(Duration::ZERO) => return Ok(false),
                Ok(None) => return self.serve_slowly(timeout, None, program),
                other => return self.serve_slowly(timeout, Some(other), program),
            },
        };
        let (tag, source) = (Tag(status.tag), status.source);
        if self.sending.circuits.is_from_monitor(source) {
            return self.serve_frame(&status, timeout, program);
        }
        if status.immediate.is_none()
            && tag.ordinal() != 0
            && let Some(client) = self.sending.clients.of_number(tag.binding(), source)
        {
            let bytes = in_buffer(&self.buffer, &status);
            let none = &mut self.no_capabilities;
            if dispatch(&mut self.sending, client, tag, bytes, none, program) {
                self.note_refused(client);
            }
            return Ok(true);
        }
        self.serve_slowly(timeout, Some(Ok(Some(Event::Received(status)))), program)
    }

    /// Serves a frame of the monitor, which is usually a whole message without capabilities.
    #[inline]
    fn serve_frame(
        &mut self,
        status: &Status,
        timeout: Option<Duration>,
        program: &mut impl Dispatch,
    ) -> Result<bool, ServeError> {
        let Some(hop) = status.immediate.and_then(Hop::of_word) else { return Ok(true) };
        let payload = in_buffer(&self.buffer, status);
        let lines = lines_of(payload.len());
        let (began, label) = (trace::begin(), Label::of_word(status.tag));
        let came = self.sending.circuits.frame(label, hop, payload);
        if began != 0 {
            self.sending.circuits.begin_serving(began, label, hop, payload.len());
        }
        let came = match came {
            Ok(Arrival::Short(index, head, bytes)) => {
                if let Some(client) = self.sending.circuits.usual_client(index, head) {
                    let tag = Tag::new(0, head.ordinal, head.token);
                    let none = &mut self.no_capabilities;
                    let refused = dispatch(&mut self.sending, client, tag, bytes, none, program);
                    self.sending.circuits.end_serving();
                    if refused {
                        self.note_refused(client);
                    }
                    return Ok(true);
                }
                Ok(Owned::Message(index, head, Bytes::of(bytes)))
            }
            came => came.map(Owned::of),
        };
        match self.circuit_came(came, lines) {
            Some(found) => Ok(self.serve_found(found, program)),
            None => {
                self.sending.circuits.serve_nothing();
                self.serve_slowly(timeout, None, program)
            }
        }
    }

    #[cold]
    fn serve_slowly(
        &mut self,
        timeout: Option<Duration>,
        event: Option<Result<Option<Event<Status>>, MessageError>>,
        program: &mut impl Dispatch,
    ) -> Result<bool, ServeError> {
        match self.next(Patience::of(timeout), event)? {
            None => Ok(false),
            Some(found) => Ok(self.serve_found(found, program)),
        }
    }

    #[cold]
    fn serve_found(&mut self, found: Found, program: &mut impl Dispatch) -> bool {
        // What has memory of its own lives until it is handled.
        let (owned, message);
        let (client, tag, bytes, mut capabilities) = match found {
            Found::Other => return true,
            Found::Bound(client, identity) => {
                program.bound(client, identity);
                return true;
            }
            Found::Gone(client) => {
                program.gone(client);
                return true;
            }
            Found::NotTaken(client, ordinal) => {
                program.not_taken(client, ordinal);
                return true;
            }
            Found::Buffered(client, status, capabilities) => {
                (client, Tag(status.tag), in_buffer(&self.buffer, &status), capabilities)
            }
            Found::Owned(client, found, capabilities) => {
                owned = found;
                (client, Tag(owned.status().tag), &*owned, capabilities)
            }
            Found::Message(client, mut found) => {
                let capabilities = std::mem::take(found.capabilities_mut());
                message = found;
                (client, message.tag(), &*message, capabilities)
            }
        };
        let is_refused =
            dispatch_slowly(&mut self.sending, client, tag, bytes, &mut capabilities, program);
        self.sending.circuits.end_serving();
        if is_refused {
            self.note_refused(client);
        }
        true
    }

    #[cold]
    fn note_refused(&mut self, client: ClientId) {
        self.refused_count += 1;
        self.sending.count_refused(client);
    }

    /// What comes next. `event` has come already.
    fn next(
        &mut self,
        patience: Patience,
        mut event: Option<Result<Option<Event<Status>>, MessageError>>,
    ) -> Result<Option<Found>, ServeError> {
        let mut halves = 0;
        for looks in 0_usize.. {
            // What is not the program's, however much of it comes, must not hold up the caller.
            if looks >= LOOKS_MAX && matches!(patience.left(), Err(Late::Timeout { .. })) {
                return Ok(Some(Found::Other));
            }
            let (received, is_late) = match event.take() {
                Some(event) => (event, false),
                None => {
                    self.sending.has_forgotten_sent();
                    if !self.sending.circuits.is_quiet()
                        && let Some(found) = self.tend_circuits()
                    {
                        return Ok(Some(found));
                    }
                    if let Some(client) = self.sending.cut_off.pop() {
                        return Ok(Some(Found::Gone(client)));
                    }
                    self.has_mail |= std::mem::take(&mut self.sending.was_interrupted);
                    self.has_mail |= self.sending.circuits.take_interrupted();
                    // What a monitor had sent comes before its successor.
                    let is_ending = self.sending.circuits.is_ending();
                    if self.has_mail && !self.was_mail && !is_ending {
                        self.was_mail = true;
                        match self.mailbox.take() {
                            Taken::Stop => {
                                self.was_stopped = true;
                                return Ok(None);
                            }
                            Taken::Nothing => self.has_mail = false,
                            Taken::Mail(mail) => match self.open(mail) {
                                Some(found) => return Ok(Some(found)),
                                None => continue,
                            },
                        }
                    }
                    self.was_mail = false;
                    if is_ending {
                        match self.end_link()? {
                            Some(found) => return Ok(Some(found)),
                            None => continue,
                        }
                    }
                    let had_mail = self.has_mail;
                    (self.receive(patience), !had_mail)
                }
            };
            let found = match received {
                Ok(None) if is_late => return Ok(None),
                // It is there, and too long for the buffer.
                Err(MessageError::BufferTooSmall { .. }) => match self.long()? {
                    Long::Handled(found) => found,
                    Long::Half => {
                        // Its sender has stopped in the middle of it. What waits behind it comes first now.
                        halves += 1;
                        match patience.left() {
                            _ if self.has_mail || halves < HALVES_MAX => {}
                            Ok(left) => {
                                let left = left.map_or(HALF, |left| left.min(HALF));
                                self.sending.wait(Some(left))?;
                            }
                            Err(_) => return Ok(None),
                        }
                        None
                    }
                },
                received => self.handle(received, Self::buffered)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Handles a message that is longer than the buffer. Only a bound client may send one, and none that is longer than
    /// any of the interface: no memory is allocated for others.
    #[cold]
    fn long(&mut self) -> Result<Long, ServeError> {
        let any = Selector::any();
        let status = match self.sending.endpoint.now().probe(any) {
            Ok(Some(status)) => status,
            Ok(None) => return Ok(Long::Half),
            Err(error) => return Ok(Long::Handled(self.handle(Err(error), Self::buffered)?)),
        };
        let bytes_max = u64::from(self.mailbox.description().bytes_max());
        let client = self.sending.clients.of_number(Tag(status.tag).binding(), status.source);
        let bytes = status.bytes;
        let is_bound = client.is_some() && bytes <= bytes_max;
        let fault = match client {
            _ if is_bound || self.is_far_offer(&status) => {
                match self.sending.endpoint.now().receive_event(any) {
                    Ok(None) => return Ok(Long::Half),
                    Err(MessageError::NoMemory { .. }) => {
                        format!("there is no memory for its message of {bytes} bytes")
                    }
                    event => return Ok(Long::Handled(self.handle(event, Self::owned)?)),
                }
            }
            _ => format!("it sent a message of {bytes} bytes: at most {bytes_max} are possible"),
        };
        self.refused_count += 1;
        let discarded = self.sending.endpoint.discard(any.from(status.source));
        if matches!(discarded, Err(MessageError::Interrupted)) {
            // The message is found again.
            self.has_mail = true;
            return Ok(Long::Handled(None));
        }
        if self.sending.circuits.is_from_monitor(status.source) {
            self.link_down();
        } else if let Some(client) = client.or(self.sending.clients.of_peer(status.source)) {
            self.sending.cut_off(client, &fault);
        }
        Ok(Long::Handled(None))
    }

    /// Whether it is the interface of a client of another host, which binds.
    #[cfg(feature = "net")]
    fn is_far_offer(&self, status: &Status) -> bool {
        Control::of(Tag(status.tag)) == Some(Control::Bind)
            && status.bytes <= crate::exchange::FAR_OFFER_BYTES_MAX
            && self.sending.endpoint.is_far(status.source)
    }

    #[cfg(not(feature = "net"))]
    #[expect(clippy::unused_self, reason = "it has no clients of other hosts")]
    const fn is_far_offer(&self, _: &Status) -> bool {
        false
    }

    /// What the endpoint has. Does not wait while there is mail.
    fn receive(&mut self, patience: Patience) -> Result<Option<Event<Status>>, MessageError> {
        let owes_notes = self.sending.owes_notes();
        let (endpoint, any) = (&mut self.sending.endpoint, Selector::any());
        let buffer = &mut *self.buffer;
        match patience.left() {
            _ if self.has_mail => endpoint.now().receive_event_into(any, buffer),
            // A receive would not return when what is kept has gone.
            Ok(left) if owes_notes => match endpoint.now().receive_event_into(any, buffer) {
                Ok(None) => {
                    self.sending.wait(left)?;
                    Err(MessageError::Interrupted)
                }
                event => event,
            },
            Ok(None) => endpoint.receive_event_into(any, buffer).map(Some),
            Ok(Some(left)) => endpoint.within(left).receive_event_into(any, buffer),
            Err(_) => endpoint.now().receive_event_into(any, buffer),
        }
    }

    /// Handles what the endpoint has reported; `received` handles a message.
    fn handle<M>(
        &mut self,
        event: Result<Option<Event<M>>, MessageError>,
        received: impl FnOnce(&mut Self, M) -> Option<Found>,
    ) -> Result<Option<Found>, ServeError> {
        match event {
            Ok(Some(Event::Received(message))) => Ok(received(self, message)),
            Ok(Some(Event::Gone { peer, why })) => {
                // What nobody receives here would stay, and make every receive look at it.
                for space in [Selector::requests(), Selector::untagged()] {
                    let discarded = self.sending.endpoint.discard(space.from(peer));
                    self.has_mail |= matches!(discarded, Err(MessageError::Interrupted));
                }
                if self.sending.circuits.is_from_monitor(peer) {
                    // If it has ended, the end of its control lane comes behind what is in there.
                    if matches!(why, MessageError::PeerCutOff { .. }) {
                        self.link_down();
                    }
                    return Ok(None);
                }
                let client = self.sending.clients.of_peer(peer);
                Ok(client.and_then(|client| self.gone(client)))
            }
            Ok(Some(Event::Came(_)) | None) => Ok(None),
            Err(MessageError::Interrupted) => {
                self.has_mail = true;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A message of a ring whose bytes are in the buffer.
    pub(super) fn buffered(&mut self, status: Status) -> Option<Found> {
        let tag = Tag(status.tag);
        if self.sending.circuits.is_from_monitor(status.source) {
            let hop = status.immediate.and_then(Hop::of_word)?;
            let payload = in_buffer(&self.buffer, &status);
            let (label, lines) = (Label::of_word(status.tag), lines_of(payload.len()));
            let began = trace::begin();
            let came = self.sending.circuits.frame(label, hop, payload).map(Owned::of);
            if began != 0 {
                self.sending.circuits.begin_serving(began, label, hop, payload.len());
            }
            let found = self.circuit_came(came, lines);
            if found.is_none() {
                self.sending.circuits.serve_nothing();
            }
            return found;
        }
        if tag.ordinal() == 0 {
            let message = in_buffer(&self.buffer, &status).to_vec();
            return self.control(status, &message);
        }
        let client = self.sender(status)?;
        let capabilities = match status.immediate {
            None => Vec::new(),
            Some(_) => self.beside(client, tag)?,
        };
        Some(Found::Buffered(client, status, capabilities))
    }

    fn owned(&mut self, message: OwnedMessage) -> Option<Found> {
        let status = message.status();
        let tag = Tag(status.tag);
        if tag.ordinal() == 0 {
            return self.control(status, &message);
        }
        let client = self.sender(status)?;
        let capabilities = match status.immediate {
            None => Vec::new(),
            Some(_) => self.beside(client, tag)?,
        };
        Some(Found::Owned(client, message, capabilities))
    }

    #[inline]
    fn sender(&mut self, status: Status) -> Option<ClientId> {
        let client = self.sending.clients.of_number(Tag(status.tag).binding(), status.source);
        if client.is_none() {
            self.refused_count += 1;
        }
        client
    }

    /// The capabilities of a message in a ring.
    #[cold]
    fn beside(&mut self, client: ClientId, tag: Tag) -> Option<Vec<Received>> {
        let beside = self.sending.clients.get(client)?.lane.beside().map(Arc::clone);
        // One on another host has nothing beside the rings.
        match beside.map_or(Err(LaneError::Order), |beside| beside.take_beside(tag)) {
            Ok(capabilities) => Some(capabilities),
            Err(LaneError::Lost) => {
                self.lost(client, tag);
                None
            }
            Err(LaneError::Order) => {
                self.refused_count += 1;
                self.sending.cut_off(client, "it announced capabilities and sent none");
                None
            }
        }
    }

    /// Tells a client that the capabilities of its message were lost here.
    #[cold]
    pub(super) fn lost(&mut self, client: ClientId, tag: Tag) {
        match tag.token() {
            0 => {
                let note = Tag::control(client.binding(), Control::NotTaken);
                let note = Frame::note(note, u64::from(tag.ordinal()));
                let _ = self.sending.reply(client, note, &Capabilities::new());
            }
            _ => {
                let began = self.sending.totals.request(tag.ordinal(), 0);
                Reply::new(&mut self.sending, client, tag, began).not_taken();
            }
        }
    }

    /// Handles what another thread has left.
    fn open(&mut self, mail: Mail) -> Option<Found> {
        match mail {
            Mail::SocketClient(socket_client, message) => {
                socket_client.take_unhandled(&message);
                self.socket_client_message(&socket_client, message)
            }
            Mail::SocketClientGone(socket_client) => self.socket_client_gone(&socket_client),
            Mail::SocketClientLate(socket_client) => {
                self.socket_client_late(&socket_client);
                None
            }
            Mail::Link(link) => self.link_up(*link),
            Mail::MonitorEvent(control, news) => self.on_monitor_event(&control, news),
            Mail::Reply(client, reply) => {
                let LaterMessage { tag, status, bytes, capabilities, is_error, began } = reply;
                let (ordinal, length) = (tag.ordinal(), bytes.len());
                match tag.token() & PART {
                    0 => {
                        let took = began.map(|began| began.elapsed());
                        let answer = Answer { ordinal, bytes: length, is_error, took };
                        self.sending.totals.reply(answer);
                    }
                    _ => self.sending.totals.part(ordinal, length),
                }
                let frame = Frame { tag, status, bytes: &bytes };
                let capabilities = Capabilities::of_owned(&capabilities);
                // The caller learns of those that cannot be sent.
                let _ = self.sending.reply(client, frame, &capabilities);
                None
            }
            Mail::Event(Some(client), event) => {
                self.sending.event(client, &event);
                None
            }
            Mail::Event(None, event) => {
                for index in 0..self.sending.clients.len() {
                    if let Some(client) = self.sending.clients.at(index) {
                        self.sending.event(client, &event);
                    }
                }
                None
            }
        }
    }

    pub(super) fn gone(&mut self, client: ClientId) -> Option<Found> {
        let row: Row = self.sending.clients.remove(client)?;
        if let Some(socket_client) = row.lane.beside() {
            socket_client.close();
        }
        row.is_bound().then_some(Found::Gone(client))
    }

    /// A message of a client that is bound by its socket.
    fn socket_client_message(
        &mut self,
        socket_client: &Arc<SocketClient>,
        message: Message,
    ) -> Option<Found> {
        let tag = message.tag();
        if tag.ordinal() == 0 {
            return self.socket_client_control(socket_client, &message);
        }
        let client = *socket_client.id.get()?;
        let row = self.sending.clients.get(client)?;
        let is_its = row.lane.socket().is_some() && tag.binding() == client.binding();
        match message.status() {
            Some(status::LOST_HERE) if is_its => {
                self.lost(client, tag);
                None
            }
            None if is_its => Some(Found::Message(client, message)),
            _ => {
                self.refused_count += 1;
                self.sending.count_refused(client);
                None
            }
        }
    }
}

/// The bytes of a message that was received into the buffer.
#[inline(always)]
fn in_buffer<'a>(buffer: &'a [u8; BUFFER_BYTES], status: &Status) -> &'a [u8] {
    let length = usize::try_from(status.bytes).unwrap_or(usize::MAX);
    buffer.get(..length).unwrap_or(buffer)
}
