//! A service's end of its circuits: clients that are bound through monitors, all over one link.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use corewire::{Connection, Endpoint, MessageError, Peer, Selector};
use corewire_circuit::ends::{Came, Ends, Head, Lane, Wrong};
use corewire_circuit::link::control::{Control as ControlLane, News, descriptors_max};
use corewire_circuit::link::hub::Bytes;
use corewire_circuit::link::ring::RingLane;
use corewire_circuit::link::socket::send_frame;
use corewire_circuit::link::{capability, trace};
use corewire_circuit::wire::packet::{End, OFFER_BYTES_MAX, Packet, Reset, Setup};
use corewire_circuit::wire::trace::{Kind, Point};
use corewire_circuit::wire::{Hop, Label, NodeSet, lines_of};

use super::exporter::{Link, LinkData};
use super::sending::{Frame, NotSent};
use super::{ClientId, Found, ServerCore};
use crate::bind::Driver;
use crate::capability::{Capabilities, Received};
use crate::error::ServeError;
use crate::identity::Identity;
use crate::message::{Body, Message};
use crate::random::random_u64;
use crate::server::binding::Acceptance;
use crate::server::clients::Way;
use crate::tag::{Control, Tag, status};

/// Messages that may wait for a client while others with capabilities are sent: these go ahead of their messages, and take
/// descriptors of the client.
const UNSENT_MAX: usize = 64;
/// Circuits that a foreign user may have in any case, as many as connections; beyond that, a quarter of all.
const CIRCUITS_OF_USER_MIN: usize = 64;

/// The circuits of a service.
#[derive(Default)]
pub(super) struct Circuits {
    link: Option<ServiceLink>,
    ends: Ends,
    locals: Vec<Option<Local>>,
    strangers: Strangers,
    /// Circuits with messages whose capabilities have come.
    ready: VecDeque<u32>,
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

struct ServiceLink {
    control: Arc<ControlLane>,
    way: LinkWay,
    /// Its control lane has ended: what is left in its ring comes first.
    is_ending: bool,
}

enum LinkWay {
    Ring(RingLane),
    Socket { socket: Arc<Connection>, is_full: bool },
}

/// What clients of other users have of the service. They must not use up what there is.
#[derive(Default)]
struct Strangers {
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
    fn check_circuit(&self, uid: u32, clients_max: usize) -> Result<(), usize> {
        let max = (clients_max / 4).max(CIRCUITS_OF_USER_MIN);
        match self.of_users.get(&uid) {
            Some(share) if share.circuit_count >= max => Err(max),
            _ => Ok(()),
        }
    }

    fn add_circuit(&mut self, uid: u32) {
        if uid != rustix::process::geteuid().as_raw() {
            self.of_users.entry(uid).or_default().circuit_count += 1;
        }
    }

    /// Whether a user may have so many descriptors more: all of one user a quarter of what this process can open, all of
    /// all users three quarters.
    fn has_room(&mut self, uid: u32, count: usize) -> bool {
        let Some(share) = self.of_users.get_mut(&uid) else { return true };
        let quarter = descriptors_max() / 4;
        if count > 0
            && (share.descriptor_count + count > quarter
                || self.descriptor_count + count > 3 * quarter)
        {
            return false;
        }
        share.descriptor_count += count;
        self.descriptor_count += count;
        true
    }

    fn remove_descriptors(&mut self, uid: u32, rights: Option<&Vec<Received>>) {
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
struct Local {
    client: ClientId,
    uid: u32,
    /// None in a circuit through which no capability has come.
    waiting: Option<Box<Waiting>>,
}

/// Messages with capabilities.
#[derive(Default)]
struct Waiting {
    rights: VecDeque<Option<Vec<Received>>>,
    /// Messages that wait for their capabilities, and those behind them.
    held: VecDeque<(Message, u32, u8)>,
}

impl Local {
    fn waiting(&mut self) -> &mut Waiting {
        self.waiting.get_or_insert_default()
    }

    fn has_held(&self) -> bool {
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
    pub(super) fn of(came: Came<'_>) -> Self {
        match came {
            Came::Short(index, head, bytes) => Self::Message(index, head, Bytes::of(bytes)),
            Came::Long(index, head, bytes) => Self::Message(index, head, Bytes::Long(bytes)),
            Came::Changed(index) => Self::Changed(index),
            Came::Nothing => Self::Nothing,
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

    fn went(&mut self, went: Point, ordinal: u16, bytes: usize) {
        trace::sent(went, ordinal, bytes);
    }
}

impl Circuits {
    /// The ring to the monitor, if there is one.
    #[inline]
    fn ring(&self) -> Option<&RingLane> {
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
    ) -> Result<Came<'a>, Wrong> {
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

    fn local(&mut self, index: u32) -> Option<&mut Local> {
        self.locals.get_mut(index as usize)?.as_mut()
    }

    fn client_of(&self, index: u32) -> Option<ClientId> {
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
        let went = self.ends.went(index);
        match &mut self.served {
            Some(Served { went: reply @ None, .. }) => *reply = went,
            _ => trace::end(began, Kind::Send, [None, went], tag.ordinal(), bytes),
        }
    }

    /// A frame has come at `began`, and is served from now on, in a trace.
    #[cold]
    pub(super) fn begin_serving(&mut self, began: u64, label: Label, hop: Hop, bytes: usize) {
        let came = self.ends.came(label);
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

    /// Bytes that wait for a client, and how many messages.
    pub(super) fn unsent(&self, index: u32) -> (usize, usize) {
        self.ends.unsent(index)
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

impl ServerCore {
    /// A monitor has accepted this service as its neighbour.
    pub(super) fn link_up(&mut self, link: Link) -> Option<Found> {
        let Link { control, data } = link;
        let way = match data {
            LinkData::Socket(socket) => LinkWay::Socket { socket, is_full: false },
            LinkData::Ring { endpoint: name, secret } => {
                let endpoint = &mut self.sending.endpoint;
                let mut ring = RingLane::to(endpoint, &name)?;
                ring.say_hello(endpoint, secret);
                LinkWay::Ring(ring)
            }
        };
        self.link_down();
        self.sending.circuits.link = Some(ServiceLink { control, way, is_ending: false });
        None
    }

    /// The link has ended, and with it all circuits: what had come of them is handed out, and then that their clients have
    /// gone, one after the other.
    pub(super) fn link_down(&mut self) {
        // The lane may have seen an interruption.
        self.has_mail |= self.sending.circuits.take_interrupted();
        let Circuits { link, ends, locals, ready, .. } = &mut self.sending.circuits;
        *link = None;
        ends.link_lost("the link to the monitor has ended");
        ready.extend((0..).zip(locals).filter_map(|(index, local)| local.as_ref().map(|_| index)));
    }

    /// What is left in the ring of a link whose control lane has ended. Once there is nothing, the link is down.
    pub(super) fn end_link(&mut self) -> Result<Option<Found>, ServeError> {
        let Some(peer) = self.sending.circuits.ring().map(RingLane::peer) else {
            self.link_down();
            return Ok(None);
        };
        let from_monitor = Selector::any().from(peer);
        match self.sending.endpoint.try_receive_into(from_monitor, &mut *self.buffer) {
            Ok(Some(status)) => Ok(self.buffered(status)),
            Err(MessageError::Interrupted) => {
                self.has_mail = true;
                Ok(None)
            }
            Err(error @ MessageError::Forked) => Err(error.into()),
            Ok(None) | Err(_) => {
                self.link_down();
                Ok(None)
            }
        }
    }

    /// Something has come from the monitor.
    pub(super) fn learn(&mut self, control: &Arc<ControlLane>, news: News) -> Option<Found> {
        let is_its = |link: &ServiceLink| Arc::ptr_eq(&link.control, control);
        if !self.sending.circuits.link.as_ref().is_some_and(is_its) {
            return None;
        }
        match news {
            News::Packet(Packet::Setup(setup), _) => self.circuit_opened(*setup),
            News::Packet(Packet::Reset(reset), _) => {
                let index = self.sending.circuits.ends.reset(*reset)?;
                self.circuit_changed(index)
            }
            News::Packet(Packet::Capabilities { to, is_lost, notes }, rights) => {
                let circuits = &mut self.sending.circuits;
                let index = circuits.ends.find(to)?;
                let rights = capability::parse(is_lost, &notes, rights);
                let Circuits { locals, strangers, ready, .. } = circuits;
                let local = locals.get_mut(index as usize)?.as_mut()?;
                let count = rights.as_ref().map_or(0, Vec::len);
                let rights = rights.filter(|_| strangers.has_room(local.uid, count));
                local.waiting().rights.push_back(rights);
                ready.push_back(index);
                self.circuit_ready()
            }
            News::Frame(label, hop, payload) => self.circuit_frame(label, hop, &payload),
            News::Room => {
                if let Some(ServiceLink { way: LinkWay::Socket { is_full, .. }, .. }) =
                    &mut self.sending.circuits.link
                {
                    *is_full = false;
                }
                None
            }
            News::Packet(Packet::Refused { .. }, _) | News::Lost(_) => {
                if let Some(link) = &mut self.sending.circuits.link {
                    link.is_ending = true;
                }
                None
            }
            News::Packet(..) => None,
        }
    }

    /// A client asks for a circuit.
    fn circuit_opened(&mut self, setup: Setup) -> Option<Found> {
        let label = setup.label;
        match self.accept_circuit(setup) {
            Ok(found) => found,
            Err(reason) => {
                let (to, from, visited) = (label, Label::NONE, NodeSet::default());
                let reset = Reset { to, from, after: None, end: End::Refused, visited, reason };
                let link = self.sending.circuits.link.as_ref()?;
                link.control.send(&Packet::Reset(Box::new(reset)), Vec::new());
                None
            }
        }
    }

    fn accept_circuit(&mut self, setup: Setup) -> Result<Option<Found>, String> {
        let description = self.mailbox.description();
        let agreement = description.agree(&setup.offer)?;
        let random = random_u64().map_err(|error| error.to_string())?;
        let Setup { label, credit, origin, .. } = setup;
        let bytes_max = usize::try_from(description.bytes_max()).unwrap_or(usize::MAX);
        let circuits = &mut self.sending.circuits;
        let uid = origin.uid;
        circuits.strangers.check_circuit(uid, self.clients_max).map_err(|max| {
            format!("user {uid} has {max} circuits to the service, as many as it can have")
        })?;
        let index = circuits.ends.opened(random, label, credit, bytes_max);
        let index = index.ok_or("the service has as many circuits as it can have")?;
        let identity = Identity { uid, gid: origin.gid, pid: origin.pid };
        let way = Way::Circuit { index };
        let added = self.sending.clients.add(self.clients_max, way, identity, agreement.service);
        let Some(client) = added else {
            let _ = self.sending.circuits.ends.close(index, End::Full, "");
            return Err(format!(
                "the service has {} clients, as many as it can have",
                self.clients_max
            ));
        };
        if let Some(row) = self.sending.clients.row(client) {
            row.driver = Driver::Circuit;
        }
        let circuits = &mut self.sending.circuits;
        let place = index as usize;
        if circuits.locals.len() <= place {
            circuits.locals.resize_with(place + 1, || None);
        }
        circuits.strangers.add_circuit(uid);
        circuits.locals[place] = Some(Local { client, uid, waiting: None });
        let acceptance = Acceptance {
            number: 0,
            may_use_ring: false,
            processor: u32::MAX,
            bytes_max: description.bytes_max(),
            secret: 0,
            endpoint: String::new(),
            forms: agreement.client,
        };
        let answer = acceptance.to_bytes();
        if answer.len() > OFFER_BYTES_MAX {
            let reason = "the interface has too many messages for a circuit";
            circuits.close(index, End::Refused, reason);
            self.sending.clients.remove(client);
            return Ok(None);
        }
        let (own_label, credit) = circuits.ends.greeting(index);
        let packet = Packet::Accept {
            to: label,
            label: own_label,
            credit,
            origin: Default::default(),
            answer,
        };
        if let Some(link) = &circuits.link {
            link.control.send(&packet, Vec::new());
        }
        Ok(Some(Found::Bound(client, identity)))
    }

    /// A frame has come on a socket.
    fn circuit_frame(&mut self, label: Label, hop: Hop, payload: &[u8]) -> Option<Found> {
        let came = self.sending.circuits.frame(label, hop, payload).map(Owned::of);
        self.circuit_came(came, lines_of(payload.len()))
    }

    /// A frame has been read.
    pub(super) fn circuit_came(&mut self, came: Result<Owned, Wrong>, lines: u32) -> Option<Found> {
        let circuits = &mut self.sending.circuits;
        let (index, head, bytes) = match came {
            Ok(Owned::Message(index, head, bytes)) => (index, head, bytes),
            Ok(Owned::Changed(index)) => return self.circuit_changed(index),
            Ok(Owned::Nothing) => return None,
            Err(Wrong::Peer { index, what }) => {
                self.refused_count += 1;
                let client = circuits.client_of(index)?;
                circuits.close(index, End::Violation, &format!("the client sent {what}"));
                return self.gone(client);
            }
            Err(_) => {
                self.refused_count += 1;
                self.link_down();
                return None;
            }
        };
        let lines = match &bytes {
            // In several frames, of which this was the last.
            Bytes::Long(bytes) => lines.max(lines_of(bytes.len())),
            _ => lines,
        };
        let local = circuits.local(index)?;
        let tag = Tag::new(0, head.ordinal, head.token);
        let message = Message::new(tag, head.status.map(u64::from), Body::Own(bytes), Vec::new());
        if head.capabilities > 0 || local.has_held() {
            local.waiting().held.push_back((message, lines, head.capabilities));
            circuits.ends.store(index, lines);
            circuits.ready.push_back(index);
            return self.circuit_ready();
        }
        let client = local.client;
        let found = self.circuit_message(client, message);
        // The end that came before the last messages.
        if self.sending.circuits.ends.ended(index).is_some() {
            self.sending.circuits.ready.push_back(index);
        }
        found
    }

    fn circuit_message(&mut self, client: ClientId, message: Message) -> Option<Found> {
        let tag = message.tag();
        match (Control::of(tag), message.status()) {
            (Some(Control::NotTaken), Some(ordinal)) => {
                Some(Found::NotTaken(client, u16::try_from(ordinal).ok()?))
            }
            (None, None) if tag.ordinal() != 0 => Some(Found::Message(client, message)),
            (_, Some(status::LOST_HERE)) => {
                self.lost(client, tag);
                None
            }
            _ => {
                self.refused_count += 1;
                self.sending.count_refused(client);
                None
            }
        }
    }

    /// A circuit with a message whose capabilities may have come, or that has ended.
    pub(super) fn circuit_ready(&mut self) -> Option<Found> {
        let index = self.sending.circuits.ready.pop_front()?;
        let circuits = &mut self.sending.circuits;
        let local = circuits.local(index)?;
        let uid = local.uid;
        let is_there = |waiting: &&mut Box<Waiting>| {
            let first = waiting.held.front();
            first.is_some_and(|(_, _, count)| *count == 0 || !waiting.rights.is_empty())
        };
        let Some(waiting) = local.waiting.as_mut().filter(is_there) else {
            return self.circuit_changed(index);
        };
        let (mut message, lines, count) = waiting.held.pop_front()?;
        if count > 0 {
            let rights = waiting.rights.pop_front()?;
            circuits.strangers.remove_descriptors(uid, rights.as_ref());
            match rights {
                Some(rights) if rights.len() == usize::from(count) => {
                    message.set_capabilities(rights);
                }
                _ => {
                    let lost = Some(status::LOST_HERE);
                    message = Message::new(message.tag(), lost, Body::empty(), Vec::new());
                }
            }
        }
        let client = circuits.client_of(index)?;
        circuits.ends.release(index, lines);
        circuits.ready.push_back(index);
        self.circuit_message(client, message)
    }

    /// Whether a circuit has ended, after everything that came before.
    fn circuit_changed(&mut self, index: u32) -> Option<Found> {
        let circuits = &mut self.sending.circuits;
        let is_over = circuits.ends.ended(index).is_some();
        let local = circuits.local(index)?;
        if local.has_held() {
            if is_over {
                // No capabilities can come any more: the messages that wait for some are told so.
                local.waiting().rights.push_back(None);
                circuits.ready.push_back(index);
            }
            return None;
        }
        let has_ended = circuits.ends.ended(index).is_some() || circuits.ends.has_last(index);
        if !has_ended {
            return None;
        }
        let client = circuits.client_of(index)?;
        circuits.close(index, End::Closed, "the client has closed it");
        self.gone(client)
    }

    /// What there is to do for circuits before the service waits.
    pub(super) fn tend_circuits(&mut self) -> Option<Found> {
        self.sending.flush_circuits();
        // Each round hands out a message that was held, or takes an entry away.
        while !self.sending.circuits.ready.is_empty() {
            let found = self.circuit_ready();
            if found.is_some() {
                return found;
            }
        }
        None
    }
}
