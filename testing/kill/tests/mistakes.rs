//! Mistakes made on purpose, each of which the kill points must find; and what a death is.

#![cfg(corewire_kill)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use corewire_kill::broadcast::{Broadcast, stretch};
use corewire_kill::engine::{Engine, Mistake};
use corewire_layout::segment::{DoorState, tenure};
use corewire_layout::slot::{HEADER, SLOT_BYTES};
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::Relaxed;
use corewire_ring::sync::kill::{self, Ended, Fate, Plan};

/// Every operation is killed at every point; the mistake must be found, and be called this.
fn must_be_found(called: &str, mistake: Mistake<Broadcast>) {
    match Engine::new(Some(mistake)).run(false) {
        Ok(_) => panic!("a mistake was not found that is called: {called}"),
        Err(found) => assert!(found.0.contains(called), "found for another reason: {}", found.0),
    }
}

/// Has every store to words of the ring at an offset in its slot that `is_it` take this course.
fn in_slots(world: &Broadcast, fate: Fate, is_it: fn(usize) -> bool) {
    let ring = world.ring();
    kill::make_mistake(Box::new(move |address, _| {
        let is_hit = ring.contains(&address) && is_it((address - ring.start) % SLOT_BYTES);
        if is_hit { fate } else { Fate::Made }
    }));
}

/// The same for one word.
fn at(word: usize, fate: impl Fn(u64) -> Fate + 'static) {
    kill::make_mistake(Box::new(
        move |address, value| {
            if address == word { fate(value) } else { Fate::Made }
        },
    ));
}

#[test]
fn a_stamp_before_its_header_is_found() {
    must_be_found("is torn", |world| in_slots(world, Fate::HeldBack, |at| at == HEADER));
}

#[test]
fn a_stamp_before_its_payload_is_found() {
    must_be_found("is torn", |world| in_slots(world, Fate::HeldBack, |at| at >= HEADER));
}

#[test]
fn a_stamp_of_another_message_is_found() {
    must_be_found("has stamp", |world| {
        let ring = world.ring();
        kill::make_mistake(Box::new(move |address, stamp| {
            let is_stamp = ring.contains(&address) && (address - ring.start) % SLOT_BYTES == 0;
            if is_stamp { Fate::Changed(stamp + (1 << 12)) } else { Fate::Made }
        }));
    });
}

#[test]
fn a_cursor_before_the_reading_is_done_is_found() {
    must_be_found("accounts for", |world| {
        for row in 0..2 {
            if let Some(reader) = &world.readers[row as usize] {
                let cursor = reader.ring.next() + 1;
                if cursor <= world.sender.head() {
                    world.receiver_words(row).cursor().store(cursor, Relaxed);
                }
            }
        }
    });
}

#[test]
fn a_bell_that_is_not_rung_is_found() {
    must_be_found("is left asleep", |world| {
        at(world.words.bell().as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn a_sender_that_is_not_woken_is_found() {
    must_be_found("the sender is left asleep", |world| {
        at(world.receiver_words(0).wake().as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn a_floor_after_what_is_written_over_is_found() {
    must_be_found("is torn", |world| {
        at(world.words.floor().as_ptr().addr(), |_| Fate::HeldBack);
    });
}

#[test]
fn a_door_that_hides_an_eviction_is_found() {
    must_be_found("row 1", |world| {
        at(world.words.door_tenure(1).as_ptr().addr(), |value| {
            let is_eviction = value == tenure(1, DoorState::Evicted);
            if is_eviction { Fate::Lost } else { Fate::Made }
        });
    });
}

#[test]
fn an_end_that_counts_wrong_is_found() {
    must_be_found("violation", |world| {
        at(world.words.closed().as_ptr().addr(), |value| Fate::Changed(value + 1));
    });
}

#[test]
fn an_owner_that_forgets_the_dead_is_found() {
    must_be_found("no room", |world| world.forgets_the_dead = true);
}

fn plan(own: &Region, dies_after: Option<u64>) -> Plan {
    Plan { role: "it", own: vec![stretch(own)], dies_after }
}

/// Two pages that are shared, of which a role has the first.
fn pages() -> (Region, Region) {
    let pages = Region::private(8192).unwrap();
    kill::begin(vec![stretch(&pages)], 1000);
    (pages.part(0, 4096).unwrap(), pages.part(4096, 4096).unwrap())
}

struct StoresWhenDropped<'a>(&'a Region);

impl Drop for StoresWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.word64(64).store(9, Relaxed);
    }
}

#[test]
fn the_dead_do_nothing_more() {
    let (own, _) = pages();
    let private = Region::private(4096).unwrap();
    let ended = kill::run(plan(&own, Some(2)), || {
        let _last = StoresWhenDropped(&own);
        own.word64(0).store(1, Relaxed);
        private.word64(0).store(1, Relaxed);
        own.word64(8).fetch_or(2, Relaxed);
        private.word64(8).store(1, Relaxed);
        assert!(own.word64(16).compare_exchange(5, 6, Relaxed, Relaxed).is_err());
        own.word64(24).store(4, Relaxed);
        unreachable!("it is dead");
    });
    assert!(matches!(ended, Ended::Died));
    let words = [0, 8, 16, 24, 64].map(|offset| own.word64(offset).load(Relaxed));
    assert_eq!(words, [1, 2, 0, 0, 0]);
    let own_words = [0, 8].map(|offset| private.word64(offset).load(Relaxed));
    assert_eq!(own_words, [1, 1], "what the process did with its own words while it lived");
}

#[test]
fn only_shared_effects_count() {
    let (own, _) = pages();
    let private = Region::private(4096).unwrap();
    let ended = kill::run(plan(&own, None), || {
        private.word32(0).store(1, Relaxed);
        own.word32(0).store(1, Relaxed);
        assert!(kill::writes(own.address().0.addr().get() + 128, 100));
        assert!(kill::effect());
    });
    assert!(matches!(ended, Ended::Finished((), 3)));
}

#[test]
fn a_store_to_anothers_memory_is_found() {
    let (own, other) = pages();
    let store = || kill::run(plan(&own, None), || other.word64(0).store(1, Relaxed));
    assert!(catch_unwind(AssertUnwindSafe(store)).is_err());
}

#[test]
fn a_hang_is_found() {
    let (own, _) = pages();
    let wait = || kill::run(plan(&own, None), || while own.word64(0).load(Relaxed) == 0 {});
    assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
}
