//! How a sender enters: it takes a free row, or that of a dead sender, whose claims it settles.

use crate::mutant::Mutant;
use crate::protocol::{Out, Protocol};
use crate::state::{Sender, SenderAt, SenderRow, Stamp, State, sender_bit};

/// A row, the dead holder that it is to be taken from, and the slot to be looked at.
pub(crate) type Place = (u8, u8, u8);

impl Protocol {
    pub(crate) fn enter(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let sender = state.senders[index];
        for row in 0..self.configuration.sender_rows {
            match state.sender_rows[usize::from(row)].holder {
                None => out.go("takes a free row", self.entered(state, index, row)),
                Some(holder) if sender.known & sender_bit(holder) != 0 => {
                    if self.has(Mutant::ReuseRowWithClaim) {
                        out.go("takes a dead sender's row", self.entered(state, index, row));
                    } else {
                        let at = SenderAt::Sweep { row, holder, slot: 0 };
                        let next = state.with_sender(index, Sender { at, ..sender });
                        out.go("finds a dead sender's row", next);
                    }
                }
                Some(_) => {}
            }
        }
    }

    fn entered(&self, state: &State, index: usize, row: u8) -> State {
        // The hint may be as old as can be.
        let next = self.first();
        let sender = Sender { row, at: self.first_at(index), next, ..state.senders[index] };
        let mut next = state.with_sender(index, sender);
        let generation = state.sender_rows[usize::from(row)].generation + 1;
        let holder = u8::try_from(index).ok();
        next.sender_rows[usize::from(row)] = SenderRow { holder, generation };
        next
    }

    /// Goes once through the ring for what the dead holder of a row has left there: it adds
    /// nothing more.
    pub(crate) fn sweep(&self, state: &State, index: usize, place: Place, out: &mut Out<'_>) {
        let (row, holder, slot) = place;
        let sender = state.senders[index];
        let to = |at| state.with_sender(index, Sender { at, ..sender });
        if slot == self.configuration.slots {
            let is_unchanged = state.sender_rows[usize::from(row)].holder == Some(holder);
            let next =
                if is_unchanged { self.entered(state, index, row) } else { to(SenderAt::Enter) };
            return out.go("swaps itself into the row", next);
        }
        let stamp = state.slots[usize::from(slot)].stamp;
        let counts = stamp.claimed || (stamp.run && !self.has(Mutant::ReuseRowWithRun));
        if !counts || stamp.row != row {
            let next = to(SenderAt::Sweep { row, holder, slot: slot + 1 });
            out.go("finds no claim of the row", next);
        } else if self.has(Mutant::ClaimsOfDeadStay) {
            out.go("finds a claim of the row", to(SenderAt::Enter));
        } else if self.has(Mutant::SettleWithoutRow) {
            self.settle(state, index, place, None, out);
        } else {
            let next = to(SenderAt::Doubt { row, holder, slot, stamp });
            out.go("finds a claim of the row", next);
        }
    }

    /// Loads the row after the claim: if another has taken it meanwhile, the claim may be theirs.
    pub(crate) fn settle(
        &self,
        state: &State,
        index: usize,
        place: Place,
        loaded: Option<Stamp>,
        out: &mut Out<'_>,
    ) {
        let (row, holder, slot) = place;
        let stamp = loaded.unwrap_or(state.slots[usize::from(slot)].stamp);
        let is_theirs = state.sender_rows[usize::from(row)].holder != Some(holder);
        let at = if is_theirs && !self.has(Mutant::SettleWithoutRow) {
            SenderAt::Enter
        } else if stamp.claimed {
            SenderAt::Settle { row, holder, slot, stamp }
        } else {
            SenderAt::Fill { row, holder, slot, at: stamp.sequence + 1 }
        };
        let next = state.with_sender(index, Sender { at, ..state.senders[index] });
        out.go("loads the row of the claim", next);
    }

    /// Voids the next slot of a run, unless it has been written. Load and swap are one step here:
    /// if the stamp changes between them, the swap fails and both are done again.
    pub(crate) fn fill(
        &self,
        state: &State,
        index: usize,
        place: Place,
        at: u8,
        out: &mut Out<'_>,
    ) {
        let (row, holder, slot) = place;
        let mut next = state.clone();
        let is_over = at > self.block_last(at - 1);
        let stamp = &mut next.slots[self.slot(at)].stamp;
        if !is_over && stamp.sequence < at {
            *stamp = Stamp { sequence: at, claimed: false, run: false, void: true, row };
        }
        next.senders[index].at = if is_over {
            SenderAt::Sweep { row, holder, slot: slot + 1 }
        } else {
            SenderAt::Fill { row, holder, slot, at: at + 1 }
        };
        out.go("voids the rest of a run", next);
    }
}
