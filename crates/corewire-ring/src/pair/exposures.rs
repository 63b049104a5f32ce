//! The table of memory that an endpoint exposes, and the visits of its peers, which copy to and from it by themselves.
//!
//! # Data path
//!
//! 1. The owner writes an entry, and then its state ([`Exposures::add`], A3): peers find it from then on.
//! 2. A peer makes its word of visits odd ([`Visit::begin`], A1), reads the entry ([`Visit::find`], A4), lets the kernel
//!    copy, and makes its word even again when the visit is dropped (A5).
//! 3. The owner conceals the memory ([`Exposures::end`], A2): it clears the state, and then looks at all peers' words. Either
//!    a peer sees that the state is gone, or the owner sees that the peer visits. It uses entry and memory for something
//!    else only when those visits are over ([`Visited::is_over`], A6), or the visitors' processes have ended.
//!
//! The owner looks for visits of the peers that its data thread knows, and of those that the control thread has linked for it
//! and it has not taken in yet. So a peer visits only while its row at the owner *admits* it: from the time on when the
//! control thread has put it among these (A2, A1) until the data thread removes it (A2), which leaves a visit that is under way
//! to its caller.
//!
//! # Requests that are taken back
//!
//! A peer that has asked the owner for a copy may take that back ([`take_back`], A7): it says so, and then looks which
//! requests the owner has begun. The owner says which one it begins ([`serve`], A8), and then looks whether that was taken
//! back. So one that was taken back and that the peer has not found begun is never carried out.
//!
//! # Requests that are done
//!
//! What has no data to tell is not answered, if the peer has asked so: the owner writes its number to a word ([`finish`], A9),
//! which the peer polls ([`last_done`], A10). A peer that stops polling takes its requests back before. If it finds one begun
//! and not done, the owner has found that it was taken back when it was done ([`finish`], A11), and answers it, which wakes the
//! peer.
//!
//! # Cost
//!
//! A visit takes two stores and a full fence, and reads one line of the owner's, two if its entry must be searched for first. No
//! line of the owner's is written.
//!
//! Proofs: `proof/models/tests/models/exposures.rs`.

use corewire_layout::access::{
    EXPOSURES_MAX, Rights, exposure_key, exposure_rights, exposure_state,
};

use super::words::{EndpointMemory, ExposureWords};
use crate::region::Word64;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::{fence_at, order};

/// In a state of an entry that is not used: uses are counted from 1.
const NONE: u64 = 0;

/// Takes requests `first` to `last` back, in this endpoint's word. True if the peer, whose word is `served`, has begun none
/// of them, and never will.
pub(super) fn take_back(taken: &AtomicU64, served: &AtomicU64, first: u64, last: u64) -> bool {
    taken.store(last, Relaxed);
    // ORDER(A7): pairs with A8; the owner sees that the request was taken back, or this endpoint that it has begun.
    fence_at!(A7: SeqCst);
    served.load(Relaxed) < first
}

/// Begins request `number` of a peer, whose word is `taken`. False if it was taken back.
pub(super) fn serve(served: &AtomicU64, taken: &AtomicU64, number: u64) -> bool {
    served.store(number, Relaxed);
    // ORDER(A8): pairs with A7.
    fence_at!(A8: SeqCst);
    taken.load(Relaxed) < number
}

/// Request `number` of a peer, whose word is `taken`, is done. True if the peer may not look: it must be answered.
pub(super) fn finish(done: &AtomicU64, taken: &AtomicU64, number: u64) -> bool {
    // ORDER(A9): pairs with A10; who finds it done finds what was done.
    done.store(number, order!(A9: Release));
    // ORDER(A11): pairs with A7; the owner sees that it was taken back, or the peer that it is done.
    fence_at!(A11: SeqCst);
    taken.load(Relaxed) >= number
}

/// The last request that the peer whose word is `done` has done.
pub(super) fn last_done(done: &AtomicU64) -> u64 {
    // ORDER(A10): pairs with A9.
    done.load(order!(A10: Acquire))
}

/// Where exposed memory lies, and what peers may do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExposedPlace {
    /// The address of its first byte in its owner's memory.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// What peers call its first byte.
    pub origin: u64,
    /// What peers may do with it.
    pub rights: Rights,
}

impl ExposedPlace {
    /// The address of the `bytes` bytes from `offset` on, as peers call it. `None` if it does not reach there.
    #[inline]
    #[must_use]
    pub const fn address_of(&self, offset: u64, bytes: u64) -> Option<u64> {
        let Some(at) = offset.checked_sub(self.origin) else { return None };
        match at.checked_add(bytes) {
            Some(end) if end <= self.bytes => self.address.checked_add(at),
            _ => None,
        }
    }
}

/// An endpoint's own table.
#[derive(Debug)]
pub(super) struct Exposures {
    memory: EndpointMemory,
    is_used: [bool; EXPOSURES_MAX as usize],
    uses: u64,
}

/// All entries, from the one on where memory of this key is looked for first: of a key that the table has given, its own.
fn entries_for(key: u64) -> impl Iterator<Item = u16> {
    // A key that was chosen is spread by its lower bits, which differ.
    let first = (key & 0xffff) % u64::from(EXPOSURES_MAX);
    (0..u64::from(EXPOSURES_MAX))
        .filter_map(move |at| u16::try_from((first + at) % u64::from(EXPOSURES_MAX)).ok())
}

impl Exposures {
    pub(super) fn new(memory: EndpointMemory) -> Self {
        Self { memory, is_used: [false; EXPOSURES_MAX as usize], uses: 0 }
    }

    /// Lets peers find this memory under `key`, or under a key that no other memory ever has. Returns its entry and its key;
    /// `None` if there is no entry free.
    pub(super) fn add(&mut self, key: Option<u64>, place: &ExposedPlace) -> Option<(u16, u64)> {
        let mut entries = entries_for(key.unwrap_or(self.uses));
        let index = entries.find(|index| !self.is_used[usize::from(*index)])?;
        self.is_used[usize::from(index)] = true;
        self.uses += 1;
        let key = key.unwrap_or(exposure_key(index, self.uses));
        let words = self.memory.exposure(index);
        words.key().store(key, Relaxed);
        words.address().store(place.address, Relaxed);
        words.bytes().store(place.bytes, Relaxed);
        words.origin().store(place.origin, Relaxed);
        let state = exposure_state(self.uses, place.rights);
        // ORDER(A3): pairs with A4; who sees the state sees the rest.
        words.state().store(state, order!(A3: Release));
        Some((index, key))
    }

    /// Peers find it no more: those that have found it before are found in their words of visits from here on.
    pub(super) fn end(&mut self, index: u16) {
        self.memory.exposure(index).state().store(NONE, Relaxed);
        // ORDER(A2): pairs with A1; a peer sees that the state is gone, or this endpoint that the peer visits.
        fence_at!(A2: SeqCst);
    }

    /// Nobody visits an entry that has ended: it may be used again.
    pub(super) fn give_back(&mut self, index: u16) {
        if let Some(is_used) = self.is_used.get_mut(usize::from(index)) {
            *is_used = false;
        }
    }
}

/// The owner looks for a peer's visits from now on.
pub(super) fn admit(admits: &AtomicU64) {
    // Who finds this before A1 finds nothing that was concealed before: A2 comes before it, by the lock of the control thread.
    admits.store(1, Relaxed);
}

/// The owner removes a peer: no visit of it begins any more.
pub(super) fn dismiss(admits: &AtomicU64) {
    admits.store(0, Relaxed);
    // ORDER(A2): as in `Exposures::end`.
    fence_at!(A2: SeqCst);
}

/// A visit that was under way when memory was concealed.
#[derive(Debug, Clone)]
pub struct Visited {
    visits: Word64,
    seen: u64,
}

impl Visited {
    /// Of the peer with this word of visits. `None` if it is not on a visit.
    pub(super) fn new(visits: Word64) -> Option<Self> {
        // ORDER(A6): pairs with A5; what the last visit has copied is there.
        let seen = visits.load(order!(A6: Acquire));
        (seen & 1 == 1).then_some(Self { visits, seen })
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        // ORDER(A6): as above.
        self.visits.load(order!(A6: Acquire)) != self.seen
    }
}

/// A visit to what a peer exposes. What was found there is there until it ends, which it does when it is dropped.
#[derive(Debug)]
pub struct Visit {
    visits: Word64,
    number: u64,
    peer: EndpointMemory,
}

impl Visit {
    /// Begins one, with this endpoint's word for it. `None` if the peer does not admit it, in whose segment it has `row_there`.
    pub(super) fn begin(visits: Word64, peer: &EndpointMemory, row_there: u32) -> Option<Self> {
        let is_admitted = || peer.admits(row_there).load(Relaxed) == 1;
        if !is_admitted() {
            return None;
        }
        let number = visits.load(Relaxed) | 1;
        visits.store(number, Relaxed);
        // ORDER(A1): pairs with A2.
        fence_at!(A1: SeqCst);
        let visit = Self { visits, number, peer: peer.clone() };
        // It may have been removed meanwhile.
        is_admitted().then_some(visit)
    }

    /// Finds the memory with this key, perhaps in the entry `hint`, which is set to where it was found.
    #[must_use]
    pub fn find(&self, key: u64, hint: &mut u16) -> Option<ExposedPlace> {
        let last = Some(*hint).filter(|index| *index < EXPOSURES_MAX);
        last.into_iter().chain(entries_for(key)).find_map(|index| {
            let place = Self::read(self.peer.exposure(index), key)?;
            *hint = index;
            Some(place)
        })
    }

    fn read(words: ExposureWords<'_>, key: u64) -> Option<ExposedPlace> {
        // ORDER(A4): pairs with A3.
        let state = words.state().load(order!(A4: Acquire));
        let is_it = state != NONE && words.key().load(Relaxed) == key;
        is_it.then(|| ExposedPlace {
            address: words.address().load(Relaxed),
            bytes: words.bytes().load(Relaxed),
            origin: words.origin().load(Relaxed),
            rights: exposure_rights(state),
        })
    }

    /// Where the peer's incarnation lies in its memory.
    #[must_use]
    pub fn cookie(&self) -> u64 {
        self.peer.cookie().load(Relaxed)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // ORDER(A5): pairs with A6.
        self.visits.store(self.number.wrapping_add(1), order!(A5: Release));
    }
}
