//! A `Kernel` for rings that run on the threads of a test.

use std::thread;

use corewire_ring::doorbell::Bells;
use corewire_ring::sync::{AtomicU32, Ordering, fence};
use corewire_ring::{Control, Kernel};

/// Sleeps by yielding. A lost wake-up shows as a test that does not end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Yielding;

impl Kernel for Yielding {
    fn barrier_everywhere(&self) -> bool {
        fence(Ordering::SeqCst);
        true
    }

    fn wake(&self, _word: &AtomicU32, _count_max: u32) {}

    fn wait(&self, bells: Bells<'_>, _cap_ns: u64) -> bool {
        while !bells.have_rung() {
            thread::yield_now();
        }
        fence(Ordering::Acquire);
        false
    }

    fn cpu(&self) -> u32 {
        // Another processor each time: nobody finds that a peer needs the one it runs on.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
}

impl Control for Yielding {}
