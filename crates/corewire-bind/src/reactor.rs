//! Where tasks wait for descriptors: the reactor of `async-io`, or that of the program's executor.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

use async_io::Async;

/// Waits for a descriptor. An error ends what waits for it.
pub type Waiting<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>>;

/// A descriptor that a reactor watches, for any number of tasks.
pub trait Watched: Send + Sync {
    /// Ready once it can be read. It was read until it was empty, or armed, before this is called: a reactor that tells only
    /// changes forgets what it has told.
    fn readable(&self) -> Waiting<'_>;

    /// Ready once it can be written.
    fn writable(&self) -> Waiting<'_>;
}

/// Adds a descriptor to a reactor.
pub type Reactor = Arc<dyn Fn(OwnedFd) -> io::Result<Box<dyn Watched>> + Send + Sync>;

impl Watched for Async<OwnedFd> {
    fn readable(&self) -> Waiting<'_> {
        Box::pin(Self::readable(self))
    }

    fn writable(&self) -> Waiting<'_> {
        Box::pin(Self::writable(self))
    }
}

/// The reactor of `async-io`, which has a thread of its own.
pub(crate) fn of_async_io() -> Reactor {
    Arc::new(|descriptor| {
        let watched = Async::new_nonblocking(descriptor)?;
        Ok(Box::new(watched) as Box<dyn Watched>)
    })
}

/// One that a builder was given.
#[derive(Clone)]
pub(crate) struct Given(pub(crate) Reactor);

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reactor")
    }
}
