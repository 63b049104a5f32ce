//! Memory that all processes of a run have mapped writable, for the mechanisms that use it.

use corewire_harness::board::path_of;
use corewire_os::memory::Segment;
use corewire_ring::region::Region;

use super::{Kept, Site};
use crate::study::failure::{Doing, Failure};

/// Allocates `bytes` bytes of shared memory, all zeroes.
pub(super) fn make(site: &mut Site, bytes: usize) -> Result<(Kept, Region), Failure> {
    let bytes = bytes.next_multiple_of(4096) as u64;
    let (segment, memory) = Segment::create_writable_by_all(bytes)
        .doing(format_args!("make {bytes} bytes of shared memory"))?;
    site.ticket = vec![path_of(&segment)];
    Ok((Box::new((segment, memory.clone())), memory))
}

/// Maps the memory that [`make`] has allocated.
pub(super) fn open(site: &Site, bytes: usize) -> Result<Region, Failure> {
    let segment = Segment::open_writable(site.entry(0)?).doing("open shared memory")?;
    segment.map_writable(bytes.next_multiple_of(4096) as u64).doing("map shared memory")
}

/// Part `index` of memory that is divided into parts of `bytes` bytes each, a multiple of a page.
pub(super) fn part(memory: &Region, index: u32, bytes: usize) -> Result<Region, Failure> {
    let missing = || Failure::other(format!("the shared memory has no part {index}"));
    memory.part(index as usize * bytes, bytes).ok_or_else(missing)
}

/// Number of slots of a ring: as many as fit into `memory_bytes`, but at least `least` and at most
/// `most`.
pub(super) fn slots(slot_bytes: usize, least: usize, most: usize, memory_bytes: usize) -> usize {
    (memory_bytes / slot_bytes).clamp(least, most)
}
