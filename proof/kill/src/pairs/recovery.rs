//! The recovery of the survivors, and the oracle.

use corewire_layout::segment::SleepMode;
use corewire_ring::sync::Ordering::Relaxed;

use super::sleep::{Asleep, Wanted};
use super::{A, ALL, B, CELL_BYTES, LONG, Pairs, Party, Role, SHORT, SLOTS, TWO_SLOTS};
use crate::engine::fail;
use crate::ensure;
use crate::kernel::{Log, address};

/// After so many rounds in which nothing was received or sent, nothing more comes: in one, a ring may have been given
/// back.
const QUIET_ROUNDS: u32 = 3;
/// More rounds than any exchange takes.
const ROUNDS_MAX: u32 = 64;

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
            self.party(other).part_from(role, false);
            self.link(role, other);
        }
        self.settle();
        // All that replace dead ones begin before the first of them links: a row has one peer.
        let dead = std::mem::take(&mut self.dead);
        for &gone in &dead {
            *self.party(gone) = Party::new(gone, &self.log);
        }
        for (index, &gone) in dead.iter().enumerate() {
            for other in self.live_beside(gone) {
                if !dead[..index].contains(&other) {
                    self.link(gone, other);
                }
            }
        }
        for to in ALL {
            for from in self.live_beside(to) {
                self.wake(from, to);
                self.use_all_room(from, to);
            }
        }
        self.settle();
        self.use_blocks_that_are_left(A);
        self.release_everything();
        for from in [A, B] {
            self.use_all_blocks(from);
        }
        for (from, to) in [(A, B), (B, A)] {
            self.use_offers(from, to);
        }
        self.settle();
    }

    /// All other endpoints that do not count as dead, including those that replace dead ones.
    pub(super) fn live_beside(&self, role: Role) -> Vec<Role> {
        self.live().into_iter().filter(|&other| other != role).collect()
    }

    /// A control thread gives its data thread a notice, which must wake it.
    fn tell(&mut self, role: Role) {
        let wakes = self.log.lock().wakes.len();
        let kernel = self.party(role).kernel.clone();
        let party = self.party(role);
        party.shared.notify(1, &kernel);
        ensure!(party.pairs.has_notice(), "row {} is not told", role.0);
        party.shared.clear(1);
        party.wake_up();
        ensure!(self.log.lock().wakes.len() > wakes, "row {} sleeps on", role.0);
    }

    /// Receives what a peer that is gone has left, then removes the peer.
    fn see_off(&mut self, role: Role, gone: Role) {
        if self.parted == Some((role, gone)) {
            self.party(role).end_departed(gone);
            return;
        }
        if !self.forgets_the_dead {
            self.party(role).pairs.enqueue(gone.0);
            self.receive_all(role);
        }
        while self.pull(role, gone) {}
        let sent = &self.parties[gone.0 as usize];
        let (finished, begun) = (sent.finished_to(role), sent.sent_to(role).len() as u64);
        let got = self.party(role).got_of(gone);
        ensure!(
            (finished..=begun).contains(&got),
            "{got} messages, of {finished} that the dead sent and {begun} that they began"
        );
        let sent = &mut self.parties[gone.0 as usize].talk(role).words;
        let (finished, begun) = (sent.finished, sent.sent.len() as u64);
        let got = self.party(role).words_got_of(gone);
        ensure!(
            (finished..=begun).contains(&got),
            "{got} words, of {finished} that the dead sent and {begun} that they began"
        );
        let is_dead = !self.leaves_blocks_to_the_dead;
        self.party(role).part_from(gone, is_dead);
    }

    /// Checks that no endpoint sleeps that should be awake.
    fn check_sleepers(&self) {
        for party in &self.parties {
            let Some(asleep) = party.asleep else { continue };
            let row = party.role.0;
            let has_news = self.parties.iter().any(|sender| {
                sender.finished_to(party.role) > party.got_of(sender.role)
                    || sender.words_finished_to(party.role) > party.words_got_of(sender.role)
            });
            let has_wanted = match asleep.wanted {
                Wanted::Nothing => false,
                Wanted::Room(to, cursor) => {
                    let reader = &self.parties[to.0 as usize].memory;
                    reader.cursor(row).load(Relaxed) >= cursor + SLOTS / 2
                }
                Wanted::Block(to, released) => {
                    self.parties[to.0 as usize].released_of(party.role) > released
                }
            };
            let is_due = has_news || has_wanted;
            ensure!(!is_due || self.is_woken(party, asleep), "row {row} is left asleep");
        }
    }

    fn is_woken(&self, party: &Party, asleep: Asleep) -> bool {
        let log = self.log.lock();
        let doorbell = party.activity.doorbell();
        match asleep.mode {
            SleepMode::Futex => {
                doorbell.load(Relaxed) != asleep.doorbell && log.wakes.contains(&address(doorbell))
            }
            SleepMode::Descriptor => log.descriptors.contains(&party.role.0),
        }
    }

    /// Every live endpoint receives everything, and incomplete messages continue.
    pub(super) fn settle(&mut self) {
        // Who is copying need not look at what has arrived before it has copied everything that it may.
        for role in self.live() {
            for other in self.live_beside(role) {
                while self.help(role, other) {}
                while self.pull(role, other) {}
            }
        }
        let mut quiet = 0;
        for _ in 0..ROUNDS_MAX {
            quiet += 1;
            for role in self.live() {
                while self.receive_one(role, 2) {
                    quiet = 0;
                    for other in self.live_beside(role) {
                        self.pull(role, other);
                    }
                }
                self.party(role).pairs.publish_cursors();
                for other in self.live_beside(role) {
                    let party = self.party(role);
                    let has_sent = party.go_on(other) || party.send_late_words(other);
                    if has_sent || self.pull(role, other) || self.help(role, other) {
                        quiet = 0;
                    }
                }
            }
            if quiet == QUIET_ROUNDS {
                break;
            }
        }
        for to in self.live() {
            for from in self.live_beside(to) {
                let sender = &self.parties[from.0 as usize];
                let (sent, got) = (sender.sent_to(to).len() as u64, self.party(to).got_of(from));
                ensure!(sent == got, "{got} messages of {sent} from row {}", from.0);
                let sent = self.party(from).words_finished_to(to);
                let got = self.party(to).words_got_of(from);
                ensure!(sent == got, "{got} words of {sent} from row {}", from.0);
                self.check_large(to, from);
            }
        }
    }

    /// Waits until `from` has a ring toward `to` with a free slot.
    pub(super) fn fetch_ring(&mut self, from: Role, to: Role) {
        for _ in 0..6 {
            if self.party(from).make_slot(to) {
                return;
            }
            for role in self.live() {
                self.receive_all(role);
                self.party(role).pairs.publish_cursors();
            }
        }
        fail(format!("row {} gets no ring toward row {}", from.0, to.0));
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
            ensure!(self.party(to).fall_asleep(mode, Wanted::Nothing), "row {} cannot sleep", to.0);
            *self.log.lock() = Log::default();
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
