//! A join: the process of a sender, the host, prepares a row on a receiver's behalf.

use crate::mutant::Mutant;
use crate::protocol::{Out, Protocol};
use crate::state::{Life, Receiver, ReceiverAt, Seat, Stage, State, receiver_bit, sender_bit};

/// The rule that no row stays with the dead.
pub const ROW_LOST: &str = "a join is refused for a row that nobody holds";

impl Protocol {
    /// The steps of a receiver that is not there yet, and those of its host.
    pub(crate) fn join_steps(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let receiver = state.receivers[index];
        match receiver.at {
            ReceiverAt::Absent if receiver.life == Life::Live => self.find_host(state, index, out),
            ReceiverAt::Join { host, stage, position } => {
                let host_index = usize::from(host);
                let host_lives = state.senders[host_index].life == Life::Live;
                if receiver.life == Life::Live && receiver.known & sender_bit(host) != 0 {
                    self.lose_host(state, index, out);
                }
                if !host_lives {
                    return;
                }
                if receiver.life == Life::Live {
                    self.host_step(state, index, (host, stage, position), out);
                } else {
                    let mut next = self.freed(state, index, ReceiverAt::Look);
                    next.epoch += 1;
                    out.actor = ("host", host_index);
                    out.go("undoes a dead receiver's join", next);
                }
            }
            _ => {}
        }
    }

    fn find_host(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let receiver = state.receivers[index];
        for (host, sender) in (0..).zip(&state.senders) {
            if sender.is_present() {
                let at = ReceiverAt::Join { host, stage: Stage::Reserve, position: 0 };
                out.go("asks to join", state.with_receiver(index, Receiver { at, ..receiver }));
            }
        }
        let may_come = |life| matches!(life, Life::Live | Life::Waiting);
        if !state.senders.iter().any(|sender| may_come(sender.life)) {
            out.go("finds nobody to ask", state.with_receiver(index, Receiver::ABSENT));
        }
    }

    /// The receiver alone knows that it is not there: to everybody else its row is that of a live
    /// one.
    fn lose_host(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let mut next = if self.has(Mutant::JoinLeftBehind) {
            let at = ReceiverAt::Absent;
            state.with_receiver(index, Receiver { at, ..state.receivers[index] })
        } else {
            self.freed(state, index, ReceiverAt::Absent)
        };
        next.epoch += 1;
        next.receivers[index].row = 0;
        out.go("gives a dead host's join up", next);
    }

    fn host_step(&self, state: &State, index: usize, place: (u8, Stage, u8), out: &mut Out<'_>) {
        let (host, stage, position) = place;
        let receiver = state.receivers[index];
        let row = usize::from(receiver.row);
        let early = self.has(Mutant::HeadBeforeActive);
        let mut next = state.clone();
        let to = |next: &mut State, stage, position| {
            next.receivers[index].at = ReceiverAt::Join { host, stage, position };
        };
        out.actor = ("host", host.into());
        let name = match stage {
            Stage::Reserve => return self.reserve(state, index, host, out),
            Stage::Place => {
                // Anything up to the head will do: it holds everybody.
                let first = state.senders[usize::from(host)].next;
                if !self.has(Mutant::ActiveWithoutCursor) {
                    next.receiver_rows[row].cursor = first;
                }
                to(&mut next, if early { Stage::Walk } else { Stage::Activate }, first);
                "stores a first cursor"
            }
            Stage::Activate => {
                if let Ok(holder) = u8::try_from(index) {
                    next.receiver_rows[row].seat = Seat::Active(holder);
                }
                to(&mut next, Stage::Announce, position);
                "lets the row count"
            }
            Stage::Announce => {
                next.epoch += 1;
                to(&mut next, if early { Stage::Settle } else { Stage::Walk }, position);
                "counts the change"
            }
            Stage::Walk => {
                let stamp = self.stamp(state, position);
                let found = if early { Stage::Activate } else { Stage::Settle };
                match self.walk(position, stamp) {
                    Some(further) => to(&mut next, Stage::Walk, further),
                    None => to(&mut next, found, position),
                }
                "walks to the head"
            }
            Stage::Settle => {
                next.receiver_rows[row].cursor = position;
                to(&mut next, Stage::Welcome, position);
                "stores the cursor"
            }
            Stage::Welcome => {
                let at = ReceiverAt::Look;
                next.receivers[index] =
                    Receiver { start: position, next: position, at, ..receiver };
                "welcomes the receiver"
            }
        };
        out.go(name, next);
    }

    /// Reserves a free row, or frees one that a death has left behind.
    fn reserve(&self, state: &State, index: usize, host: u8, out: &mut Out<'_>) {
        let known = state.senders[usize::from(host)].known;
        let mut is_full = true;
        for row in 0..self.configuration.receiver_rows {
            let seat = state.receiver_rows[usize::from(row)].seat;
            let mut next = state.clone();
            if let (Seat::Free, Ok(receiver)) = (seat, u8::try_from(index)) {
                next.receiver_rows[usize::from(row)].seat = Seat::Reserved { host, receiver };
                next.receivers[index].row = row;
                let stage = Stage::Place;
                next.receivers[index].at = ReceiverAt::Join { host, stage, position: 0 };
                out.go("reserves a row", next);
                is_full = false;
                continue;
            }
            let is_left = match seat {
                Seat::Free => false,
                Seat::Reserved { host, .. } => known & sender_bit(host) != 0,
                Seat::Active(holder) | Seat::Evicted(holder) => known & receiver_bit(holder) != 0,
            };
            let is_forgotten = match seat {
                Seat::Reserved { .. } => self.has(Mutant::ReservedForEver),
                Seat::Evicted(_) => self.has(Mutant::EvictedForEver),
                _ => false,
            };
            if is_left && is_forgotten {
                return out.fail("refuses", ROW_LOST);
            }
            if is_left {
                next.receiver_rows[usize::from(row)].seat = Seat::Free;
                next.epoch += 1;
                out.go("frees a row that the dead left", next);
                is_full = false;
            }
        }
        if is_full {
            let mut next = state.clone();
            next.receivers[index].at = ReceiverAt::Absent;
            out.go("refuses: no row is free", next);
        }
    }
}
