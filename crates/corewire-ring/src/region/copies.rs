//! Moves of a message's bytes, with few instructions for short ones.

use corewire_layout::slot::INLINE_BYTES_MAX;

use crate::copying::{self, NextReader};

/// Copies a message that fits in a slot to `target`, and loads it word by word: it may just have
/// been composed from words (see `copy_words`).
///
/// # Panics
/// If it does not fit.
#[inline(always)]
pub fn set_aside(source: &[u8], target: &mut [u8; INLINE_BYTES_MAX]) {
    assert!(source.len() <= INLINE_BYTES_MAX, "own length");
    // SAFETY: both are live references, and `target` is at least as long.
    unsafe { copy(source.as_ptr(), target.as_mut_ptr(), source.len(), NextReader::Own) };
}

/// Copies bytes that another core reads next: see [`copy`].
///
/// # Safety
/// As for [`copy`].
#[cfg(not(corewire_kill))]
#[inline(always)]
pub(super) unsafe fn write(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { copy(from, to, bytes, NextReader::Peer) };
}

#[cfg(corewire_kill)]
pub(super) use self::copy_in_halves as write;

/// As [`copy`], by a writer that may die before the first or before the second half.
///
/// # Safety
/// As for [`copy`].
#[cfg(corewire_kill)]
pub(super) unsafe fn copy_in_halves(from: *const u8, to: *mut u8, bytes: usize) {
    for half in [0..bytes / 2, bytes / 2..bytes] {
        if crate::sync::kill::writes(to.addr() + half.start, half.len()) {
            // SAFETY: guaranteed by the caller; within the bytes.
            let from = unsafe { from.add(half.start) };
            // SAFETY: as above.
            let to = unsafe { to.add(half.start) };
            // SAFETY: guaranteed by the caller; within the bytes.
            unsafe { copy(from, to, half.len(), NextReader::Peer) };
        }
    }
}

/// Copies `bytes` bytes, up to 48 of them without a call. `next` reads the target.
///
/// # Safety
/// Both pointers are valid for `bytes` bytes, and the two ranges do not overlap.
#[inline(always)]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one of these is done")]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize, next: NextReader) {
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
            _ => copying::copy(next, from, to, bytes),
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
pub(super) unsafe fn store_pair(to: *mut u8, low: u64, high: u64) {
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
