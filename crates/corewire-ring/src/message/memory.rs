//! The memory that a program lends to an operation of an endpoint.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;

use corewire_layout::rendezvous::Stretch;

use crate::copying::{NextReader, copy, copy_anywhere};

use super::{Fragment, Landing, Room, Sink, Source, gather, put, scatter, stretch_of};

/// The memory of an operation that continues while its caller does something else. The caller lends
/// it to the endpoint, which returns it when the operation has ended.
///
/// It is *owned* (one vector), in *parts* that are sent or filled one after the other, *pooled* (a receive gets as much
/// memory as its message needs, which is not zeroed first), or *pinned*: memory that the caller keeps, and that is only
/// accessed through pointers.
#[derive(Debug)]
pub struct Memory(Kind);

#[derive(Debug)]
enum Kind {
    Owned(Vec<u8>),
    Parts(Vec<Vec<u8>>),
    /// Filled from the beginning, up to the capacity.
    Pooled(Vec<u8>),
    Pinned(Pin),
    PinnedParts(Box<[Pin]>),
}

/// Memory that the caller of [`Memory::pinned`] keeps.
#[derive(Debug, Clone, Copy)]
struct Pin {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the caller of `Memory::pinned` guarantees that any thread may access it.
unsafe impl Send for Pin {}
// SAFETY: as for Send. Through a shared reference it is only read.
unsafe impl Sync for Pin {}

impl Pin {
    /// The memory from `skip` on.
    fn from(self, skip: usize) -> Self {
        let skip = skip.min(self.bytes);
        // SAFETY: within the pinned memory.
        Self { at: unsafe { self.at.add(skip) }, bytes: self.bytes - skip }
    }

    fn stretch(&self) -> Stretch {
        Stretch { address: self.at.as_ptr().expose_provenance() as u64, bytes: self.bytes as u64 }
    }

    #[inline]
    fn put(self, at: usize, source: &[u8]) -> usize {
        let room = self.from(at);
        let count = room.bytes.min(source.len());
        // SAFETY: the caller of `Memory::pinned` guarantees that it is writable; both have `count` bytes.
        unsafe { copy_anywhere(NextReader::Own, source.as_ptr(), room.at.as_ptr(), count) };
        count
    }

    /// Copies up to 48 bytes, for which there is room, without a call.
    #[inline(always)]
    fn put_short(self, source: &[u8]) {
        let (to, bytes) = (self.at.as_ptr(), source.len());
        match bytes {
            0 => {}
            // The pieces overlap where they must.
            1..=7 => {
                let mut done = 0;
                while done < bytes {
                    self.put_piece::<1>(source, done);
                    done += 1;
                }
            }
            8..=15 => self.put_pieces::<8>(source),
            16..=32 => self.put_pieces::<16>(source),
            33..=48 => {
                self.put_piece::<16>(source, 0);
                self.put_piece::<16>(source, 16);
                self.put_piece::<16>(source, bytes - 16);
            }
            // SAFETY: the caller of `Memory::pinned` guarantees that it is writable; both have `bytes` bytes.
            _ => unsafe { source.as_ptr().copy_to(to, bytes) },
        }
    }

    /// Copies the first and the last `N` bytes, of at most twice as many.
    #[inline(always)]
    fn put_pieces<const N: usize>(self, source: &[u8]) {
        self.put_piece::<N>(source, 0);
        self.put_piece::<N>(source, source.len() - N);
    }

    /// Copies `N` bytes at `at`. There is room for all of `source`.
    #[inline(always)]
    fn put_piece<const N: usize>(self, source: &[u8], at: usize) {
        if let Some(piece) = source[at..].first_chunk::<N>() {
            // SAFETY: within the pinned memory, since the piece lies within `source`.
            let to = unsafe { self.at.add(at) };
            // SAFETY: the caller of `Memory::pinned` guarantees that it is writable; it need not be aligned.
            unsafe { to.cast::<[u8; N]>().write_unaligned(*piece) };
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self(Kind::Owned(Vec::new()))
    }
}

impl Memory {
    /// Memory for a receive: as much as its message needs, from the endpoint's pool.
    #[must_use]
    pub const fn pooled() -> Self {
        Self(Kind::Pooled(Vec::new()))
    }

    /// Memory that the caller keeps: `bytes` bytes at `at`. It is only accessed through pointers, never
    /// seen as a slice.
    ///
    /// # Safety
    /// Until this value, and each part that it was [divided](Self::split_front) into, has been returned by the endpoint or
    /// dropped together with the endpoint, the memory is readable for a send, and writable for a receive, from any thread. What another thread
    /// writes there meanwhile makes the message a mixture, nothing worse.
    #[must_use]
    pub const unsafe fn pinned(at: NonNull<u8>, bytes: usize) -> Self {
        Self(Kind::Pinned(Pin { at, bytes }))
    }

    /// The same for several parts, each an address and a length, sent or filled one after the other.
    ///
    /// # Safety
    /// As for [`pinned`](Self::pinned), for each part.
    #[must_use]
    pub unsafe fn pinned_parts(parts: &[(NonNull<u8>, usize)]) -> Self {
        let pins = parts.iter().map(|&(at, bytes)| Pin { at, bytes });
        Self(Kind::PinnedParts(pins.collect()))
    }

    /// Its length in bytes. For pooled memory: the length of the message in it.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Owned(bytes) | Kind::Pooled(bytes) => bytes.len(),
            Kind::Parts(parts) => parts.iter().map(Vec::len).sum(),
            Kind::Pinned(pin) => pin.bytes,
            Kind::PinnedParts(pins) => pins.iter().map(|pin| pin.bytes).sum(),
        }
    }

    /// Whether its length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a receive gets its memory from the endpoint's pool.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        matches!(self.0, Kind::Pooled(_))
    }

    /// Whether the caller keeps it, and only lends it.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        matches!(self.0, Kind::Pinned(_) | Kind::PinnedParts(_))
    }

    /// Whether the caller keeps it, in one part.
    #[inline(always)]
    #[must_use]
    pub const fn is_pinned_whole(&self) -> bool {
        matches!(self.0, Kind::Pinned(_))
    }

    /// Memory that is filled up to the capacity of `bytes`, which is empty. For engines.
    #[must_use]
    pub fn filling(bytes: Vec<u8>) -> Self {
        Self(Kind::Pooled(bytes))
    }

    #[inline(never)]
    fn put_in_parts(&mut self, at: usize, source: &[u8]) -> usize {
        match &mut self.0 {
            Kind::Parts(parts) => scatter(parts.iter_mut().map(Vec::as_mut_slice), at, source),
            Kind::PinnedParts(pins) => {
                let (mut skip, mut done) = (at, 0);
                for pin in pins {
                    if skip >= pin.bytes {
                        skip -= pin.bytes;
                        continue;
                    }
                    done += pin.put(skip, &source[done..]);
                    skip = 0;
                }
                done
            }
            _ => 0,
        }
    }

    #[cold]
    fn put_elsewhere(&mut self, source: &[u8]) {
        self.put(0, source);
    }

    /// Its first `bytes` bytes, or all of it, which it then has no more. Pinned memory is divided, and each part is lent
    /// as long as the whole was; of other memory the first part is made anew.
    #[must_use]
    pub fn split_front(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.room());
        match &mut self.0 {
            Kind::Pinned(pin) => {
                let front = Pin { at: pin.at, bytes };
                *pin = pin.from(bytes);
                Self(Kind::Pinned(front))
            }
            Kind::PinnedParts(pins) => {
                let (mut front, mut left) = (Vec::new(), bytes);
                for pin in &mut **pins {
                    let taken = left.min(pin.bytes);
                    front.push(Pin { at: pin.at, bytes: taken });
                    *pin = pin.from(taken);
                    left -= taken;
                }
                Self(Kind::PinnedParts(front.into()))
            }
            Kind::Owned(rest) => {
                rest.truncate(rest.len() - bytes);
                alloc::vec![0; bytes].into()
            }
            Kind::Pooled(rest) => {
                rest.shrink_to(rest.capacity() - bytes);
                alloc::vec![0; bytes].into()
            }
            Kind::Parts(parts) => {
                let mut left = bytes;
                for part in parts {
                    let taken = left.min(part.len());
                    part.truncate(part.len() - taken);
                    left -= taken;
                }
                alloc::vec![0; bytes].into()
            }
        }
    }

    /// Its parts. None for pinned memory, which the caller has.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let parts = match &self.0 {
            Kind::Owned(bytes) | Kind::Pooled(bytes) => core::slice::from_ref(bytes),
            Kind::Parts(parts) => parts,
            Kind::Pinned(_) | Kind::PinnedParts(_) => &[],
        };
        parts.iter().map(Vec::as_slice)
    }

    /// Its bytes in one vector, copied if there are several parts; empty for pinned memory.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Kind::Owned(bytes) | Kind::Pooled(bytes) => bytes,
            Kind::Parts(parts) => parts.concat(),
            Kind::Pinned(_) | Kind::PinnedParts(_) => Vec::new(),
        }
    }

    /// Its parts, as they were given; none for pinned memory.
    #[must_use]
    pub fn into_parts(self) -> Vec<Vec<u8>> {
        match self.0 {
            Kind::Owned(bytes) | Kind::Pooled(bytes) => alloc::vec![bytes],
            Kind::Parts(parts) => parts,
            Kind::Pinned(_) | Kind::PinnedParts(_) => Vec::new(),
        }
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Kind::Owned(bytes))
    }
}

impl From<Vec<Vec<u8>>> for Memory {
    fn from(parts: Vec<Vec<u8>>) -> Self {
        Self(Kind::Parts(parts))
    }
}

impl From<&[u8]> for Memory {
    fn from(bytes: &[u8]) -> Self {
        Self(Kind::Owned(bytes.to_vec()))
    }
}

impl Source for Memory {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn fill(&self, offset: u64, target: &mut Fragment<'_>) {
        match &self.0 {
            Kind::Owned(bytes) | Kind::Pooled(bytes) => bytes.as_slice().fill(offset, target),
            Kind::Parts(parts) => gather(parts.iter().map(Vec::as_slice), offset, target),
            Kind::Pinned(pin) => fill_pinned(core::slice::from_ref(pin), offset, target),
            Kind::PinnedParts(pins) => fill_pinned(pins, offset, target),
        }
    }

    fn stretches(&self, each: &mut dyn FnMut(Stretch)) {
        match &self.0 {
            Kind::Owned(bytes) | Kind::Pooled(bytes) => each(stretch_of(bytes)),
            Kind::Parts(parts) => parts.iter().for_each(|part| each(stretch_of(part))),
            Kind::Pinned(pin) => each(pin.stretch()),
            Kind::PinnedParts(pins) => pins.iter().for_each(|pin| each(pin.stretch())),
        }
    }
}

impl Sink for Memory {
    fn room(&self) -> usize {
        match &self.0 {
            Kind::Pooled(bytes) => bytes.capacity(),
            _ => self.len(),
        }
    }

    #[inline]
    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        match &mut self.0 {
            Kind::Pinned(pin) => pin.put(at, source),
            Kind::Owned(bytes) => put(bytes, at, source),
            Kind::Pooled(bytes) => append(bytes, at, source),
            Kind::Parts(_) | Kind::PinnedParts(_) => self.put_in_parts(at, source),
        }
    }

    #[inline(always)]
    fn put_short(&mut self, source: &[u8]) {
        match &mut self.0 {
            Kind::Pinned(pin) if source.len() <= pin.bytes => pin.put_short(source),
            _ => self.put_elsewhere(source),
        }
    }

    fn landing(&mut self) -> Landing<'_> {
        match &mut self.0 {
            Kind::Owned(bytes) => Landing::of_slice(bytes),
            Kind::Pooled(bytes) => Landing::of_vector(bytes),
            Kind::Parts(parts) => Landing::of_slices(parts.iter_mut().map(Vec::as_mut_slice)),
            // SAFETY: the caller of `Memory::pinned` guarantees that it is writable as long as this value lives.
            Kind::Pinned(pin) => unsafe { Landing::of_pins(&[(pin.at, pin.bytes)]) },
            Kind::PinnedParts(pins) => {
                let pins: Vec<_> = pins.iter().map(|pin| (pin.at, pin.bytes)).collect();
                // SAFETY: as above.
                unsafe { Landing::of_pins(&pins) }
            }
        }
    }
}

/// Memory that is filled from the beginning up to its capacity, and never grows.
impl Sink for Vec<u8> {
    fn room(&self) -> usize {
        self.capacity()
    }

    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        append(self, at, source)
    }

    fn landing(&mut self) -> Landing<'_> {
        Landing::of_vector(self)
    }
}

/// Appends as much of `source` as fits at `at`, without growing. Replaces what was written beyond `at` before.
fn append(bytes: &mut Vec<u8>, at: usize, source: &[u8]) -> usize {
    bytes.truncate(at);
    let count = source.len().min(bytes.capacity() - bytes.len());
    let room = bytes.spare_capacity_mut();
    // SAFETY: `count` bytes of room, and a live reference that is no part of it.
    unsafe { copy(NextReader::Own, source.as_ptr(), room.as_mut_ptr().cast(), count) };
    // SAFETY: within the capacity, and written.
    unsafe { bytes.set_len(bytes.len() + count) };
    count
}

fn fill_pinned(pins: &[Pin], offset: u64, target: &mut Fragment<'_>) {
    let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut done = 0;
    for pin in pins {
        let from = skip.min(pin.bytes);
        skip -= from;
        done += target.put_pinned(done, pin.from(from));
    }
}

impl Fragment<'_> {
    /// As [`Fragment::put`], for memory that cannot be a slice.
    fn put_pinned(&mut self, at: usize, pin: Pin) -> usize {
        match &mut self.0 {
            // SAFETY: it was claimed, and is not published yet; the caller of `Memory::pinned` guarantees that the
            // source is readable.
            Room::Shared(payload) => unsafe { payload.put_raw(at, pin.at, pin.bytes) },
            Room::Private(bytes) => {
                let at = at.min(bytes.len());
                let count = pin.bytes.min(bytes.len() - at);
                let target = bytes[at..].as_mut_ptr();
                // SAFETY: both have `count` bytes, as the caller of `Memory::pinned` guarantees for the source; `bytes`
                // is a unique reference.
                unsafe { copy_anywhere(NextReader::Own, pin.at.as_ptr(), target, count) };
                count
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn text(source: &impl Source, offset: u64, bytes: usize) -> Vec<u8> {
        let mut target = vec![b'.'; bytes];
        source.fill(offset, &mut Fragment::private(&mut target));
        target
    }

    #[test]
    fn parts_are_filled_one_after_the_other() {
        let mut memory = Memory::from(vec![vec![0; 3], vec![], vec![0; 4]]);
        assert_eq!(memory.put(1, &[1, 2, 3, 4]), 4);
        assert_eq!(memory.put(6, &[9, 9]), 1, "one byte fits");
        assert_eq!(memory.into_parts(), [vec![0, 1, 2], vec![], vec![3, 4, 0, 9]]);
    }

    #[test]
    fn pinned_memory_is_sent_and_filled() {
        let (mut a, mut b) = (*b"abcd", *b"efg");
        let parts = [(NonNull::from(&mut a).cast(), 4), (NonNull::from(&mut b).cast(), 3)];
        // SAFETY: both arrays outlive the memory, and are not used meanwhile.
        let mut memory = unsafe { Memory::pinned_parts(&parts) };
        assert_eq!((memory.len(), memory.room()), (7, 7));
        assert_eq!(text(&memory, 2, 4), b"cdef");
        assert_eq!(memory.put(3, b"123456"), 4);
        assert_eq!(text(&memory, 0, 8), b"abc1234.");
        assert!(memory.into_vec().is_empty());
        assert_eq!((a, b), (*b"abc1", *b"234"));
        // SAFETY: as above.
        let one = unsafe { Memory::pinned(NonNull::from(&mut a).cast(), 4) };
        assert_eq!(text(&one, 1, 3), b"bc1");
    }

    #[test]
    fn memory_is_divided() {
        let mut bytes = *b"abcdefg";
        // SAFETY: the array outlives the memory, and is not used meanwhile.
        let mut rest = unsafe { Memory::pinned(NonNull::from(&mut bytes).cast(), 7) };
        let mut front = rest.split_front(3);
        assert_eq!((front.put(0, b"1234"), rest.put(0, b"xyz")), (3, 3));
        assert_eq!(rest.split_front(9).len(), 4);
        assert_eq!((rest.len(), bytes), (0, *b"123xyzg"));
        let mut rest = Memory::from(vec![vec![0; 2], vec![0; 3]]);
        assert_eq!((rest.split_front(4).len(), rest.len()), (4, 1));
    }

    #[test]
    fn pooled_memory_grows_up_to_its_capacity() {
        let mut memory = Memory::filling(Vec::with_capacity(8));
        let room = memory.room();
        assert_eq!(memory.put(0, b"abc"), 3);
        assert_eq!(memory.put(3, &vec![b'x'; room]), room - 3);
        assert_eq!(memory.len(), room);
        assert_eq!(&memory.into_vec()[..4], b"abcx");
    }

    #[test]
    fn several_slices_are_one_message() {
        let parts: [&[u8]; 3] = [b"one", b"", b"two"];
        assert_eq!((&parts[..]).bytes(), 6);
        assert_eq!(text(&&parts[..], 2, 3), b"etw");
        let (mut first, mut second) = ([0; 2], [0; 2]);
        let mut targets: [&mut [u8]; 2] = [&mut first, &mut second];
        assert_eq!(targets.put(1, b"xyz!"), 3);
        assert_eq!((first, second), ([0, b'x'], *b"yz"));
    }
}
