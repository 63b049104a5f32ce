//! A receiver's half of a channel.

use alloc::sync::Arc;
use core::fmt;
use core::ops::Deref;

use corewire_layout::counters::ReceiverCounter;
use corewire_layout::frame::Welcome;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{FenceMode, HINT, SleepMode};
use corewire_layout::slot::{INLINE_BYTES_MAX, KIND_LARGE, KIND_WINDOW, stamp_of};

use super::notice;
use super::sender::settles;
use super::words::{ReceiverWords, SenderWords, add};
use super::{SLEEP_CAP_NS, UNSURE_SLEEP_CAP_NS};
use crate::region::{Access, Payload, Region, Slot, Slots, Store};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::{Kernel, Trusted, fence_at, order};

/// What a receiver's thread shares with the control thread of its process. Private memory.
#[derive(Default)]
pub struct ReceiverShared {
    /// The word of its own that a waiting receiver sleeps on, beside the sender's bell: the sender
    /// cannot ring to say that it is dead.
    own: AtomicU32,
    notices: AtomicU32,
}

impl ReceiverShared {
    /// Gives the receiver a notice (a bit of [`notice`]), and wakes it if it waits.
    pub fn notify<K: Kernel>(&self, notice: u32, kernel: &K) {
        // ORDER(W3): pairs with W4; what the dead sender published is visible with the notice.
        self.notices.fetch_or(notice, order!(W3: Release));
        // ORDER(W1): pairs with W2; the notice is seen by whom this wakes.
        self.own.fetch_add(1, order!(W1: Release));
        kernel.wake(&self.own, 1);
    }

    /// Tells the receiver that this is a forked child. Only stores.
    pub fn mark_forked(&self) {
        self.notices.fetch_or(notice::FORKED, Relaxed);
    }

    /// The notices given so far.
    #[must_use]
    pub fn notices(&self) -> u32 {
        // ORDER(W4): pairs with W3.
        self.notices.load(order!(W4: Acquire))
    }

    /// Takes one notice back.
    pub fn clear(&self, notice: u32) {
        self.notices.fetch_and(!notice, Relaxed);
    }
}

impl fmt::Debug for ReceiverShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverShared").finish_non_exhaustive()
    }
}

/// A word of the sender's memory that cannot be: its link is closed, nothing else is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sender's memory holds {found:#x} as {word} of message {sequence}")]
pub struct Violation {
    /// Which word.
    pub word: &'static str,
    /// What it holds.
    pub found: u64,
    /// The message it belongs to.
    pub sequence: u64,
}

/// Why no message will come any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The sender closed the channel, and everything it sent has been received.
    Closed,
    /// The sender died or vanished, and everything it committed has been received.
    SenderGone,
}

/// What a receiver is made of.
#[derive(Debug)]
pub struct ReceiverParts {
    /// The sender's segment, read-only, header checked.
    pub sender: Region,
    /// The sizes that its header gave.
    pub geometry: Geometry,
    /// How the sender makes its stamps visible to sleepers.
    pub fence_mode: FenceMode,
    /// The receiver's own segment, writable, header written.
    pub own: Region,
    /// The hint segment, writable, if the channel has one.
    pub hint: Option<Region>,
    /// What the owner said.
    pub welcome: Welcome,
    /// What it shares with its control thread.
    pub shared: Arc<ReceiverShared>,
    /// The kernel's word that the sender is of the same user.
    pub trusted: Trusted,
}

/// A receiver.
#[derive(Debug)]
pub struct Receiver<K> {
    slots: Slots,
    /// The first message it was to get.
    first: u64,
    /// The next message's sequence number: this one is being read, those before are done with.
    next: u64,
    /// When `next` gets here, the cursor is published.
    publish_at: u64,
    /// The cursor as published.
    published: u64,
    /// Publish after this many messages.
    batch: u64,
    /// Payload bytes outside the slots that the published cursor still holds, by area.
    window_held_bytes: u64,
    large_held_bytes: u64,
    /// Payload bytes received outside the slots.
    bytes: u64,
    window: Store,
    large: Store,
    sender: SenderWords,
    own: ReceiverWords,
    hint: Option<Region>,
    shared: Arc<ReceiverShared>,
    epoch: u32,
    /// The sender's blocked epoch, as last served.
    blocked_seen: u32,
    fence_mode: FenceMode,
    /// Where this receiver asked for fences: messages before this one may come without.
    settled: u64,
    trusted: Trusted,
    kernel: K,
}

impl<K: Kernel> Receiver<K> {
    /// A receiver that begins where the owner said.
    #[must_use]
    pub fn new(parts: ReceiverParts, kernel: K) -> Self {
        let ReceiverParts { sender, geometry, own, hint, welcome, .. } = parts;
        let batch = geometry.cursor_batch();
        let receiver = Self {
            slots: Slots::new(&sender, &geometry),
            first: welcome.start,
            next: welcome.start,
            publish_at: welcome.start.saturating_add(batch),
            published: welcome.start,
            batch,
            window_held_bytes: 0,
            large_held_bytes: 0,
            bytes: 0,
            window: Store::new(&sender, geometry.window_offset(), geometry.window_bytes()),
            large: Store::new(&sender, geometry.large_offset(), geometry.large_bytes()),
            sender: SenderWords::new(sender),
            own: ReceiverWords::new(own),
            hint,
            shared: parts.shared,
            epoch: welcome.epoch & !1,
            blocked_seen: 0,
            fence_mode: parts.fence_mode,
            settled: welcome.settled,
            trusted: parts.trusted,
            kernel,
        };
        receiver.own.sleeping().store(receiver.epoch, Relaxed);
        // Nobody's processor, until it has slept once.
        receiver.own.cpu().store(u32::MAX, Relaxed);
        receiver
    }

    /// The sequence number of the next message.
    #[inline]
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// What it shares with its control thread.
    #[must_use]
    pub fn shared(&self) -> &Arc<ReceiverShared> {
        &self.shared
    }

    /// What it asks of the operating system.
    #[must_use]
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// The processor that the sender last ran on; a hint.
    #[must_use]
    pub fn sender_cpu(&self) -> u32 {
        self.sender.cpu().load(Relaxed)
    }

    /// Is the next message there? One load.
    #[inline(always)]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.has(self.next)
    }

    #[inline(always)]
    fn has(&self, sequence: u64) -> bool {
        self.slots.at(sequence).stamp().load(Relaxed) == stamp_of(sequence)
    }

    /// The next message, in place. While there is none, calls `wait`, which waits or gives up.
    ///
    /// # Errors
    /// Whatever `wait` gives up with, or a [`Violation`].
    #[inline(always)]
    pub fn receive_with<E: From<Violation>>(
        &mut self,
        mut wait: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Message<'_, K>, E> {
        loop {
            let slot = self.slots.at(self.next);
            if slot.stamp().load(Relaxed) == stamp_of(self.next) {
                let payload = self.payload_of(slot, self.next)?;
                return Ok(Message { receiver: self, payload });
            }
            wait(self)?;
        }
    }

    /// How many messages from the next one on are there, up to `count_max`.
    #[must_use]
    pub fn ready_count(&self, count_max: u64) -> u64 {
        let count_max = count_max.min(self.slots.count());
        (0..count_max).find(|&i| !self.has(self.next + i)).unwrap_or(count_max)
    }

    /// Message `index` from the next one on, in place, if it is there. It stays whole until
    /// [`Receiver::done`] is called for it.
    ///
    /// # Errors
    /// A [`Violation`].
    pub fn peek(&self, index: u64) -> Result<Option<&[u8]>, Violation> {
        let sequence = self.next + index;
        if index >= self.slots.count() || !self.has(sequence) {
            return Ok(None);
        }
        let payload = self.payload(sequence)?;
        // SAFETY: published, and the cursor does not pass it while `self` is borrowed; the sender
        // is trusted to leave it alone until then. `self` keeps the mapping.
        Ok(Some(unsafe { payload.as_slice(self.trusted) }))
    }

    /// Where message `sequence`, whose stamp is there, has its payload. Each word is read once,
    /// checked, and used.
    fn payload(&self, sequence: u64) -> Result<Payload, Violation> {
        self.payload_of(self.slots.at(sequence), sequence)
    }

    #[inline(always)]
    fn payload_of(&self, slot: Slot<'_>, sequence: u64) -> Result<Payload, Violation> {
        // ORDER(B2): pairs with B1; header and payload are read after the stamp. (A relaxed load
        // and a fence, since the map is read-only.)
        fence_at!(B2: Acquire);
        let header = slot.header().load(Relaxed);
        if header <= INLINE_BYTES_MAX as u64 {
            #[expect(clippy::cast_possible_truncation, reason = "at most 48")]
            return Ok(slot.payload(header as usize, Access::Read));
        }
        self.payload_elsewhere(slot, sequence, header)
    }

    #[inline(never)]
    fn payload_elsewhere(
        &self,
        slot: Slot<'_>,
        sequence: u64,
        header: u64,
    ) -> Result<Payload, Violation> {
        let store = match header {
            KIND_WINDOW => &self.window,
            KIND_LARGE => &self.large,
            found => return Err(Violation { word: "header", found, sequence }),
        };
        let length = slot.length().load(Relaxed);
        let payload = store.payload(slot.position().load(Relaxed), length, Access::Read);
        payload.ok_or(Violation { word: "length", found: length, sequence })
    }

    /// Is done with the next message, of `length` bytes.
    #[inline(always)]
    fn pass(&mut self, length: usize) {
        self.next += 1;
        if length > INLINE_BYTES_MAX {
            self.hold(length as u64);
        }
        if self.next >= self.publish_at {
            self.publish_cursor();
        }
    }

    /// Counts payload outside the slots: an eighth of its area brings the cursor forward.
    #[inline(never)]
    fn hold(&mut self, length: u64) {
        let in_window = length <= self.window.bytes() / 4;
        let (held, area_bytes) = if in_window {
            (&mut self.window_held_bytes, self.window.bytes())
        } else {
            (&mut self.large_held_bytes, self.large.bytes())
        };
        *held += length;
        self.bytes += length;
        if *held >= area_bytes / 8 {
            self.publish_at = self.next;
        }
    }

    /// Is done with the next `count` messages that are there.
    ///
    /// # Errors
    /// A [`Violation`].
    pub fn done(&mut self, count: u64) -> Result<(), Violation> {
        for _ in 0..count {
            if !self.is_ready() {
                break;
            }
            let length = self.payload(self.next)?.bytes();
            self.pass(length);
        }
        Ok(())
    }

    /// Stores the cursor, if it has moved, and wakes a sender that waits for it.
    #[inline(never)]
    pub fn publish_cursor(&mut self) {
        self.publish_at = self.next + self.batch;
        if self.published == self.next {
            return;
        }
        self.published = self.next;
        self.window_held_bytes = 0;
        self.large_held_bytes = 0;
        // ORDER(B3): pairs with B4; our reads are done before the sender writes there again.
        self.own.cursor().store(self.next, order!(B3: Release));
        // ORDER(B10): pairs with B11; a sender that waits sees the cursor, or we see it waiting.
        // A full fence, since it is paid once in a batch, and no registration is needed for it.
        fence_at!(B10: SeqCst);
        let blocked = self.sender.blocked().load(Relaxed);
        if blocked != self.blocked_seen {
            self.blocked_seen = blocked;
            if blocked % 2 == 1 {
                self.wake_sender();
            }
        }
        self.publish_counters();
    }

    #[cold]
    fn wake_sender(&self) {
        let wake = self.own.wake();
        // ORDER(W1): as in `notify`; the cursor is seen by the sender that this wakes.
        wake.store(wake.load(Relaxed).wrapping_add(1), order!(W1: Release));
        self.kernel.wake(wake, 1);
        add(self.own.counter(ReceiverCounter::Wakes), 1);
    }

    /// Will no message come any more? To be asked when [`Receiver::is_ready`] says no.
    ///
    /// # Errors
    /// A [`Violation`], if the sender closed after messages that are not there.
    pub fn end(&self) -> Result<Option<End>, Violation> {
        // In this order: a sender that closes hangs up afterwards, so whoever has been told of the
        // hang-up finds the channel closed; and whoever finds it closed finds the last stamps.
        let notices = self.shared.notices();
        let closed = self.sender.closed().load(Relaxed);
        // ORDER(B9): pairs with B8; the last stamps are visible once the end is.
        fence_at!(B9: Acquire);
        if self.is_ready() {
            return Ok(None);
        }
        if closed != 0 {
            let sequence = self.next;
            return match closed - 1 {
                last if last == self.next => Ok(Some(End::Closed)),
                last => Err(Violation { word: "closed", found: last, sequence }),
            };
        }
        Ok((notices & notice::PEER_GONE != 0).then_some(End::SenderGone))
    }

    /// Sleeps until the next message is there, the channel ends, a notice comes, or `cap_ns` have
    /// passed; may return early.
    pub fn sleep(&mut self, cap_ns: u64) {
        self.publish_cursor();
        // ORDER(W2): pairs with W1; both words are read before looking again, so that whatever
        // changes them in between ends the sleep at once.
        let own = self.shared.own.load(order!(W2: Acquire));
        let bell = self.sender.bell().load(Relaxed);
        let sure = self.announce(SleepMode::Futex);
        if !self.must_look() {
            add(self.own.counter(ReceiverCounter::Sleeps), 1);
            let cap_ns = if sure { cap_ns } else { cap_ns.min(UNSURE_SLEEP_CAP_NS) };
            let word = self.sender.bell();
            let capped = self.kernel.wait((word, bell), (&self.shared.own, own), cap_ns);
            let rung = || self.sender.bell().load(Relaxed) != bell;
            if capped && cap_ns >= SLEEP_CAP_NS && self.is_ready() && !settles(rung) {
                add(self.own.counter(ReceiverCounter::CapFinds), 1);
            }
        }
        self.retract();
        self.own.cpu().store(self.kernel.cpu(), Relaxed);
    }

    /// Announces that it is about to wait for its descriptor. Returns false, and takes that back,
    /// if there is something to look at already.
    pub fn arm(&mut self) -> bool {
        self.publish_cursor();
        // Where the kernel gives no barrier there is no cap to fall back on: a message that was under
        // way during the join, or at this moment, is then noticed with the next one.
        let _ = self.announce(SleepMode::Descriptor);
        if self.must_look() {
            self.retract();
            return false;
        }
        add(self.own.counter(ReceiverCounter::Sleeps), 1);
        true
    }

    /// Takes an announcement back.
    pub fn retract(&mut self) {
        if self.epoch % 2 == 1 {
            self.epoch = self.epoch.wrapping_add(1);
            self.own.sleeping().store(self.epoch, Relaxed);
        }
    }

    /// Makes the epoch odd, where every later stamp's sender sees it. False if the kernel could not
    /// promise that.
    fn announce(&mut self, mode: SleepMode) -> bool {
        self.retract();
        self.own.sleep_mode().store(mode as u32, Relaxed);
        self.epoch = self.epoch.wrapping_add(1);
        // ORDER(B13): pairs with B14; whoever sees the epoch sees its mode.
        self.own.sleeping().store(self.epoch, order!(B13: Release));
        if let Some(hint) = &self.hint {
            // ORDER(B12): pairs with B7; whoever clears the hint sees the epoch. Read-modify-write
            // on both sides, since one clears the hints of many.
            hint.word32(HINT).fetch_or(1, order!(B12: Release));
        }
        // ORDER(B6): pairs with B5; a stamp stored before it is seen by the look that
        // follows, and the sender of one stored after it sees the epoch.
        #[cfg(loom)]
        if crate::sync::is_weakened("B6") {
            return true;
        }
        match self.fence_mode {
            FenceMode::Asymmetric => self.kernel.barrier_everywhere(),
            FenceMode::Fenced => {
                fence_at!(B6: SeqCst);
                self.next >= self.settled
            }
        }
    }

    /// Is there any reason not to sleep?
    fn must_look(&self) -> bool {
        self.is_ready() || self.sender.closed().load(Relaxed) != 0 || self.shared.notices() != 0
    }

    /// Writes out what the data path counts privately.
    pub fn publish_counters(&self) {
        self.own.counter(ReceiverCounter::Messages).store(self.next - self.first, Relaxed);
        self.own.counter(ReceiverCounter::Bytes).store(self.bytes, Relaxed);
    }

    /// Counts one wait for a message.
    pub fn count_wait(&self) {
        add(self.own.counter(ReceiverCounter::Waits), 1);
    }

    /// One of its counters.
    #[must_use]
    pub fn counter(&self, counter: ReceiverCounter) -> u64 {
        self.own.counter(counter).load(Relaxed)
    }
}

/// A message, read where the sender wrote it. Dropping it is being done with it.
#[derive(Debug)]
pub struct Message<'a, K: Kernel> {
    receiver: &'a mut Receiver<K>,
    payload: Payload,
}

impl<K: Kernel> Message<'_, K> {
    /// Its number in the channel, from 0.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.receiver.next
    }
}

impl<K: Kernel> Deref for Message<'_, K> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: published, and the cursor does not pass it before this message is dropped; the
        // sender is trusted to leave it alone until then. The receiver keeps the mapping.
        unsafe { self.payload.as_slice(self.receiver.trusted) }
    }
}

impl<K: Kernel> Drop for Message<'_, K> {
    #[inline(always)]
    fn drop(&mut self) {
        self.payload.end_read();
        let length = self.payload.bytes();
        self.receiver.pass(length);
    }
}
