//! How clients come and go through monitors, and what they send.

use std::sync::Arc;

use corewire::{MessageError, Selector};
use corewire_circuit::ends::ProtocolError;
use corewire_circuit::link::capability;
use corewire_circuit::link::control::{Control as ControlLane, MonitorEvent};
use corewire_circuit::link::hub::Bytes;
use corewire_circuit::link::ring::RingLane;
use corewire_circuit::link::sent::Whose;
use corewire_circuit::wire::packet::{End, OFFER_BYTES_MAX, Packet, Reset, Setup};
use corewire_circuit::wire::{Hop, Label, NodeSet, lines_of};

use super::circuits::{Circuits, LinkWay, Local, Owned, ServiceLink, Waiting};
use super::client_id::ClientId;
use super::core::{Found, ServerCore};
use super::lane::Lane;
use super::mailbox::{LinkData, NewLink};
use crate::driver::Driver;
use crate::error::ServeError;
use crate::exchange::Acceptance;
use crate::identity::Identity;
use crate::message::{Body, Message};
use crate::random::random_u64;
use crate::tag::{Control, Tag, status};

impl ServerCore {
    /// A monitor has accepted this service as its neighbour.
    pub(super) fn link_up(&mut self, link: NewLink) -> Option<Found> {
        let NewLink { control, data } = link;
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

    /// The link has ended, and with it all circuits: what had come of them is handed out, and then that their clients
    /// have gone, one after the other.
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
    pub(super) fn on_monitor_event(
        &mut self,
        control: &Arc<ControlLane>,
        news: MonitorEvent,
    ) -> Option<Found> {
        let is_its = |link: &ServiceLink| Arc::ptr_eq(&link.control, control);
        if !self.sending.circuits.link.as_ref().is_some_and(is_its) {
            return None;
        }
        match news {
            MonitorEvent::Packet(Packet::Setup(setup), _) => self.circuit_opened(*setup),
            MonitorEvent::Packet(Packet::Reset(reset), _) => {
                let index = self.sending.circuits.ends.reset(*reset)?;
                self.circuit_changed(index)
            }
            MonitorEvent::Packet(Packet::Capabilities { to, is_lost, notes }, rights) => {
                let Circuits { locals, strangers, ready, ends, .. } = &mut self.sending.circuits;
                let index = ends.find(to);
                let local = index.and_then(|index| locals.get_mut(index as usize)?.as_mut());
                let from = local.as_ref().map_or(Whose::Peer, |local| Whose::User(local.uid));
                let rights = capability::parse(is_lost, &notes, rights, from);
                let (index, local) = (index?, local?);
                let count = rights.as_ref().map_or(0, Vec::len);
                let rights = rights.filter(|_| strangers.has_room(local.uid, count));
                local.waiting().rights.push_back(rights);
                ready.push_back(index);
                self.circuit_ready()
            }
            MonitorEvent::Frame(label, hop, payload) => self.circuit_frame(label, hop, &payload),
            MonitorEvent::Room => {
                if let Some(ServiceLink { way: LinkWay::Socket { is_full, .. }, .. }) =
                    &mut self.sending.circuits.link
                {
                    *is_full = false;
                }
                None
            }
            MonitorEvent::Packet(Packet::Refused { .. }, _) | MonitorEvent::Lost(_) => {
                if let Some(link) = &mut self.sending.circuits.link {
                    link.is_ending = true;
                }
                None
            }
            MonitorEvent::Packet(..) => None,
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
        let lane = Lane::Circuit { index };
        let added = self.sending.clients.add(self.clients_max, lane, identity, agreement.service);
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
    pub(super) fn circuit_came(
        &mut self,
        came: Result<Owned, ProtocolError>,
        lines: u32,
    ) -> Option<Found> {
        let circuits = &mut self.sending.circuits;
        let (index, head, bytes) = match came {
            Ok(Owned::Message(index, head, bytes)) => (index, head, bytes),
            Ok(Owned::Changed(index)) => return self.circuit_changed(index),
            Ok(Owned::Nothing) => return None,
            Err(ProtocolError::Peer { index, what }) => {
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
