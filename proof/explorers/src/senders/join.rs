//! A join: the host prepares a row for a receiver.

use crate::senders::mutant::Mutant;
use crate::senders::protocol::{Out, Protocol};
use crate::senders::state::{Life, Receiver, ReceiverAt, Seat, Stage, State};
use crate::senders::walk::Walk;

/// The rule that no row stays with a dead receiver.
pub const ROW_LOST: &str = "a join is refused for a row that nobody holds";

/// The rule that no party gets the row of a live one.
pub const ROW_TAKEN: &str = "a row is taken that somebody holds who lives";

impl Protocol {
    /// The steps of a receiver that has not joined yet, and the steps of its host, which continue
    /// even if the receiver is dead.
    pub(crate) fn join_steps(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let receiver = state.receivers[index];
        match receiver.at {
            ReceiverAt::Absent if receiver.life == Life::Live => self.find_host(state, index, out),
            ReceiverAt::Join { host, stage } => {
                let host_lives = state.senders[usize::from(host)].life == Life::Live;
                if host_lives {
                    out.actor = ("host", host.into());
                    self.host_step(state, index, (host, stage), out);
                } else if receiver.life == Life::Live {
                    self.lose_host(state, index, stage, out);
                }
            }
            _ => {}
        }
    }

    fn find_host(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let receiver = state.receivers[index];
        let hosts = self.hosts(state);
        if hosts.is_empty() {
            return out.go("finds no host", state.with_receiver(index, Receiver::ABSENT));
        }
        for host in hosts.into_iter().filter(|&host| !Self::is_busy(state, host)) {
            let at = ReceiverAt::Join { host, stage: Stage::Choose };
            let mut next = state.with_receiver(index, Receiver { at, ..receiver });
            next.host = host;
            out.go("asks to join", next);
        }
    }

    /// Only the receiver knows that it has not joined. To all others its row looks like that of a
    /// live receiver.
    fn lose_host(&self, state: &State, index: usize, stage: Stage, out: &mut Out<'_>) {
        let mut next = if stage == Stage::Choose || self.has(Mutant::JoinLeftBehind) {
            let at = ReceiverAt::Absent;
            state.with_receiver(index, Receiver { at, ..state.receivers[index] })
        } else {
            Self::vacated(state, index, ReceiverAt::Absent)
        };
        (next.receivers[index].row, next.receivers[index].generation) = (0, 0);
        out.go("gives a dead host's join up", next);
    }

    fn host_step(&self, state: &State, index: usize, place: (u8, Stage), out: &mut Out<'_>) {
        let (host, stage) = place;
        let receiver = state.receivers[index];
        let row = usize::from(receiver.row);
        let mut next = state.clone();
        let to = |next: &mut State, stage| {
            next.receivers[index].at = ReceiverAt::Join { host, stage };
        };
        let name = match stage {
            Stage::Choose => return self.choose(state, index, host, out),
            Stage::First(walk) => {
                let found = self.walk(state, walk);
                to(&mut next, found.map_or_else(|(at, _)| Stage::Place { at }, Stage::First));
                "walks to the first cursor"
            }
            Stage::Place { at } => {
                if !self.has(Mutant::JoinedWithoutCursor) {
                    next.receiver_rows[row].cursor = at;
                }
                to(&mut next, Stage::Take);
                "stores a first cursor"
            }
            Stage::Take => {
                if let Seat::Joined(holder) = state.receiver_rows[row].seat
                    && state.receivers[usize::from(holder)].life == Life::Live
                {
                    return out.fail("lets the row count", ROW_TAKEN);
                }
                next.receiver_rows[row].generation = receiver.generation;
                if let Ok(holder) = u8::try_from(index) {
                    next.receiver_rows[row].seat = Seat::Joined(holder);
                }
                to(&mut next, Stage::Announce);
                "lets the row count"
            }
            Stage::Announce => {
                next.epoch += 1;
                let (at, tail) = (state.receiver_rows[row].cursor, Walk::Pace { at: state.tail });
                let is_early = self.has(Mutant::HeadBeforeJoined);
                to(&mut next, if is_early { Stage::Settle { at } } else { Stage::Head(tail) });
                "counts the change"
            }
            Stage::Head(walk) => {
                let found = self.walk(state, walk);
                to(&mut next, found.map_or_else(|(at, _)| Stage::Settle { at }, Stage::Head));
                "walks to the head"
            }
            Stage::Settle { at } => {
                next.receiver_rows[row].cursor = at;
                to(&mut next, Stage::Welcome { at });
                "stores the cursor"
            }
            Stage::Welcome { at } => {
                next.receivers[index].at = ReceiverAt::Look;
                if receiver.life == Life::Live {
                    let receiver = &mut next.receivers[index];
                    (receiver.start, receiver.next) = (at, at);
                    receiver.stored = if self.configuration.has_lazy_cursors { at } else { 0 };
                }
                "welcomes the receiver"
            }
        };
        out.go(name, next);
    }

    /// Chooses the first row that is free or whose receiver is dead, gives it its next generation,
    /// and tells the receiver. All in one step, since no other process takes rows.
    fn choose(&self, state: &State, index: usize, host: u8, out: &mut Out<'_>) {
        let known = state.senders[usize::from(host)].known;
        let mut next = state.clone();
        for row in 0..self.configuration.receiver_rows {
            let place = usize::from(row);
            let (is_vacant, is_forgotten) = match state.receiver_rows[place].seat {
                Seat::Free => (true, false),
                Seat::Joined(holder) => (known.has_receiver(holder), false),
                Seat::Evicted(holder) => {
                    let is_ours = self.has(Mutant::EvictedRowTaken);
                    let is_dead = known.has_receiver(holder);
                    (is_dead || is_ours, is_dead && self.has(Mutant::EvictedForEver))
                }
            };
            if is_forgotten {
                return out.fail("refuses", ROW_LOST);
            }
            if !is_vacant {
                continue;
            }
            let generation = state.receiver_rows[place].generation + 1;
            if !self.has(Mutant::GenerationToldTwice) {
                next.receiver_rows[place].generation = generation;
                next.receiver_rows[place].seat = Seat::Free;
            }
            (next.receivers[index].row, next.receivers[index].generation) = (row, generation);
            let stage = Stage::First(Walk::Pace { at: state.tail });
            next.receivers[index].at = ReceiverAt::Join { host, stage };
            return out.go("chooses a row", next);
        }
        next.receivers[index].at = if state.receivers[index].life == Life::Live {
            ReceiverAt::Absent
        } else {
            ReceiverAt::Look
        };
        out.go("refuses: no row is free", next);
    }
}
