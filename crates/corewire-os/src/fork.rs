//! What becomes of corewire in a forked child.
//!
//! A child shares nothing of its parent's channels: it would be a second writer of words that have
//! one. Own segments are not copied into it at all; in their place, and in place of the peers'
//! segments, it gets zeroed pages of its own, so that a handle that the child still holds neither
//! faults nor says anything to anyone. Every descriptor is closed, every data thread is given a
//! notice, and [`generation`] changes: handles answer with an error from their slow path.
//!
//! Covered are `fork` and whatever calls the C library's handlers. `vfork`, `posix_spawn` and `exec`
//! are covered by close-on-exec. A raw `clone` system call is not: do not use handles after it.

use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Once, Weak};

use corewire_ring::spin::Spin;
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};

/// Somebody who must know that this is the child now. Called between `fork` and the child's next
/// instruction: may only store to memory.
pub trait InChild: Send + Sync {
    /// This is the child.
    fn forked(&self);
}

enum Entry {
    /// Pages to be replaced: address and length.
    Pages(usize, usize),
    Descriptor(RawFd),
    Notice(Weak<dyn InChild>),
}

/// The table, behind a spin lock that the fork handlers can take and leave.
struct Table {
    lock: Spin,
    entries: std::cell::UnsafeCell<Vec<Entry>>,
}

// SAFETY: `entries` is only touched with `lock` held.
unsafe impl Sync for Table {}

static TABLE: Table = Table { lock: Spin::new(), entries: std::cell::UnsafeCell::new(Vec::new()) };
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between this process and the one that loaded corewire.
#[must_use]
pub fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

fn lock() {
    TABLE.lock.lock(rustix::thread::sched_yield);
}

fn unlock() {
    TABLE.lock.unlock();
}

fn with_entries<R>(job: impl FnOnce(&mut Vec<Entry>) -> R) -> R {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: the three handlers are plain functions without arguments that live forever.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
    lock();
    // SAFETY: the lock is held.
    let entries = unsafe { &mut *TABLE.entries.get() };
    let result = job(entries);
    unlock();
    result
}

extern "C" fn before() {
    lock();
}

extern "C" fn in_parent() {
    unlock();
}

extern "C" fn in_child() {
    GENERATION.store(generation().wrapping_add(1), Relaxed);
    // SAFETY: the parent's forking thread took the lock, and this is that thread's copy.
    let entries = unsafe { &mut *TABLE.entries.get() };
    entries.retain(|entry| match entry {
        Entry::Pages(address, bytes) => {
            replace_with_zeroes(*address, *bytes);
            true
        }
        Entry::Descriptor(descriptor) => {
            // SAFETY: this process's copy of a descriptor that corewire owns; its owner knows by
            // the generation that it is closed.
            unsafe { libc::close(*descriptor) };
            false
        }
        Entry::Notice(who) => {
            if let Some(who) = who.upgrade() {
                who.forked();
            }
            false
        }
    });
    unlock();
}

fn replace_with_zeroes(address: usize, bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let at = std::ptr::without_provenance_mut(address);
    // SAFETY: the range is one of corewire's own mappings, or the hole it left in this child.
    unsafe { libc::mmap(at, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
}

/// Has `who` told in a forked child.
pub fn tell_in_child(who: Weak<dyn InChild>) {
    with_entries(|entries| {
        entries.retain(|entry| !matches!(entry, Entry::Notice(who) if who.strong_count() == 0));
        entries.push(Entry::Notice(who));
    });
}

pub(crate) fn add_pages(address: usize, bytes: usize) {
    with_entries(|entries| entries.push(Entry::Pages(address, bytes)));
}

pub(crate) fn remove_pages(address: usize) {
    with_entries(|entries| remove(entries, |e| matches!(e, Entry::Pages(at, _) if *at == address)));
}

fn remove(entries: &mut Vec<Entry>, is_it: impl FnMut(&Entry) -> bool) {
    if let Some(index) = entries.iter().rposition(is_it) {
        entries.swap_remove(index);
    }
}

/// A descriptor that a forked child does not keep.
pub struct Descriptor {
    inner: ManuallyDrop<OwnedFd>,
    generation: u32,
}

impl Descriptor {
    /// Takes `descriptor` over.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Self {
        let raw = descriptor.as_raw_fd();
        with_entries(|entries| entries.push(Entry::Descriptor(raw)));
        Self { inner: ManuallyDrop::new(descriptor), generation: generation() }
    }

    /// False in a forked child, where it is closed and its number may be somebody else's.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.generation == generation()
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        let raw = self.inner.as_raw_fd();
        with_entries(|entries| {
            remove(entries, |entry| matches!(entry, Entry::Descriptor(at) if *at == raw));
        });
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Descriptor({})", self.inner.as_raw_fd())
    }
}
