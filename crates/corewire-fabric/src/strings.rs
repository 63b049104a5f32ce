//! Texts of errors.

use core::ffi::{CStr, c_char, c_int};

use corewire_ofi::errors;

use crate::memory::copy_text;

/// What an error means.
pub(crate) fn of(error: c_int) -> &'static CStr {
    errors::text(error.saturating_abs()).unwrap_or(c"Unknown error")
}

/// Copies the text into the program's buffer, if it has one, and returns where the text is.
///
/// # Safety
/// `buffer` is null, or has `room` bytes that can be written.
pub(crate) unsafe fn tell(text: &CStr, buffer: *mut c_char, room: usize) -> *const c_char {
    if buffer.is_null() || room == 0 {
        return text.as_ptr();
    }
    // SAFETY: the caller guarantees that.
    unsafe { copy_text(text, buffer, room) };
    buffer
}
