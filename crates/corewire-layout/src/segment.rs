//! The kinds of segment, and the header at the start of each.
//!
//! A sender's segment (writable for its owner; the kernel makes it read-only for all other
//! processes):
//!
//! ```text
//!      0  header, 256 bytes        written before the segment is handed out, never again
//!    256  bell u32 | cpu u32       data thread, slow path only
//!    384  blocked u32              data thread, when it waits for room
//!    512  closed u64               data thread, once
//!    640  counters, 16 x u64       data thread, slow path only
//!    768  counters, 16 x u64       control thread
//!    896  floor u64                data thread, slow path only, under `Overwrite`
//!   4096  doors, 128 bytes each    control thread, data thread (evictions), under one lock
//!         ring, window, large      data thread; see `Geometry`
//! ```
//!
//! In a shared channel this segment belongs to all senders: they all write it, and no other process
//! does. Its doors are those of the senders, and there is a window and a large area for each of
//! them. Every sender that changes `bell` or `blocked` adds to it. In addition to the words above
//! it has:
//!
//! ```text
//!   1024  tail u64                 senders, now and then: a hint
//!   1152  senders_epoch u32        the process that changes a sender's door
//!   1280  held u32                 the creator, while it waits for receivers that it invited
//! ```
//!
//! All senders and receivers write a second segment, the table:
//!
//! ```text
//!      0  header, 128 bytes        written before the segment is handed out, never again
//!    128  sleepers u32             a receiver or sender adds one before it sleeps
//!    256  room u32                 a receiver adds one when it makes room for a waiting sender
//!    384  members_epoch u32        the process that changes a receiver's door
//!    512  rows_high u32            the host: rows from this one on have never been taken
//!    640  counters, 16 x u64       as the control thread's
//!   4096  doors, 128 bytes each    of receivers
//!         pages                    of receivers: as a receiver's segment, without its header
//! ```
//!
//! A receiver's segment, one page:
//!
//! ```text
//!      0  header, 128 bytes        written before the segment is handed out, never again
//!    128  cursor u64               number of messages that it has finished with
//!    256  sleeping u32 | mode u32  odd epoch: asleep, or about to be
//!    384  wake u32 | cpu u32       changes when it frees room for a waiting sender
//!    512  counters, 16 x u64
//! ```

use core::mem::offset_of;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::endpoint::EndpointSizeError;
use crate::geometry::{Geometry, GeometryError};
pub use crate::message_type::TypeTag;
use crate::message_type::{TYPE_NAME_BYTES_MAX, TypeName};
use crate::{LAYOUT_VERSION, PAGE_BYTES, ROLE_BYTES};

/// First eight bytes of a sender's segment.
pub const SENDER_MAGIC: u64 = u64::from_le_bytes(*b"cwire-tx");
/// First eight bytes of a receiver's segment.
pub const RECEIVER_MAGIC: u64 = u64::from_le_bytes(*b"cwire-rx");

/// Sender: u32 that changes whenever sleeping receivers must check again.
pub const BELL: usize = 256;
/// Sender: u32, the processor that the data thread last ran on (a hint).
pub const SENDER_CPU: usize = 260;
/// Sender: u32 epoch, odd while the data thread sleeps because there is no room.
pub const BLOCKED: usize = 384;
/// Sender: u64, 0 while the channel is open, else the number of messages it ever carried plus one.
pub const CLOSED: usize = 512;
/// Sender: counters of the data thread.
pub const SENDER_COUNTERS: usize = 640;
/// Sender: counters of the control thread.
pub const CONTROL_COUNTERS: usize = 768;
/// Sender: u64, under `Overwrite`: messages below this one may be overwritten at any moment.
pub const FLOOR: usize = 896;
/// Sender: the first door.
pub const DOORS: usize = PAGE_BYTES;
/// Bytes of a door. Each receiver has one, and in a shared channel also each sender.
pub const DOOR_BYTES: usize = ROLE_BYTES;
/// Door: u64, which holder has the row, and how; see [`tenure`].
pub const DOOR_TENURE: usize = 0;
/// Door: u64, the sequence number of the first message that the receiver gets.
pub const DOOR_START: usize = 8;
/// Door: u32, the holder's process number, for people to read. Nothing relies on it.
pub const DOOR_PID: usize = 16;

/// Door of a shared channel: u128 in two u64, the socket of the holder's process.
pub const DOOR_SOCKET: usize = 32;
/// Door of a shared channel's sender: its counters.
pub const DOOR_COUNTERS: usize = 48;

/// Shared channel: u64 that lies at or below the first unclaimed sequence number.
pub const TAIL: usize = 1024;
/// Shared channel: u32 that changes with every sender's door.
pub const SENDERS_EPOCH: usize = 1152;
/// Shared channel: u32, the creator's row plus one while it waits for receivers that it invited.
pub const HELD: usize = 1280;
/// Shared channel: u64, the time until which the creator waits for them, in ns of the kernel's
/// monotonic clock. Written before `HELD`.
pub const HELD_UNTIL: usize = 1288;

/// First eight bytes of a shared channel's table.
pub const TABLE_MAGIC: u64 = u64::from_le_bytes(*b"cwire-tb");
/// Table: u32 to which every receiver, and a sender that waits for a stamp, adds one before it
/// sleeps.
pub const SLEEPERS: usize = 128;
/// Table: u32 to which a receiver adds one when it makes room for a waiting sender.
pub const ROOM: usize = 256;
/// Table: u32 that changes with every receiver's door.
pub const MEMBERS_EPOCH: usize = 384;
/// Table: u32, rows from this one on have never been taken.
pub const ROWS_HIGH: usize = 512;
/// Table: counters. The process that does what a counter counts adds to it.
pub const TABLE_COUNTERS: usize = 640;

/// Receiver: u64, number of the channel's messages that it has finished with.
pub const CURSOR: usize = 128;
/// Receiver: u32 epoch, odd while it sleeps or is about to.
pub const SLEEPING: usize = 256;
/// Receiver: u32, how it wants to be woken: one of [`SleepMode`].
pub const SLEEP_MODE: usize = 260;
/// Receiver: u32 that changes when it frees room for a waiting sender.
pub const WAKE: usize = 384;
/// Receiver: u32, the processor that it last ran on (a hint).
pub const RECEIVER_CPU: usize = 388;
/// Receiver: its counters.
pub const RECEIVER_COUNTERS: usize = 512;
/// Bytes of a receiver's segment.
pub const RECEIVER_SEGMENT_BYTES: usize = PAGE_BYTES;

/// The hint segment (for channels made for more than [`ROWS_WATCHED_MAX`] receivers): one u32 at
/// its start. Receivers set it before they sleep, and the sender clears it. One page.
pub const HINT: usize = 0;
/// Bytes of the hint segment.
pub const HINT_SEGMENT_BYTES: usize = PAGE_BYTES;
/// Up to this many receivers, the sender reads each receiver's epoch after every message; with
/// more, it reads the single hint word.
pub const ROWS_WATCHED_MAX: u32 = 8;

/// How a row is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum DoorState {
    /// The row has no holder.
    Free = 0,
    /// The row has a holder.
    Joined = 1,
    /// The row's receiver held the sender back for too long, and no longer counts.
    Evicted = 2,
}

/// The tenure in a door: the number of the row's holder, and how it holds the row. A row that is
/// taken again gets another tenure, so a receiver that was evicted while it was stopped never
/// mistakes its successor's tenure for its own.
#[must_use]
pub const fn tenure(generation: u32, state: DoorState) -> u64 {
    (generation as u64) << 32 | state as u64
}

/// The number of holders that the row has had, from its tenure.
#[must_use]
pub const fn generation_of(tenure: u64) -> u32 {
    (tenure >> 32) as u32
}

/// What the sender does when a receiver is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// The sender waits: nothing is lost.
    #[default]
    Block,
    /// The sender goes on: the receiver misses what was overwritten, and learns how many messages
    /// it missed.
    Overwrite,
    /// The sender waits for `after_ns`, then goes on without that receiver, which learns of its
    /// eviction.
    Evict {
        /// How long a receiver may hold the sender back, in nanoseconds.
        after_ns: u64,
    },
}

impl Policy {
    /// May messages be read in place? Only if no message is overwritten before every receiver has
    /// passed it.
    #[must_use]
    pub const fn keeps_messages(self) -> bool {
        matches!(self, Self::Block)
    }

    const fn to_words(self) -> (u32, u64) {
        match self {
            Self::Block => (0, 0),
            Self::Overwrite => (1, 0),
            Self::Evict { after_ns } => (2, after_ns),
        }
    }
}

/// How a sleeping receiver is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum SleepMode {
    /// It waits on the bell.
    Futex = 0,
    /// Its readiness descriptor must be written to.
    Descriptor = 1,
}

/// How a sender's stamps become visible to a sleeper: by the sleeper's system call alone, or by a
/// locked instruction of the sender after each stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FenceMode {
    /// The sleeper calls `membarrier`; the sender pays nothing.
    Asymmetric = 0,
    /// The sender executes a fence after each stamp. Used where `membarrier` cannot reach the sender's
    /// process.
    Fenced = 1,
}

impl FenceMode {
    pub(crate) const fn of_word(word: u32) -> Result<Self, HeaderError> {
        match word {
            0 => Ok(Self::Asymmetric),
            1 => Ok(Self::Fenced),
            other => Err(HeaderError::Field { field: "fence_mode", found: other as u64 }),
        }
    }
}

/// Why a segment's header is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The segment is not of this kind.
    #[error("not a corewire {kind} segment: it begins with {found:#018x}")]
    Magic {
        /// `sender`, `receiver`, `table` or `endpoint`.
        kind: &'static str,
        /// The first eight bytes.
        found: u64,
    },
    /// The segment was written by another version of corewire.
    #[error("layout version {found}, but this corewire speaks {LAYOUT_VERSION}")]
    Version {
        /// The peer's version.
        found: u32,
    },
    /// A field holds a value without a meaning.
    #[error("header field {field} holds {found}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// What it holds.
        found: u64,
    },
    /// The name of the message type is not printable, or a type has none, or plain bytes have one.
    #[error("the header names no possible message type")]
    TypeName,
    /// The sizes in the header are impossible.
    #[error("the header's sizes are impossible: {0}")]
    Geometry(#[from] GeometryError),
    /// The sizes in an endpoint's header are impossible.
    #[error("the header's sizes are impossible: {0}")]
    Endpoint(#[from] EndpointSizeError),
    /// The segment is not as long as its header says.
    #[error("a segment of {found} bytes, but its header asks for {expected}")]
    Length {
        /// The length that the header implies.
        expected: u64,
        /// The length that the kernel reports.
        found: u64,
    },
}

/// A sender's header as it lies in memory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RawSenderHeader {
    magic: U64,
    version: U32,
    fence_mode: U32,
    slots: U64,
    window_bytes: U64,
    message_bytes_max: U64,
    receivers_max: U64,
    type_hash: U64,
    type_bytes: U64,
    incarnation: [u8; 16],
    pid: U32,
    policy: U32,
    evict_after_ns: U64,
    senders_max: U64,
    type_name: [u8; TYPE_NAME_BYTES_MAX],
    reserved: [u8; 88],
}

/// A receiver's header as it lies in memory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RawReceiverHeader {
    magic: U64,
    version: U32,
    pid: U32,
    reserved: [u8; 112],
}

const _: () = assert!(size_of::<RawSenderHeader>() == BELL);
const _: () = assert!(offset_of!(RawSenderHeader, type_name) == 104);
const _: () = assert!(size_of::<RawReceiverHeader>() == CURSOR);
const _: () = assert!(DOOR_PID + 4 <= DOOR_BYTES);
const _: () = assert!(CONTROL_COUNTERS + 8 * crate::counters::COUNTERS_MAX <= FLOOR);
const _: () = assert!(FLOOR + 8 <= TAIL && HELD_UNTIL + 8 <= DOORS);
const _: () = assert!(DOOR_SOCKET + 16 <= DOOR_COUNTERS && DOOR_PID + 4 <= DOOR_SOCKET);
const _: () = assert!(DOOR_COUNTERS + 8 * crate::counters::SenderCounter::ALL.len() <= DOOR_BYTES);
const _: () = assert!(TABLE_COUNTERS + 8 * crate::counters::COUNTERS_MAX <= DOORS);
const _: () = assert!(RECEIVER_COUNTERS + 8 * crate::counters::COUNTERS_MAX <= PAGE_BYTES);

/// A sender's header after its check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderHeader {
    /// Sizes and offsets.
    pub geometry: Geometry,
    /// How stamps become visible to sleepers.
    pub fence_mode: FenceMode,
    /// What the sender does when a receiver is slow.
    pub policy: Policy,
    /// Type of the messages.
    pub type_tag: TypeTag,
    /// Random, new for each channel ever made. It distinguishes a channel from its successor.
    pub incarnation: u128,
    /// The sender's process number, for people to read.
    pub pid: u32,
}

impl SenderHeader {
    /// The header as bytes, to be written at the start of a segment.
    #[must_use]
    pub fn to_raw(&self) -> RawSenderHeader {
        let (policy, evict_after_ns) = self.policy.to_words();
        RawSenderHeader {
            magic: SENDER_MAGIC.into(),
            version: LAYOUT_VERSION.into(),
            fence_mode: (self.fence_mode as u32).into(),
            slots: self.geometry.slots().into(),
            window_bytes: self.geometry.window_bytes().into(),
            message_bytes_max: self.geometry.message_bytes_max().into(),
            receivers_max: self.geometry.receivers_max().into(),
            type_hash: self.type_tag.key.hash.into(),
            type_bytes: self.type_tag.key.bytes.into(),
            incarnation: self.incarnation.to_le_bytes(),
            pid: self.pid.into(),
            policy: policy.into(),
            evict_after_ns: evict_after_ns.into(),
            senders_max: self.geometry.senders_max().into(),
            type_name: self.type_tag.name.padded(),
            reserved: [0; 88],
        }
    }

    /// Checks a copy of the first 256 bytes of a segment whose length is `segment_bytes` according
    /// to the kernel. The geometry is computed again from the five sizes in the header, so no
    /// offset is ever taken from a peer.
    ///
    /// # Errors
    /// [`HeaderError`], with the value that was found.
    pub fn parse(raw: &RawSenderHeader, segment_bytes: u64) -> Result<Self, HeaderError> {
        check_start("sender", SENDER_MAGIC, raw.magic.get(), raw.version.get())?;
        let fence_mode = FenceMode::of_word(raw.fence_mode.get())?;
        let geometry = Geometry::with_senders(
            raw.slots.get(),
            raw.window_bytes.get(),
            raw.message_bytes_max.get(),
            raw.receivers_max.get(),
            raw.senders_max.get(),
        )?;
        let policy = match (raw.policy.get(), geometry.is_shared()) {
            (0, _) => Policy::Block,
            (1, false) => Policy::Overwrite,
            (2, _) => Policy::Evict { after_ns: raw.evict_after_ns.get() },
            (other, _) => return Err(HeaderError::Field { field: "policy", found: other.into() }),
        };
        let type_name = TypeName::of_padded(&raw.type_name).ok_or(HeaderError::TypeName)?;
        let type_tag = TypeTag::new(raw.type_hash.get(), raw.type_bytes.get(), type_name)
            .ok_or(HeaderError::TypeName)?;
        let expected = geometry.segment_bytes();
        if expected != segment_bytes {
            return Err(HeaderError::Length { expected, found: segment_bytes });
        }
        Ok(Self {
            geometry,
            fence_mode,
            policy,
            type_tag,
            incarnation: u128::from_le_bytes(raw.incarnation),
            pid: raw.pid.get(),
        })
    }
}

/// The header of a shared channel's table as it lies in memory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RawTableHeader {
    magic: U64,
    version: U32,
    zero: U32,
    incarnation: [u8; 16],
    reserved: [u8; 96],
}

const _: () = assert!(size_of::<RawTableHeader>() == SLEEPERS);

/// The header of a shared channel's table after its check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableHeader {
    /// The channel's incarnation. It ties the two segments together.
    pub incarnation: u128,
}

impl TableHeader {
    /// The header as bytes, to be written at the start of a table.
    #[must_use]
    pub fn to_raw(&self) -> RawTableHeader {
        RawTableHeader {
            magic: TABLE_MAGIC.into(),
            version: LAYOUT_VERSION.into(),
            zero: 0.into(),
            incarnation: self.incarnation.to_le_bytes(),
            reserved: [0; 96],
        }
    }

    /// Checks a copy of the first 128 bytes of a segment of `segment_bytes` bytes: the table of a
    /// channel with this `geometry`.
    ///
    /// # Errors
    /// [`HeaderError`], with the value that was found.
    pub fn parse(
        raw: &RawTableHeader,
        segment_bytes: u64,
        geometry: &Geometry,
    ) -> Result<Self, HeaderError> {
        check_start("table", TABLE_MAGIC, raw.magic.get(), raw.version.get())?;
        let expected = geometry.table_bytes();
        if segment_bytes != expected {
            return Err(HeaderError::Length { expected, found: segment_bytes });
        }
        Ok(Self { incarnation: u128::from_le_bytes(raw.incarnation) })
    }
}

/// A receiver's header after its check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverHeader {
    /// The receiver's process number, for people to read.
    pub pid: u32,
}

impl ReceiverHeader {
    /// The header as bytes, to be written at the start of a segment.
    #[must_use]
    pub fn to_raw(&self) -> RawReceiverHeader {
        RawReceiverHeader {
            magic: RECEIVER_MAGIC.into(),
            version: LAYOUT_VERSION.into(),
            pid: self.pid.into(),
            reserved: [0; 112],
        }
    }

    /// Checks a copy of the first 128 bytes of a segment of `segment_bytes` bytes.
    ///
    /// # Errors
    /// [`HeaderError`], with the value that was found.
    pub fn parse(raw: &RawReceiverHeader, segment_bytes: u64) -> Result<Self, HeaderError> {
        check_start("receiver", RECEIVER_MAGIC, raw.magic.get(), raw.version.get())?;
        let expected = RECEIVER_SEGMENT_BYTES as u64;
        if segment_bytes != expected {
            return Err(HeaderError::Length { expected, found: segment_bytes });
        }
        Ok(Self { pid: raw.pid.get() })
    }
}

pub(crate) fn check_start(
    kind: &'static str,
    magic: u64,
    found: u64,
    version: u32,
) -> Result<(), HeaderError> {
    if found != magic {
        return Err(HeaderError::Magic { kind, found });
    }
    if version != LAYOUT_VERSION {
        return Err(HeaderError::Version { found: version });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> SenderHeader {
        SenderHeader {
            geometry: Geometry::new(4096, 1 << 20, 1 << 18, 8).unwrap(),
            fence_mode: FenceMode::Asymmetric,
            policy: Policy::Evict { after_ns: 5 },
            type_tag: TypeTag::new(3, 16, TypeName::new("example.Tick.1").unwrap()).unwrap(),
            incarnation: 5,
            pid: 7,
        }
    }

    #[test]
    fn a_header_survives_memory() {
        let header = header();
        let bytes = header.geometry.segment_bytes();
        assert_eq!(SenderHeader::parse(&header.to_raw(), bytes), Ok(header));
        let receiver = ReceiverHeader { pid: 9 };
        assert_eq!(ReceiverHeader::parse(&receiver.to_raw(), 4096), Ok(receiver));
    }

    // Keeps P33.
    #[test]
    fn another_version_is_refused_by_number() {
        let mut raw = header().to_raw();
        raw.version = (LAYOUT_VERSION + 1).into();
        let error = SenderHeader::parse(&raw, header().geometry.segment_bytes()).unwrap_err();
        assert_eq!(error, HeaderError::Version { found: LAYOUT_VERSION + 1 });
    }

    #[test]
    fn a_type_name_that_is_not_printable_is_refused() {
        let length = header().geometry.segment_bytes();
        for name in [*b"\x1b[2J", *b"Tick", [0; 4]] {
            let mut raw = header().to_raw();
            raw.type_name = [0; TYPE_NAME_BYTES_MAX];
            raw.type_name[..4].copy_from_slice(&name);
            let parsed = SenderHeader::parse(&raw, length);
            assert_eq!(parsed.is_ok(), name == *b"Tick", "{parsed:?}");
        }
        let mut raw = header().to_raw();
        raw.type_hash = 0.into();
        assert_eq!(SenderHeader::parse(&raw, length), Err(HeaderError::TypeName));
    }

    // Keeps P34.
    #[test]
    fn a_segment_of_another_length_is_refused() {
        let expected = header().geometry.segment_bytes();
        for found in [0, expected - 1, expected + 1, u64::MAX] {
            let error = SenderHeader::parse(&header().to_raw(), found).unwrap_err();
            assert_eq!(error, HeaderError::Length { expected, found });
        }
    }

    proptest! {
        // Keeps P35.
        #[test]
        fn any_header_is_refused_or_has_the_length_that_was_found(
            flips in proptest::collection::vec((0usize..256, any::<u8>()), 0..6),
        ) {
            let mut bytes: [u8; 256] = zerocopy::transmute!(header().to_raw());
            for (at, value) in flips {
                bytes[at] = value;
            }
            let raw: RawSenderHeader = zerocopy::transmute!(bytes);
            let length = header().geometry.segment_bytes();
            if let Ok(parsed) = SenderHeader::parse(&raw, length) {
                prop_assert_eq!(parsed.geometry.segment_bytes(), length);
                let name = parsed.type_tag.name;
                prop_assert!(name.as_str().chars().all(|c| (' '..='~').contains(&c)));
            }
        }
    }
}
