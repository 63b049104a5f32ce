//! What the service has sent without being asked, until the program takes it.

use std::collections::VecDeque;
use std::task::Waker;

use super::{Message, add_once};
use crate::error::CallError;
use crate::tag::status;

/// Events in their order. Beyond a number of bytes new ones are left out, and counted where they are missing.
#[derive(Debug)]
pub(super) struct Events {
    waiting: VecDeque<Entry>,
    waiting_bytes: usize,
    bytes_max: usize,
    /// Tasks that wait for one.
    wakers: Vec<Waker>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all entries are events")]
enum Entry {
    Event(Message),
    Lost(u64),
    /// The service could not take the capabilities of a message from here.
    NotTaken,
}

impl Events {
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self { waiting: VecDeque::new(), waiting_bytes: 0, bytes_max, wakers: Vec::new() }
    }

    pub(super) fn put(&mut self, event: Message) {
        let cost_bytes = event.cost_bytes();
        // One of any length is kept.
        if self.waiting_bytes > 0 && self.waiting_bytes + cost_bytes > self.bytes_max {
            return self.lost(1);
        }
        self.waiting_bytes += cost_bytes;
        self.push(Entry::Event(event));
    }

    fn push(&mut self, entry: Entry) {
        self.waiting.push_back(entry);
        self.wake();
    }

    /// Has a task woken when something has come.
    pub(super) fn wake_later(&mut self, waker: &Waker) {
        add_once(&mut self.wakers, waker);
    }

    pub(super) fn wake(&mut self) {
        // All of them: the first one may have been dropped since.
        self.wakers.drain(..).for_each(Waker::wake);
    }

    /// `count` events are missing here.
    pub(super) fn lost(&mut self, count: u64) {
        match self.waiting.back_mut() {
            Some(Entry::Lost(lost)) => *lost = lost.saturating_add(count),
            _ => self.push(Entry::Lost(count)),
        }
    }

    pub(super) fn not_taken(&mut self) {
        // One tells as much as several.
        if !matches!(self.waiting.back(), Some(Entry::NotTaken)) {
            self.push(Entry::NotTaken);
        }
    }

    pub(super) fn take(&mut self) -> Option<Result<(u16, Message), CallError>> {
        Some(match self.waiting.pop_front()? {
            Entry::Event(event) => {
                self.waiting_bytes -= event.cost_bytes();
                match event.status() {
                    None | Some(status::CAPABILITIES) => Ok((event.tag().ordinal(), event)),
                    Some(found) => Err(status::error(found)),
                }
            }
            Entry::Lost(count) => Err(CallError::EventsLost { count }),
            Entry::NotTaken => Err(CallError::NotTaken),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    use super::*;

    struct Count(Mutex<u64>);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() += 1;
        }
    }

    #[test]
    fn every_task_that_waits_is_woken_once() {
        let mut events = Events::new(1000);
        let tasks = [(); 2].map(|()| Arc::new(Count(Mutex::new(0))));
        for task in tasks.iter().chain(&tasks) {
            events.wake_later(&Arc::clone(task).into());
        }
        events.lost(1);
        events.lost(1);
        assert_eq!(tasks.map(|task| *task.0.lock().unwrap()), [1, 1]);
    }
}
