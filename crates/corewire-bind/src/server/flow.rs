//! What may be sent of the streams of a client, and what sends it.
//!
//! What the parts of a client cost that it has not given back is counted in its [`Flow`], which the service's thread shares
//! with the threads that send parts.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::EncodeError;
use crate::lane::backlog::OWED_BYTES_MAX;
use crate::tag::STREAM_CREDIT;

/// What an iterator of parts has given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulled {
    /// A part, which was encoded.
    Part,
    /// The end, or an error: the reply was encoded.
    End,
}

pub(super) type Pull = Box<dyn FnMut(&mut Vec<u8>) -> Result<Pulled, EncodeError> + Send>;

/// A stream whose parts come from an iterator.
pub(super) struct Source {
    pub(super) token: u32,
    pub(super) ordinal: u16,
    pub(super) pull: Pull,
    /// A part that must wait: another stream of the client has sent a long one.
    pub(super) held: Option<Vec<u8>>,
}

/// The streams of a client. Dropped with what the service knows of it: then those that send parts are told.
#[derive(Default)]
pub(super) struct RowStreams {
    pub(super) flow: Arc<Flow>,
    pub(super) sources: Vec<Source>,
}

impl RowStreams {
    /// What parts cost that the client has not given back.
    pub(super) fn sent_bytes(&self) -> usize {
        self.flow.lock().open.iter().map(|open| open.sent_bytes).sum()
    }
}

impl Drop for RowStreams {
    fn drop(&mut self) {
        self.flow.lock().open.clear();
        self.flow.changed.notify_all();
    }
}

impl fmt::Debug for RowStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowStreams")
    }
}

/// What may be sent of the streams of a client.
#[derive(Default)]
pub(super) struct Flow {
    state: Mutex<FlowState>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct FlowState {
    pub(super) open: Vec<Open>,
}

/// A stream that has not ended.
pub(super) struct Open {
    pub(super) token: u32,
    /// What was sent and has not been given back.
    pub(super) sent_bytes: usize,
}

/// Whether a part can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Some,
    None,
    /// The stream has been cancelled, or its client has gone.
    Over,
}

impl Flow {
    pub(super) fn lock(&self) -> MutexGuard<'_, FlowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a stream. False if it had ended.
    pub(super) fn has_removed(&self, token: u32) -> bool {
        let mut state = self.lock();
        let before = state.open.len();
        state.open.retain(|open| open.token != token);
        before > state.open.len()
    }
}

impl FlowState {
    pub(super) fn room(&self, token: u32, cost_bytes: usize) -> Room {
        let is_long = |bytes: usize| bytes > OWED_BYTES_MAX;
        match self.open.iter().find(|open| open.token == token) {
            None => Room::Over,
            Some(own) if own.sent_bytes >= STREAM_CREDIT => Room::None,
            // Of long ones a client that has been stopped gets one, however many streams it has.
            Some(_)
                if is_long(cost_bytes) && self.open.iter().any(|one| is_long(one.sent_bytes)) =>
            {
                Room::None
            }
            Some(_) => Room::Some,
        }
    }

    /// Counts a part if there is room for it.
    pub(super) fn take_room(&mut self, token: u32, cost_bytes: usize) -> Room {
        let room = self.room(token, cost_bytes);
        if room == Room::Some
            && let Some(own) = self.open.iter_mut().find(|open| open.token == token)
        {
            own.sent_bytes += cost_bytes;
        }
        room
    }
}
