//! Words between two engines: acknowledgements, and notices about one large message or about grants.

use corewire_layout::rendezvous::{NOTICE_BYTES, Notice, OFFERS_MAX, Verb};
use corewire_ring::message::{Envelope, Space, Wants};

use super::Peers;
use super::row::{Pending, Unacknowledged};
use super::sends::ack;
use crate::rendezvous::NoticeBytes;
use crate::transport::Transport;

impl<T: Transport> Peers<T> {
    /// Tells the peer of `row` about the offer with this number, at once or when there is room.
    pub(crate) fn notify(&mut self, row: u32, number: u64, verb: Verb, offset: u64) {
        self.notify_of_place(row, number, verb, offset, &[]);
    }

    pub(crate) fn notify_of_place(
        &mut self,
        row: u32,
        number: u64,
        verb: Verb,
        offset: u64,
        place: &[u8],
    ) {
        let mut bytes = NoticeBytes::with_capacity(NOTICE_BYTES + place.len());
        bytes.extend_from_slice(&Notice { verb, offset }.to_bytes());
        bytes.extend_from_slice(place);
        self.notify_by(row, number, bytes);
    }

    /// The same, of the bytes of a notice.
    pub(super) fn notify_by(&mut self, row: u32, number: u64, bytes: NoticeBytes) {
        let entry = &mut self.rows[row as usize];
        if entry.gone.is_some() {
            return;
        }
        entry.notices.push_back((number, bytes));
        self.send_words(row);
        if self.rows[row as usize].has_words() && !self.senders.contains(&row) {
            self.senders.push(row);
        }
    }

    /// Sends the notices for which there is room, unless a message to this peer is incomplete.
    fn send_notices(&mut self, row: u32) -> bool {
        let mut has_news = false;
        while self.rows[row as usize].is_between_messages()
            && let Some((number, bytes)) = self.rows[row as usize].notices.pop_front()
        {
            let envelope = Envelope::numbered(Space::Notice, number);
            let mut sent = 0;
            match self.push(row, &envelope, &bytes.as_slice(), &mut sent) {
                Ok(true) => has_news = true,
                // A long answer goes on when there is room.
                Ok(false) if sent > 0 => {
                    let pending =
                        Pending { sent, ..Pending::new(envelope, bytes.into_vec().into()) };
                    self.send_later(row, pending);
                    return true;
                }
                Ok(false) => {
                    self.rows[row as usize].notices.push_front((number, bytes));
                    return has_news;
                }
                Err(_) => return has_news,
            }
        }
        has_news
    }

    /// Sends the acknowledgements and notices for which there is room, unless a message to this peer is incomplete.
    pub(super) fn send_words(&mut self, row: u32) -> bool {
        let mut has_news = self.send_notices(row);
        while let entry = &self.rows[row as usize]
            && entry.is_between_messages()
            && let Some(&number) = entry.acks.front()
        {
            let nothing: &[u8] = &[];
            if !matches!(self.push(row, &ack(number), &nothing, &mut 0), Ok(true)) {
                break;
            }
            has_news = true;
            self.rows[row as usize].acks.pop_front();
        }
        let entry = &mut self.rows[row as usize];
        if !entry.has_words() && std::mem::take(&mut entry.is_muted) {
            self.transport.release(row);
        }
        has_news
    }

    /// The peer of `row` has acknowledged the `number`-th message that requested it.
    pub(crate) fn handle_ack(&mut self, row: u32, number: u64) {
        let entry = &mut self.rows[row as usize];
        let unacknowledged = &mut entry.unacknowledged;
        let is_it = |it: &Unacknowledged| !it.is_offer && it.number == number;
        let Some(index) = unacknowledged.iter().position(is_it) else {
            if let Some(pending) = entry.sends.front_mut()
                && pending.sent > 0
                && number == entry.sent_for_ack + 1
            {
                pending.is_acked = true;
            }
            return;
        };
        if let Some(Unacknowledged { operation, status, memory, .. }) = unacknowledged.remove(index)
        {
            self.has_news = true;
            self.operations.end(operation, Ok(status), Some(memory));
        }
    }

    /// Acknowledges the `number`-th message of `row` that requests it, at once or when there is room.
    pub(crate) fn acknowledge(&mut self, row: u32, number: u64) {
        let entry = &mut self.rows[row as usize];
        if entry.gone.is_some() {
            return;
        }
        entry.acks.push_back(number);
        self.send_words(row);
        if self.rows[row as usize].has_words() && !self.senders.contains(&row) {
            self.senders.push(row);
        }
    }

    /// Whether this message must stay with its sender, because too many acknowledgements to that sender wait for
    /// room. The row is then muted until there is room again.
    pub(crate) fn mute_if_behind(&mut self, row: u32, envelope: &Envelope) -> bool {
        let acks_max = self.acks_max;
        let entry = &mut self.rows[row as usize];
        let wants_ack = envelope.wants != Wants::Nothing;
        let has_too_many = (wants_ack && entry.acks.len() >= acks_max)
            || (envelope.space == Space::Offer && entry.notices.len() >= NOTICES_MAX);
        let is_muted = entry.gone.is_none() && has_too_many;
        if is_muted {
            entry.is_muted = true;
            self.transport.hold(row);
        }
        is_muted
    }
}

/// Acknowledgements that may wait for room towards a peer, besides those of kept messages.
const ACKS_MAX: usize = 256;

/// Notices that may wait for room towards a peer when it offers another message.
const NOTICES_MAX: usize = 2 * OFFERS_MAX as usize;

/// The maximum number of acknowledgements that may wait for room towards a peer of which up to `kept` messages are
/// kept. A message that was kept has left its ring before it is acknowledged, so this covers all that may be kept.
pub(super) fn acks_max(kept: u64) -> usize {
    usize::try_from(kept).unwrap_or(usize::MAX).saturating_mul(2).saturating_add(ACKS_MAX)
}
