//! The states in which an operation begins.

use corewire_layout::segment::SleepMode;
use corewire_ring::sync::Ordering::Relaxed;

use super::sleep::Wanted;
use super::{A, B, C, CELL, LONG, Pairs, SHORT, SLOTS, TWO_SLOTS};
use crate::ensure;

crate::states! {
    /// All endpoints are linked; nothing has been sent.
    New = "new";
    /// The second endpoint polls the first one's ring and has received everything.
    Hot = "hot";
    /// Messages of all kinds from the first to the second endpoint; some are read, some are not.
    Half = "half";
    /// No slot is free, and nothing has been read.
    Full = "full";
    /// All messages but one have been read, and the sender does not know.
    Lapped = "lapped";
    /// The second endpoint's messages hold all cells that it may get, and the rest of a message
    /// waits for one.
    Middle = "middle";
    /// The second endpoint no longer sleeps, and two messages have been announced to it.
    Told = "told";
    /// All messages are read, and the second endpoint sleeps on its doorbell.
    Asleep = "asleep";
    /// The same, asleep on its descriptor.
    Armed = "armed";
    /// No slot is free, and the first endpoint sleeps on its doorbell until there is room.
    Blocked = "blocked";
    /// The same, asleep on its descriptor.
    BlockedArmed = "blocked_armed";
    /// The third endpoint has the first one's ring and has read everything.
    Elsewhere = "elsewhere";
    /// The same, and the first endpoint has begun to take the ring back.
    Ending = "ending";
    /// The same, and the third endpoint has passed the end of the ring.
    Returned = "returned";
    /// The second endpoint holds two messages that lie in blocks of the first one, and has not read two more. All that
    /// was granted is used. The third endpoint holds a message of the second one.
    Held = "held";
    /// The second endpoint has held four such messages and released the first and the third, which the sender does not
    /// know.
    Released = "released";
    /// The second endpoint holds four such messages, and the first one sleeps on its doorbell until one is released.
    Starved = "starved";
    /// The same, asleep on its descriptor.
    StarvedArmed = "starved_armed";
    /// The first endpoint has offered a large message; the second one has not read the offer.
    Offered = "offered";
    /// The same, and the first endpoint sleeps on its doorbell.
    Lent = "lent";
    /// The same, and the first endpoint has taken the offer back.
    TakenBack = "taken_back";
    /// The second endpoint has begun to copy, and has invited the first one to copy, too.
    Begun = "begun";
    /// Each of them has copied one of four chunks.
    Helping = "helping";
    /// The first endpoint copies a chunk, and the second one has copied all that was left.
    Busy = "busy";
    /// Each has copied a chunk, and then the first endpoint has taken the offer back: the message follows as data.
    Pushed = "pushed";
}

impl Pairs {
    /// Brings the endpoints into `state`.
    pub(super) fn bring_to(&mut self, state: State) {
        match state {
            State::New => {}
            State::Hot => self.warm_up(),
            State::Half => {
                for bytes in [SHORT, TWO_SLOTS, CELL, SHORT, CELL] {
                    self.send_at_once(bytes);
                }
                self.receive_one(B, 1);
                self.receive_one(B, 1);
            }
            State::Full => self.fill(),
            State::Lapped => {
                self.warm_up();
                self.fill();
                for _ in 1..SLOTS {
                    self.receive_one(B, 1);
                }
                self.party(B).pairs.publish_cursors();
            }
            State::Middle => {
                self.send_at_once(LONG);
                let has_begun = self.party(A).send(B, LONG);
                ensure!(has_begun && self.party(A).is_sending(), "too much room");
            }
            State::Told => {
                self.warm_up();
                self.put_to_sleep(SleepMode::Futex);
                self.send_at_once(SHORT);
                self.party(B).wake_up();
                self.send_at_once(SHORT);
            }
            State::Asleep => {
                self.warm_up();
                self.put_to_sleep(SleepMode::Futex);
            }
            State::Armed => {
                self.warm_up();
                self.put_to_sleep(SleepMode::Descriptor);
            }
            State::Blocked => self.block(SleepMode::Futex),
            State::BlockedArmed => self.block(SleepMode::Descriptor),
            State::Elsewhere => self.lend_ring(),
            State::Ending => self.end_ring(),
            State::Returned => {
                self.end_ring();
                self.receive_all(C);
            }
            State::Held => {
                self.grant(B, C);
                let is_sent = self.party(B).send_in_place(C);
                self.receive_all(C);
                self.use_grant();
                self.receive_one(B, 1);
                self.receive_one(B, 1);
                ensure!(is_sent && self.party(B).held.len() == 2, "nothing is held");
            }
            State::Released => {
                self.use_grant();
                self.receive_all(B);
                self.party(B).release(2);
                self.party(B).release(0);
            }
            State::Starved => self.starve(SleepMode::Futex),
            State::StarvedArmed => self.starve(SleepMode::Descriptor),
            State::Offered => self.offer_at_once(),
            State::Lent => {
                self.offer_at_once();
                self.receive_all(A);
                let is_asleep = self.party(A).fall_asleep(SleepMode::Futex, Wanted::Nothing);
                ensure!(is_asleep, "nothing to sleep for");
            }
            State::TakenBack => {
                self.offer_at_once();
                self.party(A).withdraw(B);
            }
            State::Begun => self.begin_to_copy(),
            State::Helping => self.copy_at_both_ends(),
            State::Busy => {
                self.copy_at_both_ends();
                let has_claimed = self.claim_chunk(A, B);
                ensure!(has_claimed && self.pull(B, A), "nothing is left to copy");
                ensure!(!self.pull(B, A), "both copy the same");
            }
            State::Pushed => {
                self.copy_at_both_ends();
                self.party(A).withdraw(B);
            }
        }
    }

    fn use_grant(&mut self) {
        while self.party(A).send_in_place(B) {}
    }

    fn starve(&mut self, mode: SleepMode) {
        self.use_grant();
        self.receive_all(B);
        self.receive_all(A);
        let is_asleep = self.party(A).fall_asleep(mode, Wanted::Block(B, 0));
        ensure!(is_asleep, "there is a block although all are held");
    }

    fn offer_at_once(&mut self) {
        ensure!(self.party(A).offer(B), "no room for an offer at the start");
    }

    /// The second endpoint has sent its invitation, and copied nothing.
    fn begin_to_copy(&mut self) {
        self.offer_at_once();
        self.receive_all(B);
        ensure!(self.pull(B, A), "there is no offer");
    }

    fn copy_at_both_ends(&mut self) {
        self.begin_to_copy();
        self.receive_all(A);
        let has_copied = self.pull(B, A) && self.help(A, B);
        ensure!(has_copied, "nothing is copied at the start");
    }

    fn send_at_once(&mut self, bytes: usize) {
        ensure!(self.party(A).send(B, bytes), "no room for {bytes} bytes at the start");
    }

    fn warm_up(&mut self) {
        for _ in 0..3 {
            self.send_at_once(SHORT);
            self.receive_all(B);
        }
    }

    fn fill(&mut self) {
        while self.party(A).send(B, SHORT) {}
    }

    fn put_to_sleep(&mut self, mode: SleepMode) {
        ensure!(self.party(B).fall_asleep(mode, Wanted::Nothing), "nothing to sleep for");
    }

    fn block(&mut self, mode: SleepMode) {
        self.warm_up();
        self.fill();
        self.receive_all(A);
        let cursor = self.party(B).memory.cursor(A.0).load(Relaxed);
        let is_asleep = self.party(A).fall_asleep(mode, Wanted::Room(B, cursor));
        ensure!(is_asleep, "there is room in what is full");
    }

    fn lend_ring(&mut self) {
        ensure!(self.party(A).send(C, SHORT), "no room at the start");
        self.receive_all(C);
        self.party(C).pairs.publish_cursors();
    }

    fn end_ring(&mut self) {
        self.lend_ring();
        ensure!(!self.party(A).send(B, SHORT), "a ring has been given twice");
    }
}
