//! What the other side sends: how much it may, and how far it has been taken.

use corewire_endpoint::transport::PeerViolation;
use corewire_layout::net::{FRAME_BYTES_MAX, HEADER_BYTES_MAX, Header};

use super::whole::{Whole, refuse};

/// After so many frames the other side is told, however short they are, once all that has arrived was taken: it may have sent
/// each by itself, and lets no more of such be under way than its kernel and this one's keep well.
const FRAMES_UNTOLD_MAX: u32 = 64;

/// The longest frame.
const WHOLE_BYTES: u64 = FRAME_BYTES_MAX + HEADER_BYTES_MAX as u64;

/// What lies at the head of what has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// More must arrive first.
    More,
    /// A frame for the engine, of which so many bytes have been passed.
    Frame(Header, u64),
    /// A pull, a void or a stop. It has been passed.
    Word(Header),
    /// The other side has closed its endpoint. Nothing follows.
    Left,
}

/// Counted from the beginning of the connection.
#[derive(Debug)]
pub(super) struct Incoming {
    /// What may be under way.
    credit: u64,
    /// Bytes of frames that were taken.
    taken: u64,
    /// Messages that were taken whole.
    messages: u64,
    /// What the other side was told last: what it may send altogether, and how many messages have arrived.
    told_limit: u64,
    told_messages: u64,
    told_credit: u64,
    /// Frames that were taken since.
    frames: u32,
    /// The frame at the head, and how many of its bytes were taken.
    head: Option<(Header, u64)>,
    whole: Whole,
    has_left: bool,
}

impl Incoming {
    pub(super) fn new(credit: u64) -> Self {
        Self {
            credit,
            taken: 0,
            messages: 0,
            told_limit: credit,
            told_messages: 0,
            told_credit: credit,
            frames: 0,
            head: None,
            whole: Whole::default(),
            has_left: false,
        }
    }

    pub(super) const fn traffic(&self) -> (u64, u64) {
        (self.messages, self.taken)
    }

    /// What lies at the head, if that is known.
    pub(super) fn head(&self) -> Option<Head> {
        match self.head {
            Some((header, taken)) => Some(Head::Frame(header, taken)),
            None => self.has_left.then_some(Head::Left),
        }
    }

    /// Nothing follows. A message of which only a part has come never was.
    pub(super) fn leave(&mut self) {
        self.has_left = true;
    }

    pub(super) fn begin(&mut self, header: Header, length: u64) -> Result<(), PeerViolation> {
        self.take(length)?;
        self.whole.begin(&header)?;
        self.head = Some((header, 0));
        Ok(())
    }

    pub(super) fn pass(&mut self, bytes: u64, is_wanted: bool) -> Result<bool, PeerViolation> {
        self.take(bytes)?;
        let Some((header, taken)) = &mut self.head else { return Ok(true) };
        *taken += bytes;
        debug_assert!(*taken <= header.payload_bytes(), "more than the frame has");
        if *taken < header.payload_bytes() {
            return Ok(false);
        }
        self.messages += u64::from(self.whole.end(header) && is_wanted);
        self.head = None;
        self.frames = self.frames.saturating_add(1);
        Ok(true)
    }

    /// Takes a whole frame of so many bytes at once, which is a message. False if something else is at the head.
    #[inline]
    pub(super) fn is_taken(&mut self, bytes: u64) -> bool {
        let is_next = self.head.is_none() && self.whole.is_between() && !self.has_left;
        let taken = self.taken + bytes;
        if !is_next || taken > self.told_limit {
            return false;
        }
        self.taken = taken;
        self.messages += 1;
        self.frames = self.frames.saturating_add(1);
        true
    }

    /// Takes bytes that the other side may have sent.
    fn take(&mut self, bytes: u64) -> Result<(), PeerViolation> {
        self.taken += bytes;
        match self.taken <= self.told_limit {
            true => Ok(()),
            false => refuse("bytes sent altogether, more than allowed,", self.taken),
        }
    }

    /// Whether the other side waits to be told that it may send more, or soon will. `is_all`: all that has arrived was taken;
    /// `is_pulling`: pieces come, of which not much is under way.
    pub(super) fn is_credit_due(&self, is_all: bool, is_pulling: bool) -> bool {
        let untold = self.taken + self.credit - self.told_limit;
        // A whole frame always finds room.
        let part = self.credit.div_ceil(if is_pulling { 4 } else { 2 });
        let most = part.min(self.credit.saturating_sub(WHOLE_BYTES)).max(1);
        untold >= most || is_all && self.frames >= FRAMES_UNTOLD_MAX
    }

    /// Whether what the other side may send, or how many of its messages have arrived, is more than it was told.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.taken + self.credit != self.told_limit || self.messages != self.told_messages
    }

    /// So many bytes may be under way from now on.
    pub(super) fn grow(&mut self, credit: u64) {
        self.credit = self.credit.max(credit);
    }

    /// What the other side may send altogether, how many of its messages have arrived, and what may be under way, if that is more
    /// than before. `None` if nothing is new.
    pub(super) fn credit(&mut self) -> Option<(u64, u64, Option<u64>)> {
        if !self.has_news() {
            return None;
        }
        let limit = self.taken + self.credit;
        let grown = (self.credit > self.told_credit).then_some(self.credit);
        (self.told_limit, self.told_messages, self.frames) = (limit, self.messages, 0);
        self.told_credit = self.credit;
        Some((limit, self.messages, grown))
    }
}
