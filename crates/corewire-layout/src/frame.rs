//! The messages of the attach handshake: frames of 256 bytes, one per packet, over a SEQPACKET
//! socket. The kernel tells which process is the peer.
//!
//! | frame | from, to | descriptors | meaning |
//! |---|---|---|---|
//! | `Hello` | receiver, owner | its segment, its process | let me read channel `name` |
//! | `Welcome` | owner, receiver | sender's segment, its process, hint segment or table if any | you are row `row`, and begin at `start` |
//! | `Relayed` | owner, receiver | | your group has a relay: read its channel, and send `Hello` as its follower |
//! | | owner, follower | sender's segment, its process | you count; this relay keeps its place |
//! | `Refused` | owner, any requester | | no, because of `reason` |
//! | `Readiness` | receiver, owner | an eventfd, or none to an owner of another user | wake me through this when I ask for it |
//! | `Ring` | owner, receiver of another user | | the wake-up that `Readiness` asked for |
//! | `Done` | owner, receiver | | the last request is done |
//! | | new sender or receiver, host, and back | | I have taken my place in the shared channel; you count |
//! | `Leave` | receiver, owner | | I am leaving; what follows is a hang-up, not a death |
//! | `Enter` | sender, host | | let me send on the shared channel `name` |
//! | `Entered` | host, sender | ring, table | you are sender `row` |
//! | `Start` | host, receiver or sender | | after `Welcome` or `Entered`, in a shared channel: you begin at `start` |
//! | `Follow` | sender, host | | I send on `name`, too; tell me when you go |
//! | `Wake` | sender, receiver | | ring your descriptor for row `row` |
//! | `Invite` | owner, waiter | | the name you wait for exists now |
//! | `Observe` | observer, owner | | let me observe the channel or endpoint `name` |
//! | `Observed` | owner, observer | sender's segment | followed by `count` rows; these processes are joining |
//! | `ObservedEndpoint` | owner, observer | endpoint's segment, list of its peers | |
//! | `Rows` | owner, observer | receivers' segments | the rows they belong to |
//! | `Pair` | endpoint, endpoint | its segment, its activity page, its eventfd, its process | connect: you are my row `row` |
//! | `Paired` | endpoint, endpoint | the same | connected; you are my row `row` |
//!
//! A frame is hostile until [`Frame::parse`] has read it. A frame that it refuses closes the
//! connection.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::LAYOUT_VERSION;
use crate::message_type::{TYPE_NAME_BYTES_MAX, TypeKey, TypeName, TypeTag};
use crate::name::{ChannelName, NAME_BYTES_MAX, RELAYED_BYTES_MAX};

/// Bytes of every frame.
pub const FRAME_BYTES: usize = 256;
/// Maximum number of descriptors with one frame.
pub const DESCRIPTORS_MAX: usize = ROWS_PER_FRAME;
/// Maximum number of rows in one [`Frame::Rows`].
pub const ROWS_PER_FRAME: usize = 50;

/// Maximum number of joining processes in one [`Frame::Observed`].
pub const JOINING_MAX: usize = 44;

const MAGIC: u32 = u32::from_le_bytes(*b"cwfr");

/// Where a new receiver begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// At the next message sent.
    #[default]
    Now,
    /// At the oldest message that is still whole.
    Oldest,
    /// The same where the channel allows it to this receiver, otherwise at the next message sent.
    OldestIfPossible,
    /// At the message with this number, which has not been sent yet.
    At(u64),
}

/// The part of a channel in which a receiver wants to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// A receiver that reads the sender's ring.
    #[default]
    Ring,
    /// A receiver in this group of processors; the group may have a relay if the channel has two
    /// levels.
    Group(u32),
    /// The relay of this group: it reads the sender's ring, and begins where the previous relay
    /// ended.
    Relay(u32),
    /// A receiver that gets its messages from the relay of this group, and counts with the sender.
    Follower(u32),
}

/// A request to read a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The channel's name.
    pub name: ChannelName,
    /// Where to begin.
    pub start: Start,
    /// The receiver's number if it waited for the name, otherwise 0. For a relay: the incarnation
    /// of its channel.
    pub waiter: u128,
    /// The part of the channel in which the receiver wants to be.
    pub place: Place,
    /// The receiver cannot call `membarrier`, so the sender must fence.
    pub needs_fence: bool,
    /// The type of messages that the receiver expects.
    pub type_key: TypeKey,
    /// The socket of the receiver's process; 0 if it has none. For a follower: the incarnation of
    /// the relay's channel that it has joined.
    pub socket: u128,
}

/// The answer to [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The receiver's row.
    pub row: u32,
    /// The sequence number of its first message.
    pub start: u64,
    /// The epoch (even) at which its sleeping word begins.
    pub epoch: u32,
    /// The channel's incarnation.
    pub incarnation: u128,
    /// True if a hint segment comes with this frame.
    pub hint: bool,
    /// True if the channel is shared and its table comes with this frame; `Start` follows.
    pub table: bool,
    /// Messages from this one on are fenced, if the receiver asked for that. The message before it
    /// may already be in flight.
    pub settled: u64,
    /// Number of receivers that the row has had, including this one. The row's door holds it while
    /// the receiver counts.
    pub generation: u32,
}

/// Why an owner refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// There is no such channel here.
    #[error("no such channel")]
    NotFound,
    /// All rows are taken.
    #[error("the channel has all the {max} receivers it was made for")]
    Full {
        /// The channel's limit.
        max: u64,
    },
    /// The peer runs as a user who is not admitted.
    #[error("it belongs to user {owner}, this process runs as user {asker}")]
    NotPermitted {
        /// The owner's effective user.
        owner: u32,
        /// The requester's effective user.
        asker: u32,
    },
    /// The requester has another version of the layout.
    #[error("the owner speaks layout version {version}")]
    Version {
        /// The owner's version.
        version: u32,
    },
    /// The requester expects messages of another type.
    #[error("the channel carries {}", carried(*.name, *.bytes))]
    Type {
        /// Hash of the channel's type; 0 for plain bytes.
        hash: u64,
        /// Size of the channel's type.
        bytes: u64,
        /// Name of the channel's type; empty for plain bytes.
        name: TypeName,
    },
    /// The receiver's segment fails a check: `errno` of the check, or 0.
    #[error("the owner refused the receiver's memory (error {errno})")]
    Segment {
        /// An error number; 0 if seals, size or header are wrong.
        errno: u32,
    },
    /// The owner has no descriptors or no memory left.
    #[error("the owner is out of descriptors or memory (error {errno})")]
    Resources {
        /// The owner's error number.
        errno: u32,
    },
    /// The frame has no meaning at this point.
    #[error("the owner did not understand the request")]
    Malformed,
    /// The channel has one sender.
    #[error("the channel is not shared: it has one sender")]
    NotShared,
    /// A shared channel does not keep messages sent before a receiver joined.
    #[error("a shared channel can be joined from now on only, not at its oldest message")]
    FromNow,
    /// A guest asked for a shared channel.
    #[error("a shared channel is for processes of one user")]
    NotForGuests,
    /// All senders' rows are taken.
    #[error("the channel has all the {max} senders it was made for")]
    SendersFull {
        /// The channel's limit.
        max: u64,
    },
    /// A guest asked for messages that were sent before it came.
    #[error("a guest joins from now on only, not at the oldest message")]
    GuestFromNow,
    /// One user's guests have the rows that are theirs, or all guests together.
    #[error("the guests of user {user} have the {max} rows that guests may have of this channel")]
    GuestsFull {
        /// The requester's effective user.
        user: u32,
        /// The limit.
        max: u64,
    },
    /// All peers' rows are taken.
    #[error("the endpoint has its maximum of {max} peers")]
    PeersFull {
        /// The endpoint's limit.
        max: u64,
    },
}

/// A frame of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame {
    /// A request to read a channel.
    Hello(Hello),
    /// The answer to it.
    Welcome(Welcome),
    /// The other answer to it: to a receiver of a group, or to a follower.
    Relayed {
        /// The channel's incarnation.
        channel: u128,
        /// To a follower: the incarnation of the relay's channel whose place in the ring is kept. 0
        /// if there is none.
        relay: u128,
    },
    /// A refusal of any request.
    Refused(Reason),
    /// Carries the receiver's readiness descriptor.
    Readiness,
    /// Wakes a receiver that gave no descriptor.
    Ring,
    /// The last request is done.
    Done,
    /// The receiver leaves.
    Leave,
    /// The channel that a waiter waits for exists now.
    Invite {
        /// The channel.
        name: ChannelName,
        /// The waiter's number.
        waiter: u128,
    },
    /// A request to observe a channel or an endpoint.
    Observe {
        /// Its name.
        name: ChannelName,
    },
    /// The answer to it.
    Observed {
        /// Number of rows that follow.
        count: u32,
        /// Processes of receivers that were invited and have not joined yet, at most
        /// [`JOINING_MAX`] of them.
        joining: Vec<u32>,
    },
    /// The answer to it if the name is an endpoint's.
    ObservedEndpoint,
    /// Some of the rows.
    Rows(Vec<u16>),
    /// A request to send on a shared channel.
    Enter {
        /// The channel.
        name: ChannelName,
        /// The type of its messages.
        type_key: TypeKey,
        /// The socket of the sender's process.
        socket: u128,
    },
    /// The answer to it.
    Entered {
        /// The sender's row.
        row: u32,
        /// Number of senders that the row has had, including this one.
        generation: u32,
        /// The channel's incarnation.
        incarnation: u128,
    },
    /// Where a receiver of a shared channel begins.
    Start {
        /// The sequence number of its first message.
        start: u64,
    },
    /// A sender's request to learn when the host goes.
    Follow {
        /// The channel.
        name: ChannelName,
    },
    /// Makes the process of a shared channel's receiver ring the receiver's descriptor.
    Wake {
        /// The receiver's row.
        row: u32,
        /// The channel's incarnation.
        incarnation: u128,
    },
    /// A request to connect with an endpoint.
    Pair {
        /// The name of the endpoint that receives the request.
        name: ChannelName,
        /// The row that this endpoint has with the requester.
        row: u32,
        /// The requester's incarnation.
        incarnation: u128,
    },
    /// The answer to it.
    Paired {
        /// The row that the requester has.
        row: u32,
        /// The incarnation of the answering endpoint.
        incarnation: u128,
    },
}

/// Why a packet is not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The packet has the wrong size.
    #[error("a packet of {found} bytes where a frame of {FRAME_BYTES} was due")]
    Length {
        /// Its size.
        found: usize,
    },
    /// The packet is not from corewire.
    #[error("a packet that is no corewire frame")]
    Magic,
    /// The frame has another layout version.
    #[error("a frame of layout version {found}, but this corewire speaks {LAYOUT_VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
    /// The frame has a field with a meaningless value.
    #[error("frame field {field} holds {found}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it holds.
        found: u64,
    },
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawFrame {
    magic: U32,
    version: U32,
    kind: U32,
    tail_length: U32,
    words: [U64; 6],
    id: [u8; 16],
    tail: [u8; 176],
}

const _: () = assert!(size_of::<RawFrame>() == FRAME_BYTES);
const _: () = assert!(TYPE_NAME_BYTES_MAX <= 176);
const _: () = assert!(NAME_BYTES_MAX + RELAYED_BYTES_MAX <= 176 && ROWS_PER_FRAME * 2 <= 176);
const _: () = assert!(JOINING_MAX * 4 <= 176);

impl Frame {
    /// The frame as the bytes of a packet.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; FRAME_BYTES] {
        let mut raw = RawFrame::new_zeroed();
        raw.magic = MAGIC.into();
        raw.version = LAYOUT_VERSION.into();
        raw.kind = self.kind().into();
        let words: [u64; 6] = match self {
            Self::Hello(h) => {
                let start = match h.start {
                    Start::Now => 0,
                    Start::Oldest => 1,
                    Start::OldestIfPossible => u64::MAX,
                    Start::At(message) => message.saturating_add(2),
                };
                let (place, group) = match h.place {
                    Place::Ring => (0, 0),
                    Place::Group(group) => (1, group),
                    Place::Relay(group) => (2, group),
                    Place::Follower(group) => (3, group),
                };
                let flags = u64::from(h.needs_fence) | place << 1 | u64::from(group) << 32;
                let [low, high] = halves(h.socket);
                [start, flags, h.type_key.hash, h.type_key.bytes, low, high]
            }
            Self::Welcome(w) => [
                w.row.into(),
                w.start,
                w.epoch.into(),
                u64::from(w.hint) | u64::from(w.table) << 1,
                w.settled,
                w.generation.into(),
            ],
            Self::Refused(reason) => {
                let (code, a, b) = reason.to_words();
                [code, a, b, 0, 0, 0]
            }
            Self::Relayed { channel, .. } => {
                let [low, high] = halves(*channel);
                [low, high, 0, 0, 0, 0]
            }
            Self::Observed { count, .. } => [(*count).into(), 0, 0, 0, 0, 0],
            Self::Enter { type_key, socket, .. } => {
                let [low, high] = halves(*socket);
                [0, 0, type_key.hash, type_key.bytes, low, high]
            }
            Self::Entered { row, generation, .. } => {
                [(*row).into(), (*generation).into(), 0, 0, 0, 0]
            }
            Self::Start { start } => [*start, 0, 0, 0, 0, 0],
            Self::Wake { row, .. } | Self::Pair { row, .. } | Self::Paired { row, .. } => {
                [(*row).into(), 0, 0, 0, 0, 0]
            }
            _ => [0; 6],
        };
        raw.words = words.map(U64::new);
        match self {
            Self::Hello(h) => raw.set_name(&h.name, h.waiter),
            Self::Welcome(w) => raw.id = w.incarnation.to_le_bytes(),
            Self::Relayed { relay, .. } => raw.id = relay.to_le_bytes(),
            Self::Invite { name, waiter } => raw.set_name(name, *waiter),
            Self::Observe { name } | Self::Enter { name, .. } | Self::Follow { name } => {
                raw.set_name(name, 0);
            }
            Self::Entered { incarnation, .. }
            | Self::Wake { incarnation, .. }
            | Self::Paired { incarnation, .. } => {
                raw.id = incarnation.to_le_bytes();
            }
            Self::Refused(Reason::Type { name, .. }) => raw.set_tail(name.as_str().as_bytes()),
            Self::Pair { name, incarnation, .. } => raw.set_name(name, *incarnation),
            Self::Observed { joining, .. } => {
                let joining = joining.iter().take(JOINING_MAX);
                let bytes: Vec<u8> = joining.flat_map(|&pid| pid.to_le_bytes()).collect();
                raw.set_tail(&bytes);
            }
            Self::Rows(rows) => {
                let bytes: Vec<u8> = rows.iter().flat_map(|&row| row.to_le_bytes()).collect();
                raw.set_tail(&bytes);
            }
            _ => {}
        }
        zerocopy::transmute!(raw)
    }

    /// Parses a packet.
    ///
    /// # Errors
    /// [`FrameError`] for anything that [`Frame::to_bytes`] cannot have written.
    pub fn parse(packet: &[u8]) -> Result<Self, FrameError> {
        let raw = RawFrame::read_from_bytes(packet)
            .map_err(|_| FrameError::Length { found: packet.len() })?;
        if raw.magic.get() != MAGIC {
            return Err(FrameError::Magic);
        }
        if raw.version.get() != LAYOUT_VERSION {
            return Err(FrameError::Version { found: raw.version.get() });
        }
        let [a, b, c, d, e, f] = raw.words.map(U64::get);
        let id = u128::from_le_bytes(raw.id);
        Ok(match raw.kind.get() {
            1 => Self::Hello(Hello {
                name: raw.name()?,
                start: match a {
                    0 => Start::Now,
                    1 => Start::Oldest,
                    u64::MAX => Start::OldestIfPossible,
                    message => Start::At(message - 2),
                },
                waiter: id,
                place: place(b)?,
                needs_fence: b & 1 != 0,
                type_key: TypeKey { hash: c, bytes: d },
                socket: whole(e, f),
            }),
            2 => Self::Welcome(Welcome {
                row: small("row", a)?,
                start: b,
                epoch: small("epoch", c)?,
                incarnation: id,
                hint: flag("hint", d & !2)?,
                table: d & 2 != 0,
                settled: e,
                generation: small("generation", f)?,
            }),
            3 => Self::Refused(Reason::of_words(a, b, c, raw.tail()?)?),
            4 => Self::Readiness,
            5 => Self::Done,
            6 => Self::Invite { name: raw.name()?, waiter: id },
            7 => Self::Observe { name: raw.name()? },
            8 => Self::Observed { count: small("count", a)?, joining: raw.joining()? },
            9 => Self::Rows(raw.rows()?),
            10 => Self::Leave,
            11 => Self::Ring,
            12 => Self::Enter {
                name: raw.name()?,
                type_key: TypeKey { hash: c, bytes: d },
                socket: whole(e, f),
            },
            13 => Self::Entered {
                row: small("row", a)?,
                generation: small("generation", b)?,
                incarnation: id,
            },
            14 => Self::Start { start: a },
            15 => Self::Follow { name: raw.name()? },
            16 => Self::Wake { row: small("row", a)?, incarnation: id },
            17 => Self::Relayed { channel: whole(a, b), relay: id },
            18 => Self::Pair { name: raw.name()?, row: small("row", a)?, incarnation: id },
            19 => Self::Paired { row: small("row", a)?, incarnation: id },
            20 => Self::ObservedEndpoint,
            kind => return Err(FrameError::Field { field: "kind", found: kind.into() }),
        })
    }

    const fn kind(&self) -> u32 {
        match self {
            Self::Hello(_) => 1,
            Self::Welcome(_) => 2,
            Self::Refused(_) => 3,
            Self::Readiness => 4,
            Self::Done => 5,
            Self::Invite { .. } => 6,
            Self::Observe { .. } => 7,
            Self::Observed { .. } => 8,
            Self::Rows(_) => 9,
            Self::Leave => 10,
            Self::Ring => 11,
            Self::Enter { .. } => 12,
            Self::Entered { .. } => 13,
            Self::Start { .. } => 14,
            Self::Follow { .. } => 15,
            Self::Wake { .. } => 16,
            Self::Relayed { .. } => 17,
            Self::Pair { .. } => 18,
            Self::Paired { .. } => 19,
            Self::ObservedEndpoint => 20,
        }
    }
}

/// A channel's type in a refusal.
fn carried(name: TypeName, bytes: u64) -> String {
    match name.is_empty() {
        true => "plain bytes".into(),
        false => format!("{name} of {bytes} bytes"),
    }
}

impl TypeTag {
    /// The refusal of a request for a channel of another type than this one.
    #[must_use]
    pub const fn refusal(self) -> Reason {
        let Self { key: TypeKey { hash, bytes }, name } = self;
        Reason::Type { hash, bytes, name }
    }
}

impl Reason {
    const fn to_words(self) -> (u64, u64, u64) {
        match self {
            Self::NotFound => (1, 0, 0),
            Self::Full { max } => (2, max, 0),
            Self::NotPermitted { owner, asker } => (3, owner as u64, asker as u64),
            Self::Version { version } => (4, version as u64, 0),
            Self::Type { hash, bytes, .. } => (5, hash, bytes),
            Self::Segment { errno } => (6, errno as u64, 0),
            Self::Resources { errno } => (7, errno as u64, 0),
            Self::Malformed => (8, 0, 0),
            Self::NotShared => (9, 0, 0),
            Self::SendersFull { max } => (10, max, 0),
            Self::FromNow => (11, 0, 0),
            Self::NotForGuests => (12, 0, 0),
            Self::PeersFull { max } => (13, max, 0),
            Self::GuestFromNow => (14, 0, 0),
            Self::GuestsFull { user, max } => (15, user as u64, max),
        }
    }

    fn of_words(code: u64, a: u64, b: u64, tail: &[u8]) -> Result<Self, FrameError> {
        Ok(match code {
            1 => Self::NotFound,
            2 => Self::Full { max: a },
            3 => Self::NotPermitted { owner: small("owner", a)?, asker: small("asker", b)? },
            4 => Self::Version { version: small("version", a)? },
            5 => {
                let tag = TypeName::of_bytes(tail).and_then(|name| TypeTag::new(a, b, name));
                let found = tail.len() as u64;
                tag.ok_or(FrameError::Field { field: "type_name", found })?.refusal()
            }
            6 => Self::Segment { errno: small("errno", a)? },
            7 => Self::Resources { errno: small("errno", a)? },
            8 => Self::Malformed,
            9 => Self::NotShared,
            10 => Self::SendersFull { max: a },
            11 => Self::FromNow,
            12 => Self::NotForGuests,
            13 => Self::PeersFull { max: a },
            14 => Self::GuestFromNow,
            15 => Self::GuestsFull { user: small("user", a)?, max: b },
            _ => return Err(FrameError::Field { field: "reason", found: code }),
        })
    }
}

impl RawFrame {
    fn set_tail(&mut self, bytes: &[u8]) {
        let length = bytes.len().min(self.tail.len());
        self.tail[..length].copy_from_slice(&bytes[..length]);
        self.tail_length = u32::try_from(length).unwrap_or_default().into();
    }

    fn set_name(&mut self, name: &ChannelName, id: u128) {
        self.set_tail(name.as_str().as_bytes());
        self.id = id.to_le_bytes();
    }

    fn tail(&self) -> Result<&[u8], FrameError> {
        let length = self.tail_length.get();
        let end = usize::try_from(length).unwrap_or(usize::MAX);
        self.tail.get(..end).ok_or(FrameError::Field { field: "tail_length", found: length.into() })
    }

    fn name(&self) -> Result<ChannelName, FrameError> {
        let tail = self.tail()?;
        let bad = FrameError::Field { field: "name", found: tail.len() as u64 };
        core::str::from_utf8(tail).ok().and_then(|s| ChannelName::of_any(s).ok()).ok_or(bad)
    }

    fn joining(&self) -> Result<Vec<u32>, FrameError> {
        let tail = self.tail()?;
        let bad = FrameError::Field { field: "joining", found: tail.len() as u64 };
        let pids = <[U32]>::ref_from_bytes(tail).map_err(|_| bad)?;
        Ok(pids.iter().map(|pid| pid.get()).collect())
    }

    fn rows(&self) -> Result<Vec<u16>, FrameError> {
        let tail = self.tail()?;
        let bad = FrameError::Field { field: "rows", found: tail.len() as u64 };
        if tail.len() > 2 * ROWS_PER_FRAME {
            return Err(bad);
        }
        let rows = <[U16]>::ref_from_bytes(tail).map_err(|_| bad)?;
        Ok(rows.iter().map(|row| row.get()).collect())
    }
}

/// A number of 128 bits as two words, the lower one first.
const fn halves(number: u128) -> [u64; 2] {
    let bytes = number.to_le_bytes();
    let (halves, _) = bytes.as_chunks::<8>();
    [u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1])]
}

/// The number that [`halves`] has split.
const fn whole(low: u64, high: u64) -> u128 {
    low as u128 | (high as u128) << 64
}

/// The place that the flags of a `Hello` give.
fn place(flags: u64) -> Result<Place, FrameError> {
    let bad = FrameError::Field { field: "place", found: flags };
    let group = small("place", flags >> 32)?;
    match (flags & 0xffff_ffff) >> 1 {
        0 if group == 0 => Ok(Place::Ring),
        1 => Ok(Place::Group(group)),
        2 => Ok(Place::Relay(group)),
        3 => Ok(Place::Follower(group)),
        _ => Err(bad),
    }
}

fn flag(field: &'static str, word: u64) -> Result<bool, FrameError> {
    match word {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(FrameError::Field { field, found }),
    }
}

fn small(field: &'static str, word: u64) -> Result<u32, FrameError> {
    u32::try_from(word).map_err(|_| FrameError::Field { field, found: word })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn names() -> impl Strategy<Value = ChannelName> {
        proptest::collection::vec(0usize..64, 1..=NAME_BYTES_MAX).prop_map(|picks| {
            let set = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
            let text: String = picks.iter().map(|&i| char::from(set[i])).collect();
            let name = ChannelName::new(&text).unwrap();
            if picks[0] % 2 == 0 { name } else { name.relayed(u32::MAX) }
        })
    }

    fn reasons() -> impl Strategy<Value = Reason> {
        (1u64..=13, any::<u32>(), any::<u32>(), "[ -~]{1,64}").prop_map(|(code, a, b, name)| {
            let a = u64::from(a).max(1);
            Reason::of_words(code, a, b.into(), name.as_bytes()).unwrap()
        })
    }

    fn frames() -> impl Strategy<Value = Frame> {
        let starts = prop_oneof![
            Just(Start::Now),
            Just(Start::Oldest),
            Just(Start::OldestIfPossible),
            (0..u64::MAX - 2).prop_map(Start::At),
        ];
        let places = prop_oneof![
            Just(Place::Ring),
            any::<u32>().prop_map(Place::Group),
            any::<u32>().prop_map(Place::Relay),
            any::<u32>().prop_map(Place::Follower),
        ];
        let rest = any::<(u128, bool, u64, u64, u128)>();
        let hello = (names(), starts, places, rest).prop_map(|(name, start, place, h)| {
            let (waiter, needs_fence, hash, bytes, socket) = h;
            let type_key = TypeKey { hash, bytes };
            Frame::Hello(Hello { name, start, waiter, place, needs_fence, type_key, socket })
        });
        let welcome = any::<(u32, u64, u32, u128, bool, bool, u64, u32)>().prop_map(|w| {
            let (row, start, epoch, incarnation, hint, table, settled, generation) = w;
            let welcome =
                Welcome { row, start, epoch, incarnation, hint, table, settled, generation };
            Frame::Welcome(welcome)
        });
        prop_oneof![
            hello,
            welcome,
            reasons().prop_map(Frame::Refused),
            any::<(u128, u128)>().prop_map(|(channel, relay)| Frame::Relayed { channel, relay }),
            Just(Frame::Readiness),
            Just(Frame::Done),
            Just(Frame::Leave),
            Just(Frame::Ring),
            (names(), any::<u128>()).prop_map(|(name, waiter)| Frame::Invite { name, waiter }),
            names().prop_map(|name| Frame::Observe { name }),
            names().prop_map(|name| Frame::Follow { name }),
            (names(), any::<(u64, u64, u128)>()).prop_map(|(name, (hash, bytes, socket))| {
                Frame::Enter { name, type_key: TypeKey { hash, bytes }, socket }
            }),
            any::<(u32, u32, u128)>().prop_map(|(row, generation, incarnation)| {
                Frame::Entered { row, generation, incarnation }
            }),
            any::<u64>().prop_map(|start| Frame::Start { start }),
            any::<(u32, u128)>().prop_map(|(row, incarnation)| Frame::Wake { row, incarnation }),
            (any::<u32>(), proptest::collection::vec(any::<u32>(), 0..=JOINING_MAX))
                .prop_map(|(count, joining)| Frame::Observed { count, joining }),
            Just(Frame::ObservedEndpoint),
            (names(), any::<(u32, u128)>()).prop_map(|(name, (row, incarnation))| Frame::Pair {
                name,
                row,
                incarnation
            }),
            any::<(u32, u128)>().prop_map(|(row, incarnation)| Frame::Paired { row, incarnation }),
            proptest::collection::vec(any::<u16>(), 0..=ROWS_PER_FRAME).prop_map(Frame::Rows),
        ]
    }

    #[test]
    fn a_refusal_names_the_type_or_plain_bytes() {
        let name = TypeName::new("example.Tick.1").unwrap();
        for tag in [TypeTag::default(), TypeTag::new(7, 16, name).unwrap()] {
            let frame = Frame::Refused(tag.refusal());
            assert_eq!(Frame::parse(&frame.to_bytes()), Ok(frame));
        }
        let mut bytes = Frame::Refused(TypeTag::new(7, 16, name).unwrap().refusal()).to_bytes();
        *bytes.last_chunk_mut::<176>().unwrap() = [b'\n'; 176];
        let error = Frame::parse(&bytes).unwrap_err();
        assert_eq!(error, FrameError::Field { field: "type_name", found: 14 });
    }

    proptest! {
        #[test]
        fn frames_survive_the_wire(frame in frames()) {
            prop_assert_eq!(Frame::parse(&frame.to_bytes()), Ok(frame));
        }

        #[test]
        fn any_packet_is_parsed_without_panic(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = Frame::parse(&packet);
        }

        #[test]
        fn a_flipped_frame_is_parsed_without_panic(
            frame in frames(),
            flips in proptest::collection::vec((0..FRAME_BYTES, any::<u8>()), 1..8),
        ) {
            let mut bytes = frame.to_bytes();
            for (at, value) in flips {
                bytes[at] = value;
            }
            let _ = Frame::parse(&bytes);
        }
    }
}
