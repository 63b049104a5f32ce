//! The one control thread of the process: asleep in epoll, all signals blocked. It accepts, takes
//! receivers in, learns of deaths, and wakes sleepers that a sender left to it.

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

/// Whoever watches a descriptor. Called on the control thread, and must not block.
pub(crate) trait Handler: Send + Sync {
    /// The descriptor added under `token` is readable or hung up.
    fn on_event(&self, token: Token, hung_up: bool);
}

/// Names one watched descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token(u64);

const BELL: u64 = 0;

type Job = Box<dyn FnOnce() + Send>;

/// The control thread, as others see it.
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

/// Keeps the control thread running; the last one to go stops it.
pub(crate) struct HubHandle {
    hub: Arc<Hub>,
    generation: u32,
}

/// The process's control thread, if it has one.
static CURRENT: PerProcess<Mutex<Weak<HubHandle>>> = PerProcess::new();

impl HubHandle {
    /// The process's control thread, started if need be.
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
    /// Watches `descriptor` on behalf of `handler`, until [`Hub::forget`]. Events that come after
    /// the handler is dropped are passed over.
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

    /// Stops watching.
    pub(crate) fn forget(&self, descriptor: impl AsFd, token: Token) {
        // In a forked child, a thread that it does not have may hold the lock.
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

    /// Has the control thread do `job`, which must not block.
    pub(crate) fn run_soon(&self, job: impl FnOnce() + Send + 'static) {
        lock(&self.state).jobs.push(Box::new(job));
        self.bell.ring();
    }

    fn run(&self) {
        process::block_all_signals();
        let mut events = Vec::new();
        loop {
            // It fails only if the set itself is gone, and then nobody can be served.
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

/// Failed calls on a link in a row, which say nothing of its other end.
#[derive(Debug, Default)]
pub(crate) struct Failures(AtomicU32);

impl Failures {
    /// So many may be for want of memory, which comes back. Then the link is of no use.
    const MAX: u32 = 16;

    /// One more. True if the link is to be given up; otherwise waits for a moment, since what could
    /// not be read is there at once again, and this thread would do nothing but ask.
    pub(crate) fn add(&self) -> bool {
        let count = self.0.load(Relaxed) + 1;
        self.0.store(count, Relaxed);
        if count < Self::MAX {
            let _ = wait_readable(&[], Some(Instant::now() + Duration::from_millis(1)));
        }
        count >= Self::MAX
    }

    /// A call went well.
    pub(crate) fn end(&self) {
        self.0.store(0, Relaxed);
    }
}
