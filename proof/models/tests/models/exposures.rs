//! Models of memory that peers copy to and from by themselves: what the kernel copies are cells that loom tracks.

use std::sync::Arc;

use corewire_layout::access::Rights;
use corewire_layout::segment::FenceMode::Asymmetric;
use corewire_models::pairs::{ModelEndpoint, Pairs, meet, two};
use corewire_models::{ModelKernel, check_bare, mutants};
use corewire_ring::pair::ExposedPlace;
use corewire_ring::sync::pause;
use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::thread;

const PLACE: ExposedPlace =
    ExposedPlace { address: 64, bytes: 8, origin: 0, rights: Rights::ATOMIC };

/// Exposed memory: the peer writes it while it visits, the owner when nobody does.
struct Memory(UnsafeCell<u64>);

// SAFETY: loom reports accesses that the protocol does not order.
unsafe impl Sync for Memory {}
// SAFETY: as for Sync.
unsafe impl Send for Memory {}

impl Memory {
    fn write(&self) {
        self.0.with_mut(|value| {
            // SAFETY: loom runs one thread at a time.
            unsafe { *value += 1 };
        });
    }
}

/// Copies once, if the memory of `key` is found.
fn copy(visitor: &Pairs, key: u64, memory: &Memory) {
    let visit = visitor.visit(0).unwrap();
    if let Some(place) = visit.find(key, &mut 0) {
        assert_eq!(place, PLACE, "assertion: another place");
        memory.write();
    }
}

/// The same, if the owner looks for visits.
fn copy_if_admitted(visitor: &Pairs, key: u64, memory: &Memory) {
    if let Some(visit) = visitor.visit(0)
        && visit.find(key, &mut 0).is_some()
    {
        memory.write();
    }
}

/// Waits until no peer copies any more.
fn conceal(owner: &mut Pairs, entry: u16) {
    for (_, visited) in owner.conceal(entry) {
        while !visited.is_over() {
            pause();
        }
    }
}

// Keeps P254.
#[test]
fn quick_exposed_memory_is_copied_or_concealed() {
    check_bare(4, || {
        let (_a, mut owner, _b, visitor) = two(Asymmetric);
        let memory = Arc::new(Memory(UnsafeCell::new(0)));
        let (entry, key) = owner.expose(None, &PLACE).unwrap();
        let peer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || copy(&visitor, key, &memory)
        });
        conceal(&mut owner, entry);
        // It is the owner's again.
        memory.write();
        peer.join().unwrap();
    });
}

#[test]
fn quick_an_exposure_is_read_whole() {
    check_bare(4, || {
        let (_a, mut owner, _b, visitor) = two(Asymmetric);
        let peer = thread::spawn(move || {
            let visit = visitor.visit(0).unwrap();
            if let Some(place) = visit.find(7, &mut 0) {
                assert_eq!(place, PLACE, "assertion: another place");
            }
        });
        owner.expose(Some(7), &PLACE).unwrap();
        peer.join().unwrap();
    });
}

// The second memory has the entry and the key of the first one.
#[test]
fn an_entry_is_used_again_when_nobody_visits_it() {
    check_bare(3, || {
        let (_a, mut owner, _b, visitor) = two(Asymmetric);
        let memory = Arc::new(Memory(UnsafeCell::new(0)));
        let (entry, _) = owner.expose(Some(7), &PLACE).unwrap();
        let peer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                let visit = visitor.visit(0).unwrap();
                match visit.find(7, &mut 0) {
                    Some(place) if place == PLACE => memory.write(),
                    Some(place) => assert_eq!((place.address, place.bytes), (128, 16)),
                    None => {}
                }
            }
        });
        conceal(&mut owner, entry);
        memory.write();
        owner.give_exposure_back(entry);
        let other = ExposedPlace { address: 128, bytes: 16, ..PLACE };
        assert_eq!(owner.expose(Some(7), &other), Some((entry, 7)));
        peer.join().unwrap();
    });
}

/// A peer that is linked when memory has been concealed finds nothing, though nobody has looked for its visit.
#[test]
fn quick_a_peer_that_is_linked_late_finds_nothing() {
    check_bare(3, || {
        let kernel = ModelKernel::new(true);
        let a = ModelEndpoint::new(1, Asymmetric, &kernel);
        let b = ModelEndpoint::new(1, Asymmetric, &kernel);
        let (mut owner, mut visitor) = (a.start(), b.start());
        meet(&mut visitor, 0, a.as_peer(0));
        let memory = Arc::new(Memory(UnsafeCell::new(0)));
        let (entry, key) = owner.expose(None, &PLACE).unwrap();
        let peer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || copy_if_admitted(&visitor, key, &memory)
        });
        // The control thread links the peer under its lock, under which the owner has found nobody linked.
        let is_concealed = Arc::new(Mutex::new(false));
        let control = thread::spawn({
            let is_concealed = Arc::clone(&is_concealed);
            move || {
                if *is_concealed.lock().unwrap() {
                    a.admit(0);
                }
            }
        });
        conceal(&mut owner, entry);
        *is_concealed.lock().unwrap() = true;
        memory.write();
        peer.join().unwrap();
        control.join().unwrap();
    });
}

/// A peer that is removed leaves its visit behind.
#[test]
fn quick_a_peer_that_is_removed_does_not_visit() {
    check_bare(3, || {
        let (_a, mut owner, _b, visitor) = two(Asymmetric);
        let memory = Arc::new(Memory(UnsafeCell::new(0)));
        let (entry, key) = owner.expose(None, &PLACE).unwrap();
        let peer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || copy_if_admitted(&visitor, key, &memory)
        });
        let left = owner.dismiss(0);
        owner.remove_peer(0);
        conceal(&mut owner, entry);
        while left.as_ref().is_some_and(|visited| !visited.is_over()) {
            pause();
        }
        memory.write();
        peer.join().unwrap();
    });
}

/// One side takes a request back, the other one begins it: never do both carry it out, and never neither, unless the one that
/// begins it says so.
#[test]
fn quick_a_request_is_taken_back_or_begun() {
    check_bare(4, || {
        let (_a, mut owner, _b, mut asker) = two(Asymmetric);
        let peer = thread::spawn(move || owner.serve(0, 1));
        let is_mine = asker.take_back(0, 1, 1);
        let is_served = peer.join().unwrap();
        assert!(!(is_mine && is_served), "assertion: both carry it out");
    });
}

// What is not found begun although it was is told by an answer: the owner begins the first, and neither of the others.
#[test]
fn requests_after_one_that_was_begun_are_not() {
    check_bare(3, || {
        let (_a, mut owner, _b, mut asker) = two(Asymmetric);
        let peer = thread::spawn(move || [1, 2].map(|number| owner.serve(0, number)));
        let is_mine = asker.take_back(0, 1, 2);
        let served = peer.join().unwrap();
        assert!(!is_mine || served == [false; 2], "assertion: both carry one out");
        assert!(served[0] || !served[1], "assertion: out of order");
    });
}

/// Who finds that a request is done finds what was done.
#[test]
fn quick_a_word_tells_what_was_done() {
    check_bare(4, || {
        let (_a, mut owner, _b, asker) = two(Asymmetric);
        let memory = Arc::new(Memory(UnsafeCell::new(0)));
        let peer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                memory.write();
                owner.finish(0, 1)
            }
        });
        if asker.last_done(0) == 1 {
            memory.write();
        }
        peer.join().unwrap();
    });
}

/// A peer that stops polling takes its request back, or finds it done, or is answered.
#[test]
fn quick_who_polls_no_more_is_answered() {
    check_bare(4, || {
        let (_a, mut owner, _b, mut asker) = two(Asymmetric);
        // What it does not begin it answers, too.
        let peer = thread::spawn(move || !owner.serve(0, 1) || owner.finish(0, 1));
        let is_over = asker.take_back(0, 1, 1) || asker.last_done(0) == 1;
        let is_answered = peer.join().unwrap();
        assert!(is_over || is_answered, "assertion: it waits for ever");
    });
}

mutants! {
    mutant_a7_of_an_answer: A7 => quick_who_polls_no_more_is_answered;
    mutant_a9: A9 => quick_a_word_tells_what_was_done;
    mutant_a10: A10 => quick_a_word_tells_what_was_done;
    mutant_a11: A11 => quick_who_polls_no_more_is_answered;
    mutant_a2_of_a_link: A2 => quick_a_peer_that_is_linked_late_finds_nothing;
    mutant_a2_of_a_removal: A2 => quick_a_peer_that_is_removed_does_not_visit;
    mutant_a7: A7 => quick_a_request_is_taken_back_or_begun;
    mutant_a8: A8 => quick_a_request_is_taken_back_or_begun;
    mutant_a1: A1 => quick_exposed_memory_is_copied_or_concealed;
    mutant_a2: A2 => quick_exposed_memory_is_copied_or_concealed;
    mutant_a3: A3 => quick_an_exposure_is_read_whole;
    mutant_a4: A4 => quick_an_exposure_is_read_whole;
    mutant_a5: A5 => quick_exposed_memory_is_copied_or_concealed;
    mutant_a6: A6 => quick_exposed_memory_is_copied_or_concealed;
}
