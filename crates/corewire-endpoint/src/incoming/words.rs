//! Offers and notices as they arrive: words of another engine about one large message, about grants, or about
//! exposed memory.

use corewire_layout::rendezvous::{Notice, Offer, Verb, WORDS_BYTES_MAX};
use corewire_ring::message::{Arrival, Envelope, Space};

use super::{Incoming, Place};
use crate::caller::Caller;
use crate::peers::Peers;
use crate::transport::{PeerViolation, Transport};

impl Incoming {
    /// Takes the first fragment of an offer or a notice. False if the peer was cut off.
    pub(super) fn begin_words<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        arrival: &Arrival,
    ) -> bool {
        if arrival.total > WORDS_BYTES_MAX {
            peers.cut_off(row, PeerViolation { word: "total", found: arrival.total, position: 0 });
            return false;
        }
        self.rows[row as usize].words.clear();
        self.set_place(row, Place::Words, arrival.total);
        true
    }

    /// All of an offer or a notice has arrived.
    pub(super) fn handle_words<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        envelope: &Envelope,
        caller: Option<&mut Caller<'_>>,
    ) {
        let bytes = std::mem::take(&mut self.rows[row as usize].words);
        let number = envelope.tag;
        if envelope.space == Space::Offer {
            match Offer::parse(&bytes) {
                Some((offer, place)) => {
                    self.handle_offer(peers, row, number, &offer, place, caller)
                }
                None => {
                    peers.cut_off(row, PeerViolation { word: "offer", found: number, position: 0 })
                }
            }
        } else {
            match Notice::parse(&bytes) {
                Some((notice, place)) => {
                    self.handle_notice(peers, row, number, notice, place, caller)
                }
                None => {
                    peers
                        .cut_off(row, PeerViolation { word: "notice", found: number, position: 0 });
                }
            }
        }
        // The memory is used again.
        self.rows[row as usize].words = bytes;
    }

    fn handle_notice<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        number: u64,
        notice: Notice,
        place: &[u8],
        caller: Option<&mut Caller<'_>>,
    ) {
        match notice.verb {
            Verb::Answer => peers.begin_help(row, number, notice.offset, place),
            Verb::Done => peers.offer_is_done(row, number),
            Verb::Push => peers.push_offered(row, number, notice.offset),
            Verb::Refuse => peers.refuse_offered(row, number, notice.offset),
            Verb::Cancelled => self.offer_is_cancelled(peers, row, number, caller),
            // The call that waits for it has been woken.
            Verb::Helped => {}
            Verb::Access => peers.handle_access(row, number, notice.offset, place),
            Verb::Accessed => peers.handle_answer(row, number, notice.offset, place),
            Verb::Grant | Verb::Want | Verb::Kept => peers.handle_grant(row, number, notice),
        }
    }
}
