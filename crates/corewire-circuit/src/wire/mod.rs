//! Circuits: the frames that travel from hop to hop, and the packets that set circuits up and end them.
//!
//! A *link* joins two neighbours, a program and its monitor or two monitors. It has two lanes. Frames travel in the data
//! lane, a ring or, between processes that do not share memory, a socket. Packets ([`packet`]) travel in the control
//! lane, always a socket, so that control never waits behind data. Both lanes keep their order; neither waits for the
//! other.
//!
//! # One frame
//!
//! ```text
//! ring:    stamp 8 | label 8 | hop 8 | 40 bytes of payload, or where more of them are
//! socket:            label 8 | hop 8 | payload
//!
//! label    guard:40 | index:24          whose index: the receiver's
//! hop      credit:32 | ordinal:16 | capabilities:8 | flags:4 | kind:4      the highest bits first
//! payload  token:32 | word:32           if the flag PREFIX is set
//!          then the bytes of the message or of a part of it
//! ```
//!
//! | word | writer | reader |
//! |---|---|---|
//! | label | the frame's sender, on each hop: the label that the receiver has given it | the receiver's table |
//! | credit | the frame's sender, on each hop: up to which line the receiver may send in the other direction | the receiver's end of this hop |
//! | ordinal, capabilities, flags, payload | the end of the circuit | the other end; monitors pass them on |
//! | kind | the end, or a monitor that splits a frame | every hop |
//!
//! A monitor rewrites label and credit and nothing else, unless the next hop has less credit than the frame is long:
//! then it sends the frame in parts.
//!
//! # Lines
//!
//! Memory and credit are counted in lines of 64 bytes: a frame takes [`lines_of`] its payload. Every hop of a circuit
//! grants lines to the previous one ([`credit`]), so that what is sent always has memory that waits for it.
//!
//! Papers/003, sections 3.4 to 3.10; what differs from the thesis is in `docs/decisions.md`.

pub mod credit;
mod fields;
pub mod packet;
pub mod trace;

use corewire_layout::LINE_BYTES;

/// The largest number of monitors.
pub const NODES_MAX: usize = 256;

/// The largest number of monitors on the path of a circuit.
pub const PATH_MAX: usize = 16;

/// What a stored frame takes besides its payload.
pub const FRAME_HEADER_BYTES: usize = 16;

/// The longest payload of a frame, prefix included: with its header, 4 KiB.
pub const PAYLOAD_BYTES_MAX: usize = 4096 - FRAME_HEADER_BYTES;

/// Bytes of the prefix.
pub const PREFIX_BYTES: usize = 8;

/// How many lines a frame with a payload of this length takes.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a payload is short")]
pub const fn lines_of(payload_bytes: usize) -> u32 {
    (payload_bytes + FRAME_HEADER_BYTES).div_ceil(LINE_BYTES) as u32
}

/// The longest payload that fits into so many lines; 0 if none does.
#[inline]
#[must_use]
pub const fn payload_of(lines: u32) -> usize {
    let bytes = (lines as usize * LINE_BYTES).saturating_sub(FRAME_HEADER_BYTES);
    if bytes < PAYLOAD_BYTES_MAX { bytes } else { PAYLOAD_BYTES_MAX }
}

/// The number of a monitor, less than [`NODES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u8);

impl NodeId {
    /// The monitor with this number; `None` if there can be none.
    #[must_use]
    pub fn new(number: usize) -> Option<Self> {
        u8::try_from(number).ok().map(Self)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}

/// The name under which a monitor is found in its domain.
#[must_use]
pub fn name_of_monitor(node: NodeId) -> String {
    format!("monitor.{node}")
}

/// The monitor that has this name; `None` if it is the name of something else.
#[must_use]
pub fn monitor_of_name(name: &str) -> Option<NodeId> {
    let number = name.strip_prefix("monitor.")?.parse().ok()?;
    NodeId::new(number).filter(|node| name_of_monitor(*node) == name)
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of monitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NodeSet([u64; NODES_MAX / 64]);

impl NodeSet {
    /// Adds one.
    pub fn insert(&mut self, node: NodeId) {
        if let Some(word) = self.0.get_mut(node.number() / 64) {
            *word |= 1 << (node.number() % 64);
        }
    }

    /// Whether one is in it.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.0.get(node.number() / 64).is_some_and(|word| word >> (node.number() % 64) & 1 == 1)
    }

    /// Adds those of another one.
    pub fn extend(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }
}

/// What a neighbour writes into its frames so that they are found here. It means something on one link and in one
/// direction only, and never again: the guard is new for every circuit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Label(u64);

/// Bits of a label that are the index.
const INDEX_BITS: u32 = 24;
/// The largest index.
pub const INDEX_MAX: u32 = (1 << INDEX_BITS) - 1;

impl Label {
    /// No label: nothing has it.
    pub const NONE: Self = Self(0);

    /// A label with this index, and a guard made of random bits.
    #[must_use]
    pub const fn new(random: u64, index: u32) -> Self {
        let guard = random >> INDEX_BITS;
        let guard = if guard == 0 { 1 } else { guard };
        Self(guard << INDEX_BITS | (index & INDEX_MAX) as u64)
    }

    /// The label in a word that a neighbour has written.
    #[inline]
    #[must_use]
    pub const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// As a word.
    #[inline]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Its index in the receiver's table.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "takes the bits of the index")]
    pub const fn index(self) -> u32 {
        self.0 as u32 & INDEX_MAX
    }

    /// Whether it is [`NONE`](Self::NONE).
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl std::fmt::Debug for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}.{}", self.0 >> INDEX_BITS, self.index())
    }
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A message, or its last part.
    Data = 1,
    /// A part of a message, and not the last one.
    More = 2,
    /// The last frame of its direction: its sender still receives. Drivers of `corewire-bind` end both directions at once, by
    /// a packet that needs no credit.
    Fin = 3,
    /// Carries credit and nothing else. Takes no lines.
    Credit = 4,
    /// Asks for the credit that is not used: the receiver answers with `Return`. Takes no lines.
    Recall = 5,
    /// Everything beyond the reserve ([`credit::RESERVE_LINES`]) is given back. Takes no lines.
    Return = 6,
    /// In a ring, before anything else: the label is the secret by which the link is known.
    Hello = 15,
}

/// Bits of a frame's flags.
pub mod flags {
    /// The payload begins with a token and a word.
    pub const PREFIX: u8 = 1;
    /// The word of the prefix is a status.
    pub const STATUS: u8 = 2;
    /// The sender has no credit left, and could use more than it had.
    pub const WANTS: u8 = 4;
}

/// The second word of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hop {
    /// Up to which line the receiver may send in the other direction, cumulative.
    pub credit: u32,
    /// Which message of the interface.
    pub ordinal: u16,
    /// How many capabilities travel with it in the control lane.
    pub capabilities: u8,
    /// [`flags`].
    pub flags: u8,
    /// What the frame is.
    pub kind: Kind,
}

impl Hop {
    /// A frame of this kind without anything else.
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Self { credit: 0, ordinal: 0, capabilities: 0, flags: 0, kind }
    }

    /// As a word.
    #[inline]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        (self.credit as u64) << 32
            | (self.ordinal as u64) << 16
            | (self.capabilities as u64) << 8
            | ((self.flags & 15) as u64) << 4
            | self.kind as u64
    }

    /// What a neighbour has written; `None` if it is of no kind that exists.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "takes the bits of the fields")]
    pub const fn of_word(word: u64) -> Option<Self> {
        let kind = match word & 15 {
            1 => Kind::Data,
            2 => Kind::More,
            3 => Kind::Fin,
            4 => Kind::Credit,
            5 => Kind::Recall,
            6 => Kind::Return,
            15 => Kind::Hello,
            _ => return None,
        };
        Some(Self {
            credit: (word >> 32) as u32,
            ordinal: (word >> 16) as u16,
            capabilities: (word >> 8) as u8,
            flags: (word >> 4) as u8 & 15,
            kind,
        })
    }

    /// Whether the frame is a message or a part of one, or the last of its direction: it takes lines and keeps its
    /// place.
    #[inline]
    #[must_use]
    pub const fn takes_lines(self) -> bool {
        matches!(self.kind, Kind::Data | Kind::More | Kind::Fin)
    }
}

/// Bytes of label and hop in a packet of a data lane that is a socket.
pub const DATA_HEADER_BYTES: usize = 16;

/// The beginning of a packet of a data lane that is a socket.
#[must_use]
pub fn data_header(label: Label, hop: Hop) -> [u8; DATA_HEADER_BYTES] {
    let mut bytes = [0; DATA_HEADER_BYTES];
    let words = [label.to_word(), hop.to_word()];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Label, hop and payload of such a packet; `None` if it is too short, or of no kind that exists.
#[must_use]
pub fn data_of_packet(packet: &[u8]) -> Option<(Label, Hop, &[u8])> {
    let (label, rest) = packet.split_first_chunk()?;
    let (hop, payload) = rest.split_first_chunk()?;
    let hop = Hop::of_word(u64::from_le_bytes(*hop))?;
    Some((Label::of_word(u64::from_le_bytes(*label)), hop, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_they_were() {
        let hop = Hop {
            credit: 0xdead_beef,
            ordinal: 0x1234,
            capabilities: 253,
            flags: flags::PREFIX | flags::WANTS,
            kind: Kind::More,
        };
        assert_eq!(Hop::of_word(hop.to_word()), Some(hop));
        for kind in [0, 7, 14] {
            assert_eq!(Hop::of_word(kind), None);
        }
        let label = Label::new(u64::MAX, 77);
        assert_eq!(label.index(), 77);
        assert_eq!(Label::of_word(label.to_word()), label);
        assert!(!Label::new(0, 0).is_none());
        let packet = [&data_header(label, hop)[..], b"payload"].concat();
        assert_eq!(data_of_packet(&packet), Some((label, hop, &b"payload"[..])));
        assert_eq!(data_of_packet(&packet[..15]), None);
    }

    #[test]
    fn monitors_have_names() {
        let node = NodeId::new(17).unwrap();
        assert_eq!(monitor_of_name(&name_of_monitor(node)), Some(node));
        for other in ["monitor.", "monitor.017", "monitor.256", "monitor.1.rings", "other.1"] {
            assert_eq!(monitor_of_name(other), None);
        }
    }

    #[test]
    fn lines_and_payloads_agree() {
        assert_eq!([lines_of(0), lines_of(48), lines_of(49)], [1, 1, 2]);
        assert_eq!(lines_of(PAYLOAD_BYTES_MAX), 64);
        for lines in 1..64 {
            assert_eq!(lines_of(payload_of(lines)), lines);
            assert_eq!(lines_of(payload_of(lines) + 1), lines + 1);
        }
        assert_eq!(payload_of(1000), PAYLOAD_BYTES_MAX);
    }

    #[test]
    fn sets_hold_what_was_added() {
        let mut set = NodeSet::default();
        for number in [0, 63, 64, 255] {
            let node = NodeId::new(number).unwrap();
            assert!(!set.contains(node));
            set.insert(node);
            assert!(set.contains(node));
        }
        assert_eq!(NodeId::new(256), None);
    }
}
