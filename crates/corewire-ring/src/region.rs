//! The only place that turns an offset into a pointer.
//!
//! Other processes may write this memory while this one reads it. So no reference to its bytes is
//! made, except to payloads that the protocol keeps unchanged (see [`Payload`]); words are atomics.
//! In a read-only mapping an acquire is a relaxed load and a fence, since a locked or wide atomic
//! access may fault there.

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{self, NonNull};

use corewire_layout::geometry::Geometry;
use corewire_layout::pair::{HEAD_BYTES, IMMEDIATE_BYTES, MORE, MORE_BYTES};
use corewire_layout::segment::{CURSOR, RECEIVER_CPU, SLEEP_MODE, SLEEPING, WAKE};
use corewire_layout::slot::{
    CELL_IMMEDIATE, HEADER, INLINE, INLINE_BYTES_MAX, LENGTH, POSITION, SLOT_BYTES, STAMP,
};
use corewire_layout::{LINE_BYTES, PAGE_BYTES, place_of};

use crate::Trusted;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A stretch of memory that stays mapped for as long as this value, or a clone of it, lives.
#[derive(Clone)]
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
    keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: a region is an address and a length. All accesses through it are atomic, or raw copies
// that the protocols order. `keep` itself is Send and Sync.
unsafe impl Send for Region {}
// SAFETY: as for Send.
unsafe impl Sync for Region {}

impl Region {
    /// A region over memory that `keep` keeps mapped.
    ///
    /// # Safety
    /// `base` is aligned to a page, and `bytes` bytes from it stay mapped and readable until `keep`
    /// is dropped. They are also writable if the region is given to the role that writes it.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { base, bytes, keep }
    }

    /// Zeroed memory private to this process; `None` if the allocation fails.
    #[must_use]
    pub fn private(bytes: usize) -> Option<Self> {
        let owned = Private::new(bytes)?;
        let base = owned.base;
        // SAFETY: `Private` frees its memory when it is dropped, and not before.
        Some(unsafe { Self::new(base, bytes, Arc::new(owned)) })
    }

    /// Bytes of the region.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The part of `bytes` bytes from `offset`; `None` if it reaches beyond the region.
    #[must_use]
    pub fn part(&self, offset: usize, bytes: usize) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then(|| {
            // SAFETY: `offset` lies within the region.
            let base = unsafe { self.base.add(offset) };
            Self { base, bytes, keep: Arc::clone(&self.keep) }
        })
    }

    /// The u64 at `offset`.
    ///
    /// # Panics
    /// If it lies outside or is not aligned. Offsets are computed locally, never read from a peer.
    #[must_use]
    pub fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes, "own offset");
        // SAFETY: inside and aligned by the assertion; mapped while `self` lives.
        unsafe { word64_at(self.base, offset) }
    }

    /// The u32 at `offset`.
    ///
    /// # Panics
    /// If it lies outside or is not aligned. Offsets are computed locally, never read from a peer.
    #[must_use]
    pub fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes, "own offset");
        // SAFETY: inside and aligned by the assertion; mapped while `self` lives.
        unsafe { word32_at(self.base, offset) }
    }

    /// Copies `target.len()` bytes from `offset` out of the region.
    ///
    /// # Panics
    /// If they reach beyond the region.
    pub fn copy_out(&self, offset: usize, target: &mut [u8]) {
        for (i, byte) in target.iter_mut().enumerate() {
            assert!(offset + i < self.bytes, "own offset");
            // SAFETY: inside by the assertion.
            let source = unsafe { self.base.add(offset + i) };
            // SAFETY: mapped and readable; volatile, since another process may write it.
            *byte = unsafe { source.read_volatile() };
        }
    }

    /// As [`Region::copy_out`], but faster, for bytes that no process writes meanwhile.
    ///
    /// # Safety
    /// The bytes are published, and their writer does not change them during the call: [`Trusted`]
    /// says so.
    ///
    /// # Panics
    /// If they reach beyond the region.
    #[inline(always)]
    pub unsafe fn copy_out_still(&self, _trusted: Trusted, offset: usize, target: &mut [u8]) {
        let is_inside = offset.checked_add(target.len()).is_some_and(|end| end <= self.bytes);
        assert!(is_inside, "own offset");
        // SAFETY: inside by the assertion.
        let source = unsafe { self.base.add(offset) };
        // SAFETY: mapped and readable, and unchanged as the caller guarantees; `target` is a live
        // reference.
        unsafe { copy(source.as_ptr(), target.as_mut_ptr(), target.len()) };
    }

    /// Copies `source` into the region at `offset`. For headers, before any other process sees
    /// them.
    ///
    /// # Panics
    /// If it reaches beyond the region.
    pub fn copy_in(&self, offset: usize, source: &[u8]) {
        assert!(offset + source.len() <= self.bytes, "own offset");
        // SAFETY: inside by the assertion.
        let target = unsafe { self.base.add(offset) };
        // SAFETY: mapped; the region is writable for the role that calls this.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), target.as_ptr(), source.len()) };
    }

    /// The region's address and length in bytes, for calls to the kernel.
    #[must_use]
    pub fn address(&self) -> (NonNull<u8>, usize) {
        (self.base, self.bytes)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// # Safety
/// A u64 at `offset` from `base` is mapped and aligned for `'a`.
#[inline(always)]
unsafe fn word64_at<'a>(base: NonNull<u8>, offset: usize) -> &'a AtomicU64 {
    // SAFETY: guaranteed by the caller.
    let at = unsafe { base.add(offset) }.cast::<u64>();
    // SAFETY: mapped and aligned; all other accesses are atomic, or go through read-only mappings.
    unsafe { AtomicU64::from_ptr(at.as_ptr()) }
}

/// # Safety
/// A u32 at `offset` from `base` is mapped and aligned for `'a`.
#[inline(always)]
unsafe fn word32_at<'a>(base: NonNull<u8>, offset: usize) -> &'a AtomicU32 {
    // SAFETY: guaranteed by the caller.
    let at = unsafe { base.add(offset) }.cast::<u32>();
    // SAFETY: mapped and aligned; all other accesses are atomic, or go through read-only mappings.
    unsafe { AtomicU32::from_ptr(at.as_ptr()) }
}

/// One u32 of a region, located once.
#[derive(Clone)]
pub struct Word32 {
    at: NonNull<u8>,
    _keep: Arc<dyn Any + Send + Sync>,
}

/// One u64 of a region, located once.
#[derive(Clone)]
pub struct Word64 {
    at: NonNull<u8>,
    _keep: Arc<dyn Any + Send + Sync>,
}

impl Region {
    /// The u32 at `offset`, as a value that keeps the region mapped.
    ///
    /// # Panics
    /// As [`Region::word32`].
    #[must_use]
    pub fn keep32(&self, offset: usize) -> Word32 {
        let at = NonNull::from(self.word32(offset)).cast();
        Word32 { at, _keep: Arc::clone(&self.keep) }
    }

    /// The u64 at `offset`, as a value that keeps the region mapped.
    ///
    /// # Panics
    /// As [`Region::word64`].
    #[must_use]
    pub fn keep64(&self, offset: usize) -> Word64 {
        let at = NonNull::from(self.word64(offset)).cast();
        Word64 { at, _keep: Arc::clone(&self.keep) }
    }
}

impl Deref for Word32 {
    type Target = AtomicU32;

    #[inline(always)]
    fn deref(&self) -> &AtomicU32 {
        // SAFETY: checked when it was located; the region stays mapped as long as this value lives.
        unsafe { word32_at(self.at, 0) }
    }
}

impl Deref for Word64 {
    type Target = AtomicU64;

    #[inline(always)]
    fn deref(&self) -> &AtomicU64 {
        // SAFETY: checked when it was located; the region stays mapped as long as this value lives.
        unsafe { word64_at(self.at, 0) }
    }
}

impl fmt::Debug for Word32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Word32")
    }
}

impl fmt::Debug for Word64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Word64")
    }
}

// SAFETY: as for Region.
unsafe impl Send for Word32 {}
// SAFETY: as for Region.
unsafe impl Sync for Word32 {}
// SAFETY: as for Region.
unsafe impl Send for Word64 {}
// SAFETY: as for Region.
unsafe impl Sync for Word64 {}

/// The slots of a ring.
#[derive(Debug, Clone)]
pub struct Slots {
    base: NonNull<u8>,
    mask: u64,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: as for Region.
unsafe impl Send for Slots {}
// SAFETY: as for Region.
unsafe impl Sync for Slots {}

impl Slots {
    /// The ring of a segment of this geometry.
    ///
    /// # Panics
    /// If the region is shorter than its geometry says; attach has checked that it is not.
    #[must_use]
    pub fn new(segment: &Region, geometry: &Geometry) -> Self {
        Self::at_offset(segment, own_usize(geometry.ring_offset()), geometry.slots())
    }

    /// `slots` slots (a power of two) from `offset` in `region`.
    ///
    /// # Panics
    /// If they reach beyond the region or their number is not a power of two.
    #[must_use]
    pub fn at_offset(region: &Region, offset: usize, slots: u64) -> Self {
        assert!(slots.is_power_of_two() && offset.is_multiple_of(SLOT_BYTES), "own geometry");
        let ring = region.part(offset, own_usize(slots) * SLOT_BYTES).expect("own geometry");
        Self { base: ring.base, mask: slots - 1, _keep: ring.keep }
    }

    /// Number of slots.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.mask + 1
    }

    /// The slot of message `sequence`.
    #[inline(always)]
    #[must_use]
    pub fn at(&self, sequence: u64) -> Slot<'_> {
        #[expect(clippy::cast_possible_truncation, reason = "masked: below the number of slots")]
        let index = (sequence & self.mask) as usize;
        // SAFETY: the index is below the number of slots, all of which lie in the region.
        let base = unsafe { self.base.add(index * SLOT_BYTES) };
        Slot { base, _slots: PhantomData }
    }

    /// The slot at `place`. Nothing is loaded or computed.
    ///
    /// # Safety
    /// `place` is that of a slot of this ring.
    #[inline(always)]
    #[must_use]
    pub unsafe fn at_place(&self, place: Place) -> Slot<'_> {
        Slot { base: place.0, _slots: PhantomData }
    }
}

/// The address of a slot, which is valid for as long as its ring is mapped. Keeping it avoids
/// computing it again after writes that, as far as the compiler knows, might have moved the ring.
#[derive(Debug, Clone, Copy)]
pub struct Place(NonNull<u8>);

// SAFETY: an address. The protocol decides who may access the memory, not the thread.
unsafe impl Send for Place {}
// SAFETY: as for Send.
unsafe impl Sync for Place {}

/// Walks over a ring's slots, one after the other. It does not keep them mapped, so it is small and
/// costs nothing to make.
#[derive(Debug, Clone)]
pub struct Walk {
    at: NonNull<u8>,
    base: NonNull<u8>,
    mask: u64,
}

// SAFETY: as for Region.
unsafe impl Send for Walk {}
// SAFETY: as for Region.
unsafe impl Sync for Walk {}

impl Walk {
    /// A walk that stands at the slot of `position`.
    ///
    /// # Safety
    /// The slots stay mapped as long as the walk is used.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(slots: &Slots, position: u64) -> Self {
        Self { at: slots.at(position).base, base: slots.base, mask: slots.mask }
    }

    /// Moves to the slot of `position`.
    #[inline(always)]
    pub fn go_to(&mut self, position: u64) {
        #[expect(clippy::cast_possible_truncation, reason = "masked: below the number of slots")]
        let index = (position & self.mask) as usize;
        // SAFETY: the index is below the number of slots.
        self.at = unsafe { self.base.add(index * SLOT_BYTES) };
    }

    /// The slot where the walk stands. It is mapped, as the caller of [`Walk::new`] guarantees.
    #[inline(always)]
    #[must_use]
    pub fn slot(&self) -> Slot<'_> {
        Slot { base: self.at, _slots: PhantomData }
    }
}

/// One slot.
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    base: NonNull<u8>,
    _slots: PhantomData<&'a Slots>,
}

impl<'a> Slot<'a> {
    /// The word that publishes the slot.
    #[inline(always)]
    #[must_use]
    pub fn stamp(self) -> &'a AtomicU64 {
        // SAFETY: within this slot, which is 64-byte aligned.
        unsafe { word64_at(self.base, STAMP) }
    }

    /// The length of an inline payload, or the kind.
    #[inline(always)]
    #[must_use]
    pub fn header(self) -> &'a AtomicU64 {
        // SAFETY: within this slot, which is 64-byte aligned.
        unsafe { word64_at(self.base, HEADER) }
    }

    /// Virtual position of a payload that lies elsewhere.
    #[inline(always)]
    #[must_use]
    pub fn position(self) -> &'a AtomicU64 {
        // SAFETY: within this slot, which is 64-byte aligned.
        unsafe { word64_at(self.base, POSITION) }
    }

    /// Length in bytes of a payload that lies elsewhere.
    #[inline(always)]
    #[must_use]
    pub fn length(self) -> &'a AtomicU64 {
        // SAFETY: within this slot, which is 64-byte aligned.
        unsafe { word64_at(self.base, LENGTH) }
    }

    /// The address of the slot.
    #[inline(always)]
    #[must_use]
    pub fn place(self) -> Place {
        Place(self.base)
    }

    /// Makes the processor prefetch the slot's line for reading, where the platform supports it.
    #[inline(always)]
    pub fn prefetch_to_read(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint; it has no effect except on caches.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().cast()) };
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "prfm pldl1keep, [{}]",
                in(reg) self.base.as_ptr(),
                options(readonly, nostack, preserves_flags),
            );
        };
    }

    /// Makes the processor prefetch the slot's line for writing, where the platform supports it.
    /// Cores that have the line must fetch it again. (Not the compiler intrinsic: unless the whole
    /// build targets a processor known to have the instruction, the intrinsic prefetches for
    /// reading. On an x86-64 processor without the instruction it does nothing.)
    #[inline(always)]
    pub fn prefetch_to_write(self) {
        prefetch_to_write(self.base);
    }

    /// The inline payload's first `bytes` bytes (at most 48).
    #[inline(always)]
    #[must_use]
    pub fn payload(self, bytes: usize, _access: Access) -> Payload {
        // SAFETY: within this slot.
        let base = unsafe { self.base.add(INLINE) };
        Payload { base, bytes: bytes.min(INLINE_BYTES_MAX) }
    }

    /// The immediate before an inline payload, in a pair ring.
    #[inline(always)]
    #[must_use]
    pub fn immediate(self) -> &'a AtomicU64 {
        // SAFETY: within this slot, which is 64-byte aligned.
        unsafe { word64_at(self.base, INLINE) }
    }

    /// The immediate beside a payload that lies in a cell, in a pair ring.
    #[inline(always)]
    #[must_use]
    pub fn cell_immediate(self) -> &'a AtomicU64 {
        // SAFETY: within this slot, which is 64-byte aligned.
        unsafe { word64_at(self.base, CELL_IMMEDIATE) }
    }

    /// The first `bytes` bytes (at most 40) of the inline payload behind an immediate.
    #[inline(always)]
    #[must_use]
    pub fn behind_immediate(self, bytes: usize, _access: Access) -> Payload {
        // SAFETY: within this slot.
        let base = unsafe { self.base.add(INLINE + IMMEDIATE_BYTES) };
        Payload { base, bytes: bytes.min(HEAD_BYTES - IMMEDIATE_BYTES) }
    }

    /// The first `bytes` bytes (at most 56) of the payload in a slot that continues the message of
    /// the slot before it.
    #[inline(always)]
    #[must_use]
    pub fn more(self, bytes: usize, _access: Access) -> Payload {
        // SAFETY: within this slot.
        let base = unsafe { self.base.add(MORE) };
        Payload { base, bytes: bytes.min(MORE_BYTES) }
    }
}

/// The purpose for which a payload is accessed. Loom checks that no other thread accesses it in a
/// conflicting way meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To be written, before the message's stamp is stored.
    Write,
    /// To be read, before the cursor passes it.
    Read,
    /// To be copied word by word, in or out, whatever other processes do meanwhile.
    Words,
}

/// The bytes of one message, in its slot or elsewhere.
#[derive(Debug)]
pub struct Payload {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: as for Region. The protocol decides who may access the bytes, not the thread.
unsafe impl Send for Payload {}
// SAFETY: as for Send.
unsafe impl Sync for Payload {}

impl Payload {
    /// The payload's length in bytes.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes the processor prefetch the payload's lines for writing.
    #[inline(always)]
    pub fn prefetch_to_write(&self) {
        for offset in (0..self.bytes).step_by(LINE_BYTES) {
            // SAFETY: below the payload's length.
            prefetch_to_write(unsafe { self.base.add(offset) });
        }
    }

    /// The bytes, to be read in place.
    ///
    /// # Safety
    /// The payload's region stays mapped for `'a`, and no process writes these bytes during it:
    /// they are published, and this receiver's cursor does not pass them. [`Trusted`] says that the
    /// sender keeps to this rule.
    #[inline(always)]
    #[must_use]
    pub unsafe fn as_slice<'a>(&self, _trusted: Trusted) -> &'a [u8] {
        // SAFETY: guaranteed by the caller.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    /// The bytes, to be written in place.
    ///
    /// # Safety
    /// The payload's region stays mapped and writable for `'a`, and no other thread or process
    /// accesses these bytes during it: they are claimed, and not published.
    #[inline(always)]
    #[must_use]
    pub unsafe fn as_mut_slice<'a>(&mut self) -> &'a mut [u8] {
        // SAFETY: guaranteed by the caller.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    /// The bytes, to be read back by their writer.
    ///
    /// # Safety
    /// As for [`Payload::as_mut_slice`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn as_own_slice<'a>(&self) -> &'a [u8] {
        // SAFETY: guaranteed by the caller.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    /// Writes `source`, which must be as long as the payload. A short payload, which lies in a
    /// slot, is written with at most three overlapping moves instead of a call.
    ///
    /// # Safety
    /// As for [`Payload::as_mut_slice`].
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline(always)]
    pub unsafe fn fill(&mut self, source: &[u8]) {
        assert!(source.len() == self.bytes, "own length");
        let (from, to) = (source.as_ptr(), self.base.as_ptr());
        #[cfg(corewire_kill)]
        use self::copy_in_halves as copy;
        // SAFETY: both are `bytes` long and cannot overlap: `source` is a live reference, and no
        // reference to the payload's bytes exists.
        unsafe { copy(from, to, self.bytes) };
    }

    /// Writes `source`, at most as long as the payload, while other processes may be copying the
    /// payload out. They do so word by word, through their own mappings, and check the copy. The
    /// fence before and the stamp after order these stores for them. So plain stores are enough, as
    /// few as possible. The stores are atomic words only where the other side uses the very same
    /// mapping, as in tests under Miri.
    ///
    /// # Safety
    /// The payload's region is writable, and no other process writes these bytes meanwhile: they
    /// are claimed, and not published. The room consists of whole, aligned words.
    ///
    /// # Panics
    /// If `source` is longer.
    #[inline(always)]
    pub unsafe fn copy_in(&mut self, source: &[u8]) {
        assert!(source.len() <= self.bytes, "own length");
        #[cfg(corewire_kill)]
        use self::copy_in_halves as copy;
        #[cfg(not(miri))]
        // SAFETY: both are long enough; `source` is a live reference, and no reference to these
        // bytes exists.
        unsafe {
            copy(source.as_ptr(), self.base.as_ptr(), source.len());
        };
        #[cfg(miri)]
        for (index, part) in source.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            // SAFETY: guaranteed by the caller; the room's last word belongs to the payload as a
            // whole.
            let target = unsafe { word64_at(self.base, 8 * index) };
            target.store(u64::from_le_bytes(word), Relaxed);
        }
    }

    /// Writes as much of `source` as fits at offset `at`. Returns the number of bytes written.
    ///
    /// # Safety
    /// As for [`Payload::as_mut_slice`].
    pub unsafe fn put(&mut self, at: usize, source: &[u8]) -> usize {
        // SAFETY: guaranteed by the caller; `source` is readable.
        unsafe { self.put_raw(at, NonNull::from(source).cast(), source.len()) }
    }

    /// The same for `bytes` bytes at `source`, which other threads may write meanwhile: what is
    /// written then is any mixture.
    ///
    /// # Safety
    /// As for [`Payload::as_mut_slice`]; and `source` is readable, and no part of the payload.
    pub unsafe fn put_raw(&mut self, at: usize, source: NonNull<u8>, bytes: usize) -> usize {
        let at = at.min(self.bytes);
        let count = bytes.min(self.bytes - at);
        // SAFETY: within the payload.
        let target = unsafe { self.base.add(at) };
        #[cfg(corewire_kill)]
        use self::copy_in_halves as copy;
        // SAFETY: both are `count` bytes long and do not overlap, as the caller guarantees.
        unsafe { copy(source.as_ptr(), target.as_ptr(), count) };
        count
    }

    /// Copies bytes from `offset` on into `target`, word by word with atomic loads, so that other
    /// processes may write them meanwhile. The caller must then check that the copy is one message.
    ///
    /// # Safety
    /// The payload's region stays mapped during the call, including the payload's last word. That
    /// holds for slots and stores: their payloads begin at words, and their room ends with a whole
    /// word.
    ///
    /// # Panics
    /// If `offset` and `target` reach beyond the payload.
    #[inline(always)]
    pub unsafe fn copy_out(&self, offset: usize, target: &mut [u8]) {
        let end = offset.checked_add(target.len());
        assert!(end.is_some_and(|end| end <= self.bytes), "own length");
        let mut at = offset / 8 * 8;
        let mut target = target;
        let skip = offset - at;
        if skip > 0 && !target.is_empty() {
            // SAFETY: guaranteed by the caller; within the payload's words.
            let word = unsafe { word64_at(self.base, at) }.load(Relaxed).to_le_bytes();
            let count = target.len().min(8 - skip);
            let (first, others) = target.split_at_mut(count);
            first.copy_from_slice(&word[skip..skip + count]);
            target = others;
            at += 8;
        }
        // Two words at a time: the next reader of the copy may load it in this width, and a load
        // wider than the preceding store must wait for the store buffer.
        let (pairs, rest) = target.as_chunks_mut::<16>();
        for pair in pairs {
            // SAFETY: guaranteed by the caller; within the payload.
            let low = unsafe { word64_at(self.base, at) }.load(Relaxed);
            // SAFETY: as above.
            let high = unsafe { word64_at(self.base, at + 8) }.load(Relaxed);
            // SAFETY: `pair` is 16 bytes.
            unsafe { store_pair(pair.as_mut_ptr(), low, high) };
            at += 16;
        }
        let (words, rest) = rest.as_chunks_mut::<8>();
        for word in words {
            // SAFETY: guaranteed by the caller; within the payload.
            *word = unsafe { word64_at(self.base, at) }.load(Relaxed).to_le_bytes();
            at += 8;
        }
        if !rest.is_empty() {
            // SAFETY: guaranteed by the caller; within the payload's words.
            let word = unsafe { word64_at(self.base, at) }.load(Relaxed).to_le_bytes();
            rest.copy_from_slice(&word[..rest.len()]);
        }
    }

    /// Shortens the payload to `bytes`, if it is longer.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    /// Tells a model that the payload has been read until now. Does nothing on real machines.
    #[inline(always)]
    pub fn end_read(&self) {}
}

/// Copies a message that fits in a slot to `target`, and loads it word by word: it may just have
/// been composed from words (see `copy_words`).
///
/// # Panics
/// If it does not fit.
#[inline(always)]
pub fn set_aside(source: &[u8], target: &mut [u8; INLINE_BYTES_MAX]) {
    assert!(source.len() <= INLINE_BYTES_MAX, "own length");
    // SAFETY: both are live references, and `target` is at least as long.
    unsafe { copy(source.as_ptr(), target.as_mut_ptr(), source.len()) };
}

/// As [`copy`], by a writer that may die before the first or before the second half.
///
/// # Safety
/// As for [`copy`].
#[cfg(corewire_kill)]
unsafe fn copy_in_halves(from: *const u8, to: *mut u8, bytes: usize) {
    for half in [0..bytes / 2, bytes / 2..bytes] {
        if crate::sync::kill::writes(to.addr() + half.start, half.len()) {
            // SAFETY: guaranteed by the caller; within the bytes.
            let from = unsafe { from.add(half.start) };
            // SAFETY: as above.
            let to = unsafe { to.add(half.start) };
            // SAFETY: guaranteed by the caller; within the bytes.
            unsafe { copy(from, to, half.len()) };
        }
    }
}

/// Copies `bytes` bytes, up to 48 of them without a call.
///
/// # Safety
/// Both pointers are valid for `bytes` bytes, and the two ranges do not overlap.
#[inline(always)]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one of these is done")]
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller; each arm stays within its bounds, and moves words only from
    // an aligned source.
    unsafe {
        match bytes {
            // A full slot needs no further checks.
            INLINE_BYTES_MAX if from.align_offset(8) == 0 => copy_words(from, to, INLINE_BYTES_MAX),
            0 => {}
            1..=3 => copy_narrow(from, to, bytes),
            4..=7 => copy_ends::<u32>(from, to, bytes),
            8..=48 if from.align_offset(8) == 0 => copy_words(from, to, bytes),
            8..=15 => copy_ends::<u64>(from, to, bytes),
            16..=32 => copy_ends::<[u64; 2]>(from, to, bytes),
            33..=48 => copy_three(from, to, bytes),
            _ => ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

/// Moves 8 to 48 bytes: loads them word by word and stores two words at a time. A message is often
/// composed from words just before it is sent. A load wider than the store before it must wait
/// until that store has left the store buffer, behind every line that other cores still own (30
/// instead of 200 million messages a second). So the loads are volatile, to keep the compiler from
/// merging them. Stores are few, since each occupies an entry in that buffer.
///
/// # Safety
/// Both pointers are valid for `bytes` bytes, and `from` is aligned to 8.
#[inline(always)]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one move, several times")]
#[expect(clippy::cast_ptr_alignment, reason = "aligned by the caller's word")]
unsafe fn copy_words(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller; the last word overlaps the one before it.
    unsafe {
        let word = |at: usize| from.add(at).cast::<u64>().read_volatile();
        for at in [0, 16, 32] {
            if bytes >= at + 16 {
                store_pair(to.add(at), word(at), word(at + 8));
            }
        }
        if bytes & 8 != 0 {
            let at = bytes & !15;
            to.add(at).cast::<u64>().write_unaligned(word(at));
        }
        if bytes & 7 != 0 {
            let last = bytes - 8;
            let value = from.add(last).cast::<u64>().read_unaligned();
            to.add(last).cast::<u64>().write_unaligned(value);
        }
    }
}

/// Stores two words at once.
///
/// # Safety
/// `to` is valid for 16 bytes.
#[inline(always)]
unsafe fn store_pair(to: *mut u8, low: u64, high: u64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{__m128i, _mm_set_epi64x, _mm_storeu_si128};
        // SAFETY: every x86-64 processor has SSE2.
        let pair = unsafe { _mm_set_epi64x(high.cast_signed(), low.cast_signed()) };
        // SAFETY: guaranteed by the caller.
        unsafe { _mm_storeu_si128(to.cast::<__m128i>(), pair) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: guaranteed by the caller.
    unsafe {
        to.cast::<[u64; 2]>().write_unaligned([low, high]);
    }
}

/// Moves the first and the last `T` of `bytes` bytes; the two overlap.
///
/// # Safety
/// Both pointers are valid for `bytes` bytes, which is between one and two `T`.
#[inline(always)]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one move, twice")]
unsafe fn copy_ends<T: Copy>(from: *const u8, to: *mut u8, bytes: usize) {
    let last = bytes - size_of::<T>();
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (head, tail) =
            (from.cast::<T>().read_unaligned(), from.add(last).cast::<T>().read_unaligned());
        to.cast::<T>().write_unaligned(head);
        to.add(last).cast::<T>().write_unaligned(tail);
    }
}

/// Moves 33 to 48 bytes in three moves of 16 bytes.
///
/// # Safety
/// Both pointers are valid for `bytes` bytes.
#[inline(always)]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one move, three times")]
unsafe fn copy_three(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        copy_ends::<[u64; 2]>(from, to, 32);
        copy_ends::<[u64; 2]>(from.add(bytes - 16), to.add(bytes - 16), 16);
    }
}

/// Moves 1 to 3 bytes.
///
/// # Safety
/// Both pointers are valid for `bytes` bytes.
#[inline(always)]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one move, three times")]
unsafe fn copy_narrow(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        *to = *from;
        *to.add(bytes / 2) = *from.add(bytes / 2);
        *to.add(bytes - 1) = *from.add(bytes - 1);
    }
}

/// A stretch of a segment that holds payloads by virtual position: the window, or the large area.
#[derive(Debug, Clone)]
pub struct Store {
    base: NonNull<u8>,
    bytes: u64,
    _region: Region,
}

// SAFETY: as for Region.
unsafe impl Send for Store {}
// SAFETY: as for Region.
unsafe impl Sync for Store {}

impl Store {
    /// `bytes` bytes from `offset` of a segment.
    ///
    /// # Panics
    /// If they reach beyond the segment.
    #[must_use]
    pub fn new(segment: &Region, offset: u64, bytes: u64) -> Self {
        let part = segment.part(own_usize(offset), own_usize(bytes)).expect("own geometry");
        Self { base: part.base, bytes, _region: part }
    }

    /// Bytes of the store.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The payload of `length` bytes at `place`, which must begin a line of the store.
    ///
    /// # Panics
    /// If the payload would reach beyond the store. A place is computed locally, never read from a
    /// peer.
    #[inline(always)]
    #[must_use]
    pub fn payload_at(&self, place: u64, length: u64, _access: Access) -> Payload {
        let is_inside = place <= self.bytes && length <= self.bytes - place;
        assert!(is_inside && place.is_multiple_of(LINE_BYTES as u64), "own place");
        // SAFETY: below the size of the store, all of which lies in its region.
        let base = unsafe { self.base.add(own_usize(place)) };
        Payload { base, bytes: own_usize(length) }
    }

    /// The payload of `length` bytes at virtual position `position`. `None` if it would reach
    /// beyond the store or does not begin at a line: this is the check for words written by a peer.
    #[inline]
    #[must_use]
    pub fn payload(&self, position: u64, length: u64, _access: Access) -> Option<Payload> {
        let offset = place_of(position, self.bytes)?;
        if length > self.bytes - offset || !offset.is_multiple_of(LINE_BYTES as u64) {
            return None;
        }
        // SAFETY: `offset` is below the size of the store, all of which lies in its region.
        let base = unsafe { self.base.add(usize::try_from(offset).ok()?) };
        Some(Payload { base, bytes: usize::try_from(length).ok()? })
    }
}

/// The pages of a sender's receivers, one per row: the receiver's segment if a receiver has joined,
/// otherwise zeroes. All of them stay readable for as long as the region lives.
#[derive(Debug, Clone)]
pub struct Rows {
    base: NonNull<u8>,
    count: u32,
    _region: Region,
}

// SAFETY: as for Region.
unsafe impl Send for Rows {}
// SAFETY: as for Region.
unsafe impl Sync for Rows {}

impl Rows {
    /// `count` rows of one page each.
    ///
    /// # Panics
    /// If the region is shorter.
    #[must_use]
    pub fn new(region: &Region, count: u32) -> Self {
        let part = region.part(0, count as usize * PAGE_BYTES).expect("own geometry");
        Self { base: part.base, count, _region: part }
    }

    #[inline(always)]
    fn page(&self, row: u32) -> NonNull<u8> {
        assert!(row < self.count, "own row");
        // SAFETY: below the number of rows, all of which lie in the region.
        unsafe { self.base.add(row as usize * PAGE_BYTES) }
    }

    /// The receiver's cursor.
    #[must_use]
    pub fn cursor(&self, row: u32) -> &AtomicU64 {
        // SAFETY: within a row's page.
        unsafe { word64_at(self.page(row), CURSOR) }
    }

    /// The receiver's sleeping epoch.
    #[inline(always)]
    #[must_use]
    pub fn sleeping(&self, row: u32) -> &AtomicU32 {
        // SAFETY: within a row's page.
        unsafe { word32_at(self.page(row), SLEEPING) }
    }

    /// How the receiver wants to be woken.
    #[must_use]
    pub fn sleep_mode(&self, row: u32) -> &AtomicU32 {
        // SAFETY: within a row's page.
        unsafe { word32_at(self.page(row), SLEEP_MODE) }
    }

    /// The processor that the receiver last ran on.
    #[must_use]
    pub fn cpu(&self, row: u32) -> &AtomicU32 {
        // SAFETY: within a row's page.
        unsafe { word32_at(self.page(row), RECEIVER_CPU) }
    }

    /// The word that changes when the receiver makes room.
    #[must_use]
    pub fn wake(&self, row: u32) -> &AtomicU32 {
        // SAFETY: within a row's page.
        unsafe { word32_at(self.page(row), WAKE) }
    }
}

/// Converts a size of this process's own geometry to `usize`; attach has checked that it fits.
fn own_usize(value: u64) -> usize {
    usize::try_from(value).expect("a geometry fits this machine's address space")
}

struct Private {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory and only frees it.
unsafe impl Send for Private {}
// SAFETY: as for Send.
unsafe impl Sync for Private {}

impl Private {
    fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(1), PAGE_BYTES).ok()?;
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { base, layout })
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and not freed since.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Makes the processor prefetch the line at `at` for writing.
#[inline(always)]
fn prefetch_to_write(at: NonNull<u8>) {
    #[cfg(miri)]
    let _ = at;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; it changes no register, and has no effect on memory except in caches.
    unsafe {
        core::arch::asm!(
            "prefetchw [{}]",
            in(reg) at.as_ptr(),
            options(readonly, nostack, preserves_flags),
        );
    };
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "prfm pstl1keep, [{}]",
            in(reg) at.as_ptr(),
            options(readonly, nostack, preserves_flags),
        );
    };
}
