//! Notices: words between two engines about one large message.

use corewire_layout::rendezvous::{Notice, Offer, Verb, WORDS_BYTES_MAX};
use corewire_ring::message::{Arrival, Envelope, Space};
use corewire_ring::pair::PairViolation;

use crate::caller::Caller;
use crate::engine::Engine;
use crate::row::{Pending, Place};
use crate::transport::Transport;

impl<T: Transport> Engine<T> {
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
        let entry = &mut self.rows[row as usize];
        if entry.gone.is_some() {
            return;
        }
        let mut bytes = Notice { verb, offset }.to_bytes().to_vec();
        bytes.extend_from_slice(place);
        entry.notices.push_back((number, bytes));
        self.send_words(row);
        if self.rows[row as usize].has_words() && !self.senders.contains(&row) {
            self.senders.push(row);
        }
    }

    /// Sends the notices for which there is room, unless a message to this peer is incomplete.
    pub(crate) fn send_notices(&mut self, row: u32) -> bool {
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
                    let pending = Pending { sent, ..Pending::new(envelope, bytes.into()) };
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

    /// Takes the first fragment of an offer or a notice. False if the peer was cut off.
    pub(crate) fn begin_words(&mut self, row: u32, arrival: &Arrival) -> bool {
        if arrival.total > WORDS_BYTES_MAX {
            self.cut_off(row, PairViolation { word: "total", found: arrival.total, position: 0 });
            return false;
        }
        self.rows[row as usize].words.clear();
        self.set_place(row, Place::Words, arrival.total);
        true
    }

    /// All of an offer or a notice has arrived.
    pub(crate) fn handle_words(
        &mut self,
        row: u32,
        envelope: &Envelope,
        caller: Option<&mut Caller<'_>>,
    ) {
        let bytes = std::mem::take(&mut self.rows[row as usize].words);
        let number = envelope.tag;
        if envelope.space == Space::Offer {
            match Offer::parse(&bytes) {
                Some((offer, place)) => self.handle_offer(row, number, &offer, place, caller),
                None => {
                    self.cut_off(row, PairViolation { word: "offer", found: number, position: 0 })
                }
            }
        } else {
            match Notice::parse(&bytes) {
                Some((notice, place)) => self.handle_notice(row, number, notice, place, caller),
                None => {
                    self.cut_off(row, PairViolation { word: "notice", found: number, position: 0 });
                }
            }
        }
        // The memory is used again.
        self.rows[row as usize].words = bytes;
    }

    fn handle_notice(
        &mut self,
        row: u32,
        number: u64,
        notice: Notice,
        place: &[u8],
        caller: Option<&mut Caller<'_>>,
    ) {
        match notice.verb {
            Verb::Answer => self.begin_help(row, number, notice.offset, place),
            Verb::Done => self.offer_is_done(row, number),
            Verb::Push => self.push_offered(row, number, notice.offset),
            Verb::Refuse => {
                self.rows[row as usize].refuses_offers = true;
                self.push_offered(row, number, notice.offset);
            }
            Verb::Cancelled => self.offer_is_cancelled(row, number, caller),
            // The call that waits for it has been woken.
            Verb::Helped => {}
            Verb::Grant | Verb::Want | Verb::Kept => self.handle_grant(row, number, notice),
        }
    }
}
