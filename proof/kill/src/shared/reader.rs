//! A receiver that checks the messages that it receives.

use corewire_layout::segment::{DoorState, tenure};
use corewire_ring::broadcast::{End, InPlace, Receiver};
use corewire_ring::doorbell::SLEEP_CAP_NS;
use corewire_ring::shared::{Entrance, Party, Roster};
use corewire_ring::sync::Ordering::Relaxed;

use super::History;
use super::kernel::{TurnKernel, Waited};
use crate::broadcast::Stop;
use crate::ensure;

/// Number of fruitless checks after which the receiver counts as hung.
const LOOKS_MAX: u32 = 10;

/// A live receiver.
#[derive(Debug)]
pub struct Reader {
    /// The receiver of the ring itself.
    pub ring: Receiver<TurnKernel>,
    in_place: Option<InPlace>,
    pub(super) roster: Roster,
    pub(super) entrance: Entrance,
    /// The first message that it must receive.
    pub(super) first: u64,
    /// The sequence number after the last one that it received or passed.
    expected: u64,
    pub(super) asleep: Option<Asleep>,
    pub(super) has_left: bool,
}

/// A receiver that sleeps.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asleep {
    /// On the bell.
    Futex(Waited),
    /// On its descriptor.
    Descriptor,
}

impl Reader {
    /// Frees its row, as the library does when a receiver leaves.
    pub(crate) fn leave(&self) {
        self.ring.leave();
    }

    pub(super) fn new(
        ring: Receiver<TurnKernel>,
        in_place: Option<InPlace>,
        roster: Roster,
        entrance: Entrance,
    ) -> Self {
        let first = ring.next();
        Self {
            ring,
            in_place,
            roster,
            entrance,
            first,
            expected: first,
            asleep: None,
            has_left: false,
        }
    }

    /// Receives the next message if it is there: in place or by copying, as the policy requires.
    ///
    /// # Errors
    /// The reason why there is no message.
    pub fn take(&mut self, history: &mut History) -> Result<(), Stop> {
        let Some(in_place) = self.in_place else { return self.copy(history) };
        let stop = match self.ring.receive_with(in_place, give_up) {
            Ok(message) => {
                let sequence = message.sequence();
                history.receive(self.expected, sequence, &message);
                self.expected = sequence + 1;
                return Ok(());
            }
            Err(stop) => stop,
        };
        self.stop(history, stop)
    }

    /// Copies the next message out if it is there.
    ///
    /// # Errors
    /// The reason why there is no message.
    pub fn copy(&mut self, history: &mut History) -> Result<(), Stop> {
        let stop = match self.ring.snapshot_with(give_up) {
            Ok(mut snapshot) => {
                let sequence = snapshot.sequence();
                let mut bytes = vec![0; snapshot.bytes()];
                if snapshot.copy_out(0, &mut bytes).is_ok() {
                    history.receive(self.expected, sequence, &bytes);
                    self.expected = sequence + 1;
                }
                return Ok(());
            }
            Err(stop) => stop,
        };
        self.stop(history, stop)
    }

    fn stop(&mut self, history: &mut History, stop: Stop) -> Result<(), Stop> {
        history.pass(self.expected, self.ring.next());
        self.expected = self.ring.next();
        Err(stop)
    }

    /// Reads up to `count` messages in place, then passes all of them at once.
    pub fn batch(&mut self, history: &mut History, count: u64) {
        let Some(in_place) = self.in_place else { return };
        for index in 0..self.ring.ready_count(count) {
            match self.ring.peek(in_place, index) {
                Ok(Some(bytes)) => {
                    let sequence = self.ring.next() + index;
                    history.receive(self.expected, sequence, bytes);
                    self.expected = sequence + 1;
                }
                other => ensure!(false, "peek {index}: {other:?}"),
            }
        }
        ensure!(self.ring.done(self.ring.ready_count(count)).is_ok(), "a violation in a batch");
    }

    /// Wakes the receiver up: it no longer sleeps.
    pub fn wake_up(&mut self) {
        self.asleep = None;
        self.ring.retract();
    }

    /// Receives all messages that are there. The receiver must be able to sleep before this reports
    /// that there are no more.
    pub(super) fn drain(&mut self, history: &mut History) -> Option<End> {
        self.wake_up();
        let mut looks = 0;
        loop {
            match self.take(history) {
                Ok(()) => looks = 0,
                Err(Stop::Empty) => {
                    if self.ring.arm() {
                        self.ring.retract();
                        return None;
                    }
                    looks += 1;
                    ensure!(looks < LOOKS_MAX, "row {} neither sleeps nor gets on", self.row());
                }
                Err(Stop::End(end)) => return Some(end),
                Err(Stop::Violation(violation)) => ensure!(false, "violation: {violation}"),
            }
        }
    }

    /// Puts the receiver to sleep on the bell, as far as the shared words show, or on its
    /// descriptor. Returns false if there is something to check first.
    pub(super) fn put_to_sleep(&mut self, on_descriptor: bool) -> bool {
        if on_descriptor {
            self.asleep = self.ring.arm().then_some(Asleep::Descriptor);
            return self.asleep.is_some();
        }
        self.ring.host().log.borrow_mut().waited = None;
        self.ring.sleep(SLEEP_CAP_NS);
        self.asleep = self.ring.host().log.borrow().waited.map(Asleep::Futex);
        self.asleep.is_some()
    }

    pub(super) fn row(&self) -> u32 {
        self.entrance.row
    }

    /// Whether it has been evicted.
    pub(super) fn is_evicted(&self) -> bool {
        let Entrance { row, generation } = self.entrance;
        let found = self.roster.door(Party::Receiver, row).tenure().load(Relaxed);
        found == tenure(generation, DoorState::Evicted)
    }
}

fn give_up(ring: &mut Receiver<TurnKernel>) -> Result<(), Stop> {
    let next = ring.next();
    match ring.end()? {
        Some(end) => Err(Stop::End(end)),
        None if ring.next() != next || ring.is_ready() => Ok(()),
        None => Err(Stop::Empty),
    }
}
