//! One place in a pair ring: 64 bytes, one line, that one endpoint writes and one other reads.
//!
//! ```text
//!  0        8        16                                              64
//!  | stamp  | tag    | inline payload, 48 bytes                      |   first of a message
//!  | stamp  | tag    | place  | total  | (unused)                    |   the same, payload in a cell
//!  | stamp  | payload, 56 bytes                                      |   goes on with an inline one
//!  | stamp  | (unused) | place | (unused)                            |   goes on with one in cells
//! ```
//!
//! Storing the stamp publishes the slot:
//!
//! ```text
//!  63                                   16  15   12  11          0
//!  | position + 1, modulo 2^48            | kind  | inline length |
//! ```
//!
//! A slot's position grows by one with every slot of the ring's life, so a slot that has not been
//! written in this lap never shows the stamp that its reader waits for. (Its reader has passed it in
//! the lap before: 48 bits are more than it needs.) All that a reader needs of a short message lies in
//! the one line that it polls.
//!
//! `place` is where a fragment lies among its sender's cells, in bytes, and its length: 32 bits each.
//! `total` is the length of the whole message.

use crate::slot::{INLINE, SLOT_BYTES};

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum SlotKind {
    /// The first, or only, slot of a message whose payload travels in slots.
    Inline = 1,
    /// Goes on with such a payload.
    More = 2,
    /// The first, or only, fragment of a message whose payload lies in cells.
    Cell = 3,
    /// Goes on with such a payload.
    NextCell = 4,
    /// The last slot of this ring that the reader is to look at: the writer takes the ring back.
    End = 5,
}

/// What the first slot of a message carries of its payload.
pub const HEAD_BYTES: usize = SLOT_BYTES - INLINE;
/// What each further slot carries.
pub const MORE_BYTES: usize = SLOT_BYTES - 8;
/// Where its bytes begin.
pub const MORE: usize = 8;
/// The most slots that one message takes. Processors fetch lines in pairs, so the second comes sooner than
/// a cell would (280 ns instead of 350 for 64 bytes, one way); a third does not.
pub const MESSAGE_SLOTS_MAX: u64 = 2;
/// The longest message that travels in slots.
pub const PAIR_INLINE_BYTES_MAX: usize = HEAD_BYTES + MORE_BYTES;

const KIND_SHIFT: u32 = 12;
const POSITION_SHIFT: u32 = 16;
const LENGTH_MASK: u64 = (1 << KIND_SHIFT) - 1;

const _: () = assert!(PAIR_INLINE_BYTES_MAX as u64 <= LENGTH_MASK);
const _: () = assert!(slots_of(PAIR_INLINE_BYTES_MAX) == MESSAGE_SLOTS_MAX);

/// The stamp that publishes the slot at `position`.
#[inline(always)]
#[must_use]
pub const fn pair_stamp(position: u64, kind: SlotKind, length: u64) -> u64 {
    position.wrapping_add(1) << POSITION_SHIFT | (kind as u64) << KIND_SHIFT | length
}

/// Where a pair begins that its receiver has at `row`: the position of its first slot.
///
/// Rings lie alike in all segments, and slots of the same position in the same set of a cache. Whoever
/// has had as many messages of each of its peers would look at that many lines of one set.
#[must_use]
pub const fn first_position(row: u32) -> u64 {
    row as u64
}

/// A stamp's bits below its position.
pub const STAMP_BELOW: u64 = (1 << POSITION_SHIFT) - 1;

/// The stamp of the slot at `position`, but for what it holds.
#[inline(always)]
#[must_use]
pub const fn pair_stamp_base(position: u64) -> u64 {
    position.wrapping_add(1) << POSITION_SHIFT
}

/// Does `stamp` publish the slot at `position`, whatever it holds?
#[inline(always)]
#[must_use]
pub const fn is_at(stamp: u64, position: u64) -> bool {
    stamp >> POSITION_SHIFT == (position.wrapping_add(1) << POSITION_SHIFT) >> POSITION_SHIFT
}

/// What a stamp says that its slot holds; `None` if that has no meaning.
#[inline(always)]
#[must_use]
pub const fn kind_of(stamp: u64) -> Option<SlotKind> {
    Some(match (stamp >> KIND_SHIFT) & 0xf {
        1 => SlotKind::Inline,
        2 => SlotKind::More,
        3 => SlotKind::Cell,
        4 => SlotKind::NextCell,
        5 => SlotKind::End,
        _ => return None,
    })
}

/// The inline length that a stamp carries.
#[inline(always)]
#[must_use]
pub const fn length_of(stamp: u64) -> usize {
    (stamp & LENGTH_MASK) as usize
}

/// The length of a message that lies in one slot, by what its stamp holds below its position; `None` if the
/// slot holds anything else, or if `other` is all ones. (It is that, or 0.)
#[inline(always)]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "at most 48")]
pub const fn whole_length(below: u64, other: u64) -> Option<usize> {
    let length = below.wrapping_sub((SlotKind::Inline as u64) << KIND_SHIFT);
    if length | other <= HEAD_BYTES as u64 { Some(length as usize) } else { None }
}

/// How many slots an inline payload of `bytes` takes.
#[inline(always)]
#[must_use]
pub const fn slots_of(bytes: usize) -> u64 {
    if bytes <= HEAD_BYTES { 1 } else { 1 + (bytes - HEAD_BYTES).div_ceil(MORE_BYTES) as u64 }
}

/// A fragment's place: `offset` among the cells, and its length.
#[inline(always)]
#[must_use]
pub const fn fragment(offset: u32, bytes: u32) -> u64 {
    (offset as u64) << 32 | bytes as u64
}

/// Offset and length of a fragment.
#[inline(always)]
#[must_use]
pub const fn fragment_parts(place: u64) -> (u64, u64) {
    (place >> 32, place & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_tells_its_position_kind_and_length() {
        for position in [0, 1, 63, 64, (1 << 48) - 1, 1 << 48] {
            for (kind, length) in [(SlotKind::Inline, 104), (SlotKind::Cell, 0), (SlotKind::End, 0)]
            {
                let stamp = pair_stamp(position, kind, length);
                assert!(is_at(stamp, position));
                assert_eq!(kind_of(stamp), Some(kind));
                assert_eq!(length_of(stamp) as u64, length);
                assert!(!is_at(stamp, position + 1) && !is_at(stamp, position + 64));
            }
        }
        assert!(!is_at(0, 0) && kind_of(0).is_none());
        assert_eq!(kind_of(u64::MAX), None);
    }

    #[test]
    fn slots_are_counted() {
        assert_eq!([0, 48, 49, 104].map(slots_of), [1, 1, 2, 2]);
    }

    #[test]
    fn a_fragment_keeps_its_place() {
        assert_eq!(fragment_parts(fragment(u32::MAX, 7)), (u64::from(u32::MAX), 7));
    }
}
