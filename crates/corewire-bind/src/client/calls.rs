//! The calls of a client that are under way, other than the one that its thread waits for.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use corewire_ring::sync::AtomicU32;
use corewire_ring::sync::Ordering::{Acquire, Release};

use crate::error::{CallError, of_status};
use crate::lane::backlog::OWED_BYTES_MAX;
use crate::message::{COST_BYTES, Message};
use crate::tag::{Tag, status};

/// What a client does with a reply, given once.
pub(super) type Continuation = Box<dyn FnOnce(Result<Message, CallError>) + Send>;

/// What a service owes.
#[derive(Debug, Default, Clone, Copy)]
struct Owed {
    bytes: usize,
    long_count: usize,
}

impl Owed {
    fn has_room(&self, cost_bytes: usize) -> bool {
        match cost_bytes > OWED_BYTES_MAX {
            true => self.long_count == 0,
            false => self.bytes + cost_bytes <= OWED_BYTES_MAX,
        }
    }

    fn add(&mut self, cost_bytes: usize) {
        match cost_bytes > OWED_BYTES_MAX {
            true => self.long_count += 1,
            false => self.bytes += cost_bytes,
        }
    }

    fn remove(&mut self, cost_bytes: usize) {
        match cost_bytes > OWED_BYTES_MAX {
            true => self.long_count -= 1,
            false => self.bytes -= cost_bytes,
        }
    }
}

/// Calls by their token.
#[derive(Default)]
pub(super) struct Calls {
    open: Open,
    owed: Owed,
    /// The part of it that nobody waits for.
    abandoned: Owed,
    dropped: Arc<Dropped>,
    late_count: u64,
}

/// The hash of a token. Tokens are this client's own, and follow each other.
#[derive(Default)]
struct OfToken(u64);

impl Hasher for OfToken {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, token: u32) {
        self.0 = (self.0 ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Calls by their token. Most clients have one at a time, which needs no memory of its own.
#[derive(Default)]
struct Open {
    one: Option<(u32, Call)>,
    more: HashMap<u32, Call, BuildHasherDefault<OfToken>>,
}

impl Open {
    #[inline]
    fn is_empty(&self) -> bool {
        self.one.is_none() && self.more.is_empty()
    }

    fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.more.len()
    }

    #[inline]
    fn insert(&mut self, token: u32, call: Call) {
        match &self.one {
            Some((other, _)) if *other != token => _ = self.more.insert(token, call),
            _ => self.one = Some((token, call)),
        }
    }

    #[inline]
    fn get(&self, token: u32) -> Option<&Call> {
        match &self.one {
            Some((one, call)) if *one == token => Some(call),
            _ if self.more.is_empty() => None,
            _ => self.more.get(&token),
        }
    }

    #[inline]
    fn get_mut(&mut self, token: u32) -> Option<&mut Call> {
        match &mut self.one {
            Some((one, call)) if *one == token => Some(call),
            _ => self.more.get_mut(&token),
        }
    }

    #[inline]
    fn remove(&mut self, token: u32) -> Option<Call> {
        match self.one.take_if(|(one, _)| *one == token) {
            Some((_, call)) => Some(call),
            None if self.more.is_empty() => None,
            None => self.more.remove(&token),
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &Call)> {
        let one = self.one.iter().map(|(token, call)| (*token, call));
        one.chain(self.more.iter().map(|(token, call)| (*token, call)))
    }
}

struct Call {
    cost_bytes: usize,
    state: State,
}

enum State {
    /// A handle or a future will ask for the reply.
    Asked(Option<Waker>),
    /// The program is told.
    Then(Continuation),
    /// Nobody wants the reply any more.
    Abandoned,
    /// It has come. The service owes nothing.
    Ended(Box<Result<Message, CallError>>),
}

/// Handles that were dropped while the client was elsewhere.
#[derive(Default)]
pub(super) struct Dropped {
    /// 1 if there is a token. Only a thread that holds the lock writes it.
    is_some: AtomicU32,
    tokens: Mutex<Vec<u32>>,
}

impl Dropped {
    pub(super) fn add(&self, token: u32) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.push(token);
        self.is_some.store(1, Release);
    }

    /// One that is dropped at the same time may be seen by a later call only.
    #[inline]
    pub(super) fn take(&self) -> Vec<u32> {
        if self.is_some.load(Acquire) == 0 {
            return Vec::new();
        }
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_some.store(0, Release);
        std::mem::take(&mut *tokens)
    }
}

impl Calls {
    /// Whether none is under way.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether another call may begin whose reply has at most `reply_bytes_max` bytes.
    #[inline]
    pub(super) fn has_room(&self, reply_bytes_max: u32) -> bool {
        self.owed.has_room(cost(reply_bytes_max))
    }

    /// The same for a call whose thread reads what comes until its reply has: calls that others wait for do not count.
    #[inline]
    pub(super) fn has_room_to_wait(&self, reply_bytes_max: u32) -> bool {
        self.open.is_empty() || self.abandoned.has_room(cost(reply_bytes_max))
    }

    pub(super) fn ask(&mut self, token: u32, reply_bytes_max: u32) {
        self.add(token, reply_bytes_max, State::Asked(None));
    }

    pub(super) fn ask_then(&mut self, token: u32, reply_bytes_max: u32, then: Continuation) {
        self.add(token, reply_bytes_max, State::Then(then));
    }

    /// A call whose caller has stopped waiting.
    pub(super) fn abandon_new(&mut self, token: u32, reply_bytes_max: u32) {
        self.add(token, reply_bytes_max, State::Abandoned);
    }

    fn add(&mut self, token: u32, reply_bytes_max: u32, state: State) {
        let cost_bytes = cost(reply_bytes_max);
        self.owed.add(cost_bytes);
        if matches!(state, State::Abandoned) {
            self.abandoned.add(cost_bytes);
        }
        self.open.insert(token, Call { cost_bytes, state });
    }

    /// The reply to a call of which somebody has a handle, and who asks for it now.
    pub(super) fn finish(&mut self, message: Message) -> Result<Message, CallError> {
        if let Some(call) = self.open.remove(message.tag().token()) {
            self.settle(&call);
        }
        if !self.is_empty() {
            self.forget_dropped();
        }
        result(message)
    }

    /// Whether a handle will ask for the reply to this call, which has not come.
    pub(super) fn is_asked(&self, token: u32) -> bool {
        matches!(self.open.get(token), Some(Call { state: State::Asked(_), .. }))
    }

    /// The service does not owe a reply any more.
    fn settle(&mut self, call: &Call) {
        match call.state {
            State::Ended(_) => {}
            State::Abandoned => {
                self.owed.remove(call.cost_bytes);
                self.abandoned.remove(call.cost_bytes);
            }
            State::Asked(_) | State::Then(_) => self.owed.remove(call.cost_bytes),
        }
    }

    /// Handles the reply to one of the calls. One to none of them is late.
    pub(super) fn reply(&mut self, message: Message) {
        let token = message.tag().token();
        let reply = result(message);
        self.forget_dropped();
        self.end(token, reply);
    }

    fn end(&mut self, token: u32, reply: Result<Message, CallError>) {
        let Some(call) = self.open.remove(token) else {
            self.late_count += 1;
            return;
        };
        self.settle(&call);
        match call.state {
            State::Asked(waker) => {
                let state = State::Ended(Box::new(reply));
                self.open.insert(token, Call { cost_bytes: 0, state });
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Then(then) => then(reply),
            State::Abandoned => self.late_count += 1,
            ended @ State::Ended(_) => {
                // A second reply to one call.
                self.open.insert(token, Call { cost_bytes: 0, state: ended });
                self.late_count += 1;
            }
        }
    }

    /// The link has ended, and no reply comes any more.
    pub(super) fn end_all(&mut self, error: &CallError) {
        self.forget_dropped();
        let open = self.open.iter();
        let open = open.filter(|(_, call)| !matches!(call.state, State::Ended(_)));
        let tokens = open.map(|(token, _)| token).collect::<Vec<_>>();
        for token in tokens {
            self.end(token, Err(error.clone()));
        }
    }

    /// The reply, if it has come. The call is forgotten then.
    #[inline]
    pub(super) fn take(&mut self, token: u32) -> Option<Result<Message, CallError>> {
        if !matches!(self.open.get(token)?.state, State::Ended(_)) {
            return None;
        }
        match self.open.remove(token)?.state {
            State::Ended(reply) => Some(*reply),
            _ => None,
        }
    }

    /// Whether the call is known.
    pub(super) fn has(&self, token: u32) -> bool {
        self.open.get(token).is_some()
    }

    /// Wakes a task when the reply comes.
    pub(super) fn wake(&mut self, token: u32, waker: &Waker) {
        if let Some(Call { state: State::Asked(place), .. }) = self.open.get_mut(token) {
            *place = Some(waker.clone());
        }
    }

    pub(super) fn abandon(&mut self, token: u32) {
        let Some(call) = self.open.remove(token) else { return };
        if matches!(call.state, State::Asked(_) | State::Then(_)) {
            self.abandoned.add(call.cost_bytes);
            self.open.insert(token, Call { state: State::Abandoned, ..call });
        } else if matches!(call.state, State::Abandoned) {
            self.open.insert(token, call);
        }
    }

    /// Looks when a reply comes and other calls are open: until then a call that was dropped is kept like any other, with
    /// its reply if that has come.
    fn forget_dropped(&mut self) {
        for token in self.dropped.take() {
            self.abandon(token);
        }
    }

    /// Replies that nobody wanted any more.
    pub(super) const fn late_count(&self) -> u64 {
        self.late_count
    }

    /// Whether these are the calls to which a handle belongs.
    #[inline]
    pub(super) fn are_of(&self, dropped: &Arc<Dropped>) -> bool {
        Arc::ptr_eq(&self.dropped, dropped)
    }

    pub(super) fn dropped(&self) -> Arc<Dropped> {
        Arc::clone(&self.dropped)
    }
}

fn cost(reply_bytes_max: u32) -> usize {
    usize::try_from(reply_bytes_max).unwrap_or(usize::MAX).saturating_add(COST_BYTES)
}

/// What a reply says.
pub(super) fn result(message: Message) -> Result<Message, CallError> {
    match message.status() {
        None | Some(status::CAPABILITIES) => Ok(message),
        Some(found) => Err(of_status(found)),
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { open, owed, late_count, .. } = self;
        write!(f, "{} calls, {owed:?}, {late_count} late", open.len())
    }
}

/// Whether a message is the reply to this call.
#[inline(always)]
pub(super) fn is_reply_to(message: &Message, tag: Tag) -> bool {
    message.tag().token() == tag.token() && message.tag().ordinal() == tag.ordinal()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Body;

    fn reply(token: u32) -> Message {
        Message::new(Tag::new(0, 1, token), None, Body::empty(), Vec::new())
    }

    #[test]
    fn a_call_that_is_dropped_after_its_reply_has_come_is_forgotten_with_the_next_one() {
        let mut calls = Calls::default();
        for token in [1, 2, 3] {
            calls.ask(token, 8);
        }
        calls.reply(reply(1));
        calls.dropped().add(1);
        assert!(calls.finish(reply(2)).is_ok());
        assert!(!calls.has(1) && calls.is_asked(3));
        assert!(calls.finish(reply(3)).is_ok());
        assert!(calls.is_empty());
    }
}
