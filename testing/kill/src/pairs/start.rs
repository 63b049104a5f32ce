//! The states in which an operation begins.

use corewire_layout::segment::SleepMode;
use corewire_ring::sync::Ordering::Relaxed;

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
        }
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
        ensure!(self.party(B).fall_asleep(mode, None), "nothing to sleep for");
    }

    fn block(&mut self, mode: SleepMode) {
        self.warm_up();
        self.fill();
        self.receive_all(A);
        let cursor = self.party(B).memory.cursor(A.0).load(Relaxed);
        let is_asleep = self.party(A).fall_asleep(mode, Some((B, cursor)));
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
