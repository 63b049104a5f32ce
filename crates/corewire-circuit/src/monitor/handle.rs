//! A monitor, from other threads: what they tell it.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use corewire::Connection;

use crate::node::Policy;
use crate::wire::NodeId;

/// What a thread of a monitor has done.
#[derive(Clone)]
pub(crate) enum Joined {
    /// Another monitor accepts this one as its neighbour.
    Monitor(Arc<Mutex<Option<Accepted>>>),
    /// It does not.
    Failed(NodeId),
    /// From now on another policy counts.
    Policy(Policy),
    /// The monitor must end.
    Stop,
}

/// Another monitor's answer.
pub(crate) struct Accepted {
    pub(crate) node: NodeId,
    pub(crate) socket: Connection,
    pub(crate) secret: u64,
    pub(crate) endpoint: String,
}

/// A monitor, from other threads.
#[derive(Clone)]
pub struct Handle {
    pub(super) joined: Sender<Joined>,
    pub(super) wake: Arc<OwnedFd>,
}

impl Handle {
    /// Ends it. Never waits.
    pub fn stop(&self) {
        self.send(Joined::Stop);
    }

    /// Sets who may do what from now on. Circuits that are open, and names that are served, stay.
    pub fn set_policy(&self, policy: Policy) {
        self.send(Joined::Policy(policy));
    }

    fn send(&self, what: Joined) {
        // A monitor that has ended needs no telling.
        let _ = self.joined.send(what);
        let _ = rustix::io::write(&self.wake, &1_u64.to_le_bytes());
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}
