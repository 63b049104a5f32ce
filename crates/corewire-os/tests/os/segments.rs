//! What the kernel and the checks before a mapping let a peer's memory be.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr;

use corewire_os::memory::{MemoryOptions, RowTable, Segment, SegmentError};
use rustix::fs::{FallocateFlags, MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect};

fn unsealed(bytes: u64) -> OwnedFd {
    let memory = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, bytes).unwrap();
    memory
}

// Keeps P34.
#[test]
fn memory_without_seals_is_refused() {
    let error = Segment::adopt(unsealed(4096), false).unwrap_err();
    assert!(matches!(error, SegmentError::Seals { .. }), "{error}");
    let error = Segment::adopt(unsealed(4096), true).unwrap_err();
    assert!(matches!(error, SegmentError::Seals { .. }), "{error}");
}

#[test]
fn what_is_no_memory_is_refused() {
    for path in ["/dev/null", "/"] {
        let file = std::fs::File::open(path).unwrap();
        let error = Segment::adopt(OwnedFd::from(file), false).unwrap_err();
        assert!(matches!(error, SegmentError::Os(_)), "{error}");
    }
}

// Keeps P34.
#[test]
fn memory_of_a_wrong_size_is_refused() {
    let (segment, _memory) = Segment::create(4096, MemoryOptions::default()).unwrap();
    let error = segment.map(8192).unwrap_err();
    assert_eq!(error, SegmentError::Size { needed: 8192, found: 4096 });
    let (hint, _memory) = Segment::create_writable_by_all(4096).unwrap();
    let error = hint.map_writable(8192).unwrap_err();
    assert_eq!(error, SegmentError::Size { needed: 8192, found: 4096 });
}

#[test]
fn nobody_but_its_owner_can_write_a_segment() {
    let (segment, memory) = Segment::create(8192, MemoryOptions::default()).unwrap();
    memory.copy_in(0, b"owner");
    let map = |protection| {
        // SAFETY: a new mapping, at an address that the kernel chooses.
        unsafe { mmap(ptr::null_mut(), 8192, protection, MapFlags::SHARED, &segment, 0) }
    };
    assert_eq!(map(ProtFlags::READ | ProtFlags::WRITE).unwrap_err(), Errno::PERM);
    let read_only = map(ProtFlags::READ).unwrap();
    // SAFETY: our own mapping.
    let more = unsafe { mprotect(read_only, 8192, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(more.unwrap_err(), Errno::ACCESS);
    assert_eq!(rustix::io::pwrite(&segment, b"x", 0).unwrap_err(), Errno::PERM);
    assert_eq!(ftruncate(&segment, 0).unwrap_err(), Errno::PERM);
    assert_eq!(ftruncate(&segment, 16_384).unwrap_err(), Errno::PERM);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&segment, hole, 0, 4096).unwrap_err(), Errno::PERM);
    let seals = rustix::fs::SealFlags::WRITE;
    assert_eq!(rustix::fs::fcntl_add_seals(segment.as_fd(), seals).unwrap_err(), Errno::PERM);
    let mut found = [0; 5];
    memory.copy_out(0, &mut found);
    assert_eq!(&found, b"owner");
}

#[test]
fn a_row_shows_its_receiver_or_zeroes() {
    let table = RowTable::new(2).unwrap();
    let (segment, own) = Segment::create(4096, MemoryOptions::default()).unwrap();
    let see = |at: usize| {
        let mut found = [0; 4];
        table.region().copy_out(at, &mut found);
        found
    };
    own.copy_in(100, b"here");
    table.place(1, &segment).unwrap();
    assert_eq!((see(100), see(4196)), ([0; 4], *b"here"));
    table.clear(1).unwrap();
    assert_eq!(see(4196), [0; 4]);
    assert!(table.place(2, &segment).is_err());
}
