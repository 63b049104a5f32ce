//! Waking sleeping receivers.
//!
//! Proofs: `proof/models/tests/models/ring.rs`, `proof/kill/src/broadcast.rs`.

use corewire_layout::counters::SenderCounter;
use corewire_layout::segment::{HINT, ROWS_WATCHED_MAX, SleepMode};

use super::Sender;
use crate::broadcast::WAKES_BY_SENDER_MAX;
use crate::broadcast::words::add;
use crate::cold::rarely;
use crate::doorbell::{self, WAKE_ALL};
use crate::sync::Ordering::Relaxed;
use crate::{Control, Host, order};

impl<H: Host> Sender<H> {
    /// The fence after every stamp.
    #[inline(always)]
    pub(super) fn fence(&self) {
        doorbell::fence_after_store(self.fenced);
    }

    /// Does any receiver sleep in an epoch that has not been served yet?
    #[inline(always)]
    #[must_use]
    pub fn someone_sleeps(&self) -> bool {
        doorbell::fence_after_store(false);
        let epoch = self.rows.first_sleeping().load(Relaxed);
        if u64::from(epoch) == self.shared.alone.load(Relaxed) {
            return false;
        }
        rarely();
        self.someone_of_many_sleeps()
    }

    /// The rest of [`Sender::someone_sleeps`], unless there is one receiver that does not.
    #[inline(always)]
    fn someone_of_many_sleeps(&self) -> bool {
        if !self.is_plain {
            self.fence();
            if let Some(hint) = &self.hint {
                return hint.word32(HINT).load(Relaxed) != 0;
            }
        }
        let watched = self.shared.watched.load(Relaxed);
        let acked = self.shared.acked_watched().iter().take(watched as usize);
        (0u32..)
            .zip(acked)
            .any(|(row, acked)| self.rows.sleeping(row).load(Relaxed) != acked.load(Relaxed))
            || (watched > ROWS_WATCHED_MAX && self.someone_else_sleeps(watched))
    }

    /// The rest of [`Sender::someone_sleeps`] for a channel of many receivers that has no hint
    /// because not all their processes are trusted: every row costs a load.
    fn someone_else_sleeps(&self, watched: u32) -> bool {
        (ROWS_WATCHED_MAX..watched).any(|row| {
            self.rows.sleeping(row).load(Relaxed) != self.shared.acked(row).load(Relaxed)
        })
    }

    /// Wakes the sleeping receivers. The slow path of every send.
    #[cold]
    #[inline(never)]
    pub fn ring_bell(&mut self) {
        self.publish_counters();
        if let Some(hint) = &self.hint {
            // ORDER(W11): pairs with W10; the epochs of all receivers whose hints this clears are
            // seen below.
            hint.word32(HINT).swap(0, order!(W11: Acquire));
        }
        let mut sleepers = 0;
        let mut descriptors = 0;
        for row in 0..self.shared.watched.load(Relaxed) {
            let served = self.shared.acked(row);
            let before = served.load(Relaxed);
            let epoch = doorbell::epoch_of(self.rows.sleeping(row));
            // If the row changes hands here, this epoch may be that of its previous receiver, and
            // the next receiver may come to show the same value.
            if epoch == before || served.compare_exchange(before, epoch, Relaxed, Relaxed).is_err()
            {
                continue;
            }
            if row == 0 {
                // Nothing happens if a receiver joins or leaves meanwhile: it is no epoch then.
                let (before, epoch) = (before.into(), epoch.into());
                let _ = self.shared.alone.compare_exchange(before, epoch, Relaxed, Relaxed);
            }
            match doorbell::mode_of(epoch, self.rows.sleep_mode(row)) {
                None => {}
                Some(SleepMode::Descriptor) => {
                    self.host.control().wake_descriptor(row);
                    descriptors += 1;
                }
                Some(SleepMode::Futex) => sleepers += 1,
            }
        }
        if sleepers + descriptors == 0 {
            add(self.words.counter(SenderCounter::EmptyScans), 1);
            return;
        }
        add(self.words.counter(SenderCounter::Wakes), 1);
        if sleepers > 0 {
            self.ring(sleepers);
        }
    }

    fn ring(&self, sleepers: u32) {
        // Not only as many as were counted: a receiver that fell asleep since may be queued first.
        let is_many = sleepers > WAKES_BY_SENDER_MAX;
        let count_max = if is_many { WAKES_BY_SENDER_MAX } else { WAKE_ALL };
        doorbell::ring(self.words.bell(), count_max, self.host.kernel());
        if is_many {
            self.host.control().wake_rest();
        }
    }
}
