//! Copies by instructions of ARM's 64-bit processors, all of which have these registers.

use core::arch::asm;
use core::ptr;

use super::Routine;

/// Bytes that a turn of a loop copies.
const TURN_BYTES: usize = 128;

/// Whether it is one of this processor's routines.
pub(super) fn is_possible(routine: Routine) -> bool {
    matches!(routine, Routine::Library | Routine::Neon | Routine::NeonStreaming)
}

/// As [`Routine::copy`].
///
/// # Safety
/// As for [`Routine::copy`], and the routine is possible.
pub(super) unsafe fn copy(routine: Routine, from: *const u8, to: *mut u8, bytes: usize) {
    let turns: unsafe fn(*const u8, *mut u8, usize) = match routine {
        Routine::Neon => turns,
        Routine::NeonStreaming => turns_streaming,
        // SAFETY: guaranteed by the caller.
        _ => return unsafe { ptr::copy_nonoverlapping(from, to, bytes) },
    };
    let head = to.align_offset(16).min(bytes);
    let count = (bytes - head) / TURN_BYTES;
    let tail = head + count * TURN_BYTES;
    // SAFETY: the caller's bytes.
    unsafe { ptr::copy_nonoverlapping(from, to, head) };
    if count > 0 {
        // SAFETY: below the caller's number of bytes.
        let from = unsafe { from.add(head) };
        // SAFETY: as above.
        let to = unsafe { to.add(head) };
        // SAFETY: `count` turns are within the caller's bytes.
        unsafe { turns(from, to, count) };
    }
    // SAFETY: below the caller's number of bytes.
    let from = unsafe { from.add(tail) };
    // SAFETY: as above.
    let to = unsafe { to.add(tail) };
    // SAFETY: the rest of the caller's bytes.
    unsafe { ptr::copy_nonoverlapping(from, to, bytes - tail) };
}

/// Defines a loop over turns of [`TURN_BYTES`]: it fills registers, and then stores them.
macro_rules! turns {
    ($name:ident, $store:literal) => {
        /// # Safety
        /// Both pointers are valid for `count` turns, `to` for writes; `count` is not 0.
        unsafe fn $name(from: *const u8, to: *mut u8, count: usize) {
            // SAFETY: guaranteed by the caller. Stores that are not temporal are still ordered by release stores.
            unsafe {
                asm!(
                    "2:",
                    "ldp q0, q1, [{from}]",
                    "ldp q2, q3, [{from}, #32]",
                    "ldp q4, q5, [{from}, #64]",
                    "ldp q6, q7, [{from}, #96]",
                    concat!($store, " q0, q1, [{to}]"),
                    concat!($store, " q2, q3, [{to}, #32]"),
                    concat!($store, " q4, q5, [{to}, #64]"),
                    concat!($store, " q6, q7, [{to}, #96]"),
                    "add {from}, {from}, #128",
                    "add {to}, {to}, #128",
                    "subs {count}, {count}, #1",
                    "b.ne 2b",
                    from = inout(reg) from => _,
                    to = inout(reg) to => _,
                    count = inout(reg) count => _,
                    out("v0") _, out("v1") _, out("v2") _, out("v3") _,
                    out("v4") _, out("v5") _, out("v6") _, out("v7") _,
                    options(nostack),
                );
            }
        }
    };
}

turns!(turns, "stp");
turns!(turns_streaming, "stnp");
