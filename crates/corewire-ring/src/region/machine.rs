//! Memory of real machines: an address is a pointer.

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use alloc::sync::Arc;
use core::ptr::NonNull;

use corewire_layout::PAGE_BYTES;

use super::{Access, Keep, Region};
use crate::sync::{AtomicU32, AtomicU64};

/// An address in a region. Its user keeps the region.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct Address(NonNull<u8>);

impl Address {
    /// The address `bytes` further on.
    ///
    /// # Safety
    /// It lies within the same region, or at its end.
    #[inline(always)]
    pub(super) unsafe fn add(self, bytes: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        Self(unsafe { self.0.add(bytes) })
    }

    /// The u64 at `offset` from here.
    ///
    /// # Safety
    /// It is mapped and aligned for `'a`.
    #[inline(always)]
    pub(super) unsafe fn word64<'a>(self, offset: usize) -> &'a AtomicU64 {
        // SAFETY: guaranteed by the caller.
        let at = unsafe { self.0.add(offset) }.cast::<u64>();
        // SAFETY: mapped and aligned; all other accesses are atomic, or go through read-only
        // mappings.
        unsafe { AtomicU64::from_ptr(at.as_ptr()) }
    }

    /// The u32 at `offset` from here.
    ///
    /// # Safety
    /// It is mapped and aligned for `'a`.
    #[inline(always)]
    pub(super) unsafe fn word32<'a>(self, offset: usize) -> &'a AtomicU32 {
        // SAFETY: guaranteed by the caller.
        let at = unsafe { self.0.add(offset) }.cast::<u32>();
        // SAFETY: mapped and aligned; all other accesses are atomic, or go through read-only
        // mappings.
        unsafe { AtomicU32::from_ptr(at.as_ptr()) }
    }

    /// The u64 at `offset` from here; `None` only in a model that has no such word.
    ///
    /// # Safety
    /// As for [`Address::word64`].
    #[inline(always)]
    pub(super) unsafe fn find64<'a>(self, offset: usize) -> Option<&'a AtomicU64> {
        // SAFETY: guaranteed by the caller.
        Some(unsafe { self.word64(offset) })
    }

    /// The address for accesses of this kind: on a real machine, the same.
    #[inline(always)]
    pub(super) fn for_access(self, _access: Access) -> Self {
        self
    }

    /// Tells a model that `bytes` bytes from here are accessed. Does nothing on real machines.
    #[inline(always)]
    pub(super) fn report(self, _bytes: usize) {}

    /// The address, for plain accesses.
    #[inline(always)]
    pub(super) fn pointer(self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// Makes the processor prefetch the line `bytes` bytes further on for reading, where the platform supports it.
    #[inline(always)]
    pub(super) fn prefetch_to_read(self, bytes: usize) {
        // Wherever it points, a hint has no effect except on caches.
        let line = self.pointer().wrapping_add(bytes);
        // Elsewhere there is no such hint.
        let _ = line;
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint; it has no effect except on caches.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "prfm pldl1keep, [{}]",
                in(reg) line,
                options(readonly, nostack, preserves_flags),
            );
        };
    }

    /// Makes the processor prefetch the line `bytes` bytes further on for writing, where the platform supports it.
    #[inline(always)]
    pub(super) fn prefetch_to_write(self, bytes: usize) {
        let line = self.pointer().wrapping_add(bytes);
        let _ = line;
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a hint; it changes no register, and has no effect on memory except in caches.
        unsafe {
            core::arch::asm!(
                "prefetchw [{}]",
                in(reg) line,
                options(readonly, nostack, preserves_flags),
            );
        };
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "prfm pstl1keep, [{}]",
                in(reg) line,
                options(readonly, nostack, preserves_flags),
            );
        };
    }
}

impl Region {
    /// A region over memory that `keep` keeps mapped.
    ///
    /// # Safety
    /// `base` is aligned to a page, and `bytes` bytes from it stay mapped and readable until `keep`
    /// is dropped. They are also writable if the region is given to the role that writes it.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize, keep: Keep) -> Self {
        Self { base: Address(base), bytes, keep }
    }

    /// Zeroed memory private to this process; `None` if the allocation fails.
    #[must_use]
    pub fn private(bytes: usize) -> Option<Self> {
        let owned = Private::new(bytes)?;
        let base = owned.base;
        // SAFETY: `Private` frees its memory when it is dropped, and not before.
        Some(unsafe { Self::new(base, bytes, Arc::new(owned)) })
    }

    /// The region's address and length in bytes, for calls to the kernel.
    #[must_use]
    pub fn address(&self) -> (NonNull<u8>, usize) {
        (self.base.0, self.bytes)
    }
}

struct Private {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory and only frees it.
unsafe impl Send for Private {}
// SAFETY: as for Send.
unsafe impl Sync for Private {}

impl Private {
    fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(1), PAGE_BYTES).ok()?;
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { base, layout })
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and not freed since.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
