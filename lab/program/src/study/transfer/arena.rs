//! The buffers of a process. As in the paper, each transfer uses the next ones, which begin a cache line after the last
//! ones ended, and a buffer is used again only after eight times as many bytes as the second-level cache has (III-A).

use std::ptr::NonNull;
use std::slice;

use corewire_ring::copying::{self, NextReader, Routine};
use corewire_ring::message::Memory;
use corewire_ring::region::Region;

use crate::study::failure::Failure;
use crate::study::touch::Mark;

/// Bytes of a cache line, on all processors that corewire runs on.
pub(super) const LINE_BYTES: usize = 64;
/// A buffer is used again after so many times the bytes of the second-level cache.
pub(super) const CACHES: u64 = 8;
const PAGE_BYTES: usize = 4096;

/// A buffer in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// Memory whose buffers are used one after the other.
pub(super) struct Arena {
    memory: Region,
    next: usize,
}

/// Bytes of an arena for messages of up to `longest` bytes, with a second-level cache of `cache_bytes`.
pub(super) fn arena_bytes(cache_bytes: u64, longest: usize) -> usize {
    let caches = usize::try_from(CACHES * cache_bytes).unwrap_or(usize::MAX);
    (caches + longest + LINE_BYTES).next_multiple_of(PAGE_BYTES)
}

impl Arena {
    /// An arena in this memory. All its pages are touched.
    pub(super) fn new(memory: Region) -> Self {
        let mut arena = Self { memory, next: 0 };
        let bytes = arena.memory.bytes();
        for at in (0..bytes).step_by(PAGE_BYTES) {
            arena.slice_mut(Place { at, bytes: LINE_BYTES }).fill((at >> 12).to_le_bytes()[0] | 1);
        }
        arena
    }

    /// An arena that only this process uses.
    pub(super) fn private(bytes: usize) -> Result<Self, Failure> {
        let memory = Region::private(bytes);
        Ok(Self::new(memory.ok_or_else(|| Failure::other("there is no memory for buffers"))?))
    }

    /// The next buffer.
    pub(super) fn next(&mut self, bytes: usize) -> Place {
        if self.next + bytes > self.memory.bytes() {
            self.next = 0;
        }
        let at = self.next;
        self.next = (at + bytes).next_multiple_of(LINE_BYTES) + LINE_BYTES;
        Place { at, bytes }
    }

    /// Begins with the first buffer again.
    pub(super) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Where the next buffer begins, if it fits.
    pub(super) fn position(&self) -> usize {
        self.next
    }

    /// Goes on at this position.
    pub(super) fn seek(&mut self, position: usize) {
        self.next = position.min(self.memory.bytes()).next_multiple_of(LINE_BYTES);
    }

    /// Where a buffer lies in this process.
    pub(super) fn start(&self, place: Place) -> NonNull<u8> {
        let (base, bytes) = self.memory.address();
        assert!(place.at + place.bytes <= bytes, "a buffer outside of its arena");
        // SAFETY: inside, as was just checked.
        unsafe { base.add(place.at) }
    }

    /// Where the arena begins, and its length in bytes.
    pub(super) fn whole(&self) -> Place {
        Place { at: 0, bytes: self.memory.bytes() }
    }

    /// A buffer between two transfers.
    pub(super) fn slice(&self, place: Place) -> &[u8] {
        let start = self.start(place);
        // SAFETY: the memory lives as long as the arena. The processes of the study pass a barrier between a transfer and
        // what they do with their own buffers, so nobody writes it now.
        unsafe { slice::from_raw_parts(start.as_ptr(), place.bytes) }
    }

    /// A buffer between two transfers, to be written.
    pub(super) fn slice_mut(&mut self, place: Place) -> &mut [u8] {
        let start = self.start(place);
        // SAFETY: as above, and nobody reads it now.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), place.bytes) }
    }

    /// A buffer that a mechanism uses during a transfer.
    pub(super) fn lend(&self, place: Place) -> Memory {
        // SAFETY: the mechanism gives it back before the arena is dropped: both belong to one function, and the arena
        // was made first. Nobody has a slice of it meanwhile.
        unsafe { Memory::pinned(self.start(place), place.bytes) }
    }

    /// Copies a buffer of `source` to one of this arena, by the routine that this process plans for its own reads.
    pub(super) fn copy_from(&mut self, place: Place, source: &Self, from: Place) {
        let (from, to) = (source.start(Place { bytes: place.bytes, ..from }), self.start(place));
        // SAFETY: both have so many bytes, and lie in different arenas.
        unsafe {
            copying::copy(NextReader::Own, from.as_ptr(), to.as_ptr(), place.bytes);
        }
    }

    /// The same by a routine.
    pub(super) fn copy_by(&mut self, routine: Routine, place: Place, source: &Self, from: Place) {
        let (from, to) = (source.start(Place { bytes: place.bytes, ..from }), self.start(place));
        // SAFETY: as above.
        unsafe { routine.copy(from.as_ptr(), to.as_ptr(), place.bytes) };
    }
}

/// What a message consists of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Contents {
    /// The same byte everywhere, which costs little to write and to read.
    Marked(Mark),
    /// Other bytes at each place, for a check of every byte.
    Checked(u64),
}

impl Contents {
    /// Writes byte `from` and those that follow.
    pub(super) fn write(self, from: usize, target: &mut [u8]) {
        match self {
            Self::Marked(mark) => mark.write(target),
            Self::Checked(seed) => {
                for (at, byte) in target.iter_mut().enumerate() {
                    *byte = byte_of(seed, from + at);
                }
            }
        }
    }

    /// Reads a whole message.
    pub(super) fn read(self, message: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Marked(mark) => mark.read(message),
            Self::Checked(seed) => {
                let is_right = |(at, byte): (usize, &u8)| *byte == byte_of(seed, at);
                match message.iter().enumerate().all(is_right) {
                    true => Ok(()),
                    false => Err(Failure::other(format!(
                        "a message of {} bytes arrived damaged",
                        message.len()
                    ))),
                }
            }
        }
    }
}

/// The byte at a place: it differs from that at any other place within a page, and from page to page.
fn byte_of(seed: u64, at: usize) -> u8 {
    let mixed = (at as u64).wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_le_bytes()[7]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_follow_each_other_by_a_line_and_come_again_after_eight_caches() {
        let mut arena = Arena::private(arena_bytes(4096, 1000)).unwrap();
        let first = arena.next(1000);
        assert_eq!(first, Place { at: 0, bytes: 1000 });
        let mut moved = 0;
        loop {
            let place = arena.next(1000);
            if place == first {
                break;
            }
            assert_eq!(place.at % LINE_BYTES, 0);
            assert!(place.at >= moved + 1000, "they do not overlap");
            moved = place.at;
        }
        assert!(moved + 1088 > 8 * 4096, "{moved}");
    }

    #[test]
    fn a_damaged_message_is_found() {
        let mut message = vec![0; 5000];
        let contents = Contents::Checked(7);
        contents.write(0, &mut message[..4096]);
        contents.write(4096, &mut message[4096..]);
        assert_eq!(contents.read(&message), Ok(()));
        message.swap(10, 4200);
        assert!(contents.read(&message).is_err());
    }

    #[test]
    fn every_way_to_copy_within_arenas_copies_the_bytes() {
        let (mut one, mut other) = (Arena::private(8192).unwrap(), Arena::private(8192).unwrap());
        let (from, to) = (one.next(3000), other.next(3000));
        Contents::Checked(3).write(0, one.slice_mut(from));
        other.copy_from(to, &one, from);
        assert_eq!(Contents::Checked(3).read(other.slice(to)), Ok(()));
        let next = other.next(3000);
        other.copy_by(Routine::String, next, &one, from);
        assert_eq!(other.slice(next), one.slice(from));
    }
}
