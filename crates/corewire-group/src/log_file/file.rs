//! A log that is open.

use std::path::PathBuf;

use corewire_os::locked::LockedFile;

use super::format::Header;

/// The open file of a group's log, and its lock.
pub(crate) struct LogFile {
    pub(super) path: PathBuf,
    pub(super) file: LockedFile,
    pub(super) header: Header,
    /// Where the next record begins: everything before is on the disk.
    pub(super) length: u64,
    /// The index of the next entry.
    pub(super) next: u64,
    /// Whether the last header is on the disk.
    pub(super) is_mark_synced: bool,
}
