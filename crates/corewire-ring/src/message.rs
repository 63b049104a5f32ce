//! The bytes of messages on the side of the program: where they come from, and where they go.
//!
//! A transport copies a message in pieces, at most once in each direction. [`Source`] and [`Sink`]
//! name the two ends of such a copy without a slice of the whole: a message may lie in several parts,
//! or in memory that other threads write meanwhile, of which Rust allows no slice.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;

use corewire_layout::pair::{
    ACK_DELIVERY, ACK_MATCH, ACKNOWLEDGES, DROPPED, IMMEDIATE, IMMEDIATE_BYTES, IN_CELL,
    PAIR_INLINE_BYTES_MAX, SlotKind, UNTAGGED, slots_of, stamp_bits,
};

use crate::region::Payload;

/// What a message is matched by, and what it is for. Its number is the [bits](stamp_bits) of the stamp of a slot
/// that holds such a message whole, without anything more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Space {
    /// A message with a tag.
    Tagged = stamp_bits(SlotKind::Inline, 0, 0),
    /// A message without.
    Untagged = stamp_bits(SlotKind::Inline, UNTAGGED, 0),
    /// A request; it has the number of its call instead of a tag.
    Request = stamp_bits(SlotKind::Request, 0, 0),
    /// The reply to a request, with the same number.
    Reply = stamp_bits(SlotKind::Reply, 0, 0),
    /// Says that a request was dropped without a reply. Has no bytes.
    Dropped = stamp_bits(SlotKind::Reply, DROPPED, 0),
    /// Acknowledges the n-th message for which its sender wants that: n is the number. Has no bytes.
    Acknowledgement = stamp_bits(SlotKind::Reply, ACKNOWLEDGES, 0),
}

impl Space {
    /// Kind and flags of a slot that holds such a message whole, without anything more.
    #[inline(always)]
    pub(crate) const fn inline_bits(self) -> u64 {
        self as u64
    }

    /// Kind and flags of the first slot of such a message in cells.
    pub(crate) const fn cell_bits(self) -> u64 {
        match self {
            Self::Tagged => stamp_bits(SlotKind::Cell, 0, 0),
            Self::Untagged => stamp_bits(SlotKind::Cell, UNTAGGED, 0),
            _ => self as u64 | flag_bits(IN_CELL),
        }
    }
}

/// The bits of flags alone.
#[inline(always)]
const fn flag_bits(flags: u64) -> u64 {
    stamp_bits(SlotKind::Inline, flags, 0) ^ stamp_bits(SlotKind::Inline, 0, 0)
}

/// Which acknowledgement a sender requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// Nothing.
    Nothing,
    /// That the message has been received completely.
    Delivery,
    /// That a receive has asked for the message.
    Match,
}

/// What travels with a message besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// What it is matched by.
    pub space: Space,
    /// Its tag, or its number.
    pub tag: u64,
    /// 64 bits of the sender's choice; only with messages that are tagged or untagged.
    pub immediate: Option<u64>,
    /// Which acknowledgement its sender requests; only of messages that are tagged or untagged.
    pub wants: Wants,
}

impl From<u64> for Envelope {
    #[inline(always)]
    fn from(tag: u64) -> Self {
        Self::tagged(tag)
    }
}

impl Envelope {
    /// Of a message with a tag.
    #[inline(always)]
    #[must_use]
    pub const fn tagged(tag: u64) -> Self {
        Self::numbered(Space::Tagged, tag)
    }

    /// Of a message without a tag: it is matched with receives that ask for messages without tag.
    #[inline(always)]
    #[must_use]
    pub const fn untagged() -> Self {
        Self::numbered(Space::Untagged, 0)
    }

    /// The same, with an immediate: 64 bits that travel beside the message.
    #[inline(always)]
    #[must_use]
    pub const fn with_immediate(self, immediate: u64) -> Self {
        Self { immediate: Some(immediate), ..self }
    }

    /// Of a message of this space, with this tag or number. For engines.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub const fn numbered(space: Space, tag: u64) -> Self {
        Self { space, tag, immediate: None, wants: Wants::Nothing }
    }

    #[inline(always)]
    const fn flags(&self) -> u64 {
        let wants = match self.wants {
            Wants::Nothing => 0,
            Wants::Delivery => ACK_DELIVERY,
            Wants::Match => ACK_MATCH,
        };
        let immediate = if self.immediate.is_some() { IMMEDIATE } else { 0 };
        flag_bits(wants | immediate)
    }

    /// Kind and flags of its first slot, if its payload lies in slots.
    #[inline(always)]
    pub(crate) const fn inline_bits(&self) -> u64 {
        self.space.inline_bits() | self.flags()
    }

    /// The same, if it lies in cells.
    pub(crate) const fn cell_bits(&self) -> u64 {
        self.space.cell_bits() | self.flags()
    }

    /// The bytes of its immediate.
    #[inline(always)]
    pub(crate) const fn immediate_bytes(&self) -> usize {
        if self.immediate.is_some() { IMMEDIATE_BYTES } else { 0 }
    }

    /// The longest message with this envelope that lies in slots, in bytes.
    #[inline(always)]
    #[must_use]
    pub const fn inline_bytes_max(&self) -> usize {
        PAIR_INLINE_BYTES_MAX - self.immediate_bytes()
    }

    /// The number of slots that a message of `bytes` bytes takes; `None` if it goes through cells.
    pub(crate) fn slots(&self, bytes: u64) -> Option<u64> {
        let bytes =
            usize::try_from(bytes).ok().filter(|bytes| *bytes <= self.inline_bytes_max())?;
        Some(slots_of(bytes + self.immediate_bytes()))
    }
}

/// Which messages a receive asks for: those of `space` whose tag and whose source have the bits that are given,
/// where the masks have a 1. A source is a row (lower half) and a generation. Passed by value: a
/// processor that loads a copy's words wider than they were stored waits until they are in the cache, for as
/// long as all the rest of a short receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// What the messages are matched by.
    pub space: Space,
    /// Bits of the tag.
    pub tag: u64,
    /// Which bits of the tag must match.
    pub mask: u64,
    /// Bits of the source.
    pub source: u64,
    /// Which bits of the source must match: all or none.
    pub source_mask: u64,
}

impl Wanted {
    /// Any message of this space.
    #[inline(always)]
    #[must_use]
    pub const fn any(space: Space) -> Self {
        Self { space, tag: 0, mask: 0, source: 0, source_mask: 0 }
    }

    /// The bits of a source.
    #[inline(always)]
    #[must_use]
    pub const fn source_bits(row: u32, generation: u32) -> u64 {
        (generation as u64) << 32 | row as u64
    }

    /// The row of a source.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub const fn row_of(source: u64) -> u32 {
        source as u32
    }

    /// Whether it asks for a message of its space with this source and tag.
    #[inline(always)]
    #[must_use]
    pub const fn takes(&self, source: u64, tag: u64) -> bool {
        (self.tag ^ tag) & self.mask | (self.source ^ source) & self.source_mask == 0
    }
}

/// A message that has arrived, or a fragment of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// What travels with the message; for all fragments that of the first.
    pub envelope: Envelope,
    /// Bytes of the whole message.
    pub total: u64,
    /// Bytes of this fragment.
    pub bytes: usize,
    /// Whether it is the first fragment of its message.
    pub is_first: bool,
    /// Where it lies, for the transport that has it.
    pub place: Option<u64>,
}

impl Arrival {
    /// Whether it is a whole message.
    #[inline(always)]
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_first && self.bytes as u64 == self.total
    }
}

/// A message to be sent, wherever its bytes lie.
pub trait Source {
    /// Its length in bytes.
    fn bytes(&self) -> u64;

    /// Writes its bytes from `offset` on, as many as `target` takes.
    fn fill(&self, offset: u64, target: &mut Fragment<'_>);
}

/// Room for a part of a message.
pub struct Fragment<'a>(Room<'a>);

enum Room<'a> {
    /// In shared memory, which no other process reads before the part is published.
    Shared(Payload),
    Private(&'a mut [u8]),
}

impl fmt::Debug for Fragment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fragment").field("bytes", &self.bytes()).finish()
    }
}

impl<'a> Fragment<'a> {
    /// Room that an outbox has claimed, and publishes after this.
    #[inline(always)]
    pub(crate) fn shared(payload: Payload) -> Self {
        Self(Room::Shared(payload))
    }

    /// Room in memory of this process.
    #[must_use]
    pub fn private(bytes: &'a mut [u8]) -> Self {
        Self(Room::Private(bytes))
    }

    /// How many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Room::Shared(payload) => payload.bytes(),
            Room::Private(bytes) => bytes.len(),
        }
    }

    /// Writes as much of `source` as fits at `at`. Returns the number of bytes written.
    pub fn put(&mut self, at: usize, source: &[u8]) -> usize {
        match &mut self.0 {
            // SAFETY: it was claimed, and is not published yet.
            Room::Shared(payload) => unsafe { payload.put(at, source) },
            Room::Private(bytes) => put(bytes, at, source),
        }
    }

    /// The same for memory of which there is no slice.
    fn put_pinned(&mut self, at: usize, pin: Pin) -> usize {
        match &mut self.0 {
            // SAFETY: as above; whoever made the pin guarantees that it is readable.
            Room::Shared(payload) => unsafe { payload.put_raw(at, pin.at, pin.bytes) },
            Room::Private(bytes) => {
                let at = at.min(bytes.len());
                let count = pin.bytes.min(bytes.len() - at);
                let target = bytes[at..].as_mut_ptr();
                // SAFETY: both are `count` bytes long, the source as whoever made the pin guarantees;
                // `bytes` is borrowed alone.
                unsafe { pin.at.as_ptr().cast_const().copy_to(target, count) };
                count
            }
        }
    }
}

/// Where the bytes of a message go.
pub trait Sink {
    /// How many bytes fit, from the beginning on.
    fn room(&self) -> usize;

    /// Writes as much of `source` as fits at `at`, where the previous call has ended, or at the
    /// beginning. Returns the number of bytes written.
    fn put(&mut self, at: usize, source: &[u8]) -> usize;
}

impl<S: Sink + ?Sized> Sink for &mut S {
    #[inline(always)]
    fn room(&self) -> usize {
        (**self).room()
    }

    #[inline(always)]
    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        (**self).put(at, source)
    }
}

impl Sink for [u8] {
    #[inline(always)]
    fn room(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        put(self, at, source)
    }
}

impl Sink for [&mut [u8]] {
    fn room(&self) -> usize {
        self.iter().map(|part| part.len()).sum()
    }

    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        scatter(self.iter_mut().map(|part| &mut **part), at, source)
    }
}

impl Source for &[u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn fill(&self, offset: u64, target: &mut Fragment<'_>) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        target.put(0, self.get(offset..).unwrap_or_default());
    }
}

impl Source for &[&[u8]] {
    fn bytes(&self) -> u64 {
        self.iter().map(|part| part.len() as u64).sum()
    }

    fn fill(&self, offset: u64, target: &mut Fragment<'_>) {
        gather(self.iter().copied(), offset, target);
    }
}

/// The memory of an operation that goes on while its caller does something else. It is lent to the
/// endpoint and comes back when the operation has ended.
///
/// It is *owned* (one vector), in *parts* that are sent or filled one after the other, *pooled* (a
/// receive gets as much memory as its message needs, which is not zeroed first), or *pinned*: memory
/// of the caller's that is only read and written through pointers.
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

/// Memory that somebody else keeps.
#[derive(Debug, Clone, Copy)]
struct Pin {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: whoever makes a pin guarantees that any thread may access it.
unsafe impl Send for Pin {}
// SAFETY: as for Send. Through a shared reference it is only read.
unsafe impl Sync for Pin {}

impl Pin {
    /// What lies from `skip` on.
    fn from(self, skip: usize) -> Self {
        let skip = skip.min(self.bytes);
        // SAFETY: within the pinned memory.
        Self { at: unsafe { self.at.add(skip) }, bytes: self.bytes - skip }
    }

    fn put(self, at: usize, source: &[u8]) -> usize {
        let room = self.from(at);
        let count = room.bytes.min(source.len());
        // SAFETY: whoever made the pin guarantees that it is writable; `count` bytes of both.
        unsafe { source.as_ptr().copy_to(room.at.as_ptr(), count) };
        count
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self(Kind::Owned(Vec::new()))
    }
}

impl Memory {
    /// For a receive: as much memory as its message needs, from the endpoint's pool.
    #[must_use]
    pub const fn pooled() -> Self {
        Self(Kind::Pooled(Vec::new()))
    }

    /// Memory that the caller keeps: `bytes` bytes at `at`. It is only accessed through pointers, never
    /// seen as a slice.
    ///
    /// # Safety
    /// Until this value has been returned by the endpoint or dropped together with the endpoint, the
    /// memory is readable for a send, and writable for a receive, from any thread. What another thread
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

    /// Its length in bytes; of pooled memory, the length of the message that is in it.
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

    /// Whether it stays with its owner, and is only lent.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        matches!(self.0, Kind::Pinned(_) | Kind::PinnedParts(_))
    }

    /// Makes `bytes`, which is empty, the memory that is filled up to its capacity. For engines.
    #[must_use]
    pub fn filling(bytes: Vec<u8>) -> Self {
        Self(Kind::Pooled(bytes))
    }

    /// Its parts. None for pinned memory: its owner has it.
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
}

impl Sink for Memory {
    fn room(&self) -> usize {
        match &self.0 {
            Kind::Pooled(bytes) => bytes.capacity(),
            _ => self.len(),
        }
    }

    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        match &mut self.0 {
            Kind::Owned(bytes) => put(bytes, at, source),
            Kind::Parts(parts) => scatter(parts.iter_mut().map(Vec::as_mut_slice), at, source),
            Kind::Pooled(bytes) => append(bytes, at, source),
            Kind::Pinned(pin) => pin.put(at, source),
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
}

/// Appends as much of `source` as fits at `at`, without growing. What was written beyond `at` before is
/// replaced.
fn append(bytes: &mut Vec<u8>, at: usize, source: &[u8]) -> usize {
    bytes.truncate(at);
    let count = source.len().min(bytes.capacity() - bytes.len());
    bytes.extend_from_slice(&source[..count]);
    count
}

#[inline(always)]
fn put(target: &mut [u8], at: usize, source: &[u8]) -> usize {
    let room = target.get_mut(at..).unwrap_or_default();
    let count = room.len().min(source.len());
    room[..count].copy_from_slice(&source[..count]);
    count
}

fn scatter<'a>(parts: impl Iterator<Item = &'a mut [u8]>, at: usize, source: &[u8]) -> usize {
    let (mut skip, mut done) = (at, 0);
    for part in parts {
        if done == source.len() {
            break;
        }
        let from = skip.min(part.len());
        skip -= from;
        done += put(&mut part[from..], 0, &source[done..]);
    }
    done
}

fn gather<'a>(parts: impl Iterator<Item = &'a [u8]>, offset: u64, target: &mut Fragment<'_>) {
    let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut done = 0;
    for part in parts {
        let from = skip.min(part.len());
        skip -= from;
        done += target.put(done, &part[from..]);
    }
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
