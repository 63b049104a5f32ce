//! The recovery of the survivors, and the oracle.

use corewire_layout::segment::{DoorState, Policy, tenure};
use corewire_layout::slot::{owner_of, publishes, run_of, sequence_of, shared_stamp};
use corewire_ring::broadcast::End;
use corewire_ring::shared::{Entrance, Party};
use corewire_ring::sync::Ordering::Relaxed;

use super::reader::Asleep;
use super::{
    Blocked, INLINE_BYTES, LARGE_BYTES, NEWCOMER, ROWS, Role, SLOTS, Shared, WINDOW_BYTES,
};
use crate::{engine::fail, ensure};

impl Shared {
    /// Records which messages are published, and checks that every stamp is valid.
    fn note_published(&mut self) {
        for index in 0..SLOTS {
            let stamp = self.slots.at(index).stamp().load(Relaxed);
            if stamp == 0 {
                continue;
            }
            let (sequence, owner) = (sequence_of(stamp), owner_of(stamp));
            let fits = sequence % SLOTS == index && owner < ROWS;
            ensure!(fits, "slot {index} has stamp {stamp:#x}");
            if publishes(stamp, sequence) {
                let whole = shared_stamp(sequence, owner, run_of(stamp));
                ensure!(stamp == whole, "slot {index} has stamp {stamp:#x}, not {whole:#x}");
                self.history.publish(sequence);
            }
        }
    }

    /// Delivers every message that is there to every live receiver. Removes evicted receivers.
    pub(super) fn drain_all(&mut self) {
        let is_over = self.senders.iter().flatten().next().is_none();
        for place in 0..self.readers.len() {
            let Some(reader) = &mut self.readers[place] else { continue };
            let told = reader.drain(&mut self.history);
            if reader.is_evicted() {
                ensure!(self.start.is_evicting(), "row {} is evicted", reader.row());
                ensure!(told == Some(End::Evicted), "the evicted is told {told:?}");
                reader.leave();
                self.readers[place] = None;
                continue;
            }
            let row = reader.row();
            ensure!(is_over || told.is_none(), "row {row} is told {told:?} of those who live");
            let (next, due) = (reader.ring.next(), self.history.published_end());
            ensure!(next >= due, "row {row} stays at message {next}, with {due} published");
        }
    }

    /// Sends a message that must find room once every receiver has read everything.
    pub(super) fn send_surely(&mut self, place: usize, bytes: usize) {
        if self.send(place, bytes) {
            return;
        }
        self.drain_all();
        ensure!(self.send(place, bytes), "no room for {bytes} bytes of sender {place}");
    }

    fn batch_surely(&mut self, place: usize, lengths: &[usize]) {
        if self.batch(place, lengths) {
            return;
        }
        self.drain_all();
        ensure!(self.batch(place, lengths), "no room for a run of sender {place}");
    }

    /// Reports this death to each role that asked for it, one after the other. Each continues at
    /// once.
    fn tell(&mut self, party: Party, who: Entrance) {
        if self.hides_deaths {
            return;
        }
        let watched = self.log.borrow().watched.clone();
        for (role, ..) in watched.into_iter().filter(|&(_, of, whom)| (of, whom) == (party, who)) {
            match role {
                Role::Sender(place) => {
                    let Some(member) = &self.senders[place] else { continue };
                    member.roster.record_death(party, who);
                    self.blocked = self.blocked.filter(|blocked| blocked.sender != place);
                }
                Role::Receiver(place) => {
                    let Some(reader) = &mut self.readers[place] else { continue };
                    reader.roster.record_death(party, who);
                    if reader.asleep.take().is_some() {
                        reader.ring.retract();
                    }
                }
            }
        }
    }

    /// Checks that no receiver's cursor is ahead of the receiver.
    fn check_cursors(&self) {
        for reader in self.readers.iter().flatten() {
            let (row, next) = (reader.row(), reader.ring.next());
            let cursor = self.receiver_words(row).cursor().load(Relaxed);
            ensure!(cursor <= next, "row {row} has said to be at {cursor}, and is at {next}");
        }
    }

    /// Sends a message if a receiver sleeps, if there is room for the message.
    fn send_to_sleepers(&mut self) {
        let mut readers = self.readers.iter().flatten();
        let is_anybody_asleep = readers.any(|reader| reader.asleep.is_some());
        let awake = |&place: &usize| self.blocked.is_none_or(|blocked| blocked.sender != place);
        if is_anybody_asleep
            && let Some(place) = self.living().into_iter().find(awake)
            && self.send(place, INLINE_BYTES)
        {
            self.check_sleepers();
        }
    }

    /// Checks that no role sleeps that should be awake.
    fn check_sleepers(&mut self) {
        let words = [self.observer.ring_words().bell(), self.observer.table_words().room()];
        for reader in self.readers.iter_mut().flatten() {
            let Some(asleep) = reader.asleep else { continue };
            let row = reader.row();
            let is_woken = match asleep {
                Asleep::Futex(waited) => self.log.borrow().is_woken(waited, words),
                Asleep::Descriptor => self.log.borrow().descriptors.contains(&row),
            };
            // `is_ready` alone, since a full check by the receiver would make it watch senders
            // itself.
            let has_news = reader.ring.is_ready();
            ensure!(!has_news || is_woken, "row {row} is left asleep");
            if is_woken {
                reader.wake_up();
            }
        }
        if let Some(Blocked { sender, bytes, waited }) = self.blocked
            && let Some(member) = &mut self.senders[sender]
        {
            let is_woken = self.log.borrow().is_woken(waited, words);
            member.ring.refresh();
            let has_room = member.ring.has_room(bytes);
            ensure!(!has_room || is_woken, "sender {sender} is left asleep");
        }
    }

    /// Completes or undoes the join of parties that know only half of it.
    fn settle_newcomers(&mut self) {
        let receiver = Role::Receiver(NEWCOMER);
        if self.readers[NEWCOMER].is_none()
            && let Some(entrance) = self.entrance(receiver)
            && !self.log.borrow().dead.contains(&(Party::Receiver, entrance))
        {
            if self.first.is_some() {
                self.begin_receiving(NEWCOMER);
            } else {
                // The receiver was told its row but not its start.
                let roster = self.roster();
                roster.vacate(Party::Receiver, entrance, &self.kernel(receiver, &roster));
            }
        }
        let sender = Role::Sender(NEWCOMER);
        if let Some(entrance) = self.entrance(sender) {
            let is_dead = self.log.borrow().dead.contains(&(Party::Sender, entrance));
            if self.senders[NEWCOMER].is_none() && !is_dead {
                self.begin_sending(NEWCOMER);
            }
        }
        // A sender that was admitted but never learns of it would count as long as its process
        // lives. Here the process gives up and counts as dead.
        let is_known = |who| {
            let mut told = self.entrances.iter();
            told.any(|&(role, entrance)| matches!(role, Role::Sender(_)) && entrance == who)
        };
        for (who, _) in self.observer.held(Party::Sender) {
            if !is_known(who) {
                self.log.borrow_mut().dead.push((Party::Sender, who));
            }
        }
    }

    /// The others learn of these deaths, recover and continue.
    pub(super) fn recover(mut self, dead: &[Role]) {
        self.note_published();
        for &role in dead {
            self.die(role);
        }
        self.settle_newcomers();
        let deaths = self.log.borrow().dead.clone();
        for &(party, who) in &deaths {
            self.tell(party, who);
        }
        self.check_cursors();
        self.check_sleepers();
        self.send_to_sleepers();
        self.drain_all();
        self.check_sleepers();
        self.blocked = None;
        self.live_on();
        self.check_rows(&deaths);
        self.welcome_newcomers();
        self.wake_everybody();
        self.check_limits();
        self.close();
    }

    fn living(&self) -> Vec<usize> {
        (0..self.senders.len()).filter(|&place| self.senders[place].is_some()).collect()
    }

    /// All live senders send in all ways, together for more than a lap.
    fn live_on(&mut self) {
        let living = self.living();
        for &place in &living {
            for bytes in [INLINE_BYTES, WINDOW_BYTES, LARGE_BYTES] {
                self.send_surely(place, bytes);
            }
            self.batch_surely(place, &[INLINE_BYTES; 16]);
            self.batch_surely(place, &[WINDOW_BYTES, LARGE_BYTES, INLINE_BYTES]);
            if living.len() == 1 {
                for _ in 0..SLOTS - 16 {
                    self.send_surely(place, INLINE_BYTES);
                }
            }
            self.drain_all();
        }
    }

    /// Each live sender sends one message, and every receiver gets it.
    fn greet(&mut self) {
        for place in self.living() {
            self.send_surely(place, INLINE_BYTES);
        }
        self.drain_all();
    }

    /// Checks that no row of a dead receiver counts any more once the ring has wrapped around, and
    /// that every row that counts has a live receiver.
    fn check_rows(&self, deaths: &[(Party, Entrance)]) {
        if self.living().is_empty() {
            return;
        }
        for &(party, who) in deaths.iter().filter(|(party, _)| *party == Party::Receiver) {
            ensure!(!self.is_joined(party, who), "row {} of the dead counts", who.row);
        }
        let lives = |who: Entrance| {
            let mut readers = self.readers.iter().flatten();
            readers.any(|reader| reader.entrance == who)
        };
        for (who, state) in self.observer.held(Party::Receiver) {
            let is_held = state == DoorState::Evicted || lives(who);
            ensure!(is_held, "row {} counts, and nobody has it", who.row);
        }
    }

    /// New parties take every row that no live party holds.
    fn welcome_newcomers(&mut self) {
        if self.living().is_empty() {
            return;
        }
        for place in 0..self.senders.len() {
            if self.senders[place].is_some() {
                continue;
            }
            let before = self.entrances.len();
            self.let_in(place);
            ensure!(self.entrances.len() > before, "no row for a sender");
            let others = self.living();
            self.begin_sending(place);
            let Some(Entrance { row, .. }) = self.senders[place].as_ref().map(|new| new.entrance)
            else {
                fail("it was let in".into())
            };
            let has_row = |&other: &usize| {
                self.senders[other].as_ref().is_some_and(|member| member.entrance.row == row)
            };
            ensure!(!others.iter().any(has_row), "the row of a sender that lives is given away");
            self.greet();
        }
        for place in 0..self.readers.len() {
            if self.readers[place].is_some() {
                continue;
            }
            let before = self.entrances.len();
            self.take_in(place);
            ensure!(self.entrances.len() > before, "no row for a receiver");
            self.begin_receiving(place);
            let Some(reader) = &self.readers[place] else { fail("it was taken in".into()) };
            let (who, first) = (reader.entrance, reader.first);
            let is_ours = |&(at, other): &(usize, &super::Reader)| {
                at != place && other.entrance.row == who.row
            };
            let mut others = self.readers.iter().enumerate();
            let is_taken =
                others.any(|(at, other)| other.as_ref().is_some_and(|other| is_ours(&(at, other))));
            ensure!(!is_taken, "the row of a receiver that lives is given away");
            let start = self.observer.door(Party::Receiver, who.row).start().load(Relaxed);
            ensure!(start == first && self.is_joined(Party::Receiver, who), "it does not count");
            self.greet();
        }
        self.live_on();
    }

    /// All receivers sleep; one message of each sender must wake them all.
    fn wake_everybody(&mut self) {
        for place in self.living() {
            self.drain_all();
            self.put_all_to_sleep();
            self.send_surely(place, INLINE_BYTES);
            self.check_sleepers();
            let mut readers = self.readers.iter().flatten();
            ensure!(readers.all(|reader| reader.asleep.is_none()), "a receiver sleeps on");
        }
        self.drain_all();
    }

    /// Checks that no unread message is overwritten, and that a sender that waits for room is
    /// woken.
    fn check_limits(&mut self) {
        if self.start.policy != Policy::Block || self.readers.iter().flatten().next().is_none() {
            return;
        }
        for place in self.living() {
            self.drain_all();
            for _ in 0..SLOTS {
                ensure!(self.send(place, INLINE_BYTES), "not all of the ring is there");
            }
            self.block(place, INLINE_BYTES);
            self.drain_all();
            self.check_sleepers();
            self.blocked = None;
        }
    }

    /// All senders leave, and the receivers must find the end.
    fn close(mut self) {
        self.drain_all();
        for member in self.senders.iter_mut().flatten() {
            member.ring.leave();
        }
        self.senders.iter_mut().for_each(|member| *member = None);
        let mut is_complete = false;
        for reader in self.readers.iter_mut().flatten() {
            let (row, told) = (reader.row(), reader.drain(&mut self.history));
            let is_dead_left = self.observer.held(Party::Sender).next().is_some();
            let due = if is_dead_left { End::SenderGone } else { End::Closed };
            ensure!(told == Some(due), "row {row} is told {told:?}, not {due:?}");
            ensure!(!reader.ring.arm(), "row {row} sleeps when all is over");
            is_complete |= reader.first == 0;
            reader.leave();
            let free = tenure(reader.entrance.generation, DoorState::Free);
            let found = self.observer.door(Party::Receiver, row).tenure().load(Relaxed);
            ensure!(found == free, "row {row} is not given up");
        }
        self.history.check(is_complete);
    }
}
