//! Large messages, which stay with their senders until a receive asks for them.
//!
//! An *offer* travels in a slot of kind `Offer` (or in cells, if it is long), in its place among the other messages:
//!
//! ```text
//!   0        8          16      24             28       29      30      31  32
//!   | number | immediate | total | (0) u32      | space  | wants | flags | 0 | place ...
//! ```
//!
//! Its *place* is where the transport finds the bytes; for memory of this machine:
//!
//! ```text
//!   0         8                   8 + 16 * n
//!   | cookie  | address | bytes   | ...
//! ```
//!
//! `cookie` is the address of the sender's incarnation in its own memory: a process that reads there what the header of its
//! segment says has reached the right process. The stretches are one message, one after the other.
//!
//! A *notice* travels in a slot of kind `Notice`, with the offer's number in place of the tag:
//!
//! ```text
//!   0      1          8        16
//!   | verb | (0)      | offset | place of the target, of an answer only; of an access, what it is about
//! ```
//!
//! A number is the index of a word in the sender's table of offers, and how often that word was used:
//!
//! ```text
//!   63                 16 15       0
//!   | use               | index    |
//! ```
//!
//! The offer is valid as long as the word holds its number. The lower half of a number, its *key*, names the offer in
//! the words of a copy from both ends.

use alloc::vec::Vec;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Maximum number of offers of an endpoint at one time.
pub const OFFERS_MAX: u16 = if cfg!(loom) {
    2
} else if cfg!(corewire_kill) {
    8
} else {
    1024
};
/// Maximum number of stretches of a message that is offered, or of the target in an answer. A message of more goes
/// through cells.
pub const STRETCHES_MAX: usize = 250;
/// The longest offer or answer in bytes.
pub const WORDS_BYTES_MAX: u64 = (OFFER_BYTES + 8 + STRETCHES_MAX * size_of::<RawStretch>()) as u64;

/// The number of an offer: word `index` of its sender's table, which was used `uses` times.
#[inline]
#[must_use]
pub const fn offer_number(index: u16, uses: u64) -> u64 {
    uses << 16 | index as u64
}

/// The word in its sender's table that says whether this offer is valid; `None` if there is no such word.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the lower bits")]
pub const fn offer_index(number: u64) -> Option<u16> {
    let index = number as u16;
    if index < OFFERS_MAX { Some(index) } else { None }
}

/// What names an offer in the words of a copy.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the lower bits")]
pub const fn offer_key(number: u64) -> u32 {
    number as u32
}

/// The receiver's word of a copy: the offer's key, how many copies the receiver has begun (modulo 2^16), and the
/// number of chunks, from the beginning, that it has copied or is copying.
#[inline]
#[must_use]
pub const fn pulled(key: u32, begun: u16, chunks: u16) -> u64 {
    (key as u64) << 32 | (begun as u64) << 16 | chunks as u64
}

/// Key, copies begun and chunks of the receiver's word.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "parts")]
pub const fn pulled_parts(word: u64) -> (u32, u16, u16) {
    ((word >> 32) as u32, (word >> 16) as u16, word as u16)
}

/// The sender's word of a copy: the offer's key, the number of chunks, from the end, that the sender has copied or is
/// copying, and the number of those that it has copied.
#[inline]
#[must_use]
pub const fn helped(key: u32, claimed: u16, done: u16) -> u64 {
    (key as u64) << 32 | (claimed as u64) << 16 | done as u64
}

/// Key, chunks and copied chunks of the sender's word.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "parts")]
pub const fn helped_parts(word: u64) -> (u32, u16, u16) {
    ((word >> 32) as u32, (word >> 16) as u16, word as u16)
}

/// The message that an offer announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum OfferedSpace {
    /// A message with a tag.
    Tagged = 0,
    /// A message without a tag.
    Untagged = 1,
    /// A request.
    Request = 2,
}

/// What the sender of an offer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum OfferWants {
    /// That its memory is free.
    Nothing = 0,
    /// That the message has been received completely.
    Delivery = 1,
    /// That a receive has asked for it.
    Match = 2,
}

/// An offer, without its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Its number.
    pub number: u64,
    /// Bytes of the message.
    pub total: u64,
    /// What the message is matched by, besides its tag.
    pub space: OfferedSpace,
    /// What the sender waits for.
    pub wants: OfferWants,
    /// The message's immediate.
    pub immediate: Option<u64>,
    /// The sender does nothing else until its memory is free.
    pub is_blocking: bool,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawOffer {
    number: U64,
    immediate: U64,
    total: U64,
    zero: U32,
    space: u8,
    wants: u8,
    flags: u8,
    zero_too: u8,
}

/// Bytes of an offer before its place.
pub const OFFER_BYTES: usize = size_of::<RawOffer>();
const HAS_IMMEDIATE: u8 = 1;
const IS_BLOCKING: u8 = 2;

impl Offer {
    /// The offer as the bytes of a message, before its place.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; OFFER_BYTES] {
        let has_immediate = if self.immediate.is_some() { HAS_IMMEDIATE } else { 0 };
        let raw = RawOffer {
            number: self.number.into(),
            immediate: self.immediate.unwrap_or_default().into(),
            total: self.total.into(),
            zero: 0.into(),
            space: self.space as u8,
            wants: self.wants as u8,
            flags: has_immediate | if self.is_blocking { IS_BLOCKING } else { 0 },
            zero_too: 0,
        };
        zerocopy::transmute!(raw)
    }

    /// The offer that a peer has sent, and its place. `None` if the bytes are not what [`to_bytes`](Self::to_bytes) can
    /// have written.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, place) = RawOffer::read_from_prefix(bytes).ok()?;
        let space = match raw.space {
            0 => OfferedSpace::Tagged,
            1 => OfferedSpace::Untagged,
            2 => OfferedSpace::Request,
            _ => return None,
        };
        let wants = match raw.wants {
            0 => OfferWants::Nothing,
            1 => OfferWants::Delivery,
            2 => OfferWants::Match,
            _ => return None,
        };
        let (number, total) = (raw.number.get(), raw.total.get());
        offer_index(number)?;
        let has_immediate = raw.flags & HAS_IMMEDIATE != 0;
        let is_known = raw.flags & !(HAS_IMMEDIATE | IS_BLOCKING) == 0
            && (raw.zero.get(), raw.zero_too) == (0, 0)
            && (has_immediate || raw.immediate.get() == 0);
        let immediate = has_immediate.then_some(raw.immediate.get());
        let is_blocking = raw.flags & IS_BLOCKING != 0;
        (is_known && total > 0)
            .then_some((Self { number, total, space, wants, immediate, is_blocking }, place))
    }
}

/// What a notice says. The sender of the offer says `Cancelled` and `Helped`, its receiver the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Verb {
    /// The receiver pulls the message; the sender may copy from the end, to the given place.
    Answer = 1,
    /// The receiver has the message, or drops it: the sender's memory is free.
    Done = 2,
    /// The receiver cannot read the message: the sender must send the bytes from `offset` on.
    Push = 3,
    /// The sender takes the offer back: the message was never sent.
    Cancelled = 4,
    /// As `Push`. The receiver can read no memory of this sender.
    Refuse = 5,
    /// The sender has copied what it could after an answer.
    Helped = 6,
    /// A receiver grants bytes of the sender's heap: see [`crate::grants`]. This and the next two name no offer.
    Grant = 7,
    /// A sender needs a larger grant.
    Want = 8,
    /// What a sender keeps of its grant.
    Kept = 9,
    /// A request for access to memory: see [`crate::access`]. Its number is no offer's, nor is that of the next one.
    Access = 10,
    /// The answer to one.
    Accessed = 11,
}

/// A notice, without the place of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    /// What it says.
    pub verb: Verb,
    /// For `Push` and `Refuse`: how many bytes of the message, from the beginning, the receiver has. For `Answer`: how
    /// many it copies. For `Grant`, `Want` and `Kept`: bytes of the sender's heap. For `Access` and `Accessed`: see
    /// [`crate::access`].
    pub offset: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawNotice {
    verb: u8,
    zero: [u8; 7],
    offset: U64,
}

/// Bytes of a notice before the place of an answer.
pub const NOTICE_BYTES: usize = size_of::<RawNotice>();

impl Notice {
    /// The notice as the bytes of a message, before its place.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; NOTICE_BYTES] {
        let (verb, offset) = (self.verb as u8, self.offset.into());
        zerocopy::transmute!(RawNotice { verb, zero: [0; 7], offset })
    }

    /// The notice that a peer has sent, and the place of an answer or access. `None` if the bytes are not what
    /// [`to_bytes`](Self::to_bytes) can have written.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, place) = RawNotice::read_from_prefix(bytes).ok()?;
        let verb = match raw.verb {
            1 => Verb::Answer,
            2 => Verb::Done,
            3 => Verb::Push,
            4 => Verb::Cancelled,
            5 => Verb::Refuse,
            6 => Verb::Helped,
            7 => Verb::Grant,
            8 => Verb::Want,
            9 => Verb::Kept,
            10 => Verb::Access,
            11 => Verb::Accessed,
            _ => return None,
        };
        let has_place = matches!(verb, Verb::Answer | Verb::Access | Verb::Accessed);
        let is_known = (has_place || place.is_empty()) && raw.zero == [0; 7];
        is_known.then_some((Self { verb, offset: raw.offset.get() }, place))
    }
}

/// A stretch of a process's memory, as a number: only that process can use it as an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Its first byte.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Where a message lies, or goes, in a process of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlace {
    /// The address of the incarnation of the process's endpoint.
    pub cookie: u64,
    /// Its stretches, in order.
    pub stretches: Vec<Stretch>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawStretch {
    address: U64,
    bytes: U64,
}

impl MemoryPlace {
    /// Appends the place to `bytes`.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(U64::new(self.cookie).as_bytes());
        for &Stretch { address, bytes: length } in &self.stretches {
            let raw = RawStretch { address: address.into(), bytes: length.into() };
            bytes.extend_from_slice(raw.as_bytes());
        }
    }

    /// The place that a peer has sent, for `total` bytes. `None` if its stretches have another length.
    #[must_use]
    pub fn parse(bytes: &[u8], total: u64) -> Option<Self> {
        let (cookie, rest) = U64::read_from_prefix(bytes).ok()?;
        let raw = <[RawStretch]>::ref_from_bytes(rest).ok()?;
        let stretch =
            |raw: &RawStretch| Stretch { address: raw.address.get(), bytes: raw.bytes.get() };
        let stretches: Vec<Stretch> = raw.iter().map(stretch).collect();
        let mut sum = 0u64;
        for stretch in &stretches {
            stretch.address.checked_add(stretch.bytes)?;
            sum = sum.checked_add(stretch.bytes)?;
        }
        (sum == total).then_some(Self { cookie: cookie.get(), stretches })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn offer() -> Offer {
        Offer {
            number: offer_number(3, 1 << 40),
            total: 1 << 20,
            space: OfferedSpace::Request,
            wants: OfferWants::Match,
            immediate: Some(7),
            is_blocking: true,
        }
    }

    #[test]
    fn an_offer_travels_with_its_place() {
        let mut bytes = offer().to_bytes().to_vec();
        let stretches = vec![Stretch { address: 4096, bytes: 1 << 19 }; 2];
        let place = MemoryPlace { cookie: 64, stretches };
        place.append_to(&mut bytes);
        let (parsed, rest) = Offer::parse(&bytes).unwrap();
        assert_eq!(parsed, offer());
        assert_eq!(MemoryPlace::parse(rest, 1 << 20), Some(place));
        assert_eq!(MemoryPlace::parse(rest, 1 << 21), None);
        assert_eq!(MemoryPlace::parse(&rest[..rest.len() - 1], 1 << 20), None);
    }

    #[test]
    fn a_stretch_beyond_the_address_space_is_refused() {
        let stretches = vec![Stretch { address: u64::MAX, bytes: 1 }];
        let mut bytes = Vec::new();
        MemoryPlace { cookie: 0, stretches }.append_to(&mut bytes);
        assert_eq!(MemoryPlace::parse(&bytes, 1), None);
    }

    #[test]
    fn only_answers_have_a_place() {
        use Verb::{Answer, Cancelled, Done, Helped, Push, Refuse};
        for verb in [Answer, Done, Push, Cancelled, Refuse, Helped] {
            let notice = Notice { verb, offset: 5 };
            let mut bytes = notice.to_bytes().to_vec();
            assert_eq!(Notice::parse(&bytes), Some((notice, &[][..])));
            bytes.push(0);
            assert_eq!(Notice::parse(&bytes).is_some(), verb == Answer);
        }
    }

    #[test]
    fn the_words_of_a_copy_keep_their_parts() {
        let key = offer_key(offer_number(9, 0x1_0002));
        assert_eq!(key, 0x2_0009);
        assert_eq!(pulled_parts(pulled(key, u16::MAX, 7)), (key, u16::MAX, 7));
        assert_eq!(helped_parts(helped(key, u16::MAX, 3)), (key, u16::MAX, 3));
        assert_eq!(offer_index(offer_number(OFFERS_MAX, 1)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_parsed(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Some((parsed, _)) = Offer::parse(&bytes) {
                let bytes = parsed.to_bytes();
                prop_assert_eq!(Offer::parse(&bytes), Some((parsed, &[][..])));
            }
            let _ = (Notice::parse(&bytes), MemoryPlace::parse(&bytes, 64));
        }
    }
}
