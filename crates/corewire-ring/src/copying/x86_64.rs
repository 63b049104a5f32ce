//! Copies by instructions of x86-64.
//!
//! The vector loops are in assembly, because the registers that they need are not among those for which this library is
//! compiled. They end with `vzeroupper`, as code of the C library does. A line that is stored past the caches must be
//! stored whole: so the target's first bytes, up to a line, and the last ones are copied as usual.

use core::arch::asm;
use core::ptr;

use corewire_layout::LINE_BYTES;

use super::Routine;

/// Bytes that a turn of a loop copies.
const TURN_BYTES: usize = 256;

cpufeatures::new!(avx2, "avx2");
cpufeatures::new!(avx512, "avx512f");

/// Whether the processor has the instructions, and the kernel keeps their registers.
pub(super) fn is_possible(routine: Routine) -> bool {
    match routine {
        Routine::Library | Routine::String => true,
        Routine::Avx2 | Routine::Avx2Streaming => avx2::get(),
        Routine::Avx512 | Routine::Avx512Streaming => avx512::get(),
        Routine::Neon | Routine::NeonStreaming => false,
    }
}

/// As [`Routine::copy`].
///
/// # Safety
/// As for [`Routine::copy`], and the routine is possible.
pub(super) unsafe fn copy(routine: Routine, from: *const u8, to: *mut u8, bytes: usize) {
    let turns: unsafe fn(*const u8, *mut u8, usize) = match routine {
        // SAFETY: guaranteed by the caller.
        Routine::String => return unsafe { string(from, to, bytes) },
        Routine::Avx2 => avx2_turns,
        Routine::Avx2Streaming => avx2_turns_streaming,
        Routine::Avx512 => avx512_turns,
        Routine::Avx512Streaming => avx512_turns_streaming,
        // SAFETY: guaranteed by the caller.
        _ => return unsafe { ptr::copy_nonoverlapping(from, to, bytes) },
    };
    let head = to.align_offset(LINE_BYTES).min(bytes);
    let count = (bytes - head) / TURN_BYTES;
    let tail = head + count * TURN_BYTES;
    // SAFETY: the caller's bytes.
    unsafe { ptr::copy_nonoverlapping(from, to, head) };
    if count > 0 {
        // SAFETY: below the caller's number of bytes.
        let from = unsafe { from.add(head) };
        // SAFETY: as above.
        let to = unsafe { to.add(head) };
        // SAFETY: `count` turns are within the caller's bytes, the target begins a line, and the caller guarantees that
        // the processor has the instructions.
        unsafe { turns(from, to, count) };
    }
    // SAFETY: below the caller's number of bytes.
    let from = unsafe { from.add(tail) };
    // SAFETY: as above.
    let to = unsafe { to.add(tail) };
    // SAFETY: the rest of the caller's bytes.
    unsafe { ptr::copy_nonoverlapping(from, to, bytes - tail) };
}

/// # Safety
/// As for [`Routine::copy`].
unsafe fn string(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller; the direction flag is clear, as the calling convention says.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Defines a loop over turns of [`TURN_BYTES`]: it fills registers, and then stores them.
macro_rules! turns {
    ($name:ident, $load:literal, $store:literal, $end:literal, $register:literal, $($index:literal at $offset:literal),*) => {
        /// # Safety
        /// The processor has the instructions. Both pointers are valid for `count` turns, `to` for writes, and `to` begins
        /// a line; `count` is not 0.
        unsafe fn $name(from: *const u8, to: *mut u8, count: usize) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                asm!(
                    "2:",
                    $(concat!($load, " ", $register, $index, ", [{from} + ", $offset, "]"),)*
                    $(concat!($store, " [{to} + ", $offset, "], ", $register, $index),)*
                    "add {from}, 256",
                    "add {to}, 256",
                    "dec {count}",
                    "jnz 2b",
                    "vzeroupper",
                    // Stores past the caches are in no order with other stores, but for this.
                    $end,
                    from = inout(reg) from => _,
                    to = inout(reg) to => _,
                    count = inout(reg) count => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                    // `vzeroupper` changes the upper halves of these.
                    out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                    options(nostack),
                );
            }
        }
    };
}

macro_rules! avx2 {
    ($name:ident, $store:literal, $end:literal) => {
        turns!(
            $name, "vmovdqu", $store, $end, "ymm",
            0 at 0, 1 at 32, 2 at 64, 3 at 96, 4 at 128, 5 at 160, 6 at 192, 7 at 224
        );
    };
}

macro_rules! avx512 {
    ($name:ident, $store:literal, $end:literal) => {
        turns!(
            $name, "vmovdqu64", $store, $end, "zmm",
            0 at 0, 1 at 64, 2 at 128, 3 at 192
        );
    };
}

avx2!(avx2_turns, "vmovdqa", "");
avx2!(avx2_turns_streaming, "vmovntdq", "sfence");
avx512!(avx512_turns, "vmovdqa64", "");
avx512!(avx512_turns_streaming, "vmovntdq", "sfence");
