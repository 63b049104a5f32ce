//! Connections of other hosts that are taken at an address, each by a thread of its own until it is known who it is.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use corewire_layout::net::Preface;
use corewire_net::open::{Deadline, accept, listen, read_preface};
use corewire_os::OsError;
use corewire_os::event::wait_readable;
use corewire_os::fork::{Descriptor, generation};
use corewire_os::process;
use corewire_ring::sync::{AtomicU64, Ordering::Relaxed};

use crate::control::strangers::Strangers;
use crate::error::EndpointError;

/// How long it may take until both sides know each other.
pub(crate) const OPENED_WITHIN: Duration = Duration::from_secs(10);
/// What a thread that opens a connection needs of stack, with a margin.
pub(crate) const STACK_BYTES: usize = 512 << 10;
/// Before a process that has no descriptors left tries again.
const LATER: Duration = Duration::from_millis(20);

/// What is done with a connection whose preface was read.
type Take = dyn Fn(Descriptor, Preface, Deadline) + Send + Sync;

/// An address at which connections are taken. Ends when it is dropped: the address is free then.
pub(crate) struct Taking {
    at: SocketAddr,
    own: Arc<Own>,
    thread: Option<JoinHandle<()>>,
    /// Of the process that has the thread.
    generation: u32,
}

struct Own {
    /// Their bell rings also when it must end.
    strangers: Arc<Strangers>,
    has_ended: AtomicU64,
    take: Box<Take>,
}

impl Taking {
    /// Takes connections at this address from now on.
    pub(crate) fn start(
        at: SocketAddr,
        take: impl Fn(Descriptor, Preface, Deadline) + Send + Sync + 'static,
    ) -> Result<Self, EndpointError> {
        let (listener, at) = listen(at)?;
        let (strangers, has_ended) = (Strangers::new()?, AtomicU64::new(0));
        let own = Arc::new(Own { strangers, has_ended, take: Box::new(take) });
        let taking = Arc::clone(&own);
        // It has the listener alone: the address is free as soon as it has ended.
        let thread = begin("corewire-listen", move || taking.run(&listener))?;
        Ok(Self { at, own, thread: Some(thread), generation: generation() })
    }

    /// The address.
    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        if generation() != self.generation {
            // A forked child does not have the thread.
            std::mem::forget(self.thread.take());
            return;
        }
        self.own.has_ended.store(1, Relaxed);
        self.own.strangers.gone().ring();
        // It does not panic, and is done in a moment.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Own {
    fn run(self: &Arc<Self>, listener: &Descriptor) {
        let gone = self.strangers.gone();
        loop {
            let waited = wait_readable(&[gone.as_fd(), listener.as_fd()], None);
            gone.silence();
            if self.has_ended.load(Relaxed) > 0 {
                return;
            }
            let is_called = waited.as_ref().is_ok_and(|ready| ready.get(1) == Some(&true));
            if is_called && !self.strangers.has_room() {
                // Those that wait stay in the kernel's queue.
                let again = self.strangers.close_oldest();
                let _ = wait_readable(&[gone.as_fd()], again);
                continue;
            }
            match waited.map_err(Into::into).and_then(|_| accept(listener)) {
                Ok(Some(stream)) => self.open(stream),
                Ok(None) => {}
                Err(_) => {
                    // It stays in the kernel's queue, which makes the listener readable.
                    let _ = wait_readable(&[gone.as_fd()], Some(Instant::now() + LATER));
                }
            }
        }
    }

    fn open(self: &Arc<Self>, stream: Descriptor) {
        let Some(stranger) = self.strangers.add(&stream) else { return };
        let own = Arc::clone(self);
        // Without a thread it is closed.
        let _ = begin("corewire-answer", move || {
            let deadline = Deadline::within(OPENED_WITHIN);
            // Of what is not corewire's, nobody needs to hear.
            if let Ok(preface) = read_preface(&stream, deadline) {
                (own.take)(stream, preface, deadline);
            }
            drop(stranger);
        });
    }
}

/// Starts a thread that opens connections.
pub(crate) fn begin(
    name: &str,
    job: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, OsError> {
    let thread = Builder::new().name(name.into()).stack_size(STACK_BYTES);
    let begun = thread.spawn(move || {
        process::block_all_signals();
        job();
    });
    begun.map_err(|error| OsError {
        what: format!("start the thread {name}").into(),
        errno: error.raw_os_error().unwrap_or_default(),
    })
}
