//! What this side sends: how much it may, and what the other has received of it.

use corewire_endpoint::transport::PeerViolation;
use corewire_layout::net::Header;

use super::whole::{Whole, refuse};

/// The most that may be under way, whatever the other side allows.
pub const CREDIT_BYTES_MAX: u64 = 4 << 20;

/// Counted from the beginning of the connection.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Bytes that may be sent altogether, and what may be under way.
    limit: u64,
    credit: u64,
    /// Bytes of the frames that were begun.
    sent: u64,
    /// Messages of which all frames were begun, and those that the other side has received.
    messages: u64,
    delivered: u64,
    whole: Whole,
}

impl Outgoing {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, credit: limit, sent: 0, messages: 0, delivered: 0, whole: Whole::default() }
    }

    #[inline]
    pub(super) fn room(&self) -> u64 {
        self.limit.saturating_sub(self.sent).min(CREDIT_BYTES_MAX)
    }

    pub(super) const fn credit(&self) -> u64 {
        self.credit
    }

    pub(super) const fn counted(&self) -> (u64, u64) {
        (self.sent, self.limit - self.credit)
    }

    pub(super) const fn traffic(&self) -> (u64, u64) {
        (self.messages, self.sent)
    }

    pub(super) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Begins a frame with a header of `length` bytes. False if there is no room for it.
    pub(super) fn has_begun(&mut self, header: &Header, length: u64) -> bool {
        let bytes = length + header.payload_bytes();
        if bytes > self.room() {
            return false;
        }
        self.sent += bytes;
        let is_in_order = self.whole.begin(header).is_ok();
        debug_assert!(is_in_order, "a frame within a message that takes several");
        self.messages += u64::from(self.whole.end(header));
        true
    }

    /// Begins a frame of so many bytes with its header, which is a message. False if there is no room for it.
    #[inline]
    pub(super) fn has_sent(&mut self, bytes: u64) -> bool {
        if bytes > self.room() {
            return false;
        }
        self.sent += bytes;
        self.messages += 1;
        true
    }

    /// The other side lets so many bytes be sent altogether, and has received so many messages; and lets more be under way than
    /// before, if it says so.
    pub(super) fn allow(
        &mut self,
        limit: u64,
        delivered: u64,
        credit: Option<u64>,
    ) -> Result<(), PeerViolation> {
        if let Some(credit) = credit {
            if !(self.credit + 1..=limit).contains(&credit) {
                return refuse("what may be under way", credit);
            }
            self.credit = credit;
        }
        if limit < self.limit {
            return refuse("credit, which was more before,", limit);
        }
        if !(self.delivered..=self.messages).contains(&delivered) {
            return refuse("the number of messages received", delivered);
        }
        if (limit, delivered) == (self.limit, self.delivered) {
            // It costs no credit: a side that sends one after the other would keep this one from everything else.
            return refuse("credit, which is no more than before,", limit);
        }
        (self.limit, self.delivered) = (limit, delivered);
        Ok(())
    }
}
