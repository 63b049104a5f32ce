//! Mistakes among endpoints.

use corewire_kill::engine::stretch;
use corewire_kill::pairs::{A, B, C, Pairs};
use corewire_layout::endpoint::PairState;
use corewire_layout::pair::{SlotKind, kind_of};
use corewire_layout::rendezvous::{OFFERS_MAX, helped, helped_parts, pulled, pulled_parts};
use corewire_layout::slot::{HEADER, POSITION, STAMP};
use corewire_ring::sync::kill::{self, Fate};

use super::{at, held_back, in_slots, must_be_found};

fn lost(is_hit: bool) -> Fate {
    if is_hit { Fate::Lost } else { Fate::Made }
}

#[test]
fn a_stamp_before_its_tag_is_found() {
    must_be_found::<Pairs>("message", |world| {
        in_slots(world.party(A).ring(), |at, _| held_back(at == HEADER));
    });
}

#[test]
fn a_fragment_before_its_length_is_found() {
    must_be_found::<Pairs>("total", |world| {
        in_slots(world.party(A).ring(), |at, _| held_back(at > HEADER));
    });
}

#[test]
fn a_fragment_before_its_place_is_found() {
    must_be_found::<Pairs>("place", |world| {
        in_slots(world.party(A).ring(), |at, _| held_back(at == HEADER + 8));
    });
}

#[test]
fn a_ring_with_the_stamps_of_before_is_found() {
    must_be_found::<Pairs>("messages", |world| {
        in_slots(world.party(A).ring(), |at, value| lost(at == STAMP && value == 0));
    });
}

#[test]
fn a_ring_that_is_not_named_is_found() {
    must_be_found::<Pairs>("messages", |world| {
        at(world.party(A).memory.ring(B.0).as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn a_bit_that_is_not_set_is_found() {
    must_be_found::<Pairs>("messages", |world| {
        at(world.party(B).activity.word(0).as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn a_word_that_is_not_in_the_summary_is_found() {
    must_be_found::<Pairs>("messages", |world| {
        at(world.party(B).activity.summary().as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn a_doorbell_that_is_not_rung_is_found() {
    must_be_found::<Pairs>("left asleep", |world| {
        at(world.party(B).activity.doorbell().as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn a_sleeper_that_is_not_cold_is_found() {
    must_be_found::<Pairs>("left asleep", |world| {
        at(world.party(B).memory.state(A.0).as_ptr().addr(), |value| {
            lost(value == PairState::Cold as u64)
        });
    });
}

#[test]
fn room_that_is_not_told_of_is_found() {
    must_be_found::<Pairs>("no room", |world| {
        at(world.party(B).memory.cursor(A.0).as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn one_who_waits_for_room_and_is_not_rung_is_found() {
    must_be_found::<Pairs>("left asleep", |world| {
        at(world.party(A).activity.doorbell().as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn a_ring_that_is_never_given_back_is_found() {
    must_be_found::<Pairs>("no room", |world| {
        in_slots(world.party(A).ring(), |at, value| {
            lost(at == STAMP && kind_of(value) == Some(SlotKind::End))
        });
    });
}

#[test]
fn an_end_that_is_not_passed_is_found() {
    must_be_found::<Pairs>("no room", |world| {
        at(world.party(C).memory.cursor(A.0).as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn an_endpoint_that_forgets_the_dead_is_found() {
    must_be_found::<Pairs>("of 1 that the dead sent", |world| world.forgets_the_dead = true);
}

/// Decides the fate of each change of a release bit of the second endpoint for the first one.
fn in_releases(world: &mut Pairs, fate: fn(u64) -> Fate) {
    let releases = stretch(&world.party(B).memory.releases(A.0));
    kill::make_mistake(Box::new(
        move |address, bit| {
            if releases.contains(&address) { fate(bit) } else { Fate::Made }
        },
    ));
}

#[test]
fn a_release_that_the_sender_does_not_see_is_found() {
    must_be_found::<Pairs>("in blocks", |world| in_releases(world, |_| Fate::Lost));
}

#[test]
fn a_release_of_another_message_is_found() {
    must_be_found::<Pairs>("has changed while it was held", |world| {
        in_releases(world, |bit| Fate::Changed(bit.rotate_left(1)));
    });
}

#[test]
fn a_block_before_its_place_is_found() {
    must_be_found::<Pairs>("block", |world| {
        in_slots(world.party(A).ring(), |at, value| held_back(at == POSITION && value >> 32 != 0));
    });
}

#[test]
fn blocks_that_stay_with_a_dead_receiver_are_found() {
    must_be_found::<Pairs>("in blocks", |world| world.leaves_blocks_to_the_dead = true);
}

/// Decides the fate of each store to the first endpoint's table of offers.
fn in_offers(world: &mut Pairs, fate: fn(u64) -> Fate) {
    let words = (0..OFFERS_MAX).map(|index| world.party(A).memory.offer(index).as_ptr().addr());
    let words: Vec<_> = words.collect();
    kill::make_mistake(Box::new(
        move |address, number| {
            if words.contains(&address) { fate(number) } else { Fate::Made }
        },
    ));
}

#[test]
fn an_offer_that_is_taken_back_and_stays_valid_is_found() {
    must_be_found::<Pairs>("begun is never sent", |world| {
        in_offers(world, |number| lost(number == 0));
    });
}

#[test]
fn a_claim_that_the_receiver_does_not_see_is_found() {
    must_be_found::<Pairs>("times", |world| {
        at(world.party(A).memory.helped(B.0).as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn a_chunk_that_counts_as_copied_too_early_is_found() {
    must_be_found::<Pairs>("times", |world| {
        at(world.party(A).memory.helped(B.0).as_ptr().addr(), |word| {
            let (key, claimed, _) = helped_parts(word);
            Fate::Changed(helped(key, claimed, claimed))
        });
    });
}

#[test]
fn a_claim_that_the_sender_does_not_see_is_found() {
    must_be_found::<Pairs>("times", |world| {
        at(world.party(B).memory.pulled(A.0).as_ptr().addr(), |word| {
            let (key, begun, _) = pulled_parts(word);
            Fate::Changed(pulled(key, begun, 0))
        });
    });
}
