//! Messages that stay in their sender's heap while their receiver holds them.

use corewire_ring::message::Held;
use corewire_ring::pair::{Granted, Lending};

use super::party::envelope_of;
use super::{GRANTED_BYTES, IN_PLACE, Pairs, Party, Role};
use crate::engine::content;
use crate::ensure;

/// A message that an endpoint holds.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) from: Role,
    /// What it held when it was received.
    bytes: Vec<u8>,
    held: Held,
}

/// What a live peer that was removed may still hold.
#[derive(Debug)]
pub(super) struct Departed(Role, Granted);

impl Party {
    /// Copies a message into a block of the heap and sends it. Returns false if there is no room.
    pub(super) fn send_in_place(&mut self, to: Role) -> bool {
        self.send_block(to, |party, tag, message| {
            let Party { pairs, .. } = party;
            pairs.send_in_block(to.0, &envelope_of(tag), &message, &mut |_, _| true)
        })
    }

    /// The same for a message that is written in the block by its program.
    pub(super) fn send_loan(&mut self, to: Role) -> bool {
        self.send_block(to, |party, tag, message| {
            let allocate = &mut |_, _| true;
            let mut lent = match party.pairs.lend_block(to.0, message.len(), allocate) {
                Lending::Done(lent) => lent,
                Lending::Spent => return Lending::Spent,
                Lending::Impossible => return Lending::Impossible,
            };
            lent.as_mut_slice().copy_from_slice(message);
            let is_sent = party.pairs.send_block(&envelope_of(tag), &lent);
            if !is_sent {
                party.pairs.give_block_back(&lent);
            }
            Lending::Done(is_sent)
        })
    }

    fn send_block(
        &mut self,
        to: Role,
        send: impl Fn(&mut Self, u64, &[u8]) -> Lending<bool>,
    ) -> bool {
        let talk = self.talk(to);
        if talk.under_way > 0 {
            return false;
        }
        let tag = talk.sent.len() as u64;
        let message = content(tag, IN_PLACE);
        talk.sent.push(message.clone());
        loop {
            match send(self, tag, &message) {
                Lending::Done(true) => {
                    self.talk(to).finished += 1;
                    return true;
                }
                Lending::Done(false) if self.make_slot(to) => {}
                _ => {
                    self.talk(to).sent.pop();
                    return false;
                }
            }
        }
    }

    /// Holds a message that was just received.
    pub(super) fn hold(&mut self, from: Role, held: Held) -> Vec<u8> {
        let bytes = held.to_vec();
        self.held.push(Holding { from, bytes: bytes.clone(), held });
        bytes
    }

    /// Releases one of the messages that it holds, if it holds so many.
    pub(super) fn release(&mut self, index: usize) {
        if index >= self.held.len() {
            return;
        }
        let Holding { from, bytes, held } = self.held.remove(index);
        ensure!(*held == bytes[..], "a message of row {} has changed while it was held", from.0);
        drop(held);
        self.talk(from).released += 1;
    }

    /// Releases all of them, the last one first.
    pub(super) fn release_all(&mut self) {
        while !self.held.is_empty() {
            self.release(self.held.len() - 1);
        }
    }

    /// Takes back what a peer that is about to be removed has of the heap. What a live one holds it may still release.
    pub(super) fn take_granted(&mut self, peer: Role, is_dead: bool) {
        match self.pairs.take_granted(peer.0, false) {
            Some(granted) if is_dead => self.pairs.end_granted(granted),
            Some(granted) => self.departed.push(Departed(peer, granted)),
            None => {}
        }
    }

    /// Takes back what removed peers have released.
    fn scan_departed(&mut self) {
        let Self { departed, pairs, .. } = self;
        departed.retain_mut(|departed| pairs.scan_granted(&mut departed.1));
    }

    /// The process of a peer that was removed before has ended.
    pub(super) fn end_departed(&mut self, gone: Role) {
        for Departed(peer, granted) in std::mem::take(&mut self.departed) {
            if peer == gone {
                self.pairs.end_granted(granted);
            } else {
                self.departed.push(Departed(peer, granted));
            }
        }
    }
}

impl Pairs {
    /// Grants `from` bytes of its own heap for messages to `to`.
    pub(super) fn grant(&mut self, from: Role, to: Role) {
        let is_possible = self.party(to).pairs.start_granting(from.0);
        ensure!(is_possible, "row {} can be granted nothing any more", from.0);
        let sender = self.party(from);
        sender.scan_departed();
        sender.pairs.set_grant(to.0, GRANTED_BYTES);
    }

    /// Sends in all blocks that no peer holds: none of these may be one that a peer does hold.
    pub(super) fn use_blocks_that_are_left(&mut self, from: Role) {
        for to in self.live_beside(from) {
            if !self.party(to).pairs.has_held(from.0) {
                self.grant(from, to);
            }
            self.fetch_ring(from, to);
            while self.party(from).send_in_place(to) {}
            self.settle();
        }
    }

    /// Checks that nothing is granted to the successor of a peer whose messages are held, and releases them.
    pub(super) fn release_everything(&mut self) {
        for role in self.live() {
            for from in self.live_beside(role) {
                if self.party(role).pairs.has_held(from.0) {
                    let is_possible = self.party(role).pairs.start_granting(from.0);
                    ensure!(!is_possible, "bits in use are granted to row {} again", from.0);
                }
            }
            self.party(role).release_all();
        }
    }

    /// Checks that the whole heap can be used, half of it for each peer, and that it comes back.
    pub(super) fn use_all_blocks(&mut self, from: Role) {
        let others = self.live_beside(from);
        for &to in &others {
            self.grant(from, to);
            self.fetch_ring(from, to);
            let sent = (0..SENT_MAX).take_while(|_| self.party(from).send_in_place(to)).count();
            ensure!(sent == BLOCKS, "room for {sent} messages in blocks, not {BLOCKS}");
            self.settle();
        }
        ensure!(self.party(from).departed.is_empty(), "blocks of a removed peer are lost");
        for &to in &others {
            self.party(to).release_all();
            let spent = self.party(from).pairs.spent(to.0);
            ensure!(spent == 0, "row {} keeps {spent} bytes of the heap of row {}", to.0, from.0);
        }
    }
}

/// Messages that half of a heap holds; more than that are tried.
const BLOCKS: usize = 4;
const SENT_MAX: usize = 6;
