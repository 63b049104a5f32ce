//! A sender: it enters, claims, publishes, computes its limit, and leaves.

use crate::senders::mutant::Mutant;
use crate::senders::protocol::{Out, Protocol};
use crate::senders::state::{Life, Seat, Sender, SenderAt, Stamp, State};
use crate::senders::walk::Walk;

/// The rule that no sender claims a slot of a live sender's claim.
pub const LIVE_CLAIM_TAKEN: &str = "a slot of a live claim is claimed by another";
/// The rule that claims follow each other without a gap and do not overlap.
pub const CLAIM_MISPLACED: &str = "a claim begins where the one before does not end";
/// The rule that only the owner of a claim changes it.
pub const CLAIM_LOST: &str = "a sender writes where its claim is no more";
/// The rule that a slot that a receiver has passed stays empty.
pub const PASSED_COMMITTED: &str = "a message is committed that a receiver has passed";

impl Protocol {
    pub(crate) fn sender_steps(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let sender = state.senders[index];
        match sender.life {
            Life::Waiting => {
                let enter = Sender { life: Life::Live, ..sender };
                return out.go("starts", state.with_sender(index, enter));
            }
            Life::Dead | Life::Gone if !matches!(sender.at, SenderAt::Let { .. }) => return,
            _ => {}
        }
        let go = |out: &mut Out<'_>, name, at| {
            out.go(name, state.with_sender(index, Sender { at, ..sender }));
        };
        match sender.at {
            SenderAt::Enter => self.enter(state, index, out),
            SenderAt::Let { host, row } => self.let_in(state, index, (host, row), out),
            SenderAt::Look => self.look(state, index, out),
            SenderAt::Tail => {
                let at = sender.next.max(state.tail);
                let next = Sender { next: at, at: SenderAt::Walk(Walk::Pace { at }), ..sender };
                out.go("loads the shared tail", state.with_sender(index, next));
            }
            SenderAt::Walk(walk) => self.walk_on(state, index, walk, out),
            SenderAt::Survey { at, expected } => {
                let stamp = self.stamp(state, at);
                go(
                    out,
                    "loads the next stamp of its run",
                    self.judge(&sender, index, at, stamp, expected),
                );
            }
            SenderAt::Finish { at, expected, head } => {
                let last = head.sequence + head.run - 1;
                let stamp = self.stamp(state, last);
                let is_finished = stamp.sequence > last || stamp.sequence == last && !stamp.claimed;
                let next = if is_finished {
                    self.surveyed(&sender, index, at, expected)
                } else {
                    SenderAt::Judge { at, expected, row: head.row }
                };
                go(out, "loads the last stamp of the old run", next);
            }
            SenderAt::Judge { at, expected, row } => {
                let next = if self.is_known_dead(state, row, sender.known) {
                    self.surveyed(&sender, index, at, expected)
                } else {
                    SenderAt::Look
                };
                go(out, "loads the row of the old claim", next);
            }
            SenderAt::Swap { expected } => self.swap(state, index, expected, out),
            SenderAt::Hint => {
                let at = SenderAt::Write { at: sender.next };
                let mut next = state.with_sender(index, Sender { at, ..sender });
                let by =
                    if self.has(Mutant::HintInsideRun) { 1 } else { self.run(index, sender.sends) };
                next.tail = sender.next + by;
                out.go("stores the shared tail", next);
                go(out, "leaves the shared tail", at);
            }
            SenderAt::Write { at } => self.write(state, index, at, 0, out),
            SenderAt::Publish { at } => self.write(state, index, at, 1, out),
            SenderAt::Refresh
            | SenderAt::Seats { .. }
            | SenderAt::Cursor { .. }
            | SenderAt::Recheck { .. } => self.refresh(state, index, out),
            SenderAt::Held => self.held(state, index, out),
            SenderAt::Leave => {
                if u8::try_from(index).is_ok_and(|host| !Self::is_busy(state, host)) {
                    let Sender { row, at, .. } = sender;
                    let mut next = state.with_sender(index, Sender { row, at, ..Sender::ABSENT });
                    next.sender_rows[usize::from(row)].holder = None;
                    out.go("leaves", next);
                }
            }
        }
    }

    /// The last slot of the claim that `sender` wants or has.
    fn claim_last(&self, sender: &Sender, index: usize) -> u8 {
        sender.next + self.run(index, sender.sends) - 1
    }

    fn look(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let sender = state.senders[index];
        let at = sender.next;
        if self.configuration.has_hint && self.stamp(state, at).sequence >= at {
            let next = state.with_sender(index, Sender { at: SenderAt::Tail, ..sender });
            return out.go("finds its guess claimed", next);
        }
        self.walk_on(state, index, Walk::Pace { at }, out);
    }

    /// Continues to the first slot that no sender has claimed, and checks whether it can be
    /// claimed.
    fn walk_on(&self, state: &State, index: usize, walk: Walk, out: &mut Out<'_>) {
        let sender = state.senders[index];
        let (guess, stamp) = match self.walk(state, walk) {
            Ok(Walk::Pace { at }) => {
                let walks = SenderAt::Walk(Walk::Pace { at });
                let then = if self.configuration.has_hint { walks } else { SenderAt::Look };
                let next = Sender { next: at, at: then, ..sender };
                return out.go("walks on", state.with_sender(index, next));
            }
            Ok(walk) => {
                let next = Sender { at: SenderAt::Walk(walk), ..sender };
                return out.go("was lapped, and looks back", state.with_sender(index, next));
            }
            Err(found) => found,
        };
        let sender = Sender { next: guess, ..sender };
        let below = if self.has(Mutant::LimitFirstSlotAlone) {
            guess
        } else {
            self.claim_last(&sender, index)
        };
        let at = if below >= sender.limit {
            SenderAt::Refresh
        } else {
            self.judge(&sender, index, guess, stamp, stamp)
        };
        out.go("finds its guess free", state.with_sender(index, Sender { at, ..sender }));
    }

    /// Checks whether the previous life that `stamp` shows is over. Returns the next position on
    /// the way to the claim.
    fn judge(
        &self,
        sender: &Sender,
        index: usize,
        at: u8,
        stamp: Stamp,
        expected: Stamp,
    ) -> SenderAt {
        if stamp.claimed && !self.has(Mutant::ClaimOverLiveClaim) {
            SenderAt::Judge { at, expected, row: stamp.row }
        } else if stamp.run > 1 && !self.has(Mutant::ClaimOverLiveRun) {
            SenderAt::Finish { at, expected, head: stamp }
        } else {
            self.surveyed(sender, index, at, expected)
        }
    }

    /// The slot at `at` can be claimed. Returns the next position.
    fn surveyed(&self, sender: &Sender, index: usize, at: u8, expected: Stamp) -> SenderAt {
        if at == self.claim_last(sender, index) || self.has(Mutant::SurveyFirstSlotAlone) {
            SenderAt::Swap { expected }
        } else {
            SenderAt::Survey { at: at + 1, expected }
        }
    }

    fn swap(&self, state: &State, index: usize, expected: Stamp, out: &mut Out<'_>) {
        let sender = state.senders[index];
        let at = sender.next;
        if self.stamp(state, at) != expected && !self.has(Mutant::ClaimByStore) {
            let next = state.with_sender(index, Sender { at: SenderAt::Look, ..sender });
            return out.go("is too late", next);
        }
        let last = self.claim_last(&sender, index);
        for (other_index, other) in state.senders.iter().enumerate() {
            let first = match other.at {
                SenderAt::Hint => other.next,
                SenderAt::Write { at } | SenderAt::Publish { at } => at,
                _ => continue,
            };
            let mut theirs = first..=self.claim_last(other, other_index);
            let is_mine = |theirs| (at..=last).any(|mine| self.slot(mine) == self.slot(theirs));
            if other_index != index && other.life == Life::Live && theirs.any(is_mine) {
                return out.fail("claims", LIVE_CLAIM_TAKEN);
            }
        }
        if at != state.head {
            return out.fail("claims", CLAIM_MISPLACED);
        }
        let has_hint = self.configuration.has_hint;
        let then = if has_hint { SenderAt::Hint } else { SenderAt::Write { at } };
        let mut next = state.with_sender(index, Sender { at: then, ..sender });
        let run = self.run(index, sender.sends);
        next.head = at + run;
        next.slots[self.slot(at)].stamp =
            Stamp { sequence: at, claimed: true, run, row: sender.row };
        out.go("claims", next);
    }

    /// Writes one of the two words of the slot at `at`; with the second word, also the stamp.
    fn write(&self, state: &State, index: usize, at: u8, word: usize, out: &mut Out<'_>) {
        let sender = state.senders[index];
        let run = self.run(index, sender.sends);
        let is_first = at == sender.next;
        let stamp = self.stamp(state, at);
        let own = Stamp { sequence: at, claimed: true, run, row: sender.row };
        // The later slots of a run have no claim of their own.
        if if is_first { stamp != own } else { stamp.sequence >= at } {
            return out.fail("writes", CLAIM_LOST);
        }
        let mut next = state.clone();
        let slot = &mut next.slots[self.slot(at)];
        slot.words[word] = at;
        if word == 0 {
            next.senders[index].at = SenderAt::Publish { at };
            return out.go("writes", next);
        }
        slot.stamp = Stamp { claimed: false, run: if is_first { run } else { 1 }, ..own };
        let is_passed = state.receivers.iter().any(|r| r.start <= at && at < r.next);
        if is_passed {
            return out.fail("publishes", PASSED_COMMITTED);
        }
        next.senders[index] = self.published(sender, index, at);
        out.go("publishes", next);
    }

    fn published(&self, sender: Sender, index: usize, at: u8) -> Sender {
        if at < self.claim_last(&sender, index) {
            return Sender { at: SenderAt::Write { at: at + 1 }, ..sender };
        }
        let sends = sender.sends + 1;
        let is_last = usize::from(sends) == self.configuration.senders[index].sends.len();
        let then = if is_last { SenderAt::Leave } else { SenderAt::Look };
        Sender { sends, next: at + 1, at: then, ..sender }
    }

    /// Computes the limit, with one load per step.
    fn refresh(&self, state: &State, index: usize, out: &mut Out<'_>) {
        const NONE: u8 = u8::MAX;
        let sender = state.senders[index];
        let rows = self.configuration.receiver_rows;
        let seats = |epoch, row, least| {
            if row == rows {
                SenderAt::Recheck { epoch, least }
            } else {
                SenderAt::Seats { epoch, row, least }
            }
        };
        let (name, at) = match sender.at {
            SenderAt::Seats { epoch, row, least } => {
                let seat = state.receiver_rows[usize::from(row)].seat;
                let counts = matches!(seat, Seat::Joined(_));
                let cursor = SenderAt::Cursor { epoch, row, least };
                let at = if counts { cursor } else { seats(epoch, row + 1, least) };
                ("loads a receiver's row", at)
            }
            SenderAt::Cursor { epoch, row, least } => {
                let cursor = state.receiver_rows[usize::from(row)].cursor;
                ("loads a cursor", seats(epoch, row + 1, least.min(cursor)))
            }
            SenderAt::Recheck { epoch, least } => {
                if epoch != state.epoch && !self.has(Mutant::RefreshWithoutEpoch) {
                    let at = SenderAt::Refresh;
                    return out.go(
                        "must refresh again",
                        state.with_sender(index, Sender { at, ..sender }),
                    );
                }
                let ahead = if least == NONE {
                    let is_low = self.has(Mutant::LimitBelowOneRun);
                    sender.next + if is_low { 1 } else { self.configuration.run_max }
                } else {
                    least + self.configuration.slots
                };
                let is_held = self.claim_last(&sender, index) >= ahead;
                let at = if is_held { SenderAt::Held } else { SenderAt::Look };
                let refreshed = Sender { limit: ahead, at, ..sender };
                return out.go("has its limit", state.with_sender(index, refreshed));
            }
            _ => ("loads the epoch", seats(state.epoch, 0, NONE)),
        };
        out.go(name, state.with_sender(index, Sender { at, ..sender }));
    }

    /// What a sender can do about receivers that hold it back.
    fn held(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let sender = state.senders[index];
        out.go("tries again", state.with_sender(index, Sender { at: SenderAt::Look, ..sender }));
        for row in 0..usize::from(self.configuration.receiver_rows) {
            let Seat::Joined(receiver) = state.receiver_rows[row].seat else { continue };
            let mut next = state.with_sender(index, Sender { at: SenderAt::Look, ..sender });
            let is_dead = sender.known.has_receiver(receiver);
            if is_dead && !self.has(Mutant::DeadReceiverCounts) {
                next.receiver_rows[row].seat = Seat::Free;
                out.go("frees a dead receiver's row", next);
            } else if self.configuration.can_evict && !is_dead {
                next.receiver_rows[row].seat = Seat::Evicted(receiver);
                out.suffer("evicts", next);
            }
        }
    }
}

impl State {
    pub(crate) fn with_sender(&self, index: usize, sender: Sender) -> Self {
        let mut next = self.clone();
        next.senders[index] = sender;
        next
    }
}
