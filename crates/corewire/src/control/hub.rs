//! The process's only control thread. It sleeps in epoll with all signals blocked. It accepts connections, admits
//! receivers, learns of deaths, and wakes the sleepers that a sender leaves to it.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use corewire_os::event::{Bell, EventSet, wait_readable};
use corewire_os::fork::{self, PerProcess};
use corewire_os::{OsError, process};
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};

use crate::guard::lock;

/// Handles the events of watched descriptors. It is called on the control thread and must not block.
pub(crate) trait Handler: Send + Sync {
    /// The descriptor added under `token` is readable or hung up.
    fn on_event(&self, token: Token, hung_up: bool);
}

/// Identifies one watched descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token(u64);

const BELL: u64 = 0;

type Job = Box<dyn FnOnce() + Send>;

/// The part of the control thread that other threads use.
pub(crate) struct Hub {
    events: EventSet,
    bell: Bell,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    handlers: BTreeMap<u64, Weak<dyn Handler>>,
    jobs: Vec<Job>,
    last_token: u64,
    is_over: bool,
}

/// Keeps the control thread running. The thread ends when the last handle is dropped.
pub(crate) struct HubHandle {
    hub: Arc<Hub>,
    generation: u32,
}

/// The process's control thread, if it has one.
static CURRENT: PerProcess<Mutex<Weak<HubHandle>>> = PerProcess::new();

impl HubHandle {
    /// Returns the process's control thread. Starts it if there is none.
    pub(crate) fn get() -> Result<Arc<Self>, OsError> {
        let mut current = lock(CURRENT.get());
        if let Some(handle) = current.upgrade() {
            return Ok(handle);
        }
        let hub = Arc::new(Hub {
            events: EventSet::new()?,
            bell: Bell::new()?,
            state: Mutex::new(State::default()),
        });
        hub.events.add(&hub.bell, BELL)?;
        hub.events.check()?;
        let thread = Arc::clone(&hub);
        std::thread::Builder::new()
            .name("corewire".into())
            .stack_size(256 << 10)
            .spawn(move || thread.run())
            .map_err(|error| OsError {
                what: "start the control thread".into(),
                errno: error.raw_os_error().unwrap_or_default(),
            })?;
        let handle = Arc::new(Self { hub, generation: fork::generation() });
        *current = Arc::downgrade(&handle);
        Ok(handle)
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// True in a forked child, which has no control thread.
    pub(crate) fn is_forked(&self) -> bool {
        self.generation != fork::generation()
    }
}

impl Drop for HubHandle {
    fn drop(&mut self) {
        if !self.is_forked() {
            lock(&self.hub.state).is_over = true;
            self.hub.bell.ring();
        }
    }
}

impl Hub {
    /// Watches `descriptor` for `handler` until [`Hub::forget`]. Events are ignored once the handler is dropped.
    pub(crate) fn watch(
        &self,
        descriptor: impl AsFd,
        handler: Weak<dyn Handler>,
    ) -> Result<Token, OsError> {
        let token = {
            let mut state = lock(&self.state);
            state.last_token += 1;
            let token = state.last_token;
            state.handlers.insert(token, handler);
            token
        };
        let added = self.events.add(descriptor, token);
        if added.is_err() {
            lock(&self.state).handlers.remove(&token);
        }
        added.map(|()| Token(token))
    }

    /// Stops watching a descriptor.
    pub(crate) fn forget(&self, descriptor: impl AsFd, token: Token) {
        // A forked child lacks the thread that may hold this lock.
        if self.events.is_ours() {
            self.events.remove(descriptor);
            lock(&self.state).handlers.remove(&token.0);
        }
    }

    /// Watches a peer's socket and its process.
    pub(crate) fn watch_both(
        &self,
        socket: impl AsFd,
        life: impl AsFd,
        handler: &Weak<dyn Handler>,
    ) -> Result<[Token; 2], OsError> {
        let first = self.watch(&socket, Weak::clone(handler))?;
        let second = self.watch(life, Weak::clone(handler)).inspect_err(|_| {
            self.forget(socket, first);
        })?;
        Ok([first, second])
    }

    /// Stops watching both.
    pub(crate) fn forget_both(&self, socket: impl AsFd, life: impl AsFd, tokens: [Token; 2]) {
        self.forget(socket, tokens[0]);
        self.forget(life, tokens[1]);
    }

    /// Runs `job` on the control thread. The job must not block.
    pub(crate) fn run_soon(&self, job: impl FnOnce() + Send + 'static) {
        lock(&self.state).jobs.push(Box::new(job));
        self.bell.ring();
    }

    fn run(&self) {
        process::block_all_signals();
        let mut events = Vec::new();
        loop {
            // The call fails only if the set is closed. No event can arrive then.
            if self.events.wait(&mut events).is_err() {
                return;
            }
            for event in &events {
                if event.token == BELL {
                    self.bell.silence();
                    let jobs = std::mem::take(&mut lock(&self.state).jobs);
                    jobs.into_iter().for_each(|job| job());
                    continue;
                }
                let handler = lock(&self.state).handlers.get(&event.token).and_then(Weak::upgrade);
                if let Some(handler) = handler {
                    handler.on_event(Token(event.token), event.hung_up);
                }
            }
            if lock(&self.state).is_over {
                return;
            }
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hub")
    }
}

/// Counts failed calls in a row on a link. Such failures say nothing about the peer.
#[derive(Debug, Default)]
pub(crate) struct Failures(AtomicU32);

impl Failures {
    /// Fewer failures may be due to a temporary lack of memory.
    const MAX: u32 = 16;

    /// Adds a failure. True at each one that is no temporary lack of memory: every 16th. Waits for 1 ms, because the unread
    /// frame makes the socket readable at once, and the control thread would loop.
    pub(crate) fn add(&self) -> bool {
        let count = self.0.load(Relaxed).wrapping_add(1);
        self.0.store(count, Relaxed);
        let _ = wait_readable(&[], Some(Instant::now() + Duration::from_millis(1)));
        count.is_multiple_of(Self::MAX)
    }

    /// Resets the count after a successful call.
    pub(crate) fn end(&self) {
        self.0.store(0, Relaxed);
    }
}
