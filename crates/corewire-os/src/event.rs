//! Waiting for many descriptors at once, and a descriptor with which a thread notifies another one.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;

use crate::fork::Descriptor;
use crate::{Doing, OsError};

/// An event of a watched descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The number under which the descriptor was added.
    pub token: u64,
    /// The other end hung up.
    pub hung_up: bool,
}

/// A set of watched descriptors (epoll).
#[derive(Debug)]
pub struct EventSet(Descriptor);

impl EventSet {
    /// Creates an empty set.
    ///
    /// # Errors
    /// [`OsError`] if no descriptor is left.
    pub fn new() -> Result<Self, OsError> {
        let make = || epoll::create(epoll::CreateFlags::CLOEXEC);
        Descriptor::make(make).doing("make an event set").map(Self)
    }

    /// Watches `descriptor` for input, hang-up and errors, under the number `token`.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses.
    pub fn add(&self, descriptor: impl AsFd, token: u64) -> Result<(), OsError> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&self.0, descriptor, epoll::EventData::new_u64(token), flags)
            .doing("watch a descriptor")
    }

    /// False in a forked child.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.0.is_ours()
    }

    /// Stops watching `descriptor`.
    pub fn remove(&self, descriptor: impl AsFd) {
        if self.0.is_ours() {
            // The call fails only if the descriptor is not in the set, which is the wanted state.
            let _ = epoll::delete(&self.0, descriptor);
        }
    }

    /// Waits until something happens, and replaces `events` by everything that has happened.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses.
    pub fn wait(&self, events: &mut Vec<Event>) -> Result<(), OsError> {
        self.wait_for(events, None)
    }

    /// Checks whether [`EventSet::wait`] works in this process. Does not wait.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses the call.
    pub fn check(&self) -> Result<(), OsError> {
        self.wait_for(&mut Vec::new(), Some(&Timespec::default()))
    }

    fn wait_for(&self, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> Result<(), OsError> {
        let mut buffer = Vec::with_capacity(64);
        let spare = rustix::buffer::spare_capacity(&mut buffer);
        let found = match epoll::wait(&self.0, spare, timeout) {
            Err(Errno::INTR) => Ok(0),
            other => other,
        };
        found.doing("wait for events")?;
        events.clear();
        events.extend(buffer.iter().map(|event| {
            let flags = event.flags;
            let gone = epoll::EventFlags::HUP | epoll::EventFlags::RDHUP | epoll::EventFlags::ERR;
            Event { token: event.data.u64(), hung_up: flags.intersects(gone) }
        }));
        Ok(())
    }
}

/// An eventfd: a descriptor that becomes readable when [`Bell::ring`] is called.
#[derive(Debug)]
pub struct Bell(Descriptor);

impl Bell {
    /// Creates one that is not readable.
    ///
    /// # Errors
    /// [`OsError`] if no descriptor is left.
    pub fn new() -> Result<Self, OsError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Descriptor::make(|| eventfd(0, flags)).doing("make an eventfd").map(Self)
    }

    /// Takes over an eventfd that a peer sent.
    ///
    /// # Errors
    /// [`OsError`] if it is not an eventfd but a file, a pipe or a socket.
    pub fn adopt(descriptor: Descriptor) -> Result<Self, OsError> {
        const TYPE_OF_FILE: u32 = 0o170_000;
        let what = "take a peer's eventfd";
        // An eventfd has none of the file types that have a number. A write to a pipe or a socket
        // whose other end is closed could end this process.
        let mode = rustix::fs::fstat(&descriptor).doing(what)?.st_mode;
        if mode & TYPE_OF_FILE != 0 {
            return Err(OsError::new(what, Errno::INVAL));
        }
        // The peer may have created it as blocking, and `ring` must not wait.
        rustix::io::ioctl_fionbio(&descriptor, true).doing(what)?;
        Ok(Self(descriptor))
    }

    /// Makes the descriptor readable. Never blocks: if the counter is full, it is already readable.
    pub fn ring(&self) {
        if self.0.is_ours() {
            let _ = rustix::io::write(&self.0, &1u64.to_le_bytes());
        }
    }

    /// Makes the descriptor unreadable again.
    pub fn silence(&self) {
        if self.0.is_ours() {
            // Not a plain read, because a peer that shares the descriptor can make it block. Where the
            // kernel refuses `preadv2`, a descriptor that stays readable would be worse.
            let mut count = [0u8; 8];
            let flags = rustix::io::ReadWriteFlags::NOWAIT;
            let mut buffer = [std::io::IoSliceMut::new(&mut count)];
            match rustix::io::preadv2(&self.0, &mut buffer, u64::MAX, flags) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => drop(rustix::io::read(&self.0, &mut count)),
            }
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of `descriptors` is readable or hung up, or `deadline` passes. Returns for each
/// descriptor whether it is.
///
/// # Errors
/// [`OsError`] if the kernel refuses.
pub fn wait_readable(
    descriptors: &[BorrowedFd<'_>],
    deadline: Option<Instant>,
) -> Result<Vec<bool>, OsError> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    loop {
        let left = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec::try_from(left.min(Duration::from_secs(86_400))).unwrap_or_default()
        });
        match poll(&mut polled, left.as_ref()) {
            Err(Errno::INTR) => {}
            other => {
                other.doing("wait for a descriptor")?;
                return Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect());
            }
        }
    }
}
