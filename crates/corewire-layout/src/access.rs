//! Access to the memory that an endpoint exposes: its table, and requests that its owner carries out.
//!
//! An endpoint *exposes* memory under a *key*. A peer copies to and from it by the kernel, without its owner: where the
//! memory lies stands in a table in the owner's segment, of [`EXPOSURES_MAX`] entries of 64 bytes:
//!
//! ```text
//!   0       8     16        24      32       40
//!   | state | key | address | bytes | origin | (unused)
//! ```
//!
//! `state` is 0 in an entry that is not used; otherwise [`Rights`] in the lower three bits, and above them how often the
//! entry was used. The first byte is at `address`, and is what peers call `origin`. The owner writes an entry again only
//! when no peer is [within a copy](crate::endpoint::ROW_VISITS) that may have read it before.
//!
//! Everything else, numbers that are changed and copies that the kernel refuses, the owner does when its engine is called. A
//! request travels in a notice ([`Verb::Access`](crate::rendezvous::Verb)) with its number in place of the tag and the
//! place of the memory's first byte as offset:
//!
//! ```text
//!   0     8       12     13       14       15    16
//!   | key | bytes | kind | change | number | reply | operands ...
//! ```
//!
//! and its answer in another one ([`Verb::Accessed`](crate::rendezvous::Verb)), with the same number, an [`Answer`] as
//! offset, and what was found as place. A peer answers in the order of the requests. Each is at most [`ACCESS_BYTES_MAX`] bytes
//! long, and at most [`ACCESSES_MAX`] wait for answers.
//!
//! A request whose [`Reply`] says so has no such answer if it is carried out: its owner writes its number to
//! [a word of its row](crate::endpoint::ROW_DONE), where its peer polls.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::rendezvous::{NOTICE_BYTES, WORDS_BYTES_MAX};
pub use crate::window::Rights;

/// Entries of an endpoint's table. What is exposed beyond that is reached by requests alone.
pub const EXPOSURES_MAX: u16 = if cfg!(any(loom, corewire_kill)) { 2 } else { 256 };
/// Bytes of an entry.
pub const EXPOSURE_BYTES: usize = 64;
/// Entry: u64, its rights and how often it was used, or 0.
pub const EXPOSURE_STATE: usize = 0;
/// Entry: u64, what peers name it by.
pub const EXPOSURE_KEY: usize = 8;
/// Entry: u64, the address of its first byte in its owner's memory.
pub const EXPOSURE_ADDRESS: usize = 16;
/// Entry: u64, its length.
pub const EXPOSURE_LENGTH: usize = 24;
/// Entry: u64, what peers call its first byte.
pub const EXPOSURE_ORIGIN: usize = 32;

const RIGHTS_BITS: u32 = 3;

/// The state of an entry that is used for the `uses`-th time.
#[must_use]
pub const fn exposure_state(uses: u64, rights: Rights) -> u64 {
    uses << RIGHTS_BITS | rights.to_word()
}

/// What this state lets peers do: nothing in an entry that is not used.
#[must_use]
pub fn exposure_rights(state: u64) -> Rights {
    Rights::of_word(state & ((1 << RIGHTS_BITS) - 1)).unwrap_or(Rights::NONE)
}

/// A key that names entry `index` in its `uses`-th use, and nothing else ever.
#[must_use]
pub const fn exposure_key(index: u16, uses: u64) -> u64 {
    uses << 16 | index as u64
}

/// Maximum number of requests of an endpoint to one peer that wait for their answers.
pub const ACCESSES_MAX: usize = 16;
/// Maximum number of bytes of operands in a request, and in its answer.
pub const ACCESS_BYTES_MAX: usize = 4000;

const _: () =
    assert!((NOTICE_BYTES + ACCESS_HEAD_BYTES + ACCESS_BYTES_MAX) as u64 <= WORDS_BYTES_MAX);

/// What is done with exposed memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The operands are copied there.
    Put,
    /// It is copied.
    Get,
    /// Numbers are changed by the operands; what they were before is not told.
    Update(Change, Number),
    /// The same, and is told.
    Fetch(Change, Number),
    /// The second half of the operands is put in place of the numbers that relate to the first half so; what all numbers were
    /// before is told.
    Compare(Relation, Number),
    /// The bits of the second half of the operands are put in place of those that are set in the first half; what was
    /// there before is told.
    Mask(Number),
    /// The owner is told the offset, a number of the peer's choice. Of one byte, which is nowhere.
    Signal,
}

/// How a number is changed by an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Change {
    /// It is not.
    Keep = 0,
    /// The operand takes its place.
    Replace = 1,
    /// The sum; of integers it wraps.
    Add = 2,
    /// The product; of integers it wraps.
    Multiply = 3,
    /// The lesser one.
    Min = 4,
    /// The greater one.
    Max = 5,
    /// 1 if both are other than 0, else 0.
    LogicalAnd = 6,
    /// 1 if one is other than 0, else 0.
    LogicalOr = 7,
    /// 1 if exactly one is other than 0, else 0.
    LogicalXor = 8,
    /// The bits of both. Not of floats; so are the next two.
    And = 9,
    /// The bits of one or both.
    Or = 10,
    /// The bits of exactly one.
    Xor = 11,
}

/// How a number relates to an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Relation {
    /// The operand is the same.
    Equal = 0,
    /// It is another one.
    Unequal = 1,
    /// The operand is at most as great.
    AtMost = 2,
    /// The operand is less.
    Less = 3,
    /// The operand is at least as great.
    AtLeast = 4,
    /// The operand is greater.
    Greater = 5,
}

/// A kind of number in exposed memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the types of Rust")]
pub enum Number {
    I8 = 0,
    U8 = 1,
    I16 = 2,
    U16 = 3,
    I32 = 4,
    U32 = 5,
    I64 = 6,
    U64 = 7,
    F32 = 8,
    F64 = 9,
}

macro_rules! of_byte {
    ($($type:ident: $($value:ident),*;)*) => { $(
        impl $type {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$value),*];

            fn of_byte(byte: u8) -> Option<Self> {
                Self::ALL.get(usize::from(byte)).copied()
            }
        }
    )* };
}
of_byte! {
    Change: Keep, Replace, Add, Multiply, Min, Max, LogicalAnd, LogicalOr, LogicalXor, And, Or, Xor;
    Relation: Equal, Unequal, AtMost, Less, AtLeast, Greater;
    Number: I8, U8, I16, U16, I32, U32, I64, U64, F32, F64;
}

impl Number {
    /// Its size in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Whether it has an exponent.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

impl Change {
    /// Whether such numbers can be changed so.
    #[must_use]
    pub const fn is_of(self, number: Number) -> bool {
        !(number.is_float() && matches!(self, Self::And | Self::Or | Self::Xor))
    }
}

impl Kind {
    /// What a peer must be allowed to do.
    #[must_use]
    pub const fn rights(self) -> Rights {
        match self {
            Self::Get => Rights::READ,
            Self::Put => Rights::WRITE,
            Self::Signal => Rights::NONE,
            _ => Rights::ATOMIC,
        }
    }

    /// Bytes of the operands, for `bytes` bytes of the memory.
    #[must_use]
    pub const fn operand_bytes(self, bytes: usize) -> usize {
        match self {
            Self::Get | Self::Fetch(Change::Keep, _) | Self::Signal => 0,
            Self::Put | Self::Update(..) | Self::Fetch(..) => bytes,
            Self::Compare(..) | Self::Mask(_) => 2 * bytes,
        }
    }

    /// The numbers that it is about; `None` if it copies bytes.
    #[must_use]
    pub const fn number(self) -> Option<Number> {
        match self {
            Self::Put | Self::Get | Self::Signal => None,
            Self::Update(_, number)
            | Self::Fetch(_, number)
            | Self::Compare(_, number)
            | Self::Mask(number) => Some(number),
        }
    }

    /// Whether what was there before is told.
    #[must_use]
    pub const fn tells(self) -> bool {
        !matches!(self, Self::Put | Self::Update(..) | Self::Signal)
    }

    const fn to_bytes(self) -> [u8; 3] {
        match self {
            Self::Put => [1, 0, 0],
            Self::Get => [2, 0, 0],
            Self::Update(change, number) => [3, change as u8, number as u8],
            Self::Fetch(change, number) => [4, change as u8, number as u8],
            Self::Compare(relation, number) => [5, relation as u8, number as u8],
            Self::Mask(number) => [6, 0, number as u8],
            Self::Signal => [7, 0, 0],
        }
    }

    fn of_bytes([kind, change, number]: [u8; 3]) -> Option<Self> {
        let of = |number| {
            let (change, number) = (Change::of_byte(change)?, Number::of_byte(number)?);
            change.is_of(number).then_some((change, number))
        };
        Some(match kind {
            1 if (change, number) == (0, 0) => Self::Put,
            2 if (change, number) == (0, 0) => Self::Get,
            7 if (change, number) == (0, 0) => Self::Signal,
            3 => of(number).map(|(change, number)| Self::Update(change, number))?,
            4 => of(number).map(|(change, number)| Self::Fetch(change, number))?,
            5 => Self::Compare(Relation::of_byte(change)?, Number::of_byte(number)?),
            6 if change == 0 => {
                Self::Mask(Number::of_byte(number).filter(|number| !number.is_float())?)
            }
            _ => return None,
        })
    }
}

/// A stretch of a peer's exposed memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its key.
    pub key: u64,
    /// Its first byte, counted from the memory's origin.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// How the peer is told that a request is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// By a notice.
    Notice = 0,
    /// By a word, unless one since the last [`FirstWord`](Self::FirstWord) was denied: the word says that of all up to its number.
    /// It must have no data to tell.
    Word = 1,
    /// The same, of one before which nothing waits for an answer.
    FirstWord = 2,
}

impl Reply {
    fn of_byte(byte: u8) -> Option<Self> {
        [Self::Notice, Self::Word, Self::FirstWord].get(usize::from(byte)).copied()
    }
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The key of the memory.
    pub key: u64,
    /// The place of its first byte, counted from the memory's origin.
    pub offset: u64,
    /// How many bytes of it.
    pub bytes: u32,
    /// What is done with them.
    pub kind: Kind,
    /// How that is told.
    pub reply: Reply,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAccess {
    key: U64,
    bytes: U32,
    kind: [u8; 3],
    reply: u8,
}

/// Bytes of a request before its operands.
pub const ACCESS_HEAD_BYTES: usize = size_of::<RawAccess>();

impl Access {
    /// The request as the place of a notice, before its operands. Its offset is that of the notice.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ACCESS_HEAD_BYTES] {
        let (key, bytes, kind) = (self.key.into(), self.bytes.into(), self.kind.to_bytes());
        zerocopy::transmute!(RawAccess { key, bytes, kind, reply: self.reply as u8 })
    }

    /// The request that a peer has sent, and its operands, as many as its kind demands. `None` if the bytes mean nothing.
    #[must_use]
    pub fn parse(offset: u64, place: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, operands) = RawAccess::read_from_prefix(place).ok()?;
        let (kind, bytes) = (Kind::of_bytes(raw.kind)?, raw.bytes.get());
        let length = usize::try_from(bytes).ok().filter(|bytes| *bytes <= ACCESS_BYTES_MAX)?;
        let is_whole = kind.number().is_none_or(|number| length.is_multiple_of(number.bytes()));
        let reply = Reply::of_byte(raw.reply)?;
        let may_reply = reply == Reply::Notice || !kind.tells();
        let is_known = may_reply && is_whole && operands.len() == kind.operand_bytes(length);
        let access = Self { key: raw.key.get(), offset, bytes, kind, reply };
        is_known.then_some((access, operands))
    }
}

/// What has become of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u64)]
#[non_exhaustive]
pub enum Denial {
    /// Nothing is exposed under this key any more, or ever.
    #[error("nothing is exposed under this key")]
    Key = 1,
    /// Peers may not do that with this memory.
    #[error("the rights of this memory do not include it")]
    Rights = 2,
    /// The memory does not reach there.
    #[error("it reaches beyond the memory")]
    Bounds = 3,
    /// A part of it is not mapped, or cannot be written.
    #[error("a part of the memory is not mapped")]
    Unmapped = 4,
    /// The request was taken back before it was begun.
    #[error("the request was taken back")]
    TakenBack = 5,
}

/// What a notice of [`Verb::Accessed`](crate::rendezvous::Verb) says in its offset: 0, or why it was not done.
pub type Answer = Result<(), Denial>;

/// In place of 0: it was done, as the word of the row says, too. The peer may have read that already.
pub const TOLD_TWICE: u64 = 6;

/// An answer as a number.
#[must_use]
pub const fn answer_to_word(answer: Answer) -> u64 {
    match answer {
        Ok(()) => 0,
        Err(denial) => denial as u64,
    }
}

/// The answer with this number; `None` if there is none.
#[must_use]
pub const fn answer_of_word(word: u64) -> Option<Answer> {
    Some(match word {
        0 | TOLD_TWICE => Ok(()),
        1 => Err(Denial::Key),
        2 => Err(Denial::Rights),
        3 => Err(Denial::Bounds),
        4 => Err(Denial::Unmapped),
        5 => Err(Denial::TakenBack),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn kinds() -> Vec<Kind> {
        let mut kinds = vec![Kind::Put, Kind::Get, Kind::Signal];
        for &number in Number::ALL {
            for change in Change::ALL.iter().copied().filter(|change| change.is_of(number)) {
                kinds.extend([Kind::Update(change, number), Kind::Fetch(change, number)]);
            }
            kinds.extend(Relation::ALL.iter().map(|&relation| Kind::Compare(relation, number)));
            if !number.is_float() {
                kinds.push(Kind::Mask(number));
            }
        }
        kinds
    }

    #[test]
    fn a_request_is_read_as_it_is_written() {
        for kind in kinds() {
            let access = Access { key: 7, offset: 9, bytes: 16, kind, reply: Reply::Notice };
            let mut place = access.to_bytes().to_vec();
            place.resize(ACCESS_HEAD_BYTES + kind.operand_bytes(16), 5);
            let (parsed, operands) = Access::parse(9, &place).unwrap();
            assert_eq!((parsed, operands.len()), (access, kind.operand_bytes(16)));
            place.push(0);
            assert_eq!(Access::parse(9, &place), None);
        }
    }

    #[test]
    fn parts_of_numbers_are_refused() {
        let kind = Kind::Update(Change::Add, Number::U64);
        let access = Access { key: 7, offset: 0, bytes: 12, kind, reply: Reply::Notice };
        let mut place = access.to_bytes().to_vec();
        place.resize(ACCESS_HEAD_BYTES + 12, 0);
        assert_eq!(Access::parse(0, &place), None);
        let reply = Reply::Notice;
        let long = Access { key: 7, offset: 0, bytes: 4001, kind: Kind::Get, reply };
        assert_eq!(Access::parse(0, &long.to_bytes()), None);
    }

    #[test]
    fn what_tells_data_replies_by_a_notice() {
        for reply in [Reply::Notice, Reply::Word, Reply::FirstWord] {
            let put = Access { key: 7, offset: 0, bytes: 0, kind: Kind::Put, reply };
            assert_eq!(Access::parse(0, &put.to_bytes()), Some((put, &[][..])));
            let get = Access { kind: Kind::Get, ..put };
            assert_eq!(Access::parse(0, &get.to_bytes()).is_some(), reply == Reply::Notice);
        }
    }

    #[test]
    fn states_and_answers_keep_their_parts() {
        for (rights, _) in Rights::ALL {
            assert_eq!(exposure_rights(exposure_state(9, rights)), rights);
        }
        assert_eq!(exposure_rights(0), Rights::NONE);
        for word in 0..6 {
            assert_eq!(answer_of_word(word).map(answer_to_word), Some(word));
        }
        assert_eq!((answer_of_word(TOLD_TWICE), answer_of_word(7)), (Some(Ok(())), None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_parsed(place in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Some((access, operands)) = Access::parse(3, &place) {
                let mut bytes = access.to_bytes().to_vec();
                bytes.extend_from_slice(operands);
                prop_assert_eq!(bytes, place);
            }
        }
    }
}
