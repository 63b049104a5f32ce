//! From which size on what is used, on a machine that was not measured. The constants come from an AMD EPYC and an Intel
//! Xeon, between two cores of one socket: see `docs/decisions.md`.

/// Messages of more than this many bytes are offered; shorter ones are copied through cells.
pub const OFFERED_ABOVE_BYTES: u64 = 128 << 10;

/// The same while the cells have no room for such a message. Its sender must act again when cells are free; the
/// sender of an offered message need not.
pub const OFFERED_IF_SCARCE_ABOVE_BYTES: u64 = 32 << 10;

/// By default, messages of up to this many bytes are written into the sender's heap if their receiver grants that,
/// and are read there. A longer one is copied through cells while the rest of it is being written, and what was
/// copied is near its reader: that is faster for a receiver that reads all of it.
pub const IN_PLACE_UP_TO_BYTES: u64 = 16 << 10;

/// Messages of at least this many bytes may be copied from both ends.
pub const BOTH_FROM_BYTES: u64 = 64 << 10;

/// From which size on an endpoint uses what: the constants above, or what was measured on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Longer messages are offered.
    pub offered_above: u64,
    /// Longer messages are offered while the cells have no room for them.
    pub offered_if_scarce_above: u64,
    /// Messages of up to this many bytes are written where their receiver reads them, if it grants that.
    pub in_place_up_to: u64,
    /// Messages of at least this many bytes may be copied from both ends.
    pub both_from: u64,
}

impl Thresholds {
    /// The constants.
    pub const UNTUNED: Self = Self {
        offered_above: OFFERED_ABOVE_BYTES,
        offered_if_scarce_above: OFFERED_IF_SCARCE_ABOVE_BYTES,
        in_place_up_to: IN_PLACE_UP_TO_BYTES,
        both_from: BOTH_FROM_BYTES,
    };
}

/// The least and the most that one side copies at a time while the other may copy, too.
pub const CHUNK_BYTES: (u64, u64) = (32 << 10, 256 << 10);
/// Short messages have this many chunks, up to a length of [`MEDIUM_CHUNK_BYTES`] each.
const CHUNKS_OF_SHORT: u64 = 4;
const MEDIUM_CHUNK_BYTES: u64 = 128 << 10;
/// Long messages have this many chunks, up to the longest length.
const CHUNKS_OF_LONG: u64 = 16;
/// What a receiver copies at a time if the sender does not.
pub const ALONE_BYTES: u64 = 1 << 20;

/// Maximum number of parts of a registered piece of memory. One system call takes as many.
pub const PARTS_MAX: usize = 1024;
/// Maximum number of pieces that a process has registered at a time, for one mechanism and peer.
pub const PIECES_MAX: usize = 1024;
/// What one step through a pipe of cells, or from mapped memory, copies at most.
pub const STEP_BYTES: u64 = 1 << 20;

/// Bytes of the chunks of a message of which `total` bytes may be copied from both ends: a quarter of it, but at
/// least 32 KiB and at most 128 KiB; of more than 2 MiB a sixteenth, but at most 256 KiB, and never more than 65,535
/// chunks. Longer chunks mean fewer system calls; shorter ones, that one side waits less for the other's last chunk.
#[must_use]
pub const fn chunk_bytes(total: u64) -> u64 {
    let (least, most) = CHUNK_BYTES;
    let wanted =
        larger(total / CHUNKS_OF_LONG, smaller(total / CHUNKS_OF_SHORT, MEDIUM_CHUNK_BYTES));
    let chunk = smaller(larger(wanted.next_multiple_of(4096), least), most);
    // Only messages of more than 16 GiB need longer ones.
    let needed = total.div_ceil(u16::MAX as u64).next_multiple_of(4096);
    larger(chunk, needed)
}

const fn larger(one: u64, other: u64) -> u64 {
    if one < other { other } else { one }
}

const fn smaller(one: u64, other: u64) -> u64 {
    if one < other { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_has_few_chunks() {
        for total in [1u64, 1 << 15, 1 << 20, 1 << 24, 1 << 34, 1 << 40, 1 << 50] {
            assert!(total.div_ceil(chunk_bytes(total)) <= u16::MAX.into(), "{total}");
        }
        let sizes = [1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 26];
        assert_eq!(sizes.map(chunk_bytes).map(|bytes| bytes >> 10), [32, 64, 128, 256, 256]);
    }
}
