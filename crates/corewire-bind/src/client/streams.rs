//! Streams: calls whose answer comes in parts, of which there is any number, and then an end or an error.
//!
//! | from | tag | bytes | |
//! |---|---|---|---|
//! | client | `binding, ordinal, token` | the arguments | the call |
//! | service | `binding, ordinal, token + PART` | the arguments of a part | a part |
//! | client | `binding, ordinal, token + PART` | 8: the cost of parts that the program has taken | credit |
//! | client | `binding, ordinal, token + PART` | 8: zeros | cancels the stream |
//! | service | `binding, ordinal, token` | those of a reply | the end, or the error |
//!
//! A part costs its bytes and 256 more. A service sends a part only while what it has sent and has not been given
//! back costs less than [`STREAM_CREDIT`], so that one part of any length can always go. A stream that the program does
//! not read takes less memory than that and one part, here or in the service, and delays nothing else. Credit goes
//! back once half of it has been taken. A client has at most 16 streams at one time. The credit of a hop between
//! monitors is for all messages of a circuit, and does not replace this one.
//!
//! A stream that is dropped is cancelled, and counts until its end has come.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use super::calls::{Dropped, result};
use crate::error::CallError;
use crate::message::Message;
use crate::tag::{PART, STREAM_CREDIT};

/// The streams of a client that have not ended.
#[derive(Default)]
pub(super) struct Streams {
    open: HashMap<u32, Stream>,
    dropped: Arc<Dropped>,
    /// Streams whose cancellation has found no room.
    uncancelled: Vec<u32>,
}

struct Stream {
    ordinal: u16,
    parts: VecDeque<Message>,
    /// What these cost.
    waiting_bytes: usize,
    /// What those cost that the program has taken, and the service has not been given back.
    taken_bytes: usize,
    end: Option<Result<Message, CallError>>,
    is_cancelled: bool,
    waker: Option<Waker>,
}

/// What a stream gives next.
pub(super) enum Next {
    Part(Message),
    End(Result<Message, CallError>),
}

impl Streams {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    #[inline]
    pub(super) fn has(&self, token: u32) -> bool {
        !self.open.is_empty() && self.open.contains_key(&token)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn dropped(&self) -> Arc<Dropped> {
        Arc::clone(&self.dropped)
    }

    /// Whether these are the streams to which a handle belongs.
    pub(super) fn are_of(&self, dropped: &Arc<Dropped>) -> bool {
        Arc::ptr_eq(&self.dropped, dropped)
    }

    /// Streams that are to be cancelled: their handles were dropped, or there was no room to tell the service.
    pub(super) fn take_dropped(&mut self) -> Vec<u32> {
        let mut all = std::mem::take(&mut self.uncancelled);
        all.extend(self.dropped.take());
        all
    }

    /// There is no room to tell the service.
    pub(super) fn cancel_later(&mut self, token: u32) {
        self.uncancelled.push(token);
    }

    pub(super) fn add(&mut self, token: u32, ordinal: u16) {
        let stream = Stream {
            ordinal,
            parts: VecDeque::new(),
            waiting_bytes: 0,
            taken_bytes: 0,
            end: None,
            is_cancelled: false,
            waker: None,
        };
        self.open.insert(token, stream);
    }

    /// A part has come.
    pub(super) fn part(&mut self, message: Message) {
        let Some(stream) = self.open.get_mut(&(message.tag().token() & !PART)) else { return };
        if stream.is_cancelled || stream.end.is_some() {
            return;
        }
        if stream.waiting_bytes + stream.taken_bytes >= STREAM_CREDIT {
            stream.end = Some(Err(CallError::Unasked));
            stream.wake();
            return;
        }
        stream.waiting_bytes += message.cost_bytes();
        stream.parts.push_back(message);
        stream.wake();
    }

    /// The reply that ends a stream has come.
    pub(super) fn end(&mut self, message: Message) {
        let token = message.tag().token();
        self.end_with(token, result(message));
    }

    fn end_with(&mut self, token: u32, end: Result<Message, CallError>) {
        let Some(stream) = self.open.get_mut(&token) else { return };
        if stream.is_cancelled {
            self.open.remove(&token);
            return;
        }
        stream.end.get_or_insert(end);
        stream.wake();
    }

    /// The link has ended, and nothing comes any more.
    pub(super) fn end_all(&mut self, error: &CallError) {
        let tokens = self.open.keys().copied().collect::<Vec<_>>();
        tokens.into_iter().for_each(|token| self.end_with(token, Err(error.clone())));
    }

    /// What has come first. The stream is forgotten with its end.
    pub(super) fn take(&mut self, token: u32) -> Option<Next> {
        let Some(stream) = self.open.get_mut(&token) else {
            return Some(Next::End(Err(CallError::NotPending)));
        };
        if let Some(part) = stream.parts.pop_front() {
            let cost_bytes = part.cost_bytes();
            stream.waiting_bytes -= cost_bytes;
            stream.taken_bytes += cost_bytes;
            return Some(Next::Part(part));
        }
        let end = stream.end.take()?;
        self.open.remove(&token);
        Some(Next::End(end))
    }

    /// Wakes a task when something comes.
    pub(super) fn wake_later(&mut self, token: u32, waker: &Waker) {
        if let Some(stream) = self.open.get_mut(&token) {
            stream.waker = Some(waker.clone());
        }
    }

    /// What the service is to be told, if it is time: the ordinal, and how much has been taken.
    pub(super) fn credit_due(&self, token: u32) -> Option<(u16, usize)> {
        let stream = self.open.get(&token)?;
        let is_due = stream.taken_bytes >= STREAM_CREDIT / 2 && stream.end.is_none();
        is_due.then_some((stream.ordinal, stream.taken_bytes))
    }

    pub(super) fn credit_given(&mut self, token: u32) {
        if let Some(stream) = self.open.get_mut(&token) {
            stream.taken_bytes = 0;
        }
    }

    /// Forgets what has come of a stream that nobody wants any more. Its ordinal, if the service must be told.
    pub(super) fn abandon(&mut self, token: u32) -> Option<u16> {
        let stream = self.open.get_mut(&token)?;
        if stream.end.is_some() {
            self.open.remove(&token);
            return None;
        }
        (stream.parts, stream.is_cancelled) = (VecDeque::new(), true);
        Some(stream.ordinal)
    }
}

impl Stream {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
