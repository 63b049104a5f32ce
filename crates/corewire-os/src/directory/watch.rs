//! Watching the runtime directory for changes.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::fs::inotify;

use super::RuntimeDirectory;
use crate::event::wait_readable;
use crate::fork::Descriptor;
use crate::{Doing, OsError};

impl RuntimeDirectory {
    /// Starts to watch the directory's files.
    ///
    /// # Errors
    /// [`OsError`] if this user has its maximum number of watches.
    pub fn watch(&self) -> Result<Watch, OsError> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let make = || inotify::init(flags);
        let descriptor = Descriptor::make(make).doing("watch the runtime directory")?;
        let what = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::DELETE;
        inotify::add_watch(&descriptor, self.short_path("."), what)
            .doing("watch the runtime directory")?;
        Ok(Watch(descriptor))
    }
}

/// A watch on the directory's files (inotify).
#[derive(Debug)]
pub struct Watch(Descriptor);

impl Watch {
    /// Waits until a file of the directory changes, `other` becomes readable, or `deadline` passes.
    /// Returns false in the last case.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses.
    pub fn wait(&self, other: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<bool, OsError> {
        self.wait_beside(&[self.0.as_fd(), other], deadline)
    }

    /// As [`Watch::wait`], for the directory's files alone.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses.
    pub fn wait_alone(&self, deadline: Option<Instant>) -> Result<bool, OsError> {
        self.wait_beside(&[self.0.as_fd()], deadline)
    }

    fn wait_beside(
        &self,
        all: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<bool, OsError> {
        let ready = wait_readable(all, deadline)?;
        self.has_changed();
        Ok(ready.contains(&true))
    }

    /// Whether a file of the directory has changed since the last call. Does not wait; the descriptor is readable if one
    /// has.
    pub fn has_changed(&self) -> bool {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut space);
        let mut has_changed = false;
        while events.next().is_ok_and(|event| event.file_name().is_some_and(is_any)) {
            has_changed = true;
        }
        has_changed
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It takes the kernel 10 ms.
        self.0.close_early();
    }
}

fn is_any(_: &CStr) -> bool {
    true
}
