//! One endpoint, with the messages that it has sent and received.

use std::sync::Arc;

use corewire_layout::endpoint::{ACTIVITY_BYTES, EndpointSizes};
use corewire_layout::segment::FenceMode;
use corewire_layout::slot::SLOT_BYTES;
use corewire_ring::Trusted;
use corewire_ring::message::{Arrival, Envelope, Space, Wanted};
use corewire_ring::pair::{
    Activity, Endpoint, EndpointMemory, EndpointParts, EndpointShared, PeerParts, Polling, Short,
};
use corewire_ring::region::Region;
use corewire_ring::sync::kill::Stretch;

use super::blocks::{Departed, Holding};
use super::offers::{Offered, Pull, Word, Words};
use super::sleep::Asleep;
use super::{CELL_BYTES, CELLS, HEAP_BYTES, RINGS, Role, SLOTS};
use crate::engine::{content, fail};
use crate::ensure;
use crate::kernel::{SharedLog, TurnKernel};

/// What an endpoint has taken from a pair.
#[derive(Debug)]
pub(super) enum Taken {
    /// A whole message: its number and its bytes.
    Message(u64, Vec<u8>),
    /// A word between two engines, or the data of a large message.
    Word(Word),
}

/// A live endpoint.
#[derive(Debug)]
pub struct Party {
    /// Its role.
    pub role: Role,
    /// Its data thread.
    pub pairs: Endpoint<TurnKernel>,
    /// Its process's interface to the operating system.
    pub(super) kernel: TurnKernel,
    /// Its segment, which no other endpoint writes.
    pub segment: Region,
    /// Its activity page, which all its peers write.
    pub page: Region,
    /// The words of its segment.
    pub memory: EndpointMemory,
    /// The words of its activity page.
    pub activity: Activity,
    /// What it shares with its control thread.
    pub shared: Arc<EndpointShared>,
    /// How it sleeps, if it is asleep.
    pub(super) asleep: Option<Asleep>,
    /// Its messages with each peer, by row.
    with: Vec<Talk>,
    /// Messages that it holds where their senders have them.
    pub(super) held: Vec<Holding>,
    /// What live peers that were removed may hold.
    pub(super) departed: Vec<Departed>,
    /// Number of offers that were ended at once, with all others.
    pub(super) ended_at_once: usize,
}

/// The messages between two endpoints, as one of them sees them.
#[derive(Debug, Default)]
pub(super) struct Talk {
    /// Every message that was sent or was about to be sent.
    pub(super) sent: Vec<Vec<u8>>,
    /// Number of them that were sent whole, as far as this endpoint knows.
    pub(super) finished: u64,
    /// Bytes of the last message that have been sent while it is incomplete.
    pub(super) under_way: u64,
    /// The received part of a message that is not complete yet.
    part: Vec<u8>,
    /// Number of whole messages received.
    got: u64,
    /// Number of the peer's messages that were held here and released.
    pub(super) released: u64,
    /// Words between the two engines.
    pub(super) words: Words,
    /// Large messages that were offered to the peer.
    pub(super) offers: Vec<Offered>,
    /// Large messages of the peer that are not complete, and the numbers of those that are.
    pub(super) pulls: Vec<Pull>,
    pub(super) completed: Vec<u64>,
}

/// The envelope of a message: every other one has an immediate.
pub(super) fn envelope_of(tag: u64) -> Envelope {
    let envelope = Envelope::tagged(tag);
    if tag % 2 == 1 { envelope.with_immediate(!tag) } else { envelope }
}

impl Party {
    pub(super) fn new(role: Role, log: &SharedLog) -> Self {
        let sizes = EndpointSizes::new(3, RINGS, SLOTS, CELLS, CELL_BYTES as u64);
        let sizes = sizes.and_then(|sizes| sizes.with_heap(HEAP_BYTES)).expect("possible sizes");
        let bytes = usize::try_from(sizes.segment_bytes()).expect("small");
        let segment = Region::private(bytes).expect("memory");
        let page = Region::private(ACTIVITY_BYTES).expect("memory");
        let memory = EndpointMemory::new(segment.clone(), sizes);
        let activity = Activity::new(page.clone());
        let shared = Arc::new(EndpointShared::new(&activity));
        let parts = EndpointParts {
            memory: memory.clone(),
            activity: activity.clone(),
            fence_mode: FenceMode::Asymmetric,
            shared: Arc::clone(&shared),
        };
        let kernel = TurnKernel { cpu: role.0, log: log.clone() };
        let with = (0..3).map(|_| Talk::default()).collect();
        let (held, departed, ended_at_once) = (Vec::new(), Vec::new(), 0);
        let pairs = Endpoint::new(parts, kernel.clone());
        Self {
            role,
            pairs,
            kernel,
            segment,
            page,
            memory,
            activity,
            shared,
            asleep: None,
            with,
            held,
            departed,
            ended_at_once,
        }
    }

    /// What its peers know of it.
    pub(super) fn as_peer(&self) -> PeerParts {
        PeerParts {
            memory: self.memory.clone(),
            activity: self.activity.clone(),
            row_there: 0,
            fence_mode: FenceMode::Asymmetric,
            // SAFETY: all endpoints run on one thread and follow the protocol.
            trusted: unsafe { Trusted::assume() },
        }
    }

    /// Adds a peer in the row with the peer's number; at the peer, this endpoint also has the row
    /// with its own number.
    pub(super) fn meet(&mut self, peer: Role, parts: PeerParts) {
        self.with[peer.0 as usize] = Talk::default();
        Endpoint::<TurnKernel>::reset_row(&self.memory, peer.0);
        assert!(self.pairs.add_peer(peer.0, PeerParts { row_there: self.role.0, ..parts }));
        self.pairs.open(peer.0, 1);
    }

    /// Removes a peer. A message that was not sent whole counts as never sent.
    pub(super) fn part_from(&mut self, peer: Role, is_dead: bool) {
        self.end_offers_to(peer);
        self.take_granted(peer, is_dead);
        self.pairs.remove_peer(peer.0);
        self.with[peer.0 as usize].under_way = 0;
    }

    /// Its messages with a peer.
    pub(super) fn talk(&mut self, peer: Role) -> &mut Talk {
        &mut self.with[peer.0 as usize]
    }

    /// Number of words that were sent to a peer.
    pub(super) fn words_finished_to(&self, peer: Role) -> u64 {
        self.with[peer.0 as usize].words.finished
    }

    /// The word to a peer with this number, if it was sent or was about to be sent.
    pub(super) fn word_to(&self, peer: Role, number: u64) -> Option<&Word> {
        let index = usize::try_from(number).ok()?;
        self.with[peer.0 as usize].words.sent.get(index)
    }

    /// Number of words received from a peer.
    pub(super) fn words_got_of(&self, peer: Role) -> u64 {
        self.with[peer.0 as usize].words.got
    }

    /// Number of a peer's messages that were held here and released.
    pub(super) fn released_of(&self, peer: Role) -> u64 {
        self.with[peer.0 as usize].released
    }

    /// Every message that was sent to a peer or was about to be sent.
    pub(super) fn sent_to(&self, peer: Role) -> &[Vec<u8>] {
        &self.with[peer.0 as usize].sent
    }

    /// Number of messages that were sent to a peer whole.
    pub(super) fn finished_to(&self, peer: Role) -> u64 {
        self.with[peer.0 as usize].finished
    }

    /// Number of messages received from a peer.
    pub(super) fn got_of(&self, peer: Role) -> u64 {
        self.with[peer.0 as usize].got
    }

    /// Records the message of a peer with this tag, which must be the next one.
    pub(super) fn count(&mut self, peer: Role, tag: u64) {
        let talk = &mut self.with[peer.0 as usize];
        ensure!(tag == talk.got, "message {tag} comes after {} messages", talk.got);
        talk.got += 1;
    }

    /// Whether a message is partly sent.
    pub(super) fn is_sending(&self) -> bool {
        self.with.iter().any(|talk| talk.under_way > 0)
    }

    /// Begins a message and sends as much of it as the room allows. Returns false if nothing was
    /// sent.
    pub(super) fn send(&mut self, to: Role, bytes: usize) -> bool {
        let talk = &mut self.with[to.0 as usize];
        if talk.under_way > 0 {
            return false;
        }
        talk.sent.push(content(talk.sent.len() as u64, bytes));
        let has_gone = self.go_on(to);
        if !has_gone {
            self.with[to.0 as usize].sent.pop();
        }
        has_gone
    }

    /// Continues the last message if it is incomplete. Returns false if nothing was sent.
    pub(super) fn go_on(&mut self, to: Role) -> bool {
        let mut has_gone = false;
        loop {
            let talk = &mut self.with[to.0 as usize];
            let tag = talk.finished;
            let Some(message) = usize::try_from(tag).ok().and_then(|index| talk.sent.get(index))
            else {
                return has_gone;
            };
            let envelope = envelope_of(tag);
            if message.len() <= envelope.inline_bytes_max() {
                if self.pairs.try_send(to.0, &envelope, message) {
                    talk.finished += 1;
                    return true;
                }
            } else {
                let bytes =
                    self.pairs.send_fragment(to.0, &envelope, &&message[..], talk.under_way);
                talk.under_way += bytes;
                has_gone |= bytes > 0;
                if talk.under_way == message.len() as u64 {
                    talk.under_way = 0;
                    talk.finished += 1;
                    return true;
                }
            }
            if !self.make_room(to) {
                return has_gone;
            }
        }
    }

    /// Takes the next arrival, with at most `looks` polls. Returns the sender's row, and the
    /// message if it is whole.
    pub(super) fn take(&mut self, looks: u32) -> Option<(u32, Option<Taken>)> {
        let mut short = [0; 48];
        let mut look =
            || match self.pairs.take_inline(Polling::Once, &Wanted::any(Space::Tagged), &mut short)
            {
                Short::Nothing => None,
                other => Some(other),
            };
        let row = match (0..looks).find_map(|_| look())? {
            Short::Taken { source, tag, immediate, bytes, .. } => {
                let row = Wanted::row_of(source);
                ensure!(immediate == envelope_of(tag).immediate, "message {} has another's", tag);
                return Some((row, Some(Taken::Message(tag, short[..bytes].to_vec()))));
            }
            Short::Other(row) => row,
            Short::Nothing => return None,
        };
        let arrival = match self.pairs.arrival(row) {
            Ok(Some(arrival)) => arrival,
            // The end of a ring.
            Ok(None) => return Some((row, None)),
            Err(violation) => fail(format!("row {row}: {violation}")),
        };
        let tag = arrival.envelope.tag;
        if !arrival.envelope.space.is_message() {
            return Some((row, Some(Taken::Word(self.take_word(row, &arrival)))));
        }
        ensure!(arrival.envelope == envelope_of(tag), "message {} has another's envelope", tag);
        if let Some(held) = self.pairs.take_block(row, &arrival) {
            self.pairs.pass(row, &arrival);
            let bytes = self.hold(Role(row), held);
            return Some((row, Some(Taken::Message(tag, bytes))));
        }
        let talk = &mut self.with[row as usize];
        if arrival.is_first {
            talk.part.clear();
        }
        let begin = talk.part.len();
        talk.part.resize(begin + arrival.bytes, 0);
        let count = self.pairs.copy(row, &arrival, 0, &mut talk.part[begin..]);
        ensure!(count == arrival.bytes, "a part of {} bytes of {}", count, arrival.bytes);
        self.pairs.pass(row, &arrival);
        let is_whole = talk.part.len() as u64 == arrival.total;
        ensure!(is_whole != self.pairs.is_within(row), "the end of a message is not where it is");
        Some((row, is_whole.then(|| Taken::Message(tag, std::mem::take(&mut talk.part)))))
    }

    /// Takes a word, which is short.
    fn take_word(&mut self, row: u32, arrival: &Arrival) -> Word {
        let mut bytes = vec![0; arrival.bytes];
        self.pairs.copy(row, arrival, 0, &mut bytes[..]);
        self.pairs.pass(row, arrival);
        (arrival.envelope, bytes)
    }

    /// The addresses of the slots of its ring.
    ///
    /// # Panics
    /// Never: every endpoint has a ring.
    #[must_use]
    pub fn ring(&self) -> Stretch {
        let slots = self.memory.slots(0).expect("an endpoint has a ring");
        let stamp = |position| slots.at(position).stamp().as_ptr().addr();
        stamp(0)..stamp(SLOTS - 1) + SLOT_BYTES
    }
}
