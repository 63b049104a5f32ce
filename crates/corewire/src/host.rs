//! What stands behind a data thread: Linux, and the control half of its handle.

use std::fmt;
use std::sync::Arc;

use corewire_os::sleep::Linux;
use corewire_ring::{Control, Host, broadcast, pair, shared};

/// The rings as this process runs them.
pub(crate) type SenderRing = broadcast::Sender<Hosted>;
pub(crate) type ReceiverRing = broadcast::Receiver<Hosted>;
pub(crate) type SharedRing = shared::Sender<Hosted>;
pub(crate) type PairRing = pair::Endpoint<Hosted>;

/// Linux and a control half.
#[derive(Clone)]
pub(crate) struct Hosted {
    linux: Linux,
    control: Arc<dyn Control + Send + Sync>,
}

impl Hosted {
    pub(crate) fn new(control: Arc<dyn Control + Send + Sync>) -> Self {
        Self { linux: Linux::get(), control }
    }

    /// Without a control half that the ring could ask for anything.
    pub(crate) fn alone() -> Self {
        Self::new(Arc::new(()))
    }
}

impl Host for Hosted {
    type Kernel = Linux;
    type Control = dyn Control + Send + Sync;

    #[inline(always)]
    fn kernel(&self) -> &Linux {
        &self.linux
    }

    #[inline(always)]
    fn control(&self) -> &Self::Control {
        &*self.control
    }
}

impl fmt::Debug for Hosted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.linux.fmt(f)
    }
}
