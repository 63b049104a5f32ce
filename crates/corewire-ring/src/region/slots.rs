//! The slots of a ring.

use core::marker::PhantomData;

use corewire_layout::geometry::Geometry;
use corewire_layout::pair::{HEAD_BYTES, IMMEDIATE_BYTES, MORE, MORE_BYTES};
use corewire_layout::slot::{
    CELL_IMMEDIATE, HEADER, INLINE, INLINE_BYTES_MAX, LENGTH, POSITION, SLOT_BYTES, STAMP,
};

use super::{Access, Address, Keep, Payload, Region, own_usize};
use crate::sync::AtomicU64;

/// The slots of a ring.
#[derive(Debug, Clone)]
pub struct Slots {
    base: Address,
    mask: u64,
    _keep: Keep,
}

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
    pub unsafe fn at_place(&self, place: SlotAddress) -> Slot<'_> {
        Slot { base: place.0, _slots: PhantomData }
    }
}

/// The address of a slot, which is valid for as long as its ring is mapped. Keeping it avoids
/// computing it again after writes that, as far as the compiler knows, might have moved the ring.
#[derive(Debug, Clone, Copy)]
pub struct SlotAddress(Address);

/// Walks over a ring's slots, one after the other. It does not keep them mapped, so it is small and
/// costs nothing to make.
#[derive(Debug, Clone)]
pub struct Walk {
    at: Address,
    base: Address,
    mask: u64,
}

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
    base: Address,
    _slots: PhantomData<&'a Slots>,
}

impl<'a> Slot<'a> {
    /// The word that publishes the slot.
    #[inline(always)]
    #[must_use]
    pub fn stamp(self) -> &'a AtomicU64 {
        // SAFETY: within this slot, which is 64-byte aligned.
        unsafe { self.base.word64(STAMP) }
    }

    /// The length of an inline payload, or the kind.
    #[inline(always)]
    #[must_use]
    pub fn header(self) -> &'a AtomicU64 {
        // SAFETY: within this slot, which is 64-byte aligned.
        unsafe { self.base.word64(HEADER) }
    }

    /// Virtual position of a payload that lies elsewhere.
    #[inline(always)]
    #[must_use]
    pub fn position(self) -> &'a AtomicU64 {
        // SAFETY: within this slot, which is 64-byte aligned.
        unsafe { self.base.word64(POSITION) }
    }

    /// Length in bytes of a payload that lies elsewhere.
    #[inline(always)]
    #[must_use]
    pub fn length(self) -> &'a AtomicU64 {
        // SAFETY: within this slot, which is 64-byte aligned.
        unsafe { self.base.word64(LENGTH) }
    }

    /// The address of the slot.
    #[inline(always)]
    #[must_use]
    pub fn place(self) -> SlotAddress {
        SlotAddress(self.base)
    }

    /// Makes the processor prefetch the line `bytes` after the slot's for reading, where the platform supports it.
    #[inline(always)]
    pub fn prefetch_to_read(self, bytes: usize) {
        self.base.prefetch_to_read(bytes);
    }

    /// Makes the processor prefetch the line `bytes` after the slot's for writing, where the platform supports it.
    /// Cores that have the line must fetch it again. (Not the compiler intrinsic: unless the whole
    /// build targets a processor known to have the instruction, the intrinsic prefetches for
    /// reading. On an x86-64 processor without the instruction it does nothing.)
    #[inline(always)]
    pub fn prefetch_to_write(self, bytes: usize) {
        self.base.prefetch_to_write(bytes);
    }

    /// The inline payload's first `bytes` bytes (at most 48).
    #[inline(always)]
    #[must_use]
    pub fn payload(self, bytes: usize, access: Access) -> Payload {
        // SAFETY: within this slot.
        unsafe { Payload::new(self.base, INLINE, bytes.min(INLINE_BYTES_MAX), access) }
    }

    /// The immediate before an inline payload, in a pair ring.
    #[inline(always)]
    #[must_use]
    pub fn immediate(self) -> &'a AtomicU64 {
        // SAFETY: within this slot, which is 64-byte aligned.
        unsafe { self.base.word64(INLINE) }
    }

    /// The immediate beside a payload that lies in a cell, in a pair ring.
    #[inline(always)]
    #[must_use]
    pub fn cell_immediate(self) -> &'a AtomicU64 {
        // SAFETY: within this slot, which is 64-byte aligned.
        unsafe { self.base.word64(CELL_IMMEDIATE) }
    }

    /// The first `bytes` bytes (at most 40) of the inline payload behind an immediate.
    #[inline(always)]
    #[must_use]
    pub fn behind_immediate(self, bytes: usize, access: Access) -> Payload {
        let bytes = bytes.min(HEAD_BYTES - IMMEDIATE_BYTES);
        // SAFETY: within this slot.
        unsafe { Payload::new(self.base, INLINE + IMMEDIATE_BYTES, bytes, access) }
    }

    /// The first `bytes` bytes (at most 56) of the payload in a slot that continues the message of
    /// the slot before it.
    #[inline(always)]
    #[must_use]
    pub fn more(self, bytes: usize, access: Access) -> Payload {
        // SAFETY: within this slot.
        unsafe { Payload::new(self.base, MORE, bytes.min(MORE_BYTES), access) }
    }
}
