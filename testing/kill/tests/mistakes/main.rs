//! Mistakes made on purpose, each of which the kill points must find.

#![cfg(corewire_kill)]

mod broadcast;
mod pairs;
mod shared;

use corewire_kill::engine::{Engine, Mistake, World};
use corewire_layout::slot::SLOT_BYTES;
use corewire_ring::sync::kill::{self, Fate, Stretch};

/// Every operation is killed at every point; the mistake must be found, and be called this.
fn must_be_found<W: World>(called: &str, mistake: Mistake<W>) {
    match Engine::new(Some(mistake)).run(false) {
        Ok(_) => panic!("a mistake was not found that is called: {called}"),
        Err(found) => assert!(found.0.contains(called), "found for another reason: {}", found.0),
    }
}

/// Has each change of a word of the ring take the course that `fate` gives for its offset in its slot,
/// and its value.
fn in_slots(ring: Stretch, fate: fn(usize, u64) -> Fate) {
    kill::make_mistake(Box::new(move |address, value| {
        let is_in_ring = ring.contains(&address);
        if is_in_ring { fate((address - ring.start) % SLOT_BYTES, value) } else { Fate::Made }
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

fn held_back(is_hit: bool) -> Fate {
    if is_hit { Fate::HeldBack } else { Fate::Made }
}
