//! What programs wait for: an epoll descriptor over the endpoints of a queue, and a bell that ends a wait.

use core::ffi::{c_int, c_void};
use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use corewire_ofi::errors as fi;
use corewire_ofi::fid::{
    FI_GETWAIT, FI_GETWAITOBJ, FI_WAIT_FD, FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno as Refusal;

use crate::errors::{Errno, INVALID, NO_SYSTEM_CALL, Outcome};
use crate::memory::put;

/// What a program waits for.
pub(crate) struct Waiter {
    kind: c_int,
    epoll: OwnedFd,
    bell: OwnedFd,
    /// Somebody may wait.
    is_awaited: Cell<bool>,
}

impl Waiter {
    /// What was asked for: `None` for an object that nobody waits for.
    pub(crate) fn open(kind: c_int) -> Outcome<Option<Self>> {
        match kind {
            FI_WAIT_NONE => Ok(None),
            FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD => Self::new(kind).map(Some).map_err(of_os),
            // Sets, mutexes with conditions, and lists of descriptors are not offered.
            corewire_ofi::fid::FI_WAIT_SET
            | corewire_ofi::fid::FI_WAIT_MUTEX_COND
            | corewire_ofi::fid::FI_WAIT_POLLFD => Err(NO_SYSTEM_CALL),
            _ => Err(INVALID),
        }
    }

    fn new(kind: c_int) -> Result<Self, Refusal> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let waiter = Self { kind, epoll, bell, is_awaited: Cell::new(false) };
        waiter.watch(waiter.bell.as_fd())?;
        Ok(waiter)
    }

    fn watch(&self, descriptor: impl AsFd) -> Result<(), Refusal> {
        epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
    }

    /// Waits for this descriptor, too.
    pub(crate) fn add(&self, descriptor: impl AsFd) -> Outcome {
        match self.watch(descriptor) {
            Err(error) if error != Refusal::EXIST => Err(of_os(error)),
            _ => Ok(()),
        }
    }

    /// No longer waits for it.
    pub(crate) fn remove(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Ends a wait, if there may be one since [`silence`](Self::silence) was called last.
    #[inline(always)]
    pub(crate) fn wake(&self) {
        if self.is_awaited.replace(false) {
            self.ring();
        }
    }

    /// Ends a wait.
    #[cold]
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_le_bytes());
    }

    /// Before a wait, and before a look at what it waits for.
    pub(crate) fn silence(&self) {
        self.is_awaited.set(true);
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// Whether it waits by yielding.
    pub(crate) fn yields(&self) -> bool {
        self.kind == FI_WAIT_YIELD
    }

    /// The descriptor to wait for, once nobody holds a lock.
    pub(crate) fn descriptor(&self) -> c_int {
        self.epoll.as_raw_fd()
    }

    /// `fi_control`.
    pub(crate) fn control(&self, command: c_int, argument: *mut c_void) -> Outcome {
        match command {
            // SAFETY: the caller of `fi_control` passes a pointer to an `int` for both commands.
            FI_GETWAIT if !self.yields() => unsafe { put(argument.cast(), self.descriptor()) },
            // SAFETY: as above.
            FI_GETWAITOBJ => unsafe { put(argument.cast(), self.kind) },
            _ => Err(NO_SYSTEM_CALL),
        }
    }
}

/// Until when a call waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// That many milliseconds from now; for ever if the number is negative.
    pub(crate) fn after_ms(timeout: c_int) -> Self {
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    pub(crate) fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }

    /// Waits until a descriptor of an object is readable, or the time is over. The object may be closed meanwhile.
    pub(crate) fn wait(self, descriptor: c_int) -> Outcome {
        let left = self.0.map(|end| end.saturating_duration_since(Instant::now()));
        let limit = left.and_then(|left| Timespec::try_from(left).ok());
        // SAFETY: poll takes any number; it is the caller's fault if it names another file by now.
        let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
        match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], limit.as_ref()) {
            Ok(_) | Err(Refusal::INTR) => Ok(()),
            Err(error) => Err(of_os(error)),
        }
    }
}

fn of_os(error: Refusal) -> Errno {
    let errno = error.raw_os_error();
    Errno(if fi::text(errno).is_some() { errno } else { fi::FI_EIO })
}
