//! The machine's atomics, each access reported, with its address, to whoever wants to know: see
//! [`sync`](crate::sync).

use core::ops::Deref;
use core::sync::atomic::{self, Ordering};

use super::report;

macro_rules! reported {
    ($name:ident, $number:ty) => {
        /// An atomic whose accesses are reported. What is neither a load nor a store is the plain one's, and
        /// a read-modify-write.
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
                report::load(self.address());
                self.0.load(order)
            }

            /// Writes it.
            #[inline(always)]
            pub fn store(&self, value: $number, order: Ordering) {
                report::store(self.address());
                self.0.store(value, order);
            }

            fn address(&self) -> usize {
                core::ptr::from_ref(self).addr()
            }
        }

        impl Deref for $name {
            type Target = atomic::$name;

            fn deref(&self) -> &atomic::$name {
                report::modify(self.address());
                &self.0
            }
        }
    };
}

reported!(AtomicU32, u32);
reported!(AtomicU64, u64);
