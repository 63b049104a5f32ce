//! A service's ends of its clients' lanes: which of them a client has.

use std::sync::Arc;

use corewire::Peer;

use super::client_id::ClientId;
use super::socket_client::SocketClient;
use crate::tag::{Control, Tag};

/// How a client is reached.
pub(super) enum Lane {
    Ring {
        peer: Peer,
        /// For capabilities; a client of another host has none.
        socket_client: Option<Arc<SocketClient>>,
    },
    Socket(Arc<SocketClient>),
    Circuit {
        index: u32,
    },
    /// It has been accepted, and has not said how. The secret is what it says in the ring.
    Accepted {
        socket_client: Arc<SocketClient>,
        secret: u64,
    },
    /// It is cut off. Nothing of it is handled and nothing is sent, until its end is reported.
    CutOff {
        peer: Peer,
        socket_client: Option<Arc<SocketClient>>,
    },
}

impl Lane {
    /// Whether messages of the client are handled.
    pub(super) const fn is_bound(&self) -> bool {
        !matches!(self, Self::Accepted { .. } | Self::CutOff { .. })
    }

    /// Whether the client has not said how it speaks.
    pub(super) const fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted { .. })
    }

    /// The client's endpoint, cut off or not.
    pub(super) const fn peer(&self) -> Option<Peer> {
        match self {
            Self::Ring { peer, .. } | Self::CutOff { peer, .. } => Some(*peer),
            _ => None,
        }
    }

    /// The socket beside the client's ring, cut off or not.
    pub(super) const fn beside(&self) -> Option<&Arc<SocketClient>> {
        match self {
            Self::Ring { socket_client, .. } | Self::CutOff { socket_client, .. } => {
                socket_client.as_ref()
            }
            _ => None,
        }
    }

    /// The socket by which the client is bound.
    pub(super) const fn socket(&self) -> Option<&Arc<SocketClient>> {
        match self {
            Self::Socket(socket_client) => Some(socket_client),
            _ => None,
        }
    }

    /// The socket of a client that was accepted with this secret.
    pub(super) fn accepted_with(&self, said: u64) -> Option<&Arc<SocketClient>> {
        match self {
            Self::Accepted { socket_client, secret } if *secret == said => Some(socket_client),
            _ => None,
        }
    }

    /// The tag of what binding and unbinding say. Only messages in rings have the binding's number.
    pub(super) const fn control(&self, client: ClientId, control: Control) -> Tag {
        match self {
            Self::Ring { .. } | Self::CutOff { .. } => Tag::control(client.binding(), control),
            _ => Tag::control(0, control),
        }
    }
}
