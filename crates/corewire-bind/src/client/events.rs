//! What the service has sent without being asked, until the program takes it.

use std::collections::VecDeque;
use std::task::Waker;

use crate::error::{CallError, of_status};
use crate::message::Message;
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

    /// Wakes a task when something has come.
    pub(super) fn wake_later(&mut self, waker: &Waker) {
        add_once(&mut self.wakers, waker);
    }

    pub(super) fn wake(&mut self) {
        // All of them: the first one may have been dropped since.
        self.wakers.drain(..).for_each(Waker::wake);
    }

    /// `count` events are missing here.
    pub(super) fn lost(&mut self, count: u64) {
        // No event came between the last two notes.
        let note = self.notes().find_map(|entry| match entry {
            Entry::Lost(lost) => Some(lost),
            _ => None,
        });
        match note {
            Some(lost) => *lost = lost.saturating_add(count),
            None => self.push(Entry::Lost(count)),
        }
    }

    pub(super) fn not_taken(&mut self) {
        // One tells as much as several.
        if !self.notes().any(|entry| matches!(entry, Entry::NotTaken)) {
            self.push(Entry::NotTaken);
        }
    }

    /// The notes behind the last event: one of each kind.
    fn notes(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.waiting.iter_mut().rev().take_while(|entry| !matches!(entry, Entry::Event(_)))
    }

    pub(super) fn take(&mut self) -> Option<Result<(u16, Message), CallError>> {
        Some(match self.waiting.pop_front()? {
            Entry::Event(event) => {
                self.waiting_bytes -= event.cost_bytes();
                match event.status() {
                    None | Some(status::CAPABILITIES) => Ok((event.tag().ordinal(), event)),
                    Some(found) => Err(of_status(found)),
                }
            }
            Entry::Lost(count) => Err(CallError::EventsLost { count }),
            Entry::NotTaken => Err(CallError::NotTaken),
        })
    }
}

/// Remembers a task, once however often it looks.
pub(super) fn add_once(wakers: &mut Vec<Waker>, waker: &Waker) {
    if !wakers.iter().any(|one| one.will_wake(waker)) {
        wakers.push(waker.clone());
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
    fn notes_behind_the_last_event_are_two_at_most() {
        let mut events = Events::new(1000);
        for _ in 0..100 {
            events.lost(1);
            events.not_taken();
        }
        assert_eq!(
            events.take().map(|event| event.map(drop)),
            Some(Err(CallError::EventsLost { count: 100 }))
        );
        assert_eq!(events.take().map(|event| event.map(drop)), Some(Err(CallError::NotTaken)));
        assert!(events.take().is_none());
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
