//! A member, as its program sees it.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corewire::OsError;
use corewire_os::event::Bell;
use corewire_os::{fork, process};

use crate::engine::Engine;
use crate::error::GroupError;
use crate::frame::{Command, Seen};
use crate::member::{Member, View};
use crate::replica::Replica;

/// How long a thread that does the work looks for more before it sleeps, and how often: on a busy machine a look takes long.
const LINGER: Duration = Duration::from_micros(50);
const LOOKS: u32 = 32;
/// Turns in which nothing happens that a call makes before it yields its processor.
const TURNS: u32 = 100;
/// How long the member's thread rests while calls do its work.
const REST: Duration = Duration::from_micros(100);
/// Commands that wait for the next turn at most.
const COMMANDS_AT_ONCE: u32 = 128;

/// A member of a group. Dropping it ends the membership at once, as if the process had died; [`leave`](Self::leave) lets
/// the others take over its roles first. In a forked child every call returns [`GroupError::Forked`], or what was known
/// before.
pub struct Group {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What calls and the thread share.
pub(crate) struct Shared {
    name: String,
    me: Member,
    command_bytes_max: usize,
    /// Which of the forks of this process has made it.
    generation: u32,
    state: Mutex<State>,
    /// Something was decided, or the group has ended.
    news: Condvar,
    /// Where the member's thread rests, and where it sleeps.
    rest: Condvar,
    bell: Arc<Bell>,
}

/// What the lock protects.
pub(crate) struct State {
    what: What,
    /// Why nothing can be done any more.
    pub(crate) end: Option<GroupError>,
    pub(crate) wakers: Vec<Waker>,
    /// Calls that wait for news: without any, news make no system call.
    waiting: usize,
    thread: Thread,
    /// A call has done the thread's work since it last looked.
    has_turned: bool,
    /// Commands since the last turn.
    commands: u32,
}

/// What the member's thread does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    Works,
    /// For a moment: calls do its work.
    Rests,
    /// Until something comes, or its bell rings.
    Sleeps,
}

/// Looking for more, without a sleep.
#[derive(Default)]
pub(crate) struct Linger(Option<(Instant, u32)>);

impl Linger {
    /// Something was done: begins anew.
    pub(crate) fn again(&mut self) {
        self.0 = None;
    }

    /// Nothing was done: whether to look once more.
    pub(crate) fn goes_on(&mut self) -> bool {
        let (since, looks) = self.0.get_or_insert_with(|| (Instant::now(), 0));
        *looks += 1;
        *looks <= LOOKS || since.elapsed() < LINGER
    }
}

/// A member, or what it knew in the end.
enum What {
    Member(Box<Engine>),
    Former(Box<Replica<Command>>),
    /// While the one becomes the other.
    Neither,
}

impl State {
    pub(crate) fn replica(&self) -> Option<&Replica<Command>> {
        match &self.what {
            What::Member(engine) => Some(engine.replica()),
            What::Former(replica) => Some(replica),
            What::Neither => None,
        }
    }

    /// The member, as long as it is one.
    fn engine(&mut self) -> Result<&mut Engine, GroupError> {
        match (&mut self.what, &self.end) {
            (What::Member(engine), None) => Ok(engine),
            (_, Some(end)) => Err(end.clone()),
            (_, None) => Err(GroupError::Forked),
        }
    }
}

impl Shared {
    /// Locks the state. In a forked child it may be locked for ever.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, GroupError> {
        match fork::generation() == self.generation {
            true => Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner)),
            false => Err(GroupError::Forked),
        }
    }

    /// Wakes the member's thread if it sleeps.
    fn wake(&self, state: &mut State) {
        if state.thread == Thread::Sleeps {
            state.thread = Thread::Works;
            self.bell.ring();
        }
    }

    /// Leaves the work to the member's thread.
    pub(crate) fn hand_over(&self, state: &mut State) {
        self.wake(state);
        state.has_turned = false;
        if state.thread == Thread::Rests {
            state.thread = Thread::Works;
            self.rest.notify_one();
        }
    }

    /// Waits for a moment without the lock.
    pub(crate) fn pause<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>, GroupError> {
        drop(state);
        std::thread::yield_now();
        self.lock()
    }

    /// Waits for news, which the member's thread brings.
    pub(crate) fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        self.hand_over(&mut state);
        state.waiting += 1;
        let mut state = match until {
            None => self.news.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                let waited = self.news.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.waiting -= 1;
        state
    }

    /// Handles what has come, in a call; true if anything was done.
    pub(crate) fn turn(&self, state: &mut State) -> bool {
        state.has_turned = true;
        self.work(state)
    }

    fn work(&self, state: &mut State) -> bool {
        state.commands = 0;
        let Ok(engine) = state.engine() else { return false };
        let done = engine.turn();
        match done.and_then(|done| engine.check_majority().map(|()| done)) {
            Ok(has_done) => {
                if engine.take_news() {
                    self.notify(state);
                }
                has_done
            }
            Err(error) => {
                self.end(state, error);
                true
            }
        }
    }

    /// Ends the membership. What is decided can still be read.
    fn end(&self, state: &mut State, error: GroupError) {
        state.end.get_or_insert(error);
        state.what = match std::mem::replace(&mut state.what, What::Neither) {
            What::Member(engine) => What::Former(Box::new(engine.into_replica())),
            other => other,
        };
        self.notify(state);
    }

    fn notify(&self, state: &mut State) {
        if state.waiting > 0 {
            self.news.notify_all();
        }
        state.wakers.drain(..).for_each(Waker::wake);
    }
}

impl Group {
    pub(crate) fn new(
        name: &str,
        engine: Engine,
        bell: Arc<Bell>,
        command_bytes_max: usize,
    ) -> Result<Self, GroupError> {
        let me = engine.me();
        let state = State {
            what: What::Member(Box::new(engine)),
            end: None,
            wakers: Vec::new(),
            waiting: 0,
            thread: Thread::Works,
            has_turned: false,
            commands: 0,
        };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            me,
            command_bytes_max,
            generation: fork::generation(),
            state: Mutex::new(state),
            news: Condvar::new(),
            rest: Condvar::new(),
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
    ///
    /// # Errors
    /// What has ended the group.
    pub fn view(&self) -> Result<View, GroupError> {
        Ok(self.shared.lock()?.engine()?.replica().view().clone())
    }

    /// What this member knows of itself and the group.
    ///
    /// # Errors
    /// What has ended the group.
    pub fn seen(&self) -> Result<Seen, GroupError> {
        Ok(self.shared.lock()?.engine()?.seen())
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
        self.check_length(command)?;
        let mut state = self.shared.lock()?;
        let engine = state.engine()?;
        engine.await_next();
        let number = engine.propose(command);
        let (mut turns, mut linger) = (0, Linger::default());
        loop {
            let has_done = self.shared.turn(&mut state);
            let engine = state.engine()?;
            let found = match (engine.place_of(number), engine.is_passed_over(number)) {
                (Some(place), _) => Some(Ok(place)),
                (None, true) => {
                    let before = engine.replica().snapshot().map_or(0, |snapshot| snapshot.next);
                    Some(Err(GroupError::PassedOver { before }))
                }
                (None, false) => until
                    .is_some_and(|until| Instant::now() >= until)
                    .then(|| Err(GroupError::Timeout(timeout.unwrap_or_default()))),
            };
            if let Some(found) = found {
                engine.forget(number);
                // The thread did not look meanwhile.
                self.shared.wake(&mut state);
                return found;
            }
            if has_done {
                turns = 0;
                linger.again();
            }
            turns += 1;
            state = match turns {
                0..=TURNS => state,
                // Who decides it may need this processor.
                _ if linger.goes_on() => self.shared.pause(state)?,
                _ => self.shared.wait(state, until),
            };
        }
    }

    fn check_length(&self, command: &[u8]) -> Result<(), GroupError> {
        let Shared { name, command_bytes_max, .. } = &*self.shared;
        match command.len() <= *command_bytes_max {
            true => Ok(()),
            false => Err(GroupError::TooLarge {
                name: name.clone(),
                asked: command.len(),
                max: *command_bytes_max,
            }),
        }
    }

    /// Lets `command` be decided, and returns its number among this member's commands, counted from 1. Does not wait: it
    /// comes with the [decided](Self::decided) entries. Commands of one member are decided in their order. Those that follow
    /// one that is under way go together, up to 128 of them or 16 KiB, with this member's next call or, less than a
    /// millisecond later, its thread: a program that submits many at a time pays little for each.
    ///
    /// # Errors
    /// As for [`propose`](Self::propose).
    pub fn submit(&self, command: &[u8]) -> Result<u64, GroupError> {
        self.check_length(command)?;
        let mut state = self.shared.lock()?;
        let engine = state.engine()?;
        let number = engine.propose(command);
        let is_alone = engine.undecided_count() == 1;
        state.commands += 1;
        // Those that follow go together, with the next turn of a call or of the thread.
        if is_alone || state.commands >= COMMANDS_AT_ONCE {
            self.shared.turn(&mut state);
        }
        self.shared.wake(&mut state);
        Ok(number)
    }

    /// Waits until every command of this member is decided, for at most `timeout`.
    ///
    /// # Errors
    /// [`GroupError::Timeout`], or what has ended the group before.
    pub fn flush(&self, timeout: Duration) -> Result<(), GroupError> {
        self.wait_until(timeout, |engine| (engine.undecided_count() == 0).then_some(()))
    }

    /// Waits until `is_so` returns something.
    fn wait_until<T>(
        &self,
        timeout: Duration,
        is_so: impl Fn(&Engine) -> Option<T>,
    ) -> Result<T, GroupError> {
        let until = Instant::now().checked_add(timeout);
        let mut state = self.shared.lock()?;
        loop {
            self.shared.turn(&mut state);
            if let Some(found) = is_so(state.engine()?) {
                self.shared.wake(&mut state);
                return Ok(found);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(GroupError::Timeout(timeout));
            }
            state = self.shared.wait(state, until);
        }
    }

    /// How many commands this member has proposed or submitted, and how many of them, from the first one on, it knows to
    /// be decided; also when the group has ended.
    ///
    /// # Errors
    /// [`GroupError::Forked`].
    pub fn own_commands(&self) -> Result<(u64, u64), GroupError> {
        let mut state = self.shared.lock()?;
        if let Ok(engine) = state.engine() {
            engine.pass_on();
        }
        let count = |replica: &Replica<Command>| {
            let proposed = replica.proposed_count();
            (proposed, proposed - replica.undecided_count())
        };
        Ok(state.replica().map(count).unwrap_or_default())
    }

    /// Says what this program has made of all entries before index `next`. They are not kept any more here: a reader
    /// that is behind, here or at a member that comes later, gets `state` in their place. Every member does this for
    /// itself, when it wants. No effect if they are not all decided, or if there is a snapshot for more already.
    ///
    /// # Errors
    /// What has ended the group.
    pub fn truncate(&self, next: u64, state: &[u8]) -> Result<(), GroupError> {
        self.shared.lock()?.engine()?.truncate(next, state);
        Ok(())
    }

    /// Whether the kernel has not reported the end of this member's process.
    ///
    /// # Errors
    /// What has ended the group.
    pub fn lives(&self, member: Member) -> Result<bool, GroupError> {
        Ok(self.shared.lock()?.engine()?.lives(member))
    }

    /// Waits until the group has at least `count` members, for at most `timeout`. Returns the present view.
    ///
    /// # Errors
    /// [`GroupError::Timeout`], or what has ended the group before.
    pub fn wait_for_members(&self, count: usize, timeout: Duration) -> Result<View, GroupError> {
        self.wait_until(timeout, |engine| {
            let view = engine.replica().view();
            (view.members.len() >= count).then(|| view.clone())
        })
    }

    /// Makes this member the leader. The present one may live. Does not wait. Leader and acceptor are two members, so
    /// this does nothing if this member is the acceptor.
    ///
    /// # Errors
    /// What has ended the group.
    pub fn lead(&self) -> Result<(), GroupError> {
        let mut state = self.shared.lock()?;
        state.engine()?.lead();
        self.shared.hand_over(&mut state);
        Ok(())
    }

    /// Leaves the group: the others take over this member's roles first. Waits for that, for at most `timeout`; then
    /// leaves as if the process had died.
    ///
    /// # Errors
    /// [`GroupError::Timeout`], or what has ended the group before.
    pub fn leave(self, timeout: Duration) -> Result<(), GroupError> {
        self.shared.lock()?.engine()?.leave();
        let me = self.shared.me;
        self.wait_until(timeout, |engine| {
            let replica = engine.replica();
            // The last one has nobody to leave anything to.
            (replica.has_left() || replica.view().members == [me]).then_some(())
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Ok(mut state) = self.shared.lock() else {
            // The thread is the parent's.
            std::mem::forget(self.thread.take());
            return;
        };
        self.shared.end(&mut state, GroupError::Left(self.shared.name.clone()));
        self.shared.hand_over(&mut state);
        drop(state);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
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

/// The member's thread: does the work while no call does. It looks for more for a while before it sleeps, so that
/// messages that follow each other closely wake nobody.
fn run(shared: &Shared) {
    let mut linger = Linger::default();
    loop {
        let Ok(mut state) = shared.lock() else { return };
        if std::mem::take(&mut state.has_turned) && state.end.is_none() {
            state.thread = Thread::Rests;
            let rested = shared.rest.wait_timeout(state, REST);
            rested.unwrap_or_else(PoisonError::into_inner).0.thread = Thread::Works;
            linger.again();
            continue;
        }
        if shared.work(&mut state) {
            linger.again();
        }
        let pause = match state.engine() {
            Err(_) => return,
            Ok(_) if linger.goes_on() => {
                drop(state);
                std::thread::yield_now();
                continue;
            }
            Ok(engine) => engine.arm(),
        };
        let waited = match pause {
            Ok(None) => continue,
            Ok(Some(pause)) => {
                state.thread = Thread::Sleeps;
                drop(state);
                let waited = pause.wait(&shared.bell, None);
                if let Ok(mut state) = shared.lock() {
                    state.thread = Thread::Works;
                }
                waited
            }
            Err(error) => {
                drop(state);
                Err(error)
            }
        };
        if let Err(error) = waited {
            if let Ok(mut state) = shared.lock() {
                shared.end(&mut state, error);
            }
            return;
        }
        linger.again();
    }
}
