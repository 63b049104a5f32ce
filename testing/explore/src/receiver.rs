//! A receiver: it delivers, passes what the dead have claimed, and finds its end.

use crate::mutant::Mutant;
use crate::protocol::{Out, Protocol};
use crate::state::{Life, PARTIES_MAX, Receiver, ReceiverAt, Seat, Stamp, State, sender_bit};

/// The rule that a payload is whole and belongs to its sequence.
pub const WRONG_PAYLOAD: &str = "a receiver delivers what was not sent there";
/// The rule that no message is passed over.
pub const PASSED_MESSAGE: &str = "a receiver passes a committed message";
/// The rule that only an evicted receiver loses messages.
pub const LAPPED: &str = "a receiver is lapped without being evicted";
/// The rule that a receiver ends only when no sender was there at one moment of its search.
pub const ENDED_EARLY: &str = "a receiver ends while a sender is there";
/// The rule that a receiver has received all before it ends.
pub const ENDED_WITHOUT: &str = "a receiver ends before a message";
/// The rule that an evicted receiver says so.
pub const EVICTED_SILENTLY: &str = "an evicted receiver ends as if it had received all";

impl Protocol {
    pub(crate) fn receiver_steps(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let receiver = state.receivers[index];
        if matches!(receiver.at, ReceiverAt::Absent | ReceiverAt::Join { .. }) {
            return self.join_steps(state, index, out);
        }
        if receiver.life != Life::Live {
            return;
        }
        let go = |out: &mut Out<'_>, name, at| {
            out.go(name, state.with_receiver(index, Receiver { at, ..receiver }));
        };
        match receiver.at {
            ReceiverAt::Look | ReceiverAt::Idle => self.look_received(state, index, out),
            ReceiverAt::Copy { word } => {
                let words = [word, state.slots[self.slot(receiver.next)].words[1]];
                if self.configuration.can_evict && !self.has(Mutant::DeliverWithoutRecheck) {
                    go(out, "copies the second word", ReceiverAt::Confirm { words });
                } else {
                    self.deliver(state, index, words, out);
                }
            }
            ReceiverAt::Confirm { words } => {
                if self.is_evicted(state, index) {
                    go(out, "drops the copy: it was evicted", ReceiverAt::Leave);
                } else {
                    self.deliver(state, index, words, out);
                }
            }
            ReceiverAt::Judge { row } => {
                let is_dead = self.is_known_dead(state, row, receiver.known);
                if self.has(Mutant::SkipLiveClaim) || is_dead && self.has(Mutant::SkipWithoutReread)
                {
                    self.pass(state, index, "passes a claim", out);
                } else {
                    let at = if is_dead { ReceiverAt::Reread } else { ReceiverAt::Idle };
                    go(out, "loads the row of the claim", at);
                }
            }
            ReceiverAt::Reread => {
                let stamp = self.stamp(state, receiver.next);
                if stamp.sequence == receiver.next && stamp.claimed {
                    self.pass(state, index, "passes a claim", out);
                } else {
                    go(out, "finds the stamp changed", ReceiverAt::Look);
                }
            }
            ReceiverAt::Back { at } => self.look_back(state, index, at, out),
            ReceiverAt::JudgeRun { row } => {
                let is_dead = self.is_known_dead(state, row, receiver.known);
                if is_dead && self.has(Mutant::SkipRunWithoutReread) {
                    self.pass(state, index, "passes an empty slot", out);
                } else {
                    let at = if is_dead { ReceiverAt::RereadOld } else { ReceiverAt::Idle };
                    go(out, "loads the row of the run", at);
                }
            }
            ReceiverAt::RereadOld => {
                if self.stamp(state, receiver.next).sequence < receiver.next {
                    self.pass(state, index, "passes an empty slot", out);
                } else {
                    go(out, "finds the stamp changed", ReceiverAt::Look);
                }
            }
            ReceiverAt::Scan { .. } => self.scan(state, index, out),
            ReceiverAt::LastLook { quiet } => self.last_look(state, index, quiet, out),
            ReceiverAt::Lapped => {
                if self.is_evicted(state, index) {
                    go(out, "finds itself evicted", ReceiverAt::Leave);
                } else {
                    out.fail("loads its own row", LAPPED);
                }
            }
            ReceiverAt::Leave => {
                let mut next = self.freed(state, index, ReceiverAt::Announce);
                if self.has(Mutant::EpochOfJoinsAlone) {
                    next.receivers[index] = Receiver::ABSENT;
                }
                out.go("frees its row", next);
            }
            ReceiverAt::Announce => {
                let mut next = state.with_receiver(index, Receiver::ABSENT);
                next.epoch += 1;
                out.go("counts the change", next);
            }
            ReceiverAt::Absent | ReceiverAt::Join { .. } => {}
        }
    }

    /// Its own row given back, unless somebody has done so.
    pub(crate) fn freed(&self, state: &State, index: usize, at: ReceiverAt) -> State {
        let receiver = state.receivers[index];
        let mut next = state.with_receiver(index, Receiver { at, ..receiver });
        let seat = &mut next.receiver_rows[usize::from(receiver.row)].seat;
        let is_own = match *seat {
            Seat::Free => false,
            Seat::Active(holder) | Seat::Evicted(holder) => usize::from(holder) == index,
            Seat::Reserved { receiver, .. } => usize::from(receiver) == index,
        };
        if is_own {
            *seat = Seat::Free;
        }
        next
    }

    fn is_evicted(&self, state: &State, index: usize) -> bool {
        let row = usize::from(state.receivers[index].row);
        !matches!(state.receiver_rows[row].seat, Seat::Active(holder) if usize::from(holder) == index)
    }

    /// The receiver one slot further. The cursor stays at the head of a run until all of it is
    /// passed: who looks back for that head must still find it.
    fn passed(&self, state: &State, index: usize) -> State {
        let mut receiver = state.receivers[index];
        if self.stamp(state, receiver.next).run
            && self.stamp(state, receiver.next).sequence == receiver.next
        {
            receiver.run_end = self.block_last(receiver.next) + 1;
        }
        receiver.next += 1;
        if receiver.next >= receiver.run_end {
            receiver.run_end = 0;
        }
        receiver.at = ReceiverAt::Look;
        let mut next = state.with_receiver(index, receiver);
        if self.may_store_cursor(&receiver) && !self.configuration.has_lazy_cursors {
            next.receiver_rows[usize::from(receiver.row)].cursor = receiver.next;
        }
        next
    }

    fn may_store_cursor(&self, receiver: &Receiver) -> bool {
        receiver.run_end == 0 || self.has(Mutant::CursorInsideRun)
    }

    /// Goes on without a message.
    fn pass(&self, state: &State, index: usize, name: &'static str, out: &mut Out<'_>) {
        let next = state.receivers[index].next;
        let stamp = self.stamp(state, next);
        if stamp.sequence == next && !stamp.claimed && !stamp.void {
            out.fail(name, PASSED_MESSAGE);
        } else {
            out.go(name, self.passed(state, index));
        }
    }

    fn deliver(&self, state: &State, index: usize, words: [u8; 2], out: &mut Out<'_>) {
        let next = state.receivers[index].next;
        if words.iter().any(|word| word >> 2 != next) || words[0] != words[1] {
            out.fail("delivers", WRONG_PAYLOAD);
        } else {
            out.go("delivers", self.passed(state, index));
        }
    }

    fn look_received(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let receiver = state.receivers[index];
        let Receiver { next, row, .. } = receiver;
        let go = |out: &mut Out<'_>, name, at| {
            out.go(name, state.with_receiver(index, Receiver { at, ..receiver }));
        };
        let stamp = self.stamp(state, next);
        if stamp.sequence > next {
            go(out, "finds itself lapped", ReceiverAt::Lapped);
        } else if stamp.sequence < next {
            // In the middle of a block the slot may belong to a run.
            let is_start = self.block_start(next) == next;
            let at = if is_start { ReceiverAt::Idle } else { ReceiverAt::Back { at: next - 1 } };
            go(out, "finds nothing", at);
        } else if stamp.void {
            out.go("passes a void", self.passed(state, index));
        } else if stamp.claimed {
            go(out, "finds a claim", ReceiverAt::Judge { row: stamp.row });
        } else {
            let word = state.slots[self.slot(next)].words[0];
            go(out, "copies the first word", ReceiverAt::Copy { word });
        }
        let cursor = state.receiver_rows[usize::from(row)].cursor;
        if self.configuration.has_lazy_cursors && self.may_store_cursor(&receiver) && cursor != next
        {
            let mut stored = state.clone();
            if !self.is_evicted(state, index) {
                stored.receiver_rows[usize::from(row)].cursor = next;
                out.go("stores its cursor", stored);
            }
        }
        if self.configuration.receivers[index].may_leave {
            go(out, "wants to leave", ReceiverAt::Leave);
        }
        if receiver.at == ReceiverAt::Idle {
            if self.is_evicted(state, index) && !self.has(Mutant::WaitWithoutRecheck) {
                go(out, "finds itself evicted", ReceiverAt::Leave);
            }
            self.scan_row(state, index, (false, 0, [0; PARTIES_MAX], false), out);
        }
    }

    /// Looks for the head of a run in front of an empty slot.
    fn look_back(&self, state: &State, index: usize, at: u8, out: &mut Out<'_>) {
        let receiver = state.receivers[index];
        let stamp: Stamp = self.stamp(state, at);
        let to = if stamp.sequence == at && stamp.run {
            ReceiverAt::JudgeRun { row: stamp.row }
        } else if at == self.block_start(at) {
            ReceiverAt::Idle
        } else {
            ReceiverAt::Back { at: at - 1 }
        };
        out.go("looks back for a run", state.with_receiver(index, Receiver { at: to, ..receiver }));
    }

    fn scan(&self, state: &State, index: usize, out: &mut Out<'_>) {
        if let ReceiverAt::Scan { again, row, generations, quiet } = state.receivers[index].at {
            self.scan_row(state, index, (again, row, generations, quiet), out);
        }
    }

    /// Loads one row of the senders. Two passes that agree show a moment between them at which no
    /// sender was there; one alone may look at each row while the other is held.
    fn scan_row(
        &self,
        state: &State,
        index: usize,
        place: (bool, u8, [u8; PARTIES_MAX], bool),
        out: &mut Out<'_>,
    ) {
        let (again, row, mut generations, quiet) = place;
        let receiver = state.receivers[index];
        let place = usize::from(row);
        let sender_row = state.sender_rows[place];
        let lives =
            sender_row.holder.is_some_and(|holder| receiver.known & sender_bit(holder) == 0);
        let at = if lives || again && generations[place] != sender_row.generation {
            ReceiverAt::Idle
        } else {
            generations[place] = sender_row.generation;
            let is_last = row + 1 == self.configuration.sender_rows;
            match (is_last, again || self.has(Mutant::EndAfterOneScan)) {
                (true, true) => ReceiverAt::LastLook { quiet },
                (true, false) => ReceiverAt::Scan { again: true, row: 0, generations, quiet },
                (false, _) => ReceiverAt::Scan { again, row: row + 1, generations, quiet },
            }
        };
        out.go("looks for a sender", state.with_receiver(index, Receiver { at, ..receiver }));
    }

    fn last_look(&self, state: &State, index: usize, quiet: bool, out: &mut Out<'_>) {
        const NAME: &str = "looks for the last time";
        let receiver = state.receivers[index];
        // A slot in a run is claimed, whatever its own stamp says.
        let is_in_run = receiver.run_end != 0 && !self.has(Mutant::EndInsideRun);
        let is_empty = self.stamp(state, receiver.next).sequence < receiver.next && !is_in_run;
        if !is_empty && !self.has(Mutant::EndWithoutLastLook) {
            let at = ReceiverAt::Look;
            return out.go(NAME, state.with_receiver(index, Receiver { at, ..receiver }));
        }
        let is_missed =
            |stamp: Stamp| !stamp.claimed && !stamp.void && stamp.sequence >= receiver.next;
        if self.is_evicted(state, index) {
            if self.has(Mutant::WaitWithoutRecheck) {
                return out.fail(NAME, EVICTED_SILENTLY);
            }
        } else if state.slots.iter().any(|slot| is_missed(slot.stamp)) {
            return out.fail(NAME, ENDED_WITHOUT);
        } else if !quiet {
            return out.fail(NAME, ENDED_EARLY);
        }
        let at = ReceiverAt::Leave;
        out.go("ends", state.with_receiver(index, Receiver { at, ..receiver }));
    }
}

impl State {
    pub(crate) fn with_receiver(&self, index: usize, receiver: Receiver) -> Self {
        let mut next = self.clone();
        next.receivers[index] = receiver;
        next
    }
}
