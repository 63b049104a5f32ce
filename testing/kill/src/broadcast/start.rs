//! Where an operation begins.

use corewire_layout::segment::{Policy, SleepMode};
use corewire_ring::sync::Ordering::Relaxed;

use super::{Broadcast, EVICT_AFTER_NS, INLINE_BYTES, LARGE_BYTES, SLOTS, WINDOW_BYTES};
use crate::ensure;

/// A policy and a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// What becomes of slow receivers.
    pub policy: Policy,
    /// What has gone before.
    pub state: State,
}

/// What has gone before an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Both receivers have joined, nothing has been sent.
    Empty,
    /// Five messages of all kinds; some read, some not.
    Half,
    /// As many short messages as there are slots, none read.
    Full,
    /// The ring is in its second lap, and so is the window.
    Wrapped,
    /// Window and large area are full, the ring is not.
    Areas,
    /// All is read, and both receivers sleep: one on the bell, one on its descriptor.
    Asleep,
    /// They have been woken for a message, and do not run yet.
    Woken,
    /// As asleep, in a channel that has a hint.
    Hinted,
    /// No slot is free, and the sender sleeps.
    Blocked,
    /// Under `Overwrite`: two laps were sent that nobody read.
    Lapped,
    /// Under `Evict`: the second receiver's time is over.
    Stalled,
    /// The second receiver's cursor is impossible.
    Violated,
    /// Closed after three messages that nobody has read.
    Closed,
}

impl Start {
    pub(super) fn all() -> Vec<Self> {
        use State::*;
        let policies =
            [Policy::Block, Policy::Overwrite, Policy::Evict { after_ns: EVICT_AFTER_NS }];
        let states = [
            Empty, Half, Full, Wrapped, Areas, Asleep, Woken, Hinted, Blocked, Lapped, Stalled,
            Violated, Closed,
        ];
        let all = policies
            .iter()
            .flat_map(|&policy| states.iter().map(move |&state| Self { policy, state }));
        all.filter(|start| match start.state {
            Lapped => start.policy == Policy::Overwrite,
            Stalled => start.is_evicting(),
            Blocked => start.policy != Policy::Overwrite,
            _ => true,
        })
        .collect()
    }

    /// Does the sender evict?
    #[must_use]
    pub fn is_evicting(self) -> bool {
        matches!(self.policy, Policy::Evict { .. })
    }

    /// Policy and state, in a word each.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        let policy = match self.policy {
            Policy::Block => "block",
            Policy::Overwrite => "overwrite",
            Policy::Evict { .. } => "evict",
        };
        let state = match self.state {
            State::Empty => "empty",
            State::Half => "half",
            State::Full => "full",
            State::Wrapped => "wrapped",
            State::Areas => "areas",
            State::Asleep => "asleep",
            State::Woken => "woken",
            State::Hinted => "hinted",
            State::Blocked => "blocked",
            State::Lapped => "lapped",
            State::Stalled => "stalled",
            State::Violated => "violated",
            State::Closed => "closed",
        };
        (policy, state)
    }
}

impl Broadcast {
    /// What has gone before.
    pub(super) fn bring_to(&mut self, state: State) {
        match state {
            State::Empty => {}
            State::Half => {
                for bytes in [INLINE_BYTES, INLINE_BYTES, INLINE_BYTES, WINDOW_BYTES, 100] {
                    self.send_surely(bytes);
                }
                self.receive(0, 1);
                self.receive(1, 4);
            }
            State::Full => self.send_many(SLOTS),
            State::Wrapped => {
                for _ in 0..3 {
                    self.send_surely(WINDOW_BYTES - 1);
                }
                self.send_many(SLOTS - 3);
                self.drain_all();
                self.sender.refresh(&self.members);
                for bytes in [INLINE_BYTES, WINDOW_BYTES, WINDOW_BYTES, 72, INLINE_BYTES] {
                    self.send_surely(bytes);
                }
                self.receive(0, 3);
            }
            State::Areas => {
                for bytes in [WINDOW_BYTES; 4].into_iter().chain([LARGE_BYTES; 8]) {
                    self.send_surely(bytes);
                }
                self.receive(0, 1);
            }
            State::Asleep | State::Woken | State::Hinted => {
                self.send_many(3);
                self.drain_all();
                self.put_to_sleep(0, SleepMode::Futex);
                self.put_to_sleep(1, SleepMode::Descriptor);
                if state == State::Woken {
                    self.send_surely(INLINE_BYTES);
                    self.readers.iter_mut().flatten().for_each(|reader| reader.asleep = None);
                }
            }
            State::Blocked => {
                self.send_many(SLOTS);
                self.block();
            }
            State::Lapped => {
                for index in 0..2 * SLOTS {
                    let lengths = [INLINE_BYTES, WINDOW_BYTES, INLINE_BYTES, 72];
                    self.send_surely(lengths[usize::try_from(index % 4).unwrap()]);
                }
            }
            State::Stalled => {
                self.send_many(SLOTS);
                self.receive(0, SLOTS);
                self.sender.refresh(&self.members);
                self.sender.evict_stalled(INLINE_BYTES, self.now_ns, &self.members);
                self.now_ns += 2 * EVICT_AFTER_NS;
            }
            State::Violated => {
                self.send_many(3);
                self.receiver_words(1).cursor().store(1000, Relaxed);
                self.sender.refresh(&self.members);
            }
            State::Closed => {
                self.send_many(3);
                self.sender.close();
            }
        }
    }

    fn send_many(&mut self, count: u64) {
        for _ in 0..count {
            self.send_surely(INLINE_BYTES);
        }
    }

    fn receive(&mut self, row: u32, count: u64) {
        for _ in 0..count {
            let Some(reader) = &mut self.readers[row as usize] else { return };
            ensure!(reader.take(&self.ledger).is_ok(), "row {row} finds nothing");
        }
    }
}
