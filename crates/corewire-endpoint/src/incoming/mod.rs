//! Messages that arrive: where each goes, until a receive has all of it.
//!
//! The oldest receive that asks for a message gets it. If there is none, the message is kept; a caller that polls leaves it
//! where it is at first ([`Incoming::leaves_unasked`]). If its peer's share of the budget is spent, the message stays at the
//! head of its pair; that sender then runs out of room. A request is kept, and received later, while too many replies to its
//! sender wait for room.
//!
//! | file | holds |
//! |---|---|
//! | this one | arrivals: each is matched |
//! | [`filling`] | copying its fragments to where it goes |
//! | [`kept`] | messages that no receive has asked for yet |
//! | [`offers`] | large messages that peers offer, and their match |
//! | [`pulls`] | copying these, piece by piece |
//! | [`data`] | those of them that come through the transport after all |
//! | [`words`] | what other engines say of large messages and grants |
//! | [`ends`] | those that are taken back, or whose peer or receive ends before they have come |
//!
//! [`Incoming`] calls [`Peers`], for acknowledgements, notices and answers; `Peers` knows nothing of it.

mod data;
mod ends;
mod filling;
mod kept;
mod offers;
mod pulls;
mod words;

use std::collections::{BTreeSet, VecDeque};

use corewire_layout::counters::EndpointCounter;
use corewire_ring::message::{Arrival, Envelope, Space, Wants};

use crate::budget::{Budget, DEFERRED_BYTES_MAX, cost};
use crate::caller::{Caller, CallerState};
use crate::error::MessageError;
use crate::list::{Key, Seed};
use crate::matching::{KeptBytes, Matching, SHORT_BYTES_MAX, Unexpected};
use crate::peers::Peers;
use crate::pool::Pool;
use crate::rendezvous::ArrivingData;
use crate::selector::Peer;
use crate::transport::{Short, Transport};

/// What has arrived, and what waits for it.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) matching: Matching,
    pub(crate) pool: Pool,
    /// By the peers' rows.
    rows: Vec<Row>,
    /// The length of the message that a call has offered and waits for; 0 if there is none.
    blocked_bytes: u64,
    /// A request that was deferred may be received since this was asked last.
    has_resumed: bool,
    /// Whether the caller polls, and what that leaves where it is.
    polled: Polled,
    /// Number of passes over the messages that are pulled.
    passes: u64,
    /// Steps in a row in which a pull has waited for its sender.
    busy_steps: u32,
}

/// What a caller that polls leaves where it is: see [`Incoming::leaves_unasked`].
#[derive(Debug, Default)]
struct Polled {
    /// It is being called.
    is_now: bool,
    /// It has been told of an end in this call.
    tells: bool,
    /// How many more messages that no receive asks for this call keeps, and whether it has kept any.
    keeps: u32,
    has_kept: bool,
    /// Calls since it was told of an end that have met such a message.
    quiet: u32,
    /// How often one was left since one was kept.
    left: u32,
    /// How often what has arrived was put off to the next call.
    put_off: u32,
    /// More may have arrived than was looked at.
    is_unfinished: bool,
}

/// What has arrived is left where it is no more than this many times.
const LEFT_MAX: u32 = 16;
/// At most two to the power of this are kept in one call.
const KEPT_SHIFT_MAX: u32 = 6;

/// What arrives from a peer.
#[derive(Debug, Default)]
struct Row {
    /// Where the message goes of which a part has arrived, and how much that is.
    place: Place,
    filled: usize,
    /// The length of that message.
    expected: u64,
    /// The offer or notice that is arriving.
    words: Vec<u8>,
    /// What is known of the message that arrives as data.
    data: Option<ArrivingData>,
    /// The number of its messages that request an acknowledgement.
    received_for_ack: u64,
    /// The number of the message that is arriving, if it is acknowledged when all of it has arrived.
    ack_due: Option<u64>,
    /// Requests that nobody receives before it has read replies.
    deferred: VecDeque<Key>,
    /// What these cost.
    deferred_bytes: u64,
    /// Its offers whose messages have neither arrived nor been dropped.
    offers: BTreeSet<u64>,
    /// The last of them whose sender waits.
    blocking_offer: Option<u64>,
    /// The last pass over all transfers in which one of its messages was pulled: the others wait for the next pass.
    pulled_in: u64,
}

/// Where a message goes of which a part has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// It is dropped.
    #[default]
    Nowhere,
    /// It is a request, and is dropped. Its sender is told when all of it has arrived: it waits for a reply only then.
    Refused,
    /// To a receive that goes on by itself.
    Operation(u32),
    /// To the receive that is being called.
    Caller,
    /// To where it is kept until a receive asks for it.
    Kept(Key),
    /// It is an offer or a notice, and is collected.
    Words,
}

impl Incoming {
    pub(crate) fn new(budget: Budget, seed: Seed) -> Self {
        Self {
            matching: Matching::new(budget, seed),
            pool: Pool::default(),
            rows: Vec::new(),
            blocked_bytes: 0,
            has_resumed: false,
            polled: Polled::default(),
            passes: 0,
            busy_steps: 0,
        }
    }

    /// A new peer has this row.
    pub(crate) fn open(&mut self, row: u32) {
        let index = row as usize;
        if self.rows.len() <= index {
            self.rows.resize_with(index + 1, Row::default);
        }
        self.rows[index] = Row::default();
    }

    /// Nothing more goes to the peer of `row`, which has gone: what was kept back for its sake is not any more.
    pub(crate) fn peer_has_gone<T: Transport>(&mut self, peers: &mut Peers<T>, row: u32) {
        self.resume_requests(peers, row);
        self.fetch_held(peers);
    }

    /// Nothing is left of this peer: drops its message that was left with it.
    pub(crate) fn drop_held_of(&mut self, peer: Peer) {
        if let Some(key) = self.matching.held_of(peer) {
            drop(self.matching.take(key));
        }
    }

    /// Whether a message of the peer that has this row is arriving where it is kept.
    #[inline]
    pub(crate) fn is_arriving_at(&self, row: u32, key: Key) -> bool {
        self.rows[row as usize].place == Place::Kept(key)
    }

    /// Whether a request that was deferred may be received since this was asked last.
    #[inline]
    pub(crate) fn take_resumed(&mut self) -> bool {
        std::mem::take(&mut self.has_resumed)
    }

    /// Handles what lies at the head of a row. A part of [`Engine::progress`](crate::Engine::progress), which calls it in
    /// one place: a call would move its arguments through memory. The same for what this one calls in one place. False if
    /// no more is to be handled before the caller goes on.
    #[inline(always)]
    pub(crate) fn take_arrival<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        mut caller: Option<&mut Caller<'_>>,
    ) -> bool {
        let found = peers.transport.arrival(row);
        let arrival = match &found {
            Ok(Some(arrival)) => arrival,
            Ok(None) => return true,
            Err(violation) => {
                peers.cut_off(row, *violation);
                return true;
            }
        };
        if arrival.is_first {
            let Envelope { space, tag, .. } = arrival.envelope;
            if peers.mute_if_behind(row, &arrival.envelope) {
                return true;
            }
            self.set_place(row, Place::Nowhere, arrival.total);
            let stays = match space {
                Space::Acknowledgement => {
                    peers.handle_ack(row, tag);
                    false
                }
                Space::Dropped => {
                    peers.request_dropped(row, tag, caller.as_deref_mut());
                    false
                }
                Space::Reply => {
                    self.find_call(peers, row, arrival, caller.as_deref_mut());
                    false
                }
                Space::Tagged | Space::Untagged | Space::Request => {
                    !self.find_place(peers, row, arrival, caller.as_deref_mut())
                }
                Space::Offer | Space::Notice => !self.begin_words(peers, row, arrival),
                Space::Data => !self.begin_data(peers, row, arrival, caller.as_deref_mut()),
            };
            if stays {
                return !self.polled.is_now;
            }
        }
        self.fill(peers, row, arrival, caller);
        true
    }

    /// The caller polls, and has been told of `told` ends in this call.
    #[inline]
    pub(crate) fn begin_poll(&mut self, told: usize) {
        (self.polled.is_now, self.polled.tells) = (true, told > 0);
    }

    /// It does so no longer.
    #[inline]
    pub(crate) fn end_poll(&mut self) {
        let polled = &mut self.polled;
        (polled.is_now, polled.has_kept, polled.keeps) = (false, false, 0);
    }

    /// The caller is told of an end.
    #[inline(always)]
    pub(crate) fn note_told(&mut self) {
        self.polled.quiet = 0;
    }

    /// Nothing more has arrived.
    #[inline(always)]
    pub(crate) fn note_nothing(&mut self) {
        self.polled.is_unfinished = false;
    }

    /// Whether something may have arrived that was left where it is.
    pub(crate) fn has_left_some(&self) -> bool {
        self.polled.is_unfinished
    }

    /// Whether what has arrived waits for the next call, since this one tells of an end: not more than [`LEFT_MAX`] times.
    #[inline]
    pub(crate) fn waits_for_next_call(&mut self) -> bool {
        let polled = &mut self.polled;
        polled.is_unfinished = true;
        let waits = polled.put_off < LEFT_MAX;
        polled.put_off = if waits { polled.put_off + 1 } else { 0 };
        if !waits {
            // Whatever it is.
            polled.left = LEFT_MAX;
        }
        waits
    }

    /// Whether a message that no receive asks for stays where it is for now. Who polls is told of ends, and asks for more
    /// then: a message that is asked for next need not be kept before. The next call that tells of nothing keeps it, and the
    /// ones after that twice as many each. If each call tells of something, one is kept after [`LEFT_MAX`] of them: what lies
    /// behind it may be asked for.
    #[inline]
    pub(crate) fn leaves_unasked(&mut self, tells: bool) -> bool {
        let polled = &mut self.polled;
        polled.is_unfinished = true;
        if polled.keeps == 0 && !polled.has_kept {
            if polled.quiet > 0 && !tells {
                polled.keeps = 1 << (polled.quiet - 1).min(KEPT_SHIFT_MAX);
            } else if polled.left == LEFT_MAX {
                polled.keeps = 1;
            }
            polled.has_kept = polled.keeps > 0;
            polled.left = if polled.has_kept { 0 } else { polled.left + 1 };
            polled.quiet += u32::from(!tells);
        }
        let leaves = polled.keeps == 0;
        polled.keeps -= u32::from(!leaves);
        leaves
    }

    /// Decides where a reply goes: nowhere if its call is over.
    #[inline(always)]
    fn find_call<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        arrival: &Arrival,
        caller: Option<&mut Caller<'_>>,
    ) {
        let (source, number) = (peers.peer_of(row), arrival.envelope.tag);
        if let Some(operation) = peers.take_call(source, number) {
            if self.prepare(peers, operation, arrival.total) {
                self.set_place(row, Place::Operation(operation), arrival.total);
            }
        } else if let Some(caller) = caller
            && caller.is_waiting()
            && caller.selector.takes_of(Space::Reply, source.bits(), number)
        {
            match caller.target.prepare(arrival.total) {
                Ok(()) => {
                    caller.state = CallerState::Filling(peers.status_of(row, arrival));
                    self.set_place(row, Place::Caller, arrival.total);
                }
                Err(error) => caller.state = CallerState::Ended(Err(error)),
            }
        }
    }

    /// Decides where a message goes. False if it stays where it is.
    #[inline(always)]
    fn find_place<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        arrival: &Arrival,
        caller: Option<&mut Caller<'_>>,
    ) -> bool {
        let source = peers.peer_of(row);
        let Envelope { space, tag, wants, .. } = arrival.envelope;
        if space == Space::Request && self.keeps_requests_back(peers, row) {
            return self.defer(peers, row, arrival);
        }
        while let Some(operation) = peers.operations.take_posted(space, source, tag, arrival.total)
        {
            if self.prepare(peers, operation, arrival.total) {
                self.set_place(row, Place::Operation(operation), arrival.total);
                self.note_match(peers, row, wants);
                return true;
            }
            if peers.operations.is_claim(operation) {
                let (key, is_kept) = self.keep(peers, row, arrival, true);
                self.claim_for(peers, operation, key);
                return is_kept;
            }
        }
        if let Some(caller) = caller
            && caller.is_waiting()
            && caller.selector.takes_of(space, source.bits(), tag)
        {
            let stays = arrival.is_in_place() && caller.target.adopts();
            match if stays { Ok(()) } else { caller.target.prepare(arrival.total) } {
                Ok(()) => {
                    caller.state = CallerState::Filling(peers.status_of(row, arrival));
                    self.set_place(row, Place::Caller, arrival.total);
                    self.note_match(peers, row, wants);
                    return true;
                }
                // The receive waits for another: its caller could do nothing about this one.
                Err(MessageError::NoMemory { .. }) if space == Space::Request => {
                    self.set_place(row, Place::Refused, arrival.total);
                    return true;
                }
                Err(error) => caller.state = CallerState::Ended(Err(error)),
            }
        }
        let tells = self.polled.tells || peers.operations.has_ends();
        if self.polled.is_now && self.leaves_unasked(tells) {
            return false;
        }
        peers.transport.count(EndpointCounter::Unexpected);
        peers.has_news = true;
        self.keep(peers, row, arrival, false).1
    }

    /// Keeps the next message, if it is a short one of the peer of `row`, no receive asks for it, and the transport lets it be
    /// taken whole. False if not; nothing was done then.
    #[inline(always)]
    pub(crate) fn keep_short<T: Transport>(&mut self, peers: &mut Peers<T>, row: u32) -> bool {
        if !self.matching.budget.has_room(row, SHORT_BYTES_MAX as u64) {
            return false;
        }
        let (mut kept, mut found_in) = (KeptBytes::short(), Space::Tagged);
        let Peers { transport, operations, .. } = peers;
        let found = transport.try_take_matched(|space, source, tag, bytes| {
            found_in = space;
            let is_it = Peer::of_bits(source).row() == row && bytes <= SHORT_BYTES_MAX;
            (is_it && operations.is_unasked(space, source, tag)).then_some(&mut kept)
        });
        let Short::Taken { source, tag, immediate, .. } = found else { return false };
        let envelope = Envelope { space: found_in, tag, immediate, wants: Wants::Nothing };
        peers.transport.count(EndpointCounter::Unexpected);
        peers.has_news = true;
        self.matching.keep(Unexpected::arrived(Peer::of_bits(source), envelope, kept));
        self.show_kept(peers, row);
        true
    }

    /// Keeps a request that nobody receives yet. False if it stays with its sender.
    fn defer<T: Transport>(&mut self, peers: &mut Peers<T>, row: u32, arrival: &Arrival) -> bool {
        let is_within = self.rows[row as usize].deferred_bytes <= DEFERRED_BYTES_MAX;
        let (key, is_kept) = self.keep(peers, row, arrival, is_within);
        self.defer_kept(row, key, arrival.total);
        is_kept
    }

    /// A request that is kept, of which `bytes` bytes are here, is received later.
    #[inline]
    fn defer_kept(&mut self, row: u32, key: Key, bytes: u64) {
        self.matching.claim(key);
        let entry = &mut self.rows[row as usize];
        entry.deferred.push_back(key);
        entry.deferred_bytes = entry.deferred_bytes.saturating_add(cost(bytes));
    }

    /// Whether a request of this peer is kept, and not received, because too many bytes of replies to it wait for room.
    /// Its replies to this endpoint's own requests, which lie behind, are taken meanwhile: of two peers that call each
    /// other neither waits for the other. A peer that owes replies begins no request, so little lies before them: what
    /// its ring and its cells hold, and one message of any length.
    fn keeps_requests_back<T: Transport>(&self, peers: &Peers<T>, row: u32) -> bool {
        peers.owes_too_much(row) || !self.rows[row as usize].deferred.is_empty()
    }

    /// Lets requests be received that were kept back, if few enough replies wait by now.
    pub(crate) fn resume_requests<T: Transport>(&mut self, peers: &mut Peers<T>, row: u32) {
        let entry = &mut self.rows[row as usize];
        if entry.deferred.is_empty() || peers.owes_too_much(row) {
            return;
        }
        entry.deferred_bytes = 0;
        for key in std::mem::take(&mut entry.deferred) {
            self.make_available(peers, key);
        }
        peers.has_news = true;
        self.has_resumed = true;
    }

    /// The message that is arriving has been matched: acknowledges it now, or when all of it has arrived, if its
    /// sender requests that.
    fn note_match<T: Transport>(&mut self, peers: &mut Peers<T>, row: u32, wants: Wants) {
        if let Some(number) = self.count_ack_request(row, wants) {
            peers.acknowledge(row, number);
        }
    }

    /// Counts a message that requests an acknowledgement. Returns its number if its match is to be acknowledged; a
    /// delivery is acknowledged when the whole message has arrived.
    #[inline]
    fn count_ack_request(&mut self, row: u32, wants: Wants) -> Option<u64> {
        let entry = &mut self.rows[row as usize];
        if wants == Wants::Nothing {
            return None;
        }
        entry.received_for_ack += 1;
        match wants {
            Wants::Delivery => {
                entry.ack_due = Some(entry.received_for_ack);
                None
            }
            _ => Some(entry.received_for_ack),
        }
    }

    /// Keeps a message that no receive asks for, whatever the budget if `is_exempt`. False beside its key if it stays
    /// with its sender.
    fn keep<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        arrival: &Arrival,
        is_exempt: bool,
    ) -> (Key, bool) {
        let (source, envelope, total) = (peers.peer_of(row), arrival.envelope, arrival.total);
        // What is left of a peer that has gone is little, and its row is free only when all of it is kept.
        let has_ended = peers.has_ended(row);
        let stays = arrival.is_in_place();
        let has_room = has_ended
            || is_exempt
            || self.may_keep(row, if stays { 0 } else { total })
            || self.must_keep(peers, row);
        let take = || {
            if stays { Some(KeptBytes::default()) } else { KeptBytes::of(total, &self.pool) }
        };
        let memory = has_room.then(take).flatten();
        let is_held = memory.is_none();
        let bytes = memory.unwrap_or_default();
        let ack_due = self.count_ack_request(row, envelope.wants);
        let message = Unexpected {
            ack_due,
            total,
            stays,
            is_held,
            ..Unexpected::arrived(source, envelope, bytes)
        };
        let key = self.matching.keep(message);
        if is_held {
            peers.transport.count(EndpointCounter::Stalls);
            peers.transport.hold(row);
            if has_ended {
                self.fetch_held(peers);
            }
        } else {
            self.set_place(row, Place::Kept(key), total);
            self.show_kept(peers, row);
        }
        (key, !is_held)
    }
}
