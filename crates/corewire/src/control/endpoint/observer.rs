//! Observing an endpoint.

use std::fmt;

use corewire_layout::counters::{EndpointCounter, PeerCounter};
use corewire_layout::endpoint::{EndpointHeader, RawEndpointHeader};
use corewire_layout::name::ChannelName;
use corewire_os::fork::Descriptor;
use corewire_os::memory::{Segment, read_text};
use corewire_ring::pair::EndpointMemory;
use corewire_ring::sync::Ordering::Relaxed;
use corewire_transfer::Refusal;
use zerocopy::{FromZeros, IntoBytes};

use crate::error::JoinError;

/// An observer of an endpoint, which uses a read-only map of its memory. It shows the peers that were linked when it
/// was opened; open another one to see later peers.
pub struct EndpointObserver {
    header: EndpointHeader,
    memory: EndpointMemory,
    peers: Vec<(u32, u32, String)>,
    far_peers: Vec<FarPeerView>,
}

/// An endpoint's state at one moment. Messages and bytes are as of its last call that did more than take or leave a
/// message, at the latest as of its first call after an observer was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointView {
    /// Its name.
    pub name: String,
    /// Drawn at random when it was created.
    pub incarnation: u128,
    /// Its process; 0 if it cannot be seen from this process's PID namespace.
    pub pid: u32,
    /// Maximum number of peers at one time.
    pub peers_max: u64,
    /// Bytes of its segment. Rings and cells take memory when they are first used.
    pub segment_bytes: u64,
    /// Maximum number of bytes of messages that it keeps before a receive asks for them, each counted with 128 more.
    pub budget_bytes: u64,
    /// How much of that is in use, by its peers and by those that have gone.
    pub kept_bytes: u64,
    /// True while it sleeps.
    pub is_asleep: bool,
    /// Why it could last not copy a large message from a peer's memory; the message came through cells, copied twice.
    /// `None` if that did not happen.
    pub copy_refusal: Option<String>,
    /// Its counters, by name: see [`Endpoint::counter`](crate::Endpoint::counter).
    pub counters: Vec<(&'static str, u64)>,
    /// Messages that it has sent, to its peers and to those that have gone.
    pub sent_messages: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages that it has taken in, from its peers and from those that have gone.
    pub received_messages: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Its peers on this machine.
    pub peers: Vec<PeerView>,
    /// Its peers on other hosts, as they were when the observer was opened.
    pub far_peers: Vec<FarPeerView>,
}

/// A peer on another host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FarPeerView {
    /// Its name and host: `name@host`.
    pub name: String,
    /// `tcp`, or `tls` if the connection is encrypted.
    pub way: String,
    /// The mean time of a round trip in microseconds, as the kernel sees it.
    pub round_trip_us: u64,
    /// Bytes that the other host has not acknowledged.
    pub unsent_bytes: u64,
    /// How often an endpoint of this name and host was connected before.
    pub reconnects: u64,
    /// Messages that the endpoint has sent to it.
    pub sent_messages: u64,
    /// Their bytes, with those of their headers.
    pub sent_bytes: u64,
    /// Messages that the endpoint has taken in from it.
    pub received_messages: u64,
    /// Their bytes, with those of their headers.
    pub received_bytes: u64,
}

/// The state of a peer of an endpoint at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerView {
    /// Its row.
    pub row: u32,
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Messages that the endpoint has sent to it.
    pub sent_messages: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages that the endpoint has taken in from it, received or kept.
    pub received_messages: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Messages from it that are kept because no receive has asked for them.
    pub kept_messages: u64,
    /// How much of the budget they use.
    pub kept_bytes: u64,
    /// Bytes of the [loan](crate::Endpoint::loan) that waits for the peer to release messages; 0 if none does.
    pub loan_waiting_bytes: u64,
    /// How much of the endpoint's heap the peer had not released when that loan began to wait; 0 if none does.
    pub unreleased_bytes: u64,
}

impl EndpointObserver {
    /// Checks what the endpoint's process has sent.
    pub(crate) fn new(
        name: &ChannelName,
        pid: u32,
        segment: Descriptor,
        peers: &Descriptor,
    ) -> Result<Self, JoinError> {
        let bad = |error| JoinError::Segment { name: name.clone(), error };
        let segment = Segment::adopt(segment, false).map_err(bad)?;
        let memory = segment.map(size_of::<RawEndpointHeader>() as u64).map_err(bad)?;
        let mut raw = RawEndpointHeader::new_zeroed();
        memory.copy_out(0, raw.as_mut_bytes());
        let mut header = EndpointHeader::parse(&raw, segment.bytes())
            .map_err(|error| JoinError::Header { name: name.clone(), error })?;
        // What the header says is true in the process's own container.
        header.pid = pid;
        let peers_max = header.sizes.peers_max();
        // A line holds two numbers and a name.
        let bytes_max = usize::try_from(peers_max).unwrap_or(0) * (160 + 360);
        let text = read_text(peers, bytes_max)?;
        let found = |line: &str| JoinError::Protocol {
            name: name.clone(),
            found: format!("with the peer {:?}", line.chars().take(40).collect::<String>()),
        };
        let text = text.ok_or_else(|| found("not a text"))?;
        let (mut peers, mut far_peers) = (Vec::new(), Vec::new());
        for line in text.lines() {
            if let Some(line) = line.strip_prefix("- ") {
                far_peers.push(parse_far(line).ok_or_else(|| found(line))?);
                continue;
            }
            let peer = parse(line).filter(|(row, ..)| u64::from(*row) < peers_max);
            peers.push(peer.ok_or_else(|| found(line))?);
        }
        peers.sort_unstable();
        Ok(Self { memory: EndpointMemory::new(memory, header.sizes), header, peers, far_peers })
    }

    /// The current state of the endpoint.
    #[must_use]
    pub fn look(&self) -> EndpointView {
        let Self { header, memory, peers, far_peers } = self;
        let of = |row, counter| memory.peer_counter(row, counter).load(Relaxed);
        // A row's counters go on counting from those of the peers that had it before.
        let traffic = |row, counter| {
            let earlier = memory.earlier_traffic(row, counter).load(Relaxed);
            of(row, counter).saturating_sub(earlier)
        };
        let peers = peers.iter().map(|(row, pid, name)| PeerView {
            row: *row,
            pid: *pid,
            name: name.clone(),
            sent_messages: traffic(*row, PeerCounter::SentMessages),
            sent_bytes: traffic(*row, PeerCounter::SentBytes),
            received_messages: traffic(*row, PeerCounter::ReceivedMessages),
            received_bytes: traffic(*row, PeerCounter::ReceivedBytes),
            kept_messages: of(*row, PeerCounter::KeptMessages),
            kept_bytes: of(*row, PeerCounter::KeptBytes),
            loan_waiting_bytes: of(*row, PeerCounter::LoanWaiting),
            unreleased_bytes: of(*row, PeerCounter::Unreleased),
        });
        let rows = || (0u32..).take(usize::try_from(header.sizes.peers_max()).unwrap_or(0));
        let sum = |counter| rows().map(|row| of(row, counter)).fold(0, u64::wrapping_add);
        let far = |of: fn(&FarPeerView) -> u64| far_peers.iter().map(of).fold(0, u64::wrapping_add);
        EndpointView {
            name: header.name.as_str().to_owned(),
            incarnation: header.incarnation,
            pid: header.pid,
            peers_max: header.sizes.peers_max(),
            segment_bytes: header.sizes.segment_bytes(),
            budget_bytes: header.budget_bytes,
            kept_bytes: sum(PeerCounter::KeptBytes),
            is_asleep: memory.sleeping().load(Relaxed) % 2 == 1,
            copy_refusal: Refusal::of_code(memory.refusal().load(Relaxed))
                .map(|why| why.to_string()),
            counters: EndpointCounter::ALL
                .map(|(counter, name)| (name, memory.counter(counter).load(Relaxed)))
                .into(),
            sent_messages: sum(PeerCounter::SentMessages) + far(|peer| peer.sent_messages),
            sent_bytes: sum(PeerCounter::SentBytes) + far(|peer| peer.sent_bytes),
            received_messages: sum(PeerCounter::ReceivedMessages)
                + far(|peer| peer.received_messages),
            received_bytes: sum(PeerCounter::ReceivedBytes) + far(|peer| peer.received_bytes),
            peers: peers.collect(),
            far_peers: far_peers.clone(),
        }
    }
}

/// The row, process and name of a line.
fn parse(line: &str) -> Option<(u32, u32, String)> {
    let mut words = line.split(' ');
    let (row, pid) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let name = ChannelName::new(words.next()?).ok()?;
    words.next().is_none().then(|| (row, pid, name.as_str().to_owned()))
}

/// What a line says about a peer of another host.
fn parse_far(line: &str) -> Option<FarPeerView> {
    let mut words = line.split(' ');
    let way = words.next().filter(|way| matches!(*way, "tcp" | "tls"))?.to_owned();
    let mut number = || words.next()?.parse().ok();
    let (round_trip_us, unsent_bytes, reconnects) = (number()?, number()?, number()?);
    let (sent_messages, sent_bytes) = (number()?, number()?);
    let (received_messages, received_bytes) = (number()?, number()?);
    let (name, host) = words.next()?.split_once('@')?;
    let name = ChannelName::new(name).ok()?.on_host(&ChannelName::new(host).ok()?);
    let name = words.next().is_none().then(|| name.as_str().to_owned())?;
    Some(FarPeerView {
        name,
        way,
        round_trip_us,
        unsent_bytes,
        reconnects,
        sent_messages,
        sent_bytes,
        received_messages,
        received_bytes,
    })
}

impl fmt::Debug for EndpointObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointObserver").field("name", &self.header.name).finish_non_exhaustive()
    }
}
