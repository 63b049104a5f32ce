//! One place in a ring: 64 bytes, one line.
//!
//! ```text
//!  0        8        16                                              64
//!  | stamp  | header | inline payload, 48 bytes                      |
//!  |        |        | position | length | (unused)                  |   payload elsewhere
//! ```
//!
//! Written by the channel's sender alone. `stamp` is the sequence number of the message plus one;
//! storing it publishes the message. `header` is the length of an inline payload (0 to 48), or one
//! of the two kinds below; then `position` is a *virtual* position in that area (it only grows; its
//! place in memory is the remainder by the area's size) and `length` counts bytes.

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

const _: () = assert!(INLINE_BYTES_MAX == 48);

/// The stamp that publishes message `sequence`.
#[must_use]
pub const fn stamp_of(sequence: u64) -> u64 {
    sequence.wrapping_add(1)
}
