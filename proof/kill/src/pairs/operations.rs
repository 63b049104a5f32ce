//! The operations of the endpoints. To add one, add a line below and run `make kill` to renew its
//! table in `points/`.

use super::{A, B, C, CELL, LONG, MANY_LOOKS, Pairs, Role, SHORT, Start, State, TWO_SLOTS};
use crate::engine::Operation;

/// Whether the first endpoint is free to do something.
fn is_first_awake(start: Start) -> bool {
    use State::{Blocked, BlockedArmed, Lent, Starved, StarvedArmed};
    !matches!(start.state, Blocked | BlockedArmed | Starved | StarvedArmed | Lent)
}

/// Whether the second endpoint is free to do something.
fn is_second_awake(start: Start) -> bool {
    !matches!(start.state, State::Asleep | State::Armed)
}

fn always(_: Start) -> bool {
    true
}

fn is_in_the_middle(start: Start) -> bool {
    start.state == State::Middle
}

/// Whether messages lie in blocks.
fn has_blocks(start: Start) -> bool {
    use State::{Held, Released, Starved, StarvedArmed};
    matches!(start.state, Held | Released | Starved | StarvedArmed)
}

fn has_blocks_and_is_awake(start: Start) -> bool {
    is_first_awake(start) && (has_blocks(start) || start.state == State::New)
}

/// Whether a large message was offered.
fn has_offer(start: Start) -> bool {
    use State::{Begun, Busy, Helping, Lent, Offered, Pushed, TakenBack};
    matches!(start.state, Offered | Lent | TakenBack | Begun | Helping | Busy | Pushed)
}

fn has_offer_and_is_awake(start: Start) -> bool {
    has_offer(start) && is_first_awake(start)
}

fn is_copying(start: Start) -> bool {
    matches!(start.state, State::Begun | State::Helping | State::Busy)
}

fn is_busy(start: Start) -> bool {
    start.state == State::Busy
}

type Line = (&'static str, Role, fn(Start) -> bool, fn(&mut Pairs));

/// Every operation of every role.
pub(super) fn all() -> Vec<Operation<Pairs>> {
    const TABLE: &[Line] = &[
        ("a_sends_short", A, is_first_awake, |w| _ = w.party(A).send(B, SHORT)),
        ("a_sends_two_slots", A, is_first_awake, |w| _ = w.party(A).send(B, TWO_SLOTS)),
        ("a_sends_cell", A, is_first_awake, |w| _ = w.party(A).send(B, CELL)),
        ("a_sends_long", A, is_first_awake, |w| _ = w.party(A).send(B, LONG)),
        ("a_goes_on", A, is_in_the_middle, |w| _ = w.party(A).go_on(B)),
        ("a_sends_batch", A, is_first_awake, |w| {
            for bytes in [SHORT, TWO_SLOTS, CELL] {
                w.party(A).send(B, bytes);
            }
        }),
        ("a_sends_to_c", A, is_first_awake, |w| _ = w.party(A).send(C, SHORT)),
        ("a_makes_room", A, is_first_awake, |w| _ = w.party(A).make_room(B)),
        ("a_sleeps_for_room", A, is_first_awake, |w| w.party(A).sleep(Some(B))),
        ("a_arms_for_room", A, is_first_awake, |w| _ = w.party(A).arm(Some(B))),
        ("a_wakes", A, always, |w| w.party(A).wake_up()),
        ("a_leaves", A, always, |w| {
            w.party(A).wake_up();
            w.party(A).pairs.publish_cursors();
        }),
        ("a_sends_in_place", A, is_first_awake, |w| _ = w.party(A).send_in_place(B)),
        ("a_sends_loan", A, has_blocks_and_is_awake, |w| _ = w.party(A).send_loan(B)),
        ("a_uses_grant", A, has_blocks_and_is_awake, |w| while w.party(A).send_in_place(B) {}),
        ("a_sleeps_for_block", A, has_blocks_and_is_awake, |w| w.party(A).sleep_for_block(B)),
        ("a_offers", A, is_first_awake, |w| _ = w.party(A).offer(B)),
        ("a_receives_and_helps", A, has_offer, |w| {
            w.party(A).wake_up();
            w.receive_all(A);
            while w.help(A, B) {}
        }),
        ("a_copies_claimed", A, is_busy, |w| _ = w.copy_claimed(A, B)),
        ("a_gives_up_chunk", A, is_busy, |w| w.give_up_chunk(A, B)),
        ("a_withdraws", A, has_offer_and_is_awake, |w| w.party(A).withdraw(B)),
        ("a_ends_offers", A, has_offer_and_is_awake, |w| w.party(A).end_offers(B)),
        ("b_receives", B, is_second_awake, |w| _ = w.receive_one(B, 2)),
        ("b_receives_all", B, is_second_awake, |w| w.receive_all(B)),
        ("b_looks_around", B, is_second_awake, |w| while w.receive_one(B, MANY_LOOKS) {}),
        ("b_receives_and_sleeps", B, is_second_awake, |w| {
            w.receive_all(B);
            w.party(B).sleep(None);
        }),
        ("b_receives_and_arms", B, is_second_awake, |w| {
            w.receive_all(B);
            w.party(B).arm(None);
        }),
        ("b_wakes_and_receives", B, always, |w| {
            w.party(B).wake_up();
            w.receive_all(B);
        }),
        ("b_replies", B, is_second_awake, |w| _ = w.party(B).send(A, TWO_SLOTS)),
        ("b_releases", B, has_blocks, |w| w.party(B).release(0)),
        ("b_releases_all", B, has_blocks, |w| w.party(B).release_all()),
        ("b_receives_and_releases", B, has_blocks, |w| {
            w.receive_all(B);
            w.party(B).release_all();
        }),
        ("b_copies", B, has_offer, |w| _ = w.pull(B, A)),
        ("b_copies_all", B, has_offer, |w| {
            w.receive_all(B);
            while w.pull(B, A) {}
        }),
        ("b_cancels", B, is_copying, |w| w.cancel(B, A)),
        ("b_lets_c_go", B, is_second_awake, |w| w.let_go(B, C)),
        ("c_sends_short", C, always, |w| _ = w.party(C).send(B, SHORT)),
        ("c_sends_long", C, always, |w| _ = w.party(C).send(B, LONG)),
        ("c_releases_all", C, has_blocks, |w| w.party(C).release_all()),
        ("c_receives_all", C, always, |w| {
            w.receive_all(C);
            w.party(C).pairs.publish_cursors();
        }),
    ];
    let line =
        |&(name, role, is_in, run): &Line| Operation { name, role, is_in, prepare: |_| {}, run };
    TABLE.iter().map(line).collect()
}
