//! A service's ends of its clients' lanes: which of them a client has.

use std::sync::Arc;

use corewire::Peer;

use super::client_id::ClientId;
use super::guest::Guest;
use crate::tag::{Control, Tag};

/// How a client is reached.
pub(super) enum Lane {
    Ring {
        peer: Peer,
        guest: Arc<Guest>,
    },
    Socket(Arc<Guest>),
    Circuit {
        index: u32,
    },
    /// It has been accepted, and has not said how. The secret is what it says in the ring.
    Accepted {
        guest: Arc<Guest>,
        secret: u64,
    },
    /// It is cut off. Nothing of it is handled and nothing is sent, until its end is reported.
    CutOff {
        peer: Peer,
        guest: Arc<Guest>,
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
    pub(super) const fn beside(&self) -> Option<&Arc<Guest>> {
        match self {
            Self::Ring { guest, .. } | Self::CutOff { guest, .. } => Some(guest),
            _ => None,
        }
    }

    /// The socket by which the client is bound.
    pub(super) const fn socket(&self) -> Option<&Arc<Guest>> {
        match self {
            Self::Socket(guest) => Some(guest),
            _ => None,
        }
    }

    /// The socket of a client that was accepted with this secret.
    pub(super) fn accepted_with(&self, said: u64) -> Option<&Arc<Guest>> {
        match self {
            Self::Accepted { guest, secret } if *secret == said => Some(guest),
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
