//! A member, as its program sees it.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corewire::{Domain, OsError};
use corewire_os::event::{Bell, wait_readable};
use corewire_os::process;

use crate::decided::Decided;
use crate::engine::Engine;
use crate::error::GroupError;
use crate::frame::Seen;
use crate::join::GroupBuilder;
use crate::member::{Member, View};

/// Turns that a call makes itself before it leaves the work to the member's thread.
const TURNS: u32 = 2000;

/// A member of a group. Dropping it ends the membership at once, as if the process had died; [`leave`](Self::leave) lets
/// the others take over its roles first.
pub struct Group {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What calls and the thread share.
pub(crate) struct Shared {
    name: String,
    me: Member,
    command_bytes_max: usize,
    state: Mutex<State>,
    /// Something was decided, or the group has ended.
    news: Condvar,
    bell: Arc<Bell>,
}

pub(crate) struct State {
    pub(crate) engine: Engine,
    /// Why nothing can be done any more.
    pub(crate) end: Option<GroupError>,
    pub(crate) wakers: Vec<Waker>,
    is_dropped: bool,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the member's thread look.
    fn kick(&self) {
        self.bell.ring();
    }

    /// Waits for news, which the member's thread brings.
    pub(crate) fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        self.kick();
        match until {
            None => self.news.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                let waited = self.news.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Handles what has come; true if anything was done.
    pub(crate) fn turn(&self, state: &mut State) -> bool {
        if state.end.is_some() {
            return false;
        }
        let done = state.engine.turn();
        let done = done.and_then(|done| state.engine.check_majority().map(|()| done));
        let has_done = match done {
            Ok(done) => done,
            Err(error) => {
                state.end = Some(error);
                true
            }
        };
        if state.engine.take_news() || state.end.is_some() {
            self.news.notify_all();
            state.wakers.drain(..).for_each(Waker::wake);
        }
        has_done
    }
}

impl Group {
    /// Begins to join the group of this name in a domain. The group has the names `NAME`, `NAME.door` and `NAME.0` to
    /// `NAME.63`.
    pub fn builder(domain: &Domain, name: &str) -> GroupBuilder {
        GroupBuilder::new(domain, name)
    }

    pub(crate) fn new(
        name: &str,
        engine: Engine,
        bell: Arc<Bell>,
        command_bytes_max: usize,
    ) -> Result<Self, GroupError> {
        let me = engine.me();
        let state = State { engine, end: None, wakers: Vec::new(), is_dropped: false };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            me,
            command_bytes_max,
            state: Mutex::new(state),
            news: Condvar::new(),
            bell,
        });
        let ours = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("corewire-group".to_owned())
            .spawn(move || {
                process::block_all_signals();
                run(&ours);
            })
            .map_err(|error| OsError {
                what: "start the thread of a group".into(),
                errno: error.raw_os_error().unwrap_or_default(),
            })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The length of the longest command in bytes.
    #[must_use]
    pub fn largest_command(&self) -> usize {
        self.shared.command_bytes_max
    }

    /// This member.
    #[must_use]
    pub fn member(&self) -> Member {
        self.shared.me
    }

    /// The present view, as far as this member knows.
    #[must_use]
    pub fn view(&self) -> View {
        self.shared.lock().engine.replica().view().clone()
    }

    /// What this member knows of itself and the group.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.shared.lock().engine.seen()
    }

    /// Lets `command` be decided, and returns its index in the log: all members have the same command there. Waits until
    /// it is decided.
    ///
    /// # Errors
    /// [`GroupError::TooLarge`], or another [`GroupError`] after which nothing can be decided any more.
    pub fn propose(&self, command: &[u8]) -> Result<u64, GroupError> {
        self.propose_until(command, None)
    }

    /// Like [`propose`](Self::propose), but waits for at most `timeout`. After [`GroupError::Timeout`] the command may
    /// still be decided.
    ///
    /// # Errors
    /// [`GroupError::Timeout`]; otherwise as for [`propose`](Self::propose).
    pub fn propose_timeout(&self, command: &[u8], timeout: Duration) -> Result<u64, GroupError> {
        self.propose_until(command, Some(timeout))
    }

    fn propose_until(&self, command: &[u8], timeout: Option<Duration>) -> Result<u64, GroupError> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let number = self.submit(command)?;
        let mut turns = 0;
        let mut state = self.shared.lock();
        loop {
            let has_done = self.shared.turn(&mut state);
            if let Some(place) = state.engine.take_place(number) {
                self.shared.kick();
                return Ok(place);
            }
            if state.engine.is_passed_over(number) {
                let before = state.engine.replica().snapshot().map_or(0, |snapshot| snapshot.next);
                return Err(GroupError::PassedOver { before });
            }
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(GroupError::Timeout(timeout.unwrap_or_default()));
            }
            turns += 1;
            if !has_done && turns > TURNS {
                state = self.shared.wait(state, until);
            }
        }
    }

    /// Lets `command` be decided, and returns its number among this member's commands, counted from 1. Does not wait: it
    /// comes with the [decided](Self::decided) entries. Commands of one member are decided in their order.
    ///
    /// # Errors
    /// As for [`propose`](Self::propose).
    pub fn submit(&self, command: &[u8]) -> Result<u64, GroupError> {
        if command.len() > self.shared.command_bytes_max {
            return Err(GroupError::TooLarge {
                name: self.shared.name.clone(),
                asked: command.len(),
                max: self.shared.command_bytes_max,
            });
        }
        let mut state = self.shared.lock();
        match &state.end {
            Some(end) => Err(end.clone()),
            None => {
                let number = state.engine.propose(command);
                self.shared.turn(&mut state);
                Ok(number)
            }
        }
    }

    /// Waits until every command of this member is decided, for at most `timeout`.
    ///
    /// # Errors
    /// [`GroupError::Timeout`], or what has ended the group before.
    pub fn flush(&self, timeout: Duration) -> Result<(), GroupError> {
        let until = Instant::now().checked_add(timeout);
        let mut state = self.shared.lock();
        loop {
            let has_done = self.shared.turn(&mut state);
            if state.engine.replica().undecided_count() == 0 {
                return Ok(());
            }
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(GroupError::Timeout(timeout));
            }
            if !has_done {
                state = self.shared.wait(state, until);
            }
        }
    }

    /// The decided entries in their order, from this index on. Any number of threads may read.
    #[must_use]
    pub fn decided(&self, first: u64) -> Decided {
        Decided::new(Arc::clone(&self.shared), first)
    }

    /// Says what this program has made of all entries before index `next`. They are not kept any more here: a reader that is
    /// behind, here or at a member that comes later, gets `state` in their place. Every member does this for itself, when
    /// it wants. No effect if they are not all decided, or if there is a snapshot for more already.
    pub fn truncate(&self, next: u64, state: &[u8]) {
        self.shared.lock().engine.truncate(next, state);
    }

    /// Whether the kernel has not reported the end of this member's process.
    #[must_use]
    pub fn lives(&self, member: Member) -> bool {
        self.shared.lock().engine.lives(member)
    }

    /// Waits until the group has at least `count` members, for at most `timeout`. Returns the present view.
    ///
    /// # Errors
    /// [`GroupError::Timeout`], or what has ended the group before.
    pub fn wait_for_members(&self, count: usize, timeout: Duration) -> Result<View, GroupError> {
        let until = Instant::now().checked_add(timeout);
        let mut state = self.shared.lock();
        loop {
            self.shared.turn(&mut state);
            let view = state.engine.replica().view();
            if view.members.len() >= count {
                return Ok(view.clone());
            }
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(GroupError::Timeout(timeout));
            }
            state = self.shared.wait(state, until);
        }
    }

    /// Makes this member the leader. The present one may live. Does not wait.
    pub fn lead(&self) {
        self.shared.lock().engine.lead();
        self.shared.kick();
    }

    /// Leaves the group: the others take over this member's roles first. Waits for that, for at most `timeout`; then
    /// leaves as if the process had died.
    ///
    /// # Errors
    /// [`GroupError::Timeout`], or what has ended the group before.
    pub fn leave(self, timeout: Duration) -> Result<(), GroupError> {
        let until = Instant::now().checked_add(timeout);
        let mut state = self.shared.lock();
        if state.engine.replica().view().members.len() == 1 {
            return Ok(());
        }
        state.engine.leave();
        loop {
            self.shared.turn(&mut state);
            if state.engine.replica().has_left() {
                return Ok(());
            }
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(GroupError::Timeout(timeout));
            }
            state = self.shared.wait(state, until);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.shared.lock().is_dropped = true;
        self.shared.kick();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let mut state = self.shared.lock();
        state.end.get_or_insert_with(|| GroupError::Left(self.shared.name.clone()));
        self.shared.news.notify_all();
        state.wakers.drain(..).for_each(Waker::wake);
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("name", &self.shared.name)
            .field("member", &self.shared.me)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The member's thread: does the work while no call does.
fn run(shared: &Shared) {
    loop {
        let (until, descriptors) = {
            let mut state = shared.lock();
            while shared.turn(&mut state) {}
            if state.is_dropped || state.end.is_some() {
                return;
            }
            match state.engine.arm() {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    state.end = Some(error);
                    continue;
                }
            }
            // What finds no room now is tried again soon.
            let pause = if state.engine.has_unsent() { 1 } else { 100 };
            let Ok(descriptors) = state.engine.descriptors() else { continue };
            (Instant::now().checked_add(Duration::from_millis(pause)), descriptors)
        };
        let (endpoint, receiver) = &descriptors;
        let descriptors = [endpoint.as_fd(), receiver.as_fd(), shared.bell.as_fd()];
        if wait_readable(&descriptors, until).is_err() {
            return;
        }
    }
}
