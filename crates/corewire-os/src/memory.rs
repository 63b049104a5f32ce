//! Segments: memory that one process writes and others only read.
//!
//! A segment is a memfd. Its owner maps it writable and then seals it: with `FUTURE_WRITE`, so that
//! the kernel gives no other process a writable map; with `SHRINK` and `GROW`, so that no process can
//! remove memory that another one reads; and with `SEAL`, so that the seals stay. A segment has no
//! name in `/dev/shm` and disappears with its last user. Its memory is allocated at creation
//! (`fallocate`), so a lack of memory is an error at creation and not a signal later. (Beyond the
//! memory limit of a cgroup the kernel kills a process of the cgroup, also at creation.)

use std::ffi::c_void;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use corewire_layout::{PAGE_BYTES, round_up};
use corewire_ring::region::Region;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, SealFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::available::check_available;
use crate::fork::{self, Descriptor, Pages};
use crate::process::check_file_size;
use crate::{Doing, OsError};

/// Options for a segment's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryOptions {
    /// Ask for huge pages, where the machine provides them for shared memory.
    pub huge_pages: bool,
    /// Touch every page at creation, so that no message pays for a page fault.
    pub prefault: bool,
    /// Lock it in memory, so that it is never swapped out.
    pub lock: bool,
    /// Allocate it on this NUMA node.
    pub numa_node: Option<u32>,
}

/// Why a segment that a peer sent is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// A process could still resize it or write to it.
    #[error("the peer's segment is sealed with {found:#x}, but {needed:#x} is needed")]
    Seals {
        /// The seals needed.
        needed: u32,
        /// The seals found.
        found: u32,
    },
    /// It has the wrong size.
    #[error("the peer's segment has {found} bytes, but {needed} are due")]
    Size {
        /// The expected size in bytes, or the minimum.
        needed: u64,
        /// The size in bytes that was found.
        found: u64,
    },
    /// A system call failed. A descriptor that is not a memfd causes this error, too.
    #[error(transparent)]
    Os(#[from] OsError),
}

const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE);

/// Bytes from which on it takes the kernel more than a fraction of a millisecond to free a segment.
const CLOSED_EARLY_FROM: u64 = 1 << 20;

/// A segment's descriptor and its size.
#[derive(Debug)]
pub struct Segment {
    descriptor: Descriptor,
    bytes: u64,
}

impl Segment {
    /// Creates a zeroed segment of `bytes` bytes, mapped writable in this process and sealed for all
    /// others.
    ///
    /// # Errors
    /// [`OsError`] that names what was requested: no memory, no descriptor, the limit on file sizes,
    /// the limit on locked memory, a NUMA node that does not exist.
    pub fn create(bytes: u64, options: MemoryOptions) -> Result<(Self, Region), OsError> {
        let descriptor = new_memfd(bytes)?;
        retry_on_intr(|| rustix::fs::ftruncate(&descriptor, bytes))
            .doing(format!("size a segment of {bytes} bytes"))?;
        let map = Map::shared(&descriptor, to_usize(bytes)?, true)?;
        Self::fill(descriptor, bytes, map, options, SEALS)
    }

    /// Creates the memory of a window: zeroed, of at least `bytes` bytes, mapped writable in this process and not at all in
    /// its forked children. No process can resize it. If `others_write`, every process that gets this descriptor can
    /// write; otherwise the kernel gives no other process a writable map.
    ///
    /// Its mode is 0400. So a process of this user that got a [read-only descriptor](Self::reopen_read_only) cannot open
    /// it again for writing, unless it changes the mode first; one of another user cannot do that.
    ///
    /// # Errors
    /// As for [`Segment::create`]; and if the machine, or this process's cgroup, does not have so much memory.
    pub fn create_window(
        bytes: u64,
        others_write: bool,
        options: MemoryOptions,
    ) -> Result<(Self, Region), OsError> {
        let pages = round_up(bytes.max(1), PAGE_BYTES as u64).ok_or_else(|| {
            OsError::new(format!("make a window of {bytes} bytes"), Errno::OVERFLOW)
        })?;
        check_available(pages, "make a window")?;
        let descriptor = new_memfd(pages)?;
        retry_on_intr(|| rustix::fs::ftruncate(&descriptor, pages))
            .doing(format!("size a window of {bytes} bytes"))?;
        rustix::fs::fchmod(&descriptor, Mode::RUSR).doing("set the mode of a window")?;
        let map = Map::hole(&descriptor, to_usize(pages)?, true)?;
        let seals = if others_write { SEALS.difference(SealFlags::FUTURE_WRITE) } else { SEALS };
        Self::fill(descriptor, pages, map, options, seals)
    }

    /// Allocates the memory of a new segment as it is asked for, and seals it.
    fn fill(
        descriptor: Descriptor,
        bytes: u64,
        map: Map,
        options: MemoryOptions,
        seals: SealFlags,
    ) -> Result<(Self, Region), OsError> {
        if let Some(node) = options.numa_node {
            map.bind_to_node(node)?;
        }
        if options.huge_pages {
            map.advise(Advice::LinuxHugepage, "ask for huge pages for")?;
            map.advise(Advice::LinuxPopulateWrite, "fill")?;
        }
        allocate(&descriptor, 0, bytes)?;
        rustix::fs::fcntl_add_seals(&descriptor, seals).doing("seal a segment")?;
        if options.prefault {
            map.advise(Advice::LinuxPopulateWrite, "prefault")?;
        }
        if options.lock {
            map.lock()?;
        }
        map.advise(Advice::LinuxDontFork, "keep from children")?;
        let region = map.into_region();
        Ok((Self { descriptor, bytes }, region))
    }

    /// As [`Segment::create`], but allocates only the first `first_bytes` bytes. The rest must be
    /// allocated by [`Segment::allocate`] before it is written.
    ///
    /// # Errors
    /// As for [`Segment::create`].
    pub fn create_in_parts(bytes: u64, first_bytes: u64) -> Result<(Self, Region), OsError> {
        let descriptor = new_memfd(bytes)?;
        retry_on_intr(|| rustix::fs::ftruncate(&descriptor, bytes))
            .doing(format!("size a segment of {bytes} bytes"))?;
        let map = Map::shared(&descriptor, to_usize(bytes)?, true)?;
        allocate(&descriptor, 0, first_bytes)?;
        rustix::fs::fcntl_add_seals(&descriptor, SEALS).doing("seal a segment")?;
        map.advise(Advice::LinuxDontFork, "keep from children")?;
        let region = map.into_region();
        Ok((Self { descriptor, bytes }, region))
    }

    /// Creates a small segment that every process that gets its descriptor may write: only for hints.
    ///
    /// # Errors
    /// [`OsError`], as for [`Segment::create`].
    pub fn create_writable_by_all(bytes: u64) -> Result<(Self, Region), OsError> {
        let descriptor = new_memfd(bytes)?;
        allocate(&descriptor, 0, bytes)?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW;
        rustix::fs::fcntl_add_seals(&descriptor, seals).doing("seal a segment")?;
        let region = Map::shared(&descriptor, to_usize(bytes)?, true)?.into_region();
        Ok((Self { descriptor, bytes }, region))
    }

    /// Creates a segment of `bytes` bytes that several processes write. No process can resize it, and
    /// every process that has its descriptor can write. Its memory must be allocated by
    /// [`Segment::allocate`].
    ///
    /// # Errors
    /// [`OsError`], as for [`Segment::create`].
    pub fn create_shared(bytes: u64) -> Result<(Self, Region), OsError> {
        let descriptor = new_memfd(bytes)?;
        retry_on_intr(|| rustix::fs::ftruncate(&descriptor, bytes))
            .doing(format!("size a segment of {bytes} bytes"))?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW;
        rustix::fs::fcntl_add_seals(&descriptor, seals).doing("seal a segment")?;
        let map = Map::shared(&descriptor, to_usize(bytes)?, true)?;
        map.advise(Advice::LinuxDontFork, "keep from children")?;
        Ok((Self { descriptor, bytes }, map.into_region()))
    }

    /// Allocates the memory of `bytes` bytes from offset `start`.
    ///
    /// # Errors
    /// [`OsError`] if there is not enough memory.
    pub fn allocate(&self, start: u64, bytes: u64) -> Result<(), OsError> {
        allocate(&self.descriptor, start, bytes)
    }

    /// Opens another descriptor of the same memory, with which it cannot be mapped for writing.
    ///
    /// # Errors
    /// [`OsError`] if no descriptor is left.
    pub fn reopen_read_only(&self) -> Result<Descriptor, OsError> {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", self.descriptor.as_fd().as_raw_fd());
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let open = || rustix::fs::open(&path, flags, Mode::empty());
        Descriptor::make(|| retry_on_intr(open)).doing("open a segment for reading")
    }

    /// Takes over a descriptor from a peer. Checks that no process can resize the segment and, unless
    /// `writable`, that only the map that its owner has can be written. `writable` is for hint
    /// segments, for endpoints' activity pages, and for a shared channel's segments.
    ///
    /// # Errors
    /// [`SegmentError`], which contains what was found.
    pub fn adopt(descriptor: impl Into<Descriptor>, writable: bool) -> Result<Self, SegmentError> {
        let descriptor = descriptor.into();
        let found = rustix::fs::fcntl_get_seals(&descriptor).doing("read a segment's seals")?;
        let needed = if writable { SEALS.difference(SealFlags::FUTURE_WRITE) } else { SEALS };
        if !found.contains(needed) {
            let (needed, found) = (needed.bits(), found.bits());
            return Err(SegmentError::Seals { needed, found });
        }
        let status = rustix::fs::fstat(&descriptor).doing("read a segment's size")?;
        let bytes = u64::try_from(status.st_size).unwrap_or(0);
        Ok(Self { descriptor, bytes })
    }

    /// Opens a segment that all may write, by a path to its descriptor, such as `/proc/1234/fd/5`:
    /// for benchmarks, whose processes trust each other.
    ///
    /// # Errors
    /// [`SegmentError`], which contains what was found.
    pub fn open_writable(path: &str) -> Result<Self, SegmentError> {
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
        let open = || rustix::fs::open(path, flags, Mode::empty());
        let make = || retry_on_intr(open);
        let descriptor = Descriptor::make(make).doing(format!("open {path}"))?;
        Self::adopt(descriptor, true)
    }

    /// Its size in bytes, as the kernel reports it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Maps the whole segment for reading.
    ///
    /// # Errors
    /// [`SegmentError::Size`] if it is shorter than `needed_min` bytes; [`SegmentError::Os`].
    pub fn map(&self, needed_min: u64) -> Result<Region, SegmentError> {
        if self.bytes < needed_min {
            return Err(SegmentError::Size { needed: needed_min, found: self.bytes });
        }
        let map = Map::shared(&self.descriptor, to_usize(self.bytes)?, false)?;
        Ok(map.into_region())
    }

    /// Maps a segment that all may write, for writing.
    ///
    /// # Errors
    /// [`SegmentError::Size`] if its size is not `needed` bytes; [`SegmentError::Os`].
    pub fn map_writable(&self, needed: u64) -> Result<Region, SegmentError> {
        if self.bytes != needed {
            return Err(SegmentError::Size { needed, found: self.bytes });
        }
        let map = Map::shared(&self.descriptor, to_usize(self.bytes)?, true)?;
        Ok(map.into_region())
    }
}

impl Segment {
    /// Maps a window's memory, of at least `needed_min` bytes. It is not mapped in forked children.
    ///
    /// # Errors
    /// [`SegmentError::Size`] if it is shorter; [`SegmentError::Os`], such as `EACCES` if the descriptor gives no right to
    /// write.
    pub fn map_window(&self, needed_min: u64, is_writable: bool) -> Result<Region, SegmentError> {
        if self.bytes < needed_min {
            return Err(SegmentError::Size { needed: needed_min, found: self.bytes });
        }
        let map = Map::hole(&self.descriptor, to_usize(self.bytes)?, is_writable)?;
        Ok(map.into_region())
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn new_memfd(bytes: u64) -> Result<Descriptor, OsError> {
    check_file_size(bytes, "a segment")?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let make = |flags| Descriptor::make(|| rustix::fs::memfd_create("corewire", flags));
    // Before Linux 6.3 there is no NOEXEC_SEAL, and a filter may refuse flags that it does not know.
    make(flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| make(flags)).doing("make a segment")
}

/// Writes a text into a memfd, which another process reads with [`read_text`].
///
/// # Errors
/// [`OsError`] if no memory or no descriptor is left.
pub fn text_for_peer(text: &str) -> Result<Descriptor, OsError> {
    let what = "write a text for a peer";
    let descriptor = new_memfd(text.len() as u64)?;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let written = retry_on_intr(|| rustix::io::write(&descriptor, rest)).doing(what)?;
        rest = &rest[written..];
    }
    Ok(descriptor)
}

/// Reads a text that a peer sent, at most its first `bytes_max` bytes. `None` if it is not UTF-8.
///
/// # Errors
/// [`OsError`] if the descriptor is not a memfd, or cannot be read.
pub fn read_text(descriptor: &Descriptor, bytes_max: usize) -> Result<Option<String>, OsError> {
    let what = "read a peer's text";
    // Only memory files have seals. A read of anything else could block.
    rustix::fs::fcntl_get_seals(descriptor).doing(what)?;
    let mut text = vec![0; bytes_max];
    let mut length = 0;
    while length < bytes_max {
        let rest = &mut text[length..];
        match rustix::io::pread(descriptor, rest, length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(OsError::new(what, errno)),
        }
    }
    text.truncate(length);
    Ok(String::from_utf8(text).ok())
}

/// Allocates memory of a segment. It does so in parts, because a signal undoes the work of a call.
fn allocate(descriptor: impl AsFd, start: u64, bytes: u64) -> Result<(), OsError> {
    const PART: u64 = 16 << 20;
    let (mut start, end) = (start, start.saturating_add(bytes));
    while start < end {
        let part = PART.min(end - start);
        let flags = FallocateFlags::empty();
        retry_on_intr(|| rustix::fs::fallocate(&descriptor, flags, start, part))
            .doing(format!("allocate {bytes} bytes of shared memory"))?;
        start += part;
    }
    Ok(())
}

fn to_usize(bytes: u64) -> Result<usize, OsError> {
    usize::try_from(bytes).map_err(|_| OsError::new("map a segment", Errno::OVERFLOW))
}

impl Drop for Segment {
    fn drop(&mut self) {
        // It may be the last reference to the memory, which takes the kernel long to free.
        if self.bytes >= CLOSED_EARLY_FROM {
            self.descriptor.close_early();
        }
    }
}

/// Maps the first `bytes` bytes of a segment.
fn map(descriptor: impl AsFd, bytes: usize, writable: bool) -> Result<*mut c_void, Errno> {
    let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    // SAFETY: a new mapping, at an address that the kernel chooses.
    unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, descriptor, 0) }
}

/// A mapping, unmapped when dropped.
struct Map {
    base: NonNull<u8>,
    bytes: usize,
    pages: Pages,
}

// SAFETY: an address and a length; code that uses the memory is responsible for its accesses.
unsafe impl Send for Map {}
// SAFETY: as for Send.
unsafe impl Sync for Map {}

impl Map {
    fn shared(descriptor: impl AsFd, bytes: usize, writable: bool) -> Result<Self, OsError> {
        let at = fork::map_pages(bytes, || map(descriptor, bytes, writable));
        Self::new(at.doing(format!("map a segment of {bytes} bytes"))?, bytes)
    }

    /// Memory that a forked child does not have.
    fn hole(descriptor: impl AsFd, bytes: usize, writable: bool) -> Result<Self, OsError> {
        let at = fork::map_hole(bytes, || map(descriptor, bytes, writable));
        Self::new(at.doing(format!("map a window of {bytes} bytes"))?, bytes)
    }

    fn zeroes(bytes: usize) -> Result<Self, OsError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let at = fork::map_pages(bytes, || {
            // SAFETY: a new mapping, at an address that the kernel chooses.
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ, flags) }
        });
        Self::new(at.doing(format!("reserve {bytes} bytes of addresses"))?, bytes)
    }

    fn new((at, pages): (*mut c_void, Pages), bytes: usize) -> Result<Self, OsError> {
        let base =
            NonNull::new(at.cast::<u8>()).ok_or(OsError::new("map a segment", Errno::INVAL))?;
        Ok(Self { base, bytes, pages })
    }

    fn advise(&self, advice: Advice, what: &str) -> Result<(), OsError> {
        // SAFETY: the range is this mapping, and none of the advice used changes its contents.
        let done = unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.bytes, advice) };
        done.doing(format!("{what} a segment of {} bytes", self.bytes))
    }

    fn lock(&self) -> Result<(), OsError> {
        // SAFETY: the range is this mapping.
        let done = unsafe { rustix::mm::mlock(self.base.as_ptr().cast(), self.bytes) };
        done.doing(format!("lock {} bytes in memory (see `ulimit -l`)", self.bytes))
    }

    fn bind_to_node(&self, node: u32) -> Result<(), OsError> {
        const MPOL_BIND: libc::c_int = 2;
        let what = format!("take memory from NUMA node {node}");
        let mut mask = [0u64; 16];
        let Some(word) = mask.get_mut(node as usize / 64) else {
            return Err(OsError::new(what, Errno::INVAL));
        };
        *word = 1 << (node % 64);
        // SAFETY: the range is this mapping; the mask has 1024 bits, and the argument is one more
        // because the kernel reads one bit less than it is given.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.bytes,
                MPOL_BIND,
                mask.as_ptr(),
                64 * mask.len() + 1,
                0,
            )
        };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).doing(what) }
    }

    fn into_region(self) -> Region {
        let (base, bytes) = (self.base, self.bytes);
        // SAFETY: the mapping lives in the `Arc`, which the region keeps. It is page-aligned and
        // readable, and it is writable if it was mapped for the role that writes it.
        unsafe { Region::new(base, bytes, Arc::new(self)) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // Regions over it keep it from being dropped.
        fork::unmap_pages(self.pages);
    }
}

/// The pages of a sender's receivers: one page for each row, at an address that never changes. A page
/// contains zeroes, or is the segment of the receiver that has the row. The data thread may read any
/// row at any time, whether a receiver has it or not.
pub struct RowTable {
    region: Region,
    rows: u32,
}

impl RowTable {
    /// Creates a table of `rows` rows, all zero.
    ///
    /// # Errors
    /// [`OsError`] if the addresses cannot be reserved.
    pub fn new(rows: u32) -> Result<Self, OsError> {
        let region = Map::zeroes(rows as usize * PAGE_BYTES)?.into_region();
        Ok(Self { region, rows })
    }

    /// The table's memory.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Maps a receiver's segment, which has one page, at `row`.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses; the row then contains zeroes, or what it contained before.
    pub fn place(&self, row: u32, segment: &Segment) -> Result<(), OsError> {
        let at = self.page(row)?;
        // Of a shorter one the page could not be read; of one with larger pages, more than this row would be mapped.
        if segment.bytes() != PAGE_BYTES as u64 {
            let what = format!("map a receiver's segment of {} bytes", segment.bytes());
            return Err(OsError::new(what, Errno::INVAL));
        }
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the page belongs to this table, and the segment has just this page; a reader finds the old or the new
        // page.
        let done = unsafe { rustix::mm::mmap(at, PAGE_BYTES, ProtFlags::READ, flags, segment, 0) };
        done.doing("map a receiver's segment").map(drop)
    }

    /// Replaces the page at `row` by zeroes.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses; the row then contains what it contained before.
    pub fn clear(&self, row: u32) -> Result<(), OsError> {
        let at = self.page(row)?;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the page belongs to this table; a reader finds the old or the new page.
        let done = unsafe { rustix::mm::mmap_anonymous(at, PAGE_BYTES, ProtFlags::READ, flags) };
        done.doing("unmap a receiver's segment").map(drop)
    }

    fn page(&self, row: u32) -> Result<*mut c_void, OsError> {
        if row >= self.rows {
            return Err(OsError::new(format!("row {row} of {}", self.rows), Errno::RANGE));
        }
        let (base, _) = self.region.address();
        Ok(base.as_ptr().wrapping_add(row as usize * PAGE_BYTES).cast())
    }
}

impl fmt::Debug for RowTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowTable").field("rows", &self.rows).finish_non_exhaustive()
    }
}
