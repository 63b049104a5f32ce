//! A channel that several senders share, in the memory of a model, with the wait loops of the
//! library.
//!
//! Each party has its own view of the participants, as each process has, and gets its own reports
//! of deaths. Loom explores only one order for everything that a model's first thread does before
//! it starts other threads, so each model starts its threads just before the interesting part.
//!
//! At most one thread of a model may spin at a time. If two threads spin and wait for a third, loom
//! runs the two in turn forever and counts that as no preemption. So the other threads try once and
//! give up, sleep, or read what is there.

use std::sync::Arc;

use corewire_layout::frame::Welcome;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{FenceMode, Policy, RECEIVER_SEGMENT_BYTES};
use corewire_ring::Trusted;
use corewire_ring::broadcast::{
    End, InPlace, Receiver, ReceiverParts, ReceiverShared, SenderShared,
};
use corewire_ring::doorbell::SLEEP_CAP_NS;
use corewire_ring::region::Region;
use corewire_ring::shared::{Entrance, ManyParts, Party, Roster, RosterParts, Sender, SenderParts};
use corewire_ring::sync::{pause, set_light_fences};

use crate::{EVICTED_AT_NS, ModelKernel, Stop, WINDOW_BYTES, WINDOW_MESSAGE_BYTES, Wait};

/// Slots of the smallest ring: room for two of the longest runs.
pub const SLOTS_MIN: u64 = corewire_layout::geometry::SHARED_SLOTS_MIN;

/// A shared channel.
#[derive(Debug, Clone)]
pub struct ModelShared {
    geometry: Geometry,
    fence_mode: FenceMode,
    policy: Policy,
    ring: Region,
    table: Region,
    /// The kernel that all parties of the model share.
    pub kernel: ModelKernel,
}

impl ModelShared {
    /// Creates a channel with the smallest ring for two senders and up to `receivers_max`
    /// receivers. Call it inside a model, on the model's first thread.
    ///
    /// # Panics
    /// If there is no such geometry.
    #[must_use]
    pub fn new(receivers_max: u64) -> Self {
        Self::of_many(receivers_max, 2)
    }

    /// Same as [`ModelShared::new`] for up to `senders_max` senders.
    ///
    /// # Panics
    /// If there is no such geometry.
    #[must_use]
    pub fn of_many(receivers_max: u64, senders_max: u64) -> Self {
        let bytes_max = WINDOW_MESSAGE_BYTES as u64;
        let (slots, window) = (SLOTS_MIN, WINDOW_BYTES);
        let geometry = Geometry::with_senders(slots, window, bytes_max, receivers_max, senders_max)
            .expect("a model's geometry");
        set_light_fences(true);
        Self {
            geometry,
            fence_mode: FenceMode::Asymmetric,
            policy: Policy::Block,
            ring: Region::model_ring(&geometry),
            table: Region::model_table(&geometry),
            kernel: ModelKernel::new(true),
        }
    }

    /// The same channel under another policy.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// The same channel for a kernel that refuses barriers: its senders fence after each stamp.
    #[must_use]
    pub fn fenced(self) -> Self {
        set_light_fences(false);
        Self { fence_mode: FenceMode::Fenced, kernel: ModelKernel::new(false), ..self }
    }

    /// One process's view of the participants.
    #[must_use]
    pub fn roster(&self) -> Roster {
        let (ring, table) = (self.ring.clone(), self.table.clone());
        Roster::new(&RosterParts { ring, table, geometry: self.geometry })
    }

    /// A sender in its own process, just admitted by `host`.
    ///
    /// # Panics
    /// If every row is taken.
    #[must_use]
    pub fn sender_by(&self, host: &Roster, name: u8) -> SharedSender {
        let entrance = host.enter_sender(1, 1, &self.kernel).expect("a free row");
        let roster = self.roster();
        let parts = SenderParts {
            ring: self.ring.clone(),
            roster: roster.clone(),
            entrance,
            policy: self.policy,
            staging: (!self.policy.keeps_messages())
                .then(|| Region::model_private(WINDOW_MESSAGE_BYTES)),
            shared: Arc::new(SenderShared::new(0, self.fence_mode == FenceMode::Fenced)),
        };
        SharedSender {
            sender: Sender::new(parts, self.kernel.clone()),
            roster,
            entrance,
            name,
            number: 0,
            evicts: true,
        }
    }

    /// A sender with the name `name`.
    #[must_use]
    pub fn sender(&self, name: u8) -> SharedSender {
        self.sender_by(&self.roster(), name)
    }

    /// A receiver in its own process.
    ///
    /// # Panics
    /// If every row is taken.
    #[must_use]
    pub fn receiver(&self) -> SharedReceiver {
        self.receiver_that_finds_dead(None)
    }

    /// A receiver that gets the report of the death of `dead` as soon as it asks for it.
    ///
    /// # Panics
    /// If every row is taken.
    #[must_use]
    pub fn receiver_that_finds_dead(&self, dead: Option<Entrance>) -> SharedReceiver {
        let host = self.roster();
        let entrance = host.vacant_row().expect("a free row");
        let start = host.admit(entrance, 1, 1);
        let Entrance { row, generation } = entrance;
        let offset = usize::try_from(self.geometry.table_rows_offset()).expect("few");
        let page = offset + row as usize * RECEIVER_SEGMENT_BYTES;
        let (roster, shared) = (self.roster(), Arc::new(ReceiverShared::default()));
        let parts = ReceiverParts {
            sender: self.ring.clone(),
            geometry: self.geometry,
            fence_mode: self.fence_mode,
            policy: self.policy,
            own: self.table.part(page, RECEIVER_SEGMENT_BYTES).expect("own row"),
            hint: None,
            welcome: Welcome {
                row,
                start,
                epoch: 0,
                incarnation: 0,
                hint: false,
                table: true,
                settled: 0,
                generation,
            },
            shared: Arc::clone(&shared),
            many: Some(ManyParts { roster: roster.clone(), entrance }),
        };
        let obituary = Obituary { roster: roster.clone(), shared, kernel: self.kernel.clone() };
        let kernel = self.kernel.watching(move |party, who| {
            if party == Party::Sender && dead == Some(who) {
                obituary.tell(who);
            }
        });
        let receiver = Receiver::new(parts, kernel);
        // SAFETY: senders and receivers are threads of one model and follow the protocol.
        let trusted = unsafe { Trusted::assume() };
        let in_place = receiver.in_place(trusted);
        SharedReceiver(receiver, in_place, roster)
    }
}

/// Identifies a message: the name of its sender, and the number of messages that this sender sent
/// before.
pub type Mark = (u8, u8);

fn mark(name: u8, number: u8) -> u8 {
    16 * (name + 1) + number
}

fn read_mark(bytes: &[u8]) -> Option<Mark> {
    let &first = bytes.first()?;
    bytes.iter().all(|&byte| byte == first).then_some(((first / 16).wrapping_sub(1), first % 16))
}

/// A sender with the library's wait loop.
#[derive(Debug)]
pub struct SharedSender {
    /// The sender of the ring itself.
    pub sender: Sender<ModelKernel>,
    /// What its process knows of the channel's senders and receivers.
    pub roster: Roster,
    /// Its row.
    pub entrance: Entrance,
    name: u8,
    number: u8,
    /// Whether it evicts receivers that it is allowed to evict.
    pub evicts: bool,
}

impl SharedSender {
    fn mark(&mut self) -> u8 {
        self.number += 1;
        mark(self.name, self.number - 1)
    }

    fn wait(
        sender: &mut Sender<ModelKernel>,
        evicts: bool,
        bytes: usize,
        wait: Wait,
    ) -> Result<(), Stop> {
        sender.refresh();
        if evicts && sender.evict_stalled(bytes, EVICTED_AT_NS) {
            sender.refresh();
        }
        if !sender.has_room(bytes) {
            match wait {
                Wait::Spin => pause(),
                Wait::Sleep => sender.sleep_until(SLEEP_CAP_NS, |s| s.has_room(bytes)),
            }
        }
        Ok(())
    }

    /// Sends its next `count` messages of `bytes` bytes.
    ///
    /// # Panics
    /// If the model fails.
    pub fn send(&mut self, count: u32, bytes: usize, wait: Wait) {
        let evicts = self.evicts;
        for _ in 0..count {
            let message = vec![self.mark(); bytes];
            let sent = if bytes < WINDOW_MESSAGE_BYTES {
                self.sender.send_inline(&message, |s| Self::wait(s, evicts, 0, wait))
            } else {
                let loan = self.sender.loan_with(bytes, |s| Self::wait(s, evicts, bytes, wait));
                loan.and_then(|mut loan| {
                    loan.bytes_mut().copy_from_slice(&message);
                    loan.send(|s| Self::wait(s, evicts, 0, wait))
                })
            };
            assert_eq!(sent, Ok(()));
        }
    }

    /// Sends up to `count` messages. Gives up at the first one that cannot be sent at once.
    ///
    /// # Panics
    /// If the model fails.
    pub fn try_send(&mut self, count: u32, bytes: usize) {
        for _ in 0..count {
            let message = vec![self.mark(); bytes];
            let mut has_looked = false;
            let sent = self.sender.send_inline(&message, |sender| {
                if core::mem::replace(&mut has_looked, true) {
                    return Err(());
                }
                sender.refresh();
                Ok(())
            });
            if sent.is_err() {
                return;
            }
        }
    }

    /// Sends its next two messages as one run.
    ///
    /// # Panics
    /// If the model fails.
    pub fn send_run(&mut self, bytes: usize, wait: Wait) {
        let evicts = self.evicts;
        for _ in 0..2 {
            let message = vec![self.mark(); bytes];
            let staged = self.sender.stage(&message, |s| Self::wait(s, evicts, bytes, wait));
            assert_eq!(staged, Ok(()));
        }
        assert_eq!(self.sender.flush(&mut |s| Self::wait(s, evicts, 0, wait)), Ok(()));
    }

    /// Sends its next two messages as one run. Gives up if that cannot be done at once.
    ///
    /// # Panics
    /// If the model fails.
    pub fn try_run(&mut self, bytes: usize) {
        let mut has_looked = false;
        let mut look_once = |sender: &mut Sender<ModelKernel>| {
            sender.refresh();
            if core::mem::replace(&mut has_looked, true) { Err(()) } else { Ok(()) }
        };
        for _ in 0..2 {
            let message = vec![mark(self.name, self.number); bytes];
            assert_eq!(self.sender.stage(&message, &mut look_once), Ok(()));
        }
        if self.sender.flush(&mut look_once).is_err() {
            self.sender.abandon();
        }
    }

    /// Claims the next slot, writes to it, and stops there. Gives up if the claim cannot be made at
    /// once.
    ///
    /// # Panics
    /// If the model fails.
    pub fn try_claim(&mut self, bytes: usize) {
        let message = vec![self.mark(); bytes];
        let mut has_looked = false;
        let _ = self.sender.die_in_run(1, 0, &message, |sender| {
            sender.refresh();
            if core::mem::replace(&mut has_looked, true) { Err(()) } else { Ok(()) }
        });
    }

    /// Claims a run, publishes its first `published` messages, writes to the next one, and dies
    /// there.
    ///
    /// # Panics
    /// If the model fails.
    pub fn die_in_run(mut self, run: u64, published: u64, bytes: usize) -> Entrance {
        let message = vec![self.mark(); bytes];
        let wait = |s: &mut Sender<ModelKernel>| Self::wait(s, false, 0, Wait::Spin);
        assert_eq!(self.sender.die_in_run(run, published, &message, wait), Ok(()));
        self.die()
    }

    /// Dies without leaving.
    #[must_use]
    pub fn die(self) -> Entrance {
        self.entrance
    }

    /// Leaves.
    pub fn leave(mut self) {
        self.sender.leave();
    }
}

/// What a receiver checks while there is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Only the stamp, as in the first microseconds of a wait.
    AtStamp,
    /// Also whether the channel has ended.
    AtEnd,
    /// Also whether the channel has ended; then it sleeps.
    Asleep,
}

/// A receiver with the library's wait loop.
#[derive(Debug)]
pub struct SharedReceiver(pub Receiver<ModelKernel>, Option<InPlace>, Roster);

impl SharedReceiver {
    fn look(receiver: &mut Receiver<ModelKernel>, look: Look) -> Result<(), Stop> {
        if look != Look::AtStamp
            && let Some(end) = receiver.end()?
        {
            return Err(Stop::End(end));
        }
        match look {
            Look::Asleep => receiver.sleep(SLEEP_CAP_NS),
            Look::AtStamp | Look::AtEnd => pause(),
        }
        Ok(())
    }

    /// Receives the next message and checks that it is whole.
    ///
    /// # Errors
    /// The end of the channel, or a violation.
    ///
    /// # Panics
    /// If the message is torn.
    pub fn receive(&mut self, look: Look) -> Result<Mark, Stop> {
        if let Some(in_place) = self.1 {
            let message = self.0.receive_with(in_place, |receiver| Self::look(receiver, look))?;
            return Ok(read_mark(&message).expect("assertion: a message is torn"));
        }
        let mut snapshot = self.0.snapshot_with(|receiver| Self::look(receiver, look))?;
        let mut copy = vec![0; snapshot.bytes()];
        if snapshot.copy_out(0, &mut copy).is_ok() {
            return Ok(read_mark(&copy).expect("assertion: a message is torn"));
        }
        drop(snapshot);
        Err(Stop::End(self.0.end()?.expect("assertion: only the evicted lose")))
    }

    /// Receives `count` messages.
    ///
    /// # Panics
    /// If the channel ends first.
    pub fn receive_many(&mut self, count: usize, look: Look) -> Vec<Mark> {
        (0..count).map(|_| self.receive(look).expect("assertion: no end yet")).collect()
    }

    /// Receives up to `count` messages, as long as the next one is already there.
    ///
    /// # Panics
    /// If a message is torn.
    pub fn receive_ready(&mut self, count: usize) -> Vec<Mark> {
        let mut received = Vec::new();
        while received.len() < count && self.0.is_ready() {
            match self.receive(Look::AtStamp) {
                Ok(mark) => received.push(mark),
                Err(Stop::End(End::Evicted)) => break,
                Err(stop) => panic!("assertion: {stop:?}"),
            }
        }
        received
    }

    /// Receives everything up to the end of the channel.
    ///
    /// # Panics
    /// If memory held an impossible value.
    pub fn receive_all(&mut self, look: Look) -> (Vec<Mark>, End) {
        let mut all = Vec::new();
        loop {
            match self.receive(look) {
                Ok(mark) => all.push(mark),
                Err(Stop::End(end)) => return (all, end),
                Err(stop) => panic!("assertion: {stop:?}"),
            }
        }
    }

    /// Whether its process has learned that the sender `who` is dead.
    #[must_use]
    pub fn knows_dead(&self, who: Entrance) -> bool {
        self.2.is_dead(Party::Sender, who)
    }

    /// The part of the kernel that tells this receiver's process that a sender is dead. Call it
    /// before the receiver moves to its thread.
    #[must_use]
    pub fn obituary(&self) -> Obituary {
        let roster = self.2.clone();
        Obituary { roster, shared: Arc::clone(self.0.shared()), kernel: self.0.host().clone() }
    }
}

/// The control thread of a receiver's process.
#[derive(Debug)]
pub struct Obituary {
    roster: Roster,
    shared: Arc<ReceiverShared>,
    kernel: ModelKernel,
}

impl Obituary {
    /// Reports that sender `who` is dead.
    pub fn tell(&self, who: Entrance) {
        self.roster.record_death(Party::Sender, who);
        self.shared.notify(0, &self.kernel);
    }
}

/// Checks that the messages of each sender came in order and without gaps, and that there are
/// `counts` messages of each.
///
/// # Panics
/// If the check fails.
pub fn assert_order(received: &[Mark], counts: [u8; 2]) {
    for (name, count) in (0..).zip(counts) {
        let numbers = received.iter().filter(|mark| mark.0 == name).map(|mark| mark.1);
        assert!(numbers.eq(0..count), "assertion: {received:?}, not {count} of {name}");
    }
}
