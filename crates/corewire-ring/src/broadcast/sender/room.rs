//! The limit, slow receivers, and waiting for room.
//!
//! Proofs: `proof/models/tests/models/policies.rs`, `proof/kill/src/broadcast.rs`.

use alloc::sync::Arc;

use corewire_layout::counters::SenderCounter;
use corewire_layout::segment::{FenceMode, Policy};
use corewire_layout::slot::INLINE_BYTES_MAX;

use super::Sender;
use crate::broadcast::members::{Channel, Members};
use crate::broadcast::words::add;
use crate::channel::{NOT_ALONE, Slowest, write_ahead_bytes};
use crate::doorbell::{self, Bell, Bells, Slept};
use crate::sync::Ordering::Relaxed;
use crate::{Host, Kernel, Lock, fence_at};

impl<H: Host> Sender<H> {
    /// Reads the cursors, frees the room of what every receiver has read, and sets a new limit. The
    /// slow path of every claim. Returns the member that now holds the sender back most.
    #[inline(never)]
    pub fn refresh<L: Lock<Members>>(&mut self, lock: &L) -> Option<Slowest> {
        self.publish_counters();
        let (head, slots) = (self.head, self.slots.count());
        let overwrites = self.policy == Policy::Overwrite;
        self.pace.note(head, || self.host.kernel().now_ns());
        if overwrites {
            self.raise_floor((head + self.stretch()).saturating_sub(slots));
        }
        let Self {
            rows,
            window,
            large,
            shared,
            fenced,
            read_by_all,
            floor,
            is_plain,
            staging,
            hint,
            ..
        } = self;
        let slowest = lock.with(|members| {
            // Under the lock, so that a demand for fences made before a join takes effect after it.
            *fenced = shared.is_fenced();
            if let Some(position) = members.window_held_from.take() {
                window.hold_from(position);
            }
            if let Some(position) = members.large_held_from.take() {
                large.hold_from(position);
            }
            let slowest = members.slowest(rows, head, head);
            let cursor = slowest.map_or(head, |slowest| slowest.cursor);
            *read_by_all = cursor;
            let given_up = if overwrites { *floor } else { cursor };
            window.free_before(given_up);
            large.free_before(given_up);
            let is_open =
                members.invited() == 0 && !members.has_violators() && shared.notices() == 0;
            let limit = match slowest {
                _ if !is_open => 0,
                _ if overwrites => *floor + slots,
                Some(slowest) => slowest.cursor + slots,
                None => u64::MAX,
            };
            shared.limit.store(limit, Relaxed);
            let has_epochs_alone = hint.is_none() && !*fenced;
            *is_plain = has_epochs_alone && staging.is_none();
            let is_alone = has_epochs_alone && shared.watched.load(Relaxed) == 1;
            let alone = if is_alone { shared.acked(0).load(Relaxed).into() } else { NOT_ALONE };
            shared.alone.store(alone, Relaxed);
            slowest
        });
        self.fetch_ahead_bytes = if self.pace.is_stream() { write_ahead_bytes(slots) } else { 0 };
        self.slowest = slowest;
        slowest
    }

    /// Under `Overwrite`: number of messages for which one run of the slow path is worth its cost.
    fn stretch(&self) -> u64 {
        (self.slots.count() / 8).max(1)
    }

    /// Gives up the messages below `floor`: from now on they may be overwritten.
    fn raise_floor(&mut self, floor: u64) {
        if floor > self.floor {
            self.floor = floor;
            self.words.floor().store(floor, Relaxed);
            // ORDER(O1): pairs with O2; a receiver that copies anything written from here on sees
            // the floor.
            fence_at!(O1: Release);
        }
    }

    /// Under `Overwrite`: gives up the oldest messages until there is room for `bytes` outside the
    /// slots, and an eighth of the area in addition, so that this happens rarely.
    pub fn give_up_for(&mut self, bytes: usize) {
        if self.policy != Policy::Overwrite || bytes <= INLINE_BYTES_MAX {
            return;
        }
        let in_window = bytes as u64 <= self.geometry.window_message_bytes_max();
        if in_window && self.span.find(bytes as u64).is_some() {
            return;
        }
        let (area, area_bytes) = if in_window {
            self.span.close(&mut self.window);
            (&mut self.window, self.geometry.window_bytes())
        } else {
            (&mut self.large, self.geometry.large_bytes())
        };
        let mut floor = self.floor;
        while (area.find(bytes as u64).is_none() || area.free_bytes() < area_bytes / 8)
            && let Some(oldest) = area.oldest()
        {
            floor = oldest + 1;
            area.free_before(floor);
        }
        self.raise_floor(floor);
    }

    /// Under `Evict`: evicts the receivers that, at `now_ns`, have held this sender back from
    /// `bytes` more bytes for the allowed time. Must be called while the sender waits. Returns true
    /// if any receiver was evicted; then there may be room.
    pub fn evict_stalled<L: Lock<Members>>(&mut self, bytes: usize, now_ns: u64, lock: &L) -> bool {
        let Policy::Evict { after_ns } = self.policy else { return false };
        let area = if bytes as u64 <= self.geometry.window_message_bytes_max() {
            &self.window
        } else {
            &self.large
        };
        // A receiver that has passed this much holds nothing back: the slot, and the area's oldest
        // payload.
        let slot_wanted = (self.head + 1).saturating_sub(self.slots.count());
        let is_inline = bytes <= INLINE_BYTES_MAX;
        let area_wanted = area.oldest().filter(|_| !is_inline).map_or(0, |oldest| oldest + 1);
        let (wanted, head) = (slot_wanted.max(area_wanted), self.head);
        let Self { shared, slots, words, geometry, policy, .. } = self;
        let channel = Channel { shared, slots, words, geometry, policy: *policy };
        lock.with(|members| members.evict_stalled(now_ns, after_ns, (wanted, head), &channel))
    }

    /// Under `Evict`: resets the stall times of slow receivers, since the sender has room.
    pub fn forget_stalls<L: Lock<Members>>(&self, lock: &L) {
        if matches!(self.policy, Policy::Evict { .. }) {
            lock.with(|members| members.forget_stalls(|| self.host.kernel().now_ns()));
        }
    }

    /// Has every receiver finished with everything that was sent, as of the last refresh?
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.read_by_all == self.head
    }

    /// Is there a slot for the next message, and room for `bytes` bytes?
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        let length = bytes as u64;
        let fits = if bytes <= INLINE_BYTES_MAX {
            true
        } else if length <= self.geometry.window_message_bytes_max() {
            self.span.find(length).is_some()
                || self.window.find_beside(&self.span, length).is_some()
        } else {
            self.large.find(length).is_some()
        };
        fits && self.head < self.shared.limit.load(Relaxed)
    }

    /// Sets the limit on each sleep, in ns. Default: [`SLEEP_CAP_NS`](doorbell::SLEEP_CAP_NS).
    pub fn set_sleep_cap(&mut self, cap_ns: u64) {
        self.sleeper.set_cap(cap_ns);
    }

    /// Sleeps until a receiver makes room, the membership changes, a notice arrives, or `limit_ns`
    /// or the cap has passed; then refreshes. `ready` checks the awaited condition. If only the
    /// cap's end showed that it holds, that is counted.
    pub fn sleep_until<L: Lock<Members>>(
        &mut self,
        lock: &L,
        limit_ns: u64,
        ready: impl Fn(&Self) -> bool,
    ) {
        let own = doorbell::listen(self.shared.own());
        let slowest = self.refresh(lock);
        let rows = self.rows.clone();
        let word = slowest.map(|slowest| rows.wake(slowest.row));
        // Read before `blocked` is stored: otherwise a receiver's answer to `blocked` could be taken
        // for the value to sleep on.
        let heard = word.map(doorbell::listen);
        self.sleeper.announce(self.words.blocked());
        // A receiver that stores a cursor from here on checks `blocked` afterwards, and the refresh
        // sees a cursor stored before.
        let is_sure = doorbell::barrier(FenceMode::Fenced, self.host.kernel());
        let unchanged = self.refresh(lock) == slowest;
        if unchanged && !ready(self) && self.shared.notices() == 0 {
            add(self.words.counter(SenderCounter::Sleeps), 1);
            let shared = Arc::clone(&self.shared);
            let bells = Bells {
                shared: word.zip(heard).map(|(word, heard)| Bell { word, heard }),
                own: Some(Bell { word: shared.own(), heard: own }),
            };
            let slept = self.sleeper.sleep(bells, limit_ns, is_sure, self.host.kernel());
            let is_found = slept == Slept::Capped && {
                self.refresh(lock);
                ready(self)
            };
            if self.sleeper.is_cap_find(slept, bells, is_found) {
                add(self.words.counter(SenderCounter::CapFinds), 1);
            }
        }
        self.sleeper.retract(self.words.blocked());
        self.refresh(lock);
    }
}
