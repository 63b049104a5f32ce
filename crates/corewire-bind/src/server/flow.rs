//! What may be sent of the streams of a client, and what sends it.
//!
//! What the parts of a client cost that it has not given back is counted in its [`Flow`], which the service's thread shares
//! with the threads that send parts.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use corewire_os::fork::generation;

use crate::error::EncodeError;
use crate::lane::backlog::OWED_BYTES_MAX;
use crate::tag::STREAM_CREDIT;

/// What an iterator of parts has given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulled {
    /// A part, which was encoded.
    Part,
    /// The end: the reply was encoded.
    End,
    /// An error: the reply was encoded.
    Failed,
}

pub(super) type Pull = Box<dyn FnMut(&mut Vec<u8>) -> Result<Pulled, EncodeError> + Send>;

/// A stream whose parts come from an iterator.
pub(super) struct Source {
    pub(super) token: u32,
    pub(super) ordinal: u16,
    pub(super) pull: Pull,
}

/// The streams of a client. Dropped with what the service knows of it: then those that send parts are told.
#[derive(Default)]
pub(super) struct RowStreams {
    pub(super) flow: Arc<Flow>,
    pub(super) sources: Vec<Source>,
}

impl RowStreams {
    /// What parts cost that the client has not given back, and that may be among what waits for it: long ones are counted
    /// apart.
    pub(super) fn sent_bytes(&self) -> usize {
        let most = STREAM_CREDIT + OWED_BYTES_MAX;
        self.flow.lock().open.iter().map(|open| open.sent_bytes.min(most)).sum()
    }
}

impl Drop for RowStreams {
    fn drop(&mut self) {
        // A child leaves its parent alone, another thread of which may have had the lock.
        if self.flow.is_ours() {
            self.flow.lock().open.clear();
            self.flow.changed.notify_all();
        }
    }
}

impl fmt::Debug for RowStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowStreams")
    }
}

/// What may be sent of the streams of a client.
pub(super) struct Flow {
    /// Of the process that serves.
    generation: u32,
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

impl Default for Flow {
    fn default() -> Self {
        Self { generation: generation(), state: Mutex::default(), changed: Condvar::new() }
    }
}

impl Flow {
    fn is_ours(&self) -> bool {
        self.generation == generation()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, FlowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a stream. False if it had ended.
    pub(super) fn has_removed(&self, token: u32) -> bool {
        let mut state = self.lock();
        let before = state.open.len();
        state.open.retain(|open| open.token != token);
        let was_open = before > state.open.len();
        drop(state);
        self.changed.notify_all();
        was_open
    }
}

impl FlowState {
    pub(super) fn room(&self, token: u32) -> Room {
        match self.open.iter().find(|open| open.token == token) {
            None => Room::Over,
            Some(own) if own.sent_bytes >= STREAM_CREDIT => Room::None,
            Some(_) => Room::Some,
        }
    }

    /// Counts a part if there is room for it.
    pub(super) fn take_room(&mut self, token: u32, cost_bytes: usize) -> Room {
        let room = self.room(token);
        if room == Room::Some
            && let Some(own) = self.open.iter_mut().find(|open| open.token == token)
        {
            own.sent_bytes += cost_bytes;
        }
        room
    }
}
