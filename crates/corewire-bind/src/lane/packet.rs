//! What travels on the socket between a client and a service: packets, and messages made of them.
//!
//! A message longer than [`CHUNK_BYTES`] travels in several packets, one behind the other. Nothing else comes between
//! them. All numbers are little-endian.
//!
//! ```text
//! 0     8      16      20     21             22     24
//! | tag | word | bytes | kind | capabilities | zero | capabilities x (kind, length, note) | part of the message
//! ```
//!
//! | kind | word | bytes | what follows |
//! |---|---|---|---|
//! | message | 0 | of the whole message | its beginning |
//! | more | 0 | 0 | its next part |
//! | status | the status | 0 | nothing |
//! | capabilities | 0 | 0 | nothing: the message itself travels in the ring |
//!
//! The descriptors of the capabilities are in the packet, in the same order. A peer may send anything: what is read
//! here is checked, and memory grows only with what has arrived.

use std::os::fd::OwnedFd;

use corewire_circuit::link::sent::{Sent, Whose};

use crate::capability::{CAPABILITIES_MAX, Kind as CapabilityKind, Received};
use crate::message::{Body, Message};
use crate::reference::NOTE_BYTES_MAX;
use crate::tag::{Tag, status};

/// Bytes of a packet before its capabilities.
pub(crate) const HEADER_BYTES: usize = 24;
/// The largest part of a message in one packet. Several fit into the default buffer of a socket.
pub(crate) const CHUNK_BYTES: usize = 32 << 10;
/// The longest packet.
pub(crate) const PACKET_BYTES_MAX: usize =
    HEADER_BYTES + CAPABILITIES_MAX * (2 + NOTE_BYTES_MAX) + CHUNK_BYTES;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Message = 1,
    More = 2,
    Status = 3,
    Capabilities = 4,
}

/// The beginning of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) tag: Tag,
    pub(crate) word: u64,
    pub(crate) bytes: u32,
    pub(crate) kind: Kind,
    pub(crate) capability_count: u8,
}

/// Why a packet was refused. The link ends then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PacketError {
    /// Shorter than its beginning.
    #[error("a packet of {found} bytes: at least {HEADER_BYTES} are necessary")]
    Short {
        /// Its length.
        found: usize,
    },
    /// Longer than any packet: its end has been lost.
    #[error("a packet of more than {PACKET_BYTES_MAX} bytes")]
    Long,
    /// A kind or a field that this version does not know.
    #[error("a packet of kind {found}, which does not exist")]
    Kind {
        /// The kind.
        found: u8,
    },
    /// A part of a message where none was expected, or something else between two parts.
    #[error("a packet out of order")]
    Order,
    /// A message longer than any message of the interface.
    #[error("a message of {found} bytes: at most {bytes_max} are possible")]
    TooLong {
        /// The length that it states.
        found: u32,
        /// The limit.
        bytes_max: u32,
    },
    /// Other bytes than the message states.
    #[error("a packet with {found} bytes of a message that lacks {due}")]
    Length {
        /// How many came.
        found: usize,
        /// How many were missing.
        due: usize,
    },
    /// Capabilities that are not as the packet says.
    #[error("a packet states {stated} capabilities and has {found}")]
    Capabilities {
        /// What it states.
        stated: usize,
        /// What it has.
        found: usize,
    },
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let fields = [self.tag.0.to_le_bytes(), self.word.to_le_bytes()];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field);
        }
        if let Some(place) = bytes.get_mut(16..20) {
            place.copy_from_slice(&self.bytes.to_le_bytes());
        }
        if let Some(place) = bytes.get_mut(20..22) {
            place.copy_from_slice(&[self.kind as u8, self.capability_count]);
        }
        bytes
    }

    /// The beginning of a packet, and the rest of it.
    pub(crate) fn of_bytes(packet: &[u8]) -> Result<(Self, &[u8]), PacketError> {
        if packet.len() > PACKET_BYTES_MAX {
            return Err(PacketError::Long);
        }
        let short = PacketError::Short { found: packet.len() };
        let (tag, rest) = packet.split_first_chunk::<8>().ok_or(short)?;
        let (word, rest) = rest.split_first_chunk::<8>().ok_or(short)?;
        let (bytes, rest) = rest.split_first_chunk::<4>().ok_or(short)?;
        let (&[kind, capability_count, _, _], rest) = rest.split_first_chunk::<4>().ok_or(short)?;
        let kind = match kind {
            1 => Kind::Message,
            2 => Kind::More,
            3 => Kind::Status,
            4 => Kind::Capabilities,
            found => return Err(PacketError::Kind { found }),
        };
        let (tag, word) = (Tag(u64::from_le_bytes(*tag)), u64::from_le_bytes(*word));
        let bytes = u32::from_le_bytes(*bytes);
        Ok((Self { tag, word, bytes, kind, capability_count }, rest))
    }
}

/// A message of which not all parts have come.
#[derive(Debug)]
struct Partial {
    tag: Tag,
    bytes: Vec<u8>,
    due: usize,
    /// `None` if they were lost.
    capabilities: Option<Vec<Received>>,
}

/// Puts messages together from packets.
#[derive(Debug)]
pub(crate) struct Assembler {
    partial: Option<Partial>,
    bytes_max: u32,
}

/// What a packet completed.
#[derive(Debug)]
pub(crate) enum Assembled {
    Message(Message),
    /// Those of a message in the ring; `None` if they were lost.
    Capabilities(Tag, Option<Vec<Received>>),
    /// A message lacks more parts.
    Nothing,
}

impl Assembler {
    /// Accepts messages up to this length.
    pub(crate) const fn new(bytes_max: u32) -> Self {
        Self { partial: None, bytes_max }
    }

    pub(crate) const fn set_bytes_max(&mut self, bytes_max: u32) {
        self.bytes_max = bytes_max;
    }

    /// Takes the next packet and its descriptors; `None` if the kernel has dropped them, since this process may not
    /// open more. A message without its descriptors has the status [`status::LOST_HERE`].
    pub(crate) fn take(
        &mut self,
        packet: &[u8],
        descriptors: Option<Vec<OwnedFd>>,
    ) -> Result<Assembled, PacketError> {
        let (header, rest) = Header::of_bytes(packet)?;
        let (capabilities, rest) = notes(header, rest, descriptors)?;
        let has_none = capabilities.as_ref().is_some_and(Vec::is_empty);
        match (header.kind, self.partial.take()) {
            (Kind::Message, None) => self.begin(header, rest, capabilities),
            (Kind::More, Some(partial)) if has_none => self.go_on(partial, rest),
            (Kind::Status, None) if rest.is_empty() && has_none => {
                let status = Some(header.word);
                Ok(Assembled::Message(Message::new(header.tag, status, Body::empty(), Vec::new())))
            }
            (Kind::Capabilities, None) if rest.is_empty() => {
                Ok(Assembled::Capabilities(header.tag, capabilities))
            }
            _ => Err(PacketError::Order),
        }
    }

    fn begin(
        &mut self,
        header: Header,
        part: &[u8],
        capabilities: Option<Vec<Received>>,
    ) -> Result<Assembled, PacketError> {
        if header.bytes > self.bytes_max {
            let (found, bytes_max) = (header.bytes, self.bytes_max);
            return Err(PacketError::TooLong { found, bytes_max });
        }
        let due = usize::try_from(header.bytes).unwrap_or(usize::MAX);
        if part.len() == due {
            return Ok(Assembled::Message(whole(header.tag, Body::of(part), capabilities)));
        }
        let partial = Partial { tag: header.tag, bytes: Vec::new(), due, capabilities };
        self.go_on(partial, part)
    }

    fn go_on(&mut self, mut partial: Partial, part: &[u8]) -> Result<Assembled, PacketError> {
        let due = partial.due - partial.bytes.len();
        // An empty part would make no progress.
        if part.len() > due || part.is_empty() {
            return Err(PacketError::Length { found: part.len(), due });
        }
        partial.bytes.extend_from_slice(part);
        if partial.bytes.len() < partial.due {
            self.partial = Some(partial);
            return Ok(Assembled::Nothing);
        }
        let Partial { tag, bytes, capabilities, .. } = partial;
        Ok(Assembled::Message(whole(tag, bytes.into(), capabilities)))
    }
}

fn whole(tag: Tag, body: Body, capabilities: Option<Vec<Received>>) -> Message {
    match capabilities {
        Some(capabilities) => Message::new(tag, None, body, capabilities),
        None => Message::new(tag, Some(status::LOST_HERE), Body::empty(), Vec::new()),
    }
}

/// The capabilities of a packet: a kind and a note for each, and its descriptor.
fn notes(
    header: Header,
    mut rest: &[u8],
    descriptors: Option<Vec<OwnedFd>>,
) -> Result<(Option<Vec<Received>>, &[u8]), PacketError> {
    let is_lost = descriptors.is_none();
    let sent = |descriptor| Sent::new(descriptor, Whose::Peer);
    let descriptors: Vec<Sent> = descriptors.unwrap_or_default().into_iter().map(sent).collect();
    let (stated, found) = (usize::from(header.capability_count), descriptors.len());
    let wrong = PacketError::Capabilities { stated, found };
    if stated != found && !is_lost {
        return Err(wrong);
    }
    let mut capabilities = Vec::new();
    let mut descriptors = descriptors.into_iter();
    for _ in 0..stated {
        let (&[kind, length], behind) = rest.split_first_chunk::<2>().ok_or(wrong)?;
        let (note, behind) = behind.split_at_checked(usize::from(length)).ok_or(wrong)?;
        rest = behind;
        let kind = CapabilityKind::of_byte(kind).ok_or(wrong)?;
        let note = std::str::from_utf8(note).map_err(|_| wrong)?.to_owned();
        if let Some(descriptor) = descriptors.next() {
            capabilities.push(Received { kind, note, descriptor });
        }
    }
    Ok(((!is_lost).then_some(capabilities), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: Kind, bytes: u32, part: &[u8]) -> Vec<u8> {
        let tag = Tag::new(1, 2, 3);
        let header = Header { tag, word: 7, bytes, kind, capability_count: 0 };
        [&header.to_bytes(), part].concat()
    }

    fn assembled(assembler: &mut Assembler, packet: &[u8]) -> Result<Option<Message>, PacketError> {
        match assembler.take(packet, Some(Vec::new()))? {
            Assembled::Message(message) => Ok(Some(message)),
            _ => Ok(None),
        }
    }

    #[test]
    fn parts_become_the_message() {
        let mut assembler = Assembler::new(10);
        assert!(assembled(&mut assembler, &packet(Kind::Message, 5, b"he")).unwrap().is_none());
        assert!(assembled(&mut assembler, &packet(Kind::More, 0, b"l")).unwrap().is_none());
        let message = assembled(&mut assembler, &packet(Kind::More, 0, b"lo")).unwrap().unwrap();
        assert_eq!(&*message, b"hello");
        let status = assembled(&mut assembler, &packet(Kind::Status, 0, b"")).unwrap().unwrap();
        assert_eq!(status.status(), Some(7));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let fresh = || Assembler::new(10);
        let refused = |packet: &[u8]| fresh().take(packet, Some(Vec::new())).unwrap_err();
        assert_eq!(refused(b"short"), PacketError::Short { found: 5 });
        let mut unknown = packet(Kind::Message, 0, b"");
        unknown[20] = 9;
        assert_eq!(refused(&unknown), PacketError::Kind { found: 9 });
        assert_eq!(refused(&packet(Kind::More, 0, b"x")), PacketError::Order);
        assert_eq!(refused(&vec![1; PACKET_BYTES_MAX + 1]), PacketError::Long);
        let too_long = PacketError::TooLong { found: 11, bytes_max: 10 };
        assert_eq!(refused(&packet(Kind::Message, 11, b"x")), too_long);
        let length = PacketError::Length { found: 3, due: 2 };
        assert_eq!(refused(&packet(Kind::Message, 2, b"abc")), length);
        assert_eq!(
            refused(&packet(Kind::Message, 2, b"")),
            PacketError::Length { found: 0, due: 2 }
        );
        let mut stated = packet(Kind::Message, 0, b"");
        stated[21] = 1;
        assert_eq!(refused(&stated), PacketError::Capabilities { stated: 1, found: 0 });
        let mut between = fresh();
        between.take(&packet(Kind::Message, 2, b"a"), Some(Vec::new())).unwrap();
        let status = between.take(&packet(Kind::Status, 0, b""), Some(Vec::new()));
        assert_eq!(status.unwrap_err(), PacketError::Order);
    }

    #[test]
    fn a_message_that_lost_its_descriptors_says_so() {
        let mut assembler = Assembler::new(10);
        let mut first = packet(Kind::Message, 3, &[1, 0, b'a']);
        first[21] = 1;
        assert!(matches!(assembler.take(&first, None), Ok(Assembled::Nothing)));
        let message = assembled(&mut assembler, &packet(Kind::More, 0, b"bc")).unwrap().unwrap();
        assert_eq!(message.status(), Some(status::LOST_HERE));
    }

    #[test]
    fn any_packets_are_taken_or_refused() {
        let mut assembler = Assembler::new(1000);
        crate::random::bytes(|bytes| {
            let bytes = bytes.get(..300).unwrap_or(bytes);
            let mut packet = packet(Kind::Message, 0, bytes);
            // Half of them have a beginning that is likely.
            if let [first, second, third, ..] = *bytes
                && first % 2 == 0
            {
                packet[16..18].copy_from_slice(&[second, third % 4]);
                packet[20] = first % 5;
            } else {
                packet.drain(..HEADER_BYTES);
            }
            match assembler.take(&packet, Some(Vec::new())) {
                Ok(Assembled::Message(message)) => assert!(message.len() <= 1000),
                Ok(_) => {}
                Err(_) => assembler = Assembler::new(1000),
            }
        });
    }
}
