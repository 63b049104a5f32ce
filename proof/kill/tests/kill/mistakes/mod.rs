//! Deliberate mistakes. The kill points must find each of them.

mod broadcast;
mod pairs;
mod shared;
mod windows;

use corewire_kill::engine::{Engine, Mistake, World};
use corewire_layout::slot::SLOT_BYTES;
use corewire_ring::sync::kill::{self, Fate, Stretch};

/// Kills every operation at every point. The mistake must be found, with a message that contains
/// `called`.
fn must_be_found<W: World>(called: &str, mistake: Mistake<W>) {
    match Engine::new(Some(mistake)).run(false) {
        Ok(_) => panic!("a mistake was not found that is called: {called}"),
        Err(found) => assert!(found.0.contains(called), "found for another reason: {}", found.0),
    }
}

/// Decides the fate of each change of a word of the ring by `fate`, from the word's offset in its
/// slot and the new value.
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
