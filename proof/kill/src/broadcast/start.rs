//! The states in which an operation begins.

use corewire_layout::segment::{Policy, SleepMode};
use corewire_ring::sync::Ordering::Relaxed;

use super::{Broadcast, INLINE_BYTES, LARGE_BYTES, SLOTS, WINDOW_BYTES};
use crate::ensure;
use crate::start::{EVICT_AFTER_NS, is_evicting};

crate::states! {
    /// Both receivers have joined; nothing has been sent.
    Empty = "empty";
    /// Five messages of all kinds; some are read, some are not.
    Half = "half";
    /// As many short messages as there are slots; none is read.
    Full = "full";
    /// The ring and the window are in their second lap.
    Wrapped = "wrapped";
    /// The window and the large area are full; the ring is not.
    Areas = "areas";
    /// All messages are read, and both receivers sleep: one on the bell, one on its descriptor.
    Asleep = "asleep";
    /// The receivers have been woken for a message and have not run yet.
    Woken = "woken";
    /// As `Asleep`, in a channel that has a hint.
    Hinted = "hinted";
    /// No slot is free, and the sender sleeps.
    Blocked = "blocked" if |policy| policy != Policy::Overwrite;
    /// Under `Overwrite`: two laps were sent, and no receiver has read them.
    Lapped = "lapped" if |policy| policy == Policy::Overwrite;
    /// Under `Evict`: the second receiver has been stalled for longer than the limit.
    Stalled = "stalled" if is_evicting;
    /// The second receiver's cursor is impossible.
    Violated = "violated";
    /// Closed after three messages that no receiver has read.
    Closed = "closed";
}

impl Broadcast {
    /// Brings the channel into `state`.
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
