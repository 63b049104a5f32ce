//! The only place that turns an offset into a pointer.
//!
//! Other processes may write this memory while this one reads it. So no reference to its bytes is
//! made, except to payloads that the protocol keeps unchanged (see [`Payload`]); words are atomics.
//! In a read-only mapping an acquire is a relaxed load and a fence, since a locked or wide atomic
//! access may fault there.
//!
//! | module | contents |
//! |---|---|
//! | `machine` | an address in mapped memory, and the regions that keep it mapped |
//! | `model` | the same for loom: an address among words and payloads that loom tracks |
//! | `slots` | the slots of a ring |
//! | `rows` | the pages of receivers |
//! | `payload` | the bytes of one message, in a slot or elsewhere |
//! | `copies` | moves of a message's bytes |
//!
//! Everything above an address is written once, so loom runs the source that processes run.

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::ops::Deref;
use core::ptr;

use crate::Trusted;
use crate::copying::{self, NextReader};
use crate::sync::{AtomicU32, AtomicU64};

mod copies;
#[cfg(not(loom))]
mod machine;
#[cfg(loom)]
mod model;
mod payload;
mod rows;
mod slots;

pub use self::copies::set_aside;
#[cfg(not(loom))]
use self::machine::Address;
#[cfg(loom)]
use self::model::Address;
#[cfg(loom)]
pub use self::model::MODEL_ROWS_MAX;
pub use self::payload::{Access, Payload, Store};
pub use self::rows::Rows;
pub use self::slots::{Slot, SlotAddress, Slots, Walk};

/// Keeps the memory of a region mapped.
type Keep = Arc<dyn Any + Send + Sync>;

// SAFETY: an address. All accesses through it are atomic, or raw copies that the protocols order:
// the protocol decides who may access the memory, not the thread.
unsafe impl Send for Address {}
// SAFETY: as for Send.
unsafe impl Sync for Address {}

/// A stretch of memory that stays mapped for as long as this value, or a clone of it, lives.
#[derive(Clone)]
pub struct Region {
    base: Address,
    bytes: usize,
    keep: Keep,
}

impl Region {
    /// Bytes of the region.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The part of `bytes` bytes from `offset`; `None` if it reaches beyond the region.
    #[inline]
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
    #[inline]
    #[must_use]
    pub fn word64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside and aligned, as `word_at` has checked; mapped while `self` lives.
        unsafe { self.word_at(offset, 8).word64(0) }
    }

    /// The u32 at `offset`.
    ///
    /// # Panics
    /// If it lies outside or is not aligned. Offsets are computed locally, never read from a peer.
    #[inline]
    #[must_use]
    pub fn word32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside and aligned, as `word_at` has checked; mapped while `self` lives.
        unsafe { self.word_at(offset, 4).word32(0) }
    }

    /// The u32 at `offset`, as a value that keeps the region mapped.
    ///
    /// # Panics
    /// As [`Region::word32`].
    #[inline]
    #[must_use]
    pub fn keep32(&self, offset: usize) -> Word32 {
        Word32 { at: self.word_at(offset, 4), _keep: Arc::clone(&self.keep) }
    }

    /// The u64 at `offset`, as a value that keeps the region mapped.
    ///
    /// # Panics
    /// As [`Region::word64`].
    #[inline]
    #[must_use]
    pub fn keep64(&self, offset: usize) -> Word64 {
        Word64 { at: self.word_at(offset, 8), _keep: Arc::clone(&self.keep) }
    }

    /// Copies `target.len()` bytes from `offset` out of the region.
    ///
    /// # Panics
    /// If they reach beyond the region.
    pub fn copy_out(&self, offset: usize, target: &mut [u8]) {
        let source = self.bytes_at(offset, target.len(), Access::Read);
        for (i, byte) in target.iter_mut().enumerate() {
            // SAFETY: inside.
            let source = unsafe { source.add(i) };
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
        let source = self.bytes_at(offset, target.len(), Access::Read);
        // SAFETY: mapped and readable, and unchanged as the caller guarantees; `target` is a live
        // reference.
        unsafe { copies::copy(source, target.as_mut_ptr(), target.len(), NextReader::Own) };
    }

    /// Copies `source` into the region at `offset`. For headers, before any other process sees
    /// them.
    ///
    /// # Panics
    /// If it reaches beyond the region.
    pub fn copy_in(&self, offset: usize, source: &[u8]) {
        let target = self.bytes_at(offset, source.len(), Access::Write);
        // SAFETY: mapped; the region is writable for the role that calls this.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) };
    }

    /// Copies `source` into the region at `offset`, while any process may read and write there: what is there meanwhile,
    /// and what is left if several write, is any mixture.
    ///
    /// # Panics
    /// If it reaches beyond the region.
    // Not inlined, so that the compiler takes the bytes for anything: two copies of the same place are two.
    #[inline(never)]
    pub fn put(&self, offset: usize, source: &[u8]) {
        let target = self.bytes_at(offset, source.len(), Access::Write);
        // SAFETY: mapped; the region is writable for the role that calls this; no reference to these bytes exists.
        unsafe { copies::write(source.as_ptr(), target, source.len()) };
    }

    /// As [`put`](Self::put), of bytes that nobody reads soon, to memory that is in no cache near this core.
    ///
    /// # Panics
    /// If it reaches beyond the region.
    #[inline(never)]
    pub fn put_far(&self, offset: usize, source: &[u8]) {
        let target = self.bytes_at(offset, source.len(), Access::Write);
        // SAFETY: as in `put`.
        unsafe { copying::copy(NextReader::Nobody, source.as_ptr(), target, source.len()) };
    }

    /// Copies the bytes at `offset` to `target`, while any process may write them: what is copied is any mixture.
    ///
    /// # Panics
    /// If they reach beyond the region.
    // Not inlined: see `put`.
    #[inline(never)]
    pub fn get(&self, offset: usize, target: &mut [u8]) {
        let source = self.bytes_at(offset, target.len(), Access::Read);
        // SAFETY: mapped and readable; `target` is a live reference, and none to the source exists.
        unsafe { copies::copy(source, target.as_mut_ptr(), target.len(), NextReader::Own) };
    }

    /// The address of a word of `bytes` bytes.
    #[inline(always)]
    fn word_at(&self, offset: usize, bytes: usize) -> Address {
        assert!(offset.is_multiple_of(bytes) && offset + bytes <= self.bytes, "own offset");
        // SAFETY: inside by the assertion.
        unsafe { self.base.add(offset) }
    }

    /// The address of `bytes` bytes at `offset`, which are accessed at once.
    #[inline(always)]
    fn bytes_at(&self, offset: usize, bytes: usize, access: Access) -> *mut u8 {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(is_inside, "own offset");
        // SAFETY: inside by the assertion.
        let at = unsafe { self.base.add(offset) }.for_access(access);
        at.report(bytes);
        at.pointer()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// One u32 of a region, located once.
#[derive(Debug, Clone)]
pub struct Word32 {
    at: Address,
    _keep: Keep,
}

/// One u64 of a region, located once.
#[derive(Debug, Clone)]
pub struct Word64 {
    at: Address,
    _keep: Keep,
}

impl Deref for Word32 {
    type Target = AtomicU32;

    #[inline(always)]
    fn deref(&self) -> &AtomicU32 {
        // SAFETY: checked when it was located; the region stays mapped as long as this value lives.
        unsafe { self.at.word32(0) }
    }
}

impl Deref for Word64 {
    type Target = AtomicU64;

    #[inline(always)]
    fn deref(&self) -> &AtomicU64 {
        // SAFETY: checked when it was located; the region stays mapped as long as this value lives.
        unsafe { self.at.word64(0) }
    }
}

/// Converts a size of this process's own geometry to `usize`; attach has checked that it fits.
fn own_usize(value: u64) -> usize {
    usize::try_from(value).expect("a geometry fits this machine's address space")
}
