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
//!  63                                   12      11     10   7   6     0
//!  | sequence + 1, modulo 2^52            | claimed | run - 1 | owner |
//! ```
//!
//! In a channel of one sender the three fields on the right are 0. In a shared channel `owner` is
//! the sender's row; a *claimed* slot is its owner's to fill, and is not published yet; the stamp of
//! the first slot of a *run* claims the following ones as well, up to [`RUN_SLOTS_MAX`] in all.
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
/// The most slots that one stamp claims. In a model it is 2, and the stamp's other bits stay unused:
/// the smallest ring has two of the longest runs, whose code relies on that, and a model of the same
/// code must get round its ring in a few messages. Nothing else is laid out differently.
pub const RUN_SLOTS_MAX: u64 = if cfg!(loom) { 2 } else { 1 << RUN_BITS };
/// The most senders of a shared channel: what fits the owner's field.
pub const SENDERS_MAX: u64 = 1 << OWNER_BITS;
/// Stamp: claimed by its owner, and not published yet.
pub const CLAIMED: u64 = 1 << (OWNER_BITS + RUN_BITS);

const OWNER_BITS: u32 = 7;
const RUN_BITS: u32 = 4;
const SEQUENCE_SHIFT: u32 = 12;
/// What a receiver compares: sequence and claim, whoever the owner is, however long the run.
const WHOSE_EVER: u64 = !(CLAIMED - 1);

const _: () = assert!(CLAIMED << 1 == 1 << SEQUENCE_SHIFT);
const _: () = assert!(RUN_SLOTS_MAX <= 1 << RUN_BITS && RUN_SLOTS_MAX.is_power_of_two());
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
    (stamp & (SENDERS_MAX - 1)) as u32
}

/// How many slots a stamp claims, or claimed before it was published: 1, or more for the first of a
/// run.
#[inline(always)]
#[must_use]
pub const fn run_of(stamp: u64) -> u64 {
    ((stamp >> OWNER_BITS) & (RUN_SLOTS_MAX - 1)) + 1
}

/// Is the slot claimed, and not published?
#[inline(always)]
#[must_use]
pub const fn is_claimed(stamp: u64) -> bool {
    stamp & CLAIMED != 0
}

/// The stamp by which the sender of row `owner` publishes message `sequence`, the first of `run`
/// slots that it claimed together; with [`CLAIMED`], the one by which it claims them.
#[inline(always)]
#[must_use]
pub const fn shared_stamp(sequence: u64, owner: u32, run: u64) -> u64 {
    stamp_of(sequence) | (run - 1) << OWNER_BITS | owner as u64
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
    fn a_stamp_tells_its_sequence_owner_run_and_state() {
        for sequence in [0, 1, 4096, (1 << 52) - 2] {
            for (owner, run) in [(0, 1), (127, 16), (5, 2)] {
                let stamp = shared_stamp(sequence, owner, run);
                assert_eq!(sequence_of(stamp), sequence);
                assert_eq!((owner_of(stamp), run_of(stamp)), (owner, run));
                assert!(publishes(stamp, sequence) && !is_claimed(stamp));
                let claim = stamp | CLAIMED;
                assert!(!publishes(claim, sequence) && is_claimed(claim));
                assert!(!publishes(stamp, sequence + 1));
                assert_eq!((owner_of(claim), run_of(claim)), (owner, run));
                assert_eq!(ahead_of(claim, sequence), 0);
                assert_eq!(ahead_of(stamp, sequence + 4096), -4096);
                assert_eq!(ahead_of(shared_stamp(sequence + 16, owner, run), sequence), 16);
            }
        }
        assert_eq!(shared_stamp(7, 0, 1), stamp_of(7));
        assert!(!publishes(0, 0), "a slot never used publishes nothing");
        assert_eq!(ahead_of(0, 7), -8);
    }
}
