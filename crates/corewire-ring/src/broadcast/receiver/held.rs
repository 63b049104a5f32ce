//! Messages that are held after the call that received them. They stay where the sender wrote them, and are released
//! in any order, by any thread.
//!
//! The published cursor stays at the oldest held message. A bitmap with one bit for each slot says which messages are
//! held. It never overflows: until the cursor passes a message, the sender does not reuse the message's slot. A
//! receiver that holds a whole ring makes the sender wait, like a receiver that is slow.
//!
//! 1. The receiver sets the message's bit (H1), and then stores how far it has got: *passed* (H3).
//! 2. A thread that releases a message clears its bit (H1), fences (H5), and searches for the first set bit between
//!    the cursor and *passed* (H2, H4). There it publishes the cursor, with `fetch_max` (B3), and wakes a sender that
//!    waits. It does not wait for the receiver or for another thread, so room is free at once.
//! 3. From its first held message on, the receiver publishes its cursor in the same way, after storing *passed*.
//!
//! The cursor still has one writing process, and only grows: all of its threads use `fetch_max`, and what each of
//! them computes is finished, even if it is old by now. Of two threads that finish something at the same time, the
//! fences make one see both.
//!
//! # Cost
//!
//! A receiver that has never held a message: one branch for each published cursor. Hold: two locked instructions.
//! Release: three locked instructions and two full fences if it moves the cursor, and one fence if an older message is
//! still held. The search reads a word for 64 messages, each once while the cursor passes them.
//!
//! Proofs: `proof/models/tests/models/held.rs`, `proof/models/tests/models/ring.rs`, `proof/kill/src/broadcast.rs`.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;

use corewire_layout::counters::ReceiverCounter;

use super::{InPlace, Message, Receiver};
use crate::broadcast::words::{ReceiverWords, SenderWords};
use crate::channel::ReceiverShared;
use crate::doorbell::{self, notice};
use crate::region::{Payload, Slots};
use crate::shared::ManyParts;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::{Control, Host, fence_at, order};

/// Messages of one word of the bitmap.
const WORD_BITS: u64 = 64;

/// A message that is held: it stays where the sender wrote it, and the receiver continues. Dropping it, on any
/// thread, releases it.
pub struct Held<H: Host> {
    holds: Arc<Holds<H>>,
    payload: Payload,
    sequence: u64,
    in_place: InPlace,
}

impl<H: Host> Held<H> {
    /// Its number in the channel, from 0.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl<H: Host> Deref for Held<H> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: published, and the cursor does not pass it while its bit is set. The sender is trusted not to write
        // it until then. `holds` keeps the mapping.
        unsafe { self.payload.as_slice(self.in_place.0) }
    }
}

impl<H: Host> Drop for Held<H> {
    fn drop(&mut self) {
        self.payload.end_read();
        self.holds.release(self.sequence);
    }
}

impl<H: Host> fmt::Debug for Held<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl<H: Host + Clone> Message<'_, H> {
    /// Finishes the message for the receiver, but holds it until the result is dropped.
    #[must_use]
    pub fn hold(self) -> Held<H> {
        let mut message = ManuallyDrop::new(self);
        let (payload, in_place) = (message.payload.clone(), message.in_place);
        let receiver = &mut *message.receiver;
        let sequence = receiver.next;
        let holds = Arc::clone(receiver.holds());
        holds.add(sequence);
        receiver.pass(payload.bytes());
        // A thread that releases the message finds that the receiver has passed it.
        holds.set_passed(receiver.finished());
        Held { holds, payload, sequence, in_place }
    }
}

impl<H: Host> Receiver<H> {
    /// Has this receiver ever held a message? Then the last of the receiver and its held messages calls
    /// [`Control::leave`] when it is dropped.
    #[must_use]
    pub fn has_held(&self) -> bool {
        self.holds.is_some()
    }
}

impl<H: Host + Clone> Receiver<H> {
    fn holds(&mut self) -> &Arc<Holds<H>> {
        let Self { holds, slots, sender, own, shared, many, host, published, .. } = self;
        holds.get_or_insert_with(|| {
            let many = many.as_ref().map(|many| many.parts());
            let blocked = many.as_ref().map_or_else(|| sender.blocked(), ManyParts::blocked);
            let words = slots.count().div_ceil(WORD_BITS);
            Arc::new(Holds {
                bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
                passed: AtomicU64::new(*published),
                // A sender that waits already must be woken by the first cursor.
                blocked_seen: AtomicU32::new(blocked.load(Relaxed).wrapping_sub(1)),
                slots: slots.clone(),
                sender: sender.clone(),
                own: own.clone(),
                shared: Arc::clone(shared),
                many,
                host: host.clone(),
            })
        })
    }
}

/// What a receiver and its held messages share. Private memory.
#[derive(Debug)]
pub(super) struct Holds<H: Host> {
    /// One bit for each slot, set while the slot's message is held.
    bits: Box<[AtomicU64]>,
    /// The receiver has finished every message below this one, or holds it. Only the receiver's thread stores it.
    passed: AtomicU64,
    /// The word *blocked* as last served.
    blocked_seen: AtomicU32,
    slots: Slots,
    /// Keeps the payload of held messages mapped, too.
    sender: SenderWords,
    own: ReceiverWords,
    shared: Arc<ReceiverShared>,
    many: Option<ManyParts>,
    host: H,
}

impl<H: Host> Holds<H> {
    /// The word of the bitmap for message `sequence`, and the bit's number in it.
    fn bit_of(&self, sequence: u64) -> (&AtomicU64, u64) {
        // The number of slots is a power of two.
        let index = sequence % self.slots.count();
        let word = usize::try_from(index / WORD_BITS).unwrap_or(usize::MAX);
        (&self.bits[word], index % WORD_BITS)
    }

    /// Holds message `sequence`, which the receiver is about to pass.
    fn add(&self, sequence: u64) {
        let (word, bit) = self.bit_of(sequence);
        // ORDER(H1): pairs with H2; a thread that takes this bit for the message one lap earlier sees that the cursor
        // has passed that message.
        word.fetch_or(1 << bit, order!(H1: Release));
    }

    fn set_passed(&self, passed: u64) {
        // ORDER(H3): pairs with H4; the receiver's reads are done, and its bits are set, before another thread
        // publishes a cursor for them.
        self.passed.store(passed, order!(H3: Release));
    }

    /// The receiver has finished every message below `passed`, or holds it.
    pub(super) fn pass(&self, passed: u64) {
        self.set_passed(passed);
        self.publish();
    }

    fn release(&self, sequence: u64) {
        // In a forked child these words belong to nobody. A sender that is gone reads no cursor.
        if self.shared.notices() & (notice::FORKED | notice::PEER_GONE) != 0 {
            return;
        }
        let (word, bit) = self.bit_of(sequence);
        // ORDER(H1): pairs with H2; the message has been read before another thread publishes a cursor that passes it.
        word.fetch_and(!(1 << bit), order!(H1: Release));
        self.publish();
    }

    /// Publishes the cursor if it can move, and wakes a sender that waits for it.
    fn publish(&self) {
        // ORDER(H5): pairs with itself; of two threads that finish something at the same time, one sees both.
        fence_at!(H5: SeqCst);
        let (finished, cursor) = (self.finished(), self.own.cursor());
        if finished <= cursor.load(Relaxed) || self.has_left() {
            return;
        }
        // ORDER(B3): pairs with B4; everything below has been read before the sender writes there again. A store by
        // another thread is not lost: this one continues its release sequence.
        if cursor.fetch_max(finished, order!(B3: Release)) < finished {
            doorbell::fence_before_look();
            self.wake_sender();
        }
    }

    /// Every message below this one is finished.
    fn finished(&self) -> u64 {
        // ORDER(H4): pairs with H3.
        let passed = self.passed.load(order!(H4: Acquire));
        let cursor = self.own.cursor();
        // No cursor may have been stored yet.
        let mut at = cursor.load(Relaxed).max(passed.saturating_sub(self.slots.count()));
        while let Some(held) = self.first_held(at, passed) {
            // If the bit is that of the message one lap later, the cursor has passed this one.
            let now = cursor.load(Relaxed);
            if now <= held {
                // A cursor does not lie inside a run of slots.
                return self.many.as_ref().map_or(held, |many| many.claim_start(held));
            }
            at = now;
        }
        passed
    }

    /// The first held message from `at` on, below `end`.
    fn first_held(&self, mut at: u64, end: u64) -> Option<u64> {
        while at < end {
            let (word, bit) = self.bit_of(at);
            // ORDER(H2): pairs with H1; of a released message, its reads are done.
            let bits = word.load(order!(H2: Acquire)) >> bit;
            if bits != 0 {
                let held = at + u64::from(bits.trailing_zeros());
                return (held < end).then_some(held);
            }
            at += self.slots.count().min(WORD_BITS) - bit;
        }
        None
    }

    /// Has the receiver lost its row in a shared channel, because another process was told that it is dead, or because
    /// it left after an impossible value? The row's words may then belong to another receiver.
    fn has_left(&self) -> bool {
        self.many.as_ref().is_some_and(ManyParts::is_evicted)
    }

    fn wake_sender(&self) {
        let blocked = self.many.as_ref().map_or_else(|| self.sender.blocked(), ManyParts::blocked);
        let blocked = blocked.load(Relaxed);
        // Two threads may both wake: harmless.
        if blocked == self.blocked_seen.load(Relaxed) {
            return;
        }
        self.blocked_seen.store(blocked, Relaxed);
        match &self.many {
            Some(many) => many.make_room(&self.host),
            None if blocked % 2 == 1 => doorbell::ring(self.own.wake(), 1, self.host.kernel()),
            None => return,
        }
        // Not by loading and storing, as the receiver counts: several threads may wake.
        self.own.counter(ReceiverCounter::Wakes).fetch_add(1, Relaxed);
    }
}

impl<H: Host> Drop for Holds<H> {
    fn drop(&mut self) {
        if self.shared.notices() & notice::FORKED == 0 {
            self.host.control().leave();
        }
    }
}
