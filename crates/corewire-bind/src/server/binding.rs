//! How clients come and go: by a socket, where they then name a ring.
//!
//! | client | service |
//! |---|---|
//! | socket: bind, with its interface | |
//! | | socket: accept, with the binding's number, a secret, and the name of its endpoint; or refuse, with the reason |
//! | ring: hello, with the number and the secret | ring: welcome |
//! | or socket: use the socket | |
//!
//! A client of another host has a connection of its own with the service's endpoint. It binds there, and is accepted or refused
//! there, and then is bound: nobody else can say anything on that connection.

use std::sync::Arc;

use corewire::{Peer, Status};

use super::core::{Found, ServerCore};
use super::lane::Lane;
use super::sending::TOO_MUCH;
use super::socket_client::SocketClient;
use crate::capability::Capabilities;
use crate::driver::Driver;
use crate::exchange::Acceptance;
#[cfg(feature = "net")]
use crate::identity::Identity;
use crate::introspection::{Bindings, BoundClient};
use crate::lane::backlog::Frame;
use crate::message::Message;
use crate::random::random_u64;
use crate::tag::{Control, Tag};

/// Messages that may wait for a socket client that asks for the interface or the clients, which are long.
const ANSWERS_MAX: usize = 16;

impl ServerCore {
    /// A message of a socket client that is about binding.
    #[cold]
    pub(super) fn socket_client_control(
        &mut self,
        socket_client: &Arc<SocketClient>,
        message: &Message,
    ) -> Option<Found> {
        // What it had sent before it was refused means nothing any more.
        if socket_client.is_ending() {
            return None;
        }
        match (Control::of(message.tag()), socket_client.id.get().copied()) {
            (Some(Control::Bind), None) => {
                if let Err(reason) = self.accept(socket_client, message) {
                    socket_client.refuse(&reason);
                }
                None
            }
            (Some(Control::UseSocket), Some(client)) => {
                let row = self.sending.clients.row(client)?;
                if !row.lane.is_accepted() {
                    return None;
                }
                (row.lane, row.driver) = (Lane::Socket(Arc::clone(socket_client)), Driver::Sock);
                socket_client.set_bound();
                Some(Found::Bound(client, row.identity))
            }
            (Some(Control::NotTaken), Some(client)) => {
                let row = self.sending.clients.get(client)?;
                let ordinal = u16::try_from(message.status()?).ok()?;
                row.lane.socket().map(|_| Found::NotTaken(client, ordinal))
            }
            (Some(Control::Describe), _) => {
                let form = self.mailbox.description().form;
                self.answer(socket_client, Frame::new(message.tag(), form.as_bytes()));
                None
            }
            (Some(Control::List), _) => {
                let list = self.list();
                self.answer(socket_client, Frame::new(message.tag(), &list));
                None
            }
            (Some(Control::Totals), _) => {
                let mut totals = Vec::new();
                self.sending.totals.called().for_each(|method| method.put(&mut totals));
                self.answer(socket_client, Frame::new(message.tag(), &totals));
                None
            }
            (_, client) => {
                self.refused_count += 1;
                if let Some(client) = client {
                    self.sending.count_refused(client);
                }
                None
            }
        }
    }

    /// Answers a question of a socket client, which may not ask more than it reads.
    fn answer(&mut self, socket_client: &SocketClient, answer: Frame<'_>) {
        if socket_client.unsent_count() < ANSWERS_MAX {
            // One that goes learns nothing.
            let _ = socket_client.send(answer, &Capabilities::new());
            return;
        }
        match socket_client.id.get() {
            Some(client) => self.sending.cut_off(*client, TOO_MUCH),
            None => socket_client.refuse(TOO_MUCH),
        }
    }

    /// A socket client has not said in time how it speaks. What it has said in its ring may wait behind other messages:
    /// it is closed if it is late again.
    #[cold]
    pub(super) fn socket_client_late(&mut self, socket_client: &SocketClient) {
        if socket_client.is_bound() || !socket_client.is_late_again() {
            return;
        }
        if let Some(client) = socket_client.id.get() {
            self.sending.clients.remove(*client);
        }
        socket_client.refuse("it did not bind in time");
    }

    fn accept(&mut self, socket_client: &Arc<SocketClient>, theirs: &[u8]) -> Result<(), String> {
        let description = self.mailbox.description();
        let agreement = description.agree(theirs)?;
        let secret = random_u64().map_err(|error| error.to_string())?;
        let lane = Lane::Accepted { socket_client: Arc::clone(socket_client), secret };
        let identity = socket_client.identity;
        let added = self.sending.clients.add(self.clients_max, lane, identity, agreement.service);
        let client = added.ok_or_else(|| {
            format!("the service has {} clients, as many as it can have", self.clients_max)
        })?;
        // Nothing else sets it.
        let _ = socket_client.id.set(client);
        socket_client.set_bytes_max(description.bytes_max());
        let acceptance = Acceptance {
            number: client.binding(),
            may_use_ring: identity.uid == rustix::process::geteuid().as_raw(),
            processor: u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX),
            bytes_max: description.bytes_max(),
            secret,
            endpoint: self.sending.endpoint.name().to_owned(),
            forms: agreement.client,
        };
        let bytes = acceptance.to_bytes();
        let frame = Frame::new(Tag::control(client.binding(), Control::Accept), &bytes);
        let sent = socket_client.send(frame, &Capabilities::new());
        sent.map_err(|_| "the connection has ended".to_owned())
    }

    /// A message of a ring that is about binding.
    #[cold]
    pub(super) fn control(&mut self, status: Status, message: &[u8]) -> Option<Found> {
        let (tag, source) = (Tag(status.tag), status.source);
        match Control::of(tag) {
            Some(Control::Hello) => self.hello(tag, source, message),
            #[cfg(feature = "net")]
            Some(Control::Bind) if self.sending.endpoint.is_far(source) => {
                self.accept_far(source, message)
            }
            Some(Control::NotTaken) => {
                let client = self.sending.clients.of_number(tag.binding(), source)?;
                Some(Found::NotTaken(client, u16::try_from(status.immediate?).ok()?))
            }
            _ => {
                self.refused_count += 1;
                None
            }
        }
    }

    /// A client of another host binds.
    #[cfg(feature = "net")]
    fn accept_far(&mut self, source: Peer, theirs: &[u8]) -> Option<Found> {
        if self.sending.clients.of_peer(source).is_some() {
            self.refused_count += 1;
            return None;
        }
        let description = self.mailbox.description();
        let added = description.agree(theirs).and_then(|agreement| {
            let lane = Lane::Ring { peer: source, socket_client: None };
            let (max, identity) = (self.clients_max, Identity::FAR);
            let added = self.sending.clients.add(max, lane, identity, agreement.service);
            let full = || format!("the service has {max} clients, as many as it can have");
            Ok((added.ok_or_else(full)?, agreement.client))
        });
        let (client, forms) = match added {
            Ok(added) => added,
            Err(reason) => {
                let tag = Tag::control(0, Control::Refuse);
                // One that goes learns nothing.
                let _ = self.sending.endpoint.try_send(source, tag.0, reason.as_bytes());
                return None;
            }
        };
        let acceptance = Acceptance {
            number: client.binding(),
            may_use_ring: false,
            processor: u32::MAX,
            bytes_max: description.bytes_max(),
            secret: 0,
            endpoint: self.sending.endpoint.name().to_owned(),
            forms,
        };
        let bytes = acceptance.to_bytes();
        let row = self.sending.clients.row(client)?;
        row.driver = Driver::Net;
        let identity = row.identity;
        let frame = Frame::new(Tag::control(client.binding(), Control::Accept), &bytes);
        let _ = self.sending.reply(client, frame, &Capabilities::new());
        Some(Found::Bound(client, identity))
    }

    fn hello(&mut self, tag: Tag, source: Peer, message: &[u8]) -> Option<Found> {
        self.refused_count += 1;
        let said = u64::from_le_bytes(*message.first_chunk()?);
        if self.sending.clients.of_peer(source).is_some() {
            return None;
        }
        let row = self.sending.clients.at_number(tag.binding())?;
        let socket_client = Arc::clone(row.lane.accepted_with(said)?);
        self.refused_count -= 1;
        socket_client.become_lane();
        row.lane = Lane::Ring { peer: source, socket_client: Some(socket_client) };
        let said = |driver: &Driver| message.get(8) == Some(&(*driver as u8));
        row.driver = Driver::ALL.into_iter().find(said).unwrap_or(Driver::Ump);
        let (client, identity) = (row.id, row.identity);
        let welcome = Frame::new(Tag::control(client.binding(), Control::Welcome), &[]);
        let _ = self.sending.reply(client, welcome, &Capabilities::new());
        Some(Found::Bound(client, identity))
    }

    pub(super) fn socket_client_gone(
        &mut self,
        socket_client: &Arc<SocketClient>,
    ) -> Option<Found> {
        let client = *socket_client.id.get()?;
        let lane = &self.sending.clients.get(client)?.lane;
        if lane.is_accepted() {
            self.sending.clients.remove(client);
            return None;
        }
        // Of one in a ring, the end of its ring is what counts.
        lane.socket().is_some().then(|| self.gone(client))?
    }

    /// The service and its clients.
    fn list(&self) -> Vec<u8> {
        let description = self.mailbox.description();
        let clients = self.sending.clients.bound();
        let clients = clients.map(|row| BoundClient::new(row.identity, row.driver));
        Bindings::to_bytes(description.name, description.hash, clients)
    }
}
