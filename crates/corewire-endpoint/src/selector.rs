//! Peers, what a receive asks for, and what it learns of a message.

use corewire_ring::message::{Space, Wanted};

use crate::list::Pattern;

/// Another endpoint, as one endpoint knows it. Meaningless to any other endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(u64);

impl Peer {
    /// The peer that has this row, as the engine has numbered those that had it. For transports.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub const fn new(row: u32, generation: u32) -> Self {
        Self(Wanted::source_bits(row, generation))
    }

    /// The same, of both as [bits](Wanted::source_bits).
    #[inline(always)]
    pub(crate) const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Row and generation as [bits](Wanted::source_bits). For transports.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Its row in its transport.
    #[inline(always)]
    #[must_use]
    pub const fn row(self) -> u32 {
        Wanted::row_of(self.0)
    }

    /// Which of the peers that had this row it is.
    #[inline(always)]
    #[must_use]
    pub const fn generation(self) -> u32 {
        Wanted::row_of(self.0 >> 32)
    }
}

/// What is known of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Its sender; of a send, its receiver.
    pub source: Peer,
    /// Its tag; 0 if it has none.
    pub tag: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The 64 bits that its sender sent beside it.
    pub immediate: Option<u64>,
}

impl Status {
    /// Of a message of the source with these [bits](Peer::bits).
    #[inline(always)]
    pub(crate) const fn of(source: u64, tag: u64, immediate: Option<u64>, bytes: usize) -> Self {
        Self { source: Peer::of_bits(source), tag, bytes: bytes as u64, immediate }
    }
}

/// What a receive asks for: a tag, or messages without any, and whose message.
///
/// Two tags match if they have the same bits where the mask has a 1. Messages of one peer that a receive
/// asks for are received in the order in which they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selector(Wanted);

impl Selector {
    /// Any message that has a tag, of any peer.
    #[must_use]
    pub const fn any() -> Self {
        Self::masked(0, 0)
    }

    /// Any message without a tag, of any peer.
    #[must_use]
    pub const fn untagged() -> Self {
        Self(Wanted::any(Space::Untagged))
    }

    /// Requests, of any peer. For engines: they are answered by their numbers.
    #[doc(hidden)]
    #[must_use]
    pub const fn requests() -> Self {
        Self(Wanted::any(Space::Request))
    }

    /// The reply of this peer to the request with this number.
    #[inline(always)]
    pub(crate) const fn reply(number: u64, peer: Peer) -> Self {
        Self::claimed(Space::Reply, number, peer)
    }

    /// Messages with this tag.
    #[must_use]
    pub const fn tag(tag: u64) -> Self {
        Self::masked(tag, u64::MAX)
    }

    /// Messages whose tags match this one in the bits of `mask`.
    #[must_use]
    pub const fn masked(tag: u64, mask: u64) -> Self {
        Self(Wanted { tag, mask, ..Wanted::any(Space::Tagged) })
    }

    /// The same, of this peer only.
    #[must_use]
    pub const fn from(self, peer: Peer) -> Self {
        Self(Wanted { source: peer.bits(), source_mask: u64::MAX, ..self.0 })
    }

    /// One that has been claimed.
    pub(crate) const fn claimed(space: Space, tag: u64, source: Peer) -> Self {
        let wanted = Wanted { tag, mask: u64::MAX, ..Wanted::any(space) };
        Self(wanted).from(source)
    }

    /// The only peer whose messages it asks for, if there is one.
    #[inline]
    #[must_use]
    pub const fn source(&self) -> Option<Peer> {
        if self.0.source_mask == 0 { None } else { Some(Peer::of_bits(self.0.source)) }
    }

    /// Whether it asks for a message of `source` with this tag, or without any if it asks for such messages.
    #[inline(always)]
    #[must_use]
    pub const fn takes(&self, source: Peer, tag: u64) -> bool {
        self.0.takes(source.bits(), tag)
    }

    /// Whether it asks for a message of this space, of the source with these [bits](Peer::bits), with this tag.
    #[inline(always)]
    pub(crate) fn takes_of(&self, space: Space, source: u64, tag: u64) -> bool {
        self.0.space == space && self.0.takes(source, tag)
    }

    #[inline(always)]
    pub(crate) const fn wanted(&self) -> &Wanted {
        &self.0
    }

    pub(crate) const fn space(&self) -> Space {
        self.0.space
    }

    pub(crate) const fn pattern(&self) -> Pattern {
        let Wanted { space, mask, source_mask, .. } = self.0;
        Pattern { space, mask, has_source: source_mask != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_match_where_the_mask_says() {
        let [other, peer] = [Peer::new(0, 1), Peer::new(1, 1)];
        let selector = Selector::masked(0xab00, 0xff00).from(peer);
        assert!(selector.takes(peer, 0xab17));
        assert!(!selector.takes(peer, 0xac17));
        assert!(!selector.takes(other, 0xab17));
        assert!(Selector::any().takes(other, u64::MAX));
    }
}
