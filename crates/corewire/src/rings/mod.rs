//! The pair rings as the transport of an endpoint's engine: `path/endpoint` calls the engine, which calls this.
//!
//! | file | holds |
//! |---|---|
//! | this one | the transport, and the peers that the control thread links |
//! | [`sending`] | the ways of a message into slots and cells |
//! | [`long`] | how messages move that do not fit in slots |
//! | [`pipe`] | which memory long messages go through |
//! | [`grants`] | what peers grant of room for messages that stay in the heap |
//! | [`exposed`], [`concealed`] | memory that peers copy to and from by themselves |
//! | [`blocks`] | messages that stay in the heap while their receivers read them |

mod blocks;
mod concealed;
mod exposed;
mod grants;
mod long;
mod pipe;
mod sending;

use std::fmt;
use std::sync::Arc;

use corewire_endpoint::transport::{
    Attention, Change, Helped, PeerViolation, Polling, Pulled, Room, SendError, Short, Transport,
};
use corewire_endpoint::{
    Arrival, Envelope, Exposed, Held, Kept, Part, Peer, Sink, Source, Space, Wanted,
};
use corewire_layout::counters::{EndpointCounter, PeerCounter};
use corewire_layout::grants::RELEASES_BYTES;
use corewire_layout::rendezvous::{MemoryPlace, STRETCHES_MAX, Stretch};
use corewire_ring::pair::{ExposedPlace, Granted, Lending};
use corewire_transfer::thresholds::Thresholds;
use corewire_transfer::{Help, HelpStep, Pull, PullStep, Refusal, Remote, chunks_of};

pub(crate) use self::blocks::Returned;
use self::concealed::Exposures;
use self::grants::{Grant, PeerGrants, has_room};
pub(crate) use self::long::LongMessages;
pub use self::long::Rendezvous;
use self::pipe::Pipe;
use crate::halves::{EndpointHalf, PeerChange, notice};
use crate::host::PairRing as Pairs;

/// The rings between one endpoint and all its peers on this machine.
pub(crate) struct PairRings {
    pairs: Pairs,
    control: Arc<dyn EndpointHalf>,
    pipe: Pipe,
    rendezvous: Rendezvous,
    thresholds: Thresholds,
    /// This endpoint's incarnation: a process that reads it here has reached this process.
    cookie: Box<[u8; 16]>,
    /// The peers' memory, by row.
    remotes: Vec<Option<Remote>>,
    /// Whether this endpoint may write to a peer's memory, as far as is known, by row.
    helps: Vec<bool>,
    /// The same for reading it.
    reads: Vec<bool>,
    exposures: Exposures,
    /// Number of rings whose memory is allocated.
    rings_there: u64,
    has_cells: bool,
    grants: PeerGrants,
    /// What removed peers still read of this endpoint's heap.
    departed: Vec<(Granted, Option<Remote>)>,
    /// Loans that were dropped unsent.
    returned: Arc<Returned>,
    /// Messages in cells since the last look for a grant.
    in_cells: u32,
}

impl PairRings {
    pub(crate) fn new(pairs: Pairs, control: Arc<dyn EndpointHalf>, long: LongMessages) -> Self {
        let LongMessages { rendezvous, thresholds } = long;
        let cookie = Box::new(control.incarnation().to_le_bytes());
        let (pipe, remotes) = (Pipe::new(), Vec::new());
        let returned = Arc::new(Returned::new(Arc::clone(&control)));
        Self {
            pairs,
            control,
            pipe,
            rendezvous,
            thresholds,
            cookie,
            remotes,
            helps: Vec::new(),
            reads: Vec::new(),
            exposures: Exposures::default(),
            rings_there: 0,
            has_cells: false,
            grants: PeerGrants::new(thresholds.in_place_up_to),
            departed: Vec::new(),
            returned,
            in_cells: 0,
        }
    }

    /// Shows observers why this endpoint cannot copy from a peer's memory, or to it, and will not be able to.
    fn show_refusal(&self, why: Refusal) {
        if why.is_lasting() {
            self.pairs.show_refusal(why.code());
        }
    }

    fn remote(&self, row: u32) -> Option<&Remote> {
        self.remotes.get(row as usize)?.as_ref()
    }

    /// These stretches of this process's memory, for another process.
    fn place_of(&self, stretches: Vec<Stretch>) -> MemoryPlace {
        let cookie = self.cookie.as_ptr().expose_provenance() as u64;
        MemoryPlace { cookie, stretches }
    }

    /// Takes in a peer that has come, or notes that one has gone.
    fn take_change(&mut self, change: PeerChange) -> Option<Change> {
        match change {
            PeerChange::Came { row, name, incarnation, parts, remote } => {
                if !self.pairs.add_peer(row, *parts) {
                    // Control gives a row to one peer at a time.
                    debug_assert!(false, "row {row} has a peer");
                    return None;
                }
                let index = row as usize;
                if self.remotes.len() <= index {
                    self.remotes.resize(index + 1, None);
                    self.helps.resize(index + 1, true);
                    self.reads.resize(index + 1, true);
                }
                (self.helps[index], self.reads[index]) = (true, true);
                self.remotes[index] = Some(remote);
                Some(Change::Came { row, name, incarnation })
            }
            PeerChange::Gone { row, how, is_closed } => {
                if let Some(grant) = self.grants.get_mut(row) {
                    grant.has_left = is_closed;
                }
                Some(Change::Gone { row, how })
            }
        }
    }

    /// Waits for the descriptor no more.
    #[cfg(feature = "net")]
    pub(crate) fn retract(&mut self) {
        self.pairs.retract();
    }

    /// Reads one of the endpoint's counters.
    pub(crate) fn counter(&self, counter: EndpointCounter) -> u64 {
        self.pairs.counter(counter)
    }
}

/// Closes the endpoint.
impl Drop for PairRings {
    fn drop(&mut self) {
        if !self.control.is_forked() {
            self.pairs.end_offers();
            self.conceal_all();
            self.pairs.retract();
            self.pairs.publish_cursors();
            self.control.close();
        }
    }
}

impl fmt::Debug for PairRings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairRings").finish_non_exhaustive()
    }
}

impl Transport for PairRings {
    #[inline(always)]
    fn has_notice(&self) -> bool {
        self.pairs.has_notice()
    }

    fn take_notices(&mut self, changes: &mut Vec<Change>) -> Attention {
        let shared = Arc::clone(self.pairs.shared());
        let attention = shared.notices();
        if attention & notice::FORKED != 0 {
            return Attention::Forked;
        }
        let links = self.control.changes().into_iter();
        changes.extend(links.filter_map(|link| self.take_change(link)));
        if attention & notice::DROPPED != 0 {
            let dropped = self.control.dropped().into_iter();
            changes.extend(dropped.map(|(peer, number)| Change::Dropped { peer, number }));
        }
        if attention & notice::RETURNED != 0 {
            shared.clear(notice::RETURNED);
            self.take_returned();
        }
        if attention & notice::OBSERVED != 0 {
            shared.clear(notice::OBSERVED);
            self.pairs.publish_traffic();
        }
        if attention & notice::INTERRUPTED != 0 {
            shared.clear(notice::INTERRUPTED);
            return Attention::Interrupted;
        }
        Attention::None
    }

    fn open(&mut self, row: u32, generation: u32) {
        self.pairs.open(row, generation);
    }

    fn link(&mut self, row: u32) {
        self.control.link(row);
    }

    fn cut_off(&mut self, row: u32, violation: PeerViolation) {
        self.control.cut_off(row, violation);
    }

    fn remove(&mut self, row: u32) {
        self.dismiss(row);
        let remote = self.remotes.get_mut(row as usize).and_then(Option::take);
        let has_left = self.grants.of(row).has_left;
        if let Some(granted) = self.pairs.take_granted(row, has_left) {
            self.departed.push((granted, remote));
            self.scan_departed();
        }
        if let Some(grant) = self.grants.get_mut(row) {
            *grant = Grant::default();
        }
        self.pairs.remove_peer(row);
        self.control.free_row(row);
    }

    #[inline(always)]
    fn try_inject(&mut self, peer: Peer, envelope: &Envelope, message: &[u8]) -> bool {
        if !self.pairs.is_open(peer.bits()) {
            return false;
        }
        let row = peer.row();
        if message.len() > envelope.inline_bytes_max() {
            return self.try_inject_in_cell(row, *envelope, message);
        }
        self.pairs.try_send(row, envelope, message)
    }

    fn try_send(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, SendError> {
        self.send_on(row, envelope, source, sent)
    }

    #[inline(always)]
    fn try_take(&mut self, polling: Polling, wanted: &Wanted, target: &mut [u8]) -> Short {
        self.pairs.take_inline(polling, wanted, target)
    }

    #[inline(always)]
    fn try_take_whole<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        row: u32,
        find: impl FnOnce(Space, u64, u64, usize) -> Option<&'a mut S>,
    ) -> Short {
        self.pairs.take_whole(row, find)
    }

    #[inline(always)]
    fn try_take_matched<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        find: impl FnOnce(Space, u64, u64, usize) -> Option<&'a mut S>,
    ) -> Short {
        self.pairs.take_matched(find)
    }

    #[inline(always)]
    fn has_another(&mut self) -> bool {
        self.pairs.has_another()
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<u32> {
        self.pairs.poll()
    }

    #[inline(always)]
    fn arrival(&mut self, row: u32) -> Result<Option<Arrival>, PeerViolation> {
        self.pairs.arrival(row).map_err(PeerViolation::from)
    }

    fn has_arrival(&mut self, row: u32) -> Result<bool, PeerViolation> {
        self.pairs.has_arrival(row).map_err(PeerViolation::from)
    }

    #[inline(always)]
    fn copy(&self, row: u32, arrival: &Arrival, at: usize, sink: &mut (impl Sink + ?Sized)) {
        self.pairs.copy(row, arrival, at, sink);
    }

    #[inline(always)]
    fn pass(&mut self, row: u32, arrival: &Arrival) {
        self.pairs.pass(row, arrival);
    }

    fn hold(&mut self, row: u32) {
        self.pairs.hold(row);
    }

    fn release(&mut self, row: u32) {
        self.pairs.release(row);
    }

    fn look_at(&mut self, row: u32) {
        self.pairs.enqueue(row);
    }

    type Pull = Pull;
    type Help = Help;

    fn is_offered(&mut self, row: u32, envelope: &Envelope, bytes: u64) -> bool {
        if self.rendezvous == Rendezvous::Cells || bytes <= self.thresholds.offered_if_scarce_above
        {
            return false;
        }
        if self.grants.goes_in_place(row, envelope, bytes) {
            match self.pairs.lending(row, bytes) {
                Lending::Done(()) => return false,
                Lending::Spent if self.grants.of(row).refuses => return false,
                // A larger grant may make it possible.
                Lending::Spent | Lending::Impossible => self.note_shortage(row, bytes),
            }
        }
        bytes > self.thresholds.offered_above || !self.pairs.has_cells_for(row, bytes)
    }

    fn register(&mut self, row: u32, source: &impl Source, place: &mut Vec<u8>) -> Option<u64> {
        let mut stretches = Vec::new();
        source.stretches(&mut |stretch| stretches.push(stretch));
        if stretches.len() > STRETCHES_MAX {
            return None;
        }
        let number = self.pairs.make_offer(row)?;
        self.place_of(stretches).append_to(place);
        Some(number)
    }

    fn deregister(&mut self, _row: u32, number: u64) {
        self.pairs.end_offer(number);
    }

    fn withdraw(&mut self, row: u32, number: u64) -> bool {
        self.pairs.withdraw_offer(row, number)
    }

    fn has_begun(&self, row: u32, number: u64) -> bool {
        self.pairs.has_begun(row, number)
    }

    fn has_room_for_data(&mut self, row: u32, bytes: u64) -> bool {
        self.pairs.has_cells_for(row, bytes)
    }

    fn start_pull(
        &mut self,
        row: u32,
        number: u64,
        place: &[u8],
        total: u64,
        bytes: u64,
        is_helped: bool,
    ) -> Result<Pull, PeerViolation> {
        let bad = |word, found| PeerViolation { word, found, position: 0 };
        let place = MemoryPlace::parse(place, total).ok_or(bad("place", total))?;
        let puller = self.pairs.puller(row, number, chunks_of(bytes));
        let puller = puller.ok_or(bad("offer", number))?;
        let remote = self.remote(row).ok_or(bad("row", row.into()))?.clone();
        let is_helped = is_helped
            && self.rendezvous == Rendezvous::BothSides
            && bytes >= self.thresholds.both_from
            && !remote.is_here();
        Ok(Pull::new(puller, remote, place, bytes, is_helped))
    }

    fn begin_pull(&mut self, pull: &mut Pull) -> bool {
        pull.begin()
    }

    fn answer(
        &mut self,
        _row: u32,
        pull: &mut Pull,
        target: &mut dyn Sink,
        place: &mut Vec<u8>,
    ) -> bool {
        let stretches = target.landing().stretches(pull.bytes());
        let is_invited = stretches.len() <= STRETCHES_MAX && pull.invite();
        if is_invited {
            self.place_of(stretches).append_to(place);
        }
        is_invited
    }

    fn pull(&mut self, pull: &mut Pull, target: &mut dyn Sink) -> Pulled {
        match pull.step(target) {
            PullStep::More => Pulled::More,
            PullStep::Busy => Pulled::Busy,
            PullStep::Done => Pulled::Done,
            PullStep::Void => Pulled::Void,
            PullStep::Refused { bytes, why } => {
                self.show_refusal(why);
                Pulled::Refused { bytes, is_final: why.is_final() }
            }
        }
    }

    fn stop_pull(&mut self, pull: &mut Pull, target: &mut dyn Sink) -> u64 {
        pull.stop(target)
    }

    fn close_pull(&mut self, pull: &mut Pull) -> bool {
        pull.close()
    }

    fn start_help(
        &mut self,
        row: u32,
        number: u64,
        source: &[Stretch],
        place: &[u8],
        bytes: u64,
    ) -> Option<Help> {
        let remote = self.remote(row)?.clone();
        if !self.helps[row as usize] || remote.is_here() || self.rendezvous != Rendezvous::BothSides
        {
            return None;
        }
        let target = MemoryPlace::parse(place, bytes)?;
        let helper = self.pairs.helper(row, number, chunks_of(bytes))?;
        Some(Help::new(helper, remote, source.to_vec(), target, bytes))
    }

    fn help(&mut self, row: u32, help: &mut Help) -> Helped {
        match help.step() {
            HelpStep::More => Helped::More,
            HelpStep::Over => Helped::Over,
            HelpStep::Refused(why) => {
                self.show_refusal(why);
                if why.is_final()
                    && let Some(helps) = self.helps.get_mut(row as usize)
                {
                    *helps = false;
                }
                Helped::Over
            }
        }
    }

    fn is_readable(&self, stretches: &[Stretch]) -> bool {
        corewire_transfer::is_readable(stretches)
    }

    fn is_writable(&self, stretch: Stretch) -> bool {
        corewire_transfer::is_writable(stretch)
    }

    fn count_sent(&mut self, row: u32, bytes: u64) {
        self.pairs.count_sent_beside(row, bytes);
    }

    fn count_received(&mut self, row: u32, bytes: u64) {
        self.pairs.count_received_beside(row, bytes);
    }

    fn set_grant(&mut self, row: u32, limit: u64, refuses: bool) {
        // The row's release bits may be those of an endpoint that was here before: what it has released is taken
        // back before the bits change again.
        self.scan_departed();
        self.grants.set(row, Grant { is_there: true, refuses, ..Grant::default() });
        self.pairs.set_grant(row, limit);
    }

    fn spent(&mut self, row: u32) -> u64 {
        self.take_returned();
        self.pairs.spent(row)
    }

    fn take_shortage(&mut self, row: u32) -> Option<u64> {
        self.grants.get_mut(row)?.shortage.take()
    }

    fn start_granting(&mut self, row: u32) -> bool {
        if self.pairs.has_held(row) {
            return false;
        }
        let sizes = self.pairs.sizes();
        let (offset, bytes) = (sizes.releases_offset(row), RELEASES_BYTES as u64);
        self.control.allocate(offset, bytes).is_ok() && self.pairs.start_granting(row)
    }

    #[inline]
    fn keep(&mut self, row: u32, arrival: &Arrival) -> Option<Held> {
        self.pairs.take_block(row, arrival)
    }

    #[inline]
    fn try_keep(&mut self, row: u32, wanted: &Wanted) -> Option<(Short, Held)> {
        self.pairs.take_held(row, wanted)
    }

    fn expose(
        &mut self,
        key: Option<u64>,
        place: &ExposedPlace,
        memory: &Exposed,
    ) -> Option<(u16, u64)> {
        self.expose_memory(key, place, memory)
    }

    fn conceal(&mut self, entry: u16) {
        self.conceal_memory(entry);
    }

    fn can_copy(&self, row: u32, is_put: bool) -> bool {
        self.can_copy_with(row, is_put)
    }

    fn take_back(&mut self, row: u32, first: u64, last: u64) -> bool {
        self.pairs.take_back(row, first, last)
    }

    fn serve(&mut self, row: u32, number: u64) -> bool {
        self.pairs.serve(row, number)
    }

    fn finish(&mut self, row: u32, number: u64) -> bool {
        self.pairs.finish(row, number)
    }

    fn last_done(&self, row: u32) -> u64 {
        self.pairs.last_done(row)
    }

    fn is_announced(&self) -> bool {
        self.pairs.is_announced()
    }

    fn copy_to(&mut self, row: u32, parts: &[Part], source: &impl Source) -> bool {
        self.copy_to_peer(row, parts, source)
    }

    fn copy_from(&mut self, row: u32, parts: &[Part], target: &mut dyn Sink) -> bool {
        self.copy_from_peer(row, parts, target)
    }

    fn is_here(&self, row: u32) -> bool {
        self.pairs.is_here(row)
    }

    fn last_found(&self) -> u32 {
        self.pairs.last_found()
    }

    fn sleep(&mut self, limit_ns: u64, wanted: &[Room]) {
        let grants = &self.grants;
        let mut is_room =
            |pairs: &mut Pairs| wanted.iter().any(|&room| has_room(pairs, grants, room));
        let has_room: Option<&mut dyn FnMut(&mut Pairs) -> bool> =
            if wanted.is_empty() { None } else { Some(&mut is_room) };
        self.pairs.sleep(limit_ns, has_room);
    }

    fn arm(&mut self, wanted: &[Room]) -> bool {
        let grants = &self.grants;
        let mut is_room =
            |pairs: &mut Pairs| wanted.iter().any(|&room| has_room(pairs, grants, room));
        let has_room: Option<&mut dyn FnMut(&mut Pairs) -> bool> =
            if wanted.is_empty() { None } else { Some(&mut is_room) };
        self.pairs.arm(has_room)
    }

    fn count(&self, counter: EndpointCounter) {
        self.pairs.count(counter);
    }

    fn show_kept(&self, row: u32, kept: Kept) {
        self.pairs.set_peer_counter(row, PeerCounter::KeptMessages, kept.messages);
        self.pairs.set_peer_counter(row, PeerCounter::KeptBytes, kept.bytes);
    }
}
