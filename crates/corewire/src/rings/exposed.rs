//! Memory that this endpoint exposes, and the kernel's copies to and from that of peers.
//!
//! Memory that was concealed, and into which a peer may still copy, stays until that copy is over or the peer's process
//! has ended. If the endpoint is closed before, it is never freed: nobody would look after it.

use corewire_endpoint::{Exposed, Part, Sink, Source};
use corewire_layout::rendezvous::Stretch;
use corewire_ring::pair::{ExposedPlace, Visit};
use corewire_transfer::Refusal;

use super::concealed::{Concealed, is_under_way};
use super::{PairRings, Rendezvous};

impl PairRings {
    pub(super) fn expose_memory(
        &mut self,
        key: Option<u64>,
        place: &ExposedPlace,
        memory: &Exposed,
    ) -> Option<(u16, u64)> {
        // No peer writes to it otherwise.
        if self.rendezvous != Rendezvous::BothSides {
            return None;
        }
        self.scan_concealed();
        self.pairs.set_cookie(self.cookie.as_ptr().expose_provenance() as u64);
        let (entry, key) = self.pairs.expose(key, place)?;
        self.exposures.exposed.push((entry, memory.clone()));
        Some((entry, key))
    }

    pub(super) fn conceal_memory(&mut self, entry: u16) {
        let exposed = &mut self.exposures.exposed;
        let Some(index) = exposed.iter().position(|(other, _)| *other == entry) else { return };
        let (_, memory) = exposed.swap_remove(index);
        let visits = self.pairs.conceal(entry).into_iter();
        let visits = visits.map(|(row, visited)| (visited, self.remote(row).cloned()));
        let early = self.control.early_visits();
        let left = self.exposures.left.iter().cloned();
        let visits = visits.chain(early).chain(left).collect();
        self.exposures.concealed.push(Concealed { entry, memory, visits });
        self.scan_concealed();
    }

    /// The peer of `row` is about to be removed. It may be on a visit all the same.
    pub(super) fn dismiss(&mut self, row: u32) {
        let remote = self.remote(row).cloned();
        let visited = self.pairs.dismiss(row).map(|visited| (visited, remote));
        self.exposures.left.extend(visited.filter(is_under_way));
    }

    fn scan_concealed(&mut self) {
        self.exposures.left.retain(is_under_way);
        let over: Vec<_> = self.exposures.concealed.extract_if(.., Concealed::is_over).collect();
        over.iter().for_each(|concealed| self.pairs.give_exposure_back(concealed.entry));
    }

    /// The endpoint is closed: what is being copied stays for ever.
    pub(super) fn conceal_all(&mut self) {
        while let Some(&(entry, _)) = self.exposures.exposed.first() {
            self.conceal_memory(entry);
        }
        std::mem::take(&mut self.exposures.concealed)
            .into_iter()
            .for_each(|concealed| std::mem::forget(concealed.memory));
    }

    /// Begins a visit to the memory of the peer of `row`. `None` if this endpoint cannot copy there.
    fn visit(&mut self, row: u32) -> Option<Visit> {
        let index = row as usize;
        self.remotes.get(index)?.as_ref()?;
        if self.exposures.hints.len() <= index {
            self.exposures.hints.resize(index + 1, 0);
        }
        self.pairs.visit(row)
    }

    /// Where these parts lie. `None` if the peer must be asked: also for why one of them cannot be accessed.
    fn stretches_of(
        &mut self,
        row: u32,
        visit: &Visit,
        parts: &[Part],
        may: impl Fn(&ExposedPlace) -> bool,
    ) -> Option<Vec<Stretch>> {
        let hint = self.exposures.hints.get_mut(row as usize)?;
        let stretch = |part: &Part| {
            let place = visit.find(part.key, hint).filter(&may)?;
            let address = place.address_of(part.offset, part.bytes)?;
            Some(Stretch { address, bytes: part.bytes })
        };
        parts.iter().map(stretch).collect()
    }

    /// Whether a copy was made; if not, what that says of this peer.
    fn is_copied(&mut self, row: u32, result: Result<(), Refusal>, is_write: bool) -> bool {
        let Err(why) = result else { return true };
        self.show_refusal(why);
        let known = if is_write { &mut self.helps } else { &mut self.reads };
        if why.is_final()
            && let Some(known) = known.get_mut(row as usize)
        {
            *known = false;
        }
        false
    }

    /// Whether copies to the memory of the peer of `row`, or from it, are possible, as far as is known.
    pub(super) fn can_copy_with(&self, row: u32, is_put: bool) -> bool {
        let Some(remote) = self.remote(row) else { return false };
        let known = if is_put { &self.helps } else { &self.reads };
        let is_allowed = !is_put || (self.rendezvous == Rendezvous::BothSides && !remote.is_here());
        is_allowed && known.get(row as usize).is_some_and(|it| *it)
    }

    pub(super) fn copy_to_peer(&mut self, row: u32, parts: &[Part], source: &impl Source) -> bool {
        if !self.can_copy_with(row, true) {
            return false;
        }
        let Some(visit) = self.visit(row) else { return false };
        let may = |place: &ExposedPlace| place.rights.can_write();
        let Some(target) = self.stretches_of(row, &visit, parts, may) else { return false };
        let Some(remote) = self.remote(row) else { return false };
        let copied = remote.write_whole(visit.cookie(), source, &target);
        let is_copied = self.is_copied(row, copied, true);
        if is_copied {
            self.pairs.count_sent_beside(row, source.bytes());
        }
        is_copied
    }

    pub(super) fn copy_from_peer(
        &mut self,
        row: u32,
        parts: &[Part],
        target: &mut dyn Sink,
    ) -> bool {
        if !self.can_copy_with(row, false) {
            return false;
        }
        let Some(visit) = self.visit(row) else { return false };
        let may = |place: &ExposedPlace| place.rights.include(corewire_endpoint::Rights::READ);
        let Some(source) = self.stretches_of(row, &visit, parts, may) else { return false };
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let landing = target.landing();
        let Some(remote) = self.remote(row) else { return false };
        let copied = remote.read_whole(visit.cookie(), &source, landing, bytes);
        let is_copied = self.is_copied(row, copied, false);
        if is_copied {
            self.pairs.count_received_beside(row, bytes);
        }
        is_copied
    }
}
