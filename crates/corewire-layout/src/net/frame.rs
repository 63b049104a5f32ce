//! The header of a frame.

use super::NetError;

/// The shortest header in bytes.
pub const HEADER_BYTES_MIN: usize = 16;
/// The longest: one with an immediate and a total.
pub const HEADER_BYTES_MAX: usize = 32;
/// The most bytes of a frame, its header aside. A longer message takes several. A side sends a frame only if all of it may
/// be sent: so it never waits for the other side in the middle of one, and can always tell that how much it may send.
pub const FRAME_BYTES_MAX: u64 = 64 << 10;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// A message with a tag.
    Tagged = 0,
    /// A message without a tag.
    Untagged = 1,
    /// A request, with the number of its call.
    Request = 2,
    /// The reply to a request.
    Reply = 3,
    /// A request was dropped without a reply. Has no bytes.
    Dropped = 4,
    /// Acknowledges the n-th message whose sender requested it. Has no bytes.
    Acknowledgement = 5,
    /// Offers a large message.
    Offer = 6,
    /// A notice about an offer.
    Notice = 7,
    /// The message of an offer, whose number it has, sent although the other side could not pull it to the end.
    Data = 8,
    /// The next bytes of a message that takes several frames. The number is how many of its bytes lie before.
    Rest = 9,
    /// The number is how many bytes of frames the other side may have sent altogether, the length field how many messages
    /// have been received from it. Its immediate, if it has one, is how many bytes may be under way from now on: more than before. No
    /// bytes follow, and it counts for no credit.
    Credit = 10,
    /// The sender has closed its endpoint, and sends nothing more. Has no bytes, and counts for no credit.
    Leave = 11,
    /// Asks for the message of an offer, whose number it has. Its immediate is how many bytes of the message are wanted, from
    /// the first one on. Has no bytes.
    Pull = 12,
    /// The next bytes of the message of an offer, whose number it has, and which was asked for. Its immediate is how many bytes
    /// are left, these included. Other frames may lie between two of them.
    Piece = 13,
    /// Of the message of an offer, whose number it has, no more pieces follow. Has no bytes, and counts for no credit.
    Void = 14,
    /// Of the message of an offer, whose number it has, no more pieces are wanted. Has no bytes, and counts for no credit.
    Stop = 15,
}

impl FrameKind {
    const ALL: [Self; 16] = [
        Self::Tagged,
        Self::Untagged,
        Self::Request,
        Self::Reply,
        Self::Dropped,
        Self::Acknowledgement,
        Self::Offer,
        Self::Notice,
        Self::Data,
        Self::Rest,
        Self::Credit,
        Self::Leave,
        Self::Pull,
        Self::Piece,
        Self::Void,
        Self::Stop,
    ];

    /// Whether bytes may follow its header.
    const fn has_bytes(self) -> bool {
        !matches!(
            self,
            Self::Dropped
                | Self::Acknowledgement
                | Self::Credit
                | Self::Leave
                | Self::Pull
                | Self::Void
                | Self::Stop
        )
    }

    /// Whether at least one byte follows it.
    const fn must_have_bytes(self) -> bool {
        matches!(self, Self::Piece | Self::Rest)
    }

    const fn is_matched(self) -> bool {
        matches!(self, Self::Tagged | Self::Untagged)
    }

    /// Whether it must have an immediate.
    const fn must_have_immediate(self) -> bool {
        matches!(self, Self::Pull | Self::Piece)
    }

    /// Whether it may have one.
    const fn may_have_immediate(self) -> bool {
        matches!(self, Self::Tagged | Self::Untagged | Self::Credit) || self.must_have_immediate()
    }

    /// Whether its message may take several frames.
    const fn may_have_total(self) -> bool {
        self.has_bytes() && !self.must_have_bytes()
    }
}

/// Which acknowledgement the sender of a message requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameWants {
    /// None.
    Nothing = 0,
    /// That the message has been received completely.
    Delivery = 1,
    /// That a receive has asked for it.
    Match = 2,
}

/// What precedes the bytes of a frame.
///
/// ```text
///   63    16 15  12 11      10          9   8 7    0    64 bits    64 bits            64 bits
///   | bytes | 0    | total | immediate | wants | kind | | number | | immediate, total, if it has them |
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: FrameKind,
    /// Which acknowledgement its sender requests; only of a message with or without a tag.
    pub wants: FrameWants,
    /// Number of bytes that follow, at most [`FRAME_BYTES_MAX`]; of credit, a number of messages below 2^48.
    pub bytes: u64,
    /// A tag, or a number.
    pub number: u64,
    /// 64 bits that travel beside a message; of a piece, what is left; of a pull, what is wanted; of credit, what may be under way.
    pub immediate: Option<u64>,
    /// The length of the message, if it takes several frames: then more than `bytes`.
    pub total: Option<u64>,
}

const IMMEDIATE: u64 = 1 << 10;
const TOTAL: u64 = 1 << 11;
const RESERVED: u64 = 0xf000;

impl Header {
    /// Of a frame without anything more.
    #[must_use]
    pub const fn new(kind: FrameKind, number: u64, bytes: u64) -> Self {
        let wants = FrameWants::Nothing;
        Self { kind, wants, bytes, number, immediate: None, total: None }
    }

    /// The header of a short message without anything more, or `None` if `word`, the first of a header, is that of another one:
    /// whether it has a tag, and its length.
    #[inline(always)]
    #[must_use]
    pub const fn plain(word: u64) -> Option<(bool, u64)> {
        match word & 0xffff {
            0 => Some((true, word >> 16)),
            1 => Some((false, word >> 16)),
            _ => None,
        }
    }

    /// Its bytes, of which so many count.
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> ([u8; HEADER_BYTES_MAX], usize) {
        let Self { kind, wants, bytes, number, immediate, total } = *self;
        let flags = if immediate.is_some() { IMMEDIATE } else { 0 }
            | if total.is_some() { TOTAL } else { 0 };
        let word = bytes << 16 | flags | (wants as u64) << 8 | kind as u64;
        let mut all = [0; HEADER_BYTES_MAX];
        let mut length = 0;
        for word in [Some(word), Some(number), immediate, total].into_iter().flatten() {
            all[length..length + 8].copy_from_slice(&word.to_le_bytes());
            length += 8;
        }
        (all, length)
    }

    /// The header at the beginning of what has arrived, and its length in bytes.
    ///
    /// # Errors
    /// [`NetError::Field`].
    #[inline]
    pub fn parse(arrived: &[u8]) -> Result<Option<(Self, usize)>, NetError> {
        let mut words =
            arrived.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let Some(word) = words.next() else { return Ok(None) };
        let impossible = Err(NetError::Field { field: "the first word of a frame", found: word });
        let kind = FrameKind::ALL.get(usize::from(word.to_le_bytes()[0])).copied();
        let wants = match word >> 8 & 3 {
            0 => Some(FrameWants::Nothing),
            1 => Some(FrameWants::Delivery),
            2 => Some(FrameWants::Match),
            _ => None,
        };
        let (Some(kind), Some(wants), 0) = (kind, wants, word & RESERVED) else {
            return impossible;
        };
        let bytes = word >> 16;
        let [has_immediate, has_total] = [IMMEDIATE, TOTAL].map(|flag| word & flag != 0);
        let is_possible = (wants == FrameWants::Nothing || kind.is_matched())
            && (!has_immediate || kind.may_have_immediate())
            && (has_immediate || !kind.must_have_immediate())
            && (!has_total || kind.may_have_total())
            && match kind {
                FrameKind::Credit => true,
                _ if kind.has_bytes() => bytes <= FRAME_BYTES_MAX,
                _ => bytes == 0,
            }
            && (bytes > 0 || !kind.must_have_bytes() && !has_total);
        if !is_possible {
            return impossible;
        }
        let Some(number) = words.next() else { return Ok(None) };
        let mut next_if = |has: bool| if has { words.next().map(Some) } else { Some(None) };
        let Some(immediate) = next_if(has_immediate) else { return Ok(None) };
        let Some(total) = next_if(has_total) else { return Ok(None) };
        let length = HEADER_BYTES_MIN + 8 * (usize::from(has_immediate) + usize::from(has_total));
        match (kind, immediate, total) {
            (FrameKind::Piece, Some(left), _) if bytes > left => {
                Err(NetError::Field { field: "what is left of a message", found: left })
            }
            (FrameKind::Pull, Some(0), _) => {
                Err(NetError::Field { field: "the length that is wanted of a message", found: 0 })
            }
            (_, _, Some(total)) if total <= bytes => {
                Err(NetError::Field { field: "the length of a message", found: total })
            }
            _ => Ok(Some((Self { kind, wants, bytes, number, immediate, total }, length))),
        }
    }

    /// Number of bytes that follow it.
    #[inline]
    #[must_use]
    pub const fn payload_bytes(&self) -> u64 {
        if self.kind.has_bytes() { self.bytes } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: FrameKind) -> Header {
        let immediate = kind.must_have_immediate().then_some(7 << 20);
        let bytes = if kind.has_bytes() { FRAME_BYTES_MAX } else { 0 };
        Header { immediate, ..Header::new(kind, 1 << 63 | 9, bytes) }
    }

    fn is_read_as_written(header: Header) {
        let (bytes, length) = header.to_bytes();
        assert_eq!(Header::parse(&bytes[..length]), Ok(Some((header, length))));
        assert_eq!(
            Header::parse(&[&bytes[..length], &[7; 50]].concat()),
            Ok(Some((header, length)))
        );
        for some in 0..length {
            assert_eq!(Header::parse(&bytes[..some]), Ok(None), "{header:?}, {some} bytes");
        }
    }

    #[test]
    fn every_header_is_read_as_written_and_any_part_of_it_waits_for_more() {
        for kind in FrameKind::ALL {
            is_read_as_written(header(kind));
            if kind.may_have_total() {
                is_read_as_written(Header { total: Some(u64::MAX), ..header(kind) });
            }
        }
        for wants in [FrameWants::Delivery, FrameWants::Match] {
            let immediate = Some(u64::MAX);
            let total = Some(FRAME_BYTES_MAX + 1);
            is_read_as_written(Header { wants, immediate, ..header(FrameKind::Tagged) });
            is_read_as_written(Header { wants, immediate, total, ..header(FrameKind::Tagged) });
            is_read_as_written(Header { wants, bytes: 0, ..header(FrameKind::Untagged) });
        }
        let delivered = Header { bytes: (1 << 48) - 1, ..header(FrameKind::Credit) };
        is_read_as_written(delivered);
        assert_eq!(delivered.payload_bytes(), 0);
    }

    #[test]
    fn an_impossible_first_word_is_refused_at_once() {
        let fails = |header: Header| Header::parse(&header.to_bytes().0[..8]).is_err();
        let wants = FrameWants::Match;
        for kind in FrameKind::ALL {
            assert!(kind.is_matched() || fails(Header { wants, ..header(kind) }), "{kind:?}");
            let immediate = if kind.must_have_immediate() { None } else { Some(1) };
            let may = kind.is_matched() || kind == FrameKind::Credit;
            assert!(may || fails(Header { immediate, ..header(kind) }), "{kind:?}");
            let may = kind.may_have_total();
            assert!(may || fails(Header { total: Some(1 << 40), ..header(kind) }), "{kind:?}");
            let bytes = if kind.has_bytes() { FRAME_BYTES_MAX + 1 } else { 1 };
            assert!(
                kind == FrameKind::Credit || fails(Header { bytes, ..header(kind) }),
                "{kind:?}"
            );
        }
        for kind in [FrameKind::Piece, FrameKind::Rest] {
            assert!(fails(Header { bytes: 0, ..header(kind) }), "{kind:?}");
        }
        for word in [16_u64, 255, 3 << 8, 1 << 12, 1 << 15] {
            let (field, found) = ("the first word of a frame", word);
            assert_eq!(Header::parse(&word.to_le_bytes()), Err(NetError::Field { field, found }));
        }
    }

    #[test]
    fn a_plain_header_is_found_by_its_first_word() {
        for kind in FrameKind::ALL {
            let (bytes, _) = Header { immediate: None, ..header(kind) }.to_bytes();
            let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let expected = match kind {
                FrameKind::Tagged => Some((true, FRAME_BYTES_MAX)),
                FrameKind::Untagged => Some((false, FRAME_BYTES_MAX)),
                _ => None,
            };
            assert_eq!(Header::plain(word), expected, "{kind:?}");
        }
        let more = Header { immediate: Some(1), ..header(FrameKind::Tagged) };
        let word = u64::from_le_bytes(more.to_bytes().0[..8].try_into().unwrap());
        assert_eq!(Header::plain(word), None);
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        let fails = |header: Header| Header::parse(&header.to_bytes().0).is_err();
        assert!(fails(Header { immediate: Some(FRAME_BYTES_MAX - 1), ..header(FrameKind::Piece) }));
        assert!(fails(Header { immediate: Some(0), ..header(FrameKind::Pull) }));
        assert!(fails(Header { total: Some(FRAME_BYTES_MAX), ..header(FrameKind::Request) }));
        assert!(fails(Header { total: Some(9), bytes: 0, ..header(FrameKind::Reply) }));
    }

    #[test]
    fn whatever_is_taken_for_a_header_is_written_the_same_way() {
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        let mut found = 0;
        for _ in 0..200_000 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Small kinds and lengths, so that some are possible.
            let first = word & 0xffff_0000 | word >> 40 & 0x0f0f;
            let bytes =
                [first, word.rotate_left(13), word.rotate_left(29), word].map(u64::to_le_bytes);
            let bytes = bytes.concat();
            if let Ok(Some((header, length))) = Header::parse(&bytes) {
                assert_eq!(header.to_bytes().0[..length], bytes[..length]);
                found += 1;
            }
        }
        assert!(found > 1000, "{found}");
    }
}
