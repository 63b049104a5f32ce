//! What an endpoint exposes to its peers: the memory, by key.

use std::collections::BTreeMap;

use corewire_layout::access::{Access, Answer, Denial};
use corewire_ring::message::Exposed;
use corewire_ring::pair::ExposedPlace;

/// What this endpoint exposes.
#[derive(Debug, Default)]
pub(crate) struct Exposures {
    pub(crate) by_key: BTreeMap<u64, Exposure>,
    /// Number of keys that no entry of the transport's table has given.
    pub(crate) keys: u64,
    /// Something is exposed, or was.
    pub(crate) has_exposed: bool,
    /// Peers may signal.
    pub(crate) takes_signals: bool,
}

#[derive(Debug)]
pub(crate) struct Exposure {
    pub(crate) memory: Exposed,
    pub(crate) place: ExposedPlace,
    /// Where peers find it by themselves.
    pub(crate) entry: Option<u16>,
}

impl Exposure {
    /// Does what a peer asks for. Returns what was there before.
    pub(crate) fn apply(&self, access: &Access, operands: &[u8], found: &mut Vec<u8>) -> Answer {
        let Access { offset, bytes, kind, .. } = *access;
        if !self.place.rights.include(kind.rights()) {
            return Err(Denial::Rights);
        }
        self.place.address_of(offset, bytes.into()).ok_or(Denial::Bounds)?;
        let at = usize::try_from(offset - self.place.origin).map_err(|_| Denial::Bounds)?;
        let is_done = self.memory.apply(kind, at, bytes as usize, operands, found);
        is_done.then_some(()).ok_or(Denial::Bounds)
    }
}
