//! What a program that waits for a lane asks the system for.

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::error::CallError;

/// What a waiting program must ask the system for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    ReadAndWrite,
}

/// A copy of a descriptor, for a program that waits.
pub(crate) fn copy(descriptor: BorrowedFd<'_>) -> Result<OwnedFd, CallError> {
    let what = "copy a descriptor";
    let copied = rustix::io::fcntl_dupfd_cloexec(descriptor, 0);
    copied.map_err(|error| CallError::Os { what, errno: error.raw_os_error() })
}
