//! The receives that wait for a message, in order.
//!
//! They are looked at one after the other, until a message has had to pass many of them: from then on, buckets of source
//! and tag find them, in constant time for each *pattern* in use: for the bits of the tag that a selector compares, and
//! for whether it names a source. A receive that nothing passes costs no bucket, such as those that wait for a whole
//! program's life.

use corewire_ring::message::Space;

use super::indexes::Posted;
use super::{NOBODY, Operations};
use crate::list::Key;
use crate::selector::{Peer, Selector};

/// As many are looked at one after the other. If a message passes more, they are indexed.
const LINEAR_MAX: usize = 16;

impl Operations {
    /// Whether a receive waits.
    #[inline(always)]
    pub(crate) fn has_posted(&self) -> bool {
        self.posted.first != NOBODY
    }

    /// A new receive waits.
    #[inline(always)]
    pub(crate) fn post(&mut self, index: u32) {
        let last = self.posted.last;
        let slot = &mut self.slots[index as usize];
        slot.order = self.posted.next_order;
        slot.previous = last;
        slot.next = NOBODY;
        slot.is_posted = true;
        self.posted.next_order += 1;
        self.posted.last = index;
        self.posted.len += 1;
        match self.slots.get_mut(last as usize) {
            Some(slot) => slot.next = index,
            None => self.posted.first = index,
        }
        if self.posted.is_indexed {
            self.index(index);
        }
    }

    /// A receive waits again, in its old place.
    pub(crate) fn post_again(&mut self, index: u32) {
        let order = self.slots[index as usize].order;
        let mut previous = self.posted.last;
        while let Some(slot) = self.slots.get(previous as usize)
            && slot.order > order
        {
            previous = slot.previous;
        }
        let next = match self.slots.get(previous as usize) {
            Some(slot) => slot.next,
            None => self.posted.first,
        };
        let slot = &mut self.slots[index as usize];
        (slot.previous, slot.next, slot.is_posted) = (previous, next, true);
        self.posted.len += 1;
        self.set_next(previous, index);
        self.set_previous(next, index);
        if self.posted.is_indexed {
            self.index(index);
        }
    }

    /// A receive waits no longer, if it did.
    #[inline(always)]
    pub(crate) fn withdraw(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if !slot.is_posted {
            return;
        }
        slot.is_posted = false;
        let (previous, next) = (slot.previous, slot.next);
        self.unlink(previous, next);
        if self.posted.is_indexed {
            self.posted.remove_from_index(self.key_of(index), &self.selector_of(index));
        }
    }

    /// A receive between these two waits no longer.
    #[inline(always)]
    pub(super) fn unlink(&mut self, previous: u32, next: u32) {
        self.posted.len -= 1;
        self.set_next(previous, next);
        self.set_previous(next, previous);
    }

    #[inline(always)]
    fn set_next(&mut self, index: u32, next: u32) {
        match self.slots.get_mut(index as usize) {
            Some(slot) => slot.next = next,
            None => self.posted.first = next,
        }
    }

    #[inline(always)]
    fn set_previous(&mut self, index: u32, previous: u32) {
        match self.slots.get_mut(index as usize) {
            Some(slot) => slot.previous = previous,
            None => self.posted.last = previous,
        }
    }

    /// Whether this operation is a receive that waits.
    pub(crate) fn is_posted(&self, index: u32) -> bool {
        self.slots[index as usize].is_posted
    }

    /// The receives that wait for `source` and nobody else do so no longer.
    pub(crate) fn withdraw_from(&mut self, source: Peer) -> Vec<u32> {
        let mut found = Vec::new();
        let mut index = self.posted.first;
        while let Some(slot) = self.slots.get(index as usize) {
            if slot.selector.source() == Some(source) {
                found.push(index);
            }
            index = slot.next;
        }
        found.iter().for_each(|&index| self.withdraw(index));
        found
    }

    /// The oldest receive that asks for this message.
    #[inline(always)]
    pub(crate) fn find_posted(&mut self, space: Space, source: u64, tag: u64) -> Option<u32> {
        if self.posted.is_indexed {
            return self.find_indexed(space, source, tag);
        }
        let (mut index, mut passed) = (self.posted.first, 0);
        loop {
            let slot = self.slots.get(index as usize)?;
            if slot.selector.takes_of(space, source, tag) {
                return Some(index);
            }
            index = slot.next;
            passed += 1;
            if passed > LINEAR_MAX {
                return self.find_by_index(space, source, tag);
            }
        }
    }

    /// The same, and builds the indexes first.
    #[cold]
    fn find_by_index(&mut self, space: Space, source: u64, tag: u64) -> Option<u32> {
        self.posted.is_indexed = true;
        let mut index = self.posted.first;
        while index != NOBODY {
            self.index(index);
            index = self.slots[index as usize].next;
        }
        self.find_indexed(space, source, tag)
    }

    #[inline(never)]
    fn find_indexed(&self, space: Space, source: u64, tag: u64) -> Option<u32> {
        let Posted { indexes, others, .. } = &self.posted;
        let indexes = indexes.iter().filter(|index| index.pattern().space == space);
        let indexed = indexes.filter_map(|index| index.first(source, tag));
        let indexed = indexed.map(|node| self.key_of(node)).min();
        let takes = |key: &&Key| self.selector_of(key.node).takes_of(space, source, tag);
        let other = others.iter().find(takes).copied();
        let found = match (indexed, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        found.map(|key| key.node)
    }

    fn index(&mut self, index: u32) {
        self.posted.add_to_index(self.key_of(index), &self.selector_of(index));
    }

    fn key_of(&self, index: u32) -> Key {
        Key { order: self.slots[index as usize].order, node: index }
    }

    /// What a receive asks for.
    pub(crate) fn selector_of(&self, index: u32) -> Selector {
        self.slots[index as usize].selector
    }
}

#[cfg(test)]
mod tests {
    use corewire_ring::message::Memory;

    use super::*;
    use crate::list::Seed;
    use crate::operations::{Operation, Options};

    const SOURCE: Peer = Peer::new(1, 1);

    fn with_receives(selectors: impl Iterator<Item = Selector>) -> Operations {
        let mut operations = Operations::new(Seed(7));
        for selector in selectors {
            let receive = Operation::receive(Memory::default(), false);
            let handle = operations.add_receive(selector, receive, Options::default());
            operations.post(handle.index);
        }
        operations
    }

    #[test]
    fn a_receive_that_waits_again_has_its_old_place() {
        for count in [3, 40] {
            let mut operations = with_receives((0..count).map(|_| Selector::any()));
            // Nobody asks for it: from 17 receives on they are indexed.
            assert_eq!(operations.take_posted(Space::Untagged, SOURCE, 0, 0), None);
            for taken in [1, 0] {
                for expected in 0..=taken {
                    assert_eq!(operations.take_posted(Space::Tagged, SOURCE, 0, 0), Some(expected));
                }
                (0..=taken).rev().for_each(|index| operations.post_again(index));
            }
        }
    }

    #[test]
    fn the_oldest_receive_of_any_pattern_is_taken() {
        // More patterns than have an index, each with two receives.
        let selector = |number: u32| Selector::masked(0, (1 << (number % 12)) - 1);
        for is_indexed in [false, true] {
            let mut operations = with_receives((0..24).map(selector));
            if is_indexed {
                assert_eq!(operations.take_posted(Space::Untagged, SOURCE, 0, 0), None);
            }
            for expected in 0..24 {
                assert_eq!(operations.take_posted(Space::Tagged, SOURCE, 0, 0), Some(expected));
            }
            assert!(!operations.has_posted());
        }
    }

    #[test]
    fn receives_of_a_peer_are_withdrawn_from_any_place() {
        let peers = [Peer::new(0, 1), SOURCE];
        let mut operations =
            with_receives((0..7).map(|number| Selector::any().from(peers[number % 2])));
        assert_eq!(operations.withdraw_from(SOURCE), [1, 3, 5]);
        assert_eq!(operations.take_posted(Space::Tagged, SOURCE, 0, 0), None);
        for expected in [0, 2, 4, 6] {
            assert_eq!(operations.take_posted(Space::Tagged, peers[0], 0, 0), Some(expected));
        }
        assert!(!operations.has_posted());
    }
}
