//! A descriptor in tokio's reactor.

use std::io;
use std::task::{Context, Poll, ready};

use corewire::Readiness;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// tokio panics where it is asked for its reactor outside of a runtime.
pub(crate) fn must_be_in_runtime() -> io::Result<()> {
    tokio::runtime::Handle::try_current().map(drop).map_err(io::Error::other)
}

/// A readiness descriptor, for one task at a time.
#[derive(Debug)]
pub(crate) struct Ready(AsyncFd<Readiness>);

impl Ready {
    /// Within a runtime of tokio.
    pub(crate) fn new(readiness: Readiness) -> io::Result<Self> {
        must_be_in_runtime()?;
        #[expect(deprecated, reason = "sound for a descriptor that is owned; the other is unsafe")]
        AsyncFd::with_interest(readiness, Interest::READABLE).map(Self)
    }

    /// Ready once the descriptor has become readable since it was armed, or perhaps before.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut guard = ready!(self.0.poll_read_ready(cx))?;
        // Arming has made the descriptor unreadable: what tokio hears next is new. If it has heard of it already, this
        // clears nothing.
        guard.clear_ready();
        Poll::Ready(Ok(()))
    }
}
