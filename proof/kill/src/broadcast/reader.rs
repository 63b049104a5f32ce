//! A receiver that checks the messages that it receives.

use corewire_layout::segment::SleepMode;
use corewire_ring::Trusted;
use corewire_ring::broadcast::{End, InPlace, Receiver, Violation};

use crate::engine::fail;
use crate::ensure;
use crate::kernel::TurnKernel;

/// Why a call that would wait gave up.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// There is no message now.
    Empty,
    /// There will be no more messages.
    End(End),
    /// The sender's memory holds an impossible value.
    Violation(Violation),
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// A live receiver.
#[derive(Debug)]
pub struct Reader {
    /// The receiver of the ring itself.
    pub ring: Receiver<TurnKernel>,
    in_place: Option<InPlace>,
    pub(super) row: u32,
    pub(super) kernel: TurnKernel,
    /// The first message that it must receive.
    pub(super) first: u64,
    /// What its door holds as long as it counts.
    pub(super) tenure: u64,
    /// Number of messages that it received.
    delivered: u64,
    /// The next message must be this one or, under `Overwrite`, a later one.
    expected: u64,
    pub(super) asleep: Option<Asleep>,
}

/// A receiver that sleeps: the mode, and the bell's value before it announced its sleep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asleep {
    pub(super) mode: SleepMode,
    pub(super) bell: u32,
}

impl Reader {
    pub(super) fn new(
        ring: Receiver<TurnKernel>,
        trusted: Trusted,
        (row, tenure): (u32, u64),
        kernel: TurnKernel,
    ) -> Self {
        let (first, in_place) = (ring.next(), ring.in_place(trusted));
        Self {
            ring,
            in_place,
            row,
            kernel,
            first,
            tenure,
            delivered: 0,
            expected: first,
            asleep: None,
        }
    }

    /// Receives the next message if it is there: in place or by copying, as the policy requires.
    ///
    /// # Errors
    /// The reason why there is no message.
    pub fn take(&mut self, ledger: &[Vec<u8>]) -> Result<(), Stop> {
        match self.in_place {
            Some(in_place) => {
                let message = self.ring.receive_with(in_place, give_up)?;
                let sequence = message.sequence();
                let bytes = message.to_vec();
                // The message counts as received, even if the receiver dies while it passes it.
                check(ledger, (&mut self.expected, &mut self.delivered), sequence, &bytes, false);
                drop(message);
                Ok(())
            }
            None => self.copy(ledger),
        }
    }

    /// Copies the next message out if it is there.
    ///
    /// # Errors
    /// The reason why there is no message.
    pub fn copy(&mut self, ledger: &[Vec<u8>]) -> Result<(), Stop> {
        let mut snapshot = self.ring.snapshot_with(give_up)?;
        let sequence = snapshot.sequence();
        let mut bytes = vec![0; snapshot.bytes()];
        if snapshot.copy_out(0, &mut bytes).is_ok() {
            let progress = (&mut self.expected, &mut self.delivered);
            check(ledger, progress, sequence, &bytes, self.in_place.is_none());
        }
        Ok(())
    }

    /// Reads up to `count` messages in place, then passes all of them at once.
    pub fn batch(&mut self, ledger: &[Vec<u8>], count: u64) {
        let Some(in_place) = self.in_place else { return };
        let count = self.ring.ready_count(count);
        for index in 0..count {
            let sequence = self.ring.next() + index;
            match self.ring.peek(in_place, index) {
                Ok(Some(bytes)) => {
                    let bytes = bytes.to_vec();
                    let progress = (&mut self.expected, &mut self.delivered);
                    check(ledger, progress, sequence, &bytes, false);
                }
                other => ensure!(false, "peek at message {sequence}: {other:?}"),
            }
        }
        ensure!(self.ring.done(count).is_ok(), "a violation in a batch");
    }

    /// Holds the next two messages, if they are there, receives a third, and releases the second before the first.
    pub fn hold(&mut self, ledger: &[Vec<u8>]) {
        let Some(in_place) = self.in_place else { return };
        let [mut first, mut second] = [None, None];
        for held in [&mut first, &mut second] {
            let Ok(message) = self.ring.receive_with(in_place, give_up) else { break };
            let (sequence, bytes) = (message.sequence(), message.to_vec());
            let progress = (&mut self.expected, &mut self.delivered);
            check(ledger, progress, sequence, &bytes, false);
            *held = Some((message.hold(), bytes));
        }
        // There may be no third.
        let _ = self.take(ledger);
        self.ring.publish_cursor();
        for (held, bytes) in [second, first].into_iter().flatten() {
            ensure!(held[..] == bytes[..], "held message {} has changed", held.sequence());
        }
    }

    /// Wakes the receiver up: it no longer sleeps.
    pub fn wake_up(&mut self) {
        self.asleep = None;
        self.ring.retract();
    }

    /// Receives all messages that are there.
    pub(super) fn drain(&mut self, ledger: &[Vec<u8>]) -> Option<End> {
        self.wake_up();
        loop {
            match self.take(ledger) {
                Ok(()) => {}
                Err(Stop::Empty) => {
                    self.ring.publish_cursor();
                    return None;
                }
                Err(Stop::End(end)) => return Some(end),
                Err(Stop::Violation(violation)) => ensure!(false, "violation: {violation}"),
            }
        }
    }

    /// Number of messages that it received or knows to have missed.
    pub(super) fn accounted(&self) -> u64 {
        self.delivered + self.ring.missed()
    }
}

fn give_up(ring: &mut Receiver<TurnKernel>) -> Result<(), Stop> {
    match ring.end()? {
        Some(end) => Err(Stop::End(end)),
        None => Err(Stop::Empty),
    }
}

/// Checks that this message is what was sent, and the next one.
fn check(
    ledger: &[Vec<u8>],
    (expected, delivered): (&mut u64, &mut u64),
    sequence: u64,
    bytes: &[u8],
    may_miss: bool,
) {
    ensure!(*expected <= sequence, "message {sequence} after message {}", *expected - 1);
    ensure!(may_miss || *expected == sequence, "message {sequence}, not message {expected}");
    let sent = usize::try_from(sequence).ok().and_then(|index| ledger.get(index));
    let Some(sent) = sent else { fail(format!("message {sequence} is invented")) };
    ensure!(sent == bytes, "message {sequence} is torn: {bytes:?}, not {sent:?}");
    *expected = sequence + 1;
    *delivered += 1;
}
