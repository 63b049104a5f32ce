//! What a peer that connects to this process's socket may ask for.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};

use corewire_layout::LAYOUT_VERSION;
use corewire_layout::frame::{Frame, FrameError, Hello, ROWS_PER_FRAME, Reason};
use corewire_layout::name::ChannelName;
use corewire_os::OsError;
use corewire_os::process::effective_uid;
use corewire_os::socket::{Peer, ReceiveError, Socket};

use crate::control::domain::DomainInner;
use crate::control::hub::{Handler, Token, lock};
use crate::control::owner::EMFILE;

/// A connection that has not become a receiver's link.
pub(crate) struct Connection {
    id: u64,
    socket: Arc<Socket>,
    peer: Peer,
    domain: Weak<DomainInner>,
    /// While the control thread watches it.
    token: Mutex<Option<Token>>,
}

impl Connection {
    /// Takes a new connection in, unless its other end is of another user.
    pub(crate) fn start(
        id: u64,
        socket: Socket,
        domain: &Weak<DomainInner>,
    ) -> Result<Arc<Self>, OsError> {
        let tell = |socket: &Socket, error: &OsError| {
            let reason = Reason::Resources { errno: error.errno.unsigned_abs() };
            // If it does not get through, the hang-up says that it failed.
            let _ = socket.send(&Frame::Refused(reason), &[]);
            if let Some(domain) = domain.upgrade() {
                domain.lost_connection(error);
            }
        };
        let peer = socket.peer().inspect_err(|error| tell(&socket, error))?;
        if peer.trusted().is_none() {
            let reason = Reason::NotPermitted { owner: effective_uid(), asker: peer.uid };
            socket.send(&Frame::Refused(reason), &[])?;
            return Err(OsError { what: "peer of another user".into(), errno: 1 });
        }
        let socket = Arc::new(socket);
        let domain = Weak::clone(domain);
        let connection = Arc::new(Self { id, socket, peer, domain, token: Mutex::new(None) });
        if let Some(domain) = connection.domain.upgrade() {
            let handler: Weak<dyn Handler> = Arc::downgrade(&connection) as Weak<dyn Handler>;
            let token = domain
                .hub()
                .watch(&*connection.socket, handler)
                .inspect_err(|error| tell(&connection.socket, error))?;
            *lock(&connection.token) = Some(token);
        }
        Ok(connection)
    }

    /// Serves one request. True if the connection is to be kept and watched on.
    fn serve(&self, domain: &Arc<DomainInner>, frame: Frame, descriptors: Vec<OwnedFd>) -> bool {
        match frame {
            Frame::Hello(hello) => self.admit(domain, &hello, descriptors),
            Frame::Observe { name } => self.show(domain, &name),
            Frame::Invite { name, waiter } => {
                domain.invited(&name, waiter, Arc::clone(&self.socket));
                false
            }
            _ => self.refuse(Reason::Malformed),
        }
    }

    fn unwatch(&self, domain: &DomainInner) {
        if let Some(token) = lock(&self.token).take() {
            domain.hub().forget(&*self.socket, token);
        }
    }

    fn refuse(&self, reason: Reason) -> bool {
        // If it does not get through, the hang-up says as much.
        let _ = self.socket.send(&Frame::Refused(reason), &[]);
        false
    }

    fn admit(&self, domain: &DomainInner, hello: &Hello, descriptors: Vec<OwnedFd>) -> bool {
        let Some(owner) = domain.channel(&hello.name) else {
            return self.refuse(Reason::NotFound);
        };
        // From here on the owner watches it.
        self.unwatch(domain);
        match owner.admit(hello, &self.socket, self.peer.pid, descriptors) {
            Ok(()) => false,
            Err(reason) => {
                owner.count_refusal();
                self.refuse(reason)
            }
        }
    }

    fn show(&self, domain: &DomainInner, name: &ChannelName) -> bool {
        let Some(owner) = domain.channel(name) else {
            return self.refuse(Reason::NotFound);
        };
        let answer = owner.with_rows(|sender, rows| {
            let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
            self.socket.send(&Frame::Observed { count }, &[sender.as_fd()])?;
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
        let is_kept = loop {
            match self.socket.receive() {
                Ok((frame, descriptors)) => {
                    if !self.serve(&domain, frame, descriptors) {
                        break false;
                    }
                }
                Err(ReceiveError::Nothing) => break true,
                Err(ReceiveError::Frame(FrameError::Version { .. })) => {
                    break self.refuse(Reason::Version { version: LAYOUT_VERSION });
                }
                Err(ReceiveError::Frame(_)) => break self.refuse(Reason::Malformed),
                Err(ReceiveError::Descriptors) => {
                    break self.refuse(Reason::Resources { errno: EMFILE });
                }
                Err(ReceiveError::Os(error)) => {
                    domain.lost_connection(&error);
                    break self.refuse(Reason::Resources { errno: error.errno.unsigned_abs() });
                }
                Err(_) => break false,
            }
        };
        if !is_kept {
            self.unwatch(&domain);
            domain.forget_connection(self.id);
        }
    }
}
