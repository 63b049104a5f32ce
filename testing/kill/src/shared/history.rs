//! What was sent, and what became of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::broadcast::content;
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
    fates: BTreeMap<u64, Fate>,
    /// The sequence numbers whose stamps said so before the deaths.
    published: BTreeSet<u64>,
}

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
        self.published.insert(sequence);
        let fate = self.fates.get(&sequence);
        ensure!(fate != Some(&Fate::Abandoned), "message {sequence}, published, was passed");
    }

    /// Above every message that was published before the deaths.
    pub(super) fn published_end(&self) -> u64 {
        self.published.last().map_or(0, |last| last + 1)
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
            let is_published = self.published.contains(&sequence);
            ensure!(!is_published, "message {sequence}, published, is passed");
            self.agree(sequence, Fate::Abandoned);
        }
    }

    fn agree(&mut self, sequence: u64, fate: Fate) {
        let first = *self.fates.entry(sequence).or_insert(fate);
        ensure!(first == fate, "message {sequence} is {first:?} to one, {fate:?} to another");
    }

    /// All that came, came once, and in the order of its sender; if `is_complete`, all has come that
    /// was sent.
    pub(super) fn check(&self, is_complete: bool) {
        let mut last = BTreeMap::new();
        let mut received = BTreeSet::new();
        for fate in self.fates.values() {
            let Fate::Received(number) = *fate else { continue };
            ensure!(received.insert(number), "message number {number} came twice");
            let before = last.insert(self.sent[number].sender, number);
            ensure!(before < Some(number), "message number {number} after {before:?}");
        }
        for (number, message) in self.sent.iter().enumerate().filter(|_| is_complete) {
            let is_due = message.sending == Sending::Done;
            ensure!(!is_due || received.contains(&number), "message number {number} is lost");
        }
    }
}
