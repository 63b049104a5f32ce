//! The standard atomics, with every access and its address reported to the module `report` of
//! [`sync`](crate::sync).

use core::ops::Deref;
use core::sync::atomic::{self, Ordering};

use super::report;

macro_rules! reported {
    ($name:ident, $number:ty) => {
        /// An atomic whose accesses are reported. All operations except loads and stores are those
        /// of the standard type, and are reported as read-modify-writes.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        impl $name {
            /// An atomic that holds `value`.
            #[must_use]
            pub const fn new(value: $number) -> Self {
                Self(atomic::$name::new(value))
            }

            /// The atomic at `at`.
            ///
            /// # Safety
            /// As for the standard type.
            #[must_use]
            pub unsafe fn from_ptr<'a>(at: *mut $number) -> &'a Self {
                // SAFETY: guaranteed by the caller; a transparent wrapper.
                unsafe { &*at.cast::<Self>() }
            }

            /// Loads the value.
            #[inline(always)]
            pub fn load(&self, order: Ordering) -> $number {
                report::load(self.address());
                self.0.load(order)
            }

            /// Stores `value`.
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
