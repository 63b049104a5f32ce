//! Receiving, and asking what is there.

use std::time::Duration;

use corewire_ring::pair::{Haste, Short};
use corewire_ring::sync::pause;

use super::buffer::{Buffer, Target};
use super::matching::{Posted, Selector};
use super::progress::{Caller, CallerState};
use super::requests::{Completion, Operation, Request};
use super::{Endpoint, Peer, Status, after};
use crate::error::MessageError;
use crate::wait::{BARE_POLLS, Patience, Wait};

/// A message that was received into memory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Whose it is, and its tag.
    pub status: Status,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A message that was claimed: no other receive gets it. To be received, or given back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a message that was claimed stays until it is received or given back"]
pub struct Matched {
    id: u64,
    /// Whose it is, its tag and its length.
    pub status: Status,
}

impl Endpoint {
    /// Receives a message that `selector` asks for into the beginning of `buffer`, waiting for it if need
    /// be.
    ///
    /// # Errors
    /// [`MessageError::BufferTooSmall`], which leaves the message to be received; if a peer is selected
    /// that has gone, and nothing of it is left, [`MessageError::PeerDied`], `PeerLeft` or `PeerCutOff`;
    /// `UnknownPeer`, `Interrupted`, `Forked`.
    #[inline(always)]
    pub fn receive_into(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Status, MessageError> {
        if self.is_at_rest()
            && let Some(status) = self.take_short(&selector, buffer)
        {
            return Ok(status);
        }
        let mut target = buffer;
        self.receive_slowly(selector, &mut target, Patience::Forever)
    }

    /// The same, but the message is spread over `parts`, one after the other.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn receive_scatter(
        &mut self,
        selector: Selector,
        parts: &mut [&mut [u8]],
    ) -> Result<Status, MessageError> {
        let mut target = parts;
        self.receive_slowly(selector, &mut target, Patience::Forever)
    }

    /// Receives a message of any length into memory of its own.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn receive(&mut self, selector: Selector) -> Result<Received, MessageError> {
        let matched = self.claim(selector)?;
        let status = matched.status;
        let length = usize::try_from(status.bytes).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(length).is_err() {
            self.give_back(matched);
            let what = format!("memory for a message of {length} bytes").into();
            return Err(corewire_os::OsError { what, errno: ENOMEM }.into());
        }
        bytes.resize(length, 0);
        self.receive_claimed(matched, &mut bytes)?;
        Ok(Received { status, bytes })
    }

    /// A message that `selector` asks for, if one is there now. Never blocks.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn try_receive_into(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Option<Status>, MessageError> {
        if self.is_at_rest() {
            match self.poll_short(&selector, buffer, || Haste::Once) {
                Ok(None) if selector.source.is_none() && !self.pairs.has_notice() => {
                    return Ok(None);
                }
                Ok(Some(status)) => return Ok(Some(status)),
                _ => {}
            }
        }
        let mut target = buffer;
        none_if_late(self.receive_slowly(selector, &mut target, Patience::None))
    }

    /// As [`receive_into`](Self::receive_into), waiting for at most `timeout`; `None` if none came.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn receive_timeout(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<Option<Status>, MessageError> {
        let mut target = buffer;
        none_if_late(self.receive_slowly(selector, &mut target, Patience::until(timeout)))
    }

    /// Begins to receive a message that `selector` asks for into `buffer`, and never waits.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into); what goes wrong later is the operation's result.
    pub fn ireceive(
        &mut self,
        selector: Selector,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, MessageError> {
        self.go_on(None)?;
        let buffer = buffer.into();
        let receive = Operation::Receive { selector, buffer, order: 0, is_matched: false };
        let request = self.requests.add(receive);
        let posted = Posted { selector, request: request.index, order: 0 };
        if self.take_kept_for(posted) {
            return Ok(request);
        }
        if let Some(error) = self.hopeless(&selector) {
            self.requests.end(request.index, Err(error), None);
            return Ok(request);
        }
        let posted_at = self.matching.post(selector, request.index);
        if let Operation::Receive { order, .. } = self.requests.by_index(request.index) {
            *order = posted_at;
        }
        Ok(request)
    }

    /// How an operation has ended, if it has. Never blocks.
    ///
    /// # Errors
    /// [`MessageError::UnknownRequest`], `Interrupted`, `Forked`.
    pub fn test(&mut self, request: Request) -> Result<Option<Completion>, MessageError> {
        if let Some(completion) = self.requests.take(request)? {
            return Ok(Some(completion));
        }
        self.go_on(None)?;
        self.requests.take(request)
    }

    /// Waits until an operation has ended.
    ///
    /// # Errors
    /// As for [`test`](Self::test).
    pub fn wait(&mut self, request: Request) -> Result<Completion, MessageError> {
        self.wait_any(&[request]).map(|(_, completion)| completion)
    }

    /// As [`wait`](Self::wait), for at most `timeout`; `None` if it had not ended by then.
    ///
    /// # Errors
    /// As for [`test`](Self::test).
    pub fn wait_timeout(
        &mut self,
        request: Request,
        timeout: Duration,
    ) -> Result<Option<Completion>, MessageError> {
        none_if_late(self.wait_any_of(&[request], Patience::until(timeout)))
            .map(|ended| ended.map(|(_, completion)| completion))
    }

    /// Waits until one of several operations has ended. Says which, by its place among them.
    ///
    /// # Errors
    /// As for [`test`](Self::test); `UnknownRequest` if there is none to wait for, too.
    pub fn wait_any(&mut self, requests: &[Request]) -> Result<(usize, Completion), MessageError> {
        self.wait_any_of(requests, Patience::Forever)
    }

    fn wait_any_of(
        &mut self,
        requests: &[Request],
        patience: Patience,
    ) -> Result<(usize, Completion), MessageError> {
        let look = |endpoint: &mut Self| {
            for (place, &request) in requests.iter().enumerate() {
                match endpoint.requests.take(request) {
                    Ok(None) => {}
                    Ok(Some(completion)) => return Some(Ok((place, completion))),
                    Err(error) => return Some(Err(error)),
                }
            }
            requests.is_empty().then_some(Err(MessageError::UnknownRequest))
        };
        match look(self) {
            Some(end) => end,
            None => self.wait_for(patience, None, None, |endpoint, _| look(endpoint))?,
        }
    }

    /// Asks that an operation end. One whose message has begun to come, or to go, ends as if nothing had
    /// been asked; any other ends at once, with [`MessageError::Cancelled`]. Either way it is to be waited
    /// for.
    ///
    /// # Errors
    /// [`MessageError::UnknownRequest`].
    pub fn cancel(&mut self, request: Request) -> Result<(), MessageError> {
        match *self.requests.get(request)? {
            Operation::Receive { is_matched: false, .. } => {
                self.matching.withdraw(request.index);
                self.requests.end(request.index, Err(MessageError::Cancelled), None);
            }
            Operation::Send { to } => {
                if let Some(buffer) = self.take_unsent(to.row, request.index) {
                    let cancelled = Err(MessageError::Cancelled);
                    self.requests.end(request.index, cancelled, Some(buffer));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits for a message that `selector` asks for, and says what it is. It stays to be received, by
    /// whoever asks first.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn probe(&mut self, selector: Selector) -> Result<Status, MessageError> {
        self.find(selector, Patience::Forever).map(|(_, status)| status)
    }

    /// The same if it is there now. Never blocks.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn try_probe(&mut self, selector: Selector) -> Result<Option<Status>, MessageError> {
        none_if_late(self.find(selector, Patience::None))
            .map(|found| found.map(|(_, status)| status))
    }

    /// Waits for a message that `selector` asks for, and takes it from all other receives: a matched probe.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn claim(&mut self, selector: Selector) -> Result<Matched, MessageError> {
        let (id, status) = self.find(selector, Patience::Forever)?;
        Ok(self.claim_found(id, status))
    }

    /// The same if it is there now. Never blocks.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn try_claim(&mut self, selector: Selector) -> Result<Option<Matched>, MessageError> {
        let found = none_if_late(self.find(selector, Patience::None))?;
        Ok(found.map(|(id, status)| self.claim_found(id, status)))
    }

    fn claim_found(&mut self, id: u64, status: Status) -> Matched {
        if let Some(message) = self.matching.by_id(id) {
            message.is_claimed = true;
        }
        Matched { id, status }
    }

    /// Receives a message that was claimed.
    ///
    /// # Errors
    /// [`MessageError::BufferTooSmall`], after which it is anybody's again; what became of its sender, if
    /// that died before it had sent all of it; `Interrupted`, `Forked`.
    pub fn receive_claimed(
        &mut self,
        matched: Matched,
        buffer: &mut [u8],
    ) -> Result<Status, MessageError> {
        let Matched { id, status } = matched;
        let selector = Selector::masked(status.tag, u64::MAX).from(status.source);
        let mut target = buffer;
        let mut caller = Caller { selector, target: &mut target, state: CallerState::Waiting };
        let kept = self.matching.by_id(id).map(|message| {
            message.is_claimed = false;
            message.total
        });
        let Some(total) = kept else { return Err(self.end_of(status.source)) };
        self.take_kept_of(id, total, &mut caller);
        match caller.state {
            CallerState::Waiting => return Err(self.end_of(status.source)),
            CallerState::Ended(Err(error)) => {
                self.offer(id);
                return Err(error);
            }
            _ => {}
        }
        let ended =
            self.wait_for(Patience::Forever, Some(&mut caller), None, |endpoint, caller| {
                match caller.map(|caller| &caller.state) {
                    Some(CallerState::Ended(end)) => Some(end.clone()),
                    Some(CallerState::Filling(_)) => None,
                    _ => Some(Err(endpoint.end_of(status.source))),
                }
            });
        self.leave(&mut caller);
        ended?
    }

    /// Drops the messages that `selector` asks for, that have arrived and that no receive has asked for or
    /// claimed; those that stay with their senders for want of budget too. Returns how many. For replies
    /// that nobody will ask for any more: they would fill the [budget](crate::EndpointBuilder::budget).
    /// Never blocks.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; nothing is dropped then.
    pub fn discard(&mut self, selector: Selector) -> Result<usize, MessageError> {
        self.go_on(None)?;
        let mut count = 0;
        // What comes into view as others are dropped was there, too: a bounded number, since each pair has
        // only as many slots.
        let bound = usize::try_from(self.pairs.sizes().ring_slots()).unwrap_or(usize::MAX);
        for _ in 0..bound {
            let found = self.matching.all_of(&selector);
            if found.is_empty() {
                break;
            }
            count += found.len();
            found.into_iter().for_each(|id| self.drop_kept(id));
            match self.go_on(None) {
                Ok(_) => {}
                // For the next call that waits.
                Err(MessageError::Interrupted) => {
                    self.interrupter().interrupt();
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// Gives a message that was claimed back: it is anybody's again.
    pub fn give_back(&mut self, matched: Matched) {
        if let Some(message) = self.matching.by_id(matched.id) {
            message.is_claimed = false;
            self.offer(matched.id);
        }
    }

    /// Why nothing comes of a peer any more.
    fn end_of(&self, peer: Peer) -> MessageError {
        self.row_of(peer).err().unwrap_or(MessageError::UnknownPeer)
    }

    /// If nothing will come that a receive asks for: why.
    fn hopeless(&self, selector: &Selector) -> Option<MessageError> {
        let peer = selector.source?;
        let row = self.rows.get(peer.row as usize);
        match row.filter(|row| row.generation == peer.generation) {
            None => Some(MessageError::UnknownPeer),
            Some(row) if row.is_over => Some(self.error_of(peer.row)),
            Some(_) => None,
        }
    }

    /// The oldest message that is kept and that `selector` asks for.
    fn find(
        &mut self,
        selector: Selector,
        patience: Patience,
    ) -> Result<(u64, Status), MessageError> {
        let look = |endpoint: &mut Self| {
            if let Some(message) = endpoint.matching.find(&selector) {
                let (source, tag, bytes) = (message.source, message.tag, message.total);
                return Some(Ok((message.id, Status { source, tag, bytes })));
            }
            endpoint.hopeless(&selector).map(Err)
        };
        self.go_on(None)?;
        if let Some(found) = look(self) {
            return found;
        }
        if matches!(patience, Patience::None) {
            return Err(MessageError::Timeout { after: Duration::ZERO });
        }
        self.wait_for(patience, None, None, |endpoint, _| look(endpoint))?
    }

    /// Is there nothing to be done but to look for messages? One branch for all of it.
    #[inline(always)]
    fn is_at_rest(&self) -> bool {
        self.matching.is_empty() & self.senders.is_empty() & self.leaving.is_empty()
    }

    /// A message in slots, or whole in a cell, if it comes while polls are cheaper than to sleep, and before
    /// anything else does. The way of most messages.
    ///
    /// The selector is not copied: a processor that loads a copy's words wider than they were stored waits until
    /// they are in the cache, for as long as all the rest of a receive takes.
    #[inline(always)]
    fn take_short(&mut self, selector: &Selector, buffer: &mut [u8]) -> Option<Status> {
        let bare_polls = self.bare_polls;
        for round in 0..self.short_polls {
            let haste = || if round < bare_polls { Haste::Fast } else { Haste::Slow };
            match self.poll_short(selector, buffer, haste) {
                Ok(None) => {}
                Ok(found) => return found,
                Err(()) => return None,
            }
            if round >= bare_polls {
                if round == bare_polls && self.wait == Wait::Adaptive {
                    let is_here = self.is_sender_here(selector.source);
                    self.bare_polls = if is_here { 0 } else { BARE_POLLS };
                    if is_here {
                        return None;
                    }
                }
                pause();
                if self.pairs.has_notice() {
                    return None;
                }
            }
        }
        None
    }

    /// One look. An error if something else has come.
    #[inline(always)]
    fn poll_short(
        &mut self,
        selector: &Selector,
        buffer: &mut [u8],
        haste: impl Fn() -> Haste,
    ) -> Result<Option<Status>, ()> {
        let is_wanted =
            |row: u32, generation: u32, tag: u64| selector.takes(Peer::new(row, generation), tag);
        let found = match self.pairs.take_short(haste, buffer, is_wanted) {
            Short::Other(row) => self.pairs.take_whole(row, buffer, is_wanted),
            other => other,
        };
        match found {
            Short::Nothing => Ok(None),
            Short::Taken { row, generation, tag, bytes } => {
                let source = Peer::new(row, generation);
                Ok(Some(Status { source, tag, bytes: bytes as u64 }))
            }
            Short::Other(_) => Err(()),
        }
    }

    /// The slow half of every receive.
    #[inline(never)]
    fn receive_slowly(
        &mut self,
        selector: Selector,
        target: &mut dyn Target,
        patience: Patience,
    ) -> Result<Status, MessageError> {
        if self.pairs.has_notice() {
            self.attend()?;
        }
        let mut caller = Caller { selector, target, state: CallerState::Waiting };
        self.take_kept(&mut caller);
        let look = |endpoint: &mut Self, caller: &Caller<'_>| match &caller.state {
            CallerState::Ended(end) => Some(end.clone()),
            CallerState::Filling(_) => None,
            CallerState::Waiting => endpoint.hopeless(&selector).map(Err),
        };
        if let Some(end) = look(self, &caller) {
            return end;
        }
        let ended = if matches!(patience, Patience::None) {
            self.go_on(Some(&mut caller)).and_then(|_| {
                look(self, &caller).ok_or(MessageError::Timeout { after: Duration::ZERO })
            })
        } else {
            self.wait_for(patience, Some(&mut caller), None, |endpoint, caller| {
                caller.and_then(|caller| look(endpoint, caller))
            })
        };
        self.leave(&mut caller);
        match ended {
            Ok(end) => end,
            Err(MessageError::Timeout { .. }) => {
                Err(MessageError::Timeout { after: after(patience) })
            }
            Err(other) => Err(other),
        }
    }

    /// The buffer of a send of which nothing has gone yet, which then never goes.
    fn take_unsent(&mut self, row: u32, request: u32) -> Option<Buffer> {
        let sends = &mut self.rows[row as usize].sends;
        let is_it = |pending: &super::progress::Pending| {
            pending.request == Some(request) && pending.sent == 0
        };
        let index = sends.iter().position(is_it)?;
        sends.remove(index).map(|pending| pending.buffer)
    }
}

/// No memory.
const ENOMEM: i32 = 12;

/// A wait that has run out is no error.
fn none_if_late<T>(ended: Result<T, MessageError>) -> Result<Option<T>, MessageError> {
    match ended {
        Ok(end) => Ok(Some(end)),
        Err(MessageError::Timeout { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}
