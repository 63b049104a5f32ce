//! Why the file of a group's log cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The version that is written. Version 1 is read, too.
pub(super) const VERSION: u32 = 3;
/// The one before, whose logs have no entries of clients: they are read, and become this one with the next header.
pub(super) const VERSION_BEFORE: u32 = 2;

/// Why the file of a group's log cannot be used.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogFileError {
    /// A system call failed.
    #[error("cannot {what} {path:?}: {}", io::Error::from_raw_os_error(*errno))]
    Os {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error number.
        errno: i32,
    },
    /// The file is something else. It was not changed.
    #[error("{0:?} is not the file of a log")]
    NotALog(PathBuf),
    /// The file has no bytes, which no log has.
    #[error("{0:?} is empty, and a log is not: restore it, or remove it to begin a new log")]
    Empty(PathBuf),
    /// Another version of corewire has written it.
    #[error("{path:?} has version {found} of the format, and this is version {VERSION}")]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// What was once on the disk is not there any more: entries that somebody was told of are lost. The file was not
    /// changed. [`salvage_log`](super::salvage_log) copies what can be read.
    #[error(
        "{path:?} is damaged at byte {at}: the entry of index {next} cannot be read (`corewire log --salvage` copies what can)"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        at: u64,
        /// The first entry that is lost.
        next: u64,
    },
    /// Both headers are damaged: nothing can be copied. The file was not changed.
    #[error("both headers of {0:?} are damaged: nothing can be read of it")]
    Headers(PathBuf),
    /// A process of another group has it, or one that is stopped.
    #[error("another process has {0:?}")]
    InUse(PathBuf),
    /// The file has hard links: by another name another group could write it. It was not changed.
    #[error(
        "{0:?} has other names (hard links), by which another group could write it: remove them"
    )]
    Linked(PathBuf),
    /// The lock that all processes of a group share belongs to another user, who could keep it for ever.
    #[error(
        "{0:?} belongs to another user, who could hold up this group: choose another directory"
    )]
    ForeignLock(PathBuf),
    /// While the group lived, somebody has removed the lock that its processes share, or put another file in its place:
    /// another group may have the file of the log.
    #[error("{0:?} was removed or replaced while its group lived: another group may have the file")]
    LockReplaced(PathBuf),
    /// While the group lived, somebody has removed the file, or put another one in its place, or has cut it.
    #[error("{0:?} was removed or replaced, or was cut, while its group lived")]
    Replaced(PathBuf),
}

/// The error of a system call.
pub(crate) fn failed<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl Fn(io::Error) -> LogFileError + Copy + 'a {
    move |error| LogFileError::Os {
        what,
        path: path.to_owned(),
        errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
    }
}

corewire_layout::debug_is_text!(LogFileError);
