//! One connection of a monitor, and what it is.

use std::time::Instant;

use rustix::event::epoll::EventFlags;

use super::closer::{Handed, Socket};
use crate::link::socket::ControlLane;
use crate::node::{LinkId, Neighbour};
use crate::wire::NodeId;
use crate::wire::packet::Origin;

/// What a connection is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    /// It has not said.
    New { until: Instant },
    /// A link whose data lane has not come.
    Waiting { neighbour: Neighbour, until: Instant },
    /// This monitor has asked another one, and said hello in its ring.
    Joining { node: NodeId, until: Instant },
    /// The control lane of a link.
    Control(LinkId),
    /// The data lane of a link.
    Data(LinkId),
    /// Somebody who asks.
    Asking,
    /// It is closed as soon as what it must read has been sent.
    Closing { until: Instant },
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) lane: ControlLane<Socket, Handed>,
    pub(crate) what: What,
    /// There was no room for a frame.
    pub(crate) is_full: bool,
}

impl Connection {
    /// Who is at the other end.
    pub(crate) fn origin(&self) -> Origin {
        let &Socket { uid, gid, pid, .. } = self.lane.socket();
        Origin { uid, gid, pid }
    }

    /// Whether it is a process of this monitor's user.
    pub(crate) fn is_trusted(&self) -> bool {
        self.lane.socket().uid == corewire_os::process::effective_uid()
    }

    /// What it waits for.
    pub(crate) fn flags(&self) -> EventFlags {
        let out = self.lane.has_unsent() || self.is_full;
        let flags = EventFlags::IN | EventFlags::RDHUP;
        if out { flags | EventFlags::OUT } else { flags }
    }

    /// The link that this connection is a lane of.
    pub(crate) const fn link(&self) -> Option<LinkId> {
        match self.what {
            What::Control(link) | What::Data(link) => Some(link),
            _ => None,
        }
    }
}
