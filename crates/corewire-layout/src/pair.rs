//! One slot of a pair ring: 64 bytes, one cache line. One endpoint writes it, and one other
//! endpoint reads it.
//!
//! ```text
//!  0        8        16       24       32       40                   64
//!  | stamp  | tag    | inline payload, 48 bytes                      |   first slot of a message
//!  | stamp  | tag    | immed. | inline payload, 40 bytes             |   the same, with an immediate
//!  | stamp  | tag    | place  | total  | immed. | (unused)           |   the same, payload in a cell or a block
//!  | stamp  | payload, 56 bytes                                      |   continues an inline payload
//!  | stamp  | (unused) | place | (unused)                            |   continues a payload in cells
//! ```
//!
//! A request or a reply has the number of its call in place of the tag, and no immediate; so has a reply
//! that acknowledges a message, or says that a request was dropped. A notice has the number of an offer there.
//!
//! Storing the stamp publishes the slot:
//!
//! ```text
//!  63                                   16  15   12  11    8 7           0
//!  | position + 1, modulo 2^48            | kind  | flags | inline length |
//! ```
//!
//! A slot's position grows by one with every slot written in the life of the ring. So a slot that
//! has not been written in this lap never shows the stamp that its reader waits for. (The reader
//! passed it in the previous lap: 48 bits are more than enough.) All that a reader needs of a short
//! message lies in the one line that it polls.
//!
//! `place` is a fragment's offset among its sender's cells, in bytes, and its length: 32 bits each.
//! `total` is the length of the whole message. The place of a message in a block of its sender's heap is
//! the block's offset there in lines (32 bits), and the number of its release bit: see [`crate::grants`].

use crate::slot::{INLINE, SLOT_BYTES};

/// The kind of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum SlotKind {
    /// The first slot, or the only one, of a message whose payload lies in slots.
    Inline = 1,
    /// Continues such a payload.
    More = 2,
    /// The first fragment, or the only one, of a message whose payload lies in cells.
    Cell = 3,
    /// Continues such a payload.
    NextCell = 4,
    /// The last slot of this ring that the reader may read: the writer takes the ring back.
    End = 5,
    /// Announces a large message, which stays with its sender: see [`crate::rendezvous`].
    Offer = 6,
    /// A word between two engines about a large message, or the bytes of one.
    Notice = 7,
    /// A request, which has a reply.
    Request = 8,
    /// The reply to a request, or the acknowledgement of a message.
    Reply = 9,
    /// A message that lies in a block of its sender's heap, where its receiver reads it: see [`crate::grants`].
    Block = 10,
}

/// Flag of a first slot of kind `Inline`, `Cell` or `Block`: it has an immediate.
pub const IMMEDIATE: u64 = 1;
/// Flag of such a slot: the message has no tag, and is matched with others that have none.
pub const UNTAGGED: u64 = 2;
/// Flag of such a slot: the sender requests an acknowledgement when the message has been received
/// completely.
pub const ACK_DELIVERY: u64 = 4;
/// Flag of such a slot: the sender requests an acknowledgement when a receive has asked for the
/// message. Not together with [`ACK_DELIVERY`].
pub const ACK_MATCH: u64 = 8;
/// Flag of a slot of kind `Request`, `Reply`, `Offer` or `Notice`: its payload lies in a cell. (Not [`IMMEDIATE`]: a reader that expects a
/// reply in a slot must not take it for one with an immediate.)
pub const IN_CELL: u64 = 8;
/// Flag of a slot of kind `Reply`, which has no payload then: it acknowledges the message that is the
/// n-th for which its sender wants that, and n is its number.
pub const ACKNOWLEDGES: u64 = 2;
/// Flag of a slot of kind `Reply`, which has no payload then: the request was dropped.
pub const DROPPED: u64 = 4;

/// Flag of a slot of kind `Notice`: its payload is the end of a message that was offered, whose number is in place of
/// the tag.
pub const DATA: u64 = 2;

/// Bytes of an immediate.
pub const IMMEDIATE_BYTES: usize = 8;

/// Payload bytes in the first slot of a message.
pub const HEAD_BYTES: usize = SLOT_BYTES - INLINE;
/// Payload bytes in each further slot.
pub const MORE_BYTES: usize = SLOT_BYTES - 8;
/// Offset of those bytes in their slot.
pub const MORE: usize = 8;
/// Maximum number of slots of one message. Further slots arrive sooner than a cell would: 128 bytes one
/// way in 125 ns instead of 140, and in 225 instead of 445 if nothing is in the caches (AMD EPYC). With a
/// fourth slot 192 bytes take 155 ns instead of 145.
pub const MESSAGE_SLOTS_MAX: u64 = 3;
/// The longest message that fits in slots, in bytes.
pub const PAIR_INLINE_BYTES_MAX: usize = HEAD_BYTES + 2 * MORE_BYTES;

const KIND_SHIFT: u32 = 12;
const FLAGS_SHIFT: u32 = 8;
const POSITION_SHIFT: u32 = 16;
const LENGTH_MASK: u64 = (1 << FLAGS_SHIFT) - 1;

const _: () = assert!(PAIR_INLINE_BYTES_MAX as u64 <= LENGTH_MASK);
const _: () = assert!(slots_of(PAIR_INLINE_BYTES_MAX) == MESSAGE_SLOTS_MAX);

/// The stamp that publishes the slot at `position`, with the given [`stamp_bits`].
#[inline(always)]
#[must_use]
pub const fn pair_stamp(position: u64, bits: u64) -> u64 {
    pair_stamp_base(position) | bits
}

/// The bits of a stamp below the position.
#[inline(always)]
#[must_use]
pub const fn stamp_bits(kind: SlotKind, flags: u64, length: u64) -> u64 {
    (kind as u64) << KIND_SHIFT | flags << FLAGS_SHIFT | length
}

/// The position at which a pair begins whose receiver has it at `row`: that of its first slot.
///
/// Rings lie at the same offsets in all segments, and slots at the same position fall into the same
/// cache set. Without this offset, a receiver that has had equally many messages from each of its
/// peers would poll as many lines of a single set.
#[must_use]
pub const fn first_position(row: u32) -> u64 {
    row as u64
}

/// The bits of a stamp below its position.
pub const STAMP_BELOW: u64 = (1 << POSITION_SHIFT) - 1;

/// The stamp of the slot at `position`, without the bits for its content.
#[inline(always)]
#[must_use]
pub const fn pair_stamp_base(position: u64) -> u64 {
    position.wrapping_add(1) << POSITION_SHIFT
}

/// Does `stamp` publish the slot at `position`, with any content?
#[inline(always)]
#[must_use]
pub const fn is_at(stamp: u64, position: u64) -> bool {
    stamp >> POSITION_SHIFT == (position.wrapping_add(1) << POSITION_SHIFT) >> POSITION_SHIFT
}

/// The kind of slot that a stamp gives; `None` if the value has no meaning.
#[inline(always)]
#[must_use]
pub const fn kind_of(stamp: u64) -> Option<SlotKind> {
    Some(match (stamp >> KIND_SHIFT) & 0xf {
        1 => SlotKind::Inline,
        2 => SlotKind::More,
        3 => SlotKind::Cell,
        4 => SlotKind::NextCell,
        5 => SlotKind::End,
        6 => SlotKind::Offer,
        7 => SlotKind::Notice,
        8 => SlotKind::Request,
        9 => SlotKind::Reply,
        10 => SlotKind::Block,
        _ => return None,
    })
}

/// The inline length in a stamp.
#[inline(always)]
#[must_use]
pub const fn length_of(stamp: u64) -> usize {
    (stamp & LENGTH_MASK) as usize
}

/// The flags in a stamp.
#[inline(always)]
#[must_use]
pub const fn flags_of(stamp: u64) -> u64 {
    (stamp >> FLAGS_SHIFT) & 0xf
}

/// The length of a message that lies in one slot, of a kind and flags whose bits are `wanted`; `below`
/// holds the bits of its stamp below the position. `None` if the slot holds anything else, or if `other`
/// is all ones. (`other` must be that or 0.)
#[inline(always)]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "at most 48")]
pub const fn whole_length(below: u64, wanted: u64, other: u64) -> Option<usize> {
    let length = below.wrapping_sub(wanted);
    if length | other <= HEAD_BYTES as u64 { Some(length as usize) } else { None }
}

/// The same, if it has an immediate besides.
#[inline(always)]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "at most 40")]
pub const fn whole_length_with_immediate(below: u64, wanted: u64, other: u64) -> Option<usize> {
    let length = below.wrapping_sub(wanted + (IMMEDIATE << FLAGS_SHIFT));
    if length | other <= (HEAD_BYTES - IMMEDIATE_BYTES) as u64 {
        Some(length as usize)
    } else {
        None
    }
}

/// What the bits of a stamp below the position say of a message that lies in one slot, that receives ask for by its tag or by
/// having none, and that requests no acknowledgement: its length, its flag [`UNTAGGED`], and its flag [`IMMEDIATE`]. `None`
/// if the slot holds anything else, or if `other` is all ones. (`other` must be that or 0.)
#[inline(always)]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "at most 48")]
pub const fn matched_length(below: u64, other: u64) -> Option<(usize, bool, bool)> {
    const IMMEDIATE_BIT: u64 = IMMEDIATE << FLAGS_SHIFT;
    const UNTAGGED_BIT: u64 = UNTAGGED << FLAGS_SHIFT;
    let plain = stamp_bits(SlotKind::Inline, 0, 0);
    let length = (below & !(IMMEDIATE_BIT | UNTAGGED_BIT)).wrapping_sub(plain);
    let has_immediate = below & IMMEDIATE_BIT != 0;
    let longest = if has_immediate { HEAD_BYTES - IMMEDIATE_BYTES } else { HEAD_BYTES };
    if length | other <= longest as u64 {
        Some((length as usize, below & UNTAGGED_BIT != 0, has_immediate))
    } else {
        None
    }
}

/// Number of slots that an inline payload of `bytes` bytes takes.
#[inline(always)]
#[must_use]
pub const fn slots_of(bytes: usize) -> u64 {
    if bytes <= HEAD_BYTES { 1 } else { 1 + (bytes - HEAD_BYTES).div_ceil(MORE_BYTES) as u64 }
}

/// The place of a fragment: `offset` among the cells, and its length in bytes.
#[inline(always)]
#[must_use]
pub const fn fragment(offset: u32, bytes: u32) -> u64 {
    (offset as u64) << 32 | bytes as u64
}

/// Offset and length of a fragment, from its place.
#[inline(always)]
#[must_use]
pub const fn fragment_parts(place: u64) -> (u64, u64) {
    (place >> 32, place & 0xffff_ffff)
}

/// The place of a message in a block: the block's offset in the heap in lines, and the number of its release bit.
#[inline(always)]
#[must_use]
pub const fn block(line: u32, bit: u16) -> u64 {
    (line as u64) << 32 | bit as u64
}

/// Line and release bit of a message in a block, from its place. `None` if the place has no meaning.
#[inline(always)]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "parts")]
pub const fn block_parts(place: u64) -> Option<(u64, u16)> {
    if place & 0xffff_0000 != 0 { None } else { Some((place >> 32, place as u16)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_keeps_its_place() {
        assert_eq!(block_parts(block(u32::MAX, 4095)), Some((u64::from(u32::MAX), 4095)));
        assert_eq!(block_parts(block(1, 0) | 1 << 16), None);
    }

    #[test]
    fn a_stamp_tells_its_position_kind_and_length() {
        for position in [0, 1, 63, 64, (1 << 48) - 1, 1 << 48] {
            for (kind, flags, length) in [
                (SlotKind::Inline, UNTAGGED | ACK_MATCH, 160),
                (SlotKind::Cell, IMMEDIATE, 0),
                (SlotKind::End, 0, 0),
                (SlotKind::Reply, DROPPED, 0),
            ] {
                let stamp = pair_stamp(position, stamp_bits(kind, flags, length));
                assert!(is_at(stamp, position));
                assert_eq!(kind_of(stamp), Some(kind));
                assert_eq!(flags_of(stamp), flags);
                assert_eq!(length_of(stamp) as u64, length);
                assert!(!is_at(stamp, position + 1) && !is_at(stamp, position + 64));
            }
        }
        assert!(!is_at(0, 0) && kind_of(0).is_none());
        assert_eq!(kind_of(u64::MAX), None);
    }

    #[test]
    fn a_message_in_one_slot_is_recognized() {
        let wanted = stamp_bits(SlotKind::Inline, UNTAGGED, 0);
        let below = |flags, length| stamp_bits(SlotKind::Inline, UNTAGGED | flags, length);
        assert_eq!(whole_length(below(0, 48), wanted, 0), Some(48));
        assert_eq!(whole_length(below(0, 49), wanted, 0), None);
        assert_eq!(whole_length(below(0, 8), wanted, u64::MAX), None);
        assert_eq!(whole_length(below(IMMEDIATE, 8), wanted, 0), None);
        assert_eq!(whole_length(below(ACK_MATCH, 8), wanted, 0), None);
        assert_eq!(whole_length_with_immediate(below(IMMEDIATE, 40), wanted, 0), Some(40));
        assert_eq!(whole_length_with_immediate(below(IMMEDIATE, 41), wanted, 0), None);
        assert_eq!(whole_length_with_immediate(below(0, 8), wanted, 0), None);
    }

    #[test]
    fn other_kinds_mean_nothing() {
        for kind in [0, 11, 15] {
            assert_eq!(kind_of(kind << 12), None);
        }
    }

    #[test]
    fn slots_are_counted() {
        assert_eq!([0, 48, 49, 104, 105, 160].map(slots_of), [1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn a_fragment_keeps_its_place() {
        assert_eq!(fragment_parts(fragment(u32::MAX, 7)), (u64::from(u32::MAX), 7));
    }
}
