//! A call of fixed size allocates nothing in the client, and nothing in the service but what its endpoint rarely keeps.
//! A process of its own: it has an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use corewire_bind::{Driver, Serve};
use corewire_processes::interfaces::all::{Choice, Client, Color, Nested, Pair, Server, Shape};
use corewire_processes::interfaces::{Echo, Place, by, pin};

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

// Keeps P189.
#[test]
fn calls_of_fixed_size_allocate_nothing_of_their_own() {
    const ROUNDS: u64 = 2000;
    const WARM_UP: u64 = 200;
    pin();
    for driver in [Driver::Ump, Driver::Lmp, Driver::Local] {
        let place = Place::without_monitors(&format!("allocations-{driver}"));
        // What a monitor says to the service is no call.
        let serve = Serve::default().monitor(None);
        let mut server = Server::with(&place.domain, "echo", Echo::default(), serve).unwrap();
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                let mut client = Client::bind(&place.domain, "echo", &by(driver)).unwrap();
                let pair = Pair { left: -1, small: 2, right: 3, flag: true };
                let mut before = 0;
                for round in 0..ROUNDS {
                    if round == WARM_UP {
                        before = allocations();
                    }
                    assert_eq!(client.eight(round), Ok(round));
                    let out = client.wide(1, 2, 3, 4, 5, round).unwrap();
                    assert_eq!(out.z, round);
                    // 226 bytes there, which travel through a cell.
                    let nested =
                        Nested { r#type: 1, many: [pair; 3], paint: Color::Red, perhaps: None };
                    let choices = [Choice::One(round), Choice::Yes(true)];
                    let out = client.structures([nested; 2], Color::Red, Shape::Circle, choices);
                    assert_eq!(out.unwrap().v, choices);
                    client.line(0, "").unwrap();
                }
                // Its departure, too, is something to handle, but no call.
                (allocations() - before, client)
            });
            let mut before = 0;
            // The client, and four messages each round.
            for message in 0..=4 * ROUNDS {
                if message == 4 * WARM_UP {
                    before = allocations();
                }
                assert!(server.serve_one().unwrap());
            }
            let served = allocations() - before;
            let (called, client) = caller.join().unwrap();
            assert_eq!(called, 0, "the client, {driver}");
            // An endpoint keeps a message that arrives before a receive asks for it in memory of its own.
            assert!(served <= ROUNDS / 1000, "{served} by the service, {driver}");
            drop(client);
        });
    }
}
