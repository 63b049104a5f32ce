//! Many peers that can send to one receiver: what it costs the receiver to poll.

use corewire_layout::endpoint::{ACTIVITY_BYTES, EndpointSizes};
use corewire_layout::segment::FenceMode;

use super::broadcast::NoKernel;
use super::part;
use crate::Trusted;
use crate::caches::{Caches, Counts, Machine, Part};
use crate::message::Envelope;
use crate::pair::{Activity, Endpoint, EndpointMemory, EndpointParts, EndpointShared, PeerParts};
use crate::published::{FreeQueue, Nemesis, NemesisOptions};
use crate::region::Region;

/// Which peers send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Talk {
    /// One of them. The others could send.
    One,
    /// All of them, in turn.
    All,
}

/// Messages of 8 bytes from many peers to one receiver, one at a time.
pub struct ManyToOne {
    /// The memory that they share.
    memory: Part,
    peers: u32,
    /// Sends this message from this peer.
    send: Box<dyn FnMut(u32, u64)>,
    /// Polls for a message once.
    receive: Box<dyn FnMut() -> Option<u64>>,
}

impl std::fmt::Debug for ManyToOne {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManyToOne").field("peers", &self.peers).finish_non_exhaustive()
    }
}

/// The cost of messages.
#[derive(Debug, Clone)]
pub struct ManyFigures {
    /// How many messages.
    pub messages: u64,
    /// Counts of the receiver.
    pub receiver: Counts,
    /// Counts of all senders together.
    pub senders: Counts,
    /// From the first send to the last receive, on the model's clocks.
    pub time_ns: u64,
}

/// A message that did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("message {0} does not come")]
pub struct Lost(pub u64);

/// After this many polls without a message there is none. (An endpoint checks everything once in 1024
/// polls.)
const LOOKS_MAX: u32 = 4096;

impl ManyToOne {
    /// Sends messages until the state is steady, then counts what `messages` more cost. The receiver
    /// polls once in vain before each message.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn measure(
        mut self,
        machine: Machine,
        talk: Talk,
        messages: u64,
    ) -> Result<ManyFigures, Lost> {
        let cores = self.peers as usize + 1;
        let caches = Caches::new(machine, cores, vec![self.memory.clone()]);
        let sums = || {
            let mut senders = Counts::default();
            (1..cores).for_each(|core| senders.add(&caches.counts(core)));
            (caches.counts(0), senders)
        };
        let warm_up = 4 * u64::from(self.peers) + 64;
        let (mut before, mut start_ns) = (sums(), 0);
        for number in 0..warm_up + messages {
            if number == warm_up {
                (before, start_ns) = (sums(), caches.done_ns(0));
            }
            let peer = match talk {
                Talk::One => 0,
                Talk::All => u32::try_from(number % u64::from(self.peers)).unwrap_or(0),
            };
            caches.forget_reads(0);
            let early = caches.run_as(0, &mut self.receive);
            if early.is_some() {
                return Err(Lost(number));
            }
            let core = peer as usize + 1;
            caches.pass_until(core, caches.done_ns(0));
            caches.forget_reads(core);
            caches.run_as(core, || (self.send)(peer, number));
            caches.pass_until(0, caches.done_ns(core));
            caches.forget_reads(0);
            let found = (0..LOOKS_MAX).find_map(|_| caches.run_as(0, &mut self.receive));
            if found != Some(number) {
                return Err(Lost(number));
            }
        }
        let (receiver, senders) = sums();
        Ok(ManyFigures {
            messages,
            receiver: receiver.since(&before.0),
            senders: senders.since(&before.1),
            time_ns: caches.done_ns(0) - start_ns,
        })
    }
}

/// corewire's endpoints: one ring for each peer. The receiver polls the peers that send, up to 64 of
/// them, and finds all others by their activity bits.
///
/// # Panics
/// If there is no memory.
#[must_use]
pub fn endpoints(peers: u32) -> ManyToOne {
    let sizes = |peers| EndpointSizes::new(peers, 1, 64, 2, 4096).expect("possible sizes");
    let (one, each) = (sizes(peers.into()), sizes(1));
    let bytes = |sizes: &EndpointSizes| {
        usize::try_from(sizes.segment_bytes()).expect("small").next_multiple_of(4096)
    };
    let all = bytes(&one) + peers as usize * bytes(&each) + (peers as usize + 1) * ACTIVITY_BYTES;
    let memory = Region::private(all).expect("memory for a model");
    let mut next = 0;
    let mut cut = |bytes: usize| {
        next += bytes;
        memory.part(next - bytes, bytes).expect("a part for each")
    };
    let mut make = |sizes: EndpointSizes| {
        let memory = EndpointMemory::new(cut(bytes(&sizes)), sizes);
        let activity = Activity::new(cut(ACTIVITY_BYTES));
        let fence_mode = FenceMode::Asymmetric;
        let parts = EndpointParts {
            memory: memory.clone(),
            activity: activity.clone(),
            fence_mode,
            shared: std::sync::Arc::new(EndpointShared::new(&activity)),
        };
        let as_peer = move |row_there| PeerParts {
            memory: memory.clone(),
            activity: activity.clone(),
            row_there,
            fence_mode,
            // SAFETY: all endpoints belong to one model, which follows the protocol.
            trusted: unsafe { Trusted::assume() },
        };
        (Endpoint::new(parts, NoKernel), as_peer)
    };
    let (mut receiver, as_receiver) = make(one);
    let mut senders: Vec<_> = (0..peers)
        .map(|row| {
            let (mut sender, as_sender) = make(each);
            assert!(sender.add_peer(0, as_receiver(row)));
            assert!(receiver.add_peer(row, as_sender(0)));
            sender
        })
        .collect();
    ManyToOne {
        memory: part(&memory, "endpoints"),
        peers,
        send: Box::new(move |peer, number| {
            let sender = &mut senders[peer as usize];
            while !sender.try_send(0, &Envelope::tagged(number), &number.to_le_bytes()) {
                if sender.has_ring(0) {
                    sender.make_room(0).expect("own memory");
                } else {
                    sender.assign_ring(0);
                }
            }
        }),
        receive: Box::new(move || {
            let row = receiver.poll()?;
            let arrival = receiver.arrival(row).expect("own memory")?;
            let mut message = [0; 8];
            receiver.copy(row, &arrival, 0, &mut message[..]);
            receiver.pass(row, &arrival);
            Some(u64::from_le_bytes(message))
        }),
    }
}

/// Nemesis: one queue, with or without fastboxes.
///
/// # Panics
/// If there is no memory.
#[must_use]
pub fn nemesis(peers: u32, has_fastboxes: bool) -> ManyToOne {
    let options = NemesisOptions {
        processes: peers + 1,
        cells: 8,
        cell_bytes: 32,
        free_queue: FreeQueue::Sender,
        has_shadow_head: true,
        has_fastboxes,
    };
    let bytes = options.bytes().next_multiple_of(4096);
    let memory = Region::private(bytes).expect("memory for a model");
    let mut receiver = Nemesis::new(&memory, options, 0);
    receiver.prepare();
    let mut senders: Vec<_> =
        (1..=peers).map(|index| Nemesis::new(&memory, options, index)).collect();
    ManyToOne {
        memory: part(&memory, "queues"),
        peers,
        send: Box::new(move |peer, number| {
            let is_sent = senders[peer as usize].try_send(0, number, 8, &number.to_le_bytes());
            assert!(is_sent, "every message is received before the next is sent");
        }),
        receive: Box::new(move || {
            let mut message = [0; 32];
            receiver.try_receive(None, &mut message).map(|piece| piece.tag)
        }),
    }
}
