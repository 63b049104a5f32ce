//! In steady state, sending and receiving allocate no memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::thread;

use corewire::Domain;

/// Counts the allocations of the calling thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller guarantees what the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees what the system's allocator requires.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

#[test]
fn steady_state_allocates_nothing() {
    let path = std::env::temp_dir().join(format!("corewire-alloc-{}", std::process::id()));
    let domain = Domain::open_at(&path).unwrap();
    let mut sender = domain.sender("c").largest_message(1 << 20).create().unwrap();
    let mut receiver = domain.receiver("c").join().unwrap();
    let lengths = [8, 48, 100, 5000, 48, 300_000];
    let rounds = 3_000;
    let reading = thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        let mut counted = 0;
        for round in 0..rounds {
            let before = allocations();
            for (i, length) in lengths.into_iter().enumerate() {
                if (round + i) % 2 == 0 {
                    assert_eq!(receiver.receive().unwrap().len(), length);
                } else {
                    assert_eq!(receiver.receive_into(&mut buffer).unwrap(), length);
                }
            }
            // Allocations that happen once, when the first window fills, are not steady state.
            counted += if round < 100 { 0 } else { allocations() - before };
        }
        counted
    });
    let message = vec![7; 1 << 20];
    let mut counted = 0;
    for round in 0..rounds {
        let before = allocations();
        for length in lengths {
            if round % 2 == 0 {
                sender.send(&message[..length]).unwrap();
            } else {
                sender.loan(length).unwrap().send();
            }
        }
        counted += if round < 100 { 0 } else { allocations() - before };
    }
    assert_eq!(counted, 0, "allocations by the sender");
    assert_eq!(reading.join().unwrap(), 0, "allocations by the receiver");
    drop((sender, domain));
    std::fs::remove_dir_all(&path).unwrap();
}
