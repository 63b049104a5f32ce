//! Receiving copies of values, from channels whose messages may be overwritten while they are read.

use std::time::{Duration, Instant};

use crate::error::ReceiveError;
use crate::path::receive::{Copying, Receiver, Untyped, check, until_end};
use crate::typed::schema::MessageType;

/// Maximum number of values that a call that must not block tries to copy.
const LOSSES_MAX: u32 = 16;

/// For values of one type, copied out.
impl<T: MessageType> Receiver<T, Copying> {
    /// Returns a copy of the next value, waiting for it if necessary. If a value is overwritten during the copy, it is
    /// missed, and the next one is copied instead.
    ///
    /// # Errors
    /// [`ReceiveError::EndOfStream`], `SenderDied` or `Evicted` if no value will come any more; `Violation`,
    /// `Interrupted`, `Forked`. A message that is not a `T` ends as [`ReceiveError::Value`]. Only a sender that does
    /// not use corewire can send one.
    #[inline]
    pub fn receive(&mut self) -> Result<T, ReceiveError> {
        loop {
            let read = self.untyped.next()?.read();
            match read {
                Err(ReceiveError::Overwritten(_)) => self.check()?,
                read => return read,
            }
        }
    }

    /// Returns a copy of the next value if there is one now. Never blocks. Also returns `None` if the sender overwrote
    /// the values faster than they could be copied.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    #[inline]
    pub fn try_receive(&mut self) -> Result<Option<T>, ReceiveError> {
        for _ in 0..LOSSES_MAX {
            let Some(mut snapshot) = self.untyped.try_next()? else { break };
            match snapshot.read() {
                Err(ReceiveError::Overwritten(_)) => {}
                read => return read.map(Some),
            }
        }
        Ok(None)
    }

    /// Returns a copy of the next value, waiting for at most `timeout`; `None` if none came.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_timeout(&mut self, timeout: Duration) -> Result<Option<T>, ReceiveError> {
        let deadline = Instant::now().checked_add(timeout);
        let mut left = timeout;
        loop {
            let Some(mut snapshot) = self.untyped.next_timeout(left)? else { return Ok(None) };
            let read = snapshot.read();
            drop(snapshot);
            match read {
                Err(ReceiveError::Overwritten(_)) if left.is_zero() => return Ok(None),
                Err(ReceiveError::Overwritten(_)) => self.check()?,
                read => return read.map(Some),
            }
            left = deadline.map_or(left, |at| at.saturating_duration_since(Instant::now()));
        }
    }

    /// Calls `job` with each value until the end of the stream.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive), except for the end of the stream.
    pub fn for_each(&mut self, mut job: impl FnMut(&T)) -> Result<(), ReceiveError> {
        until_end(|| self.receive().map(|value| job(&value)))
    }

    /// Handles a missed value. Checks for an interruption or an eviction, which a call must notice even if the sender
    /// overwrites values all the time.
    #[cold]
    fn check(&mut self) -> Result<(), ReceiveError> {
        let Untyped { ring, attachment, .. } = &mut self.untyped;
        check(ring, attachment, 0).map_err(|error| attachment.failed(error))?;
        Ok(())
    }
}
