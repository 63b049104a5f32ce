//! Mistakes in the channel of one sender.

use corewire_kill::broadcast::Broadcast;
use corewire_layout::segment::{DoorState, tenure};
use corewire_layout::slot::{HEADER, STAMP};
use corewire_ring::sync::Ordering::Relaxed;
use corewire_ring::sync::kill::Fate;

use super::{at, held_back, in_slots, must_be_found};

#[test]
fn a_stamp_before_its_header_is_found() {
    must_be_found::<Broadcast>("is torn", |world| {
        in_slots(world.ring(), |at, _| held_back(at == HEADER))
    });
}

#[test]
fn a_stamp_before_its_payload_is_found() {
    must_be_found::<Broadcast>("is torn", |world| {
        in_slots(world.ring(), |at, _| held_back(at >= HEADER))
    });
}

#[test]
fn a_stamp_of_another_message_is_found() {
    must_be_found::<Broadcast>("has stamp", |world| {
        in_slots(world.ring(), |at, stamp| match at {
            STAMP => Fate::Changed(stamp + (1 << 12)),
            _ => Fate::Made,
        });
    });
}

#[test]
fn a_cursor_before_the_reading_is_done_is_found() {
    must_be_found::<Broadcast>("accounts for", |world| {
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
    must_be_found::<Broadcast>("is left asleep", |world| {
        at(world.words.bell().as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn a_sender_that_is_not_woken_is_found() {
    must_be_found::<Broadcast>("the sender is left asleep", |world| {
        at(world.receiver_words(0).wake().as_ptr().addr(), |_| Fate::Lost);
    });
}

#[test]
fn a_floor_after_what_is_written_over_is_found() {
    must_be_found::<Broadcast>("is torn", |world| {
        at(world.words.floor().as_ptr().addr(), |_| Fate::HeldBack);
    });
}

#[test]
fn a_door_that_hides_an_eviction_is_found() {
    must_be_found::<Broadcast>("row 1", |world| {
        at(world.words.door_tenure(1).as_ptr().addr(), |value| {
            let is_eviction = value == tenure(1, DoorState::Evicted);
            if is_eviction { Fate::Lost } else { Fate::Made }
        });
    });
}

#[test]
fn an_end_that_counts_wrong_is_found() {
    must_be_found::<Broadcast>("violation", |world| {
        at(world.words.closed().as_ptr().addr(), |value| Fate::Changed(value + 1));
    });
}

#[test]
fn an_owner_that_forgets_the_dead_is_found() {
    must_be_found::<Broadcast>("no room", |world| world.forgets_the_dead = true);
}
