//! The messages that no receive has asked for yet: a receive gets the oldest that it asks for.
//!
//! As long as there are few, they are looked at one after the other. Beyond that they are found by
//! buckets of source and tag, in constant time for each *pattern* in use: for the bits of the tag that a
//! selector compares, and for whether it names a source. MPI programs use four patterns.

mod bytes;

use std::collections::VecDeque;

use corewire_ring::message::{Envelope, Held, Space, Wants};

pub(crate) use self::bytes::{KeptBytes, SHORT_BYTES_MAX};
use crate::budget::Budget;
use crate::list::{Index, Key, List, Pattern, Seed};
use crate::pool::Pool;
use crate::rendezvous::ArrivedOffer;
use crate::selector::{Peer, Selector, Status};

/// Entries that are looked at one after the other. More are indexed.
const LINEAR_MAX: usize = 16;
/// The most patterns that have an index. Selectors of further patterns are compared one by one.
const INDEXES_MAX: usize = 8;

/// A message that no receive has asked for yet.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub(crate) source: Peer,
    pub(crate) envelope: Envelope,
    /// Its number among the messages of its sender that request an acknowledgement of the match.
    pub(crate) ack_due: Option<u64>,
    /// Bytes of the whole message.
    pub(crate) total: u64,
    /// It stays where its sender wrote it: in `held`, once it was taken from its sender.
    pub(crate) stays: bool,
    pub(crate) held: Option<Box<Held>>,
    /// The part of it that has arrived.
    pub(crate) bytes: KeptBytes,
    /// It is still with its sender, since the budget is spent.
    pub(crate) is_held: bool,
    /// It is in its sender's memory, since it is large. Then `bytes` are those that need not be read or sent again.
    pub(crate) offer: Option<Box<ArrivedOffer>>,
    /// The number of its offer, if it was offered and comes as data.
    pub(crate) carrier: Option<u64>,
    /// Somebody has claimed it: it matches nothing any more.
    pub(crate) is_claimed: bool,
}

impl Unexpected {
    /// A message that has arrived, whose sender waits for no word about it.
    #[inline(always)]
    pub(crate) fn arrived(source: Peer, envelope: Envelope, bytes: KeptBytes) -> Self {
        let (total, ack_due, offer, carrier) = (bytes.len() as u64, None, None, None);
        let (is_held, is_claimed, stays, held) = (false, false, false, None);
        Self {
            source,
            envelope,
            ack_due,
            total,
            stays,
            held,
            bytes,
            is_held,
            offer,
            carrier,
            is_claimed,
        }
    }

    /// A message that is offered.
    pub(crate) fn offered(
        source: Peer,
        envelope: Envelope,
        total: u64,
        offer: ArrivedOffer,
        bytes: KeptBytes,
    ) -> Self {
        let offer = Some(Box::new(offer));
        Self { total, offer, ..Self::arrived(source, envelope, bytes) }
    }

    /// What a receive learns of it.
    pub(crate) fn status(&self) -> Status {
        let Envelope { tag, immediate, .. } = self.envelope;
        Status { source: self.source, tag, bytes: self.total, immediate }
    }

    /// What its arrival as data needs to know of it, if it comes so: its source, its status, and the number of its offer if
    /// the sender waits until it has arrived.
    pub(crate) fn data(&self) -> Option<(Peer, Status, Option<u64>)> {
        let number = self.carrier?;
        let done = (self.envelope.wants == Wants::Delivery).then_some(number);
        Some((self.source, self.status(), done))
    }

    /// The envelope with which it comes from its sender.
    pub(crate) fn ring_envelope(&self) -> Envelope {
        match self.carrier {
            Some(number) => Envelope::numbered(Space::Data, number),
            None => self.envelope,
        }
    }

    fn is_wanted(&self, selector: &Selector) -> bool {
        let Envelope { space, tag, .. } = self.envelope;
        !self.is_claimed && selector.takes_of(space, self.source.bits(), tag)
    }

    /// Whether all of it is here.
    pub(crate) fn is_whole(&self) -> bool {
        let is_here = self.held.is_some() || self.bytes.len() as u64 == self.total;
        !self.is_held && self.offer.is_none() && is_here
    }

    /// Whether it was sent through the transport, all of it is here, and its sender waits for no word about it.
    #[inline]
    fn is_plain(&self) -> bool {
        let is_here = self.bytes.len() as u64 == self.total && !self.is_held && !self.stays;
        let was_offered = self.offer.is_some() || self.carrier.is_some();
        is_here && !was_offered && self.envelope.wants == Wants::Nothing
    }

    /// What keeping it costs of the budget besides what every message costs: its bytes, unless they stay with its sender.
    fn kept_bytes(&self) -> u64 {
        if self.stays { 0 } else { self.total }
    }
}

/// The messages that no receive has asked for.
#[derive(Debug)]
struct UnexpectedMessages {
    list: List<Unexpected>,
    /// Each message that is not claimed is in all of them.
    indexes: Vec<Index>,
    seed: Seed,
}

impl UnexpectedMessages {
    fn add(&mut self, key: Key) {
        if let Some(message) = self.list.get(key) {
            let (source, Envelope { space, tag, .. }) = (message.source.bits(), message.envelope);
            let indexes = self.indexes.iter_mut().filter(|index| index.pattern().space == space);
            indexes.for_each(|index| index.add(key, source, tag));
        }
    }

    fn hide(&mut self, key: Key) {
        self.indexes.iter_mut().for_each(|index| index.remove(key));
    }

    fn remove(&mut self, key: Key) -> Option<Unexpected> {
        let message = self.list.remove(key)?;
        self.hide(key);
        if self.list.len() == 0 {
            self.indexes.clear();
        }
        Some(message)
    }

    /// The same, and drops it.
    #[inline]
    fn discard(&mut self, key: Key) {
        self.list.discard(key);
        self.hide(key);
        if self.list.len() == 0 {
            self.indexes.clear();
        }
    }

    #[inline]
    fn find(&mut self, selector: &Selector) -> Option<Key> {
        if self.list.len() > LINEAR_MAX {
            let pattern = selector.pattern();
            let found = self.indexes.iter().position(|index| index.pattern() == pattern);
            let place = found.or_else(|| self.add_index(pattern));
            if let Some(place) = place {
                let node =
                    self.indexes[place].first(selector.wanted().source, selector.wanted().tag)?;
                return self.list.at(node).map(|(key, _)| key);
            }
        }
        let mut all = self.list.iter();
        all.find(|(_, message)| message.is_wanted(selector)).map(|(key, _)| key)
    }

    #[cold]
    fn add_index(&mut self, pattern: Pattern) -> Option<usize> {
        if self.indexes.len() == INDEXES_MAX {
            return None;
        }
        let mut index = Index::new(pattern, self.seed);
        for (key, message) in self.list.iter() {
            if !message.is_claimed && message.envelope.space == pattern.space {
                index.add(key, message.source.bits(), message.envelope.tag);
            }
        }
        self.indexes.push(index);
        Some(self.indexes.len() - 1)
    }
}

/// Messages that wait for receives.
#[derive(Debug)]
pub(crate) struct Matching {
    unexpected: UnexpectedMessages,
    /// Messages that are with their senders, at most one of each.
    held: VecDeque<Key>,
    pub(crate) budget: Budget,
}

impl Matching {
    pub(crate) fn new(budget: Budget, seed: Seed) -> Self {
        Self {
            unexpected: UnexpectedMessages { list: List::default(), indexes: Vec::new(), seed },
            held: VecDeque::new(),
            budget,
        }
    }

    /// Whether no message waits.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.unexpected.list.len() == 0
    }

    // Messages.

    /// Keeps a message: its first `bytes`, or none of it if it is held by its sender.
    #[inline]
    pub(crate) fn keep(&mut self, message: Unexpected) -> Key {
        let (source, total, is_held) = (message.source, message.kept_bytes(), message.is_held);
        let key = self.unexpected.list.push_back(message);
        self.unexpected.add(key);
        if is_held {
            self.held.push_back(key);
        } else {
            self.budget.spend(source.row(), total);
        }
        key
    }

    /// Keeps a message that a receive had begun to take: the newest of its sender, since not all of it has
    /// arrived.
    pub(crate) fn put_back(&mut self, message: Unexpected) -> Key {
        self.budget.spend(message.source.row(), message.total);
        let key = self.unexpected.list.push_back(message);
        self.unexpected.add(key);
        key
    }

    // Messages that are offered.

    /// The place of an offer among the messages, if no receive asks for it now.
    pub(crate) fn new_order(&mut self) -> u64 {
        self.unexpected.list.new_order()
    }

    /// Keeps an offer in its place.
    pub(crate) fn keep_offered(&mut self, order: u64, message: Unexpected) -> Key {
        let key = self.unexpected.list.insert(order, message);
        self.unexpected.add(key);
        key
    }

    /// A message's offer, and its length.
    pub(crate) fn offer_of(&self, key: Key) -> Option<(ArrivedOffer, u64)> {
        let message = self.get(key)?;
        Some((message.offer.as_deref()?.clone(), message.total))
    }

    /// Changes what is there of a message that was offered. Without an offer, all of it is.
    pub(crate) fn set_offer(&mut self, key: Key, offer: Option<ArrivedOffer>, bytes: KeptBytes) {
        let Some(message) = self.unexpected.list.get_mut(key) else { return };
        if offer.is_none() {
            self.budget.spend(message.source.row(), message.total);
        }
        message.offer = offer.map(Box::new);
        message.bytes = bytes;
    }

    /// A message that was offered comes as data, to this memory, or is held by its sender.
    pub(crate) fn begin_data(&mut self, key: Key, number: u64, memory: Option<KeptBytes>) {
        let Some(message) = self.unexpected.list.get_mut(key) else { return };
        message.offer = None;
        message.carrier = Some(number);
        message.is_held = memory.is_none();
        match memory {
            Some(memory) => {
                message.bytes = memory;
                self.budget.spend(message.source.row(), message.total);
            }
            None => self.held.push_back(key),
        }
    }

    /// The message with this offer.
    pub(crate) fn find_offered(&self, source: Peer, number: u64) -> Option<Key> {
        let is_it = |offer: &ArrivedOffer| offer.number == number;
        let mut all = self.unexpected.list.iter();
        all.find(|(_, message)| {
            message.source == source && message.offer.as_deref().is_some_and(is_it)
        })
        .map(|(key, _)| key)
    }

    /// A message that this peer has offered.
    pub(crate) fn any_offered(&self, source: Peer) -> Option<Key> {
        let mut all = self.unexpected.list.iter();
        all.find(|(_, message)| message.source == source && message.offer.is_some())
            .map(|(key, _)| key)
    }

    /// As [`put_back`](Self::put_back), in its place.
    pub(crate) fn put_back_at(&mut self, order: u64, message: Unexpected) -> Key {
        self.budget.spend(message.source.row(), message.total);
        let key = self.unexpected.list.insert(order, message);
        self.unexpected.add(key);
        key
    }

    /// A message that was with its sender is kept here from now on.
    pub(crate) fn fetch(&mut self, key: Key) {
        self.held.retain(|held| *held != key);
        if let Some(message) = self.unexpected.list.get_mut(key) {
            message.is_held = false;
            self.budget.spend(message.source.row(), message.kept_bytes());
        }
    }

    /// The oldest message that `selector` asks for.
    #[inline]
    pub(crate) fn find(&mut self, selector: &Selector) -> Option<(Key, &Unexpected)> {
        let key = self.unexpected.find(selector)?;
        self.unexpected.list.get(key).map(|message| (key, message))
    }

    /// The oldest message of another peer than this that `selector` asks for, if it is whole: of each peer the first one comes
    /// first.
    pub(crate) fn find_whole_of_others(&self, selector: &Selector, peer: Peer) -> Option<Key> {
        let mut passed = vec![peer];
        for (key, message) in self.unexpected.list.iter() {
            if !message.is_wanted(selector) || passed.contains(&message.source) {
                continue;
            }
            if message.is_whole() {
                return Some(key);
            }
            passed.push(message.source);
        }
        None
    }

    /// The messages that `selector` asks for and that nobody has claimed, oldest first.
    pub(crate) fn all_of(&self, selector: &Selector) -> Vec<Key> {
        let wanted = |(_, message): &(Key, &Unexpected)| message.is_wanted(selector);
        self.unexpected.list.iter().filter(wanted).map(|(key, _)| key).collect()
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Unexpected> {
        self.unexpected.list.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Unexpected> {
        self.unexpected.list.get_mut(key)
    }

    /// A message matches nothing any more, until it is taken or given back.
    pub(crate) fn claim(&mut self, key: Key) {
        if let Some(message) = self.unexpected.list.get_mut(key) {
            message.is_claimed = true;
            self.unexpected.hide(key);
        }
    }

    /// A message that was claimed matches again, in its old place. False if it is not there any more.
    pub(crate) fn give_back(&mut self, key: Key) -> bool {
        let Some(message) = self.unexpected.list.get_mut(key) else { return false };
        if std::mem::take(&mut message.is_claimed) {
            self.unexpected.add(key);
        }
        true
    }

    /// A message is kept no longer.
    pub(crate) fn take(&mut self, key: Key) -> Option<Unexpected> {
        let message = self.unexpected.remove(key)?;
        if message.is_held {
            self.held.retain(|held| *held != key);
        } else if message.offer.is_none() {
            self.budget.give_back(message.source.row(), message.kept_bytes());
        }
        Some(message)
    }

    /// Gives the oldest message that `selector` asks for to `take`, with its status, if it was sent through the transport,
    /// all of it is here, and its sender waits for no word about it. If `take` has copied it, it is kept no longer.
    #[inline]
    pub(crate) fn take_plain(
        &mut self,
        selector: &Selector,
        pool: &Pool,
        take: impl FnOnce(&[u8], Status) -> bool,
    ) -> Option<Peer> {
        let key = self.unexpected.find(selector)?;
        let message = self.unexpected.list.get_mut(key)?;
        if !message.is_plain() || !take(&message.bytes, message.status()) {
            return None;
        }
        let (source, total) = (message.source, message.total);
        if let KeptBytes::Long(bytes) = &mut message.bytes {
            pool.give_back(std::mem::take(bytes));
        }
        self.unexpected.discard(key);
        self.budget.give_back(source.row(), total);
        Some(source)
    }

    /// Whether a message is with its sender, since the budget is spent.
    #[inline]
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// The oldest message that is with its sender, is not claimed, and could be kept here by now, or whose sender
    /// has gone.
    #[inline]
    pub(crate) fn next_to_fetch(
        &self,
        blocked_bytes: u64,
        is_gone: impl Fn(u32) -> bool,
    ) -> Option<(Key, Peer)> {
        let held = self.held.iter().filter_map(|&key| self.get(key).map(|message| (key, message)));
        held.filter(|(_, message)| {
            let row = message.source.row();
            let may_keep = || self.budget.may_keep(row, message.kept_bytes(), blocked_bytes);
            !message.is_claimed && (is_gone(row) || may_keep())
        })
        .map(|(key, message)| (key, message.source))
        .min()
    }

    /// The message of `source` that is with it.
    #[inline]
    pub(crate) fn held_of(&self, source: Peer) -> Option<Key> {
        let is_of = |key: &Key| self.get(*key).is_some_and(|message| message.source == source);
        self.held.iter().copied().find(is_of)
    }
}

#[cfg(test)]
mod tests;
