//! What the hub's threads share, each while it has the lock: the ends of all circuits, what has come for each, and the
//! data lane.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corewire_os::packet::{self, SocketError};
use rustix::event::{PollFlags, epoll};

use super::data::{Buffer, DataLane, NO_FRAME, Seen};
use super::message::{Bytes, BytesMaxOf, CircuitError, Message};
use crate::ends::{Arrival, Ended, Ends, Head, ProtocolError};
use crate::link::capability::{self, Received};
use crate::link::control::{Control, MonitorEvent, descriptors_max};
use crate::link::sent::{Whose, closing_count};
use crate::link::socket::DATA_BYTES_MAX;
use crate::link::trace;
use crate::patience::Patience;
use crate::wire::packet::{End, Origin, Packet};
use crate::wire::trace::Kind;
use crate::wire::{Hop, Label, lines_of};

/// Frames that a monitor which has ended may have left.
const LEFT_MAX: usize = 65_536;

pub(super) struct State {
    pub(super) ends: Ends,
    pub(super) lane: DataLane,
    pub(super) circuits: Locals,
    pub(super) control: Arc<Control>,
    /// A thread waits for the link.
    pub(super) is_led: bool,
    /// The circuits whose threads follow.
    pub(super) followers: Vec<u32>,
    /// The circuits with a descriptor that a program waits for.
    pub(super) bells: BTreeSet<u32>,
    pub(super) lost: Option<String>,
    /// Descriptors of services of other users whose messages have not been taken.
    pub(super) foreign_descriptors: usize,
    buffer: Box<Buffer>,
}

impl State {
    /// What there is when a link comes up.
    pub(super) fn new(lane: DataLane, control: Arc<Control>) -> Self {
        Self {
            ends: Ends::default(),
            lane,
            circuits: Locals::default(),
            control,
            is_led: false,
            followers: Vec::new(),
            bells: BTreeSet::new(),
            lost: None,
            foreign_descriptors: 0,
            buffer: Box::new([0; DATA_BYTES_MAX + 1]),
        }
    }
}

/// Wakes a thread that follows. It has a lock of its own: the leader keeps the state while it waits.
#[derive(Default)]
pub(super) struct Signal {
    is_given: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    pub(super) fn give(&self) {
        *self.is_given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Waits until it is given, for at most so long.
    pub(super) fn wait(&self, left: Option<Duration>) {
        let is_given = self.is_given.lock().unwrap_or_else(PoisonError::into_inner);
        let left = left.unwrap_or(Duration::MAX);
        let _ = self.changed.wait_timeout_while(is_given, left, |is_given| !*is_given);
    }
}

/// What is known here of a circuit.
#[derive(Default)]
pub(super) struct Local {
    queue: VecDeque<Arrived>,
    rights: VecDeque<Option<Vec<Received>>>,
    pub(super) answer: Option<(Origin, Vec<u8>)>,
    /// The longest message that an answer announces.
    bytes_max_of: Option<BytesMaxOf>,
    /// The service's process may be of another user.
    pub(super) is_foreign: bool,
    /// Wakes the thread that follows for it.
    pub(super) follower: Option<Arc<Signal>>,
    pub(super) bell: Option<Arc<OwnedFd>>,
    /// What the program waits for, and whether that has room on the data lane's socket in it.
    pub(super) set: Option<(OwnedFd, bool)>,
}

impl Local {
    /// Descriptors whose messages have not been taken.
    pub(super) fn descriptor_count(&self) -> usize {
        self.rights.iter().flatten().map(Vec::len).sum()
    }

    /// Whether so many descriptors more may wait: for one service of another user a quarter of what this process can
    /// open, for all of them, which have `foreign`, three quarters.
    fn has_room(&self, count: usize, foreign: usize) -> bool {
        let quarter = descriptors_max() / 4;
        !self.is_foreign
            || count == 0
            || self.descriptor_count() + count <= quarter
                && foreign + closing_count(Whose::Peer) + count <= 3 * quarter
    }

    /// Whether what its program waits for announces room on the data lane's socket.
    const fn watches_room(&self) -> bool {
        matches!(&self.set, Some((_, true)))
    }

    fn ring(&self) {
        if let Some(follower) = &self.follower {
            follower.give();
        }
        if let Some(bell) = &self.bell {
            let _ = rustix::io::write(bell, &1_u64.to_le_bytes());
        }
    }
}
/// Circuits by index.
#[derive(Default)]
pub(super) struct Locals(Vec<Option<Local>>);

impl Locals {
    pub(super) fn insert(&mut self, index: u32, bytes_max_of: BytesMaxOf) {
        let index = index as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        let bytes_max_of = Some(bytes_max_of);
        self.0[index] = Some(Local { is_foreign: true, bytes_max_of, ..Local::default() });
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Local> {
        self.0.get(index as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Local> {
        self.0.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Local> {
        let removed = self.0.get_mut(index as usize)?.take();
        while matches!(self.0.last(), Some(None)) {
            self.0.pop();
        }
        removed
    }

    fn iter(&self) -> impl Iterator<Item = &Local> {
        self.0.iter().flatten()
    }
}

/// A message that has come for a circuit, and waits for its receiver.
pub(super) struct Arrived {
    pub(super) head: Head,
    pub(super) bytes: Bytes,
    /// What it takes of the credit that was granted.
    lines: u32,
}

impl Arrived {
    /// The message, without capabilities.
    #[inline]
    pub(super) fn into_message(self) -> Message {
        Message { head: self.head, bytes: self.bytes, capabilities: Some(Vec::new()) }
    }
}

/// What a look at the link has found.
pub(super) enum Look {
    /// A message of a circuit, which is in no queue yet.
    Message(u32, Arrived),
    Something,
    Nothing,
    Interrupted,
}

impl State {
    /// The end of a circuit, once everything that came before it has been taken.
    pub(super) fn ended(&self, index: u32) -> Option<CircuitError> {
        let local = self.circuits.get(index)?;
        if !local.queue.is_empty() {
            return None;
        }
        let ended = match self.ends.ended(index) {
            Some(ended) => ended.clone(),
            None if self.ends.has_last(index) => {
                Ended { end: End::Closed, reason: "the service has closed it".to_owned() }
            }
            None => Ended { end: End::Lost, reason: self.lost.clone()? },
        };
        Some(CircuitError::Ended(ended, self.ends.delivered_count(index)))
    }

    pub(super) fn has_message(&self, index: u32) -> bool {
        self.circuits.get(index).is_some_and(|local| match local.queue.front() {
            // Once the circuit has ended no capabilities can come any more.
            Some(Arrived { head, .. }) => {
                let is_over = || self.lost.is_some() || self.ends.ended(index).is_some();
                head.capabilities == 0 || !local.rights.is_empty() || is_over()
            }
            None => false,
        })
    }

    /// Takes the next message of a circuit. One whose capabilities have not come waits, with those behind it.
    pub(super) fn take(&mut self, index: u32) -> Option<Message> {
        if !self.has_message(index) {
            return None;
        }
        let local = self.circuits.get_mut(index)?;
        let arrived = local.queue.pop_front()?;
        let (lines, count) = (arrived.lines, arrived.head.capabilities);
        let mut message = arrived.into_message();
        if count > 0 {
            let rights = local.rights.pop_front().flatten();
            if local.is_foreign {
                self.foreign_descriptors -= rights.as_ref().map_or(0, Vec::len);
            }
            message.capabilities = rights.filter(|rights| rights.len() == usize::from(count));
        }
        self.ends.release(index, lines);
        Some(message)
    }

    /// Sends what waits, as far as there is room.
    #[inline]
    pub(super) fn flush(&mut self) {
        if self.ends.has_work() {
            self.ends.flush(&mut self.lane, |_| {});
        }
    }

    /// A thread has done what it came for: another one may have to lead.
    pub(super) fn end_lead(&mut self) {
        self.flush();
        if !self.is_led
            && let Some(&first) = self.followers.first()
            && let Some(follower) = self.circuits.get(first).and_then(|one| one.follower.as_ref())
        {
            follower.give();
        }
        if self.bells.is_empty() {
            return;
        }
        // Programs that wait for descriptors: this thread has taken away what announced the next message, or has left
        // no room, of which those learn that do not watch it.
        let is_armed = matches!(self.arm(), Ok(true));
        let is_full = self.lane.is_full();
        let locals = self.bells.iter().filter_map(|index| self.circuits.get(*index));
        locals
            .filter(|local| !is_armed || is_full && !local.watches_room())
            .filter_map(|local| local.bell.as_ref())
            .for_each(|bell| _ = rustix::io::write(bell, &1_u64.to_le_bytes()));
    }

    /// Lets the descriptor of a circuit announce room on the data lane's socket while there is none.
    pub(super) fn watch_room(&mut self, index: u32) -> Result<(), CircuitError> {
        let DataLane::Socket { socket, is_full, .. } = &self.lane else { return Ok(()) };
        let local = self.circuits.get_mut(index);
        let Some((set, is_watched)) = local.and_then(|local| local.set.as_mut()) else {
            return Ok(());
        };
        if is_watched != is_full {
            let out = if *is_full { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let flags = epoll::EventFlags::IN | out;
            epoll::modify(set, socket, epoll::EventData::new_u64(0), flags).map_err(|errno| {
                CircuitError::Os { what: "watch the monitor", errno: errno.raw_os_error() }
            })?;
            *is_watched = *is_full;
        }
        Ok(())
    }

    /// Announces that a program waits for the descriptors. False if there is something to do before.
    pub(super) fn arm(&mut self) -> Result<bool, CircuitError> {
        if !self.lane.arm()? {
            return Ok(false);
        }
        // What came, or found room, before that will not be announced.
        match self.look(Patience::None)? {
            Look::Nothing => Ok(true),
            Look::Message(index, arrived) => {
                self.put(index, arrived);
                Ok(false)
            }
            Look::Something | Look::Interrupted => Ok(false),
        }
    }

    /// Sends what is due, and takes what has come, waiting for the first of it.
    #[inline]
    pub(super) fn look(&mut self, patience: Patience) -> Result<Look, CircuitError> {
        self.flush();
        Ok(match self.lane.look(&mut self.buffer, patience)? {
            Seen::Frame(label, hop, length) => self.frame(label, hop, length),
            Seen::Something => Look::Something,
            Seen::Nothing => Look::Nothing,
            Seen::Interrupted => Look::Interrupted,
            Seen::NoRoom(left) => return self.wait_armed(left),
            Seen::Lost(reason) => {
                self.lose(&reason);
                Look::Something
            }
        })
    }

    /// Waits for the endpoint's descriptor: for a message, for room, or for an interruption.
    fn wait_armed(&mut self, left: Option<Duration>) -> Result<Look, CircuitError> {
        if !self.arm()? {
            return Ok(Look::Interrupted);
        }
        let DataLane::Ring { endpoint, .. } = &self.lane else { return Ok(Look::Nothing) };
        let until = left.and_then(|left| Instant::now().checked_add(left));
        match packet::wait(endpoint.readiness(), PollFlags::IN, until) {
            Ok(true) => Ok(Look::Interrupted),
            Ok(false) => Ok(Look::Nothing),
            Err(SocketError::Os(errno)) => Err(CircuitError::Os { what: "wait", errno }),
            Err(_) => Ok(Look::Nothing),
        }
    }

    /// Handles a frame whose payload is in the buffer.
    #[inline]
    fn frame(&mut self, label: Label, hop: Option<Hop>, length: usize) -> Look {
        let payload = self.buffer.get(..length).unwrap_or_default();
        let Some(hop) = hop else {
            self.lose(NO_FRAME);
            return Look::Something;
        };
        let mut lines = lines_of(payload.len());
        let began = trace::begin();
        let (index, head, bytes) = match self.ends.frame(label, hop, payload) {
            Ok(Arrival::Short(index, head, bytes)) => (index, head, Bytes::of(bytes)),
            Ok(Arrival::Long(index, head, bytes)) => {
                lines = lines_of(bytes.len());
                (index, head, Bytes::Long(bytes))
            }
            Ok(Arrival::Changed(index)) => {
                self.ring(index);
                return Look::Something;
            }
            Ok(Arrival::Nothing) => return Look::Something,
            Err(ProtocolError::Peer { index, what }) => {
                let reason = format!("the service sent {what}");
                if let Some(reset) = self.ends.cut(index, End::Violation, &reason) {
                    self.control.send(&Packet::Reset(Box::new(reset)), Vec::new());
                }
                self.ring(index);
                return Look::Something;
            }
            Err(wrong) => {
                self.lose(&wrong.to_string());
                return Look::Something;
            }
        };
        if began != 0 {
            let came = self.ends.received_at(label);
            trace::end(began, Kind::Receive, [came, None], head.ordinal, length);
        }
        Look::Message(index, Arrived { head, bytes, lines })
    }

    /// Puts a message into the queue of its circuit.
    pub(super) fn put(&mut self, index: u32, arrived: Arrived) {
        if let Some(local) = self.circuits.get_mut(index) {
            self.ends.store(index, arrived.lines);
            local.queue.push_back(arrived);
            local.ring();
        }
    }

    /// Whether nothing of a circuit waits, and no other thread waits for anything.
    #[inline]
    pub(super) fn is_quiet(&self, index: u32) -> bool {
        !self.is_led && !self.ends.has_work() && self.lost.is_none() && self.ends.is_quiet(index)
    }

    /// Wakes the thread or task that waits for a circuit.
    fn ring(&self, index: u32) {
        if let Some(local) = self.circuits.get(index) {
            local.ring();
        }
    }

    /// The link has ended.
    fn lose(&mut self, reason: &str) {
        self.lost.get_or_insert_with(|| reason.to_owned());
        self.ends.link_lost(reason);
        self.circuits.iter().for_each(Local::ring);
    }

    /// Handles what came in the control lane.
    pub(super) fn apply(&mut self, news: MonitorEvent) {
        match news {
            MonitorEvent::Packet(Packet::Accept { to, label, credit, origin, answer }, _) => {
                if let Some(index) = self.ends.find(to) {
                    self.ends.accepted(index, label, credit);
                    if let Some(local) = self.circuits.get_mut(index) {
                        // Before the first of its messages is read.
                        if let Some(bytes_max) = local.bytes_max_of.and_then(|of| of(&answer)) {
                            self.ends.set_bytes_max(index, bytes_max);
                        }
                        if local.is_foreign && origin.uid == rustix::process::geteuid().as_raw() {
                            local.is_foreign = false;
                            self.foreign_descriptors -= local.descriptor_count();
                        }
                        local.answer = Some((origin, answer));
                    }
                    self.ring(index);
                }
            }
            MonitorEvent::Packet(Packet::Reset(reset), _) => {
                if let Some(index) = self.ends.reset(*reset) {
                    self.ring(index);
                }
            }
            MonitorEvent::Packet(Packet::Capabilities { to, is_lost, notes }, rights) => {
                let rights = capability::parse(is_lost, &notes, rights, Whose::Peer);
                if let Some(index) = self.ends.find(to) {
                    let foreign = self.foreign_descriptors;
                    if let Some(local) = self.circuits.get_mut(index) {
                        let rights = rights.filter(|rights| local.has_room(rights.len(), foreign));
                        if local.is_foreign {
                            self.foreign_descriptors += rights.as_ref().map_or(0, Vec::len);
                        }
                        local.rights.push_back(rights);
                    }
                    self.ring(index);
                }
            }
            MonitorEvent::Packet(Packet::Refused { reason }, _) => {
                self.lose(&format!("the monitor has ended the link: {reason}"));
            }
            MonitorEvent::Lost(reason) => self.drain(&reason),
            MonitorEvent::Packet(..) | MonitorEvent::Frame(..) | MonitorEvent::Room => {}
        }
    }

    /// The control lane has ended: takes first what is left in the data lane.
    fn drain(&mut self, reason: &str) {
        // A socket's buffer holds fewer frames: a monitor that goes on sending is not heard any more.
        for _ in 0..LEFT_MAX {
            if self.lost.is_some() {
                break;
            }
            match self.look(Patience::None) {
                Ok(Look::Message(index, arrived)) => self.put(index, arrived),
                // What interrupted it is handled already, or counted in `waiting`.
                Ok(Look::Something | Look::Interrupted) => {}
                _ => break,
            }
        }
        self.lose(&match self.lane {
            DataLane::Ring { .. } => "the link to the monitor has ended".to_owned(),
            DataLane::Socket { .. } => format!("the monitor has ended the link: {reason}"),
        });
    }
}
