//! The owner of a queue: the jobs, and the thread that gives them out.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corewire_endpoint::{MessageError, Options, OwnedMessage, Peer, Report, Selector};
use corewire_os::OsError;
use corewire_os::fork::generation;

use super::error::QueueError;
use super::jobs::{Action, Delivery, Jobs, QueueView};
use super::wire::Message;
use crate::error::EndpointError;
use crate::path::endpoint::{Endpoint, Event};
use crate::wait::Interrupter;

/// How long the end of a queue may take for what is on its way.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// A queue in the process that owns it, returned by [`QueueBuilder::create`](crate::QueueBuilder::create). Its methods can be
/// called from any thread.
///
/// Dropping it ends the queue: the jobs that are not done are lost, and calls of workers and producers end with
/// [`MessageError::PeerLeft`]. Call [`finish`](Self::finish) and [`wait_until_done`](Self::wait_until_done) before: then workers
/// hear that no job will come.
pub struct Queue {
    shared: Arc<Shared>,
    interrupter: Interrupter,
    thread: Option<JoinHandle<()>>,
    /// Of the process that owns it: a forked child must leave its parent's thread alone.
    generation: u32,
    capacity: usize,
    largest: usize,
}

/// What the owner's threads share.
struct Shared {
    state: Mutex<State>,
    /// A job was done, or there may be room.
    changed: Condvar,
}

struct State {
    jobs: Jobs<Peer>,
    /// What the thread is to send.
    actions: Vec<Action<Peer>>,
    is_closing: bool,
    /// The thread has ended, for this reason.
    ended: Option<MessageError>,
    /// Calls that wait for a change: without any, a change makes no system call.
    waiting: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the calls that wait.
    fn tell(&self, state: &State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }
}

impl Queue {
    pub(super) fn start(
        endpoint: Endpoint,
        delivery: Delivery,
        capacity: usize,
        largest: usize,
    ) -> Result<Self, EndpointError> {
        let jobs = Jobs::new(delivery, capacity);
        let state = State { jobs, actions: Vec::new(), is_closing: false, ended: None, waiting: 0 };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let interrupter = endpoint.interrupter();
        let serving = Serving { endpoint, shared: Arc::clone(&shared), largest };
        let thread = std::thread::Builder::new().name("corewire-queue".into());
        let thread = thread.spawn(move || serving.run()).map_err(|error| {
            let (what, errno) = ("start a thread".into(), error.raw_os_error().unwrap_or(0));
            EndpointError::from(OsError { what, errno })
        })?;
        let thread = Some(thread);
        let generation = generation();
        Ok(Self { shared, interrupter, thread, generation, capacity, largest })
    }

    /// Adds a job. Waits while the queue is full.
    ///
    /// # Errors
    /// [`QueueError::TooLong`], `Finished`; `Message` if the queue's endpoint has failed, or in a forked child.
    pub fn push(&self, job: &[u8]) -> Result<(), QueueError> {
        self.push_timeout(job, Duration::MAX)
    }

    /// Adds a job if there is room now.
    ///
    /// # Errors
    /// [`QueueError::Full`]; otherwise as for [`push`](Self::push).
    pub fn try_push(&self, job: &[u8]) -> Result<(), QueueError> {
        self.push_timeout(job, Duration::ZERO)
    }

    /// Adds a job, and waits for room for at most `timeout`.
    ///
    /// # Errors
    /// As for [`try_push`](Self::try_push).
    pub fn push_timeout(&self, job: &[u8], timeout: Duration) -> Result<(), QueueError> {
        if job.len() > self.largest {
            let (max, asked) = (self.largest as u64, job.len() as u64);
            return Err(QueueError::TooLong { max, asked });
        }
        let until = Instant::now().checked_add(timeout);
        let mut state = self.ours()?;
        let mut waits = false;
        let ended = loop {
            match &state.ended {
                Some(error) => break Err(error.clone().into()),
                None if state.jobs.is_finishing() => break Err(QueueError::Finished),
                None if state.jobs.has_room() => break Ok(()),
                None => {}
            }
            if !std::mem::replace(&mut waits, true) {
                self.act_on(&mut state, |jobs, actions| jobs.wait_for_room(true, actions));
            }
            let (later, is_late) = self.wait(state, until);
            state = later;
            if is_late && !state.jobs.has_room() {
                break Err(QueueError::Full { capacity: self.capacity });
            }
        };
        self.act_on(&mut state, |jobs, actions| {
            if ended.is_ok() {
                jobs.push(job.to_vec(), actions);
            }
            if waits {
                jobs.wait_for_room(false, actions);
            }
        });
        ended
    }

    /// Changes the state, and wakes the thread for what that makes it send.
    fn act_on(
        &self,
        state: &mut State,
        change: impl FnOnce(&mut Jobs<Peer>, &mut Vec<Action<Peer>>),
    ) {
        let State { jobs, actions, .. } = state;
        let had_none = actions.is_empty();
        change(jobs, actions);
        if had_none && !actions.is_empty() {
            self.interrupter.interrupt();
        }
    }

    /// Accepts no more jobs. Workers get those that are left, also those that go back; then their
    /// [`take`](crate::Worker::take) returns `None`.
    pub fn finish(&self) {
        if self.generation == generation() {
            let mut state = self.shared.lock();
            let State { jobs, actions, .. } = &mut *state;
            jobs.finish(actions);
            self.shared.tell(&state);
            drop(state);
            self.interrupter.interrupt();
        }
    }

    /// Waits until no job is left, for at most `timeout`. False if some are. With [`Delivery::AtMostOnce`] the last ones may
    /// still be under way in their workers.
    ///
    /// # Errors
    /// [`QueueError::Message`] if the queue's endpoint has failed, or in a forked child.
    pub fn wait_until_done(&self, timeout: Duration) -> Result<bool, QueueError> {
        let until = Instant::now().checked_add(timeout);
        let mut state = self.ours()?;
        loop {
            if state.jobs.is_empty() {
                return Ok(true);
            }
            if let Some(error) = &state.ended {
                return Err(error.clone().into());
            }
            let (later, is_late) = self.wait(state, until);
            state = later;
            if is_late {
                return Ok(state.jobs.is_empty());
            }
        }
    }

    /// Waits for a change. True if it is too late for another wait. Without a time it waits without a limit.
    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> (MutexGuard<'a, State>, bool) {
        let changed = &self.shared.changed;
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return (state, true);
        }
        state.waiting += 1;
        let mut state = match left {
            None => changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(left) => {
                let waited = changed.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.waiting -= 1;
        (state, false)
    }

    /// How many jobs wait, run and are done.
    #[must_use]
    pub fn view(&self) -> QueueView {
        match self.generation == generation() {
            true => self.shared.lock().jobs.view(),
            false => QueueView::default(),
        }
    }

    /// Another thread of the parent may have had the lock.
    fn ours(&self) -> Result<MutexGuard<'_, State>, QueueError> {
        match self.generation == generation() {
            true => Ok(self.shared.lock()),
            false => Err(MessageError::Forked.into()),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.generation != generation() {
            return std::mem::forget(self.thread.take());
        }
        self.shared.lock().is_closing = true;
        self.interrupter.interrupt();
        // A thread that panicked has reported it.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("view", &self.view()).finish_non_exhaustive()
    }
}

/// The thread that serves a queue.
struct Serving {
    endpoint: Endpoint,
    shared: Arc<Shared>,
    largest: usize,
}

impl Serving {
    fn run(mut self) {
        corewire_os::process::block_all_signals();
        let shared = Arc::clone(&self.shared);
        let ended = loop {
            if shared.lock().is_closing {
                break MessageError::Cancelled;
            }
            match self.endpoint.receive_event(Selector::any()) {
                Ok(Event::Received(message)) => self.take(message),
                Ok(Event::Gone { peer, .. }) => {
                    self.change(|jobs, actions| jobs.gone(peer, actions))
                }
                Ok(Event::Came(_)) | Err(MessageError::Interrupted) => {}
                Err(error) => break error,
            }
            self.act();
        };
        if ended == MessageError::Cancelled {
            self.act();
            // What a stopped worker does not take is lost with the queue.
            let until = Instant::now() + ENDS_WITHIN;
            while self.endpoint.has_pending_sends() {
                let left = until.saturating_duration_since(Instant::now());
                match self.endpoint.within(left).flush() {
                    Err(MessageError::Interrupted) => {}
                    _ => break,
                }
            }
        }
        let mut state = shared.lock();
        state.ended = Some(ended);
        shared.tell(&state);
    }

    /// Handles what a worker or a producer says.
    fn take(&mut self, message: OwnedMessage) {
        let from = message.source();
        match Message::of_tag(message.tag()) {
            Some(Message::Push) if message.len() > self.largest => {
                let max = self.largest as u64;
                self.send(from, Message::TooLong { max }, &[]);
            }
            Some(Message::Push) => {
                let job = message.into_vec();
                self.change(|jobs, actions| jobs.push_from(from, job, actions));
            }
            Some(Message::Ask) => self.change(|jobs, actions| jobs.ask(from, actions)),
            Some(Message::Done { number }) => {
                self.change(|jobs, actions| jobs.finish_job(from, number, actions));
            }
            Some(Message::Back { number }) => {
                self.change(|jobs, actions| jobs.give_back(from, number, actions));
            }
            // Nobody here says that to an owner.
            _ => {}
        }
    }

    fn change(&self, change: impl FnOnce(&mut Jobs<Peer>, &mut Vec<Action<Peer>>)) {
        let mut state = self.shared.lock();
        let State { jobs, actions, .. } = &mut *state;
        change(jobs, actions);
        self.shared.tell(&state);
    }

    /// Sends what is to be sent. Never waits for a peer.
    fn act(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        while !state.actions.is_empty() {
            let actions = std::mem::take(&mut state.actions);
            for action in actions {
                match action {
                    Action::Accepted { to } => self.send(to, Message::Accepted, &[]),
                    Action::Finished { to } => self.send(to, Message::Finished, &[]),
                    Action::Give { to, number, is_repeated } => {
                        let is_done = state.jobs.is_done_when_got();
                        let Some(payload) = state.jobs.payload(number) else { continue };
                        // Of a peer that has gone an event follows: its job goes back.
                        self.send(to, Message::Give { number, is_repeated, is_done }, payload);
                    }
                }
            }
        }
        shared.tell(&state);
    }

    /// Sends, now or when there is room; nothing if the peer has gone.
    fn send(&mut self, to: Peer, message: Message, bytes: &[u8]) {
        loop {
            match self.endpoint.try_send(to, message.tag(), bytes) {
                Ok(()) => return,
                // What interrupts is looked for after this.
                Err(MessageError::Interrupted) => {}
                Err(MessageError::Full { .. } | MessageError::ReceiverFull { .. }) => break,
                Err(_) => return,
            }
        }
        let options = Options { report: Report::ErrorsOnly, ..Options::default() };
        loop {
            match self.endpoint.isend_with(to, message.tag(), bytes.to_vec(), options) {
                Err(MessageError::Interrupted) => {}
                _ => return,
            }
        }
    }
}
