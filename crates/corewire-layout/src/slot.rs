//! One place in a ring: 64 bytes, one line.
//!
//! ```text
//!  0        8        16                                              64
//!  | stamp  | header | inline payload, 48 bytes                      |
//!  |        |        | position | length | (unused)                  |   payload elsewhere
//! ```
//!
//! Storing the stamp publishes the message:
//!
//! ```text
//!  63                                   12  11   10     9        0
//!  | sequence + 1, modulo 2^52            | run | claimed | owner |
//! ```
//!
//! In a channel of one sender the three fields on the right are 0. In a shared channel `owner` is
//! the sender's row; a *claimed* slot is its owner's to fill, and is not published yet; a *run* head
//! claims the rest of its block of [`RUN_SLOTS`] slots as well.
//!
//! `header` is the length of an inline payload (0 to 48), or one of the kinds below; for a payload
//! elsewhere `position` is a *virtual* position in its owner's area (it only grows; its place in
//! memory is the remainder by the area's size) and `length` counts bytes.

use crate::LINE_BYTES;

/// Bytes of a slot.
pub const SLOT_BYTES: usize = LINE_BYTES;
/// Offset of the stamp (u64).
pub const STAMP: usize = 0;
/// Offset of the header (u64).
pub const HEADER: usize = 8;
/// Offset of the inline payload.
pub const INLINE: usize = 16;
/// Offset of the virtual position (u64) when the payload lies elsewhere.
pub const POSITION: usize = 16;
/// Offset of the length in bytes (u64) when the payload lies elsewhere.
pub const LENGTH: usize = 24;
/// The longest payload that travels in the slot itself.
pub const INLINE_BYTES_MAX: usize = SLOT_BYTES - INLINE;
/// Header of a message whose payload lies in the window.
pub const KIND_WINDOW: u64 = 1 << 32;
/// Header of a message whose payload lies in the large area.
pub const KIND_LARGE: u64 = 2 << 32;
/// Header of a slot without a message: what a run claimed and did not need.
pub const KIND_NONE: u64 = 3 << 32;

/// Slots of a block: a run reaches from its head to the end of the head's block.
pub const RUN_SLOTS: u64 = 16;
/// The most senders of a shared channel: what fits the owner's field.
pub const SENDERS_MAX: u64 = 1 << OWNER_BITS;

const OWNER_BITS: u32 = 10;
const SEQUENCE_SHIFT: u32 = 12;
/// Stamp: claimed by its owner, and not published yet.
pub const CLAIMED: u64 = 1 << OWNER_BITS;
/// Stamp: the head of a run.
pub const RUN: u64 = CLAIMED << 1;

/// What a receiver compares: sequence and claim, whoever the owner is.
const WHOSE_EVER: u64 = !(RUN | (SENDERS_MAX - 1));

const _: () = assert!(INLINE_BYTES_MAX == 48);

/// The stamp that publishes message `sequence` of a channel's only sender, or of row 0.
#[inline(always)]
#[must_use]
pub const fn stamp_of(sequence: u64) -> u64 {
    sequence.wrapping_add(1) << SEQUENCE_SHIFT
}

/// The sequence number that a stamp carries; of a slot never used, the one before 0.
#[inline(always)]
#[must_use]
pub const fn sequence_of(stamp: u64) -> u64 {
    (stamp >> SEQUENCE_SHIFT).wrapping_sub(1)
}

/// The row of the sender that a stamp names.
#[inline(always)]
#[must_use]
pub const fn owner_of(stamp: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "ten bits")]
    let owner = (stamp & (SENDERS_MAX - 1)) as u32;
    owner
}

/// Does `stamp` publish message `sequence`, whoever sent it?
#[inline(always)]
#[must_use]
pub const fn publishes(stamp: u64, sequence: u64) -> bool {
    stamp & WHOSE_EVER == stamp_of(sequence)
}

/// How many sequence numbers `stamp` is ahead of `sequence`; negative if it is older.
#[inline(always)]
#[must_use]
pub const fn ahead_of(stamp: u64, sequence: u64) -> i64 {
    const FIELDS: u64 = (1 << SEQUENCE_SHIFT) - 1;
    (stamp & !FIELDS).wrapping_sub(stamp_of(sequence)).cast_signed() >> SEQUENCE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_tells_its_sequence_owner_and_state() {
        for sequence in [0, 1, 4096, (1 << 52) - 2] {
            let stamp = stamp_of(sequence) | 1023;
            assert_eq!(sequence_of(stamp), sequence);
            assert_eq!(owner_of(stamp), 1023);
            assert!(publishes(stamp, sequence) && publishes(stamp | RUN, sequence));
            assert!(!publishes(stamp | CLAIMED, sequence) && !publishes(stamp, sequence + 1));
            assert_eq!(ahead_of(stamp | RUN | CLAIMED, sequence), 0);
            assert_eq!(ahead_of(stamp, sequence + 4096), -4096);
            assert_eq!(ahead_of(stamp_of(sequence + 16), sequence), 16);
        }
        assert!(!publishes(0, 0), "a slot never used publishes nothing");
        assert_eq!(ahead_of(0, 7), -8);
    }
}
