//! A service as a task of any executor.

use std::future::poll_fn;
use std::os::fd::AsFd;
use std::task::Poll;
use std::time::Duration;

use super::core::ServerCore;
use super::dispatch::Dispatch;
use crate::error::ServeError;

/// What is served before other tasks of the executor have their turn.
const SERVED_PER_TURN: usize = 64;

impl ServerCore {
    /// Serves until it is stopped. Waits in the reactor of `async-io`, which needs no executor of its own, or in the one
    /// that [`Serve::reactor`](crate::Serve::reactor) was given. Everything that waits for the service's thread interrupts the endpoint, so its descriptor is the only one to wait for. The future
    /// can be dropped at any time: it loses nothing.
    ///
    /// # Errors
    /// As for [`serve_one`](Self::serve_one); [`ServeError::Descriptor`].
    pub async fn serve_async(&mut self, dispatch: &mut impl Dispatch) -> Result<(), ServeError> {
        let readiness = self.sending.endpoint.readiness();
        let copy = readiness.as_fd().try_clone_to_owned().map_err(ServeError::Descriptor)?;
        let readiness = (self.reactor)(copy).map_err(ServeError::Descriptor)?;
        self.was_stopped = false;
        loop {
            let mut served = 0;
            while served < SERVED_PER_TURN && self.serve_one(Some(Duration::ZERO), dispatch)? {
                served += 1;
            }
            if self.was_stopped {
                return Ok(());
            }
            if served < SERVED_PER_TURN && self.sending.arm()? {
                readiness.readable().await.map_err(ServeError::Descriptor)?;
            } else {
                yield_now().await;
            }
        }
    }
}

async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
