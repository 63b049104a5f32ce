//! The thesis' protocol as it is printed (Grest, sections 3.4, 3.6, 3.10 and 4.2, and the authors' source for what the
//! text leaves open), over the same rings that circuits have: for comparison.
//!
//! | | the thesis | here |
//! |---|---|---|
//! | a message | one for all arguments, which are copied into memory that is allocated for it | the same |
//! | on a link | fragments of a line: one with direction, flags, acknowledgement and circuit number, one with the length and 48 bytes, others with 56 | the same, each a message of 56 bytes between two endpoints |
//! | a monitor | receives all fragments into memory that it allocates, looks the circuit up in 10 buckets of linked elements, writes another circuit number, and sends all fragments | the same |
//! | flow control | between the ends: 100 messages, acknowledgements as deltas with each message, an empty message when more than 50 are not acknowledged | the same |
//! | arguments | words packed by size, then each array with its length; arrays are moved byte by byte into memory of their own | the same |
//! | links to the ends | LMP, by the kernel | rings, too: today's systems have no LMP |

use std::hint::black_box;

use corewire::{Domain, Endpoint, MessageError, Peer, Selector, Wait};

use crate::calls::types::TYPES;
use crate::failure::{Doing, Failure};

/// The thesis' ten types: the bytes of a message's words, and those of its array, if it has one.
const SHAPES: [(usize, Option<usize>); 10] = [
    (8, None),
    (8, None),
    (24, None),
    (40, None),
    (16, None),
    (40, None),
    (72, None),
    (8, Some(1)),
    (8, Some(100)),
    (8, Some(1000)),
];
const BUCKETS: u64 = 10;
/// Messages that may be unacknowledged, and how many make an acknowledgement of its own necessary.
const WINDOW: u32 = 100;
const DUMMY_AFTER: u32 = 50;
/// Flags of a message.
const DUMMY: u8 = 0;
const PAYLOAD: u8 = 1;
/// Bytes of a fragment, of which the first 8 are the tag of an endpoint's message.
const FRAGMENT: usize = 56;
const FIRST: usize = 48;

/// What a message says besides its payload.
#[derive(Debug, Clone, Copy)]
struct Head {
    circuit: u64,
    direction: u8,
    flags: u8,
    acknowledged: u32,
}

/// The fragments of one message that have come.
#[derive(Debug)]
struct Arriving {
    head: Head,
    payload: Vec<u8>,
    length: Option<usize>,
}

/// An endpoint with the messages that arrive at it.
#[derive(Debug)]
struct Links {
    endpoint: Endpoint,
    arriving: Vec<(Peer, Arriving)>,
}

impl Links {
    fn new(domain: &Domain, name: &str) -> Result<Self, Failure> {
        let endpoint = domain.endpoint(name).wait(Wait::Spin).create();
        Ok(Self { endpoint: endpoint.doing("create an endpoint")?, arriving: Vec::new() })
    }

    fn send(&mut self, to: Peer, head: Head, payload: &[u8]) -> Result<(), Failure> {
        let word = u64::from(head.direction)
            | u64::from(head.flags) << 8
            | u64::from(head.acknowledged) << 32;
        self.fragment(to, word, &head.circuit.to_le_bytes())?;
        let (first, rest) = payload.split_at(payload.len().min(FIRST));
        self.fragment(to, payload.len() as u64, first)?;
        for part in rest.chunks(FRAGMENT) {
            let (word, bytes) = part.split_at(part.len().min(8));
            let mut tag = [0; 8];
            tag[..word.len()].copy_from_slice(word);
            self.fragment(to, u64::from_le_bytes(tag), bytes)?;
        }
        Ok(())
    }

    fn fragment(&mut self, to: Peer, word: u64, bytes: &[u8]) -> Result<(), Failure> {
        loop {
            match self.endpoint.try_send(to, word, bytes) {
                Ok(()) => return Ok(()),
                Err(MessageError::Full { .. } | MessageError::ReceiverFull { .. }) => {}
                Err(error) => return Err(Failure::other(format!("a fragment: {error}"))),
            }
        }
    }

    /// A message, if all of it has come.
    fn receive(&mut self) -> Result<Option<(Peer, Head, Vec<u8>)>, Failure> {
        let mut buffer = [0; FIRST];
        let received = self.endpoint.try_receive_into(Selector::any(), &mut buffer);
        let Some(status) = received.doing("receive a fragment")? else { return Ok(None) };
        let bytes = &buffer[..usize::try_from(status.bytes).unwrap_or(0)];
        let at = self.arriving.iter().position(|(peer, _)| *peer == status.source);
        let Some(at) = at else {
            let circuit = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let [direction, flags, _, _, a, b, c, d] = status.tag.to_le_bytes();
            let acknowledged = u32::from_le_bytes([a, b, c, d]);
            let head = Head { circuit, direction, flags, acknowledged };
            let arriving = Arriving { head, payload: Vec::new(), length: None };
            self.arriving.push((status.source, arriving));
            return Ok(None);
        };
        let arriving = &mut self.arriving[at].1;
        match arriving.length {
            None => {
                let length = usize::try_from(status.tag).unwrap_or(0);
                arriving.length = Some(length);
                arriving.payload = Vec::with_capacity(length);
            }
            Some(length) => {
                let left = (length - arriving.payload.len()).min(8);
                put_bytes(&mut arriving.payload, &status.tag.to_le_bytes()[..left]);
            }
        }
        put_bytes(&mut arriving.payload, bytes);
        if arriving.length.is_some_and(|length| arriving.payload.len() >= length) {
            let (peer, Arriving { head, payload, .. }) = self.arriving.swap_remove(at);
            return Ok(Some((peer, head, payload)));
        }
        Ok(None)
    }
}

/// Bytes are moved one by one.
#[inline(never)]
fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        to.push(black_box(*byte));
    }
}

/// A circuit at a monitor: in an allocation of its own, as in the thesis' lists.
#[derive(Debug)]
struct Entry {
    number: u64,
    /// By direction.
    sides: [(Peer, u64); 2],
}

/// A monitor, or the service.
#[derive(Debug)]
pub(super) struct Party {
    links: Links,
    #[expect(clippy::vec_box, reason = "the thesis allocates each element")]
    buckets: Vec<Vec<Box<Entry>>>,
    service: Option<End>,
}

/// An end.
#[derive(Debug)]
struct End {
    peer: Peer,
    circuit: u64,
    direction: u8,
    unacknowledged_sent: u32,
    unacknowledged_received: u32,
}

impl End {
    const fn new(peer: Peer, circuit: u64, direction: u8) -> Self {
        Self { peer, circuit, direction, unacknowledged_sent: 0, unacknowledged_received: 0 }
    }

    fn head(&self, flags: u8) -> Head {
        let Self { circuit, direction, unacknowledged_received, .. } = *self;
        Head { circuit, direction, flags, acknowledged: unacknowledged_received }
    }

    /// Sends a message. False if too many are not acknowledged.
    fn send(&mut self, links: &mut Links, payload: &[u8]) -> Result<bool, Failure> {
        if self.unacknowledged_sent == WINDOW {
            return Ok(false);
        }
        links.send(self.peer, self.head(PAYLOAD), payload)?;
        self.unacknowledged_received = 0;
        self.unacknowledged_sent += 1;
        Ok(true)
    }

    fn received(&mut self, head: Head) {
        self.unacknowledged_sent -= head.acknowledged;
        self.unacknowledged_received += u32::from(head.flags == PAYLOAD);
    }

    fn acknowledge(&mut self, links: &mut Links) -> Result<(), Failure> {
        if self.unacknowledged_received > DUMMY_AFTER {
            links.send(self.peer, self.head(DUMMY), &[0])?;
            self.unacknowledged_received = 0;
        }
        Ok(())
    }
}

/// The words and the array of a message, in memory of their own.
fn marshal(shape: usize, number: u64) -> Vec<u8> {
    let (words, array) = SHAPES[shape];
    let mut payload = Vec::with_capacity(words + array.map_or(0, |length| 8 + length));
    payload.extend((shape as u64).to_le_bytes());
    for _ in 1..words / 8 {
        payload.extend(number.to_le_bytes());
    }
    if let Some(length) = array {
        payload.extend((length as u64).to_le_bytes());
        put_bytes(&mut payload, &vec![number.to_le_bytes()[0]; length]);
    }
    payload
}

/// Takes the arguments out of a message, and checks them.
fn unmarshal(payload: &[u8], number: Option<u64>) -> Result<(usize, u64), Failure> {
    let word = |at: usize| {
        let bytes = payload.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u64::from_le_bytes(*bytes))
    };
    let broken = || Failure::other("a message of the printed protocol is not what was sent");
    let shape = word(0).and_then(|shape| usize::try_from(shape).ok()).ok_or_else(broken)?;
    let &(words, array) = SHAPES.get(shape).ok_or_else(broken)?;
    let mut found = number.unwrap_or(0);
    for at in (8..words).step_by(8) {
        found = word(at).ok_or_else(broken)?;
    }
    if let Some(length) = array {
        let mut bytes = Vec::with_capacity(length);
        put_bytes(&mut bytes, payload.get(words + 8..).ok_or_else(broken)?);
        if bytes.len() != length {
            return Err(broken());
        }
        found = bytes.first().map_or(0, |byte| u64::from(*byte));
    }
    Ok((shape, found))
}

impl Party {
    /// Handles a fragment, if one has come.
    pub(super) fn turn(&mut self) -> Result<(), Failure> {
        let Some((_, head, payload)) = self.links.receive()? else { return Ok(()) };
        if let Some(end) = &mut self.service {
            end.received(head);
            if head.flags == PAYLOAD {
                let (shape, number) = unmarshal(&payload, None)?;
                let reply = marshal(shape, number);
                while !end.send(&mut self.links, &reply)? {}
            }
            return end.acknowledge(&mut self.links);
        }
        let bucket = usize::try_from(head.circuit % BUCKETS).unwrap_or(0);
        let entry = self.buckets[bucket].iter().find(|entry| entry.number == head.circuit);
        let entry = entry.ok_or_else(|| Failure::other("a circuit that is none"))?;
        let (peer, circuit) = entry.sides[usize::from(head.direction == 1)];
        self.links.send(peer, Head { circuit, ..head }, &payload)
    }
}

/// The client of a chain of monitors.
#[derive(Debug)]
pub(super) struct Printed {
    links: Links,
    end: End,
}

impl Printed {
    /// A client, its parties, and on which side each of these is: neighbours are on different sides.
    pub(super) fn start(
        domain: &Domain,
        monitors: usize,
    ) -> Result<(Self, [Vec<Party>; 2]), Failure> {
        let name = |at: usize| format!("printed{at}");
        let circuit = |at: usize| 31 * at as u64 + 7;
        // The client is at 0, the service behind the monitors.
        let all = (0..monitors + 2).map(|at| Links::new(domain, &name(at)));
        let mut all = all.collect::<Result<Vec<_>, _>>()?;
        let mut link = |from: usize, to: usize| all[from].endpoint.peer(&name(to)).doing("connect");
        let end = End::new(link(0, 1)?, circuit(1), 1);
        let mut parties = Vec::new();
        for at in 1..=monitors {
            let number = circuit(at);
            let last = if at == 1 { number } else { circuit(at - 1) };
            let next = if at == monitors { number } else { circuit(at + 1) };
            let sides = [(link(at, at - 1)?, last), (link(at, at + 1)?, next)];
            parties.push((Some(Entry { number, sides }), None));
        }
        let service = End::new(link(monitors + 1, monitors)?, circuit(monitors), 2);
        parties.push((None, Some(service)));
        let mut all = all.into_iter();
        let client = all.next().map(|links| Self { links, end });
        let client = client.ok_or_else(|| Failure::other("no client"))?;
        let mut sides = [Vec::new(), Vec::new()];
        for (at, (links, (entry, service))) in (1_usize..).zip(all.zip(parties)) {
            let mut buckets: Vec<Vec<Box<Entry>>> = (0..BUCKETS).map(|_| Vec::new()).collect();
            if let Some(entry) = entry {
                let bucket = usize::try_from(entry.number % BUCKETS).unwrap_or(0);
                buckets[bucket].push(Box::new(entry));
            }
            sides[at % 2].push(Party { links, buckets, service });
        }
        Ok((client, sides))
    }

    /// Calls with the type at `shape` of [`TYPES`]; `turn` lets the parties of this thread work.
    pub(super) fn call(
        &mut self,
        shape: usize,
        number: u64,
        mut turn: impl FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        debug_assert!(shape < TYPES.len());
        let number = u64::from(number.to_le_bytes()[0]);
        let request = marshal(shape, number);
        while !self.end.send(&mut self.links, &request)? {
            turn()?;
        }
        loop {
            turn()?;
            if let Some((_, head, payload)) = self.links.receive()? {
                self.end.received(head);
                self.end.acknowledge(&mut self.links)?;
                if head.flags == PAYLOAD {
                    let (found, same) = unmarshal(&payload, Some(number))?;
                    return match (found, same) == (shape, number) {
                        true => Ok(()),
                        false => {
                            Err(Failure::other("a reply of the printed protocol is another one"))
                        }
                    };
                }
            }
        }
    }
}
