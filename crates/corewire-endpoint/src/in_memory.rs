//! A transport in memory, for tests: endpoints of one thread, whose messages lie in queues.
//!
//! It does what any transport may do, at random, from a seed: it has room or has none, takes the short way
//! or not, finds arrivals of different peers in any order, and splits long messages anywhere. Endpoints can be closed
//! and killed. If it [offers](Network::with_offers) messages, they are read in pieces, from one end or from both; if it
//! [refuses](Network::with_refusals) some of them, that happens at any piece.
//! Messages that an engine gathers arrive when it flushes.
//!
//! More than 600 lines, because it implements the whole of [`Transport`], with what may go wrong at each call.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use corewire_layout::name::ChannelName;
use corewire_layout::rendezvous::{Stretch, offer_number};
use corewire_ring::message::{
    Arrival, Envelope, Fragment, Held, Home, Place, Sink, Source, Space, Wanted, Wants,
};

use crate::selector::Peer;
use crate::transport::{
    Attention, Change, Gone, Helped, PeerViolation, Polling, Pulled, Room, SendError, Short,
    Transport,
};

/// Endpoints that reach each other.
#[derive(Debug, Clone)]
pub struct Network(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    dice: u64,
    is_random: bool,
    offers: bool,
    refuses: bool,
    slots: usize,
    fragment_bytes: usize,
    ends: Vec<End>,
    /// Endpoints so far.
    count: u128,
}

#[derive(Debug)]
struct End {
    name: ChannelName,
    incarnation: u128,
    is_gone: bool,
    changes: Vec<Change>,
    /// By sender.
    queues: Vec<Queue>,
    /// Messages that it has offered, by number. What a real transport would read at the time is copied at the offer.
    offers: BTreeMap<u64, Registered>,
    /// Number of offers that it has made.
    uses: u64,
    /// What its peers grant, by row.
    granted: Vec<Granted>,
}

/// What a peer grants, and the messages that it has not released.
#[derive(Debug, Default)]
struct Granted {
    limit: u64,
    refuses: bool,
    /// Messages so far; the number of each is its bit.
    count: u16,
    spent: BTreeMap<u16, u64>,
    released: Arc<Released>,
    shortage: Option<u64>,
}

/// Messages that a peer has released, in any thread.
#[derive(Debug, Default)]
struct Released(Mutex<Vec<u16>>);

impl Home for Released {
    fn release(&self, bit: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bit);
    }
}

impl Granted {
    fn spent(&mut self) -> u64 {
        let mut released = self.released.0.lock().unwrap_or_else(PoisonError::into_inner);
        for bit in released.drain(..) {
            self.spent.remove(&bit).expect("a message is released once");
        }
        self.spent.values().sum()
    }
}

#[derive(Debug)]
struct Registered {
    bytes: Vec<u8>,
    /// Its receiver has begun to read it.
    has_begun: bool,
    /// Pieces, from the end, that the sender has copied, and whether it is copying another.
    helped: usize,
    is_helping: bool,
    /// Pieces, from the beginning, that the receiver has copied.
    pulled: usize,
}

#[derive(Debug, Default)]
struct Queue {
    parts: VecDeque<Part>,
    /// The last parts, which have not arrived: their sender has gathered them and not flushed.
    gathered: usize,
    is_held: bool,
    /// What the receiver calls the sender, if messages may go the short way; and the same of its sends.
    generation: u32,
    /// In the middle of a message: its envelope and its length.
    middle: Option<(Envelope, u64)>,
}

#[derive(Debug)]
struct Part {
    envelope: Envelope,
    total: u64,
    is_first: bool,
    bytes: Vec<u8>,
    /// It stays with its sender until it is released by this number.
    bit: Option<u16>,
}

impl Queue {
    fn push(&mut self, part: Part, is_gathered: bool) {
        self.parts.push_back(part);
        self.gathered += usize::from(is_gathered);
    }

    /// What has arrived first.
    fn front(&self) -> Option<&Part> {
        self.parts.front().filter(|_| self.parts.len() > self.gathered)
    }
}

impl State {
    fn next_incarnation(&mut self) -> u128 {
        self.count += 1;
        self.count
    }
}

impl End {
    fn change(&self, row: u32) -> Change {
        Change::Came { row, name: self.name.clone(), incarnation: self.incarnation }
    }
}

impl Network {
    /// Queues of `slots` fragments of at most `fragment_bytes` bytes. With a seed other than 0 everything
    /// that may happen at random does.
    #[must_use]
    pub fn new(seed: u64, slots: usize, fragment_bytes: usize) -> Self {
        let (dice, is_random, ends, count) = (seed | 1, seed != 0, Vec::new(), 0);
        let (offers, refuses) = (false, false);
        let state = State { dice, is_random, offers, refuses, slots, fragment_bytes, ends, count };
        Self(Rc::new(RefCell::new(state)))
    }

    /// The same, which offers messages that are longer than a fragment; with a seed, some of them.
    #[must_use]
    pub fn with_offers(self) -> Self {
        self.0.borrow_mut().offers = true;
        self
    }

    /// The same, in which reading is refused now and then.
    #[must_use]
    pub fn with_refusals(self) -> Self {
        self.0.borrow_mut().refuses = true;
        self
    }

    /// A new endpoint, which has all others as peers, itself included: the row of each is its number,
    /// counted from 0.
    ///
    /// # Panics
    /// If there are too many.
    #[must_use]
    pub fn join(&self, name: ChannelName) -> InMemory {
        let state = &mut *self.0.borrow_mut();
        let me = state.ends.len();
        let row = u32::try_from(me).expect("few endpoints");
        let incarnation = state.next_incarnation();
        let came = Change::Came { row, name: name.clone(), incarnation };
        let here = state.ends.iter().enumerate().filter(|(_, end)| !end.is_gone);
        let changes = here.map(|(row, end)| {
            let row = u32::try_from(row).expect("few endpoints");
            end.change(row)
        });
        let mut changes: Vec<Change> = changes.collect();
        changes.push(came.clone());
        for end in &mut state.ends {
            end.changes.push(came.clone());
            end.queues.push(Queue::default());
            end.granted.push(Granted::default());
        }
        let queues = (0..=me).map(|_| Queue::default()).collect();
        let granted = (0..=me).map(|_| Granted::default()).collect();
        let (offers, uses) = (BTreeMap::new(), 0);
        let is_gone = false;
        let end = End { name, incarnation, is_gone, changes, queues, offers, uses, granted };
        state.ends.push(end);
        InMemory { network: self.clone(), me, last: 0, is_gathering: false }
    }

    /// A new endpoint in the place of one that has ended and that all others have removed: they know it by the same
    /// row.
    ///
    /// # Panics
    /// If there was no such endpoint.
    #[must_use]
    pub fn join_in_place_of(&self, number: usize, name: ChannelName) -> InMemory {
        let state = &mut *self.0.borrow_mut();
        let row = u32::try_from(number).expect("few endpoints");
        assert!(state.ends[number].is_gone, "the endpoint is there");
        let incarnation = state.next_incarnation();
        let came = Change::Came { row, name: name.clone(), incarnation };
        let mut changes = Vec::new();
        for (other, end) in (0u32..).zip(&mut state.ends).filter(|(_, end)| !end.is_gone) {
            end.changes.push(came.clone());
            end.granted[number] = Granted::default();
            changes.push(end.change(other));
        }
        changes.push(came);
        let queues = state.ends.iter().map(|_| Queue::default()).collect();
        let granted = state.ends.iter().map(|_| Granted::default()).collect();
        let (offers, uses) = (BTreeMap::new(), 0);
        let is_gone = false;
        state.ends[number] =
            End { name, incarnation, is_gone, changes, queues, offers, uses, granted };
        InMemory { network: self.clone(), me: number, last: 0, is_gathering: false }
    }

    /// Ends an endpoint, which is reported to the others. A message of which only a part has been sent never becomes
    /// whole. What was gathered is lost.
    pub fn end(&self, number: usize, how: Gone) {
        let state = &mut *self.0.borrow_mut();
        state.ends[number].is_gone = true;
        let row = u32::try_from(number).unwrap_or(u32::MAX);
        for end in &mut state.ends {
            end.changes.push(Change::Gone { row, how });
            if let Some(queue) = end.queues.get_mut(number) {
                let arrived = queue.parts.len() - std::mem::take(&mut queue.gathered);
                queue.parts.truncate(arrived);
            }
        }
    }
}

impl State {
    fn below(&mut self, count: usize) -> usize {
        // Marsaglia's xorshift64*.
        self.dice ^= self.dice >> 12;
        self.dice ^= self.dice << 25;
        self.dice ^= self.dice >> 27;
        let drawn = self.dice.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(drawn).unwrap_or(0) % count.max(1)
    }

    /// Sends a message that stays with its sender. `None` if it must go in another way, false if it must wait.
    fn place(
        &mut self,
        me: usize,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        is_gathering: bool,
    ) -> Option<bool> {
        let (total, slots) = (source.bytes(), self.slots);
        let granted = &mut self.ends[me].granted[row as usize];
        if total > granted.limit {
            granted.shortage = (granted.limit > 0).then_some(total);
            return None;
        }
        if granted.spent() > granted.limit - total {
            granted.shortage = Some(total);
            return granted.refuses.then_some(false);
        }
        if self.ends.get(row as usize)?.queues[me].parts.len() >= slots {
            return Some(false);
        }
        let granted = &mut self.ends[me].granted[row as usize];
        granted.count = granted.count.wrapping_add(1);
        let bit = granted.count;
        granted.spent.insert(bit, total);
        let mut bytes = vec![0; usize::try_from(total).ok()?];
        source.fill(0, &mut Fragment::private(&mut bytes));
        let (envelope, is_first, bit) = (*envelope, true, Some(bit));
        let part = Part { envelope, total, is_first, bytes, bit };
        self.ends[row as usize].queues[me].push(part, is_gathering);
        Some(true)
    }

    /// Whether something that may happen at random happens now.
    fn happens(&mut self, one_in: usize) -> bool {
        self.is_random && self.below(one_in) == 0
    }
}

/// The transport of one endpoint of a [`Network`].
#[derive(Debug)]
pub struct InMemory {
    network: Network,
    me: usize,
    last: u32,
    is_gathering: bool,
}

impl InMemory {
    /// Changes the queue of what has been sent to this endpoint by the one of `row`.
    fn queue<R>(&self, row: u32, job: impl FnOnce(&mut Queue) -> R) -> Option<R> {
        let state = &mut *self.network.0.borrow_mut();
        state.ends[self.me].queues.get_mut(row as usize).map(job)
    }
}

/// Messages of more bytes than this stay with their sender, as far as their receiver grants that.
const SHORT_BYTES: u64 = 4;

/// Bytes of a piece of a message that is read where its sender has it.
const PIECE_BYTES: usize = 7;

/// A message that is being read.
#[derive(Debug)]
pub struct InMemoryPull {
    source: usize,
    number: u64,
    bytes: usize,
    is_helped: bool,
    taken: usize,
    target: Vec<u8>,
}

/// A message that is being copied to its receiver.
#[derive(Debug)]
pub struct InMemoryHelp {
    number: u64,
    pieces: usize,
}

fn arrival_of(queue: &Queue) -> Option<Arrival> {
    let part = queue.front()?;
    let (envelope, total) =
        if part.is_first { (part.envelope, part.total) } else { queue.middle? };
    let (bytes, is_first) = (part.bytes.len(), part.is_first);
    let place = part.bit.map_or(Place::Slots, |bit| Place::Block { at: 0, bit });
    Some(Arrival { envelope, total, bytes, is_first, place })
}

impl Transport for InMemory {
    fn has_notice(&self) -> bool {
        !self.network.0.borrow().ends[self.me].changes.is_empty()
    }

    fn take_notices(&mut self, changes: &mut Vec<Change>) -> Attention {
        changes.append(&mut self.network.0.borrow_mut().ends[self.me].changes);
        Attention::None
    }

    fn open(&mut self, row: u32, generation: u32) {
        self.queue(row, |queue| queue.generation = generation);
    }

    fn cut_off(&mut self, _row: u32, _violation: PeerViolation) {}

    fn remove(&mut self, row: u32) {
        self.queue(row, |queue| *queue = Queue::default());
    }

    fn try_inject(&mut self, peer: Peer, envelope: &Envelope, message: &[u8]) -> bool {
        let (row, generation) = (peer.row(), peer.generation());
        let is_open = self.queue(row, |queue| queue.generation == generation) == Some(true);
        let is_short = message.len() <= self.network.0.borrow().fragment_bytes;
        let mut sent = 0;
        is_open && is_short && matches!(self.try_send(row, envelope, &message, &mut sent), Ok(true))
    }

    fn try_send(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, SendError> {
        let state = &mut *self.network.0.borrow_mut();
        let total = source.bytes();
        let goes_in_place = *sent == 0 && envelope.space.is_matched() && total > SHORT_BYTES;
        if goes_in_place && !state.happens(4) {
            match state.place(self.me, row, envelope, source, self.is_gathering) {
                Some(true) => {
                    *sent = total;
                    return Ok(true);
                }
                Some(false) => return Ok(false),
                None => {}
            }
        }
        loop {
            if state.happens(5) {
                return Ok(false);
            }
            let is_cut = state.happens(2);
            let longest = if is_cut { 1 + state.below(state.fragment_bytes) } else { usize::MAX };
            let longest = longest.min(state.fragment_bytes);
            let slots = state.slots;
            let Some(to) = state.ends.get_mut(row as usize) else { return Ok(false) };
            let queue = &mut to.queues[self.me];
            if queue.parts.len() >= slots {
                return Ok(false);
            }
            let left = usize::try_from(total - *sent).unwrap_or(usize::MAX);
            let mut bytes = vec![0; left.min(longest)];
            source.fill(*sent, &mut Fragment::private(&mut bytes));
            let is_first = *sent == 0;
            *sent += bytes.len() as u64;
            let bit = None;
            let part = Part { envelope: *envelope, total, is_first, bytes, bit };
            queue.push(part, self.is_gathering);
            if *sent == total {
                return Ok(true);
            }
        }
    }

    fn gather(&mut self) {
        self.is_gathering = true;
    }

    fn flush(&mut self) {
        self.is_gathering = false;
        let state = &mut *self.network.0.borrow_mut();
        let queues = state.ends.iter_mut().filter_map(|end| end.queues.get_mut(self.me));
        queues.for_each(|queue| queue.gathered = 0);
    }

    fn try_take(&mut self, _polling: Polling, wanted: &Wanted, target: &mut [u8]) -> Short {
        let Some(row) = self.poll() else { return Short::Nothing };
        let other = self.network.0.borrow_mut().happens(2);
        let taken = self.queue(row, |queue| {
            let arrival = arrival_of(queue).filter(Arrival::is_whole)?;
            let Envelope { tag, immediate, .. } = arrival.envelope;
            let plain = Envelope { immediate, ..Envelope::numbered(wanted.space, tag) };
            let (bytes, generation) = (arrival.bytes, queue.generation);
            let is_plain = arrival.envelope == plain;
            let is_short = bytes <= target.len() && !arrival.is_in_place();
            let is_it = generation != 0 && is_short && !other && is_plain;
            let source = Wanted::source_bits(row, generation);
            if !is_it || !wanted.takes(source, tag) {
                return None;
            }
            let part = queue.parts.pop_front()?;
            target[..bytes].copy_from_slice(&part.bytes);
            Some(Short::Taken { source, tag, immediate, bytes })
        });
        taken.flatten().unwrap_or(Short::Other(row))
    }

    fn try_take_matched<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        find: impl FnOnce(Space, u64, u64, usize) -> Option<&'a mut S>,
    ) -> Short {
        let Some(row) = self.poll() else { return Short::Nothing };
        let other = self.network.0.borrow_mut().happens(2);
        if other { Short::Other(row) } else { self.try_take_whole(row, find) }
    }

    fn has_another(&mut self) -> bool {
        self.network.0.borrow_mut().happens(2)
    }

    fn try_take_whole<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        row: u32,
        find: impl FnOnce(Space, u64, u64, usize) -> Option<&'a mut S>,
    ) -> Short {
        let taken = self.queue(row, |queue| {
            let arrival = arrival_of(queue).filter(|it| it.is_whole() && !it.is_in_place())?;
            let Envelope { space, tag, immediate, wants } = arrival.envelope;
            let source = Wanted::source_bits(row, queue.generation);
            if queue.generation == 0 || wants != Wants::Nothing {
                return None;
            }
            let target = find(space, source, tag, arrival.bytes)?;
            let part = queue.parts.pop_front()?;
            target.put(0, &part.bytes);
            Some(Short::Taken { source, tag, immediate, bytes: arrival.bytes })
        });
        taken.flatten().unwrap_or(Short::Other(row))
    }

    fn poll(&mut self) -> Option<u32> {
        let state = &mut *self.network.0.borrow_mut();
        let count = state.ends.len();
        let first = if state.is_random { state.below(count) } else { self.last as usize + 1 };
        let queues = &state.ends[self.me].queues;
        let is_ready = |row: &usize| !queues[*row].is_held && queues[*row].front().is_some();
        let row = (first..first + count).map(|row| row % count).find(is_ready)?;
        self.last = u32::try_from(row).ok()?;
        Some(self.last)
    }

    fn arrival(&mut self, row: u32) -> Result<Option<Arrival>, PeerViolation> {
        Ok(self.queue(row, |queue| arrival_of(queue)).flatten())
    }

    fn has_arrival(&mut self, row: u32) -> Result<bool, PeerViolation> {
        Ok(self.queue(row, |queue| queue.front().is_some()) == Some(true))
    }

    fn copy(&self, row: u32, _arrival: &Arrival, at: usize, sink: &mut (impl Sink + ?Sized)) {
        self.queue(row, |queue| {
            if let Some(part) = queue.parts.front() {
                sink.put(at, &part.bytes);
            }
        });
    }

    fn pass(&mut self, row: u32, arrival: &Arrival) {
        self.queue(row, |queue| {
            queue.parts.pop_front();
            queue.middle = Some((arrival.envelope, arrival.total));
        });
    }

    fn hold(&mut self, row: u32) {
        self.queue(row, |queue| queue.is_held = true);
    }

    fn release(&mut self, row: u32) {
        self.queue(row, |queue| queue.is_held = false);
    }

    fn look_at(&mut self, _row: u32) {}

    type Pull = InMemoryPull;
    type Help = InMemoryHelp;

    fn is_offered(&mut self, _row: u32, _envelope: &Envelope, bytes: u64) -> bool {
        let state = &mut *self.network.0.borrow_mut();
        state.offers && !state.happens(2) && bytes > state.fragment_bytes as u64
    }

    fn register(&mut self, _row: u32, source: &impl Source, place: &mut Vec<u8>) -> Option<u64> {
        let state = &mut *self.network.0.borrow_mut();
        let end = &mut state.ends[self.me];
        end.uses += 1;
        let number = offer_number(u16::try_from(end.uses % 1024).ok()?, end.uses);
        let mut bytes = vec![0; usize::try_from(source.bytes()).ok()?];
        source.fill(0, &mut Fragment::private(&mut bytes));
        let (has_begun, is_helping) = (false, false);
        let registered = Registered { bytes, has_begun, helped: 0, is_helping, pulled: 0 };
        end.offers.insert(number, registered);
        place.push(1);
        Some(number)
    }

    fn deregister(&mut self, _row: u32, number: u64) {
        self.network.0.borrow_mut().ends[self.me].offers.remove(&number);
    }

    fn withdraw(&mut self, _row: u32, number: u64) -> bool {
        let removed = self.network.0.borrow_mut().ends[self.me].offers.remove(&number);
        removed.is_none_or(|offer| !offer.has_begun)
    }

    fn has_begun(&self, _row: u32, number: u64) -> bool {
        let state = self.network.0.borrow();
        state.ends[self.me].offers.get(&number).is_some_and(|offer| offer.has_begun)
    }

    fn has_room_for_data(&mut self, _row: u32, _bytes: u64) -> bool {
        true
    }

    fn start_pull(
        &mut self,
        row: u32,
        number: u64,
        _place: &[u8],
        _total: u64,
        bytes: u64,
        is_helped: bool,
    ) -> Result<InMemoryPull, PeerViolation> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let target = vec![0; bytes];
        Ok(InMemoryPull { source: row as usize, number, bytes, is_helped, taken: 0, target })
    }

    fn begin_pull(&mut self, pull: &mut InMemoryPull) -> bool {
        let state = &mut *self.network.0.borrow_mut();
        let offer = state.ends[pull.source].offers.get_mut(&pull.number);
        offer.map(|offer| (offer.has_begun, offer.pulled) = (true, 0)).is_some()
    }

    fn answer(
        &mut self,
        _row: u32,
        pull: &mut InMemoryPull,
        _target: &mut dyn Sink,
        place: &mut Vec<u8>,
    ) -> bool {
        place.push(1);
        pull.is_helped
    }

    fn pull(&mut self, pull: &mut InMemoryPull, target: &mut dyn Sink) -> Pulled {
        let state = &mut *self.network.0.borrow_mut();
        let pieces = pull.bytes.div_ceil(PIECE_BYTES);
        let is_refused = state.refuses && state.happens(10);
        let is_final = state.happens(20);
        let is_gone = state.ends[pull.source].is_gone;
        let Some(offer) = state.ends[pull.source].offers.get_mut(&pull.number) else {
            return Pulled::Void;
        };
        if pull.taken + offer.helped + usize::from(offer.is_helping) < pieces {
            if is_refused || is_gone {
                let there = pull.taken * PIECE_BYTES;
                target.put(0, &pull.target[..there]);
                return Pulled::Refused { bytes: there as u64, is_final };
            }
            let from = pull.taken * PIECE_BYTES;
            let end = pull.bytes.min(from + PIECE_BYTES);
            pull.target[from..end].copy_from_slice(&offer.bytes[from..end]);
            pull.taken += 1;
            offer.pulled = pull.taken;
            return Pulled::More;
        }
        if offer.is_helping {
            return Pulled::Busy;
        }
        let helped = pull.taken * PIECE_BYTES;
        if helped < pull.bytes {
            pull.target[helped..].copy_from_slice(&offer.bytes[helped..pull.bytes]);
        }
        target.put(0, &pull.target);
        Pulled::Done
    }

    fn stop_pull(&mut self, pull: &mut InMemoryPull, target: &mut dyn Sink) -> u64 {
        let there = pull.bytes.min(pull.taken * PIECE_BYTES);
        target.put(0, &pull.target[..there]);
        there as u64
    }

    fn close_pull(&mut self, pull: &mut InMemoryPull) -> bool {
        let state = &mut *self.network.0.borrow_mut();
        let offer = state.ends[pull.source].offers.get_mut(&pull.number);
        offer.is_none_or(|offer| {
            offer.pulled = usize::MAX / 2;
            !offer.is_helping
        })
    }

    fn start_help(
        &mut self,
        _row: u32,
        number: u64,
        _source: &[Stretch],
        _place: &[u8],
        bytes: u64,
    ) -> Option<InMemoryHelp> {
        let pieces = usize::try_from(bytes).ok()?.div_ceil(PIECE_BYTES);
        Some(InMemoryHelp { number, pieces })
    }

    /// Claims a piece in one step, and copies it in the next.
    fn help(&mut self, _row: u32, help: &mut InMemoryHelp) -> Helped {
        let state = &mut *self.network.0.borrow_mut();
        let Some(offer) = state.ends[self.me].offers.get_mut(&help.number) else {
            return Helped::Over;
        };
        if std::mem::take(&mut offer.is_helping) {
            offer.helped += 1;
        }
        if offer.pulled + offer.helped >= help.pieces {
            return Helped::Over;
        }
        offer.is_helping = true;
        Helped::More
    }

    fn set_grant(&mut self, row: u32, limit: u64, refuses: bool) {
        let state = &mut *self.network.0.borrow_mut();
        let granted = &mut state.ends[self.me].granted[row as usize];
        (granted.limit, granted.refuses) = (limit, refuses);
        granted.shortage = None;
    }

    fn spent(&mut self, row: u32) -> u64 {
        self.network.0.borrow_mut().ends[self.me].granted[row as usize].spent()
    }

    fn take_shortage(&mut self, row: u32) -> Option<u64> {
        let state = &mut *self.network.0.borrow_mut();
        state.ends[self.me].granted.get_mut(row as usize)?.shortage.take()
    }

    fn start_granting(&mut self, _row: u32) -> bool {
        true
    }

    fn keep(&mut self, row: u32, arrival: &Arrival) -> Option<Held> {
        let Place::Block { bit, .. } = arrival.place else { return None };
        let state = &mut *self.network.0.borrow_mut();
        let bytes = state.ends[self.me].queues[row as usize].parts.front()?.bytes.clone();
        let home = state.ends[row as usize].granted[self.me].released.clone();
        Some(Held::private(bytes.into(), bit, home))
    }

    fn is_here(&self, _row: u32) -> bool {
        false
    }

    fn last_found(&self) -> u32 {
        self.last
    }

    /// Returns immediately: all endpoints of a network run on one thread.
    fn sleep(&mut self, _limit_ns: u64, _wanted: &[Room]) {}

    fn arm(&mut self, _wanted: &[Room]) -> bool {
        false
    }
}
