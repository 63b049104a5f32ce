//! Which messages were sent, and what became of each.

use super::ROWS;
use crate::engine::content;
use crate::engine::fail;
use crate::ensure;

/// What is known about the sending of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// Its sender has not finished the call, and may have died.
    Begun,
    /// The call has returned that the message is sent.
    Done,
    /// The call has returned that the message is not sent.
    GivenUp,
}

/// What became of a sequence number, as reported by the first receiver that passed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It brought a message.
    Received(usize),
    /// The sender that claimed it is dead.
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
    /// Indexed by sequence number.
    places: Vec<Place>,
}

/// What is known about a sequence number.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    fate: Option<Fate>,
    /// Whether its stamp said that it is published before the deaths.
    is_published: bool,
}

/// Number of places for senders.
const SENDERS: usize = ROWS as usize;
/// No sequence number lies this far above the others.
const PLACES_MAX: usize = 1000;
/// Bytes of the message's number, with which each message begins.
const NAME_BYTES: usize = 8;

impl History {
    /// Records that `sender` is about to send a message. Returns the message's number and content.
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

    /// Records that a stamp says that this message is published.
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

    /// The sequence number above every message that was published before the deaths.
    pub(super) fn published_end(&self) -> u64 {
        self.places.iter().rposition(|place| place.is_published).map_or(0, |last| last as u64 + 1)
    }

    /// Records that a receiver has passed `from..sequence` and received this message at `sequence`.
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

    /// Records that a receiver has passed `from..to` without a message.
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

    /// Checks that each received message arrived once and in the order of its sender. If
    /// `is_complete`, also checks that every message that was sent arrived.
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
