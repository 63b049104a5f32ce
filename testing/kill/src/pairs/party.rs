//! One endpoint, with the messages that it has sent and received.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use corewire_layout::endpoint::{ACTIVITY_BYTES, EndpointSizes, blocked};
use corewire_layout::segment::{FenceMode, SleepMode};
use corewire_layout::slot::SLOT_BYTES;
use corewire_ring::Trusted;
use corewire_ring::message::{Envelope, Space, Wanted};
use corewire_ring::pair::{
    Activity, Endpoint, EndpointMemory, EndpointParts, EndpointShared, PeerParts, Polling, Short,
};
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::Relaxed;
use corewire_ring::sync::kill::Stretch;

use super::{CELL_BYTES, CELLS, RINGS, Role, SLOTS};
use crate::engine::{content, fail};
use crate::ensure;
use crate::kernel::{Log, TurnKernel};

/// A whole message: its number and its bytes.
pub(super) type Message = (u64, Vec<u8>);

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
}

/// An endpoint that sleeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asleep {
    pub(super) mode: SleepMode,
    pub(super) doorbell: u32,
    /// The peer toward which it waits for room, and the cursor of that peer when the wait began.
    pub(super) room: Option<(Role, u64)>,
}

/// The messages between two endpoints, as one of them sees them.
#[derive(Debug, Default, Clone)]
struct Talk {
    /// Every message that was sent or was about to be sent.
    sent: Vec<Vec<u8>>,
    /// Number of them that were sent whole, as far as this endpoint knows.
    finished: u64,
    /// Bytes of the last message that have been sent while it is incomplete.
    under_way: u64,
    /// The received part of a message that is not complete yet.
    part: Vec<u8>,
    /// Number of whole messages received.
    got: u64,
}

/// The envelope of a message: every other one has an immediate.
fn envelope_of(tag: u64) -> Envelope {
    let envelope = Envelope::tagged(tag);
    if tag % 2 == 1 { envelope.with_immediate(!tag) } else { envelope }
}

impl Party {
    pub(super) fn new(role: Role, log: &Rc<RefCell<Log>>) -> Self {
        let sizes =
            EndpointSizes::new(3, RINGS, SLOTS, CELLS, CELL_BYTES as u64).expect("possible sizes");
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
        let kernel = TurnKernel { cpu: role.0, log: Rc::clone(log) };
        let with = vec![Talk::default(); 3];
        let pairs = Endpoint::new(parts, kernel.clone());
        Self { role, pairs, kernel, segment, page, memory, activity, shared, asleep: None, with }
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
        self.pairs.add_peer(peer.0, PeerParts { row_there: self.role.0, ..parts });
        self.pairs.open(peer.0, 1);
    }

    /// Removes a peer. A message that was not sent whole counts as never sent.
    pub(super) fn part_from(&mut self, peer: Role) {
        self.pairs.remove_peer(peer.0);
        self.with[peer.0 as usize].under_way = 0;
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

    /// Makes room toward a peer, if there is any. Returns whether there is room.
    pub(super) fn make_room(&mut self, to: Role) -> bool {
        let last = (0u64..).zip(&self.with[to.0 as usize].sent).last();
        let (envelope, bytes) =
            last.map_or((envelope_of(0), 0), |(tag, last)| (envelope_of(tag), last.len() as u64));
        let is_room = is_room(&mut self.pairs, to, &envelope, bytes);
        if is_room && !self.pairs.has_ring(to.0) {
            return self.pairs.assign_ring(to.0);
        }
        is_room
    }

    /// Takes the next arrival, with at most `looks` polls. Returns the sender's row, and the
    /// message if it is whole.
    pub(super) fn take(&mut self, looks: u32) -> Option<(u32, Option<Message>)> {
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
                return Some((row, Some((tag, short[..bytes].to_vec()))));
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
        ensure!(arrival.envelope == envelope_of(tag), "message {} has another's envelope", tag);
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
        Some((row, is_whole.then(|| (tag, std::mem::take(&mut talk.part)))))
    }

    /// Announces that it sleeps in this mode, for room toward a peer or for messages. Returns false
    /// if there is something to do.
    pub(super) fn fall_asleep(&mut self, mode: SleepMode, room: Option<(Role, u64)>) -> bool {
        let doorbell = self.activity.doorbell().load(Relaxed);
        let is_armed = self.arm(room.map(|(to, _)| to));
        if is_armed {
            // A real call that sleeps stores these words too, and resets them before it returns.
            self.memory.mode().store(mode as u32, Relaxed);
            if room.is_some() {
                self.memory.blocked().store(blocked(1, mode), Relaxed);
            }
            self.asleep = Some(Asleep { mode, doorbell, room });
        }
        is_armed
    }

    /// Announces that it waits for its descriptor.
    pub(super) fn arm(&mut self, room: Option<Role>) -> bool {
        match room {
            Some(to) => self.pairs.arm(Some(&mut |pairs| is_room(pairs, to, &envelope_of(0), 0))),
            None => self.pairs.arm(None),
        }
    }

    /// Sleeps. The kernel of these tests returns at once.
    pub(super) fn sleep(&mut self, room: Option<Role>) {
        match room {
            Some(to) => self
                .pairs
                .sleep(u64::MAX, Some(&mut |pairs| is_room(pairs, to, &envelope_of(0), 0))),
            None => self.pairs.sleep(u64::MAX, None),
        }
    }

    /// Wakes the endpoint up: it no longer sleeps.
    pub(super) fn wake_up(&mut self) {
        self.asleep = None;
        self.pairs.retract();
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

/// Whether there is room toward a peer, or a ring that can be assigned.
fn is_room(pairs: &mut Endpoint<TurnKernel>, to: Role, envelope: &Envelope, bytes: u64) -> bool {
    let own = "own memory";
    if pairs.has_ring(to.0) {
        return pairs.has_room(to.0, envelope, bytes).expect(own);
    }
    pairs.make_room(to.0).expect(own);
    if pairs.next_ring().is_none() {
        pairs.take_ring_back(to.0);
    }
    pairs.next_ring().is_some()
}
