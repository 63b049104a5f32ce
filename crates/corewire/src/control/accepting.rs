//! Connections of peers to this process's socket: who is let in, and how many.

use std::time::{Duration, Instant};

use corewire_layout::frame::{Frame, Reason};
use corewire_os::OsError;
use corewire_os::event::wait_readable;
use corewire_os::process::effective_uid;
use corewire_os::socket::{Listener, Peer, Socket};

use crate::control::connection::Connection;
use crate::control::domain::DomainInner;
use crate::control::frames::{EAGAIN, EMFILE, is_out_of_descriptors};
use crate::control::hub::{Handler, Token};

/// Maximum number of connections without a served request. Further connections are closed at once.
const CONNECTIONS_MAX: usize = 4096;
/// Maximum number of these per foreign user, so that one user cannot exclude the others.
const CONNECTIONS_OF_GUEST_MAX: usize = 64;
/// Maximum number of connections accepted per event, so that the control thread also handles other events.
const ACCEPTS_PER_TURN: usize = 64;

impl Handler for DomainInner {
    fn on_event(&self, _token: Token, _hung_up: bool) {
        let Some((listener, _)) = self.listener() else { return };
        for _ in 0..ACCEPTS_PER_TURN {
            match listener.accept() {
                Ok(socket) => self.take_connection(socket),
                Err(error)
                    if is_out_of_descriptors(&error) && self.refuse_one(listener, &error) => {}
                Err(error) if error.errno == EAGAIN => return,
                // A connection that cannot be accepted now stays in the queue, and the listener stays readable. The
                // pause prevents a busy loop.
                Err(_) => {
                    let later = Instant::now() + Duration::from_millis(10);
                    let _ = wait_readable(&[], Some(later));
                    return;
                }
            }
        }
    }
}

impl DomainInner {
    fn take_connection(&self, socket: Socket) {
        let peer = match socket.peer() {
            Ok(peer) => peer,
            Err(error) => {
                self.failed(&socket, None, &error);
                return;
            }
        };
        match (self.admit_connection(&socket, peer), self.listener()) {
            (Ok(id), Some((_, this))) => {
                if let Ok(connection) = Connection::start(id, socket, peer, this) {
                    self.keep_connection(id, peer.uid, connection);
                }
            }
            (Err(reason), _) => {
                if peer.trusted().is_some() {
                    // The limit on connections is reached, and this connection may be an invitation.
                    let what = "accept one more connection".into();
                    self.lost_connection(&OsError { what, errno: EMFILE.cast_signed() });
                }
                let _ = socket.send(&Frame::Refused(reason), &[]);
            }
            (Ok(_), None) => {}
        }
    }

    /// Checks the user and the number of connections. Returns the number of the new connection.
    fn admit_connection(&self, socket: &Socket, peer: Peer) -> Result<u64, Reason> {
        let is_foreign = peer.trusted().is_none();
        if is_foreign && !self.directory.access().permits(peer, socket) {
            return Err(Reason::NotPermitted { owner: effective_uid(), asker: peer.uid });
        }
        let max_of_user = if is_foreign { CONNECTIONS_OF_GUEST_MAX } else { CONNECTIONS_MAX };
        self.number_connection(peer.uid, max_of_user, CONNECTIONS_MAX)
            .ok_or(Reason::Resources { errno: EMFILE })
    }

    /// Refuses one connection although no descriptor is free: closes the spare descriptor to accept it. Without this
    /// the listener would stay readable. False if no peer was refused.
    fn refuse_one(&self, listener: &Listener, error: &OsError) -> bool {
        let refused = self.with_spare(|| {
            listener.accept().is_ok_and(|socket| {
                let peer = socket.peer().ok();
                self.failed(&socket, peer, error)
            })
        });
        refused.unwrap_or(false)
    }
}
