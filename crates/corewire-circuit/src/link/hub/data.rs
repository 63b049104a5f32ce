//! The data lane of a program's link: how it is looked at, and waited for.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use corewire::{Connection, Endpoint, Event, MessageError, Peer, Selector};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::ends::Lane;
use crate::link::ring::RingLane;
use crate::link::socket::{DATA_BYTES_MAX, LaneEnd, receive_frame, send_frame};
use crate::link::trace;
use crate::patience::Patience;
use crate::wire::trace::Point;
use crate::wire::{DATA_HEADER_BYTES, Hop, Label, data_of_packet};

/// Where a frame is received. One byte more shows which packets are too long.
pub(super) type Buffer = [u8; DATA_BYTES_MAX + 1];

pub(super) enum DataLane {
    Ring {
        endpoint: Box<Endpoint>,
        ring: RingLane,
    },
    /// `is_over`: its end has been read, and that of the control lane is to come.
    Socket {
        socket: Connection,
        event: Arc<OwnedFd>,
        is_full: bool,
        is_over: bool,
    },
}

/// What a look at the data lane has found.
pub(super) enum Seen {
    /// A frame, whose payload is at the beginning of the buffer; `None` for what is no kind of frame.
    Frame(Label, Option<Hop>, usize),
    /// Something that needs no more than another look.
    Something,
    Nothing,
    /// Nothing, and frames wait for room: the caller must wait for both, for so long.
    NoRoom(Option<Duration>),
    Interrupted,
    /// The monitor has ended, or does what it must not.
    Lost(String),
}

impl Lane for DataLane {
    #[inline]
    fn frame(&mut self, label: Label, hop: Hop, payload: &[u8]) -> bool {
        match self {
            Self::Ring { endpoint, ring } => ring.frame(endpoint, label, hop, payload),
            Self::Socket { socket, is_full, .. } => {
                *is_full = *is_full || send_frame(&*socket, label, hop, payload) == Ok(false);
                !*is_full
            }
        }
    }

    fn sent(&mut self, at: Point, ordinal: u16, bytes: usize) {
        trace::sent(at, ordinal, bytes);
    }
}

impl DataLane {
    /// Takes what has come, waiting for the first of it.
    ///
    /// # Errors
    /// This process was forked.
    #[inline]
    pub(super) fn look(
        &mut self,
        buffer: &mut Buffer,
        patience: Patience,
    ) -> Result<Seen, MessageError> {
        match self {
            Self::Ring { endpoint, ring } => look_at_ring(endpoint, ring, buffer, patience),
            Self::Socket { socket, event, is_full, is_over } => {
                Ok(look_at_socket(socket, event, [is_full, is_over], buffer, patience))
            }
        }
    }

    /// Announces that a program waits for the descriptors. False if there is something to do before.
    ///
    /// # Errors
    /// As of [`Endpoint::arm`].
    pub(super) fn arm(&mut self) -> Result<bool, MessageError> {
        let Self::Ring { endpoint, ring } = self else { return Ok(true) };
        match endpoint.arm() {
            Err(MessageError::Interrupted) => {
                ring.set_interrupted();
                Ok(false)
            }
            armed => armed,
        }
    }

    /// Whether a socket has no room.
    pub(super) const fn is_full(&self) -> bool {
        matches!(self, Self::Socket { is_full: true, .. })
    }

    /// Adds what announces that something has come to a set of descriptors.
    ///
    /// # Errors
    /// That of the system.
    pub(super) fn watch(&self, set: &OwnedFd) -> Result<(), Errno> {
        let (data, flags) = (EventData::new_u64(0), EventFlags::IN);
        match self {
            Self::Ring { endpoint, .. } => epoll::add(set, endpoint.readiness(), data, flags),
            Self::Socket { socket, event, .. } => {
                epoll::add(set, socket, data, flags)?;
                epoll::add(set, event, data, flags)
            }
        }
    }
}

#[inline]
fn look_at_ring(
    endpoint: &mut Endpoint,
    ring: &mut RingLane,
    buffer: &mut Buffer,
    patience: Patience,
) -> Result<Seen, MessageError> {
    let has_room_again = ring.has_room_again(endpoint);
    if ring.take_interrupted() {
        return Ok(Seen::Interrupted);
    }
    if has_room_again {
        return Ok(Seen::Something);
    }
    let any = Selector::any();
    let received = match patience.left() {
        // A receive would not return when there is room.
        Ok(left) if ring.is_full() => match endpoint.now().receive_event_into(any, buffer) {
            Ok(None) => return Ok(Seen::NoRoom(left)),
            received => received,
        },
        Ok(None) => endpoint.receive_event_into(any, buffer).map(Some),
        Ok(Some(left)) => endpoint.within(left).receive_event_into(any, buffer),
        Err(_) => endpoint.now().receive_event_into(any, buffer),
    };
    Ok(match received {
        Ok(Some(Event::Received(found))) if found.source == ring.peer() => {
            let hop = found.immediate.and_then(Hop::of_word);
            let length = usize::try_from(found.bytes).unwrap_or(usize::MAX);
            Seen::Frame(Label::of_word(found.tag), hop, length)
        }
        // If it has ended, the end of its control lane comes behind what is in there.
        Ok(Some(Event::Gone { peer, why: why @ MessageError::PeerCutOff { .. } }))
            if peer == ring.peer() =>
        {
            Seen::Lost(why.to_string())
        }
        // Nobody else has a reason to send anything here.
        Ok(Some(_)) => Seen::Something,
        Ok(None) => Seen::Nothing,
        Err(MessageError::Interrupted) => Seen::Interrupted,
        Err(MessageError::Forked) => return Err(MessageError::Forked),
        Err(MessageError::BufferTooSmall { .. }) if discard_of_strangers(endpoint, ring.peer()) => {
            Seen::Something
        }
        Err(error) => Seen::Lost(error.to_string()),
    })
}

/// Discards a message that is longer than a frame, if another process than the monitor has sent it. False if the monitor
/// has.
#[cold]
fn discard_of_strangers(endpoint: &mut Endpoint, monitor: Peer) -> bool {
    match endpoint.now().probe(Selector::any()) {
        Ok(Some(status)) if status.source == monitor => false,
        Ok(Some(status)) => {
            // An error is that of the next call, too.
            let _ = endpoint.discard(Selector::any().from(status.source));
            true
        }
        // Its sender has stopped in the middle of it.
        _ => {
            std::thread::yield_now();
            true
        }
    }
}

fn look_at_socket(
    socket: &Connection,
    event: &OwnedFd,
    [is_full, is_over]: [&mut bool; 2],
    buffer: &mut Buffer,
    patience: Patience,
) -> Seen {
    let received = match *is_over {
        true => Ok(None),
        false => receive_frame(socket, buffer, &mut Vec::new()),
    };
    match received {
        Ok(Some(length)) => {
            let frame = data_of_packet(buffer.get(..length).unwrap_or_default());
            let Some((label, hop, _)) = frame else {
                return Seen::Lost(NO_FRAME.to_owned());
            };
            buffer.copy_within(DATA_HEADER_BYTES..length, 0);
            return Seen::Frame(label, Some(hop), length - DATA_HEADER_BYTES);
        }
        Ok(None) => {}
        // That of the control lane comes behind what is in there.
        Err(LaneEnd::Closed) => *is_over = true,
        Err(end) => return Seen::Lost(end.to_string()),
    }
    let left = patience.left().unwrap_or(Some(Duration::ZERO));
    let out = if *is_full { PollFlags::OUT } else { PollFlags::empty() };
    let mut all = [PollFd::new(event, PollFlags::IN), PollFd::new(socket, PollFlags::IN | out)];
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    // An end could be read for ever.
    let watched = if *is_over { 1 } else { 2 };
    let polled = poll(&mut all[..watched], left.as_ref());
    let [on_event, on_socket] = all.map(|one| one.revents());
    if on_socket.contains(PollFlags::OUT) {
        *is_full = false;
    }
    if on_event.contains(PollFlags::IN) {
        let _ = rustix::io::read(event, &mut [0; 8]);
        return Seen::Interrupted;
    }
    if polled == Ok(0) { Seen::Nothing } else { Seen::Something }
}

/// What a monitor must not send.
pub(super) const NO_FRAME: &str = "the monitor sent a frame that is none";
