//! The face of [`sync`](crate::sync) that a model of coherent caches sees through
//! (`cfg(corewire_coherence)`, set by the crate `corewire-coherence` for itself, which compiles this
//! very source): the machine's atomics, each access reported to `crate::caches` with its address.

use core::sync::atomic::{self, Ordering};

use crate::caches;

macro_rules! reported {
    ($name:ident, $number:ty) => {
        /// An atomic whose accesses are reported.
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
            pub fn load(&self, order: Ordering) -> $number {
                caches::load(self.address());
                self.0.load(order)
            }

            /// Writes it.
            pub fn store(&self, value: $number, order: Ordering) {
                caches::store(self.address());
                self.0.store(value, order);
            }

            /// Changes it and returns what was there.
            pub fn swap(&self, value: $number, order: Ordering) -> $number {
                self.modified().swap(value, order)
            }

            /// Adds to it and returns what was there.
            pub fn fetch_add(&self, value: $number, order: Ordering) -> $number {
                self.modified().fetch_add(value, order)
            }

            /// Sets bits of it and returns what was there.
            pub fn fetch_or(&self, bits: $number, order: Ordering) -> $number {
                self.modified().fetch_or(bits, order)
            }

            /// Clears the bits that are not in `bits` and returns what was there.
            pub fn fetch_and(&self, bits: $number, order: Ordering) -> $number {
                self.modified().fetch_and(bits, order)
            }

            /// Makes it no less than `value` and returns what was there.
            pub fn fetch_max(&self, value: $number, order: Ordering) -> $number {
                self.modified().fetch_max(value, order)
            }

            /// Writes it if it holds `current`.
            ///
            /// # Errors
            /// What it holds instead.
            pub fn compare_exchange(
                &self,
                current: $number,
                new: $number,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$number, $number> {
                self.modified().compare_exchange(current, new, success, failure)
            }

            fn modified(&self) -> &atomic::$name {
                caches::modify(self.address());
                &self.0
            }

            fn address(&self) -> usize {
                core::ptr::from_ref(self).addr()
            }
        }
    };
}

reported!(AtomicU32, u32);
reported!(AtomicU64, u64);
