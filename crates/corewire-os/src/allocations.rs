//! An allocator that counts the allocations of each thread, for programs that measure how many a call makes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count for each thread.
///
/// ```
/// use corewire_os::allocations::{Counting, of_this_thread};
///
/// #[global_allocator]
/// static ALLOCATOR: Counting = Counting;
///
/// let before = of_this_thread();
/// drop(std::hint::black_box(Box::new(7)));
/// assert_eq!(of_this_thread(), before + 1);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Counting;

thread_local! {
    // Neither allocates nor has a destructor, so that an allocator may use it at any time.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Number of allocations of this thread, those that change the size of a block included. Always 0 in a program whose
/// allocator is not [`Counting`].
#[must_use]
pub fn of_this_thread() -> u64 {
    COUNT.with(Cell::get)
}

#[inline(always)]
fn count() {
    COUNT.with(|count| count.set(count.get() + 1));
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's.
        unsafe { System.realloc(block, layout, bytes) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) }
    }
}
