//! What an endpoint and its peers consist of, and what the data thread shares with the control thread.

use alloc::sync::Arc;
use core::fmt;

use corewire_layout::segment::FenceMode;

use crate::doorbell::{self, Notices};
use crate::pair::words::{Activity, EndpointMemory};
use crate::region::Word32;
use crate::{Kernel, Trusted};

/// What an endpoint's data thread shares with the control thread of its process. The notices lie in private memory.
/// They ring the same doorbell as peers do, so that a sleep waits on one word, which costs the kernel 0.7 of a wait
/// on two. A hostile peer that resets the doorbell can delay a notice, like any message, until the sleep's cap.
pub struct EndpointShared {
    doorbell: Word32,
    notices: Notices,
}

impl EndpointShared {
    /// Without notices, for the endpoint of this activity page.
    #[must_use]
    pub fn new(activity: &Activity) -> Self {
        Self { doorbell: activity.doorbell().clone(), notices: Notices::default() }
    }

    /// Gives the data thread notices, whose bits the caller chooses. Wakes the data thread if it waits.
    pub fn notify<K: Kernel>(&self, notices: u32, kernel: &K) {
        self.notices.set(notices);
        doorbell::ring(&self.doorbell, 1, kernel);
    }

    /// Tells the data thread, by `notices`, that this is a forked child. Makes only stores.
    pub fn mark(&self, notices: u32) {
        self.notices.mark(notices);
    }

    /// The notices given so far.
    #[inline(always)]
    #[must_use]
    pub fn notices(&self) -> u32 {
        self.notices.get()
    }

    /// Clears notices.
    pub fn clear(&self, notices: u32) {
        self.notices.clear(notices);
    }
}

impl fmt::Debug for EndpointShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointShared").finish_non_exhaustive()
    }
}

/// The parts of an endpoint.
#[derive(Debug)]
pub struct EndpointParts {
    /// Its segment, writable, with its header written.
    pub memory: EndpointMemory,
    /// Its activity page.
    pub activity: Activity,
    /// Whether its process can be reached by `membarrier`, and can call it.
    pub fence_mode: FenceMode,
    /// What it shares with its control thread.
    pub shared: Arc<EndpointShared>,
}

/// The parts of a peer.
#[derive(Debug)]
pub struct PeerParts {
    /// Its segment, read-only, with its header checked.
    pub memory: EndpointMemory,
    /// Its activity page.
    pub activity: Activity,
    /// This endpoint's row in the peer's segment, checked to be one of its rows.
    pub row_there: u32,
    /// Whether its process can be reached by `membarrier`, and can call it.
    pub fence_mode: FenceMode,
    /// A promise that the peer may crash, but does not lie about its memory.
    pub trusted: Trusted,
}
