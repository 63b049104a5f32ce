//! An endpoint with a thread that makes progress while the program computes.
//!
//! # Data path
//!
//! The endpoint lies behind a lock. The program's calls are made under the lock, and continue operations
//! themselves, as always. When the program releases the lock while an operation is under way and the thread
//! waits, the program rings `kick`. The thread then takes the lock for one step of [`Endpoint::progress`] at a
//! time, until nothing is left to do. Then it arms the endpoint's descriptor, and waits for it and for `kick`.
//! Without an operation it waits for `kick` alone, so that messages of peers do not wake it.
//!
//! # Turns
//!
//! Each side takes `turn` before `inner`, and releases it as soon as it has `inner`. With `inner` alone the
//! thread could take it again and again while the program waits. With both, the program waits for at most one
//! step: what has arrived, and one piece of at most 1 MiB of a large message for each peer.
//!
//! # Cost
//!
//! Two locks for each guard, and one system call when it is dropped while an operation is under way and the
//! thread waits.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corewire_endpoint::MessageError;
use corewire_os::event::{Bell, wait_readable};
use corewire_os::{OsError, process};
use corewire_ring::doorbell::SLEEP_CAP_NS;

use super::Endpoint;
use crate::guard::lock;
use crate::halves::EndpointHalf;

/// An [`Endpoint`] whose operations continue while the program makes no call: a thread of this process copies
/// messages and answers peers meanwhile. Returned by [`Endpoint::with_progress_thread`].
///
/// Calls are made through [`lock`](Self::lock), by any thread:
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("corewire-doc-progress-{}", std::process::id()));
/// use corewire::{Domain, Selector};
///
/// # let domain = Domain::open_at(&directory)?;
/// let mut camera = domain.endpoint("camera").create()?;
/// let viewer = domain.endpoint("viewer").create()?.with_progress_thread()?;
/// let to_viewer = camera.peer("viewer")?;
///
/// let operation = viewer.lock()?.ireceive(Selector::any(), vec![0; 1 << 20])?;
/// camera.send(to_viewer, 1, &vec![7; 1 << 20])?; // the viewer makes no call meanwhile
/// let completion = viewer.lock()?.wait(operation)?;
/// assert!(completion.memory.into_vec().iter().all(|&byte| byte == 7));
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok(())
/// # }
/// ```
///
/// The thread works while an operation ([`isend`](Endpoint::isend), [`ireceive`](Endpoint::ireceive),
/// [`icall`](Endpoint::icall)) is under way or a reply waits for room, and nobody holds the lock. Otherwise it
/// sleeps, and messages that nothing asks for wait for the next call. It helps a program that computes for long
/// between its calls. A program that is nearly always in a call gains nothing and pays for the lock. The thread
/// competes with the program if there is no spare processor.
///
/// - A thread that holds a guard must drop it before it calls [`lock`](Self::lock) again: otherwise it waits for
///   itself. In `endpoint.lock()?.wait(endpoint.lock()?.ireceive(..)?)` both guards live until the end of the
///   statement.
/// - The thread uses the [`readiness`](Endpoint::readiness) descriptor: no event loop and no
///   [`WaitSet`](crate::WaitSet) can wait for the same endpoint.
/// - Dropping it ends the thread and closes the endpoint. [`into_endpoint`](Self::into_endpoint) ends the thread
///   alone; then [`Endpoint::close`] sends what is under way.
/// - In a forked child, [`lock`](Self::lock) returns [`MessageError::Forked`].
/// - If the kernel refuses to wait for descriptors, the thread looks every 5 ms.
pub struct ProgressingEndpoint {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    turn: Mutex<()>,
    inner: Mutex<Inner>,
    /// Rings when the thread must take the lock.
    kick: Bell,
    control: Arc<dyn EndpointHalf>,
}

struct Inner {
    /// `None` once the program has taken it back.
    endpoint: Option<Endpoint>,
    /// The thread waits for `kick`, and perhaps for something else.
    is_waiting: bool,
    /// The thread was interrupted instead of the program's next call.
    is_interrupted: bool,
}

impl Inner {
    /// Makes the program's next call return the interruption of which the thread learned.
    fn pass_interruption_on(&mut self) {
        if std::mem::take(&mut self.is_interrupted)
            && let Some(endpoint) = &self.endpoint
        {
            endpoint.interrupter().interrupt();
        }
    }
}

impl Shared {
    /// Waits for its turn. A program that panics while it holds a guard does so between two calls, so that the
    /// endpoint is whole.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        let _turn = lock(&self.turn);
        lock(&self.inner)
    }
}

impl Endpoint {
    /// Starts a thread that continues this endpoint's operations while the program makes no call: large messages
    /// are copied while it computes. Does not block.
    ///
    /// # Errors
    /// [`OsError`] if there is no thread or descriptor left, or the kernel refuses to wait for one. The endpoint is
    /// closed then.
    pub fn with_progress_thread(self) -> Result<ProgressingEndpoint, OsError> {
        let kick = Bell::new()?;
        wait_readable(&[kick.as_fd()], Some(Instant::now()))?;
        let control = Arc::clone(&self.control);
        let inner = Inner { endpoint: Some(self), is_waiting: false, is_interrupted: false };
        let (turn, inner) = (Mutex::default(), Mutex::new(inner));
        let shared = Arc::new(Shared { turn, inner, kick, control });
        let own = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("corewire-progress".into()).spawn(move || {
                process::block_all_signals();
                run(&own);
            });
        let thread = thread.map_err(|error| OsError {
            what: "start a progress thread".into(),
            errno: error.raw_os_error().unwrap_or_default(),
        })?;
        Ok(ProgressingEndpoint { shared, thread: Some(thread) })
    }
}

impl ProgressingEndpoint {
    /// The endpoint, for calls of this thread. Waits while another thread has it, and for one step of the progress
    /// thread: at most 1 MiB is copied for each peer. A call that waits for a message keeps other threads out until
    /// it returns.
    ///
    /// # Errors
    /// [`MessageError::Forked`] in a forked child.
    pub fn lock(&self) -> Result<EndpointGuard<'_>, MessageError> {
        // The child's copy of the lock may be taken, by a thread that the child does not have.
        if self.shared.control.is_forked() {
            return Err(MessageError::Forked);
        }
        let mut inner = self.shared.inner();
        inner.pass_interruption_on();
        Ok(EndpointGuard { shared: &self.shared, inner: Some(inner) })
    }

    /// Ends the thread, and returns the endpoint. Its operations continue in its calls.
    ///
    /// # Errors
    /// [`MessageError::Forked`] in a forked child.
    pub fn into_endpoint(mut self) -> Result<Endpoint, MessageError> {
        self.end().ok_or(MessageError::Forked)
    }

    fn end(&mut self) -> Option<Endpoint> {
        let thread = self.thread.take()?;
        if self.shared.control.is_forked() {
            // A forked child has neither the thread nor, perhaps, the lock.
            std::mem::forget(thread);
            return None;
        }
        let mut inner = self.shared.inner();
        inner.pass_interruption_on();
        let endpoint = inner.endpoint.take();
        drop(inner);
        self.shared.kick.ring();
        // It does not panic.
        let _ = thread.join();
        endpoint
    }
}

impl Drop for ProgressingEndpoint {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl fmt::Debug for ProgressingEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.shared.control.name().as_str();
        f.debug_struct("ProgressingEndpoint").field("name", &name).finish_non_exhaustive()
    }
}

/// An [`Endpoint`] that this thread has for itself. The progress thread goes on when it is dropped.
#[must_use = "the endpoint is released when this is dropped"]
pub struct EndpointGuard<'a> {
    shared: &'a Shared,
    /// `None` while it is dropped.
    inner: Option<MutexGuard<'a, Inner>>,
}

impl Deref for EndpointGuard<'_> {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        self.inner.as_ref().and_then(|inner| inner.endpoint.as_ref()).expect(IS_THERE)
    }
}

impl DerefMut for EndpointGuard<'_> {
    fn deref_mut(&mut self) -> &mut Endpoint {
        self.inner.as_mut().and_then(|inner| inner.endpoint.as_mut()).expect(IS_THERE)
    }
}

/// Only [`ProgressingEndpoint::end`] takes it, which needs the value that a guard borrows.
const IS_THERE: &str = "the endpoint is there while it can be locked";

impl Drop for EndpointGuard<'_> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        let has_work = inner.endpoint.as_ref().is_some_and(|it| it.engine.waits_for_peers());
        // A thread that does not wait finds the work when it has the lock.
        let must_wake = has_work && inner.is_waiting;
        // Before the thread is woken, which takes it.
        drop(inner);
        if must_wake {
            self.shared.kick.ring();
        }
    }
}

impl fmt::Debug for EndpointGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EndpointGuard").field(&**self).finish()
    }
}

/// What the thread waits for next.
enum Next {
    /// Nothing: another step.
    Step,
    /// The program.
    Kick,
    /// The program, or something that an operation waits for.
    Arrival,
}

/// Time between two looks where the kernel refuses to wait for descriptors.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The thread. Ends when the program has taken the endpoint.
fn run(shared: &Shared) {
    loop {
        let mut inner = shared.inner();
        let Some(next) = step(&mut inner) else { return };
        inner.is_waiting = !matches!(next, Next::Step);
        let readiness = inner.endpoint.as_ref().map(Endpoint::readiness);
        drop(inner);
        let waited = match (next, readiness) {
            (Next::Arrival, Some(readiness)) => {
                let cap = Instant::now().checked_add(Duration::from_nanos(SLEEP_CAP_NS));
                wait_readable(&[shared.kick.as_fd(), readiness.as_fd()], cap)
            }
            (Next::Kick, _) => wait_readable(&[shared.kick.as_fd()], None),
            _ => continue,
        };
        if waited.is_err() {
            std::thread::park_timeout(LOOK_EVERY);
        }
        // What it was rung for was done before, under the lock.
        shared.kick.silence();
    }
}

/// One step of the endpoint. `None` if the thread must end.
fn step(inner: &mut Inner) -> Option<Next> {
    let endpoint = inner.endpoint.as_mut()?;
    if !endpoint.engine.waits_for_peers() {
        return Some(Next::Kick);
    }
    match endpoint.progress().and_then(|is_busy| Ok(is_busy || !endpoint.arm()?)) {
        Ok(true) => Some(Next::Step),
        Ok(false) => Some(Next::Arrival),
        Err(MessageError::Interrupted) => {
            // For the program's next call.
            inner.is_interrupted = true;
            Some(Next::Step)
        }
        // In a forked child, which does not have this thread.
        Err(_) => None,
    }
}
