//! What a monitor has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use corewire::{Domain, EndpointError, ListenError, Listener, MessageError, NameWatch, OpenError};
use rustix::io::Errno;

use super::closer::Handed;
use super::handle::{Handle, Joined};
use super::links::Out;
use crate::link::socket::DATA_BYTES_MAX;
use crate::link::trace;
use crate::node::{LinkId, Node};
use crate::wire::NodeId;

/// Why a monitor could not start, or has ended.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// A monitor of this number runs already.
    #[error("monitor {node} runs already{}", .pid.map_or(String::new(), |pid| format!(": it is process {pid}")))]
    Running {
        /// The monitor.
        node: NodeId,
        /// Its process; `None` if it cannot be seen from here.
        pid: Option<u32>,
    },
    /// Its name cannot be taken.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Its endpoints could not be created.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The runtime directory cannot be watched.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An endpoint failed.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A system call failed.
    #[error("{what}: {error}")]
    Os {
        /// What was done.
        what: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
}

impl MonitorError {
    pub(crate) fn os(what: &'static str) -> impl Fn(Errno) -> Self {
        move |error| Self::Os { what, error: error.into() }
    }
}

/// Keys in the set of descriptors.
pub(crate) mod key {
    pub(crate) const LISTENER: u64 = 0;
    pub(crate) const NAMES: u64 = 1;
    pub(crate) const WAKE: u64 = 2;
    pub(crate) const RINGS: u64 = 3;
    pub(crate) const TRUNK: u64 = 4;
    pub(crate) const FIRST_CONNECTION: u64 = 16;
}

/// A monitor.
pub struct Monitor {
    pub(crate) node: Node,
    pub(crate) out: Out,
    pub(crate) domain: Domain,
    pub(crate) listener: Listener,
    pub(crate) names: NameWatch,
    pub(crate) wake: Arc<OwnedFd>,
    pub(crate) joined: Receiver<Joined>,
    pub(crate) joining: (Sender<Joined>, BTreeSet<NodeId>),
    pub(crate) names_have_changed: bool,
    /// Monitors that have not answered, to be asked again at the next look.
    pub(crate) failed: BTreeSet<NodeId>,
    /// Neighbours to which there was no link when it was last looked.
    pub(crate) missing: BTreeSet<NodeId>,
    pub(crate) poll: Duration,
    /// When sockets were looked at, and how long they may wait, in ticks of the processor's counter.
    pub(crate) sockets_at: u64,
    pub(crate) without_sockets_ticks: u64,
    /// Links whose control lane has ended; what is in their rings comes first.
    pub(crate) ending: Vec<LinkId>,
    /// Links whose data lane has ended, and whose control lane cannot be read now.
    pub(crate) unread: Vec<LinkId>,
    pub(crate) buffer: Box<[u8; DATA_BYTES_MAX + 1]>,
    /// Whose connections ask for a trace, and the memory of everybody who has recorded.
    pub(crate) tracing: Tracing,
    pub(crate) last_look: Instant,
    /// The most circuits since memory was given back.
    pub(crate) circuits_most: usize,
    /// Circuits at the last look.
    pub(crate) circuits_before: usize,
}

/// Who asks for a trace, and where everybody records.
#[derive(Debug, Default)]
pub(crate) struct Tracing {
    /// Connections that have asked for a trace, and whether it goes on.
    pub(super) askers: BTreeMap<u64, bool>,
    /// Of everybody who records, or has recorded, while there is somebody who may ask for it; with the link, while it is up.
    pub(super) memory: Vec<(Option<LinkId>, Handed)>,
    /// Of the monitor.
    pub(super) own: Option<Handed>,
    pub(super) is_recording: bool,
}

impl Drop for Tracing {
    fn drop(&mut self) {
        if self.is_recording {
            trace::stop();
        }
    }
}

impl Monitor {
    /// Its number.
    #[must_use]
    pub const fn id(&self) -> NodeId {
        self.node.id()
    }

    /// How many circuits lead through it.
    #[must_use]
    pub fn circuit_count(&self) -> usize {
        self.node.circuit_count()
    }

    /// Links that are up, to programs and to other monitors.
    #[must_use]
    pub fn link_count(&self) -> usize {
        self.node.links().count()
    }

    /// A handle for other threads, which ends [`run`](Self::run).
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { joined: self.joining.0.clone(), wake: Arc::clone(&self.wake) }
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor")
            .field("id", &self.id())
            .field("links", &self.link_count())
            .field("circuits", &self.circuit_count())
            .finish_non_exhaustive()
    }
}

corewire_layout::debug_is_text!(MonitorError);
