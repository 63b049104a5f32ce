//! The bytes of one message, in its slot or in a store.

use core::ptr::NonNull;

use corewire_layout::{LINE_BYTES, place_of};

use super::copies::{store_pair, write};
use super::{Address, Region, own_usize};
use crate::Trusted;
use crate::sync::Ordering::Relaxed;

/// The purpose for which a payload is accessed. Loom checks that no other thread accesses it in a
/// conflicting way meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To be written, before the message's stamp is stored.
    Write,
    /// To be read, before the cursor passes it.
    Read,
    /// To be copied word by word, in or out, whatever other processes do meanwhile. A model has the
    /// first two words of an inline payload, and the first word of each line of the window; the
    /// other words repeat the content of the word before them.
    Words,
}

/// The bytes of one message, in its slot or elsewhere.
#[derive(Debug, Clone)]
pub struct Payload {
    base: Address,
    bytes: usize,
}

impl Payload {
    /// The payload of `bytes` bytes at `offset` from `base`, which is accessed from now on.
    ///
    /// # Safety
    /// All of it lies in the region of `base`.
    #[inline(always)]
    pub(super) unsafe fn new(base: Address, offset: usize, bytes: usize, access: Access) -> Self {
        // SAFETY: guaranteed by the caller.
        let base = unsafe { base.add(offset) }.for_access(access);
        base.report(bytes);
        Self { base, bytes }
    }

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
            self.base.prefetch_to_write(offset);
        }
    }

    /// Makes the processor prefetch the first `bytes` bytes for reading.
    #[inline(always)]
    pub fn prefetch_to_read(&self, bytes: usize) {
        for offset in (0..self.bytes.min(bytes)).step_by(LINE_BYTES) {
            self.base.prefetch_to_read(offset);
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
        self.base.report(self.bytes);
        // SAFETY: guaranteed by the caller.
        unsafe { core::slice::from_raw_parts(self.base.pointer(), self.bytes) }
    }

    /// The bytes, to be written in place.
    ///
    /// # Safety
    /// The payload's region stays mapped and writable for `'a`, and no other thread or process
    /// accesses these bytes during it: they are claimed, and not published.
    #[inline(always)]
    #[must_use]
    pub unsafe fn as_mut_slice<'a>(&mut self) -> &'a mut [u8] {
        self.base.report(self.bytes);
        // SAFETY: guaranteed by the caller.
        unsafe { core::slice::from_raw_parts_mut(self.base.pointer(), self.bytes) }
    }

    /// The bytes, to be read back by their writer.
    ///
    /// # Safety
    /// As for [`Payload::as_mut_slice`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn as_own_slice<'a>(&self) -> &'a [u8] {
        self.base.report(self.bytes);
        // SAFETY: guaranteed by the caller.
        unsafe { core::slice::from_raw_parts(self.base.pointer(), self.bytes) }
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
        self.base.report(self.bytes);
        // SAFETY: both are `bytes` long and cannot overlap: `source` is a live reference, and no
        // reference to the payload's bytes exists.
        unsafe { write(source.as_ptr(), self.base.pointer(), self.bytes) };
    }

    /// Writes `source`, at most as long as the payload, while other processes may be copying the
    /// payload out. They do so word by word, through their own mappings, and check the copy. The
    /// fence before and the stamp after order these stores for them. So plain stores are enough, as
    /// few as possible. The stores are atomic words only where the other side uses the very same
    /// mapping, as in models and under Miri.
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
        #[cfg(not(any(loom, miri)))]
        // SAFETY: both are long enough; `source` is a live reference, and no reference to these
        // bytes exists.
        unsafe {
            write(source.as_ptr(), self.base.pointer(), source.len());
        };
        #[cfg(any(loom, miri))]
        for (index, part) in source.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            // SAFETY: guaranteed by the caller; the room's last word belongs to the payload as a
            // whole.
            if let Some(target) = unsafe { self.base.find64(8 * index) } {
                target.store(u64::from_le_bytes(word), Relaxed);
            }
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
        target.report(count);
        // SAFETY: both are `count` bytes long and do not overlap, as the caller guarantees.
        unsafe { write(source.as_ptr(), target.pointer(), count) };
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
        // Where a model lacks a word, the one before it stands for it.
        let mut last = 0;
        let mut load = |at: usize| {
            // SAFETY: guaranteed by the caller; within the payload's words.
            if let Some(word) = unsafe { self.base.find64(at) } {
                last = word.load(Relaxed);
            }
            last
        };
        let mut at = offset / 8 * 8;
        let mut target = target;
        let skip = offset - at;
        if skip > 0 && !target.is_empty() {
            let word = load(at).to_le_bytes();
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
            let low = load(at);
            let high = load(at + 8);
            // SAFETY: `pair` is 16 bytes.
            unsafe { store_pair(pair.as_mut_ptr(), low, high) };
            at += 16;
        }
        let (words, rest) = rest.as_chunks_mut::<8>();
        for word in words {
            *word = load(at).to_le_bytes();
            at += 8;
        }
        if !rest.is_empty() {
            let word = load(at).to_le_bytes();
            rest.copy_from_slice(&word[..rest.len()]);
        }
    }

    /// Shortens the payload to `bytes`, if it is longer.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    /// Tells a model that the payload has been read until now. Does nothing on real machines.
    #[inline(always)]
    pub fn end_read(&self) {
        self.base.report(self.bytes);
    }
}

/// A stretch of a segment that holds payloads by virtual position: the window, or the large area.
#[derive(Debug, Clone)]
pub struct Store {
    base: Address,
    bytes: u64,
    _region: Region,
}

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
    pub fn payload_at(&self, place: u64, length: u64, access: Access) -> Payload {
        let is_inside = place <= self.bytes && length <= self.bytes - place;
        assert!(is_inside && place.is_multiple_of(LINE_BYTES as u64), "own place");
        // SAFETY: below the size of the store, all of which lies in its region.
        unsafe { Payload::new(self.base, own_usize(place), own_usize(length), access) }
    }

    /// The payload of `length` bytes at virtual position `position`. `None` if it would reach
    /// beyond the store or does not begin at a line: this is the check for words written by a peer.
    #[inline]
    #[must_use]
    pub fn payload(&self, position: u64, length: u64, access: Access) -> Option<Payload> {
        let offset = place_of(position, self.bytes)?;
        if length > self.bytes - offset || !offset.is_multiple_of(LINE_BYTES as u64) {
            return None;
        }
        let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        // SAFETY: it ends within the store, all of which lies in its region.
        Some(unsafe { Payload::new(self.base, offset, length, access) })
    }
}
