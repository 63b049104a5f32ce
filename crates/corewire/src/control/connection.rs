//! The requests of peers that connect to this process's socket.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};

use corewire_layout::LAYOUT_VERSION;
use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::{Frame, FrameError, Hello, ROWS_PER_FRAME, Reason};
use corewire_layout::name::ChannelName;
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::memory::text_for_peer;
use corewire_os::socket::{Peer, ReceiveError, Socket};

use crate::control::domain::DomainInner;
use crate::control::endpoint::EndpointControl;
use crate::control::hub::{Handler, Token};
use crate::control::owner::EMFILE;
use crate::control::shared::member::{Arrival, Member};
use crate::guard::lock;
use crate::halves::EndpointHalf;
use crate::tell::tell;

/// Maximum number of requests of one connection per event, so that the control thread also handles other events.
pub(crate) const REQUESTS_PER_TURN: usize = 16;

/// A connection that has not become a receiver's link.
pub(crate) struct Connection {
    id: u64,
    socket: Arc<Socket>,
    peer: Peer,
    domain: Weak<DomainInner>,
    /// The party that a host has admitted on this connection and that has not confirmed yet.
    arrival: Mutex<Option<Arrival>>,
    /// Present while the control thread watches the connection.
    token: Mutex<Option<Token>>,
}

impl Connection {
    /// Starts serving a new connection of a permitted peer.
    pub(crate) fn start(
        id: u64,
        socket: Socket,
        peer: Peer,
        domain: &Weak<DomainInner>,
    ) -> Result<Arc<Self>, OsError> {
        let socket = Arc::new(socket);
        let domain = Weak::clone(domain);
        let (arrival, token) = (Mutex::new(None), Mutex::new(None));
        let connection = Arc::new(Self { id, socket, peer, domain, arrival, token });
        if let Some(domain) = connection.domain.upgrade() {
            let handler: Weak<dyn Handler> = Arc::downgrade(&connection) as Weak<dyn Handler>;
            let token = domain.hub().watch(&*connection.socket, handler).inspect_err(|error| {
                domain.failed(&connection.socket, Some(peer), error);
            })?;
            *lock(&connection.token) = Some(token);
        }
        Ok(connection)
    }

    /// The process at the other end.
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    fn is_foreign(&self) -> bool {
        self.peer.trusted().is_none()
    }

    /// Serves one request. True if the connection must be kept and watched.
    fn serve(&self, domain: &Arc<DomainInner>, frame: Frame, descriptors: Vec<Descriptor>) -> bool {
        match frame {
            Frame::Hello(mut hello) => {
                if self.is_foreign() {
                    // Guests are not invited. The numbers of invited waiters are visible in the directory, and a guest
                    // that sent one would remove that waiter's invitation.
                    hello.waiter = 0;
                }
                self.admit(domain, &hello, descriptors)
            }
            Frame::Observe { name } => self.show(domain, &name),
            Frame::Enter { name, type_key, socket } if !self.is_foreign() => {
                self.serve_sender(domain, &name, |member| {
                    let admitted = member.admit_sender(type_key, socket, &self.socket, self.peer);
                    admitted.map(|arrival| self.expect(arrival))
                })
            }
            Frame::Done => self.confirm(),
            Frame::Follow { name } if !self.is_foreign() => {
                self.serve_sender(domain, &name, |member| member.add_follower(&self.socket))
            }
            Frame::Wake { row, incarnation } if !self.is_foreign() => {
                if let Some(reader) = domain.reader(incarnation, row) {
                    reader.ring();
                }
                true
            }
            Frame::Pair { name, row, reservation, incarnation, target } if !self.is_foreign() => {
                let endpoint = domain.endpoint(&name).filter(|it| it.incarnation() == target);
                let Some(endpoint) = endpoint else {
                    return self.refuse(Reason::NotFound);
                };
                // From here on the endpoint watches the socket.
                self.unwatch(domain);
                let requester = (row, reservation, incarnation);
                match endpoint.accept_link(requester, &self.socket, self.peer, descriptors) {
                    Ok(()) => false,
                    Err(reason) => self.refuse(reason),
                }
            }
            Frame::Connect { name } => self.hand_over(domain, &name),
            Frame::Invite { name, waiter } if !self.is_foreign() => {
                domain.invited(&name, waiter, Arc::clone(&self.socket));
                false
            }
            _ => self.refuse(Reason::Malformed),
        }
    }

    /// Waits for the confirmation of an admitted party.
    fn expect(&self, arrival: Arrival) {
        let former = lock(&self.arrival).replace(arrival);
        former.into_iter().for_each(Arrival::vacate);
    }

    /// An admitted party confirms that it is ready. Without an answer it vacates its row itself.
    fn confirm(&self) -> bool {
        let Some(arrival) = lock(&self.arrival).take() else {
            return self.refuse(Reason::Malformed);
        };
        match self.socket.send(&Frame::Done, &[]) {
            Ok(()) => true,
            Err(error) => {
                arrival.vacate();
                self.refuse(Reason::Resources { errno: error.errno.unsigned_abs() })
            }
        }
    }

    fn unwatch(&self, domain: &DomainInner) {
        if let Some(token) = lock(&self.token).take() {
            domain.hub().forget(&*self.socket, token);
        }
    }

    fn refuse(&self, reason: Reason) -> bool {
        // If this fails, the hang-up tells the peer.
        let _ = self.socket.send(&Frame::Refused(reason), &[]);
        false
    }

    /// Lets the host of a shared channel, if it is in this process, serve another sender. The connection stays open:
    /// its end tells that sender that this host is gone.
    fn serve_sender(
        &self,
        domain: &DomainInner,
        name: &ChannelName,
        serve: impl FnOnce(&Member) -> Result<(), Reason>,
    ) -> bool {
        match (domain.member(name), domain.channel(name)) {
            (Some(member), _) => match serve(&member) {
                Ok(()) => true,
                Err(reason) => self.refuse(reason),
            },
            (None, Some(_)) => self.refuse(Reason::NotShared),
            (None, None) => self.refuse(Reason::NotFound),
        }
    }

    fn admit(&self, domain: &DomainInner, hello: &Hello, descriptors: Vec<Descriptor>) -> bool {
        if let Some(member) = domain.member(&hello.name) {
            return match member.admit(hello, &self.socket, self.peer) {
                Ok(arrival) => {
                    self.expect(arrival);
                    true
                }
                Err(reason) => self.refuse(reason),
            };
        }
        let Some(owner) = domain.channel(&hello.name) else {
            return self.refuse(Reason::NotFound);
        };
        if owner.is_relayed(hello, self.peer) {
            return match owner.point_to_relay(hello, &self.socket) {
                Ok(()) => true,
                Err(reason) => self.refuse(reason),
            };
        }
        // From here on the owner watches the socket.
        self.unwatch(domain);
        match owner.admit(hello, &self.socket, self.peer, descriptors) {
            Ok(()) => false,
            Err(reason) => {
                owner.count(ControlCounter::Refusals);
                tell!(info, "a receiver was refused", channel = hello.name, reason = reason);
                self.refuse(reason)
            }
        }
    }

    /// Gives this connection to a listener's program.
    fn hand_over(&self, domain: &DomainInner, name: &ChannelName) -> bool {
        let Some(listener) = domain.listener(name) else {
            return self.refuse(Reason::NotFound);
        };
        // What follows on the socket is for that program.
        self.unwatch(domain);
        match listener.add(&self.socket, self.peer) {
            Ok(()) => false,
            Err(reason) => {
                tell!(info, "a connection was refused", listener = name, reason = reason);
                self.refuse(reason)
            }
        }
    }

    fn show_endpoint(&self, endpoint: &EndpointControl) -> bool {
        if self.is_foreign() {
            return self.refuse(Reason::NotForGuests);
        }
        let answer = text_for_peer(&endpoint.list_peers()).and_then(|peers| {
            let descriptors = [endpoint.segment().as_fd(), peers.as_fd()];
            self.socket.send(&Frame::ObservedEndpoint, &descriptors)
        });
        match answer {
            Ok(()) => true,
            Err(error) => self.refuse(Reason::Resources { errno: error.errno.unsigned_abs() }),
        }
    }

    fn show(&self, domain: &DomainInner, name: &ChannelName) -> bool {
        if let Some(member) = domain.member(name) {
            if self.is_foreign() {
                return self.refuse(Reason::NotForGuests);
            }
            let answer = member.segments().and_then(|(ring, table)| {
                let descriptors = [ring.as_fd(), table.as_fd()];
                let joining = member.joining();
                self.socket.send(&Frame::Observed { count: 0, joining }, &descriptors)
            });
            return match answer {
                Ok(()) => true,
                Err(error) => self.refuse(Reason::Resources { errno: error.errno.unsigned_abs() }),
            };
        }
        if let Some(endpoint) = domain.endpoint(name) {
            return self.show_endpoint(&endpoint);
        }
        if domain.listener(name).is_some() {
            return match self.socket.send(&Frame::Done, &[]) {
                Ok(()) => true,
                Err(error) => self.refuse(Reason::Resources { errno: error.errno.unsigned_abs() }),
            };
        }
        let Some(owner) = domain.channel(name) else {
            return self.refuse(Reason::NotFound);
        };
        // Guests must not see the processes of other receivers.
        let joining = if self.is_foreign() { Vec::new() } else { owner.joining() };
        let answer = owner.with_rows(|sender, rows| {
            // Guests must not see the pages of other receivers.
            let rows = if self.is_foreign() { &[] } else { rows };
            let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
            self.socket.send(&Frame::Observed { count, joining }, &[sender.as_fd()])?;
            for part in rows.chunks(ROWS_PER_FRAME) {
                let numbers = part.iter().map(|&(row, _)| row).collect();
                let segments: Vec<_> = part.iter().map(|(_, segment)| segment.as_fd()).collect();
                self.socket.send(&Frame::Rows(numbers), &segments)?;
            }
            Ok::<(), OsError>(())
        });
        match answer {
            Ok(()) => true,
            Err(error) => self.refuse(Reason::Resources { errno: error.errno.unsigned_abs() }),
        }
    }
}

impl Handler for Connection {
    fn on_event(&self, _token: Token, _hung_up: bool) {
        let Some(domain) = self.domain.upgrade() else { return };
        let mut is_kept = true;
        // The next event, which comes at once, handles the remaining requests.
        for _ in 0..REQUESTS_PER_TURN {
            is_kept = match self.socket.receive() {
                Ok((frame, descriptors)) => self.serve(&domain, frame, descriptors),
                Err(ReceiveError::Nothing) => break,
                Err(ReceiveError::Frame(FrameError::Version { .. })) => {
                    self.refuse(Reason::Version { version: LAYOUT_VERSION })
                }
                Err(ReceiveError::Frame(_)) => self.refuse(Reason::Malformed),
                Err(ReceiveError::Descriptors) => self.refuse(Reason::Resources { errno: EMFILE }),
                Err(ReceiveError::Os(error)) => {
                    domain.failed(&self.socket, Some(self.peer), &error);
                    false
                }
                Err(_) => false,
            };
            if !is_kept {
                break;
            }
        }
        if !is_kept {
            self.unwatch(&domain);
            if let Some(arrival) = lock(&self.arrival).take() {
                arrival.vacate();
            }
            domain.forget_connection(self.id);
        }
    }
}
