//! What waits for a client: messages that found no room, and events that were left out behind them.

use crate::message::COST_BYTES;
use crate::tag::{STREAM_CREDIT, STREAMS_MAX, Tag};

/// Bytes that wait for one client, each message with what it costs besides. Events beyond that are left out.
pub(crate) const WAITING_BYTES_MAX: usize = 1 << 20;

/// Bytes of replies that a service may owe a client: the longest reply of each call, with what it costs besides. A
/// service keeps that much for a client that does not read, so it must not be asked for more. Replies that may be longer
/// than this are counted apart: one such call may be under way beside the others.
pub(crate) const OWED_BYTES_MAX: usize = 1 << 20;

/// Bytes that are kept for one client: all events, and the replies that it may be owed: of calls that it has started, of
/// those that it has abandoned, and as much again for versions of messages that are longer than the client's.
/// And the parts of its streams, of each of which one more can be sent whatever its length.
const KEPT_BYTES_MAX: usize =
    WAITING_BYTES_MAX + 4 * OWED_BYTES_MAX + STREAMS_MAX * (STREAM_CREDIT + OWED_BYTES_MAX);
/// Longer replies: one that was started, one abandoned, one that the client's thread waits for; an event; and a part of each
/// stream.
const KEPT_LONG_MAX: usize = 4 + STREAMS_MAX;

/// What is sent, besides capabilities.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) tag: Tag,
    pub(crate) status: Option<u64>,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    pub(crate) const fn new(tag: Tag, bytes: &'a [u8]) -> Self {
        Self { tag, status: None, bytes }
    }

    pub(crate) const fn note(tag: Tag, status: u64) -> Self {
        Self { tag, status: Some(status), bytes: &[] }
    }

    pub(crate) const fn cost_bytes(&self) -> usize {
        self.bytes.len() + COST_BYTES
    }
}

/// Messages that wait for a client, and their bytes with what they cost besides.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) count: usize,
    /// Of those that are not long.
    pub(crate) bytes: usize,
    long_count: usize,
}

impl Kept {
    pub(crate) fn add(&mut self, cost_bytes: usize) {
        self.count += 1;
        match cost_bytes > OWED_BYTES_MAX {
            true => self.long_count += 1,
            false => self.bytes += cost_bytes,
        }
    }

    pub(crate) fn remove(&mut self, cost_bytes: usize) {
        self.count -= 1;
        match cost_bytes > OWED_BYTES_MAX {
            true => self.long_count -= 1,
            false => self.bytes -= cost_bytes,
        }
    }

    /// What counts when more is to be sent.
    pub(crate) const fn held(&self) -> Held {
        let is_over = self.bytes > KEPT_BYTES_MAX || self.long_count > KEPT_LONG_MAX;
        Held { count: self.count, bytes: self.bytes, is_over }
    }
}

/// Whether a message can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Or a part of a stream.
    Reply,
    Event,
}

/// Capabilities could not be sent: the other side has too many on their way, or one of them was not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotSent;

/// What waits for a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) count: usize,
    bytes: usize,
    /// Whether the client has asked for more than it may.
    is_over: bool,
}

/// What is done with a message for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is sent, behind a note of the events that were left out before.
    Send,
    /// It is left out, and the client told how many were.
    Lose,
    /// The client reads nothing, and asks for more.
    CutOff,
}

impl Held {
    /// So many messages of so many bytes, which are not known one by one.
    pub(crate) const fn of(count: usize, bytes: usize) -> Self {
        let bytes = bytes + count * COST_BYTES;
        Self { count, bytes, is_over: count > KEPT_LONG_MAX && bytes > KEPT_BYTES_MAX }
    }

    /// What is done with one more. Parts of streams, which may be among what waits, cost `part_bytes`: they leave no event
    /// out.
    pub(crate) const fn admit(
        self,
        weight: Weight,
        cost_bytes: usize,
        part_bytes: usize,
    ) -> Admission {
        let bytes = self.bytes.saturating_sub(part_bytes);
        match weight {
            // One of any length is kept.
            Weight::Event if self.count > 0 && bytes + cost_bytes > WAITING_BYTES_MAX => {
                Admission::Lose
            }
            Weight::Reply if self.is_over => Admission::CutOff,
            _ => Admission::Send,
        }
    }
}
