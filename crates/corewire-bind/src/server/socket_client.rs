//! A client at the other end of a socket: one that binds, one that is bound by `sock`, or the socket beside a ring.
//!
//! The service's thread sends; the thread of the sockets reads, and sends what found no room.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use corewire::Connection;
use corewire_os::packet::SocketError;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};

use super::client_id::ClientId;
use crate::capability::{Capabilities, Received};
use crate::identity::Identity;
use crate::lane::backlog::{Admission, Frame, Kept, Weight};
use crate::lane::packet::Assembler;
use crate::lane::packets::{self, Packet, Receiver, Unsent};
use crate::lane::{LaneError, take_beside};
use crate::message::Message;
use crate::tag::{Control, Tag};

/// Bytes of one socket client's messages that wait for the service's thread; beyond them its socket is not read.
const UNHANDLED_BYTES_MAX: usize = 1 << 20;

/// Descriptors of messages that wait for one socket client to read; one message may have more. Beyond them events are
/// left out, and replies become the note that their capabilities could not be sent.
const UNSENT_DESCRIPTORS_MAX: usize = 64;

/// A client at the other end of a socket.
pub(super) struct SocketClient {
    /// What it is called in the socket thread's set.
    pub(super) key: u64,
    pub(super) identity: Identity,
    pub(super) id: OnceLock<ClientId>,
    /// Set once the client has said how it will speak: its binding is complete.
    is_bound: OnceLock<()>,
    socket: Connection,
    socket_thread: Arc<OwnedFd>,
    state: Mutex<State>,
    /// Of the thread of the sockets, or of the service's once the client uses a ring.
    pub(super) reading: Mutex<Reading>,
}

pub(super) struct Reading {
    pub(super) receiver: Receiver,
    pub(super) assembler: Assembler,
}

#[derive(Debug, Default)]
struct State {
    unsent: VecDeque<Unsent>,
    kept: Kept,
    /// Events that were left out behind what is unsent.
    lost_count: u64,
    unhandled_bytes: usize,
    /// Descriptors of what is unsent.
    unsent_descriptors: usize,
    /// The service's thread will be told that the client has not said in time how it speaks.
    is_late_told: bool,
    /// It has been told.
    was_late: bool,
    /// It uses a ring: the socket carries capabilities, and the service's thread reads it.
    is_lane: bool,
    /// Nothing more is read. The socket is closed once everything is sent.
    is_ending: bool,
}

impl SocketClient {
    pub(super) fn new(
        key: u64,
        socket: Connection,
        socket_thread: &Arc<OwnedFd>,
        bytes_max: u32,
    ) -> Self {
        let identity = Identity { uid: socket.uid(), gid: socket.gid(), pid: socket.pid() };
        let (receiver, assembler) = (Receiver::default(), Assembler::new(bytes_max));
        Self {
            key,
            identity,
            id: OnceLock::new(),
            is_bound: OnceLock::new(),
            socket,
            socket_thread: Arc::clone(socket_thread),
            state: Mutex::default(),
            reading: Mutex::new(Reading { receiver, assembler }),
        }
    }

    pub(super) fn socket(&self) -> &Connection {
        &self.socket
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the socket thread waits for.
    fn watch(&self, state: &State) {
        // Its end is reported in any case.
        let mut flags = EventFlags::empty();
        if !state.is_ending {
            flags |= EventFlags::RDHUP;
            if !state.is_lane && state.unhandled_bytes < UNHANDLED_BYTES_MAX {
                flags |= EventFlags::IN;
            }
        }
        if !state.unsent.is_empty() {
            flags |= EventFlags::OUT;
        }
        // It fails if the socket thread has removed the socket: then there is nothing to wait for.
        let _ =
            epoll::modify(&*self.socket_thread, &self.socket, EventData::new_u64(self.key), flags);
    }

    /// How many messages wait for the socket client.
    pub(super) fn unsent_count(&self) -> usize {
        self.lock().kept.count
    }

    /// Sends a reply, or what else must come. Never waits.
    pub(super) fn send(
        &self,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
    ) -> Result<(), SocketError> {
        self.send_in(&mut self.lock(), frame, capabilities)
    }

    /// Sends a message, or leaves it out, as what waits allows.
    pub(super) fn deliver(
        &self,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
        weight: Weight,
        part_bytes: usize,
    ) -> Result<Admission, SocketError> {
        let mut state = self.lock();
        let admission = state.kept.held().admit(weight, frame.cost_bytes(), part_bytes);
        match admission {
            Admission::CutOff => {}
            Admission::Lose => state.lost_count += 1,
            Admission::Send => {
                self.send_lost(&mut state)?;
                self.send_in(&mut state, frame, capabilities)?;
            }
        }
        Ok(admission)
    }

    /// Tells the socket client how many events were left out, if some were.
    fn send_lost(&self, state: &mut State) -> Result<(), SocketError> {
        let lost_count = std::mem::take(&mut state.lost_count);
        if lost_count == 0 {
            return Ok(());
        }
        let lost = Frame::note(Tag::control(0, Control::Lost), lost_count);
        self.send_in(state, lost, &Capabilities::new())
    }

    fn send_in(
        &self,
        state: &mut State,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
    ) -> Result<(), SocketError> {
        if state.is_ending {
            return Ok(());
        }
        let Frame { tag, status, bytes } = frame;
        let unsent = match (state.unsent.is_empty(), status) {
            (true, None) => packets::send_now(&self.socket, tag, bytes, capabilities)?,
            (true, Some(word)) => match Packet::status(tag, word).send(&self.socket) {
                Err(SocketError::NotNow) => Some(Unsent::new(tag, status, Vec::new(), Vec::new())),
                sent => sent.map(|()| None)?,
            },
            (false, None) => {
                let count = capabilities.all().len();
                if state.unsent_descriptors > 0
                    && state.unsent_descriptors + count > UNSENT_DESCRIPTORS_MAX
                {
                    return Err(Errno::TOOMANYREFS.into());
                }
                Some(Unsent::rest(tag, bytes, capabilities, 0)?)
            }
            (false, status) => Some(Unsent::new(tag, status, Vec::new(), Vec::new())),
        };
        if let Some(unsent) = unsent {
            state.kept.add(unsent.cost_bytes());
            state.unsent_descriptors += unsent.descriptor_count();
            state.unsent.push_back(unsent);
            self.watch(state);
        }
        Ok(())
    }

    /// Sends what waits, as far as there is room. False if the socket can be closed.
    pub(super) fn flush(&self) -> bool {
        let mut state = self.lock();
        while let Some(unsent) = state.unsent.front_mut() {
            match unsent.send(&self.socket) {
                Ok(false) => return true,
                Ok(true) => {
                    if let Some(sent) = state.unsent.pop_front() {
                        state.kept.remove(sent.cost_bytes());
                        state.unsent_descriptors -= sent.descriptor_count();
                    }
                }
                Err(_) => return false,
            }
        }
        if !state.is_lane && self.send_lost(&mut state).is_err() {
            return false;
        }
        self.watch(&state);
        !state.is_ending || !state.unsent.is_empty()
    }

    /// An event cannot be sent, since too many descriptors are on their way: the client is told where it is missing.
    pub(super) fn lose_event(&self) {
        let mut state = self.lock();
        state.lost_count += 1;
        // What waits goes first.
        if state.unsent.is_empty() {
            // The socket thread sees what is wrong with the socket.
            let _ = self.send_lost(&mut state);
        }
    }

    /// A message was read and waits for the service's thread.
    pub(super) fn add_unhandled(&self, message: &Message) {
        let mut state = self.lock();
        state.unhandled_bytes += message.cost_bytes();
        if state.unhandled_bytes >= UNHANDLED_BYTES_MAX {
            self.watch(&state);
        }
    }

    /// It waits no longer.
    pub(super) fn take_unhandled(&self, message: &Message) {
        let mut state = self.lock();
        let was_full = state.unhandled_bytes >= UNHANDLED_BYTES_MAX;
        state.unhandled_bytes -= message.cost_bytes();
        if was_full && state.unhandled_bytes < UNHANDLED_BYTES_MAX {
            self.watch(&state);
        }
    }

    /// The client has said how it will speak.
    pub(super) fn set_bound(&self) {
        // It says so once.
        let _ = self.is_bound.set(());
    }

    /// Whether it has.
    pub(super) fn is_bound(&self) -> bool {
        self.is_bound.get().is_some()
    }

    /// Whether it has sent nothing that the service's thread has handled or will handle.
    pub(super) fn is_silent(&self) -> bool {
        self.id.get().is_none() && self.lock().unhandled_bytes == 0
    }

    /// Takes note that the service's thread will be told that it is late. False if that waits already.
    pub(super) fn must_report_late(&self) -> bool {
        !std::mem::replace(&mut self.lock().is_late_told, true)
    }

    /// The service's thread has been told. True if it was before.
    pub(super) fn is_late_again(&self) -> bool {
        let mut state = self.lock();
        state.is_late_told = false;
        std::mem::replace(&mut state.was_late, true)
    }

    /// Closes the socket beside a ring that has ended.
    pub(super) fn close(&self) {
        // The socket thread sees it.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Whether the socket thread reads the socket.
    pub(super) fn is_read(&self) -> bool {
        let state = self.lock();
        !state.is_lane && !state.is_ending
    }

    /// Whether the service has ended the connection.
    pub(super) fn is_ending(&self) -> bool {
        self.lock().is_ending
    }

    /// Whether enough waits for the service's thread.
    pub(super) fn is_full(&self) -> bool {
        self.lock().unhandled_bytes >= UNHANDLED_BYTES_MAX
    }

    /// Accepts messages up to this length from now on.
    pub(super) fn set_bytes_max(&self, bytes_max: u32) {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.assembler.set_bytes_max(bytes_max);
    }

    /// From here on the client's messages come through a ring, and the service's thread reads the socket.
    pub(super) fn become_lane(&self) {
        // A read of the socket thread's ends before, and the next one looks first.
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        state.is_lane = true;
        self.watch(&state);
        drop(state);
        self.set_bound();
    }

    /// Sends the capabilities of a message in the ring.
    pub(super) fn send_beside(
        &self,
        tag: Tag,
        capabilities: &Capabilities<'_>,
    ) -> Result<(), SocketError> {
        Packet::lane(tag, capabilities.all()).send(&self.socket)
    }

    /// Takes the capabilities of a message that came in the ring.
    pub(super) fn take_beside(&self, tag: Tag) -> Result<Vec<Received>, LaneError> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        take_beside(&mut reading.receiver, &self.socket, tag)
    }

    /// Ends the connection with a reason: reads nothing more, forgets what has not been sent, and closes the socket once
    /// the reason is sent. The client's sends fail from now on.
    pub(super) fn end(&self, reason: Frame<'_>) {
        let mut state = self.lock();
        // The rest of a message of which a part has gone must follow.
        let is_begun = state.unsent.front().is_some_and(Unsent::is_begun);
        state.unsent.truncate(usize::from(is_begun));
        state.kept = Kept::default();
        state.unsent_descriptors = 0;
        if let Some(begun) = state.unsent.front() {
            let (cost_bytes, descriptors) = (begun.cost_bytes(), begun.descriptor_count());
            state.kept.add(cost_bytes);
            state.unsent_descriptors = descriptors;
        }
        // One that has gone does not learn it.
        let _ = self.send_in(&mut state, reason, &Capabilities::new());
        state.is_ending = true;
        // Before it is shut: this must not be taken for the client's end, with which the reason would be lost.
        self.watch(&state);
        let how = if state.unsent.is_empty() { Shutdown::Both } else { Shutdown::Read };
        let _ = rustix::net::shutdown(&self.socket, how);
        // A client that waits for room sees the end only when there is some. It can send nothing more.
        let (flags, mut nothing) = (RecvFlags::DONTWAIT | RecvFlags::TRUNC, [0; 1]);
        while rustix::net::recv(&self.socket, &mut nothing, flags).is_ok_and(|(_, bytes)| bytes > 0)
        {
        }
    }

    /// Tells it why it is not, or no longer, bound.
    pub(super) fn refuse(&self, reason: &str) {
        self.end(Frame::new(Tag::control(0, Control::Refuse), reason.as_bytes()));
    }

    /// Tells it that the service ends.
    pub(super) fn leave(&self) {
        let _ = self.send(Frame::note(Tag::control(0, Control::Leave), 0), &Capabilities::new());
    }
}
