//! A call of fixed size allocates nothing in the client, and nothing in the service but what its endpoint rarely keeps.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use corewire_bind::Driver;
use corewire_interfaces::all::{Client, Server};
use corewire_interfaces::{Echo, Place, by, pin};

/// Counts the allocations of the thread that asks.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

#[test]
fn calls_of_fixed_size_allocate_nothing_of_their_own() {
    const ROUNDS: u64 = 2000;
    const WARM_UP: u64 = 200;
    pin();
    for driver in [Driver::Ump, Driver::Lmp, Driver::Local] {
        let place = Place::new(&format!("allocations-{driver}"));
        let mut server = Server::new(&place.domain, "echo", Echo::default()).unwrap();
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                let mut client = Client::bind(&place.domain, "echo", &by(driver)).unwrap();
                let mut before = 0;
                for round in 0..ROUNDS {
                    if round == WARM_UP {
                        before = allocations();
                    }
                    assert_eq!(client.eight(round), Ok(round));
                    let out = client.wide(1, 2, 3, 4, 5, round).unwrap();
                    assert_eq!(out.z, round);
                    client.line(0, "").unwrap();
                }
                allocations() - before
            });
            let mut before = 0;
            // The client, and three messages each round.
            for message in 0..=3 * ROUNDS {
                if message == 3 * WARM_UP {
                    before = allocations();
                }
                assert!(server.serve_one().unwrap());
            }
            let served = allocations() - before;
            assert_eq!(caller.join().unwrap(), 0, "the client, {driver}");
            // An endpoint keeps a message that arrives before a receive asks for it in memory of its own.
            assert!(served <= ROUNDS / 1000, "{served} by the service, {driver}");
        });
    }
}
