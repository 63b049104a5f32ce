//! A client's end of a connection.
//!
//! A caller that waits reads everything that comes, in the order in which the service sent it: its own reply ends the
//! wait, and replies to other calls, events and notes are put where they belong. So no message that nobody asks for can
//! stand in front of one that somebody waits for.

mod asynchronous;
mod bind;
mod calling;
mod calls;
mod encoding;
mod events;
mod link;
mod pending;
mod sending;
mod streaming;
mod streams;
mod versions;

pub use self::asynchronous::{AsyncBinding, AsyncParts};
pub use self::bind::Bind;
use self::calls::Calls;
use self::events::Events;
use self::link::ClientLink;
pub use self::pending::Pending;
pub use self::streaming::{DecodeStream, PartStream, Parts};
use self::streams::Streams;
use crate::driver::Driver;
use crate::error::{CallError, none_if_busy};
use crate::exchange::{Form, Forms};
use crate::identity::Identity;
use crate::lane::Interest;
use crate::message::Message;
use crate::tag::{Control, PART};
use corewire::MessageError;
use corewire_circuit::patience::Patience;
use std::fmt;
use std::os::fd::OwnedFd;
use std::task::Waker;
use std::time::Duration;

/// What a program does once a message has been sent.
type Sent = Box<dyn FnOnce(Result<(), CallError>) + Send>;

/// A client's end of a connection, for generated code. Made by [`Bind::connect`](crate::Bind::connect).
///
/// Dropping it unbinds the client: the service forgets it.
pub struct Binding {
    link: ClientLink,
    number: u16,
    token: u32,
    forms: Forms,
    calls: Calls,
    streams: Streams,
    events: Events,
    decoded_bytes_max: usize,
    /// Told when the message that is kept has been sent.
    when_sent: Option<Sent>,
    /// How many messages that were kept have been sent.
    flush_count: u64,
    /// Tasks that wait for room.
    senders: Vec<Waker>,
    /// The memory in which requests are encoded.
    scratch: Vec<u8>,
    /// Why nothing more comes.
    end: Option<CallError>,
    service: String,
    driver: Driver,
    identity: Identity,
}

/// What [`Bind`](crate::Bind) knows about a new connection.
pub(crate) struct Bound {
    pub(crate) service: String,
    pub(crate) driver: Driver,
    pub(crate) number: u16,
    pub(crate) forms: Forms,
    pub(crate) identity: Identity,
    pub(crate) limits: Limits,
}

/// What a program may set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of events that wait for the program.
    pub(crate) event_bytes_max: usize,
    /// Memory of what is decoded of one message.
    pub(crate) decoded_bytes_max: usize,
}

impl Binding {
    pub(crate) fn new(link: ClientLink, bound: Bound) -> Self {
        let Bound { service, driver, number, forms, identity, limits } = bound;
        Self {
            link,
            number,
            token: 0,
            forms,
            calls: Calls::default(),
            streams: Streams::default(),
            events: Events::new(limits.event_bytes_max),
            decoded_bytes_max: limits.decoded_bytes_max,
            when_sent: None,
            flush_count: 0,
            senders: Vec::new(),
            scratch: Vec::new(),
            end: None,
            service,
            driver,
            identity,
        }
    }

    /// The driver that was bound.
    #[must_use]
    pub const fn driver(&self) -> Driver {
        self.driver
    }

    /// The service's name.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The service's process, by the kernel's word.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        self.identity
    }

    /// Replies that came after their caller had stopped waiting, and were discarded.
    #[must_use]
    pub const fn late_replies(&self) -> u64 {
        self.calls.late_count()
    }

    /// Which version of a message both sides know, by its index in the description.
    #[inline]
    #[must_use]
    pub fn form(&self, wire: usize) -> Form {
        self.forms.get(wire)
    }

    /// Memory in which a request can be encoded. [`give_scratch`](Self::give_scratch) returns it for the next one.
    #[inline]
    #[must_use]
    pub fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.scratch)
    }

    /// Returns the memory.
    #[inline]
    pub fn give_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = scratch;
    }

    pub(super) fn receive(&mut self, patience: Patience) -> Result<Message, CallError> {
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        if self.link.is_keeping() {
            return self.receive_keeping(patience);
        }
        let received = self.link.receive(patience).map_err(|error| self.ended(error));
        Ok(received?.limited(self.decoded_bytes_max))
    }

    /// The next message, if there is one.
    #[inline]
    pub(super) fn try_receive(&mut self) -> Result<Option<Message>, CallError> {
        if self.end.is_none() && !self.link.is_keeping() {
            let received = self.link.try_receive().map_err(|error| self.ended(error))?;
            return Ok(received.map(|message| message.limited(self.decoded_bytes_max)));
        }
        none_if_busy(self.receive(Patience::None))
    }

    /// Receives while a message is kept, which goes as soon as there is room: what is waited for may depend on it.
    #[cold]
    pub(super) fn receive_keeping(&mut self, patience: Patience) -> Result<Message, CallError> {
        while !self.has_flushed(Patience::None)? {
            match self.link.receive(Patience::None) {
                Err(CallError::Busy) => self.link.wait(patience)?,
                received => {
                    let received = received.map_err(|error| self.ended(error));
                    return Ok(received?.limited(self.decoded_bytes_max));
                }
            }
        }
        self.receive(patience)
    }

    /// Takes note of an error that ends the link.
    #[cold]
    pub(super) fn ended(&mut self, error: CallError) -> CallError {
        if is_end(&error) && self.end.is_none() {
            self.end = Some(error.clone());
            self.calls.end_all(&error);
            self.streams.end_all(&error);
            self.events.wake();
            self.wake_senders();
            if let Some(then) = self.when_sent.take() {
                then(Err(error.clone()));
            }
        }
        error
    }

    /// Takes note of an error of a send. What the service had sent before it ended counts: replies, and the reason.
    #[cold]
    pub(super) fn send_failed(&mut self, error: CallError) -> CallError {
        if is_end(&error) {
            while self.handle_next(Patience::None).is_ok() {}
        }
        match &self.end {
            Some(end) => end.clone(),
            None => {
                let error = self.link.end(error);
                self.ended(error)
            }
        }
    }

    /// Reads the next message and puts it where it belongs.
    pub(super) fn handle_next(&mut self, patience: Patience) -> Result<(), CallError> {
        self.cancel_dropped();
        let message = self.receive(patience)?;
        self.set_aside(message);
        Ok(())
    }

    /// Puts a message where it belongs.
    #[cold]
    pub(super) fn set_aside(&mut self, message: Message) {
        let tag = message.tag();
        match (tag.ordinal(), tag.token()) {
            (0, _) => match Control::of(tag) {
                Some(Control::Refuse) => {
                    let reason = String::from_utf8_lossy(message.get(..512).unwrap_or(&message));
                    let (name, reason) = (self.service.clone(), reason.into_owned());
                    self.ended(CallError::Unbound { name, reason });
                }
                Some(Control::Lost) => self.events.lost(message.status().unwrap_or(0)),
                Some(Control::NotTaken) => self.events.not_taken(),
                _ => {}
            },
            (_, 0) => self.events.put(message),
            (_, token) if token & PART != 0 => self.streams.part(message),
            (_, token) if self.streams.has(token) => {
                self.streams.end(message);
                self.wake_senders();
            }
            _ => {
                self.calls.reply(message);
                self.wake_senders();
            }
        }
    }

    /// The next message from the service that is no reply, and its ordinal. `None` waits without a limit.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::EventsLost`] where events are missing.
    pub fn event(&mut self, timeout: Option<Duration>) -> Result<(u16, Message), CallError> {
        self.event_by(Patience::of(timeout))
    }

    /// Like [`event`](Self::event), but never waits; `None` if there is no event now.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn try_event(&mut self) -> Result<Option<(u16, Message)>, CallError> {
        none_if_busy(self.event_by(Patience::None))
    }

    fn event_by(&mut self, patience: Patience) -> Result<(u16, Message), CallError> {
        for looks in 0_usize.. {
            if let Some(event) = self.events.take() {
                return event;
            }
            check_time(looks, patience)?;
            self.handle_next(patience)?;
        }
        Err(patience.late().into())
    }

    /// Handles what has come, and sends the message that is kept if there is room: tells continuations, and keeps
    /// events until they are asked for. Never waits. True if anything was done.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn progress(&mut self) -> Result<bool, CallError> {
        self.progress_far().map(|(has_done, _)| has_done)
    }

    /// The same; and whether everything was handled that had come.
    pub(crate) fn progress_far(&mut self) -> Result<(bool, bool), CallError> {
        self.cancel_dropped();
        // A receive sends what is kept, too.
        let was_keeping = self.link.is_keeping();
        let mut has_done = was_keeping && self.has_flushed(Patience::None)?;
        for _ in 0..PROGRESS_MAX {
            match self.handle_next(Patience::None) {
                Ok(()) => has_done = true,
                Err(CallError::Busy) => {
                    return Ok((has_done || was_keeping && !self.link.is_keeping(), true));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((true, false))
    }

    /// Like [`progress`](Self::progress), but waits until something has come, or the message that is kept has been sent.
    /// False if nothing happened within `timeout`; `None` waits without a limit.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, CallError> {
        let patience = Patience::of(timeout);
        while !self.progress()? {
            // Room for a message that is kept is something, too.
            let is_keeping = self.link.is_keeping();
            let waited = match is_keeping {
                true => self.link.wait(patience),
                false => self.handle_next(patience),
            };
            match waited {
                Ok(()) if is_keeping => {}
                Ok(()) => return self.progress().map(|_| true),
                Err(CallError::Timeout { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// A descriptor for an event loop: it can be read when something has come after [`arm`](Self::arm).
    ///
    /// # Errors
    /// [`CallError::Os`].
    pub fn readiness(&mut self) -> Result<OwnedFd, CallError> {
        self.link.readiness()
    }

    /// Announces that the caller will wait for the [`readiness`](Self::readiness) descriptor. False if something has
    /// come already: [`progress`](Self::progress) first. If a message is kept, wait until the descriptor can be written
    /// as well.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn arm(&mut self) -> Result<bool, CallError> {
        self.interest().map(|interest| interest.is_some())
    }

    pub(super) fn interest(&mut self) -> Result<Option<Interest>, CallError> {
        match &self.end {
            Some(end) => Err(end.clone()),
            None => self.link.arm(),
        }
    }
}

/// Messages that one call handles without waiting, of a service that sends as fast as they are read.
const PROGRESS_MAX: usize = 4096;

/// Ends a call whose time is over, after `looks` messages that were not for it. Some are read even then: what the call
/// waits for may be among them.
#[inline]
fn check_time(looks: usize, patience: Patience) -> Result<(), CallError> {
    match looks < PROGRESS_MAX || matches!(patience, Patience::None | Patience::Forever) {
        true => Ok(()),
        false => Ok(patience.left().map(drop)?),
    }
}

/// Whether nothing more comes after it.
const fn is_end(error: &CallError) -> bool {
    matches!(
        error,
        CallError::PeerDied { .. }
            | CallError::PeerLeft { .. }
            | CallError::CutOff { .. }
            | CallError::Lost { .. }
            | CallError::Unbound { .. }
            | CallError::Message(MessageError::PeerLost { .. })
    )
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding")
            .field("service", &self.service)
            .field("driver", &self.driver)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}
