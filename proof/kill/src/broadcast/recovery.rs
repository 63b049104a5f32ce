//! The recovery of the survivors, and the oracle.

use std::ops::Range;

use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::Start as From;
use corewire_layout::segment::{Policy, SleepMode};
use corewire_layout::slot::{sequence_of, stamp_of};
use corewire_ring::Lock;
use corewire_ring::broadcast::{End, Members};
use corewire_ring::doorbell::notice;
use corewire_ring::sync::Ordering::Relaxed;

use super::operations::Way;
use super::{
    Blocked, Broadcast, INLINE_BYTES, LARGE_BYTES, ROWS, Reader, Role, SLOTS, State, WINDOW_BYTES,
};
use crate::engine::fail;
use crate::ensure;
use crate::kernel::{Log, address};

impl Broadcast {
    /// Returns the number of committed messages, and checks that every stamp is valid.
    fn committed(&self) -> u64 {
        let stamps = (0..SLOTS).map(|index| self.slots.at(index).stamp().load(Relaxed));
        let head = stamps.filter(|&stamp| stamp != 0).map(|stamp| sequence_of(stamp) + 1).max();
        let head = head.unwrap_or_default();
        for sequence in head.saturating_sub(SLOTS)..head {
            let stamp = self.slots.at(sequence).stamp().load(Relaxed);
            ensure!(stamp == stamp_of(sequence), "slot of message {sequence} has stamp {stamp:#x}");
        }
        head
    }

    fn has_door(&self, reader: &Reader) -> bool {
        self.words.door_tenure(reader.row).load(Relaxed) == reader.tenure
    }

    /// Delivers every message that is there to every live receiver.
    pub(super) fn drain_all(&mut self) {
        let committed = self.committed();
        let ledger = &self.ledger;
        for reader in self.readers.iter_mut().flatten() {
            let end = reader.drain(ledger);
            let row = reader.row;
            ensure!(end.is_none(), "row {row} is told {end:?} of a sender that lives");
            let due = committed - reader.first;
            let accounted = reader.accounted();
            ensure!(accounted == due, "row {row} accounts for {accounted} of {due} messages");
        }
    }

    /// The sender's process is dead: every receiver gets what the sender committed, and learns of
    /// the end.
    fn orphan(mut self, committed: u64) {
        let is_closed = self.words.closed().load(Relaxed) != 0;
        let is_evicting = self.start.is_evicting();
        for row in 0..self.readers.len() {
            let Some(mut reader) = self.readers[row].take() else { continue };
            let wakes = self.log.lock().wakes.len();
            reader.ring.shared().notify(notice::PEER_GONE, &reader.kernel);
            ensure!(self.log.lock().wakes.len() > wakes, "row {row} sleeps on");
            let has_door = self.has_door(&reader);
            let told = match reader.drain(&self.ledger) {
                None => fail(format!("row {row} waits for the dead")),
                Some(end) => end,
            };
            let due = match is_closed {
                true => End::Closed,
                false if !has_door => End::Evicted,
                false => End::SenderGone,
            };
            let due = if is_evicting && !has_door { End::Evicted } else { due };
            ensure!(told == due, "row {row} is told {told:?}, not {due:?}");
            let (accounted, sent) = (reader.accounted(), committed - reader.first);
            let is_cut_short = is_evicting && !has_door;
            ensure!(
                accounted == sent || (is_cut_short && accounted <= sent),
                "row {row} accounts for {accounted} of {sent} messages"
            );
            reader.ring.retract();
            reader.ring.publish_cursor();
        }
    }

    /// Checks that no role sleeps that should be awake.
    fn check_sleepers(&self, committed: u64) {
        let is_closed = self.words.closed().load(Relaxed) != 0;
        for reader in self.readers.iter().flatten() {
            let Some(asleep) = reader.asleep else { continue };
            let has_news = committed > reader.ring.next() || is_closed;
            let row = reader.row;
            ensure!(!has_news || self.is_woken(row, asleep), "row {row} is left asleep");
        }
        // A receiver that died between its cursor and the wake-up leaves the wake-up to the control
        // thread.
        if let Some(Blocked { row, wake, cursor }) = self.blocked
            && self.readers[row as usize].is_some()
        {
            let words = self.receiver_words(row);
            let is_woken = words.wake().load(Relaxed) != wake
                && self.log.lock().wakes.contains(&address(words.wake()));
            let has_moved = words.cursor().load(Relaxed) != cursor;
            ensure!(!has_moved || is_woken, "the sender is left asleep");
        }
    }

    fn forget_wakes(&self) {
        *self.log.lock() = Log::default();
    }

    /// Whether the sender can continue without lapping this receiver. Under `Overwrite` nothing
    /// stops it.
    fn can_go_on_for(&self, row: u32) -> bool {
        let next = self.readers[row as usize].as_ref().map(|reader| reader.ring.next());
        next.is_some_and(|next| self.sender.head() - next < SLOTS)
    }

    /// The control thread removes a receiver.
    fn let_go(&mut self, row: u32, why: ControlCounter) {
        if self.forgets_the_dead {
            return;
        }
        self.with_members(|members, channel| members.leave(row, channel, why));
        let wakes = self.log.lock().wakes.len();
        self.shared.nudge(&self.kernel());
        let is_nudged = self.log.lock().wakes.len() > wakes;
        ensure!(is_nudged, "the sender is not woken by a death");
        if self.blocked.take().is_some() {
            self.words.blocked().store(2, Relaxed);
        }
        self.sender.refresh(&self.members);
    }

    /// The control thread removes receivers that were evicted, or whose memory held an impossible
    /// value.
    fn drop_rejected(&mut self) {
        for row in self.members.with(Members::take_evicted) {
            let free = self.members.with(|members| members.free_row());
            ensure!(free != Some(row), "row {row}, evicted, is given away while it is held");
            if let Some(mut reader) = self.readers[row as usize].take() {
                let told = reader.drain(&self.ledger);
                ensure!(told == Some(End::Evicted), "row {row}, evicted, is told {told:?}");
            }
            self.let_go(row, ControlCounter::Evictions);
        }
        for row in self.members.with(Members::take_violators) {
            ensure!(self.start.state == State::Violated, "row {row} is called a violator");
            self.readers[row as usize] = None;
            self.let_go(row, ControlCounter::Violations);
        }
    }

    /// Sends a message that must find room.
    pub(super) fn send_surely(&mut self, bytes: usize) {
        let way = if bytes <= 48 { Way::Short } else { Way::Fill };
        let is_sent = self.send(bytes, way);
        ensure!(is_sent, "no room for {bytes} bytes");
    }

    /// The sender is alive: it continues with the live receivers and with new ones.
    fn live_on(&mut self) {
        for reader in self.readers.iter_mut().flatten() {
            if reader.asleep.is_none() {
                reader.ring.retract();
            }
        }
        if self.words.closed().load(Relaxed) == 0 {
            self.drain_all();
            self.sender.refresh(&self.members);
            self.drop_rejected();
            self.wake_everybody();
            self.fill_everything();
            self.welcome_newcomers();
            self.wake_everybody();
            self.sender.close();
        }
        let committed = self.committed();
        for reader in self.readers.iter_mut().flatten() {
            let (row, end) = (reader.row, reader.drain(&self.ledger));
            ensure!(end == Some(End::Closed), "row {row} is told {end:?} of a closed channel");
            ensure!(!reader.ring.arm(), "row {row} sleeps for a closed channel");
            let (accounted, due) = (reader.accounted(), committed - reader.first);
            ensure!(accounted == due, "row {row} accounts for {accounted} of {due} messages");
        }
    }

    /// All receivers sleep, and one message must wake them all.
    fn wake_everybody(&mut self) {
        let rows: Range<u32> = 0..u32::try_from(self.readers.len()).unwrap();
        for row in rows {
            let mode = if row % 2 == 0 { SleepMode::Futex } else { SleepMode::Descriptor };
            let is_there = self.readers[row as usize].is_some();
            ensure!(!is_there || self.put_to_sleep(row, mode), "row {row} cannot sleep");
        }
        self.forget_wakes();
        self.send_surely(INLINE_BYTES);
        self.check_sleepers(self.committed());
        self.drain_all();
    }

    /// Checks that all room can be used: of the window, of the large area, and of the ring.
    fn fill_everything(&mut self) {
        self.sender.refresh(&self.members);
        for bytes in [WINDOW_BYTES; 4].into_iter().chain([LARGE_BYTES; 8]) {
            self.send_surely(bytes);
        }
        self.drain_all();
        self.sender.refresh(&self.members);
        for _ in 0..SLOTS {
            self.send_surely(INLINE_BYTES);
        }
        if self.readers.iter().flatten().next().is_some() && self.start.policy == Policy::Block {
            let is_sent = self.send(INLINE_BYTES, Way::Fill);
            ensure!(!is_sent, "an unread message was overwritten");
        }
        self.drain_all();
        self.sender.refresh(&self.members);
    }

    /// A new receiver takes each free row and gets everything from its start on. The sender must
    /// not lap it.
    fn welcome_newcomers(&mut self) {
        // Messages that are still in the ring, but whose payload in the area has been overwritten.
        for bytes in [LARGE_BYTES, WINDOW_BYTES].repeat(3) {
            self.send_surely(bytes);
            self.drain_all();
            self.sender.refresh(&self.members);
        }
        let mut from = From::Now;
        for row in 0..ROWS {
            if self.readers[row as usize].is_some() || self.forgets_the_dead {
                continue;
            }
            let free = self.members.with(|members| members.free_row());
            ensure!(free == Some(row), "row {row} is free, and {free:?} is said to be");
            self.renew(row);
            self.sender.refresh(&self.members);
            self.take_in(row, std::mem::replace(&mut from, From::Oldest));
            self.begin();
            // If there is nothing to receive yet, the receiver sleeps and must be woken. Otherwise
            // the messages that it joined for must stay while the sender continues.
            if self.put_to_sleep(row, SleepMode::Futex) {
                self.forget_wakes();
                self.send_surely(INLINE_BYTES);
                self.check_sleepers(self.committed());
            }
            while self.send(WINDOW_BYTES, Way::Fill) && self.can_go_on_for(row) {}
            while self.send(LARGE_BYTES, Way::Fill) && self.can_go_on_for(row) {}
            self.drain_all();
            for bytes in [INLINE_BYTES, WINDOW_BYTES, LARGE_BYTES] {
                self.send_surely(bytes);
            }
            self.drain_all();
        }
    }

    /// The others learn of these deaths, recover and continue.
    pub(super) fn recover(mut self, dead: &[Role]) {
        let committed = self.committed();
        let sent = self.ledger.len() as u64;
        ensure!(committed <= sent, "{committed} messages, of {sent} that were sent");
        for &role in dead {
            if let Role::Receiver(row) = role {
                self.readers[row as usize] = None;
                self.welcome = self.welcome.filter(|welcome| welcome.row != row);
            }
        }
        if dead.iter().any(|&role| matches!(role, Role::Sender | Role::Control)) {
            return self.orphan(committed);
        }
        ensure!(committed == sent, "only {committed} messages of {sent} that were sent");
        self.begin();
        self.check_sleepers(committed);
        for &role in dead {
            if let Role::Receiver(row) = role {
                self.let_go(row, ControlCounter::Deaths);
            }
        }
        // A process that was invited has died, too; a process that interrupted a call has its
        // answer.
        while self.members.with(|members| members.invited()) > 0 {
            self.members.with(Members::answered);
        }
        self.shared.clear(notice::INTERRUPTED);
        self.drop_rejected();
        if self.blocked.take().is_some() {
            self.words.blocked().store(2, Relaxed);
        }
        self.live_on();
    }
}
