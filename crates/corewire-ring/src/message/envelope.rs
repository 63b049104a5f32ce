//! What a message is matched by, and what a receive asks for.

use corewire_layout::pair::{
    ACK_DELIVERY, ACK_MATCH, ACKNOWLEDGES, DATA, DROPPED, IMMEDIATE, IMMEDIATE_BYTES, IN_CELL,
    PAIR_INLINE_BYTES_MAX, SlotKind, UNTAGGED, slots_of, stamp_bits,
};

/// What a message is matched by, and what it is for. Its number is the [bits](stamp_bits) of the stamp of a slot
/// that holds such a message whole, without anything more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Space {
    /// A message with a tag.
    Tagged = stamp_bits(SlotKind::Inline, 0, 0),
    /// A message without a tag.
    Untagged = stamp_bits(SlotKind::Inline, UNTAGGED, 0),
    /// A request. It has the number of its call instead of a tag.
    Request = stamp_bits(SlotKind::Request, 0, 0),
    /// The reply to a request, with the same number.
    Reply = stamp_bits(SlotKind::Reply, 0, 0),
    /// Says that a request was dropped without a reply. Has no bytes.
    Dropped = stamp_bits(SlotKind::Reply, DROPPED, 0),
    /// Acknowledges the n-th message whose sender requested it; n is the number. Has no bytes.
    Acknowledgement = stamp_bits(SlotKind::Reply, ACKNOWLEDGES, 0),
    /// Offers a large message, which has this tag or number: see [`corewire_layout::rendezvous`].
    Offer = stamp_bits(SlotKind::Offer, 0, 0),
    /// A notice about the offer with this number.
    Notice = stamp_bits(SlotKind::Notice, 0, 0),
    /// The end of the message of the offer with this number.
    Data = stamp_bits(SlotKind::Notice, DATA, 0),
}

impl Space {
    /// Whether a message of this space is one that a program has sent. A message that is offered counts when it has been
    /// copied.
    #[must_use]
    pub const fn is_message(self) -> bool {
        !matches!(self, Self::Acknowledgement | Self::Offer | Self::Notice | Self::Data)
    }

    /// Whether receives ask for messages of this space by tag, or by having none; requests and replies go another way.
    #[must_use]
    pub const fn is_matched(self) -> bool {
        matches!(self, Self::Tagged | Self::Untagged)
    }

    /// The flags of a first slot by which messages differ that receives ask for and that request nothing.
    pub(crate) const MATCHED_FLAGS: u64 = flag_bits(IMMEDIATE | UNTAGGED);

    /// Kind and flags of a slot that holds such a message whole, without anything more.
    #[inline(always)]
    pub(crate) const fn inline_bits(self) -> u64 {
        self as u64
    }

    /// Kind and flags of the first slot of such a message in cells.
    pub(crate) const fn cell_bits(self) -> u64 {
        match self {
            Self::Tagged => stamp_bits(SlotKind::Cell, 0, 0),
            Self::Untagged => stamp_bits(SlotKind::Cell, UNTAGGED, 0),
            _ => self as u64 | flag_bits(IN_CELL),
        }
    }
}

/// The bits of flags alone.
#[inline(always)]
const fn flag_bits(flags: u64) -> u64 {
    stamp_bits(SlotKind::Inline, flags, 0) ^ stamp_bits(SlotKind::Inline, 0, 0)
}

/// Which acknowledgement a sender requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// Nothing.
    Nothing,
    /// That the message has been received completely.
    Delivery,
    /// That a receive has asked for the message.
    Match,
}

/// What travels with a message besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// What it is matched by.
    pub space: Space,
    /// Its tag, or its number.
    pub tag: u64,
    /// 64 bits of the sender's choice; only with messages that are tagged or untagged.
    pub immediate: Option<u64>,
    /// Which acknowledgement its sender requests; only of messages that are tagged or untagged.
    pub wants: Wants,
}

impl From<u64> for Envelope {
    #[inline(always)]
    fn from(tag: u64) -> Self {
        Self::tagged(tag)
    }
}

impl Envelope {
    /// The envelope of a message with a tag.
    #[inline(always)]
    #[must_use]
    pub const fn tagged(tag: u64) -> Self {
        Self::numbered(Space::Tagged, tag)
    }

    /// The envelope of a message without a tag. It matches receives that ask for messages without a tag.
    #[inline(always)]
    #[must_use]
    pub const fn untagged() -> Self {
        Self::numbered(Space::Untagged, 0)
    }

    /// This envelope with an immediate: 64 bits that travel beside the message.
    #[inline(always)]
    #[must_use]
    pub const fn with_immediate(self, immediate: u64) -> Self {
        Self { immediate: Some(immediate), ..self }
    }

    /// The envelope of a message of this space with this tag or number. For engines.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub const fn numbered(space: Space, tag: u64) -> Self {
        Self { space, tag, immediate: None, wants: Wants::Nothing }
    }

    #[inline(always)]
    const fn flags(&self) -> u64 {
        let wants = match self.wants {
            Wants::Nothing => 0,
            Wants::Delivery => ACK_DELIVERY,
            Wants::Match => ACK_MATCH,
        };
        let immediate = if self.immediate.is_some() { IMMEDIATE } else { 0 };
        flag_bits(wants | immediate)
    }

    /// Kind and flags of its first slot, if its payload lies in slots.
    #[inline(always)]
    pub(crate) const fn inline_bits(&self) -> u64 {
        self.space.inline_bits() | self.flags()
    }

    /// Kind and flags of its first slot, if its payload lies in cells.
    pub(crate) const fn cell_bits(&self) -> u64 {
        self.space.cell_bits() | self.flags()
    }

    /// The bits of a stamp of a message in a block, which is tagged or untagged.
    #[inline(always)]
    pub(crate) const fn block_bits(&self) -> u64 {
        let flags = if matches!(self.space, Space::Untagged) { UNTAGGED } else { 0 };
        stamp_bits(SlotKind::Block, flags, 0) | self.flags()
    }

    /// The bytes of its immediate.
    #[inline(always)]
    pub(crate) const fn immediate_bytes(&self) -> usize {
        if self.immediate.is_some() { IMMEDIATE_BYTES } else { 0 }
    }

    /// The longest message with this envelope that lies in slots, in bytes.
    #[inline(always)]
    #[must_use]
    pub const fn inline_bytes_max(&self) -> usize {
        PAIR_INLINE_BYTES_MAX - self.immediate_bytes()
    }

    /// The number of slots that a message of `bytes` bytes takes; `None` if it goes through cells.
    pub(crate) fn slots(&self, bytes: u64) -> Option<u64> {
        let bytes =
            usize::try_from(bytes).ok().filter(|bytes| *bytes <= self.inline_bytes_max())?;
        Some(slots_of(bytes + self.immediate_bytes()))
    }
}

/// Which messages a receive asks for: messages of `space` whose tag and source have the given bits where the masks have
/// a 1. A source is a row (lower half) and a generation. Passed by value: a processor that loads the words of a copy in
/// wider pieces than they were stored waits until they are in the cache. That takes as long as the rest of a short
/// receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// What the messages are matched by.
    pub space: Space,
    /// Bits of the tag.
    pub tag: u64,
    /// Which bits of the tag must match.
    pub mask: u64,
    /// Bits of the source.
    pub source: u64,
    /// Which bits of the source must match: all or none.
    pub source_mask: u64,
}

impl Wanted {
    /// Any message of this space.
    #[inline(always)]
    #[must_use]
    pub const fn any(space: Space) -> Self {
        Self { space, tag: 0, mask: 0, source: 0, source_mask: 0 }
    }

    /// The bits of a source.
    #[inline(always)]
    #[must_use]
    pub const fn source_bits(row: u32, generation: u32) -> u64 {
        (generation as u64) << 32 | row as u64
    }

    /// The row of a source.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub const fn row_of(source: u64) -> u32 {
        source as u32
    }

    /// Whether it asks for a message of its space with this source and tag.
    #[inline(always)]
    #[must_use]
    pub const fn takes(&self, source: u64, tag: u64) -> bool {
        (self.tag ^ tag) & self.mask | (self.source ^ source) & self.source_mask == 0
    }
}

/// A message that has arrived, or a fragment of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// What travels with the message; the same for all its fragments.
    pub envelope: Envelope,
    /// Bytes of the whole message.
    pub total: u64,
    /// Bytes of this fragment.
    pub bytes: usize,
    /// Whether it is the first fragment of its message.
    pub is_first: bool,
    /// Where it lies.
    pub place: Place,
}

/// Where an arrival lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the slots of the ring.
    Slots,
    /// Where only its transport finds it: copying brings it.
    Elsewhere,
    /// At this offset among its sender's cells.
    Cell(u64),
    /// At this offset of its sender's heap, where it stays until it is released by this bit.
    Block {
        /// Offset in bytes.
        at: u64,
        /// The number of its release bit.
        bit: u16,
    },
}

impl Arrival {
    /// Whether it is a whole message that stays where it is until it is released.
    #[inline(always)]
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        matches!(self.place, Place::Block { .. })
    }

    /// Whether it is a whole message.
    #[inline(always)]
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_first && self.bytes as u64 == self.total
    }
}
