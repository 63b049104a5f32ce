//! Waiting for many descriptors at once, and a descriptor that a thread can ring.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;

use crate::fork::Descriptor;
use crate::{Doing, OsError};

/// What happened to a watched descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The number it was added under.
    pub token: u64,
    /// The other end hung up.
    pub hung_up: bool,
}

/// A set of watched descriptors.
#[derive(Debug)]
pub struct EventSet(Descriptor);

impl EventSet {
    /// An empty set.
    ///
    /// # Errors
    /// [`OsError`] if there is no descriptor left.
    pub fn new() -> Result<Self, OsError> {
        let make = || epoll::create(epoll::CreateFlags::CLOEXEC);
        Descriptor::make(make).doing("make an event set").map(Self)
    }

    /// Watches `descriptor` for input, hang-up and end of life under `token`.
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
            // It fails only if the descriptor is not in the set, which is what is wanted.
            let _ = epoll::delete(&self.0, descriptor);
        }
    }

    /// Waits until something happens, and returns all that has.
    ///
    /// # Errors
    /// [`OsError`] if the set is gone.
    pub fn wait(&self, events: &mut Vec<Event>) -> Result<(), OsError> {
        self.wait_for(events, None)
    }

    /// Finds out whether [`EventSet::wait`] works here. Does not wait.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses it.
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

/// A descriptor that becomes readable when it is rung.
#[derive(Debug)]
pub struct Bell(Descriptor);

impl Bell {
    /// A silent one.
    ///
    /// # Errors
    /// [`OsError`] if there is no descriptor left.
    pub fn new() -> Result<Self, OsError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Descriptor::make(|| eventfd(0, flags)).doing("make an eventfd").map(Self)
    }

    /// One that a peer handed over.
    ///
    /// # Errors
    /// [`OsError`] if it is no eventfd but a file, a pipe or a socket.
    pub fn adopt(descriptor: Descriptor) -> Result<Self, OsError> {
        const TYPE_OF_FILE: u32 = 0o170_000;
        let what = "take a peer's eventfd";
        // An eventfd is none of the kinds that have a number. To write to a pipe or a socket whose
        // other end is closed could end this process.
        let mode = rustix::fs::fstat(&descriptor).doing(what)?.st_mode;
        if mode & TYPE_OF_FILE != 0 {
            return Err(OsError::new(what, Errno::INVAL));
        }
        // Whoever made it may have forgotten, and ringing must not wait.
        rustix::io::ioctl_fionbio(&descriptor, true).doing(what)?;
        Ok(Self(descriptor))
    }

    /// Makes it readable. Never blocks: a full counter is readable already.
    pub fn ring(&self) {
        if self.0.is_ours() {
            let _ = rustix::io::write(&self.0, &1u64.to_le_bytes());
        }
    }

    /// Makes it unreadable again.
    pub fn silence(&self) {
        if self.0.is_ours() {
            // Not a plain read: a peer that shares the descriptor can make that one block. Where the
            // kernel refuses the other, a bell that stayed readable would be worse.
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

/// Waits until one of `descriptors` is readable or hung up, or `deadline` passes; says which are.
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
