//! A service's end of its circuits: clients that are bound through monitors, all over one link.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use corewire::{Connection, Endpoint, Peer};
use corewire_circuit::ends::{Arrival, Ends, Head, Lane, ProtocolError};
use corewire_circuit::link::control::{Control, descriptors_max};
use corewire_circuit::link::hub::Bytes;
use corewire_circuit::link::ring::RingLane;
use corewire_circuit::link::sent::{Whose, closing_count};
use corewire_circuit::link::socket::send_frame;
use corewire_circuit::link::{capability, trace};
use corewire_circuit::wire::packet::{End, Packet};
use corewire_circuit::wire::trace::{Kind, Point};
use corewire_circuit::wire::{Hop, Label};

use super::client_id::ClientId;
use crate::capability::{Capabilities, Received};
use crate::lane::backlog::{Frame, Held, NotSent};
use crate::message::Message;
use crate::tag::Tag;

/// Messages that may wait for a client while others with capabilities are sent: these go ahead of their messages, and
/// take descriptors of the client.
const UNSENT_MAX: usize = 64;
/// Circuits that a foreign user may have in any case, as many as connections; beyond that, a quarter of all.
const CIRCUITS_OF_USER_MIN: usize = 64;

/// The circuits of a service.
#[derive(Default)]
pub(super) struct Circuits {
    pub(super) link: Option<ServiceLink>,
    pub(super) ends: Ends,
    pub(super) locals: Vec<Option<Local>>,
    pub(super) strangers: Strangers,
    /// Circuits with messages whose capabilities have come.
    pub(super) ready: VecDeque<u32>,
    /// Circuits of which nothing waits to be sent any more.
    sent: Vec<u32>,
    /// The request that is being served, and its reply, in a trace.
    served: Option<Served>,
}

/// A frame that is being served, in a trace.
struct Served {
    began: u64,
    came: Option<Point>,
    /// The reply.
    went: Option<Point>,
    ordinal: u16,
    bytes: usize,
}

pub(super) struct ServiceLink {
    pub(super) control: Arc<Control>,
    pub(super) way: LinkWay,
    /// Its control lane has ended: what is left in its ring comes first.
    pub(super) is_ending: bool,
}

pub(super) enum LinkWay {
    Ring(RingLane),
    Socket { socket: Arc<Connection>, is_full: bool },
}

/// What clients of other users have of the service. They must not use up what there is.
#[derive(Default)]
pub(super) struct Strangers {
    of_users: BTreeMap<u32, Share>,
    descriptor_count: usize,
}

/// What one of these users has.
#[derive(Default)]
struct Share {
    circuit_count: usize,
    /// Descriptors that have come for messages that have not been handled.
    descriptor_count: usize,
}

impl Strangers {
    /// Whether a user may have one circuit more. The error is the largest number of them.
    pub(super) fn check_circuit(&self, uid: u32, clients_max: usize) -> Result<(), usize> {
        let max = (clients_max / 4).max(CIRCUITS_OF_USER_MIN);
        match self.of_users.get(&uid) {
            Some(share) if share.circuit_count >= max => Err(max),
            _ => Ok(()),
        }
    }

    pub(super) fn add_circuit(&mut self, uid: u32) {
        if uid != rustix::process::geteuid().as_raw() {
            self.of_users.entry(uid).or_default().circuit_count += 1;
        }
    }

    /// Whether a user may have so many descriptors more: all of one user a quarter of what this process can open, all of
    /// all users three quarters.
    pub(super) fn has_room(&mut self, uid: u32, count: usize) -> bool {
        let Some(share) = self.of_users.get_mut(&uid) else { return true };
        let quarter = descriptors_max() / 4;
        if count > 0
            && (share.descriptor_count + closing_count(Whose::User(uid)) + count > quarter
                || self.descriptor_count + count > 3 * quarter)
        {
            return false;
        }
        share.descriptor_count += count;
        self.descriptor_count += count;
        true
    }

    pub(super) fn remove_descriptors(&mut self, uid: u32, rights: Option<&Vec<Received>>) {
        if let (Some(share), Some(rights)) = (self.of_users.get_mut(&uid), rights) {
            share.descriptor_count -= rights.len();
            self.descriptor_count -= rights.len();
        }
    }

    fn remove_circuit(&mut self, local: &Local) {
        for rights in local.waiting.iter().flat_map(|waiting| &waiting.rights) {
            self.remove_descriptors(local.uid, rights.as_ref());
        }
        if let Some(share) = self.of_users.get_mut(&local.uid) {
            share.circuit_count -= 1;
            if share.circuit_count == 0 {
                self.of_users.remove(&local.uid);
            }
        }
    }
}

/// What is known here of a circuit.
pub(super) struct Local {
    pub(super) client: ClientId,
    pub(super) uid: u32,
    /// None in a circuit through which no capability has come.
    pub(super) waiting: Option<Box<Waiting>>,
}

/// Messages with capabilities.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) rights: VecDeque<Option<Vec<Received>>>,
    /// Messages that wait for their capabilities, and those behind them.
    pub(super) held: VecDeque<(Message, u32, u8)>,
}

impl Local {
    pub(super) fn waiting(&mut self) -> &mut Waiting {
        self.waiting.get_or_insert_default()
    }

    pub(super) fn has_held(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| !waiting.held.is_empty())
    }
}

/// What a frame brought, in memory of its own.
pub(super) enum Owned {
    Message(u32, Head, Bytes),
    Changed(u32),
    Nothing,
}

impl Owned {
    pub(super) fn of(came: Arrival<'_>) -> Self {
        match came {
            Arrival::Short(index, head, bytes) => Self::Message(index, head, Bytes::of(bytes)),
            Arrival::Long(index, head, bytes) => Self::Message(index, head, Bytes::Long(bytes)),
            Arrival::Changed(index) => Self::Changed(index),
            Arrival::Nothing => Self::Nothing,
        }
    }
}

/// The way of frames to the monitor.
struct Through<'a> {
    endpoint: &'a mut Endpoint,
    link: &'a mut ServiceLink,
}

impl Lane for Through<'_> {
    #[inline]
    fn frame(&mut self, label: Label, hop: Hop, payload: &[u8]) -> bool {
        match &mut self.link.way {
            LinkWay::Ring(ring) => ring.frame(self.endpoint, label, hop, payload),
            LinkWay::Socket { socket, is_full } => {
                if !*is_full && send_frame(&**socket, label, hop, payload) == Ok(false) {
                    *is_full = true;
                    self.link.control.wait_for_room();
                }
                !*is_full
            }
        }
    }

    fn sent(&mut self, at: Point, ordinal: u16, bytes: usize) {
        trace::sent(at, ordinal, bytes);
    }
}

impl Circuits {
    /// The ring to the monitor, if there is one.
    #[inline]
    pub(super) fn ring(&self) -> Option<&RingLane> {
        match &self.link {
            Some(ServiceLink { way: LinkWay::Ring(ring), .. }) => Some(ring),
            _ => None,
        }
    }

    /// Whether a message of the service's endpoint is a frame of the monitor's.
    #[inline]
    pub(super) fn is_from_monitor(&self, source: Peer) -> bool {
        self.ring().is_some_and(|ring| ring.peer() == source)
    }

    /// Whether nothing must be done before the service waits.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        !self.ends.has_work()
            && self.ready.is_empty()
            && self.sent.is_empty()
            && self.ring().is_none_or(|ring| !ring.was_interrupted() && !ring.is_full())
            && !self.is_ending()
    }

    /// Whether the control lane has ended, and something may be left in the ring.
    pub(super) fn is_ending(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_ending)
    }

    /// Whether there is mail that a receive will not report.
    pub(super) const fn take_interrupted(&mut self) -> bool {
        match &mut self.link {
            Some(ServiceLink { way: LinkWay::Ring(ring), .. }) => ring.take_interrupted(),
            _ => false,
        }
    }

    /// Whether something waits for room in the ring, for which a receive would not return.
    pub(super) fn is_stuck(&self) -> bool {
        self.ring().is_some_and(RingLane::is_full)
    }

    /// Reads a frame.
    #[inline]
    pub(super) fn frame<'a>(
        &mut self,
        label: Label,
        hop: Hop,
        payload: &'a [u8],
    ) -> Result<Arrival<'a>, ProtocolError> {
        self.ends.frame(label, hop, payload)
    }

    /// Whose message it is that has just come, if it can be served at once: it has no capabilities, and nothing of its
    /// circuit waits.
    #[inline]
    pub(super) fn usual_client(&self, index: u32, head: Head) -> Option<ClientId> {
        let local = self.locals.get(index as usize)?.as_ref()?;
        let is_usual = head.capabilities == 0
            && head.status.is_none()
            && head.ordinal != 0
            && !local.has_held()
            && self.ends.ended(index).is_none();
        is_usual.then_some(local.client)
    }

    pub(super) fn local(&mut self, index: u32) -> Option<&mut Local> {
        self.locals.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn client_of(&self, index: u32) -> Option<ClientId> {
        self.locals.get(index as usize)?.as_ref().map(|local| local.client)
    }

    /// Waits a little for room in the ring, for what was sent before the service ends.
    pub(super) fn finish(&mut self, endpoint: &mut Endpoint) {
        if let Some(ServiceLink { way: LinkWay::Ring(ring), .. }) = &mut self.link {
            ring.finish(endpoint);
        }
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self, endpoint: &mut Endpoint) {
        let Some(link) = &mut self.link else { return };
        if let LinkWay::Ring(ring) = &mut link.way
            && ring.is_full()
            && !ring.has_room_again(endpoint)
        {
            return;
        }
        let sent = &mut self.sent;
        self.ends.flush(&mut Through { endpoint, link }, |index| sent.push(index));
    }

    /// Clients of which nothing waits to be sent any more.
    pub(super) fn take_sent(&mut self) -> Option<ClientId> {
        while let Some(index) = self.sent.pop() {
            if let Some(client) = self.client_of(index) {
                return Some(client);
            }
        }
        None
    }

    /// The usual way of a message: in one frame, and there is room.
    #[inline]
    pub(super) fn has_sent(
        &mut self,
        endpoint: &mut Endpoint,
        index: u32,
        tag: Tag,
        bytes: &[u8],
    ) -> bool {
        let Some(link) = &mut self.link else { return false };
        let began = trace::begin();
        let head = Head { ordinal: tag.ordinal(), token: tag.token(), ..Head::default() };
        let sent = self.ends.try_send(index, head, bytes, &mut Through { endpoint, link });
        if began != 0 && sent {
            self.record_sent(began, index, tag, bytes.len());
        }
        sent
    }

    /// Records a message that was sent: with the request that it replies to, if that is being served.
    #[cold]
    fn record_sent(&mut self, began: u64, index: u32, tag: Tag, bytes: usize) {
        let went = self.ends.sent_to(index);
        match &mut self.served {
            Some(Served { went: reply @ None, .. }) => *reply = went,
            _ => trace::end(began, Kind::Send, [None, went], tag.ordinal(), bytes),
        }
    }

    /// A frame has come at `began`, and is served from now on, in a trace.
    #[cold]
    pub(super) fn begin_serving(&mut self, began: u64, label: Label, hop: Hop, bytes: usize) {
        let came = self.ends.received_at(label);
        self.served = Some(Served { began, came, went: None, ordinal: hop.ordinal, bytes });
    }

    /// What came was nothing to serve, in a trace.
    pub(super) fn serve_nothing(&mut self) {
        self.served = None;
    }

    /// What was served last has been, in a trace.
    #[inline]
    pub(super) fn end_serving(&mut self) {
        if let Some(Served { began, came, went, ordinal, bytes }) = self.served.take() {
            trace::end(began, Kind::Serve, [came, went], ordinal, bytes);
        }
    }

    /// Sends a message, or keeps it.
    pub(super) fn send(
        &mut self,
        endpoint: &mut Endpoint,
        index: u32,
        frame: Frame<'_>,
        capabilities: &Capabilities<'_>,
    ) -> Result<(), NotSent> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let Frame { tag, status, bytes } = frame;
        let count = capabilities.count();
        if count > 0 {
            if self.ends.unsent(index).1 >= UNSENT_MAX {
                return Err(NotSent);
            }
            let to = self.ends.label_of(index);
            let (packet, descriptors) =
                capability::packet(to, capabilities.all()).map_err(|_| NotSent)?;
            if !link.control.send(&packet, descriptors) {
                return Err(NotSent);
            }
        }
        let head = Head {
            ordinal: tag.ordinal(),
            token: tag.token(),
            status: status.map(|status| u32::try_from(status).unwrap_or(u32::MAX)),
            capabilities: u8::try_from(count).unwrap_or(u8::MAX),
        };
        if !self.ends.try_send(index, head, bytes, &mut Through { endpoint, link }) {
            self.ends.queue(index, head, bytes.to_vec());
            self.flush(endpoint);
        }
        Ok(())
    }

    /// What waits for a client.
    pub(super) fn held(&self, index: u32) -> Held {
        let (bytes, count) = self.ends.unsent(index);
        Held::of(count, bytes)
    }

    /// Ends a circuit.
    pub(super) fn close(&mut self, index: u32, end: End, reason: &str) {
        if let Some(local) = self.locals.get_mut(index as usize).and_then(Option::take) {
            self.strangers.remove_circuit(&local);
        }
        if let Some(reset) = self.ends.close(index, end, reason)
            && let Some(link) = &self.link
        {
            link.control.send(&Packet::Reset(Box::new(reset)), Vec::new());
        }
    }
}
