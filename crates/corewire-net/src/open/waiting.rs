//! A socket that is waited for, up to a point in time, and of which no more is read than anybody needs to say who he is.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use corewire_os::fork::Descriptor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Deadline;

/// Bytes that are read at most before a side has said what it is: certificates are the longest of them.
pub(super) const BYTES_MAX: u64 = 16 << 10;

/// Why waiting has ended.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(super) enum Over {
    #[error("the time is over")]
    Time(Duration),
    #[error("too much has arrived")]
    Bytes,
}

/// A socket that does not block.
pub(super) struct Waiting<'a> {
    stream: BorrowedFd<'a>,
    deadline: Deadline,
    /// What may still be read.
    left: u64,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(stream: &'a Descriptor, deadline: Deadline) -> Self {
        Self { stream: stream.as_fd(), deadline, left: BYTES_MAX }
    }

    fn until<T>(
        &self,
        flags: PollFlags,
        mut job: impl FnMut() -> std::result::Result<T, Errno>,
    ) -> Result<T> {
        loop {
            match job() {
                Err(Errno::WOULDBLOCK) => wait(self.stream, flags, self.deadline)?,
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }
}

/// Waits until a socket is ready.
pub(super) fn wait(stream: BorrowedFd<'_>, flags: PollFlags, deadline: Deadline) -> Result<()> {
    let late = || Error::new(ErrorKind::TimedOut, Over::Time(deadline.after));
    let left = deadline.left().ok_or_else(late)?.min(Duration::from_secs(86_400));
    let left = Timespec::try_from(left).unwrap_or_default();
    match poll(&mut [PollFd::from_borrowed_fd(stream, flags)], Some(&left)) {
        Ok(0) if deadline.left().is_none() => Err(late()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

impl Read for Waiting<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        if most == 0 && !bytes.is_empty() {
            return Err(Error::new(ErrorKind::InvalidData, Over::Bytes));
        }
        let count =
            self.until(PollFlags::IN, || rustix::io::read(self.stream, &mut bytes[..most]))?;
        self.left -= count as u64;
        Ok(count)
    }
}

impl Write for Waiting<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.until(PollFlags::OUT, || {
            rustix::net::send(self.stream, bytes, rustix::net::SendFlags::NOSIGNAL)
        })
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
