//! The messages between sender and receivers: orders through the channel, and reports on each
//! receiver's standard output, one JSON object per line.

use serde::{Deserialize, Serialize};

/// Length of an order and of a timed message.
pub(crate) const SMALL_BYTES: usize = 48;
/// Number of timed messages that do not count, because caches and branch predictors are cold.
pub(crate) const LATENCY_WARM_UP: u64 = 1_000;
/// The number of the message that follows the last timed message.
pub(crate) const LATENCY_END: u64 = u64::MAX;

/// Announces what the next messages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// This many messages to sum.
    Sum(u64),
    /// This many messages to compute the SHA-256 of.
    Hash(u64),
    /// Messages that contain their send time and their number, up to [`LATENCY_END`].
    Time,
}

impl Order {
    pub(crate) fn to_bytes(self) -> [u8; SMALL_BYTES] {
        let (kind, messages) = match self {
            Self::Sum(messages) => (1, messages),
            Self::Hash(messages) => (2, messages),
            Self::Time => (3, 0),
        };
        small([kind, messages])
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let [kind, messages] = words(bytes)?;
        match kind {
            1 => Some(Self::Sum(messages)),
            2 => Some(Self::Hash(messages)),
            3 => Some(Self::Time),
            _ => None,
        }
    }
}

/// A small message of two words.
pub(crate) fn small(words: [u64; 2]) -> [u8; SMALL_BYTES] {
    let mut bytes = [0; SMALL_BYTES];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[8..16].copy_from_slice(&words[1].to_le_bytes());
    bytes
}

/// The two words of a small message.
pub(crate) fn words(bytes: &[u8]) -> Option<[u64; 2]> {
    let bytes: &[u8; SMALL_BYTES] = bytes.try_into().ok()?;
    let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    Some([word(0)?, word(8)?])
}

/// The result of a receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub(crate) enum Report {
    /// It read and summed the messages. It read the last one at `ended_ns` of the monotonic clock.
    Summed { bytes: u64, messages: u64, checksum: u64, ended_ns: u64 },
    /// It computed the SHA-256 of all messages.
    Hashed { bytes: u64, sha256: String },
    /// It timed the messages.
    Timed { messages: u64, p50_ns: u64, p99_ns: u64 },
    /// It failed.
    Failed { message: String },
}

/// A digest in hexadecimal.
pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_channel() {
        for order in [Order::Sum(7), Order::Hash(u64::MAX), Order::Time] {
            assert_eq!(Order::parse(&order.to_bytes()), Some(order));
        }
        assert_eq!(Order::parse(&[1; 8]), None);
        assert_eq!(Order::parse(&small([9, 9])), None);
    }
}
