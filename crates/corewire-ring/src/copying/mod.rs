//! The routines that copy bytes, and which of them copies how many.
//!
//! The C library's `memcpy` is right for most copies. The others are for processors, distances and sizes where a
//! measurement says so ([`set_plan`]): string instructions, which a processor may move by whole lines;
//! wider registers than the library uses; and *non-temporal* stores, which write past the caches. The last help when
//! nobody reads the target soon, and hurt a reader on another core, which then finds it in memory instead of in a cache.
//! So a copy is chosen by its size and by [who reads the target next](NextReader).
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the routines by name, and the plan: which one copies what |
//! | `x86_64.rs` | `rep movsb`, and loads and stores of 32 and 64 bytes |
//! | `aarch64.rs` | loads and stores of pairs of 16 bytes |
//!
//! # Targets close behind their sources
//! `rep movsb` of AMD's Zen 3 moves about a byte in each cycle, 25 times fewer than otherwise, if the target
//! begins 1 to 31 bytes after the source when whole pages are left out ([`is_close`]). The C library copies from about 3 KiB on
//! so, and `malloc` gives long memory that begins 16 bytes after a page does: so this is met whenever what begins a page is
//! copied there. Such copies go by registers instead.
//!
//! # Cost
//! Up to [`PLANNED_FROM_BYTES`] bytes: nothing more than the copy. From there on, one load of a word that never changes
//! and two branches.
//!
//! Sources: Buntinas and others, "Data Transfers between Processes in a SMP System" (III-B); Buntinas and others, "Design
//! and Evaluation of Nemesis" (3.3).

use core::fmt;
use core::ptr;

use corewire_layout::PAGE_BYTES;

use crate::sync::{Ordering::Relaxed, StaticU64};

#[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
#[path = "aarch64.rs"]
mod machine;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
#[path = "x86_64.rs"]
mod machine;

/// Copies of fewer bytes always use the C library.
pub const PLANNED_FROM_BYTES: usize = 1 << FIRST_LOG2;
/// Number of classes of sizes in a [`Plan`].
pub const CLASSES: usize = 16;

/// From here on an untuned copy that nobody reads soon goes past the caches.
pub const STREAMED_FROM_BYTES: usize = 512 << 10;

const FIRST_LOG2: u32 = 9;
/// Bits of a class in a plan.
const BITS: u32 = 4;
const LAST_CLASS: u32 = 15;
const _: () = assert!(LAST_CLASS as usize + 1 == CLASSES && BITS as usize * CLASSES == 64);

/// A way to copy bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Routine {
    /// The C library's `memcpy`.
    Library = 0,
    /// The string instruction `rep movsb` of x86-64.
    String = 1,
    /// Registers of 32 bytes (AVX2).
    Avx2 = 2,
    /// Registers of 32 bytes, and stores past the caches.
    Avx2Streaming = 3,
    /// Registers of 64 bytes (AVX-512F).
    Avx512 = 4,
    /// Registers of 64 bytes, and stores past the caches.
    Avx512Streaming = 5,
    /// Pairs of registers of 16 bytes (ARM).
    Neon = 6,
    /// Pairs of registers of 16 bytes, and stores past the caches.
    NeonStreaming = 7,
}

/// Who reads the target of a copy next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NextReader {
    /// Another core: the copy is a message on its way.
    Peer,
    /// This core: a message has arrived.
    Own,
    /// Nobody soon, and the target is in no cache near this core.
    Nobody,
}

impl Routine {
    /// All of them, of all processors.
    pub const ALL: [Self; 8] = [
        Self::Library,
        Self::String,
        Self::Avx2,
        Self::Avx2Streaming,
        Self::Avx512,
        Self::Avx512Streaming,
        Self::Neon,
        Self::NeonStreaming,
    ];

    /// Its name, for files and people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::String => "string",
            Self::Avx2 => "avx2",
            Self::Avx2Streaming => "avx2-streaming",
            Self::Avx512 => "avx512",
            Self::Avx512Streaming => "avx512-streaming",
            Self::Neon => "neon",
            Self::NeonStreaming => "neon-streaming",
        }
    }

    /// The routine of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|routine| routine.name() == name)
    }

    /// Whether this processor, under this kernel, has what it needs.
    #[must_use]
    pub fn is_possible(self) -> bool {
        match self {
            Self::Library => true,
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            #[cfg(not(any(miri, loom)))]
            other => machine::is_possible(other),
            #[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
            _ => false,
        }
    }

    /// The same, or one that copies by registers what this would copy by string instructions, if there is one.
    #[cold]
    fn without_strings(self) -> Self {
        let is_string = matches!(self, Self::Library | Self::String);
        if is_string && Self::Avx2.is_possible() { Self::Avx2 } else { self }
    }

    /// Copies `bytes` bytes. Uses the C library if the routine is not possible here. When it returns, everything that
    /// another core sees of this thread from now on comes after the copy, as with plain stores.
    ///
    /// # Safety
    /// Both pointers are valid for `bytes` bytes, `to` for writes, and the two ranges do not overlap. Other processes may
    /// write the source meanwhile; what is copied then is any mixture.
    pub unsafe fn copy(self, from: *const u8, to: *mut u8, bytes: usize) {
        let routine = if self.is_possible() { self } else { Self::Library };
        // SAFETY: guaranteed by the caller; the routine is possible.
        unsafe { routine.copy_possible(from, to, bytes) };
    }

    /// As [`copy`](Self::copy).
    ///
    /// # Safety
    /// As for [`copy`](Self::copy), and the routine is possible here.
    #[inline]
    unsafe fn copy_possible(self, from: *const u8, to: *mut u8, bytes: usize) {
        match self {
            // SAFETY: guaranteed by the caller.
            Self::Library => unsafe { ptr::copy_nonoverlapping(from, to, bytes) },
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            #[cfg(not(any(miri, loom)))]
            // SAFETY: guaranteed by the caller.
            other => unsafe { machine::copy(other, from, to, bytes) },
            #[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
            // SAFETY: guaranteed by the caller.
            _ => unsafe { ptr::copy_nonoverlapping(from, to, bytes) },
        }
    }
}

impl fmt::Display for Routine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which routine copies how many bytes: one routine for each class of sizes. Class 0 holds copies of 512 to 1,023 bytes,
/// each further class twice as many, and the last one everything from 16 MiB on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Plan(u64);

impl Plan {
    /// The C library for everything.
    pub const LIBRARY: Self = Self(0);

    /// The plan where nothing has been measured. For targets that nobody reads soon, long copies go past the caches: a
    /// store to a line that is in no cache would fetch the line first.
    #[must_use]
    pub fn untuned(next: NextReader) -> Self {
        if next != NextReader::Nobody {
            return Self::LIBRARY;
        }
        let mut streaming = [Routine::Avx512Streaming, Routine::Avx2Streaming].into_iter();
        let streaming = streaming.find(|routine| routine.is_possible());
        let of_class = |class| match streaming {
            Some(routine) if Self::least_bytes(class) >= STREAMED_FROM_BYTES => routine,
            _ => Routine::Library,
        };
        Self::new(core::array::from_fn(of_class))
    }

    /// The plan with these routines. One that is not possible on this processor becomes the C library.
    #[must_use]
    pub fn new(routines: [Routine; CLASSES]) -> Self {
        let possible = |routine: Routine| routine.is_possible().then_some(routine);
        let mut plan = 0;
        for (class, routine) in (0..).zip(routines) {
            let code = possible(routine).unwrap_or(Routine::Library) as u64;
            plan |= code << (BITS * class);
        }
        Self(plan)
    }

    /// The least number of bytes of a class.
    #[must_use]
    pub const fn least_bytes(class: usize) -> usize {
        PLANNED_FROM_BYTES << class
    }

    /// What copies so many bytes.
    #[inline]
    #[must_use]
    pub fn routine(self, bytes: usize) -> Routine {
        let log2 = (bytes | 1).ilog2();
        if log2 < FIRST_LOG2 {
            return Routine::Library;
        }
        let class = (log2 - FIRST_LOG2).min(LAST_CLASS);
        let code = self.0 >> (BITS * class) & ((1 << BITS) - 1);
        Routine::ALL[code as usize & (Routine::ALL.len() - 1)]
    }
}

/// The plans of this process, by who reads the target next.
static PLANS: [StaticU64; 3] = [StaticU64::new(0), StaticU64::new(0), StaticU64::new(0)];

/// Sets the plan of this process for copies whose target `next` reads.
pub fn set_plan(next: NextReader, plan: Plan) {
    PLANS[next as usize].store(plan.0, Relaxed);
}

/// The plan of this process for copies whose target `next` reads.
#[inline]
#[must_use]
pub fn plan(next: NextReader) -> Plan {
    Plan(PLANS[next as usize].load(Relaxed))
}

/// Whether string instructions of some processors are slow from one address to the other: the second one is 1 to 31 bytes
/// after the first one, whole pages aside.
#[inline]
#[must_use]
pub const fn is_close(from: usize, to: usize) -> bool {
    (to.wrapping_sub(from) % PAGE_BYTES).wrapping_sub(1) < 31
}

/// Copies `bytes` bytes as this process's plan says.
///
/// # Safety
/// As for [`Routine::copy`].
#[inline]
pub unsafe fn copy(next: NextReader, from: *const u8, to: *mut u8, bytes: usize) {
    if bytes < PLANNED_FROM_BYTES {
        // SAFETY: guaranteed by the caller.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
    } else {
        let mut routine = plan(next).routine(bytes);
        if is_close(from.addr(), to.addr()) {
            routine = routine.without_strings();
        }
        // SAFETY: guaranteed by the caller; a plan has only routines that are possible.
        unsafe { routine.copy_possible(from, to, bytes) };
    }
}

/// As [`copy`], but the two ranges may overlap.
///
/// # Safety
/// Both pointers are valid for `bytes` bytes, `to` for writes.
#[inline]
pub(crate) unsafe fn copy_anywhere(next: NextReader, from: *const u8, to: *mut u8, bytes: usize) {
    if from.addr().abs_diff(to.addr()) < bytes {
        // SAFETY: guaranteed by the caller.
        unsafe { ptr::copy(from, to, bytes) };
    } else {
        // SAFETY: guaranteed by the caller; they do not overlap.
        unsafe { copy(next, from, to, bytes) };
    }
}

/// As [`copy`], of slices.
///
/// # Panics
/// If their lengths differ.
#[inline]
pub fn copy_slice(next: NextReader, from: &[u8], to: &mut [u8]) {
    assert!(from.len() == to.len(), "copied {} bytes to {}", from.len(), to.len());
    // SAFETY: both are live references of this length, and do not overlap.
    unsafe { copy(next, from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn every_possible_routine_copies_exactly_its_bytes() {
        let source: Vec<u8> = (0..9000u32).map(|i| (i * 7 % 251) as u8).collect();
        for routine in Routine::ALL {
            for bytes in (0..600).chain([1023, 1024, 1025, 4095, 4096, 4097, 8000]) {
                for (skip_source, skip_target) in [(0, 0), (1, 0), (0, 1), (13, 40), (63, 65)] {
                    let mut target = vec![0xee; bytes + skip_target + 64];
                    let from = &source[skip_source..skip_source + bytes];
                    let to = target[skip_target..].as_mut_ptr();
                    // SAFETY: both are live and at least `bytes` long.
                    unsafe { routine.copy(from.as_ptr(), to, bytes) };
                    assert_eq!(&target[skip_target..][..bytes], from, "{routine}, {bytes}");
                    assert!(target[..skip_target].iter().all(|byte| *byte == 0xee), "{routine}");
                    assert!(target[skip_target + bytes..].iter().all(|byte| *byte == 0xee));
                }
            }
        }
    }

    #[test]
    fn targets_close_behind_their_sources_are_told() {
        for (from, to) in [(0, 1), (8192, 16), (4095, 4096), (0, 4096 + 31), (5, 8192 + 5 + 16)] {
            assert!(is_close(from, to), "{from}, {to}");
        }
        for (from, to) in [(0, 0), (0, 32), (16, 0), (0, 4095), (1, 4096), (64, 128), (31, 31)] {
            assert!(!is_close(from, to), "{from}, {to}");
        }
    }

    #[test]
    fn close_copies_use_registers_if_they_may() {
        let registers = if Routine::Avx2.is_possible() { Routine::Avx2 } else { Routine::Library };
        assert_eq!(Routine::Library.without_strings(), registers);
        assert_eq!(Routine::Avx2Streaming.without_strings(), Routine::Avx2Streaming);
        let source: Vec<u8> = (0..20_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut target = vec![0; 20_000 + 8192];
        for close in [1, 8, 16, 31] {
            let at = source.as_ptr().addr().wrapping_sub(target.as_ptr().addr()) % PAGE_BYTES;
            let to = &mut target[at + close..][..source.len()];
            assert!(is_close(source.as_ptr().addr(), to.as_ptr().addr()));
            to.fill(0);
            copy_slice(NextReader::Own, &source, to);
            assert_eq!(to, source);
        }
    }

    #[test]
    fn a_plan_has_a_routine_for_each_class_of_sizes() {
        let mut routines = [Routine::Library; CLASSES];
        let other = Routine::ALL.into_iter().rev().find(|routine| routine.is_possible()).unwrap();
        routines[0] = other;
        routines[3] = other;
        routines[15] = other;
        let plan = Plan::new(routines);
        let of = |bytes| plan.routine(bytes) == other;
        if other != Routine::Library {
            assert_eq!([0, 1, 511, 1024, 8192, 1 << 23].map(of), [false; 6]);
        }
        assert_eq!([512, 1023, 4096, 8191, 16 << 20, usize::MAX].map(of), [true; 6]);
        assert_eq!((Plan::least_bytes(0), Plan::least_bytes(15)), (512, 16 << 20));
    }

    #[test]
    fn without_a_measurement_only_long_copies_that_nobody_reads_go_past_the_caches() {
        for next in [NextReader::Peer, NextReader::Own] {
            assert_eq!(Plan::untuned(next), Plan::LIBRARY);
        }
        let plan = Plan::untuned(NextReader::Nobody);
        assert_eq!(plan.routine(STREAMED_FROM_BYTES - 1), Routine::Library);
        let is_possible = Routine::Avx2Streaming.is_possible();
        assert_eq!(plan.routine(STREAMED_FROM_BYTES) != Routine::Library, is_possible);
    }

    #[test]
    fn a_routine_that_is_not_possible_is_planned_as_the_library() {
        let impossible = Routine::ALL.into_iter().find(|routine| !routine.is_possible());
        let Some(routine) = impossible else { return };
        assert_eq!(Plan::new([routine; CLASSES]), Plan::LIBRARY);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for routine in Routine::ALL {
            assert_eq!(Routine::of_name(routine.name()), Some(routine));
        }
        assert_eq!(Routine::of_name("memcpy"), None);
    }
}
