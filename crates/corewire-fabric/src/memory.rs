//! Memory of the program, which a call names by pointers.

use core::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use corewire::{ExposedMemory, Memory, WindowRights};
use corewire_ofi::IoVec;

use crate::errors::{INVALID, Outcome, TOO_LONG};
use crate::limits::{IOV_MAX, MESSAGE_BYTES_MAX};

/// A number of the engine's as a length or an address: both have 64 bits here.
#[inline(always)]
pub(crate) const fn as_usize(number: u64) -> usize {
    const { assert!(size_of::<usize>() == size_of::<u64>()) };
    #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
    let number = number as usize;
    number
}

/// A buffer of the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) at: NonNull<u8>,
    pub(crate) bytes: usize,
}

impl Buffer {
    pub(crate) const EMPTY: Self = Self { at: NonNull::dangling(), bytes: 0 };

    /// `bytes` bytes at `at`; an empty buffer may be anywhere.
    #[inline(always)]
    pub(crate) fn new(at: *const c_void, bytes: usize) -> Outcome<Self> {
        match NonNull::new(at.cast_mut().cast()) {
            Some(at) => Ok(Self { at, bytes }),
            None if bytes == 0 => Ok(Self::EMPTY),
            None => Err(INVALID),
        }
    }

    /// Its bytes, for a call that reads them before it returns.
    ///
    /// # Safety
    /// The memory is readable, and nobody writes it during the call.
    #[inline(always)]
    pub(crate) unsafe fn as_slice<'a>(self) -> &'a [u8] {
        // SAFETY: the caller guarantees that; `at` is not null.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) }
    }

    /// The buffer, for an operation that goes on after its call.
    ///
    /// # Safety
    /// The memory stays readable, and for a receive writable, until the operation has ended.
    #[inline(always)]
    pub(crate) unsafe fn pinned(self) -> Memory {
        // SAFETY: the caller guarantees that.
        unsafe { Memory::pinned(self.at, self.bytes) }
    }
}

/// Registered memory that peers may access.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    pub(crate) memory: ExposedMemory,
    pub(crate) rights: WindowRights,
    /// What peers call its first byte.
    pub(crate) origin: u64,
}

/// Several buffers of the program, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffers {
    parts: [Buffer; IOV_MAX],
    count: usize,
    pub(crate) bytes: usize,
}

impl Buffers {
    pub(crate) fn one(buffer: Buffer) -> Self {
        let mut parts = [Buffer::EMPTY; IOV_MAX];
        parts[0] = buffer;
        Self { parts, count: 1, bytes: buffer.bytes }
    }

    /// The buffers that a program listed.
    ///
    /// # Safety
    /// `iov` is null or has `count` entries.
    pub(crate) unsafe fn new(iov: *const IoVec, count: usize) -> Outcome<Self> {
        if count > IOV_MAX || (iov.is_null() && count > 0) {
            return Err(INVALID);
        }
        let buffer = |index| {
            // SAFETY: the caller guarantees that there are `count` entries.
            let at = unsafe { iov.add(index) };
            // SAFETY: as above.
            let IoVec { base, len } = unsafe { at.read() };
            Buffer::new(base, len)
        };
        Self::listed((0..count).map(buffer))
    }

    /// Buffers that were listed.
    pub(crate) fn listed(listed: impl ExactSizeIterator<Item = Outcome<Buffer>>) -> Outcome<Self> {
        let count = listed.len();
        if count > IOV_MAX {
            return Err(INVALID);
        }
        let mut all = Self { parts: [Buffer::EMPTY; IOV_MAX], count, bytes: 0 };
        for (part, buffer) in all.parts.iter_mut().zip(listed) {
            *part = buffer?;
            all.bytes = all.bytes.checked_add(part.bytes).ok_or(TOO_LONG)?;
        }
        if all.bytes > MESSAGE_BYTES_MAX { Err(TOO_LONG) } else { Ok(all) }
    }

    /// The buffers, as many as there are, for a call that reads them before it returns.
    ///
    /// # Safety
    /// The memory is readable, and nobody writes it during the call.
    pub(crate) unsafe fn slices<'a>(&self) -> [&'a [u8]; IOV_MAX] {
        // SAFETY: the caller guarantees that; the rest are empty.
        self.parts.map(|part| unsafe { part.as_slice() })
    }

    /// The buffers, as many as there are, for a call that writes them before it returns.
    ///
    /// # Safety
    /// The memory is writable, nobody else accesses it during the call, and no two buffers overlap.
    pub(crate) unsafe fn slices_mut<'a>(&self) -> [&'a mut [u8]; IOV_MAX] {
        // SAFETY: the caller guarantees that; the rest are empty. `at` is not null.
        self.parts
            .map(|part| unsafe { std::slice::from_raw_parts_mut(part.at.as_ptr(), part.bytes) })
    }

    /// The same as one buffer, if it is one.
    pub(crate) fn single(&self) -> Option<Buffer> {
        match self.parts() {
            [] => Some(Buffer::EMPTY),
            [one] => Some(*one),
            _ => None,
        }
    }

    pub(crate) fn parts(&self) -> &[Buffer] {
        &self.parts[..self.count]
    }

    /// A copy of their bytes.
    ///
    /// # Safety
    /// The memory is readable, and nobody writes it during the call.
    pub(crate) unsafe fn copy(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes);
        for buffer in self.parts() {
            // SAFETY: the caller guarantees that.
            bytes.extend_from_slice(unsafe { buffer.as_slice() });
        }
        bytes
    }

    /// The buffers, for an operation that goes on after its call.
    ///
    /// # Safety
    /// As for [`Buffer::pinned`].
    pub(crate) unsafe fn pinned(&self) -> Memory {
        if let Some(buffer) = self.single() {
            // SAFETY: the caller guarantees that.
            return unsafe { buffer.pinned() };
        }
        let parts = self.parts.map(|part| (part.at, part.bytes));
        // SAFETY: the caller guarantees that.
        unsafe { Memory::pinned_parts(&parts[..self.count]) }
    }
}

/// Writes what a call returns through a pointer.
///
/// # Safety
/// `at` is null or can be written.
pub(crate) unsafe fn put<T>(at: *mut T, value: T) -> Outcome {
    if at.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller guarantees that.
    unsafe { at.write_unaligned(value) };
    Ok(())
}

/// Reads a structure that a program passes.
///
/// # Safety
/// `at` is null or points to such a structure.
#[inline(always)]
pub(crate) unsafe fn get<T: Copy>(at: *const T) -> Outcome<T> {
    if at.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller guarantees that.
    Ok(unsafe { at.read() })
}

/// A text that a program passes; `None` for null.
///
/// # Safety
/// `text` is null or ends with a zero.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Outcome<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees that.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| INVALID)
}

/// Copies as much of `source` as fits into `room` bytes at `target`.
///
/// # Safety
/// `target` is null, or has `room` bytes that can be written.
pub(crate) unsafe fn copy_out(source: &[u8], target: *mut c_void, room: usize) {
    if target.is_null() {
        return;
    }
    // SAFETY: the caller guarantees that `room` bytes can be written.
    unsafe { source.as_ptr().copy_to(target.cast(), source.len().min(room)) };
}

/// Copies a text with its final zero into `room` bytes at `target`, as far as it fits; it ends with a zero in any case.
///
/// # Safety
/// As for [`copy_out`].
pub(crate) unsafe fn copy_text(text: &CStr, target: *mut c_char, room: usize) {
    let bytes = text.to_bytes();
    let count = bytes.len().min(room.saturating_sub(1));
    if target.is_null() || room == 0 {
        return;
    }
    // SAFETY: the caller guarantees that.
    unsafe { copy_out(&bytes[..count], target.cast(), room) };
    // SAFETY: within the room.
    let end = unsafe { target.add(count) };
    // SAFETY: as above.
    unsafe { end.write(0) };
}
