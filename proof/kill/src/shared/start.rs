//! The states in which an operation begins.

use corewire_ring::shared::Party;
use corewire_ring::sync::kill::{self, Ended, Plan};

use super::{Blocked, INLINE_BYTES, LARGE_BYTES, NEWCOMER, Role, SLOTS, Shared, WINDOW_BYTES};
use crate::engine::World;
use crate::ensure;
use crate::start::{EVICT_AFTER_NS, is_evicting};

crate::states! {
    /// All parties have joined; nothing has been sent.
    Empty = "empty";
    /// Messages of all kinds and a run from both senders; some are read, some are not.
    Half = "half";
    /// As many short messages as there are slots; none is read.
    Full = "full";
    /// The ring and the areas are in their second lap.
    Wrapped = "wrapped";
    /// A third sender died with one slot claimed and not published.
    ClaimPending = "claim_pending";
    /// It died after it claimed a run and published none of it.
    RunClaimed = "run_claimed";
    /// It died in the middle of a run, in the second lap; others have sent since then.
    RunPending = "run_pending";
    /// The same, and the ring is full.
    RunPendingFull = "run_pending_full";
    /// It died after it had published everything that it claimed.
    Gone = "gone";
    /// All messages are read, and both receivers sleep: one on the bell, one on its descriptor.
    Asleep = "asleep";
    /// No slot is free, because the second receiver has read nothing; the second sender sleeps.
    Blocked = "blocked";
    /// The second sender sleeps because of a claimed slot that a live sender would still publish.
    /// The third sender claimed it and is dead, and its death has not been reported.
    BlockedByDead = "blocked_by_dead";
    /// Under `Evict`: the second receiver has been stalled for longer than the limit.
    Stalled = "stalled" if is_evicting;
}

impl Shared {
    /// Brings the channel into `state`.
    pub(super) fn bring_to(&mut self, state: State) {
        match state {
            State::Empty => {}
            State::Half => {
                for bytes in [INLINE_BYTES, WINDOW_BYTES, LARGE_BYTES] {
                    self.send_surely(0, bytes);
                    self.send_surely(1, bytes);
                }
                ensure!(self.batch(0, &[INLINE_BYTES; 4]), "no room for a run");
                self.receive(0, 2);
                self.receive(1, 8);
            }
            State::Full => self.send_many(SLOTS),
            State::Wrapped => {
                self.go_round();
                self.send_surely(1, WINDOW_BYTES);
                self.send_surely(0, LARGE_BYTES);
                ensure!(self.batch(1, &[INLINE_BYTES; 3]), "no room for a run");
                self.receive(0, 3);
            }
            State::ClaimPending => {
                self.send_many(3);
                self.die_sending(2, |world| _ = world.send_inline(NEWCOMER, INLINE_BYTES));
                self.send_many(1);
                self.receive(0, 3);
            }
            State::RunClaimed => {
                self.send_many(3);
                self.die_sending(1, |world| _ = world.batch(NEWCOMER, &[INLINE_BYTES; 5]));
                self.send_many(1);
                self.receive(1, 3);
            }
            State::RunPending | State::RunPendingFull => {
                self.go_round();
                // The claim, two messages of the run, and half of a third.
                self.die_sending(11, |world| _ = world.batch(NEWCOMER, &[INLINE_BYTES; 5]));
                self.send_many(2);
                if state == State::RunPendingFull {
                    // The receivers had passed everything before the run.
                    self.send_many(SLOTS - 7);
                }
                self.receive(0, 1);
            }
            State::Gone => {
                self.let_in(NEWCOMER);
                self.begin_sending(NEWCOMER);
                self.send_surely(NEWCOMER, INLINE_BYTES);
                ensure!(self.batch(NEWCOMER, &[INLINE_BYTES; 3]), "no room for a run");
                self.die(Role::Sender(NEWCOMER));
                self.go_round();
            }
            State::Asleep => {
                self.send_many(3);
                self.drain_all();
                self.put_all_to_sleep();
            }
            State::Blocked => {
                self.send_many(SLOTS);
                self.receive(0, SLOTS);
                self.block(1, INLINE_BYTES);
            }
            State::BlockedByDead => {
                // A lap later the receivers have passed the claim; the senders have not.
                self.stop_sending(1, |world| _ = world.batch(NEWCOMER, &[INLINE_BYTES; 5]));
                self.tell_readers();
                self.drain_all();
                self.send_many(SLOTS - 5);
                self.drain_all();
                self.block(1, INLINE_BYTES);
                self.die(Role::Sender(NEWCOMER));
            }
            State::Stalled => {
                self.send_many(SLOTS);
                self.receive(0, SLOTS);
                // Both wait for room from here on: a receiver is charged only while they wait.
                for place in 0..self.senders.len() {
                    let is_sent = self.senders[place].is_some() && self.send(place, INLINE_BYTES);
                    ensure!(!is_sent, "there is room in a full ring");
                }
                self.now_ns += 2 * EVICT_AFTER_NS;
            }
        }
    }

    /// Sends `count` messages, from both senders in turn.
    fn send_many(&mut self, count: u64) {
        for index in 0..count {
            self.send_surely(usize::from(index % 2 == 1), INLINE_BYTES);
        }
    }

    /// Sends a little more than one lap of all kinds of messages and runs.
    fn go_round(&mut self) {
        for bytes in [WINDOW_BYTES, LARGE_BYTES, INLINE_BYTES] {
            for _ in 0..4 {
                self.send_surely(0, bytes);
                self.send_surely(1, bytes);
            }
            self.drain_all();
        }
        self.batch(0, &[INLINE_BYTES; 5]);
        self.batch(1, &[INLINE_BYTES; 16]);
        self.drain_all();
    }

    fn receive(&mut self, place: usize, count: u64) {
        for _ in 0..count {
            let Some(reader) = &mut self.readers[place] else { return };
            ensure!(reader.take(&mut self.history).is_ok(), "receiver {place} finds nothing");
        }
    }

    /// A third sender dies in the middle of `job`, after this number of effects.
    fn die_sending(&mut self, after: u64, job: fn(&mut Self)) {
        self.stop_sending(after, job);
        self.die(Role::Sender(NEWCOMER));
    }

    /// A third sender stops in the middle of `job`. The kernel has not noticed its death yet.
    fn stop_sending(&mut self, after: u64, job: fn(&mut Self)) {
        self.let_in(NEWCOMER);
        self.begin_sending(NEWCOMER);
        // Its limit is computed first, so its first effect is the claim.
        if let Some(member) = &mut self.senders[NEWCOMER] {
            member.ring.refresh();
        }
        let own = World::own(self, Role::Sender(NEWCOMER));
        let plan = Plan { role: "third sender", own, dies_after: Some(after) };
        let ended = kill::run(plan, || job(self));
        ensure!(matches!(ended, Ended::Died), "the third sender has not so many effects");
    }

    /// Tells the receivers of the third sender's death before any other party.
    fn tell_readers(&self) {
        let who = self.entrance(Role::Sender(NEWCOMER)).expect("it was let in");
        let readers = self.readers.iter().flatten();
        readers.for_each(|reader| reader.roster.record_death(Party::Sender, who));
    }

    /// The kernel closes what the role's process had open. No death is reported yet.
    pub(super) fn die(&mut self, role: Role) {
        let party = match role {
            Role::Sender(place) => {
                self.senders[place] = None;
                Party::Sender
            }
            Role::Receiver(place) => {
                self.readers[place] = None;
                Party::Receiver
            }
        };
        if let Some(entrance) = self.entrance(role) {
            self.log.borrow_mut().dead.push((party, entrance));
        }
    }

    /// Puts the receivers to sleep: the first and the third on the bell, the second on its
    /// descriptor.
    pub(super) fn put_all_to_sleep(&mut self) {
        for (place, reader) in self.readers.iter_mut().enumerate() {
            let Some(reader) = reader else { continue };
            ensure!(reader.put_to_sleep(place == 1), "receiver {place} cannot sleep");
        }
        self.log.borrow_mut().descriptors.clear();
    }

    /// Puts a sender to sleep for lack of room, as far as the shared words show.
    pub(super) fn block(&mut self, place: usize, bytes: usize) {
        self.log.borrow_mut().waited = None;
        let is_sent = self.send(place, bytes);
        ensure!(!is_sent, "an unread message was overwritten");
        let waited = self.log.borrow().waited;
        let waited = waited.expect("it has waited");
        self.blocked = Some(Blocked { sender: place, bytes, waited });
    }
}
