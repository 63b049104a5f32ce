//! The requests of peers that connect to this process's socket.

use std::sync::{Arc, Mutex, Weak};

use corewire_layout::LAYOUT_VERSION;
use corewire_layout::frame::{Frame, FrameError, Reason};
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::socket::{Peer, ReceiveError, Socket};

use crate::control::domain::DomainInner;
use crate::control::frames::{EMFILE, REQUESTS_PER_TURN};
use crate::control::hub::{Handler, Token};
use crate::control::reachable::{Admitted, Kind, Visitor};
use crate::guard::lock;

/// A connection that has not become a receiver's link.
pub(crate) struct Connection {
    id: u64,
    socket: Arc<Socket>,
    peer: Peer,
    domain: Weak<DomainInner>,
    /// The party that a host has admitted on this connection and that has not confirmed yet.
    arrival: Mutex<Option<Box<dyn Admitted>>>,
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

    /// Serves one request. True if the connection must be kept and watched.
    fn serve(&self, domain: &DomainInner, mut frame: Frame, descriptors: Vec<Descriptor>) -> bool {
        if let Frame::Hello(hello) = &mut frame
            && self.is_foreign()
        {
            // Guests are not invited. The numbers of invited waiters are visible in the directory, and a guest that sent
            // one would remove that waiter's invitation.
            hello.waiter = 0;
        }
        let is_trusted = !self.is_foreign();
        let (kinds, name) = match &frame {
            Frame::Hello(hello) => (&[Kind::Shared, Kind::Channel][..], &hello.name),
            Frame::Observe { name } => (
                &[Kind::Shared, Kind::Endpoint, Kind::Listener, Kind::Window, Kind::Channel][..],
                name,
            ),
            Frame::Attach { name, .. } => (&[Kind::Window][..], name),
            Frame::Enter { name, .. } | Frame::Follow { name } if is_trusted => {
                (&[Kind::Shared, Kind::Channel][..], name)
            }
            Frame::Pair { name, .. } if is_trusted => (&[Kind::Endpoint][..], name),
            Frame::Connect { name } => (&[Kind::Listener][..], name),
            #[cfg(feature = "net")]
            Frame::Dialled { name, .. } if is_trusted => (&[Kind::Endpoint][..], name),
            Frame::Done => return self.confirm(),
            Frame::Wake { row, incarnation } if is_trusted => {
                if let Some(reader) = domain.reader(*incarnation, *row) {
                    reader.ring();
                }
                return true;
            }
            Frame::Invite { name, waiter } if is_trusted => {
                domain.invited(name, *waiter, Arc::clone(&self.socket));
                return false;
            }
            _ => return self.refuse(Reason::Malformed),
        };
        match domain.find(kinds, name) {
            Some(it) => it.serve(self, frame, descriptors),
            None => self.refuse(Reason::NotFound),
        }
    }

    /// An admitted party confirms that it is ready. Without an answer it vacates its row itself.
    fn confirm(&self) -> bool {
        let Some(arrival) = lock(&self.arrival).take() else {
            return self.refuse(Reason::Malformed);
        };
        let sent = self.socket.send(&Frame::Done, &[]);
        if sent.is_err() {
            arrival.vacate();
        }
        self.answered(sent)
    }
}

impl Visitor for Connection {
    fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    fn peer(&self) -> Peer {
        self.peer
    }

    fn unwatch(&self) {
        if let (Some(token), Some(domain)) = (lock(&self.token).take(), self.domain.upgrade()) {
            domain.hub().forget(&*self.socket, token);
        }
    }

    fn expect(&self, party: Box<dyn Admitted>) {
        let former = lock(&self.arrival).replace(party);
        if let Some(former) = former {
            former.vacate();
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
            self.unwatch();
            if let Some(arrival) = lock(&self.arrival).take() {
                arrival.vacate();
            }
            domain.forget_connection(self.id);
        }
    }
}
