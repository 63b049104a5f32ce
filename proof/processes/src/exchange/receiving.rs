//! How the messages of a plan are received.

use std::time::Duration;

use corewire::{
    Completion, Memory, MessageError, OperationHandle, Options, OwnedMessage, Selector, Status,
};

use super::memory::{self, Arena};
use super::plan::{Message, Receiving, Sending};
use super::{Exchange, GO, failed};

/// A receive that is under way, and its memory.
pub(super) struct Posted {
    handle: OperationHandle,
    truncates: bool,
    /// Whether its memory is among those that are lent.
    has_target: bool,
}

/// What came of one attempt to receive a message.
enum Came {
    Whole,
    /// It is still there.
    TooSmall,
    /// Its sender took it back, and sends it again.
    Cancelled,
}

impl Exchange {
    /// Posts what is received in the background from the beginning.
    pub(super) fn post(
        &mut self,
        incoming: &[Message],
        first: u64,
    ) -> Result<Vec<Option<Posted>>, String> {
        let mut posted = Vec::new();
        for (number, message) in (first..).zip(incoming) {
            posted.push(match message.receiving {
                Receiving::PostedBefore { truncates } => {
                    let selector = Selector::tag(number).from(self.peer);
                    Some(self.start(number, message, truncates, |this, memory, options| {
                        this.endpoint.ireceive_with(selector, memory, options)
                    })?)
                }
                _ => None,
            });
        }
        Ok(posted)
    }

    /// Begins to receive in the background, with memory as planned.
    fn start(
        &mut self,
        number: u64,
        message: &Message,
        truncates: bool,
        begin: impl FnOnce(&mut Self, Memory, Options) -> Result<OperationHandle, MessageError>,
    ) -> Result<Posted, String> {
        let options = Options { truncates, context: number, ..Options::default() };
        let mut target = self.target(message);
        let memory = match &mut target {
            // SAFETY: the value is kept until the operation has ended; the endpoint is dropped first.
            Some(arena) => unsafe { arena.lend() },
            None => Memory::pooled(),
        };
        let has_target = target.is_some();
        let handle = begin(self, memory, options).map_err(failed("receive", number))?;
        self.targets.extend(target.map(|target| (handle, target)));
        Ok(Posted { handle, truncates, has_target })
    }

    fn target(&self, message: &Message) -> Option<Arena> {
        let parts = message.target.as_ref()?;
        Some(Arena::new(message.room.of(message.bytes), parts))
    }

    /// Receives a message, and checks it.
    pub(super) fn receive(
        &mut self,
        number: u64,
        message: &Message,
        posted: Option<Posted>,
        is_by_tag: bool,
    ) -> Result<(), String> {
        let from = self.peer;
        let by_tag = Selector::tag(number).from(from);
        let selector = if is_by_tag { by_tag } else { Selector::masked(0, GO).from(from) };
        let mut posted = posted;
        loop {
            let came = match posted.take() {
                Some(posted) => self.end_posted(number, message, &posted)?,
                None => self.receive_once(number, message, selector)?,
            };
            match came {
                Came::Whole => return Ok(()),
                // Into as much memory as it needs. It may be taken back first.
                Came::TooSmall => {
                    let received = self.endpoint.receive(by_tag);
                    let received = received.map_err(failed("second receive", number))?;
                    return self.check_owned(number, message, received);
                }
                Came::Cancelled if matches!(message.sending, Sending::Timed(_)) => {}
                Came::Cancelled => return Err(format!("message {number} was cancelled")),
            }
        }
    }

    fn receive_once(
        &mut self,
        number: u64,
        message: &Message,
        selector: Selector,
    ) -> Result<Came, String> {
        let what = |error| failed("receive", number)(error);
        match message.receiving {
            Receiving::Probed => {
                let status = self.endpoint.probe(selector).map_err(what)?;
                self.check_status(number, message, &status)?;
                self.call(number, message, selector, None)
            }
            Receiving::Timed(limit) => {
                self.call(number, message, selector, Some(Duration::from_micros(limit)))
            }
            Receiving::Tries => self.call(number, message, selector, Some(Duration::ZERO)),
            Receiving::Call | Receiving::PostedBefore { .. } => {
                self.call(number, message, selector, None)
            }
            Receiving::PostedAfter { truncates } => {
                let status = self.endpoint.probe(selector).map_err(what)?;
                self.check_status(number, message, &status)?;
                let posted = self.start(number, message, truncates, |this, memory, options| {
                    this.endpoint.ireceive_with(selector, memory, options)
                })?;
                self.end_posted(number, message, &posted)
            }
            Receiving::PostedClaimed { truncates } => {
                let matched = self.endpoint.claim(selector).map_err(what)?;
                self.check_status(number, message, &matched.status)?;
                let posted = self.start(number, message, truncates, |this, memory, options| {
                    Ok(this.endpoint.ireceive_claimed_with(matched, memory, options))
                })?;
                self.end_posted(number, message, &posted)
            }
            Receiving::Claimed => self.receive_claimed(number, message, selector),
        }
    }

    /// By a call that waits, or by calls with a limit, until the message is there.
    fn call(
        &mut self,
        number: u64,
        message: &Message,
        selector: Selector,
        limit: Option<Duration>,
    ) -> Result<Came, String> {
        let Some(mut target) = self.target(message) else {
            let endpoint = &mut self.endpoint;
            let received = loop {
                let received = match limit {
                    None => endpoint.receive(selector).map(Some),
                    Some(Duration::ZERO) => endpoint.try_receive(selector),
                    Some(limit) => endpoint.receive_timeout(selector, limit),
                };
                if let Some(received) = received.map_err(failed("receive", number))? {
                    break received;
                }
            };
            self.check_owned(number, message, received)?;
            return Ok(Came::Whole);
        };
        let endpoint = &mut self.endpoint;
        let mut slices = target.slices();
        let ended = loop {
            let ended = match (&mut slices[..], limit) {
                ([one], None) => endpoint.receive_into(selector, one).map(Some),
                ([one], Some(Duration::ZERO)) => endpoint.try_receive_into(selector, one),
                ([one], Some(limit)) => endpoint.receive_into_timeout(selector, one, limit),
                (parts, None) => endpoint.receive_scatter(selector, parts).map(Some),
                (parts, Some(Duration::ZERO)) => endpoint.now().receive_scatter(selector, parts),
                (parts, Some(limit)) => endpoint.within(limit).receive_scatter(selector, parts),
            };
            if let Some(ended) = ended.transpose() {
                break ended;
            }
        };
        self.check_target(number, message, ended, target)
    }

    fn receive_claimed(
        &mut self,
        number: u64,
        message: &Message,
        selector: Selector,
    ) -> Result<Came, String> {
        let claimed = self.endpoint.claim(selector).map_err(failed("claim", number))?;
        self.check_status(number, message, &claimed.status)?;
        let Some(mut target) = self.target(message) else {
            return match self.endpoint.receive_claimed(claimed) {
                Ok(received) => self.check_owned(number, message, received).map(|()| Came::Whole),
                Err(MessageError::Cancelled) => Ok(Came::Cancelled),
                Err(error) => Err(failed("receive", number)(error)),
            };
        };
        let ended = match &mut target.slices()[..] {
            [one] => self.endpoint.receive_claimed_into(claimed, one),
            // No call takes parts.
            _ => {
                self.endpoint.give_back(claimed);
                return self.call(number, message, selector, None);
            }
        };
        self.check_target(number, message, ended, target)
    }

    /// Waits for a receive in the background.
    fn end_posted(
        &mut self,
        number: u64,
        message: &Message,
        posted: &Posted,
    ) -> Result<Came, String> {
        let completion = self.endpoint.wait(posted.handle).map_err(failed("wait", number))?;
        let Completion { context, result, memory } = completion;
        if context != number {
            return Err(format!("the receive of message {number} has the context {context}"));
        }
        if posted.has_target {
            let is_it = |(handle, _): &(OperationHandle, Arena)| *handle == posted.handle;
            let index = self.targets.iter().position(is_it).ok_or("no memory")?;
            let (_, target) = self.targets.swap_remove(index);
            if posted.truncates && message.room.of(message.bytes) < message.bytes {
                return self.check_truncated(number, message, result, target);
            }
            return self.check_target(number, message, result, target);
        }
        match result {
            Ok(status) => self.check_status(number, message, &status)?,
            Err(MessageError::Cancelled) => return Ok(Came::Cancelled),
            Err(error) => return Err(failed("receive", number)(error)),
        }
        memory::check(number ^ self.salt(1 - self.side), message.bytes, &memory.into_vec())?;
        Ok(Came::Whole)
    }

    // Checks.

    fn check_status(&self, number: u64, message: &Message, status: &Status) -> Result<(), String> {
        let expected = (self.peer, number, message.bytes as u64, None);
        let Status { source, tag, bytes, immediate } = *status;
        if (source, tag, bytes, immediate) == expected {
            return Ok(());
        }
        Err(format!("message {number} of {} bytes was due, not {tag} of {bytes}", message.bytes))
    }

    fn check_owned(
        &mut self,
        number: u64,
        message: &Message,
        received: OwnedMessage,
    ) -> Result<(), String> {
        self.check_status(number, message, &received.status())?;
        memory::check(number ^ self.salt(1 - self.side), message.bytes, &received)?;
        // One that is held takes a part of what is granted.
        if !self.refuses && message.bytes <= super::SHELF_BYTES_MAX / 8 {
            self.held.push((number, message.bytes, received));
        }
        Ok(())
    }

    /// A receive into memory of this side has ended.
    fn check_target(
        &mut self,
        number: u64,
        message: &Message,
        ended: Result<Status, MessageError>,
        target: Arena,
    ) -> Result<Came, String> {
        let (seed, room) = (number ^ self.salt(1 - self.side), target.len());
        let (came, written) = match ended {
            Ok(status) if room >= message.bytes => {
                self.check_status(number, message, &status)?;
                (Came::Whole, message.bytes)
            }
            Err(MessageError::BufferTooSmall { needed, given }) if room < message.bytes => {
                if (needed, given) != (message.bytes as u64, room) {
                    return Err(format!("message {number}: {given} of {needed} bytes"));
                }
                (Came::TooSmall, 0)
            }
            // What was written by then may be anything.
            Err(MessageError::Cancelled) => return Ok(Came::Cancelled),
            other => {
                return Err(format!("{} bytes into {room} ended so: {other:?}", message.bytes));
            }
        };
        target.check(seed, written)?;
        self.put_away(number, target)?;
        Ok(came)
    }

    fn check_truncated(
        &mut self,
        number: u64,
        message: &Message,
        ended: Result<Status, MessageError>,
        target: Arena,
    ) -> Result<Came, String> {
        let room = target.len();
        match ended {
            Err(MessageError::Truncated { status, given }) if given == room => {
                self.check_status(number, message, &status)?;
            }
            Err(MessageError::Cancelled) => return Ok(Came::Cancelled),
            other => {
                return Err(format!("{} bytes cut to {room} ended so: {other:?}", message.bytes));
            }
        }
        target.check(number ^ self.salt(1 - self.side), room)?;
        self.put_away(number, target)?;
        Ok(Came::Whole)
    }
}
