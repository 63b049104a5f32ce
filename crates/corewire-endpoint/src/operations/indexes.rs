//! The ends of the list of receives that wait, and the indexes that find them once a message has had to pass many.

use std::collections::VecDeque;

use crate::list::{Index, Key, Seed};
use crate::selector::Selector;

/// No receive.
const NONE: u32 = u32::MAX;
/// The most patterns that have an index. Selectors of further patterns are compared one by one.
const INDEXES_MAX: usize = 8;

/// The ends of the list, whose links are in the operations' entries, and its indexes.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) len: usize,
    pub(super) next_order: u64,
    /// Each receive is in the one of its pattern, or among the others. Empty while none is needed.
    pub(super) indexes: Vec<Index>,
    pub(super) others: VecDeque<Key>,
    pub(super) is_indexed: bool,
    seed: Seed,
}

impl Posted {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            first: NONE,
            last: NONE,
            len: 0,
            next_order: 0,
            indexes: Vec::new(),
            others: VecDeque::new(),
            is_indexed: false,
            seed,
        }
    }

    pub(super) fn add_to_index(&mut self, key: Key, selector: &Selector) {
        let pattern = selector.pattern();
        let found = self.indexes.iter().position(|index| index.pattern() == pattern);
        let place = found.or_else(|| {
            // A pattern that is not used any more gives its place to another.
            let place = self.indexes.iter().position(Index::is_empty);
            match place {
                Some(place) => self.indexes[place] = Index::new(pattern, self.seed),
                None if self.indexes.len() < INDEXES_MAX => {
                    self.indexes.push(Index::new(pattern, self.seed));
                }
                None => return None,
            }
            place.or(Some(self.indexes.len() - 1))
        });
        match place {
            Some(place) => {
                self.indexes[place].add(key, selector.wanted().source, selector.wanted().tag)
            }
            None => {
                let at = self.others.partition_point(|other| other.order < key.order);
                self.others.insert(at, key);
            }
        }
    }

    pub(super) fn remove_from_index(&mut self, key: Key, selector: &Selector) {
        let pattern = selector.pattern();
        let index = self.indexes.iter_mut().find(|index| index.pattern() == pattern);
        if let Some(index) = index {
            index.remove(key);
        }
        if !self.others.is_empty() {
            self.others.retain(|other| *other != key);
        }
        if self.len == 0 {
            self.is_indexed = false;
            self.indexes.clear();
        }
    }
}
