//! The machine's atomics, every access counted: how much work a call does, whatever a peer has written
//! (`--cfg corewire_steps`, for `testing/hostile`).

use core::ops::Deref;
use core::sync::atomic::{self, Ordering};

static STEPS: atomic::AtomicU64 = atomic::AtomicU64::new(0);

/// Accesses to atomics by this process so far.
#[must_use]
pub fn steps() -> u64 {
    STEPS.load(Ordering::Relaxed)
}

macro_rules! counted {
    ($name:ident, $number:ty) => {
        /// An atomic whose accesses are counted. What the ring does not use is the plain one's.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        impl $name {
            /// One that holds `value`.
            #[must_use]
            pub const fn new(value: $number) -> Self {
                Self(atomic::$name::new(value))
            }

            /// The one at `at`.
            ///
            /// # Safety
            /// As for the plain one.
            #[must_use]
            pub unsafe fn from_ptr<'a>(at: *mut $number) -> &'a Self {
                // SAFETY: the caller's; a transparent wrapper.
                unsafe { &*at.cast::<Self>() }
            }

            /// Reads it.
            #[inline(always)]
            pub fn load(&self, order: Ordering) -> $number {
                self.counted().load(order)
            }

            /// Writes it.
            #[inline(always)]
            pub fn store(&self, value: $number, order: Ordering) {
                self.counted().store(value, order);
            }

            #[inline(always)]
            fn counted(&self) -> &atomic::$name {
                STEPS.fetch_add(1, Ordering::Relaxed);
                &self.0
            }
        }

        impl Deref for $name {
            type Target = atomic::$name;

            fn deref(&self) -> &atomic::$name {
                self.counted()
            }
        }
    };
}

counted!(AtomicU32, u32);
counted!(AtomicU64, u64);
