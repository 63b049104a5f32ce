//! Descriptors that can be told apart.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::MemfdFlags;

/// A new file in memory.
///
/// # Panics
/// If there are no more descriptors.
#[must_use]
pub fn descriptor() -> OwnedFd {
    let made = rustix::fs::memfd_create("corewire-test", MemfdFlags::CLOEXEC);
    made.unwrap_or_else(|error| panic!("{error}"))
}

/// Which file it is.
///
/// # Panics
/// If it is not open.
#[must_use]
pub fn inode(descriptor: impl AsFd) -> u64 {
    let status = rustix::fs::fstat(descriptor);
    status.unwrap_or_else(|error| panic!("{error}")).st_ino
}

/// How many files of these tests are open in this process.
///
/// # Panics
/// If `/proc` cannot be read.
#[must_use]
pub fn open_count() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap_or_else(|error| panic!("{error}"));
    let targets = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("corewire-test")).count()
}
