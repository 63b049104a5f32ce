//! Claiming slots, filling and publishing them.
//!
//! Proofs: `proof/models/tests/models/shared.rs`, `proof/kill/src/shared.rs`.

use corewire_layout::slot::{
    CLAIMED, INLINE_BYTES_MAX, RUN_SLOTS_MAX, ahead_of, is_claimed, owner_of, publishes, run_of,
    sequence_of, shared_stamp,
};

use super::Sender;
use crate::region::Access;
use crate::shared::roster::past_claim;
use crate::sync::Ordering::Relaxed;
use crate::{Host, order};

impl<H: Host> Sender<H> {
    /// Claims the next `run` slots, at most 16, for this sender, and returns the first one's sequence
    /// number. While they cannot be claimed, calls `wait`, which waits or gives up.
    #[inline(always)]
    pub(super) fn claim<E>(
        &mut self,
        run: u64,
        wait: &mut impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<u64, E> {
        loop {
            let first = self.tail;
            let stamp = self.roster.slots.at(first).stamp();
            self.prefetch_next(run);
            // ORDER(C1): pairs with C2; the slot's last sender is done writing it before this
            // sender begins.
            let old = stamp.load(order!(C1: Acquire));
            if ahead_of(old, first) >= 0 {
                self.walk();
            } else if first + run > self.limit() || !self.is_over(first, old, run) {
                self.wanted = run;
                let waited = wait(self);
                self.wanted = 1;
                waited?;
            } else {
                let claim = shared_stamp(first, self.entrance.row, run) | CLAIMED;
                // A thread that sees the claim must see the claimer's door (C4). It does: the limit
                // was 0 when the claimer joined, so the fence R3 lies between its door and its
                // first claim.
                // ORDER(C5): pairs with R3; a thread that goes past this claim sees all claims
                // before it.
                if stamp.compare_exchange(old, claim, order!(C5: Release), Relaxed).is_ok() {
                    self.tail = first + run;
                    if (first ^ self.tail) >= RUN_SLOTS_MAX {
                        // ORDER(C5): as above.
                        self.roster.ring.tail().store(self.tail, order!(C5: Release));
                    }
                    return Ok(first);
                }
            }
        }
    }

    /// In a stream, prefetches the slots after the next `run` slots, while those are claimed and
    /// filled: a claim waits for all stores before it, and for its own line. Does so only if the
    /// last message was this sender's own: where several senders take turns, the next claim is
    /// another sender's.
    #[inline(always)]
    fn prefetch_next(&self, run: u64) {
        if self.pace.is_stream() && self.tail == self.sent_end {
            let next = self.tail + run;
            for sequence in next..next + run {
                self.roster.slots.at(sequence).prefetch_to_write(0);
            }
        }
    }

    /// Advances the tail to the first slot that is unclaimed as far as this sender can see.
    #[inline(never)]
    fn walk(&mut self) {
        self.tail = self.tail.max(self.roster.ring.tail().load(Relaxed));
        while let Some(next) = past_claim(&self.roster.slots, self.tail) {
            self.tail = next;
        }
    }

    /// Is the previous life of each of `run` slots over? `old` is the stamp of the first slot. If
    /// not, another sender may still write to a slot, or a receiver may need its stamp.
    #[inline(always)]
    fn is_over(&self, first: u64, old: u64, run: u64) -> bool {
        self.is_slot_over(old) && (run == 1 || self.are_others_over(first, run))
    }

    #[inline(never)]
    fn are_others_over(&self, first: u64, run: u64) -> bool {
        (first + 1..first + run).all(|sequence| {
            // ORDER(C1): as in `claim`.
            let old = self.roster.slots.at(sequence).stamp().load(order!(C1: Acquire));
            self.is_slot_over(old)
        })
    }

    #[inline(always)]
    pub(super) fn is_slot_over(&self, old: u64) -> bool {
        let is_plain = !is_claimed(old) && run_of(old) == 1;
        is_plain || old == 0 || self.is_claim_over(old)
    }

    #[inline(never)]
    fn is_claim_over(&self, old: u64) -> bool {
        if !is_claimed(old) {
            let last = sequence_of(old) + run_of(old) - 1;
            // ORDER(C1): as in `claim`.
            let stamp = self.roster.slots.at(last).stamp().load(order!(C1: Acquire));
            if publishes(stamp, last) || ahead_of(stamp, last) > 0 {
                return true;
            }
        }
        self.roster.is_owner_dead(owner_of(old))
    }

    pub(super) fn can_claim(&self) -> bool {
        let run = self.wanted;
        // ORDER(C1): as in `claim`.
        let old = self.roster.slots.at(self.tail).stamp().load(order!(C1: Acquire));
        let is_ours = self.is_below_limit() && self.is_over(self.tail, old, run);
        ahead_of(old, self.tail) >= 0 || is_ours
    }

    pub(super) fn is_below_limit(&self) -> bool {
        self.tail + self.wanted <= self.limit()
    }

    /// Sends a message of up to 48 bytes. While there is no slot, calls `wait`, which waits or
    /// gives up. Longer messages go through [`Sender::loan_with`].
    ///
    /// # Errors
    /// The error with which `wait` gives up; nothing was sent.
    ///
    /// # Panics
    /// If the message is longer than 48 bytes.
    #[inline(always)]
    pub fn send_inline<E>(
        &mut self,
        message: &[u8],
        mut wait: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(message.len() <= INLINE_BYTES_MAX, "own length");
        let sequence = self.claim(1, &mut wait)?;
        self.fill(sequence, message);
        self.publish(sequence, message.len() as u64, 1);
        self.finish(sequence + 1, 1);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn fill(&self, sequence: u64, message: &[u8]) {
        let slot = self.roster.slots.at(sequence);
        if self.staging.is_some() {
            let mut payload = slot.payload(message.len(), Access::Words);
            // SAFETY: claimed by this sender and not published; a receiver that copies sees words.
            unsafe { payload.copy_in(message) };
        } else {
            let mut payload = slot.payload(message.len(), Access::Write);
            // SAFETY: claimed by this sender and not published, and the slot's previous life is
            // over.
            unsafe { payload.fill(message) };
        }
    }

    /// Publishes a slot of this sender, the first of `run`.
    #[inline(always)]
    pub(super) fn publish(&self, sequence: u64, header: u64, run: u64) {
        let slot = self.roster.slots.at(sequence);
        slot.header().store(header, Relaxed);
        let stamp = shared_stamp(sequence, self.entrance.row, run);
        // ORDER(C2): pairs with B2 and C1; makes header and payload visible with the stamp.
        slot.stamp().store(stamp, order!(C2: Release));
    }

    /// For models of deaths: claims `run` slots, publishes `message` in the first `published` of
    /// them, writes it to the payload of the next slot, and stops there.
    ///
    /// # Errors
    /// The error with which `wait` gives up; nothing was claimed.
    #[cfg(loom)]
    pub fn die_in_run<E>(
        &mut self,
        run: u64,
        published: u64,
        message: &[u8],
        mut wait: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let first = self.claim(run, &mut wait)?;
        for index in 0..published {
            self.fill(first + index, message);
            self.publish(first + index, message.len() as u64, if index == 0 { run } else { 1 });
        }
        if published < run {
            self.fill(first + published, message);
        }
        Ok(())
    }
}
