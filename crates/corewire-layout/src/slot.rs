//! One slot of a ring: 64 bytes, one cache line.
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
//! the sender's row. A *claimed* slot is to be filled by its owner and is not published yet. The
//! stamp of the first slot of a *run* also claims the slots after it, up to [`RUN_SLOTS_MAX`] in
//! all.
//!
//! `header` is the length of an inline payload (0 to 48), or one of the kinds below. For a payload
//! elsewhere, `position` is a *virtual* position in its owner's area (it only grows; the place in
//! memory is the position modulo the area's size), and `length` is the number of bytes.

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
/// Slot of a pair ring, whose payload lies in a cell: u64, the immediate.
pub const CELL_IMMEDIATE: usize = 32;
/// The longest payload that fits in the slot itself.
pub const INLINE_BYTES_MAX: usize = SLOT_BYTES - INLINE;
/// Header of a message whose payload lies in the window.
pub const KIND_WINDOW: u64 = 1 << 32;
/// Header of a message whose payload lies in the large area.
pub const KIND_LARGE: u64 = 2 << 32;
/// The maximum number of slots that one stamp claims. Under loom it is 2. The code requires that even
/// the smallest ring has room for two runs of this length, so a small maximum allows a small ring,
/// around which a model wraps in a few messages. The other bits of the stamp's run field are then
/// unused. Nothing else in the layout differs.
pub const RUN_SLOTS_MAX: u64 = if cfg!(loom) { 2 } else { 1 << RUN_BITS };
/// The maximum number of senders of a shared channel: what fits in the owner field.
pub const SENDERS_MAX: u64 = 1 << OWNER_BITS;
/// Bit of the stamp: claimed by its owner, and not published yet.
pub const CLAIMED: u64 = 1 << (OWNER_BITS + RUN_BITS);

const OWNER_BITS: u32 = 7;
const RUN_BITS: u32 = 4;
const SEQUENCE_SHIFT: u32 = 12;
/// The bits that a receiver compares: sequence and claim, for any owner and any length of run.
const WHOSE_EVER: u64 = !(CLAIMED - 1);

const _: () = assert!(CLAIMED << 1 == 1 << SEQUENCE_SHIFT);
const _: () = assert!(RUN_SLOTS_MAX <= 1 << RUN_BITS && RUN_SLOTS_MAX.is_power_of_two());
const _: () = assert!(INLINE_BYTES_MAX == 48);

/// The stamp that publishes message `sequence` of a channel's only sender, or of the sender of row
/// 0.
#[inline(always)]
#[must_use]
pub const fn stamp_of(sequence: u64) -> u64 {
    sequence.wrapping_add(1) << SEQUENCE_SHIFT
}

/// The sequence number in a stamp. For a slot that was never used, it is the number before 0.
#[inline(always)]
#[must_use]
pub const fn sequence_of(stamp: u64) -> u64 {
    (stamp >> SEQUENCE_SHIFT).wrapping_sub(1)
}

/// The row of the sender in a stamp.
#[inline(always)]
#[must_use]
pub const fn owner_of(stamp: u64) -> u32 {
    (stamp & (SENDERS_MAX - 1)) as u32
}

/// The number of slots that a stamp claims, or claimed before it was published: 1, or more for the
/// first slot of a run.
#[inline(always)]
#[must_use]
pub const fn run_of(stamp: u64) -> u64 {
    ((stamp >> OWNER_BITS) & (RUN_SLOTS_MAX - 1)) + 1
}

/// Is the slot claimed and not published?
#[inline(always)]
#[must_use]
pub const fn is_claimed(stamp: u64) -> bool {
    stamp & CLAIMED != 0
}

/// The stamp with which the sender of row `owner` publishes message `sequence`, the first of `run`
/// slots that it claimed together. With [`CLAIMED`], it is the stamp that claims these slots.
#[inline(always)]
#[must_use]
pub const fn shared_stamp(sequence: u64, owner: u32, run: u64) -> u64 {
    stamp_of(sequence) | (run - 1) << OWNER_BITS | owner as u64
}

/// Does `stamp` publish message `sequence` of any sender?
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
