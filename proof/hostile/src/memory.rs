//! Memory of two processes, mapped with an inaccessible page before and after it.

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use corewire_layout::PAGE_BYTES;
use corewire_ring::region::Region;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// A memfd that is mapped several times.
#[derive(Debug)]
pub struct Memory {
    descriptor: OwnedFd,
    bytes: usize,
}

impl Memory {
    /// Creates `bytes` zero bytes, rounded up to whole pages.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        let descriptor = rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC).expect("memfd");
        rustix::fs::ftruncate(&descriptor, bytes as u64).expect("memory");
        Self { descriptor, bytes }
    }

    /// Maps all of it read-only, as a process that only reads it does.
    #[must_use]
    pub fn readable(&self) -> Region {
        self.region(0, self.bytes, ProtFlags::READ)
    }

    /// Maps all of it writable, as the process that writes it does.
    #[must_use]
    pub fn writable(&self) -> Region {
        self.region(0, self.bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps one page of it writable.
    #[must_use]
    pub fn writable_page(&self, index: usize) -> Region {
        self.region(index * PAGE_BYTES, PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps all of it, for a neighbour that writes any word at any time.
    #[must_use]
    pub fn words(&self) -> Words {
        let map = self.map(0, self.bytes, ProtFlags::READ | ProtFlags::WRITE);
        Words { map: Arc::new(map) }
    }

    fn region(&self, offset: usize, bytes: usize, protection: ProtFlags) -> Region {
        let map = self.map(offset, bytes, protection);
        let base = map.base;
        // SAFETY: the mapping lives in the `Arc`, and is writable if `protection` says so.
        unsafe { Region::new(base, bytes, Arc::new(map)) }
    }

    fn map(&self, offset: usize, bytes: usize, protection: ProtFlags) -> Map {
        let guarded = bytes + 2 * PAGE_BYTES;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let outer = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                guarded,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let outer = outer.expect("addresses");
        let inner = outer.cast::<u8>().wrapping_add(PAGE_BYTES).cast::<c_void>();
        // SAFETY: replaces the middle of the mapping that was just made.
        let at = unsafe {
            rustix::mm::mmap(
                inner,
                bytes,
                protection,
                MapFlags::SHARED | MapFlags::FIXED,
                &self.descriptor,
                offset as u64,
            )
        };
        at.expect("a map of a memfd");
        let base = NonNull::new(inner.cast::<u8>()).expect("not at 0");
        Map { outer, guarded, base, bytes }
    }
}

/// A mapping between its two guard pages.
#[derive(Debug)]
struct Map {
    outer: *mut c_void,
    guarded: usize,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address and a length. Accesses through it are atomic, or happen while no other thread
// reads.
unsafe impl Send for Map {}
// SAFETY: as for Send.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: unmaps this mapping and its guard pages, once.
        let _ = unsafe { rustix::mm::munmap(self.outer, self.guarded) };
    }
}

/// The neighbour's own view of its memory.
#[derive(Debug, Clone)]
pub struct Words {
    map: Arc<Map>,
}

impl Words {
    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.map.bytes
    }

    fn at64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.map.bytes);
        // SAFETY: the assertion keeps it inside the mapping.
        let at = unsafe { self.map.base.add(offset) }.cast::<u64>();
        // SAFETY: mapped, aligned, and accessed only word by word.
        unsafe { AtomicU64::from_ptr(at.as_ptr()) }
    }

    fn at32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.map.bytes);
        // SAFETY: the assertion keeps it inside the mapping.
        let at = unsafe { self.map.base.add(offset) }.cast::<u32>();
        // SAFETY: mapped, aligned, and accessed only word by word.
        unsafe { AtomicU32::from_ptr(at.as_ptr()) }
    }

    /// Loads the word of this width at `offset`.
    #[must_use]
    pub fn load(&self, offset: usize, width: Width) -> u64 {
        match width {
            Width::Four => self.at32(offset).load(Relaxed).into(),
            Width::Eight => self.at64(offset).load(Relaxed),
        }
    }

    /// Stores the word of this width at `offset`. A narrow word gets the lower half of `value`.
    pub fn store(&self, offset: usize, width: Width, value: u64) {
        match width {
            Width::Four => {
                let low = u32::try_from(value & u64::from(u32::MAX)).expect("masked");
                self.at32(offset).store(low, Relaxed);
            }
            Width::Eight => self.at64(offset).store(value, Relaxed),
        }
    }

    /// Returns a copy of all words.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u64> {
        (0..self.map.bytes / 8).map(|index| self.load(8 * index, Width::Eight)).collect()
    }

    /// Writes a copy back. Call it only while no other thread accesses the memory.
    pub fn put_back(&self, words: &[u64]) {
        assert_eq!(8 * words.len(), self.map.bytes);
        let target = self.map.base.cast::<u64>();
        // SAFETY: the copy is as long as the map, which is aligned to a page, and lies elsewhere.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr(), target.as_ptr(), words.len()) };
    }
}

/// The width of a word, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// A u32.
    Four,
    /// A u64.
    Eight,
}
