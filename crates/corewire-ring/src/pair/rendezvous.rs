//! The words of large messages: which offers are valid, and who copies which part.
//!
//! # Data path
//!
//! 1. The sender makes the message valid ([`Offers::make`]) and sends an offer with its number.
//! 2. The receiver, whose receive asks for it, begins ([`Puller::begin`]), and copies chunk after chunk from the
//!    beginning ([`Puller::claim`]).
//! 3. The sender, if it is in a call, copies chunk after chunk from the end ([`Helper::claim`]), until both have met.
//! 4. The receiver checks that the offer was valid until then ([`Puller::is_valid`]), and says so in a notice.
//!
//! # Withdrawal
//!
//! A sender's memory is its own again at once: [`Offers::withdraw`] takes the number out of the table, and no receiver
//! takes what it copies from then on for the message. It also tells whether the receiver had not begun. Then the
//! message was never sent, or is sent in another way. Either the receiver sees that the number is gone before it
//! begins, or the sender sees that it has begun (L1, L2).
//!
//! # Claims
//!
//! Each side stores what it claims, and then looks at the other's claim (the THE rule of Cilk): `R` chunks from the
//! beginning, `S` from the end, of which `D` are done. If they overlap, the sender takes its claim back and stops for
//! good. The receiver waits until `S = D`, and then copies what neither has copied. A receiver that claims all chunks
//! ([`Puller::close`]) and finds `S = D` knows that the sender never writes there again.
//!
//! # Cost
//!
//! One store, one full fence and one load for a claim on either side; a line moves for each claim that the other side
//! has made since. Nothing is allocated, and no system call is made.
//!
//! Proofs: `proof/models/tests/models/rendezvous.rs`, `proof/kill/src/pairs.rs`.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use corewire_layout::rendezvous::{
    OFFERS_MAX, helped, helped_parts, offer_index, offer_key, offer_number, pulled, pulled_parts,
};

use super::words::EndpointMemory;
use crate::region::Word64;
use crate::sync::Ordering::Relaxed;
use crate::{fence_at, order};

/// In a word whose offer has ended. No offer has this number: uses are counted from 1.
const NONE: u64 = 0;

/// An endpoint's own table of offers.
#[derive(Debug)]
pub(super) struct Offers {
    memory: EndpointMemory,
    free: Vec<u16>,
    uses: u64,
    /// For each offer: how many copies its receiver had begun when it was made.
    begun: Vec<u16>,
}

impl Offers {
    pub(super) fn new(memory: EndpointMemory) -> Self {
        let free = (0..OFFERS_MAX).rev().collect();
        Self { memory, free, uses: 0, begun: vec![0; OFFERS_MAX.into()] }
    }

    /// The number of a new offer to the peer whose messages `helped` is for, valid from now on. `None` if there are too
    /// many. `pulled` is the peer's word.
    pub(super) fn make(&mut self, helped: &Word64, pulled: &Word64) -> Option<u64> {
        let index = self.free.pop()?;
        self.uses += 1;
        self.begun[usize::from(index)] = pulled_parts(pulled.load(Relaxed)).1;
        let number = offer_number(index, self.uses);
        if helped_parts(helped.load(Relaxed)).0 == offer_key(number) {
            // Of an offer long ago: keys come again.
            helped.store(0, Relaxed);
        }
        // Published with the offer, by the stamp of its slot.
        self.memory.offer(index).store(number, Relaxed);
        Some(number)
    }

    /// The offer is not valid any more: the sender's memory is free.
    pub(super) fn end(&mut self, number: u64) {
        let Some(index) = offer_index(number) else { return };
        let word = self.memory.offer(index);
        if word.load(Relaxed) == number {
            word.store(NONE, Relaxed);
            self.free.push(index);
        }
        // ORDER(L3): pairs with L4; a thread that reads anything that is written there from now on sees that the number is
        // gone.
        fence_at!(L3: Release);
    }

    /// No offer is valid any more.
    pub(super) fn end_all(&mut self) {
        for index in 0..OFFERS_MAX {
            self.memory.offer(index).store(NONE, Relaxed);
        }
        // ORDER(L3): as in `end`.
        fence_at!(L3: Release);
    }

    /// Is this the latest copy that the peer, whose word is `pulled`, has begun?
    pub(super) fn has_begun(number: u64, pulled: &Word64) -> bool {
        pulled_parts(pulled.load(Relaxed)).0 == offer_key(number)
    }

    /// As [`Offers::end`]. True if the peer, whose word is `pulled`, has not begun to copy, and never will.
    pub(super) fn withdraw(&mut self, number: u64, pulled: &Word64) -> bool {
        self.end(number);
        // ORDER(L1): pairs with L2; the peer sees that the number is gone, or this endpoint that the peer has begun.
        fence_at!(L1: SeqCst);
        // The word names the latest copy only: a peer that has begun any since then may have begun this one before.
        let before = offer_index(number).and_then(|index| self.begun.get(usize::from(index)));
        before == Some(&pulled_parts(pulled.load(Relaxed)).1)
    }
}

/// What a receiver may do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Copy these chunks, counted from the beginning.
    Chunks(Range<u32>),
    /// Wait: the sender is copying.
    Busy,
    /// Nothing: everything has been copied, or the offer is closed and the sender is not copying.
    Over,
}

/// The receiver's side of a copy.
#[derive(Debug)]
pub struct Puller {
    pulled: Word64,
    helped: Word64,
    offer: Word64,
    number: u64,
    /// Copies that this endpoint has begun of this peer's messages, this one included.
    begun: u16,
    chunks: u32,
    /// Claimed in the shared word.
    claimed: u32,
    /// Copied, or being copied.
    taken: u32,
    /// Chunks that the sender has copied, once it has stopped for good.
    helped_for_good: Option<u32>,
    /// The sender may copy: only then does its word mean anything.
    is_helped: bool,
}

impl Puller {
    /// For the offer `number` of the endpoint of `peer`, of `chunks` chunks. `None` if that endpoint has no such word.
    pub(super) fn new(
        own: &EndpointMemory,
        row_here: u32,
        peer: &EndpointMemory,
        row_there: u32,
        number: u64,
        chunks: u16,
    ) -> Option<Self> {
        let offer = peer.keep_offer(offer_index(number)?);
        let (pulled, helped) = (own.pulled(row_here), peer.helped(row_there));
        Some(Self {
            pulled,
            helped,
            offer,
            number,
            begun: 0,
            chunks: chunks.into(),
            claimed: 0,
            taken: 0,
            helped_for_good: None,
            is_helped: false,
        })
    }

    /// From now on the sender may copy, too.
    pub fn invite(&mut self) {
        self.is_helped = true;
    }

    /// Begins to copy. False if the sender has taken the offer back: then a notice or the message itself follows.
    #[must_use]
    pub fn begin(&mut self) -> bool {
        self.begun = pulled_parts(self.pulled.load(Relaxed)).1.wrapping_add(1);
        self.pulled.store(pulled(offer_key(self.number), self.begun, 0), Relaxed);
        // ORDER(L2): pairs with L1.
        fence_at!(L2: SeqCst);
        self.offer.load(Relaxed) == self.number
    }

    /// Claims up to `count` chunks, at least one.
    pub fn claim(&mut self, count: u32) -> Claim {
        let count = count.clamp(1, self.chunks.max(1));
        let left = self.chunks - self.taken;
        if left == 0 {
            return Claim::Over;
        }
        if self.helped_for_good.is_none() {
            self.publish((self.taken + count.min(left)).max(self.claimed));
            // ORDER(L6): as L5.
            fence_at!(L6: SeqCst);
            // ORDER(L8): pairs with L7; what the sender has copied is there.
            let (claimed, done) = self.helped_parts();
            if self.claimed + claimed <= self.chunks {
                return self.take(count, self.claimed);
            }
            if claimed != done {
                return Claim::Busy;
            }
            // The sender sees this side's claim before it claims any more, and stops.
            self.helped_for_good = Some(done);
        }
        let end = self.chunks - self.helped_for_good.unwrap_or(0).min(self.chunks);
        self.take(count, end)
    }

    fn take(&mut self, count: u32, end: u32) -> Claim {
        let end = end.min(self.taken.saturating_add(count));
        if self.taken >= end {
            return Claim::Over;
        }
        let chunks = self.taken..end;
        self.taken = end;
        Claim::Chunks(chunks)
    }

    /// Chunks, from the beginning, that this side has claimed and, but for the last claim, copied.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Has the sender begun to copy?
    #[must_use]
    pub fn has_helper(&self) -> bool {
        self.helped_parts().0 > 0
    }

    /// Was the offer valid until now? Must be asked after the last copy.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        // ORDER(L4): pairs with L3; the number is looked at after what was copied.
        fence_at!(L4: Acquire);
        self.offer.load(Relaxed) == self.number
    }

    /// Claims everything that is left, so that the sender stops. [`Claim::Over`] if it has stopped; otherwise
    /// [`Claim::Busy`].
    pub fn close(&mut self) -> Claim {
        self.publish(self.chunks);
        // ORDER(L6): as L5.
        fence_at!(L6: SeqCst);
        let (claimed, done) = self.helped_parts();
        if claimed == done { Claim::Over } else { Claim::Busy }
    }

    fn publish(&mut self, claimed: u32) {
        if claimed != self.claimed {
            self.claimed = claimed;
            let chunks = u16::try_from(claimed).unwrap_or(u16::MAX);
            self.pulled.store(pulled(offer_key(self.number), self.begun, chunks), Relaxed);
        }
    }

    /// Chunks that the sender has claimed, and those of them that it has copied. Impossible values count as none.
    fn helped_parts(&self) -> (u32, u32) {
        if !self.is_helped {
            return (0, 0);
        }
        // ORDER(L8): pairs with L7.
        let word = self.helped.load(order!(L8: Acquire));
        let (key, claimed, done) = helped_parts(word);
        if key == offer_key(self.number) && done <= claimed && u32::from(claimed) <= self.chunks {
            (claimed.into(), done.into())
        } else {
            (0, 0)
        }
    }
}

/// The sender's side of a copy.
#[derive(Debug)]
pub struct Helper {
    helped: Word64,
    pulled: Word64,
    key: u32,
    chunks: u16,
    done: u16,
}

impl Helper {
    /// For this endpoint's offer `number`, of `chunks` chunks, to the peer of `row_here`.
    pub(super) fn new(
        own: &EndpointMemory,
        row_here: u32,
        peer: &EndpointMemory,
        row_there: u32,
        number: u64,
        chunks: u16,
    ) -> Self {
        let (helped, pulled) = (own.helped(row_here), peer.pulled(row_there));
        Self { helped, pulled, key: offer_key(number), chunks, done: 0 }
    }

    /// Claims a chunk, whose number from the beginning it returns. `None` if there is nothing more to do. Must be
    /// followed by [`finish`](Self::finish) or [`give_up`](Self::give_up).
    pub fn claim(&mut self) -> Option<u16> {
        let claimed = self.done.checked_add(1)?;
        if !self.is_free(claimed) {
            return None;
        }
        self.helped.store(helped(self.key, claimed, self.done), Relaxed);
        // ORDER(L5): pairs with L6; one of two claims that overlap sees the other.
        fence_at!(L5: SeqCst);
        if !self.is_free(claimed) {
            self.give_up();
            return None;
        }
        Some(self.chunks - claimed)
    }

    /// The claimed chunk has been copied.
    pub fn finish(&mut self) {
        self.done += 1;
        // ORDER(L7): pairs with L8; what was copied is there.
        self.helped.store(helped(self.key, self.done, self.done), order!(L7: Release));
    }

    /// The claimed chunk has not been copied, and this side copies nothing more.
    pub fn give_up(&mut self) {
        // ORDER(L7): as in `finish`.
        self.helped.store(helped(self.key, self.done, self.done), order!(L7: Release));
        self.chunks = self.done;
    }

    /// Does nobody copy the `claimed`-th chunk from the end?
    fn is_free(&self, claimed: u16) -> bool {
        let (key, _, pulled) = pulled_parts(self.pulled.load(Relaxed));
        let both = u64::from(pulled) + u64::from(claimed);
        key == self.key && both <= u64::from(self.chunks)
    }
}
