//! Large messages: an engine as small as possible around the words of rendezvous. What the kernel copies between two
//! processes, the world copies here, as long as both live.

use corewire_layout::rendezvous::{
    Notice, OFFERS_MAX, Offer, OfferWants, OfferedSpace, Verb, offer_index,
};
use corewire_ring::message::{Envelope, Space};
use corewire_ring::pair::{Helper, Puller};
use corewire_ring::sync::Ordering::Relaxed;

use super::{CHUNKS, LARGE, Party, Role};
use crate::engine::content;
use crate::ensure;

/// What a sender's memory holds when a large message no longer needs it.
const REUSED: u8 = 0xfe;

/// A large message, as its sender knows it.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) number: u64,
    pub(super) content: Vec<u8>,
    /// Where the message lies, until the memory is used for something else.
    pub(super) memory: Vec<u8>,
    pub(super) stage: Offering,
    pub(super) helper: Option<Helper>,
    /// The chunk that it is copying.
    pub(super) claimed: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offering {
    /// Its receiver may read it.
    Valid,
    /// It was never sent.
    Cancelled,
    /// It follows as data.
    Pushed,
    /// Its receiver has it.
    Done,
}

/// A large message, as its receiver knows it.
#[derive(Debug)]
pub(super) struct Pull {
    pub(super) number: u64,
    pub(super) puller: Option<Puller>,
    pub(super) target: Vec<u8>,
    /// How often each chunk was copied.
    pub(super) copies: [u8; CHUNKS as usize],
    pub(super) stage: Pulling,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pulling {
    Queued,
    On,
    /// It waits for its sender to stop; then it asks for data, if that is set.
    Stopping(bool),
    /// Data follows, or word that none does.
    Awaited,
}

/// A word between two engines.
pub(super) type Word = (Envelope, Vec<u8>);

/// The words from one endpoint to another.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Every word that was sent or was about to be sent.
    pub(super) sent: Vec<Word>,
    pub(super) finished: u64,
    /// Number of words received.
    pub(super) got: u64,
    /// Words that wait for room.
    late: std::collections::VecDeque<Word>,
}

impl Party {
    /// Offers a large message. Returns false if there is no room for the offer.
    pub(super) fn offer(&mut self, to: Role) -> bool {
        // A word that waits may be about an earlier offer of the same place in the table.
        if !self.talk(to).words.late.is_empty() {
            return false;
        }
        let Some(number) = self.pairs.make_offer(to.0) else { return false };
        let content = content(number >> 16, LARGE);
        self.talk(to).offers.push(Offered {
            number,
            memory: content.clone(),
            content,
            stage: Offering::Valid,
            helper: None,
            claimed: None,
        });
        let offer = Offer {
            number,
            total: LARGE as u64,
            space: OfferedSpace::Tagged,
            wants: OfferWants::Nothing,
            immediate: None,
            is_blocking: false,
        };
        let is_sent = self.send_word(to, (numbered(Space::Offer, 0), offer.to_bytes().to_vec()));
        if !is_sent {
            self.pairs.end_offer(number);
            self.talk(to).offers.pop();
        }
        is_sent
    }

    /// Takes the first valid offer back. If its receiver may have begun, the message follows as data.
    pub(super) fn withdraw(&mut self, to: Role) {
        let Some(number) = self.first_offer(to) else { return };
        self.stop_helping(to, number);
        let is_unsent = self.pairs.withdraw_offer(to.0, number);
        let offered = self.offered(to, number);
        offered.memory.fill(REUSED);
        if is_unsent {
            offered.stage = Offering::Cancelled;
            self.notify(to, number, Verb::Cancelled);
        } else {
            self.push(to, number);
        }
    }

    /// Ends all offers at once, as an endpoint does that is closed. Here it goes on, and sends the messages as data.
    pub(super) fn end_offers(&mut self, to: Role) {
        self.pairs.end_offers();
        while let Some(number) = self.first_offer(to) {
            self.stop_helping(to, number);
            self.ended_at_once += 1;
            self.offered(to, number).memory.fill(REUSED);
            self.push(to, number);
        }
    }

    /// Its receiver needs the sender's memory no more, or cannot read it.
    pub(super) fn end_offer(&mut self, to: Role, number: u64, verb: Verb) {
        if self.offered(to, number).stage != Offering::Valid {
            // The two words have crossed.
            return;
        }
        self.stop_helping(to, number);
        self.pairs.end_offer(number);
        self.offered(to, number).memory.fill(REUSED);
        if verb == Verb::Done {
            self.offered(to, number).stage = Offering::Done;
        } else {
            self.push(to, number);
        }
    }

    /// Sends the message as data.
    fn push(&mut self, to: Role, number: u64) {
        let offered = self.offered(to, number);
        offered.stage = Offering::Pushed;
        let bytes = offered.content.clone();
        self.send_word_in_the_end(to, (numbered(Space::Data, number), bytes));
    }

    fn stop_helping(&mut self, to: Role, number: u64) {
        let offered = self.offered(to, number);
        if let Some(mut helper) = offered.helper.take()
            && offered.claimed.take().is_some()
        {
            helper.give_up();
        }
    }

    /// The peer is gone: its messages, as far as it has not received them, stay here.
    pub(super) fn end_offers_to(&mut self, gone: Role) {
        for index in 0..self.talk(gone).offers.len() {
            let number = self.talk(gone).offers[index].number;
            if self.talk(gone).offers[index].stage == Offering::Valid {
                self.pairs.end_offer(number);
                let word = offer_index(number).map(|index| self.memory.offer(index).load(Relaxed));
                ensure!(word == Some(0), "an offer to the dead row {} stays valid", gone.0);
            }
        }
        self.talk(gone).offers.clear();
        self.talk(gone).pulls.clear();
    }

    /// The number of the first valid offer to a peer.
    pub(super) fn first_offer(&mut self, to: Role) -> Option<u64> {
        let mut offers = self.talk(to).offers.iter();
        offers.find(|it| it.stage == Offering::Valid).map(|it| it.number)
    }

    /// An offer that was made.
    pub(super) fn offered(&mut self, to: Role, number: u64) -> &mut Offered {
        let row = self.role.0;
        let found = self.talk(to).offers.iter_mut().find(|it| it.number == number);
        ensure!(found.is_some(), "offer {number} of row {row} is invented");
        found.expect("just checked")
    }

    /// Whether all places of the table can be used. Those of offers that were all ended at once are not used again.
    pub(super) fn use_all_offers(&mut self, to: Role) {
        let numbers: Vec<_> = std::iter::from_fn(|| self.pairs.make_offer(to.0)).collect();
        let count = numbers.len() + self.ended_at_once;
        ensure!(count == usize::from(OFFERS_MAX), "room for {count} offers, not {OFFERS_MAX}");
        numbers.iter().for_each(|&number| self.pairs.end_offer(number));
    }

    /// Tells a peer about an offer, at once or when there is room.
    pub(super) fn notify(&mut self, to: Role, number: u64, verb: Verb) {
        let bytes = Notice { verb, offset: 0 }.to_bytes().to_vec();
        self.send_word_in_the_end(to, (numbered(Space::Notice, number), bytes));
    }

    fn send_word_in_the_end(&mut self, to: Role, word: Word) {
        self.talk(to).words.late.push_back(word);
        self.send_late_words(to);
    }

    /// Sends the words that wait, as far as there is room. Returns whether any was sent.
    pub(super) fn send_late_words(&mut self, to: Role) -> bool {
        let mut is_sent = false;
        while let Some(word) = self.talk(to).words.late.front().cloned()
            && self.send_word(to, word)
        {
            self.talk(to).words.late.pop_front();
            is_sent = true;
        }
        is_sent
    }

    fn send_word(&mut self, to: Role, (envelope, bytes): Word) -> bool {
        if self.talk(to).under_way > 0 {
            return false;
        }
        self.talk(to).words.sent.push((envelope, bytes.clone()));
        loop {
            if self.pairs.try_send_beside(to.0, &envelope, &bytes) {
                self.talk(to).words.finished += 1;
                return true;
            }
            if !self.make_slot(to) {
                self.talk(to).words.sent.pop();
                return false;
            }
        }
    }
}

fn numbered(space: Space, number: u64) -> Envelope {
    Envelope::numbered(space, number)
}
