//! Receiving, with arrivals and departures of peers as events between the messages.

use std::time::Duration;

use corewire_endpoint::{
    Caller, MessageError, OwnedMessage, Peer, PeerEvent, Selector, Status, Target,
};

use super::calls::{DetachedRequest, Request};
use super::receive::{IntoBuffer, Owned, none_if_late};
use super::{Endpoint, after};
use crate::wait::Patience;

/// An event that a server receives: see [`Endpoint::receive_event`].
#[derive(Debug)]
pub enum Event<M> {
    /// A new peer. No message from it has been received since the first call that returns events.
    Came(Peer),
    /// A message, or a request.
    Received(M),
    /// A peer has gone. All of its messages that the selector asks for have been received.
    Gone {
        /// The peer. [`Endpoint::name_of`] returns its name until another peer gets its row.
        peer: Peer,
        /// [`MessageError::PeerDied`], `PeerLeft` or `PeerCutOff`.
        why: MessageError,
    },
}

impl Endpoint {
    /// Like [`receive`](Self::receive), but also returns when a peer has come or gone. A server can thus keep a state
    /// for each of its clients, and drop it. The first call reports the peers that are linked then. Peers that went
    /// before are not reported, even if messages of them are left.
    ///
    /// From the first call on, a peer that has gone keeps its [place](crate::EndpointBuilder::peers) until its event
    /// has been received. A program that begins to receive events must therefore continue.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-event-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// use corewire::{Event, Selector};
    ///
    /// let mut server = domain.endpoint("server").create()?;
    /// let mut client = domain.endpoint("client").create()?;
    /// let to_server = client.peer("server")?;
    /// client.send(to_server, 7, b"hello")?;
    /// client.close()?;
    ///
    /// let any = Selector::any();
    /// assert!(matches!(server.receive_event(any)?, Event::Came(_)));
    /// assert!(matches!(server.receive_event(any)?, Event::Received(hello) if hello == *b"hello"));
    /// assert!(matches!(server.receive_event(any)?, Event::Gone { .. }));
    /// # drop((server, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_event(
        &mut self,
        selector: Selector,
    ) -> Result<Event<OwnedMessage>, MessageError> {
        self.event(selector, Patience::Forever)
    }

    /// Like [`receive_event`](Self::receive_event), but stores a message at the beginning of `buffer`. Allocates
    /// nothing for a short message.
    ///
    /// # Errors
    /// [`MessageError::BufferTooSmall`], after which the message can still be received; otherwise as for
    /// [`receive`](Self::receive).
    #[inline]
    pub fn receive_event_into(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Event<Status>, MessageError> {
        match self.receive_short(selector, buffer) {
            Some(status) => Ok(Event::Received(status)),
            None => self.event_into(selector, buffer, Patience::Forever),
        }
    }

    /// The usual way of [`receive_event_into`](Self::receive_event_into), for servers that count nanoseconds: polls for a
    /// message of up to 160 bytes. `None` if something else must be handled first, such as an event, a longer message or
    /// a sleep: then call `receive_event_into`.
    #[inline(always)]
    pub fn receive_short(&mut self, selector: Selector, buffer: &mut [u8]) -> Option<Status> {
        if !self.engine.has_no_peer_event() || self.engine.has_notice() {
            return None;
        }
        self.receive_polling(IntoBuffer { selector, buffer })
    }

    /// Like [`receive_event_into`](Self::receive_event_into), but never blocks.
    #[inline]
    pub(super) fn event_into_now(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Option<Event<Status>>, MessageError> {
        if self.engine.has_no_peer_event()
            && !self.engine.has_notice()
            && let Some(found) = self.look_once(IntoBuffer { selector, buffer })
        {
            return Ok(found.map(Event::Received));
        }
        none_if_late(self.event_into(selector, buffer, Patience::None))
    }

    #[cold]
    pub(super) fn event_into(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Event<Status>, MessageError> {
        self.engine.watch_peers();
        self.handle_notices()?;
        if let Some(event) = self.engine.next_peer_event(&selector) {
            return Ok(event.into());
        }
        let way = IntoBuffer { selector, buffer: &mut *buffer };
        let short = match patience {
            Patience::Forever => self.receive_polling(way),
            Patience::None => match self.look_once(way) {
                Some(None) => return Err(MessageError::Timeout { after: Duration::ZERO }),
                found => found.flatten(),
            },
            Patience::Until(..) => self.look_once(way).flatten(),
        };
        match short {
            Some(status) => Ok(Event::Received(status)),
            None => self.event_slowly(selector, &mut &mut *buffer, patience),
        }
    }

    /// Like [`receive_request`](Self::receive_request), but also returns when a peer has come or gone. A request is
    /// [detached](Request::detach), and [`reply`](Self::reply) replies to it. Otherwise like
    /// [`receive_event`](Self::receive_event).
    ///
    /// # Errors
    /// As for [`receive_request`](Self::receive_request).
    pub fn receive_request_event(&mut self) -> Result<Event<DetachedRequest>, MessageError> {
        let event = self.receive_event(Selector::requests())?;
        Ok(self.as_request(event))
    }

    pub(super) fn as_request(&mut self, event: Event<OwnedMessage>) -> Event<DetachedRequest> {
        match event {
            Event::Came(peer) => Event::Came(peer),
            Event::Received(message) => Event::Received(Request::new(self, message).detach()),
            Event::Gone { peer, why } => Event::Gone { peer, why },
        }
    }

    pub(super) fn event(
        &mut self,
        selector: Selector,
        patience: Patience,
    ) -> Result<Event<OwnedMessage>, MessageError> {
        self.engine.watch_peers();
        self.handle_notices()?;
        if let Some(event) = self.engine.next_peer_event(&selector) {
            return Ok(event.into());
        }
        let short = match patience {
            Patience::Forever => self.receive_polling(Owned(selector)),
            _ => self.look_once(Owned(selector)).flatten(),
        };
        match short {
            Some(message) => Ok(Event::Received(message)),
            None => {
                let mut target = self.engine.new_message();
                Ok(match self.event_slowly(selector, target.as_target(), patience)? {
                    Event::Came(peer) => Event::Came(peer),
                    Event::Received(status) => Event::Received(target.finish(status)),
                    Event::Gone { peer, why } => Event::Gone { peer, why },
                })
            }
        }
    }

    #[inline(never)]
    fn event_slowly(
        &mut self,
        selector: Selector,
        target: &mut dyn Target,
        patience: Patience,
    ) -> Result<Event<Status>, MessageError> {
        enum Found {
            Peer(PeerEvent),
            Message(Status),
        }
        let found = |endpoint: &mut Self, caller: &Caller<'_>| {
            if let Some(event) = endpoint.engine.next_peer_event_for(caller) {
                return Some(Ok(Found::Peer(event)));
            }
            Some(endpoint.engine.end_of(caller)?.map(Found::Message))
        };
        let mut caller = Caller::new(selector, target).reporting_peers();
        self.engine.begin_receive(&mut caller)?;
        let ended = match (found(self, &caller), patience) {
            (Some(end), _) => Ok(end),
            (None, Patience::None) => loop {
                match self.engine.progress(Some(&mut caller)) {
                    Err(error) => break Err(error),
                    Ok(is_busy) => match found(self, &caller) {
                        Some(end) => break Ok(end),
                        // A large message is copied at once.
                        None if is_busy && self.engine.is_pulling_for_caller() => {}
                        None => break Err(MessageError::Timeout { after: Duration::ZERO }),
                    },
                }
            },
            (None, _) => self.wait_for(patience, Some(&mut caller), None, |endpoint, caller| {
                caller.and_then(|caller| found(endpoint, caller))
            }),
        };
        self.engine.leave(&mut caller);
        match ended {
            Ok(Ok(Found::Peer(event))) => Ok(event.into()),
            Ok(Ok(Found::Message(status))) => Ok(Event::Received(status)),
            Ok(Err(error)) => Err(error),
            Err(MessageError::Timeout { .. }) => {
                Err(MessageError::Timeout { after: after(patience) })
            }
            Err(other) => Err(other),
        }
    }
}

impl<M> From<PeerEvent> for Event<M> {
    fn from(event: PeerEvent) -> Self {
        match event {
            PeerEvent::Came(peer) => Self::Came(peer),
            PeerEvent::Gone { peer, why } => Self::Gone { peer, why },
        }
    }
}
