//! Memory that all processes of a run have mapped writable, for the mechanisms that lie in it.

use corewire_os::memory::Segment;
use corewire_ring::region::Region;

use super::{Kept, Site};
use crate::board::path_of;
use crate::failure::{Doing, Failure};

/// Makes `bytes` bytes of it, all zeroes.
pub(super) fn make(site: &mut Site, bytes: usize) -> Result<(Kept, Region), Failure> {
    let bytes = bytes.next_multiple_of(4096) as u64;
    let (segment, memory) = Segment::create_writable_by_all(bytes)
        .doing(format_args!("make {bytes} bytes of shared memory"))?;
    site.ticket = vec![path_of(&segment)];
    Ok((Box::new((segment, memory.clone())), memory))
}

/// Maps them.
pub(super) fn open(site: &Site, bytes: usize) -> Result<Region, Failure> {
    let segment = Segment::open_writable(site.entry(0)?).doing("open shared memory")?;
    segment.map_writable(bytes.next_multiple_of(4096) as u64).doing("map shared memory")
}

/// Part `index` of memory that is divided into parts of `bytes` bytes, a multiple of a page.
pub(super) fn part(memory: &Region, index: u32, bytes: usize) -> Result<Region, Failure> {
    let missing = || Failure::other(format!("the shared memory has no part {index}"));
    memory.part(index as usize * bytes, bytes).ok_or_else(missing)
}

/// How many slots a ring has: as many as `most`, but no more than fit `memory_bytes`, and `least` at
/// the least.
pub(super) fn slots(slot_bytes: usize, least: usize, most: usize, memory_bytes: usize) -> usize {
    (memory_bytes / slot_bytes).clamp(least, most)
}
