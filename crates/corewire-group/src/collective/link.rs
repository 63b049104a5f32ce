//! One message from one member to another, and how members hear of the end of others.

use std::time::{Duration, Instant};

use corewire::{Event, MessageError, Peer, Selector, Status};

use super::connect::Of;
use super::{CollectiveError, Communicator};

/// The longest piece of a message: it goes through cells, so that the sender does not wait for the receiver as long as
/// there is room.
pub(super) const PIECE_BYTES: usize = 32 << 10;
/// Messages of up to so many bytes are sent whole, or not at all.
const WHOLE_BYTES: usize = 160;
/// Times that a member yields its processor before it waits, if there are too few of them.
const YIELDS: u32 = 1000;
/// How often a member that waits for room looks whether another one has ended.
pub(super) const LOOKS_EVERY: Duration = Duration::from_millis(1);
/// How long the kernel may take to tell one member of a death that it has told another one of.
const DEATH_WITHIN: Duration = Duration::from_millis(250);
/// A tag that no message has.
const NO_TAG: u64 = u64::MAX;
impl Communicator {
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.members.len()).filter(move |other| *other != rank)
    }

    /// Begins a call: returns its tag.
    pub(super) fn begin(&mut self) -> Result<u64, CollectiveError> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        self.calls += 1;
        Ok(self.calls)
    }

    /// Sends a message, in pieces. Waits only for room.
    #[inline]
    pub(super) fn send(
        &mut self,
        to: usize,
        tag: u64,
        mut bytes: &[u8],
    ) -> Result<(), CollectiveError> {
        let Some(peer) = self.peers[to] else { return Ok(()) };
        loop {
            let (piece, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES));
            let sent = match &mut self.endpoint {
                Some(endpoint) => endpoint.try_send(peer, tag, piece).is_ok(),
                None => return self.begin().map(drop),
            };
            if !sent {
                self.send_slowly(to, peer, tag, piece)?;
            }
            bytes = rest;
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    #[cold]
    fn send_slowly(
        &mut self,
        to: usize,
        peer: Peer,
        tag: u64,
        piece: &[u8],
    ) -> Result<(), CollectiveError> {
        let mut yields = if self.is_crowded { YIELDS } else { 0 };
        loop {
            let Some(endpoint) = &mut self.endpoint else { return self.begin().map(drop) };
            let sent = match yields {
                0 => endpoint.send_timeout(peer, tag, piece, LOOKS_EVERY),
                // The member that makes room waits for this processor, probably.
                _ => {
                    yields -= 1;
                    std::thread::yield_now();
                    endpoint.try_send(peer, tag, piece)
                }
            };
            match sent {
                Ok(()) => return Ok(()),
                Err(MessageError::Full { .. } | MessageError::Timeout { .. }) => {}
                Err(error) => return Err(self.failed(to, error)),
            }
            self.poll_events()?;
            self.advance_all()?;
        }
    }

    /// Looks whether a member has ended, for calls that wait for something else than a message.
    pub(super) fn poll_events(&mut self) -> Result<(), CollectiveError> {
        let Some(endpoint) = &mut self.endpoint else { return self.begin().map(drop) };
        match endpoint.now().receive_event_into(Selector::tag(NO_TAG), &mut [])? {
            Some(Event::Gone { peer, why }) => self.on_end(peer, &why),
            _ => Ok(()),
        }
    }

    /// Ends a call in which a message had so many bytes: waits until all pieces are where their receivers find them,
    /// also if this member makes no call for a while.
    #[inline]
    pub(super) fn settle(&mut self, bytes: usize) -> Result<(), CollectiveError> {
        if bytes <= WHOLE_BYTES {
            return Ok(());
        }
        while let Some(endpoint) = &mut self.endpoint
            && endpoint.has_pending_sends()
        {
            match endpoint.within(LOOKS_EVERY).flush() {
                Ok(()) => break,
                Err(MessageError::Timeout { .. }) => {
                    self.poll_events()?;
                    self.advance_all()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives a message of this length, in pieces.
    #[inline]
    pub(super) fn receive(
        &mut self,
        from: usize,
        tag: u64,
        buffer: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let mut at = 0;
        loop {
            let end = buffer.len().min(at + PIECE_BYTES);
            let bytes = self.receive_some(from, tag, &mut buffer[at..end])?;
            if bytes != end - at {
                return Err(self.wrong_length(from, bytes as u64, end - at));
            }
            at = end;
            if at == buffer.len() {
                return Ok(());
            }
        }
    }

    /// Receives the next message with this tag, of at most `buffer` bytes.
    #[inline]
    pub(super) fn receive_some(
        &mut self,
        from: usize,
        tag: u64,
        buffer: &mut [u8],
    ) -> Result<usize, CollectiveError> {
        let Some(peer) = self.peers[from] else { return Ok(0) };
        let selector = Selector::tag(tag).from(peer);
        let mut yields = if self.is_crowded { YIELDS } else { 0 };
        loop {
            let others_wait = !self.under_way.is_empty();
            let Some(endpoint) = &mut self.endpoint else { return self.begin().map(|_| 0) };
            let event = match yields {
                0 => match endpoint.receive_short(selector, buffer) {
                    Some(status) => Ok(Some(Event::Received(status))),
                    None if others_wait => {
                        endpoint.within(LOOKS_EVERY).receive_event_into(selector, buffer)
                    }
                    None => endpoint.receive_event_into(selector, buffer).map(Some),
                },
                // Its sender waits for this processor, probably.
                _ => endpoint.now().receive_event_into(selector, buffer),
            };
            let has_nothing = matches!(event, Ok(None));
            if let Some(bytes) = self.understand(from, peer, event)? {
                return Ok(bytes);
            }
            if others_wait {
                self.advance_all()?;
            }
            if has_nothing && yields > 0 {
                yields -= 1;
                std::thread::yield_now();
            }
        }
    }

    /// The same for at most so long.
    pub(super) fn receive_within(
        &mut self,
        from: usize,
        tag: u64,
        limit: Duration,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, CollectiveError> {
        let Some(peer) = self.peers[from] else { return Ok(Some(0)) };
        loop {
            let Some(endpoint) = &mut self.endpoint else { return self.begin().map(|_| None) };
            let event =
                endpoint.within(limit).receive_event_into(Selector::tag(tag).from(peer), buffer);
            let has_nothing = matches!(event, Ok(None));
            match self.understand(from, peer, event)? {
                None if has_nothing => return Ok(None),
                None => {}
                came => return Ok(came),
            }
        }
    }

    /// Waits a moment for room.
    pub(super) fn wait_for_room(&mut self) -> Result<(), CollectiveError> {
        std::thread::yield_now();
        let Some(endpoint) = &mut self.endpoint else { return self.begin().map(drop) };
        match endpoint.within(LOOKS_EVERY).receive_event_into(Selector::tag(NO_TAG), &mut [])? {
            Some(Event::Gone { peer, why }) => self.on_end(peer, &why),
            _ => Ok(()),
        }
    }

    /// Sends one piece now, if there is room.
    pub(super) fn send_now(
        &mut self,
        to: usize,
        tag: u64,
        piece: &[u8],
    ) -> Result<bool, CollectiveError> {
        let Some(peer) = self.peers[to] else { return Ok(true) };
        let Some(endpoint) = &mut self.endpoint else { return self.begin().map(|_| false) };
        match endpoint.try_send(peer, tag, piece) {
            Ok(()) => Ok(true),
            Err(MessageError::Full { .. }) => self.poll_events().map(|()| false),
            Err(error) => Err(self.failed(to, error)),
        }
    }

    /// What an event means for a call that waits for a message of `peer`: the message's bytes, nothing, or the end.
    #[inline]
    fn understand(
        &mut self,
        from: usize,
        peer: Peer,
        event: Result<Option<Event<Status>>, MessageError>,
    ) -> Result<Option<usize>, CollectiveError> {
        match event {
            Ok(Some(Event::Received(status))) => {
                Ok(Some(usize::try_from(status.bytes).unwrap_or(usize::MAX)))
            }
            Ok(Some(Event::Came(_)) | None) => Ok(None),
            Ok(Some(Event::Gone { peer: gone, why })) if gone == peer => {
                Err(self.failed(from, why))
            }
            Ok(Some(Event::Gone { peer, why })) => self.on_end(peer, &why).map(|()| None),
            Err(MessageError::BufferTooSmall { needed, given }) => {
                Err(self.wrong_length(from, needed, given))
            }
            Err(error) => Err(self.failed(from, error)),
        }
    }

    /// Sends one message and receives another one, piece by piece in turn: two that do this with each other never both
    /// wait for room.
    #[inline]
    pub(super) fn send_receive(
        &mut self,
        (to, bytes): (usize, &[u8]),
        (from, buffer): (usize, &mut [u8]),
        tag: u64,
    ) -> Result<(), CollectiveError> {
        if bytes.len() <= PIECE_BYTES && buffer.len() <= PIECE_BYTES {
            self.send(to, tag, bytes)?;
            return self.receive(from, tag, buffer);
        }
        let mut pieces = bytes.chunks(PIECE_BYTES);
        let mut places = buffer.chunks_mut(PIECE_BYTES);
        loop {
            let (piece, place) = (pieces.next(), places.next());
            if let Some(piece) = piece {
                self.send(to, tag, piece)?;
            }
            match (piece, place) {
                (_, Some(place)) => self.receive(from, tag, place)?,
                (None, None) => return Ok(()),
                (Some(_), None) => {}
            }
        }
    }

    /// Members that disagree on lengths understand nothing any more.
    pub(super) fn wrong_length(
        &mut self,
        from: usize,
        found: u64,
        expected: usize,
    ) -> CollectiveError {
        let error = CollectiveError::Length { member: self.members[from], found, expected };
        self.end(error)
    }

    /// Nothing follows. Others that need this member hear that it has left.
    fn end(&mut self, error: CollectiveError) -> CollectiveError {
        self.endpoint = None;
        self.ended.get_or_insert(error).clone()
    }

    /// Another member than the one that a call waits for has gone. Who has left in order has done its part.
    fn on_end(&mut self, peer: Peer, why: &MessageError) -> Result<(), CollectiveError> {
        let Some(rank) = self.peers.iter().position(|one| *one == Some(peer)) else {
            return Ok(());
        };
        match why {
            MessageError::PeerLeft { .. } => Ok(()),
            why => Err(self.failed(rank, why.clone())),
        }
    }

    /// The error for a member that cannot be spoken with. If it has ended, so has the communicator.
    fn failed(&mut self, rank: usize, error: MessageError) -> CollectiveError {
        let (rank, why) = match error {
            MessageError::PeerDied { .. }
            | MessageError::PeerCutOff { .. }
            | MessageError::PeerLost { .. } => (rank, error),
            // It may have left because another one has died, whom this member has not heard of yet.
            MessageError::PeerLeft { .. } | MessageError::UnknownPeer => {
                self.wait_for_death().unwrap_or((rank, error))
            }
            other => return other.into(),
        };
        let member = self.members[rank];
        let error = match &self.origin.of {
            Of::Group { name, .. } => CollectiveError::Ended { name: name.clone(), member },
            Of::Names(_) => CollectiveError::Gone { rank, why },
        };
        self.end(error)
    }

    /// Who has died or is lost, if the kernel reports somebody soon.
    fn wait_for_death(&mut self) -> Option<(usize, MessageError)> {
        let until = Instant::now().checked_add(DEATH_WITHIN)?;
        let endpoint = self.endpoint.as_mut()?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let nothing = Selector::tag(NO_TAG);
            match endpoint.within(left).receive_event_into(nothing, &mut []) {
                Ok(Some(Event::Gone {
                    peer,
                    why: why @ (MessageError::PeerDied { .. } | MessageError::PeerLost { .. }),
                })) => {
                    if let Some(rank) = self.peers.iter().position(|one| *one == Some(peer)) {
                        return Some((rank, why));
                    }
                }
                Ok(Some(_)) | Err(MessageError::Interrupted) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }
}
