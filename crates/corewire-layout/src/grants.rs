//! Messages that their receivers read where they were written.
//!
//! A sender has a *heap* in its segment. A receiver *grants* a sender a number of bytes: so much of its heap may the
//! sender fill with messages for this receiver that the receiver has not released. The message's slot, of kind
//! [`Block`](crate::pair::SlotKind::Block), names the block that holds it, and one of [`RELEASES`] bits in the
//! receiver's segment. The receiver *releases* the block by changing that bit: any of its threads may, in any order.
//! The sender, which knows every bit's value before, finds the change when it needs room.
//!
//! | word | written by |
//! |---|---|
//! | block | the sender, before its slot is published; never again before its release |
//! | release bit | threads of the receiver, each once for a message |
//!
//! What is granted, and asked for, travels as notices (kind `Notice`), which name no offer:
//!
//! | verb | from | number | offset |
//! |---|---|---|---|
//! | `Grant` | receiver | [`grant_number`]: the most that it may ever grant, whether a message beyond the grant waits, and a serial number | bytes granted |
//! | `Want` | sender | 0 | bytes that it needs beyond its grant |
//! | `Kept` | sender | the serial number of the last `Grant` | what it keeps of its grant, if that is smaller than the one before |

/// Number of release bits of a row: the maximum number of messages of one sender that its receiver holds.
pub const RELEASES: u16 = if cfg!(any(loom, corewire_kill)) { 64 } else { 4096 };
/// Bytes of a row's release bits.
pub const RELEASES_BYTES: usize = RELEASES as usize / 8;
/// The heap is allocated in chunks of so many bytes.
pub const HEAP_CHUNK_BYTES: u64 = if cfg!(loom) {
    128
} else if cfg!(corewire_kill) {
    4 << 10
} else {
    64 << 10
};
/// The largest heap in bytes.
pub const HEAP_BYTES_MAX: u64 = 1 << 36;
/// The smallest block in bytes.
pub const BLOCK_BYTES_MIN: u64 = if cfg!(loom) { 64 } else { 256 };

const _: () = assert!(HEAP_BYTES_MAX / crate::LINE_BYTES as u64 <= 1 << 32, "lines have 32 bits");

/// The most that one sender can ever be granted, in bytes.
pub const GRANT_BYTES_MAX: u64 = (1 << 47) - 1;

/// The number of a `Grant`: the most that its receiver may ever grant this sender, at most [`GRANT_BYTES_MAX`]; whether
/// messages beyond the grant wait, or are refused, instead of being copied; and a serial number, one more than that of
/// the `Grant` before.
#[must_use]
pub const fn grant_number(most: u64, refuses: bool, serial: u16) -> u64 {
    (serial as u64) << 48 | (refuses as u64) << 47 | most
}

/// The parts of that number.
#[must_use]
pub const fn grant_parts(number: u64) -> (u64, bool, u16) {
    (number & GRANT_BYTES_MAX, number >> 47 & 1 == 1, (number >> 48) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_grant_keeps_its_parts() {
        for parts in [(0, false, 0), (1 << 40, true, u16::MAX), (GRANT_BYTES_MAX, false, 7)] {
            assert_eq!(grant_parts(grant_number(parts.0, parts.1, parts.2)), parts);
        }
    }
}
