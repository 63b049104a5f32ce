//! What peers reach by name through this process's socket. Channels, endpoints, listeners and windows serve their own requests;
//! the domain finds them by kind and name, and a connection knows only what is here.

use std::sync::Arc;

use corewire_layout::frame::{Frame, Reason};
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::socket::{Peer, Socket};

use crate::control::frames::resources;

/// What has a name in a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A channel of one sender.
    Channel,
    /// A shared channel whose name a sender of this process holds.
    Shared,
    Endpoint,
    Listener,
    Window,
}

/// Something that has a name.
pub(crate) trait Reachable: Send + Sync {
    /// Serves a request that names it. True if the connection must be kept and watched.
    fn serve(&self, at: &dyn Visitor, request: Frame, descriptors: Vec<Descriptor>) -> bool;
}

/// The connection on which a request has come.
pub(crate) trait Visitor {
    fn socket(&self) -> &Arc<Socket>;

    /// The process at the other end.
    fn peer(&self) -> Peer;

    /// Stops watching the socket: somebody else will, or it belongs to a program.
    fn unwatch(&self);

    /// Waits for the confirmation of an admitted party.
    fn expect(&self, party: Box<dyn Admitted>);

    /// Whether it is a process of another user.
    fn is_foreign(&self) -> bool {
        self.peer().trusted().is_none()
    }

    /// Refuses the request, and closes the connection.
    fn refuse(&self, reason: Reason) -> bool {
        // If this fails, the hang-up tells the peer.
        let _ = self.socket().send(&Frame::Refused(reason), &[]);
        false
    }

    /// Keeps the connection, or refuses the request.
    fn kept(&self, served: Result<(), Reason>) -> bool {
        match served {
            Ok(()) => true,
            Err(reason) => self.refuse(reason),
        }
    }

    /// Keeps the connection once the answer is sent.
    fn answered(&self, sent: Result<(), OsError>) -> bool {
        self.kept(sent.map_err(|error| resources(&error)))
    }
}

/// A party that was admitted and has not confirmed yet.
pub(crate) trait Admitted: Send {
    /// It never confirms: gives its row back.
    fn vacate(self: Box<Self>);
}

/// A receiver whose descriptor senders of other processes ring through this process's socket.
pub(crate) trait Reader: Send + Sync {
    /// Rings it.
    fn ring(&self);
}
