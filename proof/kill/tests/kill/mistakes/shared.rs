//! Mistakes in the channel of several senders.

use corewire_kill::shared::Shared;
use corewire_layout::segment::{DoorState, tenure};
use corewire_layout::slot::{CLAIMED, HEADER, RUN_SLOTS_MAX, STAMP, is_claimed, run_of};
use corewire_ring::shared::Party;
use corewire_ring::sync::kill::Fate;

use super::{at, held_back, in_slots, must_be_found};

#[test]
fn a_stamp_of_many_before_its_header_is_found() {
    must_be_found::<Shared>("torn", |world| {
        in_slots(world.ring(), |at, _| held_back(at == HEADER));
    });
}

#[test]
fn a_stamp_of_many_before_its_payload_is_found() {
    must_be_found::<Shared>("torn", |world| {
        in_slots(world.ring(), |at, _| held_back(at >= HEADER));
    });
}

#[test]
fn a_claim_that_hides_its_run_is_found() {
    must_be_found::<Shared>("no room for a run", |world| {
        in_slots(world.ring(), |at, stamp| match at {
            STAMP if is_claimed(stamp) => Fate::Changed(stamp & !((RUN_SLOTS_MAX - 1) << 7)),
            _ => Fate::Made,
        });
    });
}

#[test]
fn a_stamp_that_forgets_its_run_is_found() {
    must_be_found::<Shared>("no room for a run", |world| {
        in_slots(world.ring(), |at, stamp| match at {
            STAMP if run_of(stamp) > 1 && !is_claimed(stamp) => {
                Fate::Changed(stamp & !((RUN_SLOTS_MAX - 1) << 7))
            }
            _ => Fate::Made,
        });
    });
}

#[test]
fn a_claim_by_another_is_found() {
    must_be_found::<Shared>("no room", |world| {
        in_slots(world.ring(), |at, stamp| match at {
            STAMP if is_claimed(stamp) => Fate::Changed(stamp ^ 1),
            _ => Fate::Made,
        });
    });
}

#[test]
fn a_message_published_by_its_claim_is_found() {
    must_be_found::<Shared>("torn", |world| {
        in_slots(world.ring(), |at, stamp| match at {
            STAMP => Fate::Changed(stamp & !CLAIMED),
            _ => Fate::Made,
        });
    });
}

#[test]
fn a_tail_beyond_the_claims_is_found() {
    must_be_found::<Shared>("no room for a run", |world| {
        at(world.observer.ring_words().tail().as_ptr().addr(), |tail| Fate::Changed(tail + 16));
    });
}

#[test]
fn a_cursor_of_many_before_the_reading_is_done_is_found() {
    must_be_found::<Shared>("has said to be at", |world| {
        let word = world.receiver_words(0).cursor().as_ptr().addr();
        at(word, |cursor| Fate::Changed(cursor + 4));
    });
}

#[test]
fn a_bell_of_many_that_is_not_rung_is_found() {
    must_be_found::<Shared>("is left asleep", |world| {
        at(world.observer.ring_words().bell().as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn a_sleeper_that_is_not_counted_is_found() {
    must_be_found::<Shared>("is left asleep", |world| {
        at(world.observer.table_words().sleepers().as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn room_that_nobody_is_told_of_is_found() {
    must_be_found::<Shared>("is left asleep", |world| {
        at(world.observer.table_words().room().as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn one_who_waits_and_is_not_counted_is_found() {
    must_be_found::<Shared>("is left asleep", |world| {
        at(world.observer.ring_words().blocked().as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn deaths_that_nobody_is_told_of_are_found() {
    must_be_found::<Shared>("is left asleep", |world| world.hides_deaths = true);
}

#[test]
fn a_row_that_is_not_given_up_is_found() {
    must_be_found::<Shared>("no room", |world| {
        let door = world.observer.door(Party::Receiver, 1);
        let free = tenure(1, DoorState::Free);
        at(door.tenure().as_ptr().addr(), move |value| match value {
            value if value == free => Fate::Lost,
            _ => Fate::Made,
        });
    });
}

#[test]
fn an_eviction_that_gives_the_row_away_is_found() {
    must_be_found::<Shared>("is told Some(Evicted)", |world| {
        let door = world.observer.door(Party::Receiver, 1);
        let evicted = tenure(1, DoorState::Evicted);
        at(door.tenure().as_ptr().addr(), move |value| match value {
            value if value == evicted => Fate::Changed(tenure(1, DoorState::Free)),
            _ => Fate::Made,
        });
    });
}
