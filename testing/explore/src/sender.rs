//! A sender: it enters, claims, publishes, finds its limit, and leaves.

use crate::mutant::Mutant;
use crate::protocol::{Out, Protocol};
use crate::state::{Life, ReceiverAt, Seat, Sender, SenderAt, Stamp, State, receiver_bit};

/// The rule that a claim takes no slot of one that still lives.
pub const LIVE_CLAIM_TAKEN: &str = "a slot of a live claim is claimed by another";
/// The rule that nobody but its owner touches a claim.
pub const CLAIM_LOST: &str = "a sender writes where its claim is no more";
/// The rule that what a receiver has passed stays empty.
pub const PASSED_COMMITTED: &str = "a message is committed that a receiver has passed";

impl Protocol {
    pub(crate) fn sender_steps(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let sender = state.senders[index];
        match sender.life {
            Life::Waiting => {
                let enter = Sender { life: Life::Live, ..sender };
                return out.go("starts", state.with_sender(index, enter));
            }
            Life::Dead | Life::Gone => return,
            Life::Live => {}
        }
        let go = |out: &mut Out<'_>, name, at| {
            out.go(name, state.with_sender(index, Sender { at, ..sender }));
        };
        match sender.at {
            SenderAt::Enter => self.enter(state, index, out),
            SenderAt::Sweep { row, holder, slot } => {
                self.sweep(state, index, (row, holder, slot), out);
            }
            SenderAt::Doubt { row, holder, slot, stamp } => {
                self.settle(state, index, (row, holder, slot), Some(stamp), out);
            }
            SenderAt::Settle { row, holder, slot, stamp } => {
                let mut next = state.clone();
                let found = &mut next.slots[usize::from(slot)].stamp;
                if *found == stamp {
                    *found = Stamp { claimed: false, void: true, ..stamp };
                }
                next.senders[index].at = SenderAt::Sweep { row, holder, slot };
                out.go("voids a dead sender's claim", next);
            }
            SenderAt::Fill { row, holder, slot, at } => {
                self.fill(state, index, (row, holder, slot), at, out);
            }
            SenderAt::Look => self.look(state, index, out),
            SenderAt::Survey { at, expected } => {
                let stamp = self.stamp(state, at);
                go(
                    out,
                    "loads the next stamp of its run",
                    self.judge(&sender, index, at, stamp, expected),
                );
            }
            SenderAt::Finish { at, expected, head } => {
                let last = self.block_last(head.sequence);
                let stamp = self.stamp(state, last);
                let is_finished = stamp.sequence >= last && !stamp.claimed;
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
            SenderAt::Write { at } => self.write(state, index, at, 0, out),
            SenderAt::Publish { at } => self.write(state, index, at, 1, out),
            SenderAt::Refresh
            | SenderAt::Seats { .. }
            | SenderAt::Cursor { .. }
            | SenderAt::Recheck { .. } => self.refresh(state, index, out),
            SenderAt::Held => self.held(state, index, out),
            SenderAt::Announce => {
                let mut next = state.with_sender(index, Sender { at: SenderAt::Look, ..sender });
                next.epoch += 1;
                out.go("counts the change", next);
            }
            SenderAt::Leave => {
                let is_host = state.receivers.iter().any(|receiver| {
                    matches!(receiver.at, ReceiverAt::Join { host, .. } if usize::from(host) == index)
                        && receiver.life != Life::Gone
                });
                if !is_host {
                    let mut next =
                        state.with_sender(index, Sender { row: sender.row, ..Sender::ABSENT });
                    next.sender_rows[usize::from(sender.row)].holder = None;
                    out.go("leaves", next);
                }
            }
        }
    }

    /// The last slot of the claim that `sender` wants.
    fn claim_last(&self, sender: &Sender, index: usize) -> u8 {
        if self.is_batch(index, sender.sends) { self.block_last(sender.next) } else { sender.next }
    }

    fn look(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let sender = state.senders[index];
        let stamp = self.stamp(state, sender.next);
        if let Some(next) = self.walk(sender.next, stamp) {
            return out.go("walks on", state.with_sender(index, Sender { next, ..sender }));
        }
        let below = if self.has(Mutant::LimitFirstSlotAlone) {
            sender.next
        } else {
            self.claim_last(&sender, index)
        };
        let at = if below >= sender.limit {
            SenderAt::Refresh
        } else {
            self.judge(&sender, index, sender.next, stamp, stamp)
        };
        out.go("finds its guess free", state.with_sender(index, Sender { at, ..sender }));
    }

    /// Is the life that `stamp` tells of over? If so, what is next on the way to the claim.
    fn judge(
        &self,
        sender: &Sender,
        index: usize,
        at: u8,
        stamp: Stamp,
        expected: Stamp,
    ) -> SenderAt {
        let is_last = self.block_last(stamp.sequence) == stamp.sequence;
        if stamp.run && !is_last && !self.has(Mutant::ClaimOverLiveRun) {
            SenderAt::Finish { at, expected, head: stamp }
        } else if stamp.claimed && !self.has(Mutant::ClaimOverLiveClaim) {
            SenderAt::Judge { at, expected, row: stamp.row }
        } else {
            self.surveyed(sender, index, at, expected)
        }
    }

    /// The slot of `at` can be had. What is next?
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
            let (SenderAt::Write { at: first } | SenderAt::Publish { at: first }) = other.at else {
                continue;
            };
            let mut theirs = first..=self.claim_last(other, other_index);
            let is_mine = |theirs| (at..=last).any(|mine| self.slot(mine) == self.slot(theirs));
            if other_index != index && other.life == Life::Live && theirs.any(is_mine) {
                return out.fail("claims", LIVE_CLAIM_TAKEN);
            }
        }
        let mut next = state.with_sender(index, Sender { at: SenderAt::Write { at }, ..sender });
        let run = self.is_batch(index, sender.sends);
        next.slots[self.slot(at)].stamp =
            Stamp { sequence: at, claimed: true, run, void: false, row: sender.row };
        out.go("claims", next);
    }

    /// Writes one of the two words of `at`, and the stamp with the second.
    fn write(&self, state: &State, index: usize, at: u8, word: usize, out: &mut Out<'_>) {
        let sender = state.senders[index];
        let run = self.is_batch(index, sender.sends);
        let is_head = at == sender.next;
        let stamp = self.stamp(state, at);
        let own = Stamp { sequence: at, claimed: true, run, void: false, row: sender.row };
        // The later slots of a run carry no claim of their own.
        if if is_head { stamp != own } else { stamp.sequence >= at } {
            return out.fail("writes", CLAIM_LOST);
        }
        let mut next = state.clone();
        let slot = &mut next.slots[self.slot(at)];
        slot.words[word] = self.payload(index, sender.sends, sender.next, at);
        if word == 0 {
            next.senders[index].at = SenderAt::Publish { at };
            return out.go("writes", next);
        }
        slot.stamp = Stamp { claimed: false, run: run && is_head, ..own };
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

    /// Finds the limit: one load a step.
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
                let is_active =
                    matches!(state.receiver_rows[usize::from(row)].seat, Seat::Active(_));
                let cursor = SenderAt::Cursor { epoch, row, least };
                (
                    "loads a receiver's row",
                    if is_active { cursor } else { seats(epoch, row + 1, least) },
                )
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
                    sender.next + self.configuration.block_slots
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
            let Seat::Active(receiver) = state.receiver_rows[row].seat else { continue };
            let at = if self.has(Mutant::EpochOfJoinsAlone) {
                SenderAt::Look
            } else {
                SenderAt::Announce
            };
            let mut next = state.with_sender(index, Sender { at, ..sender });
            let is_dead = sender.known & receiver_bit(receiver) != 0;
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
