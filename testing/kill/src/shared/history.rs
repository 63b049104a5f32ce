//! What was sent, and what became of it.

use super::ROWS;
use crate::engine::content;
use crate::engine::fail;
use crate::ensure;

/// What is known of a message's sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// Its sender has not come to the end of it, and may have died.
    Begun,
    /// The call has said that it is sent.
    Done,
    /// The call has said that it is not.
    GivenUp,
}

/// What a sequence number came to, as the first receiver found that passed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It brought a message.
    Received(usize),
    /// Its claimer is dead.
    Abandoned,
}

#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    sender: usize,
    sending: Sending,
}

/// All messages, in the order in which their sending began.
#[derive(Debug, Default)]
pub struct History {
    sent: Vec<Message>,
    /// By sequence number.
    places: Vec<Place>,
}

/// What is known of a sequence number.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    fate: Option<Fate>,
    /// Its stamp said so before the deaths.
    is_published: bool,
}

/// Places of senders.
const SENDERS: usize = ROWS as usize;
/// No sequence number is so far above the others.
const PLACES_MAX: usize = 1000;
/// The least bytes of a message: its number, and some more.
const NAME_BYTES: usize = 8;

impl History {
    /// A message that `sender` is about to send.
    pub(super) fn begin(&mut self, sender: usize, bytes: usize) -> (usize, Vec<u8>) {
        let number = self.sent.len();
        let mut content = content(number as u64, bytes);
        content[..NAME_BYTES].copy_from_slice(&(number as u64).to_le_bytes());
        self.sent.push(Message { bytes: content.clone(), sender, sending: Sending::Begun });
        (number, content)
    }

    pub(super) fn end(&mut self, number: usize, is_sent: bool) {
        self.sent[number].sending = if is_sent { Sending::Done } else { Sending::GivenUp };
    }

    /// A stamp says that this one is published.
    pub(super) fn publish(&mut self, sequence: u64) {
        let place = self.place(sequence);
        place.is_published = true;
        let fate = place.fate;
        ensure!(fate != Some(Fate::Abandoned), "message {sequence}, published, was passed");
    }

    fn place(&mut self, sequence: u64) -> &mut Place {
        let index = usize::try_from(sequence).unwrap_or(usize::MAX);
        ensure!(index <= self.places.len() + PLACES_MAX, "message {sequence} is far ahead");
        if index >= self.places.len() {
            self.places.resize(index + 1, Place::default());
        }
        &mut self.places[index]
    }

    /// Above every message that was published before the deaths.
    pub(super) fn published_end(&self) -> u64 {
        self.places.iter().rposition(|place| place.is_published).map_or(0, |last| last as u64 + 1)
    }

    /// A receiver has passed `from..sequence`, and got this message.
    pub(super) fn receive(&mut self, from: u64, sequence: u64, bytes: &[u8]) {
        self.pass(from, sequence);
        let name = bytes.first_chunk().map(|name| u64::from_le_bytes(*name));
        let number = name.and_then(|name| usize::try_from(name).ok());
        let known = number.and_then(|number| Some((number, self.sent.get(number)?)));
        let Some((number, message)) = known else {
            fail(format!("message {sequence} is invented, or torn: {bytes:?}"))
        };
        ensure!(message.bytes == bytes, "message {sequence} is torn: {bytes:?}");
        ensure!(message.sending != Sending::GivenUp, "message {sequence} was given up");
        self.agree(sequence, Fate::Received(number));
    }

    /// A receiver has passed these without a message.
    pub(super) fn pass(&mut self, from: u64, to: u64) {
        for sequence in from..to {
            let is_published = self.place(sequence).is_published;
            ensure!(!is_published, "message {sequence}, published, is passed");
            self.agree(sequence, Fate::Abandoned);
        }
    }

    fn agree(&mut self, sequence: u64, fate: Fate) {
        let first = *self.place(sequence).fate.get_or_insert(fate);
        ensure!(first == fate, "message {sequence} is {first:?} to one, {fate:?} to another");
    }

    /// All that came, came once, and in the order of its sender; if `is_complete`, all has come that
    /// was sent.
    pub(super) fn check(&self, is_complete: bool) {
        let mut last = [None; SENDERS];
        let mut received = vec![false; self.sent.len()];
        for fate in self.places.iter().filter_map(|place| place.fate) {
            let Fate::Received(number) = fate else { continue };
            ensure!(!received[number], "message number {number} came twice");
            received[number] = true;
            let before = last[self.sent[number].sender].replace(number);
            ensure!(before < Some(number), "message number {number} after {before:?}");
        }
        for (message, is_received) in self.sent.iter().zip(received).filter(|_| is_complete) {
            let is_due = message.sending == Sending::Done;
            ensure!(!is_due || is_received, "a message is lost: {:?}", message.bytes);
        }
    }
}
