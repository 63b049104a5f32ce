//! From which size on what is used. Measured on an AMD EPYC and an Intel Xeon between two cores of one socket; see
//! `docs/decisions.md`.

/// Messages of more than this many bytes are offered; shorter ones are copied through cells.
pub const OFFERED_ABOVE_BYTES: u64 = 32 << 10;

/// Messages of at least this many bytes may be copied from both ends.
pub const BOTH_FROM_BYTES: u64 = 64 << 10;

/// The least and the most that one side copies at a time while the other may copy, too. Longer chunks mean fewer system
/// calls; shorter ones, that one side waits less for the other's last chunk.
pub const CHUNK_BYTES: (u64, u64) = (32 << 10, 256 << 10);
/// A message is divided into at least this many chunks, if they are not too short then,
const CHUNKS_MIN: u64 = 4;
/// into as many as have this length,
const MEDIUM_CHUNK_BYTES: u64 = 128 << 10;
/// and into no more than this, if they are not too long then.
const CHUNKS: u64 = 16;
/// What a receiver copies at a time if the sender does not.
pub const ALONE_BYTES: u64 = 1 << 20;

/// Bytes of the chunks of a message of `total` bytes that may be copied from both ends. At most 65,535 chunks.
#[must_use]
pub const fn chunk_bytes(total: u64) -> u64 {
    let (least, most) = CHUNK_BYTES;
    let wanted = larger(total / CHUNKS, smaller(total / CHUNKS_MIN, MEDIUM_CHUNK_BYTES));
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
