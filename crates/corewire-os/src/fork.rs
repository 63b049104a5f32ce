//! What becomes of corewire in a forked child.
//!
//! A child shares nothing of its parent's channels: it would be a second writer of words that have
//! one. Own segments are not copied into it at all; in their place, and in place of the peers'
//! segments, it gets zeroed pages of its own, so that a handle that the child still holds neither
//! faults nor reaches another process. Every descriptor is closed, every data thread gets a notice,
//! and [`generation`] changes: handles answer with an error from their slow path.
//!
//! A table lists the descriptors and mappings of this process. Each is made and listed under one lock,
//! which the fork handlers take too, and is taken off the list and released under it: so a child never
//! keeps one that is not listed yet, or any more. The lock is held for one system call, or for a few that
//! do not block; the kernel lends its holder the priority of a thread that waits.
//!
//! Covered are `fork` and whatever calls the C library's handlers. `vfork`, `posix_spawn` and `exec`
//! are covered by close-on-exec. A raw `clone` system call is not: do not use handles after it.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Weak;
use std::time::Duration;

use corewire_ring::handoff::Handoff;
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};
use rustix::thread::futex;

/// An object that must know that this is the child now. Called between `fork` and the child's next
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

/// The table, behind a lock that the fork handlers can take in the parent and reset in the child.
struct Table {
    lock: Handoff,
    entries: UnsafeCell<Vec<Entry>>,
}

// SAFETY: `entries` is only touched with `lock` held.
unsafe impl Sync for Table {}

static TABLE: Table = Table { lock: Handoff::new(), entries: UnsafeCell::new(Vec::new()) };
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Installs the fork handlers before `main`, or when the library is loaded: before there is anything
/// that a child could keep, and without a moment in which a fork could be missed.
#[used]
// SAFETY: the section holds pointers to functions of this signature, which the loader calls once.
#[unsafe(link_section = ".init_array")]
static INSTALL: extern "C" fn() = {
    extern "C" fn install() {
        // SAFETY: the three handlers are plain functions without arguments that live forever.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
    install
};

/// How many forks lie between this process and the one that loaded corewire.
#[must_use]
pub fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// The kernel's number of this thread; where a filter refuses it, one that no thread has: the kernel then
/// refuses to lend priority.
fn own_number() -> u32 {
    const OF_NOBODY: u32 = 0x3fff_ffff;
    // SAFETY: integers only.
    let number = unsafe { libc::gettid() };
    u32::try_from(number).ok().filter(|&number| number > 0).unwrap_or(OF_NOBODY)
}

fn lock() {
    TABLE.lock.lock(own_number(), |word| {
        if futex::lock_pi(word, futex::Flags::PRIVATE, None).is_ok() {
            return true;
        }
        // A filter refuses the call. A thread of higher priority must leave the core to the holder.
        let moment = Duration::from_micros(50);
        let moment = rustix::thread::Timespec::try_from(moment).unwrap_or_default();
        let _ = rustix::thread::nanosleep(&moment);
        false
    });
}

fn unlock() {
    TABLE.lock.unlock(own_number(), |word| {
        // It fails only if no thread waits, which the kernel's flag rules out.
        let _ = futex::unlock_pi(word, futex::Flags::PRIVATE);
    });
}

fn with_entries<R>(job: impl FnOnce(&mut Vec<Entry>) -> R) -> R {
    lock();
    // SAFETY: the lock is held.
    let entries = unsafe { &mut *TABLE.entries.get() };
    let result = job(entries);
    unlock();
    result
}

/// Runs `job`, during which no thread of this process forks: for descriptors that it opens and closes
/// again. The job must not block, nor make or drop anything of this crate.
pub fn without_forks<R>(job: impl FnOnce() -> R) -> R {
    with_entries(|_| job())
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
        Entry::Notice(target) => {
            if let Some(target) = target.upgrade() {
                target.forked();
            }
            false
        }
    });
    TABLE.lock.reset();
}

fn replace_with_zeroes(address: usize, bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let at = std::ptr::without_provenance_mut(address);
    // SAFETY: the range is one of corewire's own mappings, or the hole it left in this child.
    unsafe { libc::mmap(at, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
}

/// Notifies `target` in a forked child.
pub fn tell_in_child(target: Weak<dyn InChild>) {
    with_entries(|entries| {
        entries.retain(|entry| !matches!(entry, Entry::Notice(other) if other.strong_count() == 0));
        entries.push(Entry::Notice(target));
    });
}

/// Maps pages with `map`, which returns their address, and lists them.
pub(crate) fn map_pages<E>(
    bytes: usize,
    map: impl FnOnce() -> Result<*mut std::ffi::c_void, E>,
) -> Result<*mut std::ffi::c_void, E> {
    with_entries(|entries| {
        let at = map()?;
        entries.push(Entry::Pages(at.addr(), bytes));
        Ok(at)
    })
}

/// Takes the pages at `address` off the list and unmaps them with `unmap`.
pub(crate) fn unmap_pages(address: usize, unmap: impl FnOnce()) {
    with_entries(|entries| {
        remove(entries, |entry| matches!(entry, Entry::Pages(at, _) if *at == address));
        unmap();
    });
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

/// The list of descriptors, while no thread of this process forks.
pub(crate) struct Keeper<'a>(&'a mut Vec<Entry>);

impl Keeper<'_> {
    /// Lists `descriptor`, which has just been made.
    pub(crate) fn keep(&mut self, descriptor: OwnedFd) -> Descriptor {
        self.0.push(Entry::Descriptor(descriptor.as_raw_fd()));
        Descriptor { inner: ManuallyDrop::new(descriptor), generation: generation() }
    }
}

/// Runs `job`, which makes descriptors and lists them at once; no thread of this process forks
/// meanwhile. The job must not block, nor drop anything of this crate.
pub(crate) fn making<R>(job: impl FnOnce(&mut Keeper<'_>) -> R) -> R {
    with_entries(|entries| job(&mut Keeper(entries)))
}

impl Descriptor {
    /// The descriptor that `make` makes by one system call that does not block.
    ///
    /// # Errors
    /// That of `make`.
    pub fn make<E>(make: impl FnOnce() -> Result<OwnedFd, E>) -> Result<Self, E> {
        making(|keeper| make().map(|descriptor| keeper.keep(descriptor)))
    }

    /// False in a forked child, where it is closed and its number may belong to another descriptor.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.generation == generation()
    }
}

/// Takes over a descriptor that a forked child may have kept before now.
impl From<OwnedFd> for Descriptor {
    fn from(descriptor: OwnedFd) -> Self {
        making(|keeper| keeper.keep(descriptor))
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
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        });
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Descriptor({})", self.inner.as_raw_fd())
    }
}

/// A value that each process has for itself: a forked child begins with a new one, since a thread that
/// it does not have may have been changing the parent's.
pub struct PerProcess<T: 'static>(UnsafeCell<Option<(u32, &'static T)>>);

// SAFETY: the cell is only touched with the table's lock held, and hands out shared references alone.
unsafe impl<T: Send + Sync> Sync for PerProcess<T> {}

impl<T: Default> PerProcess<T> {
    /// A value that is made when it is first asked for.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// This process's value. It is never freed.
    pub fn get(&self) -> &'static T {
        with_entries(|_| {
            // SAFETY: the lock is held.
            let slot = unsafe { &mut *self.0.get() };
            match *slot {
                Some((made_in, value)) if made_in == generation() => value,
                _ => {
                    let value: &'static T = Box::leak(Box::default());
                    *slot = Some((generation(), value));
                    value
                }
            }
        })
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PerProcess")
    }
}
