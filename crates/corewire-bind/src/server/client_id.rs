//! What a service calls a client.

/// A client of a service. Never means another one, even after the client has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    pub(super) index: u32,
    pub(super) generation: u64,
}

impl ClientId {
    /// The number in the tags of its messages. That of a client with a circuit means nothing.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "other clients have small ones")]
    pub(crate) const fn binding(self) -> u16 {
        self.index.wrapping_add(1) as u16
    }

    /// As one number. There are at most 2^24 indexes, and generations are counted one by one and do not reach 2^40.
    pub(super) const fn to_bits(self) -> u64 {
        self.generation << INDEX_BITS | self.index as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower bits")]
    pub(super) const fn of_bits(bits: u64) -> Self {
        Self { index: bits as u32 & INDEX_MAX, generation: bits >> INDEX_BITS }
    }
}

const INDEX_BITS: u32 = 24;
/// The largest index.
pub(super) const INDEX_MAX: u32 = (1 << INDEX_BITS) - 1;
