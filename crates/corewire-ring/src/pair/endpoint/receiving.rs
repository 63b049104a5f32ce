//! Taking the message at the head of a pair, and publishing cursors.

use corewire_layout::counters::EndpointCounter;

use super::Endpoint;
use super::turns::{Polling, Turn};
use crate::cold::rarely;
use crate::message::{Arrival, Envelope, Sink, Space, Wanted, Wants};
use crate::pair::PairViolation;
use crate::pair::inbox::{CLOSED, Inline};
use crate::sync::Ordering::Relaxed;
use crate::{Host, Kernel};

/// The result of [`Endpoint::take_inline`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short {
    /// There is no message.
    Nothing,
    /// A message was taken.
    Taken {
        /// Its sender's row and generation, as [bits](Wanted::source_bits).
        source: u64,
        /// Its tag, or its number.
        tag: u64,
        /// Its immediate.
        immediate: Option<u64>,
        /// Its length.
        bytes: usize,
    },
    /// The pair of this row has something at its head that cannot be taken this way.
    Other(u32),
}

impl<H: Host> Endpoint<H> {
    /// Takes the next message if it fits a slot and `target`, its pair is open, and `wanted` matches it. Checks nothing
    /// else: this is the path of most messages.
    #[inline(always)]
    pub fn take_inline(&mut self, polling: Polling, wanted: &Wanted, target: &mut [u8]) -> Short {
        // A found pair goes through the loop again, not to a copy of the code below: such a copy would be in no cache,
        // because it would not have run while the pair was silent.
        loop {
            if let Some((head, below)) = self.watch.current(self.polls) {
                let row = head.row();
                let Some(peer) = self.peers.get_mut(row) else {
                    return Short::Other(row);
                };
                let inbox = &mut peer.inbox;
                debug_assert!(head.is_at(inbox.next()), "the head is where its inbox is");
                let Some(message) = inbox.short_arrival(head.slot(), below, wanted.space) else {
                    rarely();
                    return Short::Other(row);
                };
                let Inline { tag, immediate, bytes } = message;
                let source = inbox.source();
                if bytes > target.len() || !wanted.takes(source, tag) {
                    rarely();
                    return Short::Other(row);
                }
                if inbox.is_published() {
                    rarely();
                    self.dirty[row as usize / 64] |= 1 << (row % 64);
                }
                let is_due = inbox.copy_short_out(head.slot(), &message, target);
                head.step(inbox.next());
                if is_due {
                    rarely();
                    self.publish(row, false);
                }
                return Short::Taken { source, tag, immediate, bytes };
            }
            rarely();
            match self.turn_to_another(polling) {
                Turn::Found => {}
                Turn::Nobody => return Short::Nothing,
                Turn::Strange(row) => return Short::Other(row),
            }
        }
    }

    /// Takes the next message if it fits a slot, its pair is open, receives ask for messages of its space, it requests no
    /// acknowledgement, and `find` returns memory for it, by its space, [source](Wanted::source_bits), tag and length. The
    /// way of most messages to receives that wait.
    #[inline(always)]
    pub fn take_matched<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        find: impl FnOnce(Space, u64, u64, usize) -> Option<&'a mut S>,
    ) -> Short {
        loop {
            if let Some((head, below)) = self.watch.current(self.polls) {
                let row = head.row();
                let Some(peer) = self.peers.get_mut(row) else {
                    return Short::Other(row);
                };
                let inbox = &mut peer.inbox;
                let Some((space, message)) = inbox.matched_arrival(head.slot(), below) else {
                    rarely();
                    return Short::Other(row);
                };
                let Inline { tag, immediate, bytes } = message;
                let source = inbox.source();
                let Some(target) = find(space, source, tag, bytes) else {
                    return Short::Other(row);
                };
                if inbox.is_published() {
                    rarely();
                    self.dirty[row as usize / 64] |= 1 << (row % 64);
                }
                let is_due = inbox.put_short(head.slot(), &message, target);
                head.step(inbox.next());
                if is_due {
                    rarely();
                    self.publish(row, false);
                }
                return Short::Taken { source, tag, immediate, bytes };
            }
            rarely();
            match self.turn_to_another(Polling::Once) {
                Turn::Found => {}
                Turn::Nobody => return Short::Nothing,
                Turn::Strange(row) => return Short::Other(row),
            }
        }
    }

    /// Is there another message behind the last one that was taken? One load.
    #[inline(always)]
    #[must_use]
    pub fn has_another(&mut self) -> bool {
        self.watch.current(self.polls).is_some()
    }

    /// The same as [`take_matched`](Self::take_matched), for a whole message of any space at the head of the pair of `row`,
    /// which may take several slots or lie in a cell.
    #[inline]
    pub fn take_whole<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        row: u32,
        find: impl FnOnce(Space, u64, u64, usize) -> Option<&'a mut S>,
    ) -> Short {
        let Some(peer) = self.peer(row) else { return Short::Other(row) };
        let source = peer.inbox.source();
        // The call that asks for the arrival reports a violation. The arrival is read in place: a copy would have to
        // wait for the stores just before.
        let found = peer.inbox.arrival();
        let Ok(Some(arrival)) = &found else { return Short::Other(row) };
        let Envelope { space, tag, immediate, wants } = arrival.envelope;
        let bytes = arrival.bytes;
        if !arrival.is_whole() || wants != Wants::Nothing || source == CLOSED {
            return Short::Other(row);
        }
        let Some(target) = find(space, source, tag, bytes) else { return Short::Other(row) };
        if arrival.is_in_place() {
            self.copy_held(row, arrival, target);
        } else {
            peer.inbox.copy(arrival, 0, target);
        }
        self.pass(row, arrival);
        Short::Taken { source, tag, immediate, bytes }
    }

    /// What lies at the head of the pair of `row`, which [`Endpoint::poll`] has found. `None` if there is nothing to
    /// receive after all.
    ///
    /// # Errors
    /// A [`PairViolation`]: the caller must remove the peer.
    #[inline(always)]
    pub fn arrival(&mut self, row: u32) -> Result<Option<Arrival>, PairViolation> {
        let Some(peer) = self.peer(row) else { return Ok(None) };
        let found = peer.inbox.arrival();
        if matches!(found, Ok(None)) { self.end_ring(row) } else { found }
    }

    /// Moves past the end of a pair's ring, and publishes that at once: the sender waits for the ring.
    #[cold]
    fn end_ring(&mut self, row: u32) -> Result<Option<Arrival>, PairViolation> {
        let Some(peer) = self.peer_mut(row) else { return Ok(None) };
        if !peer.inbox.find_ring()? || !peer.inbox.is_ready() {
            return Ok(None);
        }
        peer.inbox.pass_end();
        self.watch.remove(row);
        // Before the cursor is stored: only then does the sender take another ring, and it must announce that.
        self.cool(row);
        self.publish(row, true);
        Ok(None)
    }

    /// Is the pair of `row` in the middle of a message, whose next fragment follows?
    #[must_use]
    pub fn is_within(&self, row: u32) -> bool {
        self.peer(row).is_some_and(|peer| peer.inbox.is_within())
    }

    /// Is anything at the head of the pair of `row`, held or not?
    ///
    /// # Errors
    /// A [`PairViolation`]: the caller must remove the peer.
    pub fn has_arrival(&mut self, row: u32) -> Result<bool, PairViolation> {
        let Some(peer) = self.peer_mut(row) else { return Ok(false) };
        Ok(peer.inbox.find_ring()? && peer.inbox.is_ready())
    }

    /// Copies an arrival into `sink`, where the message's bytes from `at` on go, as far as there is room. Returns the
    /// number of bytes copied.
    #[inline(always)]
    pub fn copy(
        &self,
        row: u32,
        arrival: &Arrival,
        at: usize,
        sink: &mut (impl Sink + ?Sized),
    ) -> usize {
        self.peer(row).map_or(0, |peer| peer.inbox.copy(arrival, at, sink))
    }

    /// Moves past an arrival.
    #[inline(always)]
    pub fn pass(&mut self, row: u32, arrival: &Arrival) {
        let Some(peer) = self.peer_mut(row) else { return };
        debug_assert!(!peer.inbox.is_held, "what is held is released first");
        let is_due = peer.inbox.pass(arrival);
        let position = peer.inbox.next();
        let head = self.watch.current_head();
        if head.row() == row {
            head.go_to(position);
        } else {
            self.refresh_head(row);
        }
        self.dirty[row as usize / 64] |= 1 << (row % 64);
        if is_due {
            self.publish(row, false);
        }
    }

    /// Stores a pair's cursor. Wakes a sender that waits for it, if `looks` is set or much room was made.
    #[inline(never)]
    fn publish(&mut self, row: u32, looks: bool) {
        let Self { peers, host, memory, .. } = self;
        let Some(peer) = peers.get_mut(row) else { return };
        peer.inbox.publish_traffic(memory, row);
        if let Some(mode) = peer.inbox.publish_cursor(looks) {
            peer.outbox.wake(row, mode, host);
            memory.count(EndpointCounter::Wakes);
            let cpu = host.kernel().cpu();
            memory.cpu().store(cpu, Relaxed);
            self.must_yield |= peer.inbox.sender_cpu() == cpu;
        }
    }

    /// Stores all cursors that have moved.
    pub fn publish_cursors(&mut self) {
        for index in 0u32.. {
            let Some(word) = self.dirty.get_mut(index as usize) else { break };
            let mut bits = core::mem::take(word);
            while bits != 0 {
                self.publish(64 * index + bits.trailing_zeros(), true);
                bits &= bits - 1;
            }
        }
    }
}
