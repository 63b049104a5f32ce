//! A receiver: it delivers messages, passes the claims of dead senders, and finds the end.

use crate::senders::mutant::Mutant;
use crate::senders::protocol::{Out, Protocol};
use crate::senders::state::{Life, PARTIES_MAX, Receiver, ReceiverAt, Run, Seat, Stamp, State};

/// The rule that a payload is whole and belongs to its sequence.
pub const WRONG_PAYLOAD: &str = "a receiver delivers what was not sent there";
/// The rule that no message is passed without being delivered.
pub const PASSED_MESSAGE: &str = "a receiver passes a committed message";
/// The rule that only an evicted receiver loses messages.
pub const LAPPED: &str = "a receiver is lapped without being evicted";
/// The rule that a receiver ends only if there was a moment during its search when no sender was
/// there.
pub const ENDED_EARLY: &str = "a receiver ends while a sender is there";
/// The rule that a receiver has received all messages before it ends.
pub const ENDED_WITHOUT: &str = "a receiver ends before a message";
/// The rule that an evicted receiver reports its eviction.
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
                if Self::is_evicted(state, index) {
                    go(out, "drops the copy: it was evicted", ReceiverAt::Leave);
                } else {
                    self.deliver(state, index, words, out);
                }
            }
            ReceiverAt::Judge { stamp, owner } => {
                let is_dead = self.is_known_dead(state, owner, receiver.known);
                let is_claim = stamp.sequence == receiver.next;
                let is_hasty = if is_claim {
                    self.has(Mutant::SkipLiveClaim)
                        || is_dead && self.has(Mutant::SkipWithoutReread)
                } else {
                    is_dead && self.has(Mutant::SkipRunWithoutReread)
                };
                if is_hasty {
                    self.pass(state, index, stamp, out);
                } else {
                    let at = if is_dead { ReceiverAt::Reread { stamp } } else { ReceiverAt::Idle };
                    go(out, "loads the row of the claim", at);
                }
            }
            ReceiverAt::Reread { stamp } => {
                if self.stamp(state, receiver.next) == stamp {
                    self.pass(state, index, stamp, out);
                } else {
                    go(out, "finds the stamp changed", ReceiverAt::Look);
                }
            }
            ReceiverAt::Scan { .. } => self.scan(state, index, out),
            ReceiverAt::LastLook { quiet } => self.last_look(state, index, quiet, out),
            ReceiverAt::Lapped => {
                if Self::is_evicted(state, index) {
                    go(out, "finds itself evicted", ReceiverAt::Leave);
                } else {
                    out.fail("loads its own row", LAPPED);
                }
            }
            ReceiverAt::Leave => {
                let mut next = Self::vacated(state, index, ReceiverAt::Look);
                next.receivers[index] = Receiver::ABSENT;
                out.go("frees its row", next);
            }
            ReceiverAt::Absent | ReceiverAt::Join { .. } => {}
        }
    }

    /// Frees the receiver's own row by a swap, which does nothing if the row was already freed.
    pub(crate) fn vacated(state: &State, index: usize, at: ReceiverAt) -> State {
        let receiver = state.receivers[index];
        let mut next = state.with_receiver(index, Receiver { at, ..receiver });
        let row = &mut next.receiver_rows[usize::from(receiver.row)];
        if row.generation == receiver.generation {
            row.seat = Seat::Free;
        }
        next
    }

    fn is_evicted(state: &State, index: usize) -> bool {
        let Receiver { row, generation, .. } = state.receivers[index];
        let row = state.receiver_rows[usize::from(row)];
        row.generation != generation || !matches!(row.seat, Seat::Joined(_))
    }

    /// Notes the run that begins at the receiver's position, if one begins there.
    fn note(receiver: &mut Receiver, stamp: Stamp) {
        if stamp.run > 1 {
            let first = receiver.next;
            receiver.run = Some(Run { first, end: first + stamp.run, owner: stamp.row });
        }
    }

    /// The cursor that the receiver may store: never inside a run, whose first stamp must stay.
    fn cursor(&self, receiver: &Receiver) -> u8 {
        match receiver.run {
            Some(run) if !self.has(Mutant::CursorInsideRun) => run.first,
            _ => receiver.next,
        }
    }

    /// Moves the receiver one slot further.
    fn passed(&self, state: &State, mut receiver: Receiver, index: usize) -> State {
        receiver.next += 1;
        receiver.run = receiver.run.filter(|run| receiver.next < run.end);
        receiver.at = ReceiverAt::Look;
        let mut next = state.with_receiver(index, receiver);
        if !self.configuration.has_lazy_cursors {
            next.receiver_rows[usize::from(receiver.row)].cursor = self.cursor(&receiver);
        }
        next
    }

    /// Moves on without a message; `stamp` is all that the slot holds.
    fn pass(&self, state: &State, index: usize, stamp: Stamp, out: &mut Out<'_>) {
        const NAME: &str = "passes what a dead sender had claimed";
        let mut receiver = state.receivers[index];
        let found = self.stamp(state, receiver.next);
        if found.sequence == receiver.next && !found.claimed {
            return out.fail(NAME, PASSED_MESSAGE);
        }
        if stamp.sequence == receiver.next || self.has(Mutant::NoteOlderStamp) {
            Self::note(&mut receiver, stamp);
        }
        out.go(NAME, self.passed(state, receiver, index));
    }

    fn deliver(&self, state: &State, index: usize, words: [u8; 2], out: &mut Out<'_>) {
        let next = state.receivers[index].next;
        if words != [next; 2] {
            out.fail("delivers", WRONG_PAYLOAD);
        } else {
            out.go("delivers", self.passed(state, state.receivers[index], index));
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
            match receiver.run {
                Some(run) => {
                    let at = ReceiverAt::Judge { stamp, owner: run.owner };
                    go(out, "finds nothing in a run", at);
                }
                None => go(out, "finds nothing", ReceiverAt::Idle),
            }
        } else if stamp.claimed {
            go(out, "finds a claim", ReceiverAt::Judge { stamp, owner: stamp.row });
        } else {
            let word = state.slots[self.slot(next)].words[0];
            let mut receiver = Receiver { at: ReceiverAt::Copy { word }, ..receiver };
            Self::note(&mut receiver, stamp);
            out.go("copies the first word", state.with_receiver(index, receiver));
        }
        let cursor = self.cursor(&receiver);
        if self.configuration.has_lazy_cursors && cursor != receiver.stored {
            let mut next = state.with_receiver(index, Receiver { stored: cursor, ..receiver });
            next.receiver_rows[usize::from(row)].cursor = cursor;
            out.go("stores its cursor", next);
        }
        if self.configuration.receivers[index].may_leave {
            go(out, "wants to leave", ReceiverAt::Leave);
        }
        if receiver.at == ReceiverAt::Idle {
            if Self::is_evicted(state, index) && !self.has(Mutant::WaitWithoutRecheck) {
                go(out, "finds itself evicted", ReceiverAt::Leave);
            }
            // A slot inside a run is claimed, whatever its own stamp says.
            if receiver.run.is_none() || self.has(Mutant::EndInsideRun) {
                self.scan_row(state, index, (false, 0, [0; PARTIES_MAX], false), out);
            }
        }
    }

    fn scan(&self, state: &State, index: usize, out: &mut Out<'_>) {
        if let ReceiverAt::Scan { again, row, generations, quiet } = state.receivers[index].at {
            self.scan_row(state, index, (again, row, generations, quiet), out);
        }
    }

    /// Loads one row of the senders. Two scans that agree show a moment between them at which no
    /// sender was there. A single scan may read each row while another row is held.
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
        let lives = sender_row.holder.is_some() && !self.is_known_dead(state, row, receiver.known);
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
        let is_empty = self.stamp(state, receiver.next).sequence < receiver.next;
        if !is_empty && !self.has(Mutant::EndWithoutLastLook) {
            let at = ReceiverAt::Look;
            return out.go(NAME, state.with_receiver(index, Receiver { at, ..receiver }));
        }
        let is_missed = |stamp: Stamp| !stamp.claimed && stamp.sequence >= receiver.next;
        if Self::is_evicted(state, index) {
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
