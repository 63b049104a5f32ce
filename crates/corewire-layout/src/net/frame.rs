//! The header of a frame.

use super::NetError;

/// The shortest header in bytes.
pub const HEADER_BYTES_MIN: usize = 16;
/// The longest: one with an immediate.
pub const HEADER_BYTES_MAX: usize = 24;

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
    /// The next bytes of the message of an offer, whose number it has. Its immediate is how many bytes of the message
    /// are left, these included.
    Data = 8,
    /// The number is how many bytes of frames have been received from the other side, its length field how many
    /// messages. No bytes follow.
    Credit = 9,
    /// The sender has closed its endpoint, and sends nothing more. Has no bytes.
    Leave = 10,
}

impl FrameKind {
    const ALL: [Self; 11] = [
        Self::Tagged,
        Self::Untagged,
        Self::Request,
        Self::Reply,
        Self::Dropped,
        Self::Acknowledgement,
        Self::Offer,
        Self::Notice,
        Self::Data,
        Self::Credit,
        Self::Leave,
    ];

    /// Whether bytes follow its header.
    const fn has_bytes(self) -> bool {
        !matches!(self, Self::Dropped | Self::Acknowledgement | Self::Credit | Self::Leave)
    }

    const fn is_matched(self) -> bool {
        matches!(self, Self::Tagged | Self::Untagged)
    }

    /// Whether it may have an immediate; data must.
    const fn may_have_immediate(self) -> bool {
        matches!(self, Self::Tagged | Self::Untagged | Self::Data)
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
///   63    16 15  11 10          9   8 7    0     64 bits     64 bits
///   | bytes | 0    | immediate | wants | kind |  | number |  | immediate, if it has one |
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: FrameKind,
    /// Which acknowledgement its sender requests; only of a message with or without a tag.
    pub wants: FrameWants,
    /// Number of bytes that follow, below 2^48; of credit, a number of messages.
    pub bytes: u64,
    /// A tag, or a number.
    pub number: u64,
    /// 64 bits that travel beside a message; of data, what is left.
    pub immediate: Option<u64>,
}

const IMMEDIATE: u64 = 1 << 10;
const RESERVED: u64 = 0xf800;

impl Header {
    /// Its bytes, of which so many count.
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> ([u8; HEADER_BYTES_MAX], usize) {
        let Self { kind, wants, bytes, number, immediate } = *self;
        let flag = if immediate.is_some() { IMMEDIATE } else { 0 };
        let word = bytes << 16 | flag | (wants as u64) << 8 | kind as u64;
        let mut all = [0; HEADER_BYTES_MAX];
        all[..8].copy_from_slice(&word.to_le_bytes());
        all[8..16].copy_from_slice(&number.to_le_bytes());
        all[16..].copy_from_slice(&immediate.unwrap_or(0).to_le_bytes());
        (all, if immediate.is_some() { HEADER_BYTES_MAX } else { HEADER_BYTES_MIN })
    }

    /// The header at the beginning of what has arrived, and its length in bytes.
    ///
    /// # Errors
    /// [`NetError::Field`].
    #[inline]
    pub fn parse(arrived: &[u8]) -> Result<Option<(Self, usize)>, NetError> {
        let Some((first, behind)) = arrived.split_first_chunk::<8>() else { return Ok(None) };
        let Some((number, behind)) = behind.split_first_chunk::<8>() else { return Ok(None) };
        let (word, number) = (u64::from_le_bytes(*first), u64::from_le_bytes(*number));
        let has_immediate = word & IMMEDIATE != 0;
        let kind = FrameKind::ALL.get(usize::from(first[0])).copied();
        let wants = match word >> 8 & 3 {
            0 => Some(FrameWants::Nothing),
            1 => Some(FrameWants::Delivery),
            2 => Some(FrameWants::Match),
            _ => None,
        };
        let (Some(kind), Some(wants), 0) = (kind, wants, word & RESERVED) else {
            return Err(NetError::Field { field: "the first word of a frame", found: word });
        };
        let bytes = word >> 16;
        let is_possible = (wants == FrameWants::Nothing || kind.is_matched())
            && (!has_immediate || kind.may_have_immediate())
            && (has_immediate || kind != FrameKind::Data)
            && (bytes == 0 || kind.has_bytes() || kind == FrameKind::Credit);
        if !is_possible {
            return Err(NetError::Field { field: "the first word of a frame", found: word });
        }
        let (immediate, length) = match (has_immediate, behind.first_chunk()) {
            (false, _) => (None, HEADER_BYTES_MIN),
            (true, Some(immediate)) => (Some(u64::from_le_bytes(*immediate)), HEADER_BYTES_MAX),
            (true, None) => return Ok(None),
        };
        if let (FrameKind::Data, Some(left)) = (kind, immediate)
            && (bytes == 0 || bytes > left)
        {
            return Err(NetError::Field { field: "what is left of a message", found: left });
        }
        Ok(Some((Self { kind, wants, bytes, number, immediate }, length)))
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
        let immediate = (kind == FrameKind::Data).then_some(7 << 20);
        let bytes = if kind.has_bytes() { 1 << 20 } else { 0 };
        Header { kind, wants: FrameWants::Nothing, bytes, number: 1 << 63 | 9, immediate }
    }

    fn is_read_as_written(header: Header) {
        let (bytes, length) = header.to_bytes();
        assert_eq!(Header::parse(&bytes[..length]), Ok(Some((header, length))));
        for some in 0..length {
            assert_eq!(Header::parse(&bytes[..some]), Ok(None), "{header:?}, {some} bytes");
        }
    }

    #[test]
    fn every_header_is_read_as_written_and_any_part_of_it_waits_for_more() {
        for kind in FrameKind::ALL {
            is_read_as_written(header(kind));
        }
        for wants in [FrameWants::Delivery, FrameWants::Match] {
            let immediate = Some(u64::MAX);
            is_read_as_written(Header { wants, immediate, ..header(FrameKind::Tagged) });
            is_read_as_written(Header { wants, bytes: 0, ..header(FrameKind::Untagged) });
        }
        let delivered = Header { bytes: (1 << 48) - 1, ..header(FrameKind::Credit) };
        is_read_as_written(delivered);
        assert_eq!(delivered.payload_bytes(), 0);
    }

    #[test]
    fn impossible_headers_are_refused_before_the_rest_has_arrived() {
        let fails = |header: Header| {
            let (bytes, _) = header.to_bytes();
            Header::parse(&bytes[..HEADER_BYTES_MIN]).is_err()
        };
        let wants = FrameWants::Match;
        for kind in FrameKind::ALL.into_iter().filter(|kind| !kind.is_matched()) {
            assert!(fails(Header { wants, ..header(kind) }), "{kind:?}");
            let immediate = if kind == FrameKind::Data { None } else { Some(1) };
            assert!(fails(Header { immediate, ..header(kind) }), "{kind:?}");
        }
        for kind in [FrameKind::Dropped, FrameKind::Acknowledgement, FrameKind::Leave] {
            assert!(fails(Header { bytes: 1, ..header(kind) }), "{kind:?}");
        }
        for word in [11, 255, 3 << 8, 1 << 11, 1 << 15] {
            let bytes = [u64::to_le_bytes(word), [0; 8]].concat();
            let found = word;
            let field = "the first word of a frame";
            assert_eq!(Header::parse(&bytes), Err(NetError::Field { field, found }));
        }
        let (bytes, _) = Header { bytes: 8 << 20, ..header(FrameKind::Data) }.to_bytes();
        assert!(Header::parse(&bytes).is_err(), "more than is left");
    }

    #[test]
    fn whatever_is_taken_for_a_header_is_written_the_same_way() {
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        let mut found = 0;
        for _ in 0..200_000 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Small kinds, so that some are possible.
            let first = word & !0xffff | word >> 40 & 0x070f;
            let bytes = [first, word.rotate_left(13), word.rotate_left(29)].map(u64::to_le_bytes);
            let bytes = bytes.concat();
            if let Ok(Some((header, length))) = Header::parse(&bytes) {
                assert_eq!(header.to_bytes().0[..length], bytes[..length]);
                found += 1;
            }
        }
        assert!(found > 1000, "{found}");
    }
}
