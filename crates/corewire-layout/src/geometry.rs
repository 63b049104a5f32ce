//! Sizes and offsets of a channel's parts in its sender's segment, or in the two segments of a
//! shared channel.

use crate::segment::{DOOR_BYTES, DOORS};
use crate::slot::{INLINE_BYTES_MAX, RUN_SLOTS_MAX, SENDERS_MAX, SLOT_BYTES};
use crate::{LINE_BYTES, PAGE_BYTES, round_up};

/// Minimum and maximum number of slots of a ring.
pub const SLOTS_RANGE: (u64, u64) = (2, 1 << 24);
/// Minimum and maximum bytes of a window.
pub const WINDOW_BYTES_RANGE: (u64, u64) = (4 * LINE_BYTES as u64, 1 << 40);
/// The longest message that a channel can be made for, in bytes: 1 TiB.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 40;
/// Maximum number of receivers of one channel.
pub const RECEIVERS_MAX: u64 = 1024;

/// The large area holds this many messages of the maximum length, if they fit in [`LARGE_BYTES`]:
/// with eight messages of 1 MiB, neither side waits for the other's caches (24 GB/s; with two, 19).
const LARGE_MESSAGES: u64 = 8;
/// The large area is not larger than this, unless two messages of the maximum length need it.
const LARGE_BYTES: u64 = 16 << 20;

/// Why a geometry is refused. Each message names the parameter, the limit, and the value asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// The number of slots is not a power of two in range.
    #[error("slots: a power of two from {min} to {max} is needed, not {asked}")]
    Slots {
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
        /// What was asked for.
        asked: u64,
    },
    /// The window is not a power of two in range.
    #[error("window bytes: a power of two from {min} to {max} is needed, not {asked}")]
    Window {
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
        /// What was asked for.
        asked: u64,
    },
    /// The largest message is out of range.
    #[error("largest message: 1 to {max} bytes are possible, not {asked}")]
    Message {
        /// Largest allowed.
        max: u64,
        /// What was asked for.
        asked: u64,
    },
    /// The number of receivers is out of range.
    #[error("receivers: 1 to {max} are possible, not {asked}")]
    Receivers {
        /// Largest allowed.
        max: u64,
        /// What was asked for.
        asked: u64,
    },
    /// The number of senders is out of range.
    #[error("senders: 1 to {max} are possible, not {asked}")]
    Senders {
        /// Largest allowed.
        max: u64,
        /// What was asked for.
        asked: u64,
    },
    /// Too few slots for more than one sender.
    #[error("slots: a shared channel needs at least {min}, not {asked}")]
    SharedSlots {
        /// Smallest allowed.
        min: u64,
        /// What was asked for.
        asked: u64,
    },
    /// The parts do not fit in an address space.
    #[error("the parts of the channel add up to more than this machine can address")]
    TooLarge,
}

/// Minimum number of slots of a shared channel: two of the longest runs.
pub const SHARED_SLOTS_MIN: u64 = 2 * RUN_SLOTS_MAX;

/// Sizes and offsets of a channel's parts, all derived from five numbers. Only [`Geometry::new`]
/// and [`Geometry::with_senders`] make one, so every `Geometry` has these properties:
///
/// - `slots` and `window_bytes` are powers of two;
/// - the parts lie in the order header, doors, ring, windows, large areas (one window and one large
///   area for each sender); each part begins at a page, and none overlaps another or reaches beyond
///   `segment_bytes`;
/// - `large_bytes` is 0, or a multiple of a page and at least twice the maximum message length;
/// - `senders_max` is 1, or the channel is shared and has room for two of the longest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    slots: u64,
    window_bytes: u64,
    large_bytes: u64,
    message_bytes_max: u64,
    receivers_max: u64,
    senders_max: u64,
    ring_offset: u64,
    window_offset: u64,
    large_offset: u64,
    segment_bytes: u64,
}

impl Geometry {
    /// Lays out a channel of `slots` slots, a window of `window_bytes`, messages of up to
    /// `message_bytes_max` bytes and up to `receivers_max` receivers.
    ///
    /// # Errors
    /// One of [`GeometryError`], naming the first number that is out of range.
    pub fn new(
        slots: u64,
        window_bytes: u64,
        message_bytes_max: u64,
        receivers_max: u64,
    ) -> Result<Self, GeometryError> {
        Self::with_senders(slots, window_bytes, message_bytes_max, receivers_max, 1)
    }

    /// As [`Geometry::new`], for up to `senders_max` senders, each with a window and a large area
    /// of these sizes. With more than one sender, the channel is shared.
    ///
    /// # Errors
    /// One of [`GeometryError`], naming the first number that is out of range.
    pub fn with_senders(
        slots: u64,
        window_bytes: u64,
        message_bytes_max: u64,
        receivers_max: u64,
        senders_max: u64,
    ) -> Result<Self, GeometryError> {
        let within = |value: u64, (min, max): (u64, u64)| (min..=max).contains(&value);
        if !slots.is_power_of_two() || !within(slots, SLOTS_RANGE) {
            let (min, max) = SLOTS_RANGE;
            return Err(GeometryError::Slots { min, max, asked: slots });
        }
        if !window_bytes.is_power_of_two() || !within(window_bytes, WINDOW_BYTES_RANGE) {
            let (min, max) = WINDOW_BYTES_RANGE;
            return Err(GeometryError::Window { min, max, asked: window_bytes });
        }
        if !within(message_bytes_max, (1, MESSAGE_BYTES_MAX)) {
            let max = MESSAGE_BYTES_MAX;
            return Err(GeometryError::Message { max, asked: message_bytes_max });
        }
        if !within(receivers_max, (1, RECEIVERS_MAX)) {
            return Err(GeometryError::Receivers { max: RECEIVERS_MAX, asked: receivers_max });
        }
        if !within(senders_max, (1, SENDERS_MAX)) {
            return Err(GeometryError::Senders { max: SENDERS_MAX, asked: senders_max });
        }
        if senders_max > 1 && slots < SHARED_SLOTS_MIN {
            return Err(GeometryError::SharedSlots { min: SHARED_SLOTS_MIN, asked: slots });
        }
        let page = PAGE_BYTES as u64;
        // In a shared channel the receivers' doors are in the table, and the senders' doors are
        // here.
        let doors = if senders_max > 1 { senders_max } else { receivers_max };
        let doors_end = DOORS as u64 + doors * DOOR_BYTES as u64;
        let large = if message_bytes_max > window_bytes / 4 { message_bytes_max } else { 0 };
        let layout = || {
            let ring_offset = round_up(doors_end, page)?;
            let window_offset = round_up(ring_offset + slots * SLOT_BYTES as u64, page)?;
            let windows = window_bytes.checked_mul(senders_max)?;
            let large_offset = round_up(window_offset.checked_add(windows)?, page)?;
            let large = round_up(large, LINE_BYTES as u64)?;
            let several = (LARGE_MESSAGES * large).min(LARGE_BYTES);
            let large_bytes = round_up(large.checked_mul(2)?.max(several), page)?;
            let segment_bytes = large_offset.checked_add(large_bytes.checked_mul(senders_max)?)?;
            isize::try_from(segment_bytes).ok()?;
            Some(Self {
                slots,
                window_bytes,
                large_bytes,
                message_bytes_max,
                receivers_max,
                senders_max,
                ring_offset,
                window_offset,
                large_offset,
                segment_bytes,
            })
        };
        layout().ok_or(GeometryError::TooLarge)
    }

    /// Number of slots of the ring, a power of two.
    #[must_use]
    pub const fn slots(&self) -> u64 {
        self.slots
    }
    /// Bytes of the window, a power of two.
    #[must_use]
    pub const fn window_bytes(&self) -> u64 {
        self.window_bytes
    }
    /// The longest message that goes through the window, in bytes: a quarter of the window.
    #[must_use]
    pub const fn window_message_bytes_max(&self) -> u64 {
        self.window_bytes / 4
    }
    /// Bytes of the large area; 0 if every message fits in the window.
    #[must_use]
    pub const fn large_bytes(&self) -> u64 {
        self.large_bytes
    }
    /// The longest message of the channel, in bytes.
    #[must_use]
    pub const fn message_bytes_max(&self) -> u64 {
        self.message_bytes_max
    }
    /// Maximum number of receivers at one time.
    #[must_use]
    pub const fn receivers_max(&self) -> u64 {
        self.receivers_max
    }
    /// Maximum number of senders at one time; 1 unless the channel is shared.
    #[must_use]
    pub const fn senders_max(&self) -> u64 {
        self.senders_max
    }
    /// Can several processes send on the channel?
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.senders_max > 1
    }
    /// Bytes of a shared channel's table: its words, the receivers' doors, and a page for each
    /// receiver.
    #[must_use]
    pub const fn table_bytes(&self) -> u64 {
        self.table_rows_offset() + self.receivers_max * PAGE_BYTES as u64
    }
    /// Offset of the receivers' pages in a shared channel's table.
    #[must_use]
    pub const fn table_rows_offset(&self) -> u64 {
        (DOORS as u64 + self.receivers_max * DOOR_BYTES as u64).next_multiple_of(PAGE_BYTES as u64)
    }
    /// Offset of the ring in the segment.
    #[must_use]
    pub const fn ring_offset(&self) -> u64 {
        self.ring_offset
    }
    /// Offset of the window of sender `row` in the segment.
    #[must_use]
    pub const fn window_offset(&self, row: u32) -> u64 {
        self.window_offset + row as u64 * self.window_bytes
    }
    /// Offset of the large area of sender `row` in the segment.
    #[must_use]
    pub const fn large_offset(&self, row: u32) -> u64 {
        self.large_offset + row as u64 * self.large_bytes
    }
    /// Bytes of the whole segment.
    #[must_use]
    pub const fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }
    /// A receiver publishes its cursor after this many messages.
    #[must_use]
    pub const fn cursor_batch(&self) -> u64 {
        let batch = self.slots / 8;
        if batch == 0 { 1 } else { batch }
    }
    /// True if a payload of this many bytes fits in its slot.
    #[must_use]
    pub const fn is_inline(bytes: u64) -> bool {
        bytes <= INLINE_BYTES_MAX as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_the_limit_and_what_was_asked() {
        let text =
            alloc::string::ToString::to_string(&Geometry::new(1000, 1 << 20, 1, 1).unwrap_err());
        assert_eq!(text, "slots: a power of two from 2 to 16777216 is needed, not 1000");
    }

    #[test]
    fn a_large_area_is_made_only_when_the_window_is_too_small() {
        assert_eq!(Geometry::new(4096, 1 << 20, 1 << 18, 8).unwrap().large_bytes(), 0);
        assert_eq!(Geometry::new(4096, 1 << 20, 1 << 20, 8).unwrap().large_bytes(), 8 << 20);
        assert_eq!(Geometry::new(4096, 1 << 20, 1 << 22, 8).unwrap().large_bytes(), 16 << 20);
        assert_eq!(Geometry::new(4096, 1 << 20, 1 << 28, 8).unwrap().large_bytes(), 1 << 29);
    }

    proptest! {
        #[test]
        fn parts_are_in_order_and_do_not_overlap(
            slots in any::<u64>(), window in any::<u64>(), message in any::<u64>(),
            receivers in any::<u64>(), senders in 0u64..1100, tame: bool,
            shifts in (1u32..30, 6u32..45, 0u32..42, 0u32..11),
        ) {
            let (slots, window, message, receivers) = if tame {
                (1 << shifts.0, 1 << shifts.1, 1 << shifts.2, 1 << shifts.3)
            } else {
                (slots, window, message, receivers)
            };
            if let Ok(g) = Geometry::with_senders(slots, window, message, receivers, senders) {
                let page = PAGE_BYTES as u64;
                let doors = if g.is_shared() { g.senders_max() } else { g.receivers_max() };
                let last = u32::try_from(g.senders_max() - 1).unwrap();
                prop_assert!(DOORS as u64 + doors * DOOR_BYTES as u64 <= g.ring_offset());
                prop_assert!(g.ring_offset() + g.slots() * 64 <= g.window_offset(0));
                prop_assert!(g.window_offset(last) + g.window_bytes() <= g.large_offset(0));
                prop_assert_eq!(g.large_offset(last) + g.large_bytes(), g.segment_bytes());
                prop_assert!(DOORS as u64 + g.receivers_max() * DOOR_BYTES as u64 <= g.table_rows_offset());
                prop_assert!(g.segment_bytes().is_multiple_of(page));
                let fits_window = g.message_bytes_max() <= g.window_message_bytes_max();
                prop_assert!(fits_window || g.large_bytes() >= 2 * g.message_bytes_max());
            }
        }
    }
}
