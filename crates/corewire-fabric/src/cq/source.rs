//! Whose message a receive has got.

use corewire::Peer;
use corewire_ofi::FiAddr;

use crate::member::{Bound, Member};

/// Whose message a receive has got.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// Nobody's, or somebody's who is not in the address vector.
    None,
    /// The one's with this number.
    Known(FiAddr),
    /// A peer's whose number has not been looked up yet.
    Unknown(Peer, Bound<dyn Member>),
}

impl Source {
    /// Whose message it is by the label of its sender: the number in the address vector, and one more.
    #[inline(always)]
    pub(crate) fn of_label(label: u64, peer: Peer, endpoint: Bound<dyn Member>) -> Self {
        if label > 0 { Self::Known(label - 1) } else { Self::Unknown(peer, endpoint) }
    }
}
