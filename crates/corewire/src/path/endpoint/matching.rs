//! Which receive gets which message: the oldest message that a receive asks for, and the oldest receive
//! that asks for a message. Nothing here touches shared memory.

use std::collections::VecDeque;

use super::Peer;
use super::budget::Budget;

/// What a receive asks for: a tag, and whose message.
///
/// Two tags agree if they have the same bits where the mask has a 1. Messages of one peer that a receive
/// asks for are received in the order in which they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selector {
    pub(super) source: Option<Peer>,
    pub(super) tag: u64,
    pub(super) mask: u64,
}

impl Selector {
    /// Any message of any peer.
    #[must_use]
    pub const fn any() -> Self {
        Self { source: None, tag: 0, mask: 0 }
    }

    /// Messages with this tag.
    #[must_use]
    pub const fn tag(tag: u64) -> Self {
        Self { source: None, tag, mask: u64::MAX }
    }

    /// Messages whose tags agree with this one in the bits of `mask`.
    #[must_use]
    pub const fn masked(tag: u64, mask: u64) -> Self {
        Self { source: None, tag, mask }
    }

    /// The same, of this peer only.
    #[must_use]
    pub const fn from(self, peer: Peer) -> Self {
        Self { source: Some(peer), ..self }
    }

    /// Does it ask for a message of `source` with this tag?
    #[inline(always)]
    pub(super) fn takes(&self, source: Peer, tag: u64) -> bool {
        (self.tag ^ tag) & self.mask == 0 && self.source.is_none_or(|wanted| wanted == source)
    }
}

/// A receive that waits for its message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posted {
    pub(super) selector: Selector,
    /// Its operation.
    pub(super) request: u32,
    /// It was posted after those with lower numbers.
    pub(super) order: u64,
}

/// A message that nobody has asked for yet.
#[derive(Debug)]
pub(super) struct Unexpected {
    /// Its own number.
    pub(super) id: u64,
    pub(super) source: Peer,
    pub(super) tag: u64,
    /// Bytes of the whole message.
    pub(super) total: u64,
    /// What is there of it.
    pub(super) bytes: Vec<u8>,
    /// It is still with its sender, since the budget is spent.
    pub(super) is_held: bool,
    /// Somebody has claimed it: it matches nothing any more.
    pub(super) is_claimed: bool,
}

impl Unexpected {
    /// Is all of it here?
    pub(super) fn is_whole(&self) -> bool {
        !self.is_held && self.bytes.len() as u64 == self.total
    }
}

/// Both queues.
#[derive(Debug)]
pub(super) struct Matching {
    posted: VecDeque<Posted>,
    unexpected: VecDeque<Unexpected>,
    last_order: u64,
    last_id: u64,
    pub(super) budget: Budget,
}

impl Matching {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            posted: VecDeque::new(),
            unexpected: VecDeque::new(),
            last_order: 0,
            last_id: 0,
            budget,
        }
    }

    /// Is there neither a receive that waits nor a message that does?
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty() && self.unexpected.is_empty()
    }

    // Receives.

    /// A new receive waits.
    pub(super) fn post(&mut self, selector: Selector, request: u32) -> u64 {
        self.last_order += 1;
        self.posted.push_back(Posted { selector, request, order: self.last_order });
        self.last_order
    }

    /// A receive waits again, in its old place.
    pub(super) fn post_again(&mut self, posted: Posted) {
        let index = self.posted.partition_point(|other| other.order < posted.order);
        self.posted.insert(index, posted);
    }

    /// The oldest receive that asks for this message waits no longer.
    #[inline]
    pub(super) fn take_posted(&mut self, source: Peer, tag: u64) -> Option<Posted> {
        let index = self.posted.iter().position(|posted| posted.selector.takes(source, tag))?;
        self.posted.remove(index)
    }

    /// A receive waits no longer. `None` if it did not.
    pub(super) fn withdraw(&mut self, request: u32) -> Option<Posted> {
        let index = self.posted.iter().position(|posted| posted.request == request)?;
        self.posted.remove(index)
    }

    /// The receives that wait for `source` and nobody else do so no longer.
    pub(super) fn withdraw_from(&mut self, source: Peer) -> VecDeque<Posted> {
        let (gone, others) = self
            .posted
            .drain(..)
            .partition(|posted: &Posted| posted.selector.source == Some(source));
        self.posted = others;
        gone
    }

    // Messages.

    /// Keeps a message. Returns its number.
    pub(super) fn keep(&mut self, source: Peer, tag: u64, total: u64, is_held: bool) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        if !is_held {
            self.budget.spend(source.row, total);
        }
        self.unexpected.push_back(Unexpected {
            id,
            source,
            tag,
            total,
            bytes: Vec::new(),
            is_held,
            is_claimed: false,
        });
        id
    }

    /// Puts back one that a receive had begun to take, before all others.
    pub(super) fn put_back(&mut self, source: Peer, tag: u64, total: u64, bytes: Vec<u8>) -> u64 {
        let id = self.keep(source, tag, total, false);
        if let Some(mut message) = self.unexpected.pop_back() {
            message.bytes = bytes;
            self.unexpected.push_front(message);
        }
        id
    }

    /// A message that was with its sender is kept here from now on.
    pub(super) fn fetch(&mut self, id: u64) {
        let Some(message) = self.unexpected.iter_mut().find(|message| message.id == id) else {
            return;
        };
        message.is_held = false;
        self.budget.spend(message.source.row, message.total);
    }

    /// The oldest message that `selector` asks for.
    #[inline]
    pub(super) fn find(&self, selector: &Selector) -> Option<&Unexpected> {
        self.unexpected
            .iter()
            .find(|message| !message.is_claimed && selector.takes(message.source, message.tag))
    }

    /// The messages that `selector` asks for and that nobody has claimed, oldest first.
    pub(super) fn all_of(&self, selector: &Selector) -> Vec<u64> {
        let wanted = |message: &&Unexpected| {
            !message.is_claimed && selector.takes(message.source, message.tag)
        };
        self.unexpected.iter().filter(wanted).map(|message| message.id).collect()
    }

    pub(super) fn by_id(&mut self, id: u64) -> Option<&mut Unexpected> {
        self.unexpected.iter_mut().find(|message| message.id == id)
    }

    /// A message is kept no longer.
    pub(super) fn take(&mut self, id: u64) -> Option<Unexpected> {
        let index = self.unexpected.iter().position(|message| message.id == id)?;
        let message = self.unexpected.remove(index)?;
        if !message.is_held {
            self.budget.give_back(message.source.row, message.total);
        }
        Some(message)
    }

    /// The oldest message that is with its sender, and could be kept here by now.
    pub(super) fn next_to_fetch(&self) -> Option<(u64, Peer)> {
        let held = self.unexpected.iter().filter(|message| message.is_held && !message.is_claimed);
        held.filter(|message| self.budget.has_room(message.source.row, message.total))
            .map(|message| (message.id, message.source))
            .next()
    }

    /// The message of `source` that is with it.
    pub(super) fn held_of(&self, source: Peer) -> Option<u64> {
        let mut held = self.unexpected.iter();
        held.find(|message| message.is_held && message.source == source).map(|message| message.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: [Peer; 2] = [Peer::new(0, 1), Peer::new(1, 1)];

    #[test]
    fn a_tag_agrees_where_the_mask_says() {
        let selector = Selector::masked(0xab00, 0xff00).from(PEERS[1]);
        assert!(selector.takes(PEERS[1], 0xab17));
        assert!(!selector.takes(PEERS[1], 0xac17));
        assert!(!selector.takes(PEERS[0], 0xab17));
        assert!(Selector::any().takes(PEERS[0], u64::MAX));
    }

    #[test]
    fn a_receive_that_waits_again_has_its_old_place() {
        let mut matching = Matching::new(Budget::new(1000, 2));
        for request in 0..3 {
            matching.post(Selector::any(), request);
        }
        let first = matching.take_posted(PEERS[0], 0).unwrap();
        assert_eq!(first.request, 0);
        matching.post_again(first);
        assert_eq!(matching.take_posted(PEERS[0], 0).unwrap().request, 0);
    }

    #[test]
    fn the_budget_comes_back() {
        let mut matching = Matching::new(Budget::new(2000, 2));
        let id = matching.keep(PEERS[0], 1, 800, false);
        let held = matching.keep(PEERS[0], 1, 800, true);
        assert_eq!(matching.next_to_fetch(), None);
        matching.take(id).unwrap();
        assert_eq!(matching.next_to_fetch(), Some((held, PEERS[0])));
        matching.fetch(held);
        assert!(!matching.budget.has_room(0, 100));
    }
}
