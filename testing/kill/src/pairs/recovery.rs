//! The recovery of the survivors, and the oracle.

use corewire_layout::segment::SleepMode;
use corewire_ring::sync::Ordering::Relaxed;

use super::party::Asleep;
use super::{ALL, CELL_BYTES, LONG, Pairs, Party, Role, SHORT, SLOTS, TWO_SLOTS};
use crate::ensure;
use crate::kernel::{Log, address};

impl Pairs {
    /// The others learn of these deaths, recover and continue.
    pub(super) fn recover(mut self, dead: &[Role]) {
        if dead.is_empty() {
            self.check_sleepers();
        }
        self.dead = dead.to_vec();
        for role in self.live() {
            self.tell(role);
        }
        for &gone in dead {
            for role in self.live() {
                self.see_off(role, gone);
            }
        }
        if let Some((role, other)) = self.parted.take()
            && !dead.contains(&role)
            && !dead.contains(&other)
        {
            self.receive_all(other);
            self.party(other).part_from(role);
            self.link(role, other);
        }
        self.settle();
        for gone in std::mem::take(&mut self.dead) {
            *self.party(gone) = Party::new(gone, &self.log);
            for other in self.live_beside(gone) {
                self.link(gone, other);
            }
        }
        for to in ALL {
            for from in self.live_beside(to) {
                self.wake(from, to);
                self.use_all_room(from, to);
            }
        }
        self.settle();
    }

    /// All other endpoints that do not count as dead, including those that replace dead ones.
    fn live_beside(&self, role: Role) -> Vec<Role> {
        self.live().into_iter().filter(|&other| other != role).collect()
    }

    /// A control thread gives its data thread a notice, which must wake it.
    fn tell(&mut self, role: Role) {
        let wakes = self.log.borrow().wakes.len();
        let kernel = self.party(role).kernel.clone();
        let party = self.party(role);
        party.shared.notify(1, &kernel);
        ensure!(party.pairs.has_notice(), "row {} is not told", role.0);
        party.shared.clear(1);
        party.wake_up();
        ensure!(self.log.borrow().wakes.len() > wakes, "row {} sleeps on", role.0);
    }

    /// Receives what a peer that is gone has left, then removes the peer.
    fn see_off(&mut self, role: Role, gone: Role) {
        if self.parted == Some((role, gone)) {
            return;
        }
        if !self.forgets_the_dead {
            self.party(role).pairs.enqueue(gone.0);
            self.receive_all(role);
        }
        let sent = &self.parties[gone.0 as usize];
        let (finished, begun) = (sent.finished_to(role), sent.sent_to(role).len() as u64);
        let got = self.party(role).got_of(gone);
        ensure!(
            (finished..=begun).contains(&got),
            "{got} messages, of {finished} that the dead sent and {begun} that they began"
        );
        self.party(role).part_from(gone);
    }

    /// Checks that no endpoint sleeps that should be awake.
    fn check_sleepers(&self) {
        for party in &self.parties {
            let Some(asleep) = party.asleep else { continue };
            let row = party.role.0;
            let has_news = self
                .parties
                .iter()
                .any(|sender| sender.finished_to(party.role) > party.got_of(sender.role));
            let has_room = asleep.room.is_some_and(|(to, cursor)| {
                let reader = &self.parties[to.0 as usize].memory;
                reader.cursor(row).load(Relaxed) >= cursor + SLOTS / 2
            });
            let is_due = has_news || has_room;
            ensure!(!is_due || self.is_woken(party, asleep), "row {row} is left asleep");
        }
    }

    fn is_woken(&self, party: &Party, asleep: Asleep) -> bool {
        let log = self.log.borrow();
        let doorbell = party.activity.doorbell();
        match asleep.mode {
            SleepMode::Futex => {
                doorbell.load(Relaxed) != asleep.doorbell && log.wakes.contains(&address(doorbell))
            }
            SleepMode::Descriptor => log.descriptors.contains(&party.role.0),
        }
    }

    /// Every live endpoint receives everything, and incomplete messages continue.
    fn settle(&mut self) {
        for _ in 0..8 {
            for role in self.live() {
                self.receive_all(role);
                self.party(role).pairs.publish_cursors();
                for other in self.live_beside(role) {
                    self.party(role).go_on(other);
                }
            }
        }
        for to in self.live() {
            for from in self.live_beside(to) {
                let sender = &self.parties[from.0 as usize];
                let (sent, got) = (sender.sent_to(to).len() as u64, self.party(to).got_of(from));
                ensure!(sent == got, "{got} messages of {sent} from row {}", from.0);
            }
        }
    }

    /// Sends a message that must find room once every endpoint has polled.
    fn send_surely(&mut self, from: Role, to: Role, bytes: usize) {
        let mut is_sent = self.party(from).send(to, bytes);
        for _ in 0..4 {
            if is_sent {
                return;
            }
            for role in self.live() {
                self.receive_all(role);
                self.party(role).pairs.publish_cursors();
            }
            is_sent = self.party(from).send(to, bytes);
        }
        ensure!(is_sent, "no room for {bytes} bytes from row {} to row {}", from.0, to.0);
    }

    /// The endpoint `to` sleeps in either mode, and a message from `from` must wake it.
    fn wake(&mut self, from: Role, to: Role) {
        for mode in [SleepMode::Futex, SleepMode::Descriptor] {
            self.settle();
            ensure!(self.party(to).fall_asleep(mode, None), "row {} cannot sleep", to.0);
            *self.log.borrow_mut() = Log::default();
            // Another peer may have the ring; it then polls first.
            self.send_surely(from, to, SHORT);
            if self.party(to).got_of(from) < self.parties[from.0 as usize].finished_to(to) {
                self.check_sleepers();
            }
            self.party(to).wake_up();
        }
        self.settle();
    }

    /// Checks that all room can be used: of the ring, and of the cells.
    fn use_all_room(&mut self, from: Role, to: Role) {
        self.send_surely(from, to, TWO_SLOTS);
        self.settle();
        let sent = (0..=SLOTS).take_while(|_| self.party(from).send(to, SHORT)).count() as u64;
        ensure!(sent == SLOTS, "room for {sent} messages, not {SLOTS}");
        self.settle();
        let sent = (0..SLOTS).take_while(|_| self.party(from).send(to, CELL_BYTES)).count();
        ensure!(sent == 4, "room for {sent} messages in cells, not 4");
        self.settle();
        self.send_surely(from, to, LONG);
        self.settle();
    }
}
