//! A list in order of arrival, from any place of which an entry can be removed in constant time, and an
//! index that finds its entries by tag and source.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use corewire_ring::message::Space;

/// No node.
const NONE: u32 = u32::MAX;

/// An entry's key: it is never given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Entries are listed in this order.
    pub(crate) order: u64,
    pub(crate) node: u32,
}

/// Entries in order.
#[derive(Debug)]
pub(crate) struct List<T> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
    first: u32,
    last: u32,
    len: usize,
    next_order: u64,
}

#[derive(Debug)]
struct Node<T> {
    order: u64,
    previous: u32,
    next: u32,
    value: Option<T>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), first: NONE, last: NONE, len: 0, next_order: 0 }
    }
}

impl<T> List<T> {
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry behind all others.
    #[inline]
    pub(crate) fn push_back(&mut self, value: T) -> Key {
        let order = self.next_order;
        self.next_order += 1;
        self.insert_behind(self.last, order, value)
    }

    /// The order of an entry that is added later, by [`insert`](Self::insert).
    pub(crate) fn new_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order - 1
    }

    /// Adds an entry where it was before: in the given order, which no other entry has.
    pub(crate) fn insert(&mut self, order: u64, value: T) -> Key {
        // Most entries belong at the end.
        let mut behind = self.last;
        while let Some(node) = self.nodes.get(behind as usize)
            && node.order > order
        {
            behind = node.previous;
        }
        self.insert_behind(behind, order, value)
    }

    #[inline]
    fn insert_behind(&mut self, previous: u32, order: u64, value: T) -> Key {
        let next = if previous == NONE { self.first } else { self.nodes[previous as usize].next };
        let index = match self.free.pop() {
            Some(index) => {
                let node = &mut self.nodes[index as usize];
                (node.order, node.previous, node.next) = (order, previous, next);
                // Nothing of a free one is to be dropped.
                std::mem::forget(node.value.replace(value));
                index
            }
            None => self.push_node(Node { order, previous, next, value: Some(value) }),
        };
        match self.nodes.get_mut(previous as usize) {
            Some(node) => node.next = index,
            None => self.first = index,
        }
        match self.nodes.get_mut(next as usize) {
            Some(node) => node.previous = index,
            None => self.last = index,
        }
        self.len += 1;
        Key { order, node: index }
    }

    #[cold]
    fn push_node(&mut self, node: Node<T>) -> u32 {
        let index = u32::try_from(self.nodes.len()).expect("fewer than 2^32 entries");
        self.nodes.push(node);
        index
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let node = self.nodes.get(key.node as usize)?;
        node.value.as_ref().filter(|_| node.order == key.order)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let node = self.nodes.get_mut(key.node as usize)?;
        node.value.as_mut().filter(|_| node.order == key.order)
    }

    /// The entry that an index knows by its node.
    pub(crate) fn at(&self, node: u32) -> Option<(Key, &T)> {
        let found = self.nodes.get(node as usize)?;
        Some((Key { order: found.order, node }, found.value.as_ref()?))
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let value = self.nodes[key.node as usize].value.take();
        self.unlink(key);
        value
    }

    /// The same, and drops the value where it is.
    #[inline]
    pub(crate) fn discard(&mut self, key: Key) {
        if self.get(key).is_some() {
            self.nodes[key.node as usize].value = None;
            self.unlink(key);
        }
    }

    #[inline]
    fn unlink(&mut self, key: Key) {
        let node = &self.nodes[key.node as usize];
        let (previous, next) = (node.previous, node.next);
        match self.nodes.get_mut(previous as usize) {
            Some(node) => node.next = next,
            None => self.first = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(node) => node.previous = previous,
            None => self.last = previous,
        }
        self.free.push(key.node);
        self.len -= 1;
    }

    /// All entries, in order.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let mut node = self.first;
        std::iter::from_fn(move || {
            let found = self.nodes.get(node as usize)?;
            let key = Key { order: found.order, node };
            node = found.next;
            Some((key, found.value.as_ref()?))
        })
    }
}

/// Which messages an index is for, and what it distinguishes: which bits of the tag, and whether the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) space: Space,
    pub(crate) mask: u64,
    pub(crate) has_source: bool,
}

/// Entries of a list by source and tag, as far as a pattern distinguishes them, each set in order.
#[derive(Debug)]
pub(crate) struct Index {
    pattern: Pattern,
    buckets: HashMap<Bucket, Ends, Seed>,
    /// By the entries' nodes.
    links: Vec<Link>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Bucket {
    source: u64,
    tag: u64,
}

#[derive(Debug)]
struct Ends {
    first: u32,
    last: u32,
}

#[derive(Debug, Clone)]
struct Link {
    bucket: Bucket,
    order: u64,
    previous: u32,
    next: u32,
    is_used: bool,
}

const UNUSED: Link = Link {
    bucket: Bucket { source: 0, tag: 0 },
    order: 0,
    previous: NONE,
    next: NONE,
    is_used: false,
};

impl Index {
    pub(crate) fn new(pattern: Pattern, seed: Seed) -> Self {
        Self { pattern, buckets: HashMap::with_hasher(seed), links: Vec::new() }
    }

    pub(crate) fn pattern(&self) -> Pattern {
        self.pattern
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    fn bucket(&self, source: u64, tag: u64) -> Bucket {
        let Pattern { mask, has_source, .. } = self.pattern;
        Bucket { source: if has_source { source } else { 0 }, tag: tag & mask }
    }

    /// Adds an entry, in its order.
    pub(crate) fn add(&mut self, key: Key, source: u64, tag: u64) {
        let bucket = self.bucket(source, tag);
        let index = key.node as usize;
        if self.links.len() <= index {
            self.links.resize(index + 1, UNUSED);
        }
        let ends = self.buckets.entry(bucket).or_insert(Ends { first: NONE, last: NONE });
        // Most entries are the last.
        let mut previous = ends.last;
        while previous != NONE && self.links[previous as usize].order > key.order {
            previous = self.links[previous as usize].previous;
        }
        let next = match self.links.get(previous as usize) {
            Some(link) => link.next,
            None => ends.first,
        };
        self.links[index] = Link { bucket, order: key.order, previous, next, is_used: true };
        match self.links.get_mut(previous as usize) {
            Some(link) => link.next = key.node,
            None => ends.first = key.node,
        }
        match self.links.get_mut(next as usize) {
            Some(link) => link.previous = key.node,
            None => ends.last = key.node,
        }
    }

    /// Removes an entry, if it is there.
    pub(crate) fn remove(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key.node as usize) else { return };
        if !link.is_used || link.order != key.order {
            return;
        }
        let Link { bucket, previous, next, .. } = std::mem::replace(link, UNUSED);
        if previous == NONE && next == NONE {
            self.buckets.remove(&bucket);
            return;
        }
        let Some(ends) = self.buckets.get_mut(&bucket) else { return };
        match self.links.get_mut(previous as usize) {
            Some(link) => link.next = next,
            None => ends.first = next,
        }
        match self.links.get_mut(next as usize) {
            Some(link) => link.previous = previous,
            None => ends.last = previous,
        }
    }

    /// The node of the first entry of this source and tag.
    pub(crate) fn first(&self, source: u64, tag: u64) -> Option<u32> {
        self.buckets.get(&self.bucket(source, tag)).map(|ends| ends.first)
    }
}

/// How an index mixes tags and sources. A number that peers do not know keeps them from choosing tags that
/// all fall into one bucket of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub u64);

impl BuildHasher for Seed {
    type Hasher = Mix;

    fn build_hasher(&self) -> Mix {
        Mix { state: self.0, seed: self.0 }
    }
}

/// The state of a hash: each word is multiplied into it.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    state: u64,
    seed: u64,
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        fold(self.state, self.seed | 1)
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.seed ^ 0x9e37_79b9_7f4a_7c15);
    }
}

/// Both halves of a product, which depend on every bit of the factors.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    let low = product as u64;
    low ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed = Seed(0x1234_5678_9abc_def1);

    fn texts(list: &List<&'static str>) -> Vec<&'static str> {
        list.iter().map(|(_, &text)| text).collect()
    }

    #[test]
    fn a_list_keeps_its_order() {
        let mut list = List::default();
        let keys = ["a", "b", "c"].map(|text| list.push_back(text));
        assert_eq!(list.remove(keys[1]), Some("b"));
        assert_eq!(list.remove(keys[1]), None);
        let d = list.push_back("d");
        assert_eq!(list.get(keys[1]), None, "its node was given again");
        assert_eq!(texts(&list), ["a", "c", "d"]);
        let again = list.insert(keys[1].order, "b");
        assert_eq!(texts(&list), ["a", "b", "c", "d"]);
        assert_eq!((list.get(again), list.get(d), list.len()), (Some(&"b"), Some(&"d"), 4));
        list.remove(d);
        list.remove(keys[0]);
        assert_eq!(texts(&list), ["b", "c"]);
    }

    #[test]
    fn an_index_finds_the_first_of_each_bucket() {
        let mut list = List::default();
        let mut index =
            Index::new(Pattern { space: Space::Tagged, mask: 0xff, has_source: true }, SEED);
        let keys: Vec<Key> = (0..6u64).map(|number| list.push_back(number)).collect();
        for (number, &key) in (0..).zip(&keys) {
            index.add(key, number % 2, 0x100 * number + 7);
        }
        assert_eq!(index.first(1, 7), Some(keys[1].node));
        index.remove(keys[1]);
        index.remove(keys[1]);
        assert_eq!(index.first(1, 0x907), Some(keys[3].node));
        index.add(keys[1], 1, 7);
        assert_eq!(index.first(1, 7), Some(keys[1].node), "in its old place");
        assert_eq!(index.first(1, 8), None);
        for &key in &keys {
            index.remove(key);
        }
        assert!(index.is_empty());
    }
}
