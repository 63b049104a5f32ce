//! One rank's part of the protocol, without input and output.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// What every message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Header {
    /// The number of the sender's last checkpoint.
    pub number: u64,
    /// Which of the messages from this sender to this receiver it is, from 1.
    pub index: u64,
}

/// A message that its receiver may need again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sent<B> {
    /// What it carried.
    pub header: Header,
    /// Its content.
    pub bytes: B,
}

/// What a checkpoint holds besides the program's state.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mark<B> {
    /// Its number. The numbers of a rank grow, and may skip some. The beginning has number 0.
    pub number: u64,
    /// How many messages were sent to each rank.
    pub sent: Vec<u64>,
    /// How many messages of each rank were processed.
    pub received: Vec<u64>,
    /// The messages to each rank that may be missing in a state that this one is restored with.
    pub unsettled: Vec<VecDeque<Sent<B>>>,
}

impl<B: Clone> Mark<B> {
    /// Makes this checkpoint stand for an earlier one of the same rank as well, so that only this one need be written. False
    /// if it cannot: something was received between them.
    ///
    /// A line that falls on the earlier one restores this one instead. What was sent between them carries the earlier one's
    /// number, so its receivers have taken a checkpoint of that number before, and get it again.
    pub fn stand_for(&mut self, earlier: &Self, rules: PartRules) -> bool {
        if self.received != earlier.received && !rules.stands_for_any() {
            return false;
        }
        let kept = self.unsettled.iter_mut().zip(&earlier.unsettled);
        for (own, before) in kept.filter(|_| !rules.keeps_its_own()) {
            // It was settled since, by a checkpoint behind that line.
            let first = own.front().map_or(u64::MAX, |sent| sent.header.index);
            let missing = before.iter().rev().filter(|sent| sent.header.index < first);
            missing.for_each(|sent| own.push_front(sent.clone()));
        }
        true
    }
}

/// What to do with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Process it. It counts as processed.
    Process,
    /// Take a checkpoint with this number first, and ask again.
    CheckpointFirst(u64),
    /// It was processed already. Forget it.
    Again,
    /// A message before it is missing.
    Gap,
}

/// Which rule is broken on purpose, so that the model checker can show that it finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PartRules {
    #[cfg(feature = "test-hooks")]
    pub(crate) broken: Option<BrokenPart>,
}

/// A rule that can be broken.
#[cfg(feature = "test-hooks")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BrokenPart {
    /// A checkpoint comes before a message of a later interval.
    CheckpointsFirst,
    /// A message is settled by a checkpoint of its receiver only if the sender's next one is not earlier.
    SettlesByEarlierOnes,
    /// A checkpoint holds the messages that may be missing.
    KeepsUnsettled,
    /// A message that comes again is not processed again.
    ForgetsRepeated,
    /// A checkpoint stands for an earlier one only if nothing was received between them.
    StandsForItsEqual,
    /// A checkpoint that stands for an earlier one holds what may be missing there, too.
    KeepsWhatEarlierOnesKept,
}

#[cfg(feature = "test-hooks")]
impl PartRules {
    /// All rules but this one.
    #[must_use]
    pub const fn without(broken: BrokenPart) -> Self {
        Self { broken: Some(broken) }
    }
}

macro_rules! rules {
    ($($name:ident => $broken:ident;)*) => {
        impl PartRules {
            $(
                #[inline(always)]
                const fn $name(self) -> bool {
                    #[cfg(feature = "test-hooks")]
                    return matches!(self.broken, Some(BrokenPart::$broken));
                    #[cfg(not(feature = "test-hooks"))]
                    false
                }
            )*
        }
    };
}

rules! {
    processes_at_once => CheckpointsFirst;
    settles_by_any => SettlesByEarlierOnes;
    keeps_nothing => KeepsUnsettled;
    processes_twice => ForgetsRepeated;
    stands_for_any => StandsForItsEqual;
    keeps_its_own => KeepsWhatEarlierOnesKept;
}

/// A rank's part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Part<B> {
    mark: Mark<B>,
    rules: PartRules,
}

impl<B: Clone> Part<B> {
    /// At the beginning, with so many ranks.
    #[must_use]
    pub fn new(ranks: usize, rules: PartRules) -> Self {
        let unsettled = std::iter::repeat_with(VecDeque::new).take(ranks).collect();
        let mark = Mark { number: 0, sent: vec![0; ranks], received: vec![0; ranks], unsettled };
        Self { mark, rules }
    }

    /// As it was at a checkpoint. The messages that may be [missing](Self::unsettled) must be sent again.
    #[must_use]
    pub fn restore(mark: Mark<B>, rules: PartRules) -> Self {
        Self { mark, rules }
    }

    /// What is to be in a checkpoint that is taken now.
    #[must_use]
    pub fn mark(&self) -> &Mark<B> {
        &self.mark
    }

    /// The number of the last checkpoint.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.mark.number
    }

    /// A message is sent to this rank. Returns what it carries.
    pub fn send(&mut self, to: usize, bytes: B) -> Header {
        self.mark.sent[to] += 1;
        let header = Header { number: self.mark.number, index: self.mark.sent[to] };
        if !self.rules.keeps_nothing() {
            self.mark.unsettled[to].push_back(Sent { header, bytes });
        }
        header
    }

    /// A message of this rank has come.
    pub fn receive(&mut self, from: usize, header: Header) -> Arrival {
        let processed = &mut self.mark.received[from];
        if header.index <= *processed && !self.rules.processes_twice() {
            return Arrival::Again;
        }
        if header.index > *processed + 1 {
            return Arrival::Gap;
        }
        if header.number > self.mark.number && !self.rules.processes_at_once() {
            return Arrival::CheckpointFirst(header.number);
        }
        *processed += 1;
        Arrival::Process
    }

    /// A checkpoint with this number is taken; false if there is a later one already.
    pub fn checkpoint(&mut self, number: u64) -> bool {
        let is_new = number > self.mark.number;
        self.mark.number = number.max(self.mark.number);
        is_new
    }

    /// This rank has a checkpoint with this number, which outlives it, and in which it has processed so many messages of
    /// this one. Every state that is restored from a checkpoint with this number or a later one has processed them.
    pub fn settle(&mut self, rank: usize, number: u64, processed: u64) {
        // A checkpoint with a lower number may still be taken here, and be restored with an earlier one there.
        if number <= self.mark.number || self.rules.settles_by_any() {
            let unsettled = &mut self.mark.unsettled[rank];
            while unsettled.front().is_some_and(|sent| sent.header.index <= processed) {
                unsettled.pop_front();
            }
        }
    }

    /// The messages to this rank that may be missing there.
    #[must_use]
    pub fn unsettled(&self, to: usize) -> &VecDeque<Sent<B>> {
        &self.mark.unsettled[to]
    }
}

/// Which checkpoints are restored together: each rank takes its first one with this number or a later one. `newest` is the
/// number of each rank's newest checkpoint that outlives it.
#[must_use]
pub fn recovery_line(newest: impl IntoIterator<Item = u64>) -> u64 {
    newest.into_iter().min().unwrap_or(0)
}
