//! The clock of this study.

use corewire_os::processor::ticks;

/// The clock, read when everything before it is done. Without this a processor reads it while it still waits for a line of
/// the other core whose value it has guessed, and a transfer seems to take no time.
#[inline(always)]
pub(super) fn clock() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has this instruction.
        unsafe { core::arch::x86_64::_mm_lfence() };
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: every processor of this kind has this instruction, which has no operands.
        unsafe { core::arch::asm!("isb", options(nostack)) };
    }
    ticks()
}
