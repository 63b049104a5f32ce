//! The effect of a fork on corewire.
//!
//! A child has nothing of its parent's channels, because it would be a second writer of words that must
//! have one. The kernel does not copy the process's own segments into the child. In place of these and
//! of the peers' segments the child gets zeroed pages of its own, so a handle that it inherits neither
//! faults (unless the kernel has no memory for these pages) nor reaches another process. In the child
//! every descriptor is closed, every data thread gets a notice, and [`generation`] changes, so handles
//! return an error from their slow path. The data of a window is a hole in the child: a program uses it by
//! bare loads and stores, and one of a child that went to a page of zeroes would be lost without a word.
//!
//! A table lists the descriptors and mappings of this process. Each is created and listed under one lock,
//! and removed from the list and released under the same lock. The fork handlers take this lock too. So
//! a child never keeps a descriptor or a mapping that is not in the list. The lock is held for one or two
//! system calls that neither block nor take long: what takes the kernel long to release is released outside
//! it. The kernel gives the holder the priority of a thread that waits for it. Where a filter (seccomp)
//! refuses that to a thread, waiting threads sleep for 50 us and try again; where it comes while a thread
//! holds the lock, they try again after 10 ms.
//!
//! This covers `fork` and everything else that calls the C library's fork handlers. Close-on-exec covers
//! `posix_spawn` and `exec`, and a child of `vfork` that only calls `exec`. A raw `clone` system call is
//! not covered: do not use handles after it.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Weak;

use corewire_ring::handoff::{Handoff, OF_NOBODY};
use corewire_ring::sync::Ordering::{Acquire, Relaxed, Release};
use corewire_ring::sync::{AtomicU32, StaticPtr};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{DupFlags, Errno, dup3};
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// An object that is notified in a forked child. The call comes before `fork` returns in the child, so
/// it may only store to memory.
pub trait InChild: Send + Sync {
    /// Called in the child.
    fn forked(&self);
}

enum Entry {
    /// Pages to replace in the child.
    Pages(Pages),
    /// Pages that the kernel does not give to the child. Other memory may be there by the time of the handler.
    Hole(Pages),
    Descriptor(RawFd),
    Notice(Weak<dyn InChild>),
}

/// Mapped pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pages {
    address: usize,
    bytes: usize,
    /// The generation of the process that mapped them.
    generation: u32,
}

/// The table and its lock. The fork handlers take the lock in the parent and reset it in the child.
struct Table {
    lock: Handoff,
    entries: UnsafeCell<Vec<Entry>>,
}

// SAFETY: `entries` is only touched with `lock` held.
unsafe impl Sync for Table {}

static TABLE: Table = Table { lock: Handoff::new(), entries: UnsafeCell::new(Vec::new()) };
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Installs the fork handlers before `main`, or when the library is loaded. At that time there is
/// nothing that a child could keep, so no fork is missed.
#[used]
// The section holds pointers to functions of this signature, which the loader calls once.
#[unsafe(link_section = ".init_array")]
static INSTALL: extern "C" fn() = {
    extern "C" fn install() {
        // The handlers registered last run first before a fork, and an allocator registers its own with its
        // first allocation. It must be usable until the table is locked, which may wait for a thread that
        // allocates.
        drop(std::hint::black_box(Box::new(0u8)));
        // SAFETY: the three handlers are plain functions without arguments that live forever.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
    install
};

/// Number of forks between this process and the one that loaded corewire.
#[must_use]
pub fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// The number under which this thread takes the lock: the kernel's number of the thread, if the kernel lets
/// the thread hand a lock over; else that of nobody.
fn own_number() -> u32 {
    // SAFETY: integers only.
    let number = unsafe { libc::gettid() };
    let Ok(number) = u32::try_from(number) else { return OF_NOBODY };
    // Releasing a lock that nobody else can see shows it. A filter may refuse the call to this thread alone,
    // and may have been installed since the last time.
    match futex::unlock_pi(&AtomicU32::new(number), futex::Flags::PRIVATE) {
        Ok(()) => number,
        Err(_) => OF_NOBODY,
    }
}

fn lock() {
    let own = own_number();
    TABLE.lock.lock(own, |word| {
        // To a thread that waits in the kernel, the kernel gives the lock under the thread's real number.
        if own != OF_NOBODY {
            match futex::lock_pi(word, futex::Flags::PRIVATE, Some(&in_a_moment())) {
                Ok(()) => return true,
                // The holder may have released the lock without the kernel.
                Err(Errno::TIMEDOUT) => return false,
                Err(_) => {}
            }
        }
        // The kernel can do nothing for this thread, or the holder is nobody to it. A thread of higher
        // priority must leave the core to the holder.
        let _ = rustix::thread::nanosleep(&Timespec { tv_sec: 0, tv_nsec: 50_000 });
        false
    });
}

/// The time in 10 ms, by the clock that the kernel uses here.
fn in_a_moment() -> Timespec {
    let mut at = clock_gettime(ClockId::Realtime);
    at.tv_nsec += 10_000_000;
    at.tv_sec += at.tv_nsec / 1_000_000_000;
    at.tv_nsec %= 1_000_000_000;
    at
}

fn unlock() {
    TABLE.lock.unlock(|word| futex::unlock_pi(word, futex::Flags::PRIVATE).is_ok());
}

fn with_entries<R>(job: impl FnOnce(&mut Vec<Entry>) -> R) -> R {
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
        Entry::Pages(pages) => replace_with_zeroes(*pages),
        Entry::Hole(_) => false,
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

/// Where the kernel has no memory for writable pages, the child gets pages that it can only read; where it
/// has none for these either, a hole: false. An access by the parent's handles then ends the child with
/// SIGSEGV.
fn replace_with_zeroes(Pages { address, bytes, .. }: Pages) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let at = ptr::without_provenance_mut(address);
    let is_mapped =
        [libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ].iter().any(|protection| {
            // SAFETY: the range is one of corewire's own mappings, or the hole it left in this child.
            unsafe { libc::mmap(at, bytes, *protection, flags, -1, 0) != libc::MAP_FAILED }
        });
    if !is_mapped {
        // SAFETY: as above. A peer's segment must not stay.
        unsafe { libc::munmap(at, bytes) };
    }
    is_mapped
}

/// Notifies `target` in a forked child.
pub fn notify_in_child(target: Weak<dyn InChild>) {
    with_entries(|entries| {
        entries.retain(|entry| !matches!(entry, Entry::Notice(other) if other.strong_count() == 0));
        entries.push(Entry::Notice(target));
    });
}

/// Maps pages with `map`, which returns their address, and lists them.
pub(crate) fn map_pages<E>(
    bytes: usize,
    map: impl FnOnce() -> Result<*mut std::ffi::c_void, E>,
) -> Result<(*mut std::ffi::c_void, Pages), E> {
    with_entries(|entries| {
        let at = map()?;
        let pages = Pages { address: at.addr(), bytes, generation: generation() };
        entries.push(Entry::Pages(pages));
        Ok((at, pages))
    })
}

/// As [`map_pages`], but the pages are a hole in a forked child: an access there ends the child with SIGSEGV.
pub(crate) fn map_hole<E>(
    bytes: usize,
    map: impl FnOnce() -> Result<*mut std::ffi::c_void, E>,
) -> Result<(*mut std::ffi::c_void, Pages), E> {
    with_entries(|entries| {
        let at = map()?;
        let pages = Pages { address: at.addr(), bytes, generation: generation() };
        // SAFETY: the mapping that was just made; the advice does not change its contents.
        let is_left_out = unsafe { libc::madvise(at, bytes, libc::MADV_DONTFORK) } == 0;
        // Where the kernel refuses this, the child gets pages of its own.
        entries.push(if is_left_out { Entry::Hole(pages) } else { Entry::Pages(pages) });
        Ok((at, pages))
    })
}

/// Removes `pages` from the list and unmaps them. Pages that are not in the list are a hole in a child,
/// which may be in use again.
pub(crate) fn unmap_pages(pages: Pages) {
    let at = ptr::without_provenance_mut(pages.address);
    let unmap = || {
        // SAFETY: a mapping that was listed, once.
        unsafe { libc::munmap(at, pages.bytes) };
    };
    let is_left = with_entries(|entries| {
        let is_it = |entry: &Entry| matches!(entry, Entry::Pages(other) | Entry::Hole(other) if *other == pages);
        if !remove(entries, is_it) {
            return false;
        }
        // The kernel may take long to free the memory. A child that is forked meanwhile does not get it.
        // SAFETY: as above; the advice does not change the contents.
        let is_left_out = unsafe { libc::madvise(at, pages.bytes, libc::MADV_DONTFORK) } == 0;
        if !is_left_out {
            unmap();
        }
        is_left_out
    });
    if is_left {
        unmap();
    }
}

/// Removes the newest entry for which `is_it`; false if there is none.
fn remove(entries: &mut Vec<Entry>, is_it: impl FnMut(&Entry) -> bool) -> bool {
    let found = entries.iter().rposition(is_it);
    if let Some(index) = found {
        entries.swap_remove(index);
    }
    found.is_some()
}

/// A descriptor that a forked child does not keep.
pub struct Descriptor {
    inner: ManuallyDrop<OwnedFd>,
    generation: u32,
}

/// The list of descriptors, while no thread of this process can fork.
pub(crate) struct Keeper<'a>(&'a mut Vec<Entry>);

impl Keeper<'_> {
    /// Lists `descriptor`, which was created just now.
    pub(crate) fn keep(&mut self, descriptor: OwnedFd) -> Descriptor {
        self.0.push(Entry::Descriptor(descriptor.as_raw_fd()));
        Descriptor { inner: ManuallyDrop::new(descriptor), generation: generation() }
    }
}

/// Runs `job`, which creates descriptors and lists them at once, while no thread of this process can
/// fork. The job must not block, and must not drop anything of this crate.
pub(crate) fn making<R>(job: impl FnOnce(&mut Keeper<'_>) -> R) -> R {
    with_entries(|entries| job(&mut Keeper(entries)))
}

impl Descriptor {
    /// The descriptor that `make` creates by one system call. The call must not block.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn make<E>(make: impl FnOnce() -> Result<OwnedFd, E>) -> Result<Self, E> {
        making(|keeper| make().map(|descriptor| keeper.keep(descriptor)))
    }

    /// For a descriptor that takes the kernel long to close: closes it now, without the lock, and keeps its
    /// number for a descriptor that closes at once. Does nothing if there is no free descriptor.
    pub(crate) fn close_early(&mut self) {
        let cheap = || eventfd(0, EventfdFlags::CLOEXEC);
        if self.is_ours()
            && let Ok(cheap) = Self::make(cheap)
        {
            // A child has the number either way, and closes it. If this fails, nothing has changed.
            let _ = dup3(&cheap, &mut self.inner, DupFlags::CLOEXEC);
        }
    }

    /// Gives the descriptor to other code; a child that is forked afterwards keeps its copy. `None` in a forked child,
    /// where it is closed.
    pub(crate) fn into_fd(self) -> Option<OwnedFd> {
        let mut this = ManuallyDrop::new(self);
        if !this.is_ours() {
            return None;
        }
        let raw = this.inner.as_raw_fd();
        with_entries(|entries| {
            remove(entries, |entry| matches!(entry, Entry::Descriptor(at) if *at == raw));
        });
        // SAFETY: taken once, here, since `this` is not dropped.
        Some(unsafe { ManuallyDrop::take(&mut this.inner) })
    }

    /// False in a forked child, where the descriptor is closed and its number may belong to another one.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.generation == generation()
    }
}

/// Takes over a descriptor from other code. A child that was forked before this call may have a copy.
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

/// A value that each process has for itself. A forked child begins with a new one, because the parent's
/// may have been in the middle of a change by a thread that the child does not have.
pub struct PerProcess<T: 'static> {
    /// Null before the first call of [`PerProcess::get`]. What it points to is never freed, and never changes.
    made: StaticPtr<Made<T>>,
    /// It gives out shared references to all threads.
    value: PhantomData<&'static T>,
}

struct Made<T> {
    generation: u32,
    value: T,
}

impl<T: Default> PerProcess<T> {
    /// A value that is created by the first call of [`PerProcess::get`].
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Self {
        Self { made: StaticPtr::new(ptr::null_mut()), value: PhantomData }
    }

    /// This process's value. It is never freed. Calls after the first one cost two loads: data paths make them.
    #[inline]
    pub fn get(&self) -> &'static T {
        self.made().unwrap_or_else(|| self.make())
    }

    #[inline]
    fn made(&self) -> Option<&'static T> {
        // SAFETY: null, or a box that was leaked.
        let made = unsafe { self.made.load(Acquire).as_ref() }?;
        (made.generation == generation()).then_some(&made.value)
    }

    #[cold]
    #[inline(never)]
    fn make(&self) -> &'static T {
        with_entries(|_| {
            self.made().unwrap_or_else(|| {
                let made = Made { generation: generation(), value: T::default() };
                let made: &'static Made<T> = Box::leak(Box::new(made));
                self.made.store(ptr::from_ref(made).cast_mut(), Release);
                &made.value
            })
        })
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PerProcess")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::{pause_ns, tick_ns};

    /// Benches ask between two readings of the clock.
    #[test]
    fn the_length_of_a_tick_is_told_without_the_lock() {
        let length_ns = tick_ns();
        assert_eq!(with_entries(|_| tick_ns()).to_bits(), length_ns.to_bits());
    }

    /// Waits ask for the cost of a pause between two polls.
    #[test]
    fn what_a_process_has_already_is_told_without_the_lock() {
        static VALUE: PerProcess<Vec<u8>> = PerProcess::new();
        let value = VALUE.get();
        assert!(ptr::eq(with_entries(|_| VALUE.get()), value));
        let cost_ns = pause_ns();
        assert_eq!(with_entries(|_| pause_ns()).to_bits(), cost_ns.to_bits());
    }
}
