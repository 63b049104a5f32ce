//! What the control lane's thread has read, until a program's thread takes it, and how that thread is interrupted.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use corewire::Interrupter;
use corewire_ring::sync::AtomicU32;
use corewire_ring::sync::Ordering::{Acquire, Release};

use crate::link::control::{Load, MonitorEvent};

/// What the control lane's thread has read.
#[derive(Default)]
pub(super) struct Inbox {
    /// How many there are. Only a thread that holds the lock writes it.
    count: AtomicU32,
    unread: Mutex<Unread>,
    /// Some of it has been taken, or the hub has gone.
    taken: Condvar,
}

#[derive(Default)]
struct Unread {
    news: VecDeque<MonitorEvent>,
    load: Load,
    is_closed: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the program is far behind.
    pub(super) fn put(&self, one: MonitorEvent) {
        let mut unread = self.lock();
        while !unread.load.has_room_for(&one) && !unread.is_closed {
            unread = self.taken.wait(unread).unwrap_or_else(PoisonError::into_inner);
        }
        if !unread.is_closed {
            unread.load.add(&one);
            unread.news.push_back(one);
            self.count.fetch_add(1, Release);
        }
    }

    /// Nothing more is taken.
    pub(super) fn close(&self) {
        let mut unread = self.lock();
        unread.is_closed = true;
        let left = std::mem::take(&mut unread.news);
        drop(unread);
        self.taken.notify_all();
        drop(left);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    /// Handles the oldest one, if there is one. Its descriptors count as waiting until then: those that nobody takes are
    /// closed by then, and no more have come in their place. One that is put at the same time may be missed: its thread
    /// interrupts the hub's endpoint behind it.
    #[inline]
    pub(super) fn has_handled(&self, handle: impl FnOnce(MonitorEvent)) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut unread = self.lock();
        let Some(one) = unread.news.pop_front() else { return false };
        self.count.fetch_sub(1, Release);
        drop(unread);
        let load = Load::of(&one);
        handle(one);
        if self.lock().load.remove(load) {
            self.taken.notify_all();
        }
        true
    }
}

/// What ends a wait for the link.
#[derive(Clone)]
pub(super) enum Interrupt {
    Endpoint(Interrupter),
    Event(Arc<OwnedFd>),
}

impl Interrupt {
    pub(super) fn interrupt(&self) {
        match self {
            Self::Endpoint(interrupter) => interrupter.interrupt(),
            Self::Event(event) => _ = rustix::io::write(event, &1_u64.to_le_bytes()),
        }
    }
}
