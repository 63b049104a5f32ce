//! Frames as the bytes of a packet: writing, and parsing what may be hostile.

use alloc::vec::Vec;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{
    FRAME_BYTES, Frame, FrameError, Hello, JOINING_MAX, Place, ROWS_PER_FRAME, Reason, Start,
    Welcome, WindowFacts, rights, small,
};
use crate::LAYOUT_VERSION;
use crate::message_type::{TYPE_NAME_BYTES_MAX, TypeKey};
use crate::name::{ChannelName, NAME_BYTES_MAX, RELAYED_BYTES_MAX};
use crate::window::PARTICIPANTS_MAX;

const MAGIC: u32 = u32::from_le_bytes(*b"cwfr");

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
            Self::Wake { row, .. } => [(*row).into(), 0, 0, 0, 0, 0],
            Self::Pair { row, reservation, target, .. } => {
                let [low, high] = halves(*target);
                [(*row).into(), low, high, *reservation, 0, 0]
            }
            Self::Paired { row, reservation, .. } => [(*row).into(), *reservation, 0, 0, 0, 0],
            Self::Dialled { is_tls, .. } => [u64::from(*is_tls), 0, 0, 0, 0, 0],
            Self::Attach { rights, .. } => [rights.to_word(), 0, 0, 0, 0, 0],
            Self::Attached { window, row, generation, .. } => {
                let [bytes, address, rights, participants] = window.words();
                let row = row.map_or(0, |row| u64::from(row) + 1);
                [bytes, address, rights, participants, row, (*generation).into()]
            }
            Self::ObservedWindow(window) => {
                let [bytes, address, rights, participants] = window.words();
                [bytes, address, rights, participants, 0, 0]
            }
            _ => [0; 6],
        };
        raw.words = words.map(U64::new);
        match self {
            Self::Hello(h) => raw.set_name(&h.name, h.waiter),
            Self::Welcome(w) => raw.id = w.incarnation.to_le_bytes(),
            Self::Relayed { relay, .. } => raw.id = relay.to_le_bytes(),
            Self::Invite { name, waiter } => raw.set_name(name, *waiter),
            Self::Observe { name }
            | Self::Enter { name, .. }
            | Self::Follow { name }
            | Self::Connect { name }
            | Self::Dialled { name, .. } => raw.set_name(name, 0),
            Self::Entered { incarnation, .. }
            | Self::Wake { incarnation, .. }
            | Self::Attached { incarnation, .. }
            | Self::Paired { incarnation, .. } => {
                raw.id = incarnation.to_le_bytes();
            }
            Self::Refused(Reason::Type { name, .. }) => raw.set_tail(name.as_str().as_bytes()),
            Self::Pair { name, incarnation, .. } | Self::Attach { name, incarnation, .. } => {
                raw.set_name(name, *incarnation);
            }
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
            18 => Self::Pair {
                name: raw.name()?,
                row: small("row", a)?,
                reservation: d,
                incarnation: id,
                target: whole(b, c),
            },
            19 => Self::Paired { row: small("row", a)?, reservation: b, incarnation: id },
            20 => Self::ObservedEndpoint,
            21 => Self::Connect { name: raw.name()? },
            22 => Self::Linked,
            23 => Self::Attach { name: raw.name()?, rights: rights(a)?, incarnation: id },
            24 => Self::Attached {
                window: WindowFacts::of_words([a, b, c, d])?,
                row: match e {
                    0 => None,
                    row => Some(small("row", row - 1)?),
                },
                generation: small("generation", f)?,
                incarnation: id,
            },
            25 => Self::ObservedWindow(WindowFacts::of_words([a, b, c, d])?),
            26 => Self::Dialled {
                name: raw.name()?,
                is_tls: match a {
                    0 => false,
                    1 => true,
                    found => return Err(FrameError::Field { field: "security", found }),
                },
            },
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
            Self::Connect { .. } => 21,
            Self::Linked => 22,
            Self::Attach { .. } => 23,
            Self::Attached { .. } => 24,
            Self::ObservedWindow(_) => 25,
            Self::Dialled { .. } => 26,
        }
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

impl WindowFacts {
    fn words(&self) -> [u64; 4] {
        [self.bytes, self.address, self.rights.to_word(), self.participants_max.into()]
    }

    fn of_words([bytes, address, rights_word, participants]: [u64; 4]) -> Result<Self, FrameError> {
        let bad = FrameError::Field { field: "participants_max", found: participants };
        let participants_max = small("participants_max", participants)?;
        if !(1..=PARTICIPANTS_MAX).contains(&participants_max) {
            return Err(bad);
        }
        Ok(Self { bytes, address, rights: rights(rights_word)?, participants_max })
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
