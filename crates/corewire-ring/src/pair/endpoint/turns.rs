//! Which pair has the turn: watched pairs and pairs that bits name, hot and cold pairs.
//!
//! Proofs: `proof/models/tests/models/pairs.rs`, `proof/kill/src/pairs.rs`.

use corewire_layout::endpoint::{ACTIVE_WORDS, PairState};

use super::Endpoint;
use crate::cold::rarely;
use crate::pair::inbox::Heat;
use crate::pair::watch::{GUEST, Head};
use crate::pair::{BITS_EVERY, GROUP_EVERY, IDLE_POLLS, TURNS_MAX, VISIT_EVERY, WATCHED_MAX};
use crate::sync::Ordering::Relaxed;
use crate::{Host, Kernel, order};

/// How a receiver polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polling {
    /// Once, to learn whether there is a message: checks all hot pairs and all bits.
    Once,
    /// Repeatedly, with a pause between polls: checks all watched pairs in each poll, and the bits in some.
    Repeated,
}

/// The result of looking for another pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// No pair has a message.
    Nobody,
    /// A pair has the turn.
    Found,
    /// The pair of this row has an impossible ring. Nothing in it is read; a call that asks for its arrival gets the
    /// error.
    Strange(u32),
}

impl Turn {
    #[inline(always)]
    fn found(is_found: bool) -> Self {
        if is_found { Self::Found } else { Self::Nobody }
    }
}

impl<H: Host> Endpoint<H> {
    /// The row of the pair that last had a message.
    #[must_use]
    pub fn last_found(&self) -> u32 {
        self.watch.current_row()
    }

    /// The row of a pair that has something at its head, if there is one. Takes at most
    /// [`BURST_MAX`](crate::pair::BURST_MAX) consecutive slots from one pair while others have messages.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<u32> {
        loop {
            if let Some((head, _)) = self.watch.current(self.polls) {
                return Some(head.row());
            }
            match self.turn_to_another(Polling::Once) {
                Turn::Found => {}
                Turn::Nobody => return None,
                Turn::Strange(row) => return Some(row),
            }
        }
    }

    /// Is there a watched place for every peer?
    #[inline(always)]
    fn can_watch_all(&self) -> bool {
        self.present.len() <= WATCHED_MAX
    }

    /// A sender that sets a bit takes the line of all bits away for as long as a message needs. A receiver that polls
    /// repeatedly finds the message itself meanwhile, unless there are peers that are not watched.
    #[inline(always)]
    fn looks_for_bits(&self, polling: Polling) -> bool {
        match (polling, self.can_watch_all()) {
            (Polling::Once, _) => true,
            (Polling::Repeated, true) => self.polls.is_multiple_of(BITS_EVERY),
            (Polling::Repeated, false) => true,
        }
    }

    /// Gives the turn to another pair that has something at its head.
    #[inline(always)]
    pub(super) fn turn_to_another(&mut self, polling: Polling) -> Turn {
        let has_bits = self.looks_for_bits(polling) && self.activity.summary().load(Relaxed) != 0;
        let turn = if has_bits || self.is_busy || self.must_yield || !self.queue.is_empty() {
            rarely();
            self.turn_in_order()
        } else {
            let groups = match polling {
                Polling::Once => usize::from(self.polls.is_multiple_of(GROUP_EVERY)),
                Polling::Repeated => usize::MAX,
            };
            Turn::found(self.watch.turn_to_next(groups, self.polls))
        };
        if turn == Turn::Nobody {
            self.polls += 1;
            if self.polls.is_multiple_of(VISIT_EVERY) {
                rarely();
                self.look_around();
                if !self.queue.is_empty() {
                    return self.turn_in_order();
                }
            }
        } else {
            // Pairs that always have messages must not keep the others from being checked.
            self.turns = self.turns.wrapping_add(1);
            self.is_busy |= self.watch.has_found() || self.turns.is_multiple_of(TURNS_MAX);
        }
        turn
    }

    /// Checks watched pairs and pairs named by bits, each once before any is checked again (but a pair that is both
    /// may have a second turn).
    #[inline(never)]
    fn turn_in_order(&mut self) -> Turn {
        for _ in 0..2 {
            // Before the bits, which are set later than the stamps they stand for.
            if self.watch.turn_in_round(self.polls) {
                return Turn::Found;
            }
            let mut left = match self.queue_left.take() {
                Some(left) => left,
                None => {
                    self.collect();
                    self.queue.len()
                }
            };
            while left > 0 {
                left -= 1;
                match self.turn_to_queued() {
                    Turn::Nobody => {}
                    turn => {
                        self.queue_left = Some(left);
                        return turn;
                    }
                }
            }
            self.watch.begin_round();
            self.is_busy = false;
            self.keep_found();
            if self.must_yield {
                // Peers that need this processor must run, too. Otherwise the other peers fill their rings again and
                // again meanwhile.
                self.must_yield = false;
                self.host.kernel().yield_now();
            }
        }
        Turn::Nobody
    }

    /// Occasional work, when no pair has messages.
    #[cold]
    #[inline(never)]
    fn look_around(&mut self) {
        if self.polls.is_multiple_of(IDLE_POLLS) {
            self.tidy_up();
        }
        self.visit_next();
    }

    /// Publishes cursors and counters, and checks pairs that cool and are not watched.
    fn tidy_up(&mut self) {
        self.memory.cpu().store(self.host.kernel().cpu(), Relaxed);
        self.publish_traffic();
        self.publish_cursors();
        self.publish_counters();
        self.keep_found();
        while let Some(row) = self.watch.next_idle(self.polls) {
            self.cool(row);
        }
        for index in 0..self.cooling.len() {
            let row = self.cooling[index];
            if self.watch.place(row).is_none() && self.is_ready(row) {
                self.enqueue(row);
            }
        }
    }

    /// Checks the next of all pairs, in turn, as if a bit had named it. One reason: its sender may be stopped between
    /// a stamp and its bit. The other: on a busy machine, memory and code that were not touched for a millisecond are
    /// in no cache, and the next message would take ten times as long.
    fn visit_next(&mut self) {
        self.visited = if self.visited + 1 < self.present.len() { self.visited + 1 } else { 0 };
        if let Some(&row) = self.present.get(self.visited) {
            if let Some(peer) = self.peer(row) {
                peer.inbox.keep_warm();
                peer.outbox.keep_warm();
            }
            match self.watch.place(row) {
                Some(place) => self.watch.visit(place),
                None => self.enqueue(row),
            }
        }
        // Where bits are needed, the code path of a message that a bit names is run, too.
        self.is_busy |= !self.can_watch_all();
    }

    /// Makes every pair hot that had a message and was not hot.
    fn keep_found(&mut self) {
        while let Some(found) = self.watch.next_found(self.polls) {
            if let Some(left) = found.left {
                self.cool(left);
                // It is no longer polled, and its last message may have no bit.
                self.enqueue(left);
            }
            // Polls find no messages of a peer that needs this processor. Its pair stays cold: the peer announces its
            // messages, and a sleep needs no barrier for them.
            if self.is_here(found.row) {
                self.enqueue(found.row);
                continue;
            }
            self.cooling.retain(|&other| other != found.row);
            if let Some(peer) = self.peer_mut(found.row) {
                peer.inbox.heat = Heat::Hot;
                peer.inbox.set_state(PairState::Hot);
            }
        }
    }

    pub(super) fn is_ready(&self, row: u32) -> bool {
        self.peer(row).is_some_and(|peer| peer.inbox.is_ready() && !peer.inbox.is_held)
    }

    /// The head of the pair of `row`, as it is now.
    fn head(&self, row: u32) -> Head {
        let head = self.peer(row).and_then(|peer| Head::of(&peer.inbox));
        head.unwrap_or_else(|| self.watch.nobody())
    }

    /// Moves the head of a pair, if it is watched, to its inbox's current position.
    pub(super) fn refresh_head(&mut self, row: u32) {
        let head = self.head(row);
        self.watch.renew(row, head);
    }

    /// Queues a pair to be checked.
    pub fn enqueue(&mut self, row: u32) {
        if let Some(peer) = self.peer_mut(row)
            && !peer.inbox.is_queued
        {
            peer.inbox.is_queued = true;
            self.queue.push_back(row);
        }
    }

    /// Leaves a pair's first message in place, and skips that pair until [`Endpoint::release`].
    pub fn hold(&mut self, row: u32) {
        if let Some(peer) = self.peer_mut(row) {
            peer.inbox.is_held = true;
            self.refresh_head(row);
        }
    }

    /// Resumes polling a pair.
    pub fn release(&mut self, row: u32) {
        if let Some(peer) = self.peer_mut(row) {
            peer.inbox.is_held = false;
            self.refresh_head(row);
        }
        self.enqueue(row);
    }

    /// Takes the next queued pair, and gives it the turn if it has a message.
    fn turn_to_queued(&mut self) -> Turn {
        let Some(row) = self.queue.pop_front() else { return Turn::Nobody };
        let Some(peer) = self.peer_mut(row) else { return Turn::Nobody };
        peer.inbox.is_queued = false;
        if peer.inbox.is_held {
            return Turn::Nobody;
        }
        if peer.inbox.find_ring().is_err() {
            self.enqueue(row);
            return Turn::Strange(row);
        }
        if !peer.inbox.is_ready() || peer.inbox.heat == Heat::Hot {
            return Turn::Nobody;
        }
        let place = match self.watch.place(row) {
            Some(place) => place,
            None => {
                let head = self.head(row);
                self.watch.seat(row, head)
            }
        };
        if place == GUEST {
            // There may be more messages than one burst takes, and no bit for them.
            self.enqueue(row);
        }
        self.watch.turn_to(place, self.polls);
        Turn::Found
    }

    /// Clears the set bits, and queues their rows.
    fn collect(&mut self) {
        // ORDER(P8): pairs with P7; a sender that sets a bit of a word after this finds the summary cleared.
        let mut words = match self.activity.summary().load(Relaxed) {
            0 => 0,
            _ => self.activity.summary().swap(0, order!(P8: AcqRel)),
        };
        while words != 0 {
            let index = words.trailing_zeros();
            words &= words - 1;
            if index as usize >= ACTIVE_WORDS.min(self.peers.rows().div_ceil(64)) {
                continue;
            }
            // ORDER(P8): pairs with P7; the stamps that the bits stand for are seen below.
            let mut bits = self.activity.word(index).swap(0, order!(P8: AcqRel));
            while bits != 0 {
                self.enqueue(64 * index + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    /// Makes a pair's sender announce its messages from now on. The sender may not see this at once.
    pub(super) fn cool(&mut self, row: u32) {
        if let Some(peer) = self.peer_mut(row)
            && peer.inbox.heat == Heat::Hot
        {
            peer.inbox.heat = Heat::Cooling;
            peer.inbox.set_state(PairState::Cold);
            self.cooling.push(row);
        }
    }
}
