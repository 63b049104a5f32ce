//! In steady state, sending and receiving allocate nothing; what is opened and dropped leaves nothing.
//! A process of its own: it has an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use corewire::{Domain, Selector};

/// Counts the allocations of the thread that asks, and the bytes that all threads hold.
struct Counting;

static HELD_BYTES: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        HELD_BYTES.fetch_add(layout.size().cast_signed() as i64, Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size().cast_signed() as i64, Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What one test holds is counted by the other.
static ALONE: Mutex<()> = Mutex::new(());

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

// Keeps P22.
#[test]
fn steady_state_allocates_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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

#[test]
fn an_endpoint_allocates_nothing_in_its_first_wait() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = std::env::temp_dir().join(format!("corewire-wait-{}", std::process::id()));
    let domain = Domain::open_at(&path).unwrap();
    let mut server = domain.endpoint("server").create().unwrap();
    let serving = thread::spawn(move || {
        let mut buffer = [0; 8];
        loop {
            let source = server.receive_into(Selector::any(), &mut buffer).unwrap().source;
            if buffer == [0; 8] {
                break;
            }
            server.send(source, 1, &buffer).unwrap();
        }
    });
    let mut client = domain.endpoint("client").create().unwrap();
    let server = client.peer("server").unwrap();
    let mut buffer = [0; 8];
    // Without a sleep: the poll after many messages differs from the first one.
    for round in 1..=10_000_u64 {
        client.send(server, 1, &round.to_le_bytes()).unwrap();
        while client.try_receive_into(Selector::any(), &mut buffer).unwrap().is_none() {
            thread::yield_now();
        }
    }
    let before = allocations();
    let timeout = Duration::from_millis(5);
    let nothing = client.receive_into_timeout(Selector::any(), &mut buffer, timeout).unwrap();
    assert!(nothing.is_none());
    assert_eq!(allocations() - before, 0);
    client.send(server, 1, &[0; 8]).unwrap();
    serving.join().unwrap();
    drop((client, domain));
    std::fs::remove_dir_all(&path).unwrap();
}

// Keeps P87.
#[test]
fn a_domain_that_is_opened_and_dropped_leaves_no_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = std::env::temp_dir().join(format!("corewire-leak-{}", std::process::id()));
    // Keeps the control thread, and what it knows.
    let kept = Domain::open_at(&path).unwrap();
    let rounds = |count| (0..count).for_each(|_| drop(Domain::open_at(&path).unwrap()));
    rounds(10);
    let before = HELD_BYTES.load(Relaxed);
    rounds(1000);
    let held = HELD_BYTES.load(Relaxed) - before;
    drop(kept);
    std::fs::remove_dir_all(&path).unwrap();
    assert!(held < 100_000, "{held} bytes after 1000 rounds");
}
