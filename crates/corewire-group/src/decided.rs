//! The decided entries, in order.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_core::Stream;

use crate::error::GroupError;
use crate::group::{Group, Linger, Shared, State};
use crate::member::Member;
use crate::replica::Replica;

/// Decisions that are read together at most.
const READ_AT_ONCE: usize = 64;

/// A decided command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedEntry {
    /// Its index in the log, counted from 0. Indexes grow; those of entries that end clients' sessions are left out.
    pub index: u64,
    /// Who has proposed it: a member or a [client](crate::Member::is_client).
    pub from: Member,
    /// Which of that member's commands it is.
    pub number: u64,
    /// What was proposed. It may keep the memory of up to 16 KiB of commands that were decided with it, or twice its own bytes.
    pub command: Bytes,
}

/// What comes next in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// An entry.
    Entry(DecidedEntry),
    /// What a member's program has made of all entries before index `next`: see [`Group::truncate`](crate::Group::truncate).
    /// The entry of that index comes next.
    Snapshot {
        /// The index of the first entry that it does not stand for.
        next: u64,
        /// What the program has given.
        state: Bytes,
    },
}

/// The decisions of a log, in order, each once: an iterator that waits for the next one, and a stream. Both end
/// with the group, after what is decided. Returned by [`Group::decided`](crate::Group::decided).
#[derive(Debug)]
pub struct Decided {
    shared: Arc<Shared>,
    next: u64,
    /// Those that were read together, and are next.
    ready: VecDeque<Decision>,
}

impl Group {
    /// The decisions in their order, from this index on. Any number of threads may read.
    #[must_use]
    pub fn decided(&self, first: u64) -> Decided {
        Decided { shared: Arc::clone(&self.shared), next: first, ready: VecDeque::new() }
    }
}

impl Decided {
    /// The next entry, if it is decided already. Never waits.
    ///
    /// # Errors
    /// What has ended the group.
    pub fn try_next(&mut self) -> Result<Option<Decision>, GroupError> {
        match self.ready.pop_front() {
            Some(next) => Ok(Some(next)),
            None => self.next_until(Some(Instant::now())),
        }
    }

    /// The next entry; `None` if it was not decided within `timeout`.
    ///
    /// # Errors
    /// What has ended the group.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Decision>, GroupError> {
        match self.ready.pop_front() {
            Some(next) => Ok(Some(next)),
            None => self.next_until(Instant::now().checked_add(timeout)),
        }
    }

    fn next_until(&mut self, until: Option<Instant>) -> Result<Option<Decision>, GroupError> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock()?;
        let mut linger = Linger::default();
        loop {
            if let Some(next) = self.read_some(&state) {
                return Ok(Some(next));
            }
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
            // Those that follow each other closely come without the member's thread.
            if shared.turn(&mut state) {
                linger.again();
            } else if linger.goes_on() {
                state = shared.pause(state)?;
            } else {
                state = shared.wait(state, until);
            }
        }
    }

    /// How many entries are decided, as far as this member knows when it has handled what has come.
    pub(crate) fn look(&self) -> Result<u64, GroupError> {
        let mut state = self.shared.lock()?;
        self.shared.turn(&mut state);
        Ok(state.replica().map_or(0, Replica::decided_count))
    }

    /// The next one. Keeps some that follow it.
    fn read_some(&mut self, state: &State) -> Option<Decision> {
        let next = self.read(state);
        while next.is_some()
            && self.ready.len() < READ_AT_ONCE
            && let Some(following) = self.read(state)
        {
            self.ready.push_back(following);
        }
        next
    }

    fn read(&mut self, state: &State) -> Option<Decision> {
        let replica = state.replica()?;
        while replica.is_void(self.next) {
            self.next += 1;
        }
        let Some(entry) = replica.entry(self.next) else {
            let snapshot = replica.snapshot().filter(|snapshot| snapshot.next > self.next)?;
            self.next = snapshot.next;
            let state = snapshot.state.0.clone();
            return Some(Decision::Snapshot { next: snapshot.next, state });
        };
        let index = self.next;
        self.next += 1;
        Some(Decision::Entry(DecidedEntry {
            index,
            from: entry.from,
            number: entry.number,
            command: entry.command.0.clone(),
        }))
    }
}

impl Iterator for Decided {
    type Item = Decision;

    fn next(&mut self) -> Option<Decision> {
        match self.ready.pop_front() {
            Some(next) => Some(next),
            None => self.next_until(None).ok().flatten(),
        }
    }
}

impl Stream for Decided {
    type Item = Decision;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Decision>> {
        if let Some(next) = self.ready.pop_front() {
            return Poll::Ready(Some(next));
        }
        let shared = Arc::clone(&self.shared);
        let Ok(mut state) = shared.lock() else { return Poll::Ready(None) };
        if let Some(entry) = self.read_some(&state) {
            return Poll::Ready(Some(entry));
        }
        if state.end.is_some() {
            return Poll::Ready(None);
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            state.wakers.push(context.waker().clone());
        }
        shared.hand_over(&mut state);
        Poll::Pending
    }
}
