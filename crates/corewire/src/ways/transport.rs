//! Both ways as one transport: what the engine asks of a peer, the way of its row does.

use corewire_endpoint::transport::{
    Attention, Change, Helped, PeerViolation, Polling, Pulled, Room, SendError, Short, Transport,
};
use corewire_endpoint::{
    Arrival, Envelope, Exposed, Held, Kept, Part, Peer, Sink, Source, Space, Wanted,
};
use corewire_layout::counters::EndpointCounter;
use corewire_layout::rendezvous::Stretch;
use corewire_ring::pair::ExposedPlace;

use super::{Help, Pull, Ways};

/// What the way of a row does.
macro_rules! by_row {
    ($self:ident, $row:expr, $way:ident => $does:expr) => {
        if $row < $self.first {
            let $way = &mut $self.rings;
            $does
        } else {
            let $way = &mut $self.far_or_new().tcp;
            $does
        }
    };
}

impl Transport for Ways {
    #[inline(always)]
    fn has_notice(&self) -> bool {
        self.rings.has_notice() || self.far.as_ref().is_some_and(|far| far.tcp.has_notice())
    }

    fn take_notices(&mut self, changes: &mut Vec<Change>) -> Attention {
        let attention = self.rings.take_notices(changes);
        if attention != Attention::Forked {
            self.take_far_changes(changes);
        }
        attention
    }

    fn open(&mut self, row: u32, generation: u32) {
        by_row!(self, row, way => way.open(row, generation));
    }

    fn link(&mut self, row: u32) {
        if row < self.first {
            return self.rings.link(row);
        }
        if let Some(far) = &self.far {
            far.link(row, &*self.half);
        }
    }

    fn cut_off(&mut self, row: u32, violation: PeerViolation) {
        by_row!(self, row, way => way.cut_off(row, violation));
    }

    fn remove(&mut self, row: u32) {
        by_row!(self, row, way => way.remove(row));
        if let Some(far) = &mut self.far {
            far.forget(row);
        }
    }

    #[inline(always)]
    fn try_inject(&mut self, peer: Peer, envelope: &Envelope, message: &[u8]) -> bool {
        if peer.row() < self.first {
            return self.rings.try_inject(peer, envelope, message);
        }
        self.far.as_mut().is_some_and(|far| far.tcp.try_inject(peer, envelope, message))
    }

    fn try_send(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, SendError> {
        by_row!(self, row, way => way.try_send(row, envelope, source, sent))
    }

    #[inline(always)]
    fn gather(&mut self) {
        if let Some(far) = &mut self.far {
            far.tcp.gather();
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        if let Some(far) = &mut self.far {
            far.tcp.flush();
        }
    }

    fn has_unsent(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.tcp.has_unsent())
    }

    #[inline(always)]
    fn try_take(&mut self, polling: Polling, wanted: &Wanted, target: &mut [u8]) -> Short {
        if self.far.is_none() {
            return self.rings.try_take(polling, wanted, target);
        }
        self.take_of_any(polling, wanted, target)
    }

    #[inline(always)]
    fn try_take_whole<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        row: u32,
        find: impl FnOnce(Space, u64, u64, usize) -> Option<&'a mut S>,
    ) -> Short {
        if row < self.first { self.rings.try_take_whole(row, find) } else { Short::Other(row) }
    }

    #[inline(always)]
    fn try_take_matched<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        find: impl FnOnce(Space, u64, u64, usize) -> Option<&'a mut S>,
    ) -> Short {
        if self.far.is_none() {
            return self.rings.try_take_matched(find);
        }
        self.poll_any().map_or(Short::Nothing, Short::Other)
    }

    #[inline(always)]
    fn has_another(&mut self) -> bool {
        self.rings.has_another() || self.far.as_ref().is_some_and(|far| far.tcp.has_ready())
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<u32> {
        if self.far.is_none() { self.rings.poll() } else { self.poll_any() }
    }

    #[inline(always)]
    fn arrival(&mut self, row: u32) -> Result<Option<Arrival>, PeerViolation> {
        by_row!(self, row, way => way.arrival(row))
    }

    fn has_arrival(&mut self, row: u32) -> Result<bool, PeerViolation> {
        by_row!(self, row, way => way.has_arrival(row))
    }

    #[inline(always)]
    fn copy(&self, row: u32, arrival: &Arrival, at: usize, sink: &mut (impl Sink + ?Sized)) {
        if row < self.first {
            self.rings.copy(row, arrival, at, sink);
        } else if let Some(far) = &self.far {
            far.tcp.copy(row, arrival, at, sink);
        }
    }

    #[inline(always)]
    fn pass(&mut self, row: u32, arrival: &Arrival) {
        by_row!(self, row, way => way.pass(row, arrival));
    }

    fn hold(&mut self, row: u32) {
        by_row!(self, row, way => way.hold(row));
    }

    fn release(&mut self, row: u32) {
        by_row!(self, row, way => way.release(row));
    }

    fn look_at(&mut self, row: u32) {
        by_row!(self, row, way => way.look_at(row));
    }

    type Pull = Pull;
    type Help = Help;

    fn is_offered(&mut self, row: u32, envelope: &Envelope, bytes: u64) -> bool {
        by_row!(self, row, way => way.is_offered(row, envelope, bytes))
    }

    fn register(&mut self, row: u32, source: &impl Source, place: &mut Vec<u8>) -> Option<u64> {
        by_row!(self, row, way => way.register(row, source, place))
    }

    fn deregister(&mut self, row: u32, number: u64) {
        by_row!(self, row, way => way.deregister(row, number));
    }

    fn withdraw(&mut self, row: u32, number: u64) -> bool {
        by_row!(self, row, way => way.withdraw(row, number))
    }

    fn has_begun(&self, row: u32, number: u64) -> bool {
        match &self.far {
            Some(far) if self.is_far(row) => far.tcp.has_begun(row, number),
            _ => self.rings.has_begun(row, number),
        }
    }

    fn has_room_for_data(&mut self, row: u32, bytes: u64) -> bool {
        by_row!(self, row, way => way.has_room_for_data(row, bytes))
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
        if row < self.first {
            let pull = self.rings.start_pull(row, number, place, total, bytes, is_helped);
            return pull.map(Pull::Near);
        }
        let pull = self.far_or_new().tcp.start_pull(row, number, place, total, bytes, is_helped);
        pull.map(Pull::Far)
    }

    fn before_awaited_max(&self, row: u32, awaited: u64) -> Option<u64> {
        match &self.far {
            Some(far) if self.is_far(row) => far.tcp.before_awaited_max(row, awaited),
            _ => self.rings.before_awaited_max(row, awaited),
        }
    }

    fn begin_pull(&mut self, pull: &mut Pull) -> bool {
        match pull {
            Pull::Near(pull) => self.rings.begin_pull(pull),
            Pull::Far(pull) => self.far_or_new().tcp.begin_pull(pull),
        }
    }

    fn answer(
        &mut self,
        row: u32,
        pull: &mut Pull,
        target: &mut dyn Sink,
        place: &mut Vec<u8>,
    ) -> bool {
        match pull {
            Pull::Near(pull) => self.rings.answer(row, pull, target, place),
            Pull::Far(pull) => self.far_or_new().tcp.answer(row, pull, target, place),
        }
    }

    fn pull(&mut self, pull: &mut Pull, target: &mut dyn Sink) -> Pulled {
        match pull {
            Pull::Near(pull) => self.rings.pull(pull, target),
            Pull::Far(pull) => self.far_or_new().tcp.pull(pull, target),
        }
    }

    fn stop_pull(&mut self, pull: &mut Pull, target: &mut dyn Sink) -> u64 {
        match pull {
            Pull::Near(pull) => self.rings.stop_pull(pull, target),
            Pull::Far(pull) => self.far_or_new().tcp.stop_pull(pull, target),
        }
    }

    fn close_pull(&mut self, pull: &mut Pull) -> bool {
        match pull {
            Pull::Near(pull) => self.rings.close_pull(pull),
            Pull::Far(pull) => self.far_or_new().tcp.close_pull(pull),
        }
    }

    fn start_help(
        &mut self,
        row: u32,
        number: u64,
        source: &[Stretch],
        place: &[u8],
        bytes: u64,
    ) -> Option<Help> {
        if row < self.first {
            return self.rings.start_help(row, number, source, place, bytes).map(Help::Near);
        }
        self.far_or_new().tcp.start_help(row, number, source, place, bytes).map(Help::Far)
    }

    fn help(&mut self, row: u32, help: &mut Help) -> Helped {
        match help {
            Help::Near(help) => self.rings.help(row, help),
            Help::Far(help) => self.far_or_new().tcp.help(row, help),
        }
    }

    fn is_readable(&self, stretches: &[Stretch]) -> bool {
        self.rings.is_readable(stretches)
    }

    fn is_writable(&self, stretch: Stretch) -> bool {
        self.rings.is_writable(stretch)
    }

    fn count_sent(&mut self, row: u32, bytes: u64) {
        by_row!(self, row, way => way.count_sent(row, bytes));
    }

    fn count_received(&mut self, row: u32, bytes: u64) {
        by_row!(self, row, way => way.count_received(row, bytes));
    }

    fn set_grant(&mut self, row: u32, limit: u64, refuses: bool) {
        by_row!(self, row, way => way.set_grant(row, limit, refuses));
    }

    fn spent(&mut self, row: u32) -> u64 {
        by_row!(self, row, way => way.spent(row))
    }

    fn take_shortage(&mut self, row: u32) -> Option<u64> {
        by_row!(self, row, way => way.take_shortage(row))
    }

    fn start_granting(&mut self, row: u32) -> bool {
        by_row!(self, row, way => way.start_granting(row))
    }

    #[inline]
    fn keep(&mut self, row: u32, arrival: &Arrival) -> Option<Held> {
        by_row!(self, row, way => way.keep(row, arrival))
    }

    #[inline]
    fn try_keep(&mut self, row: u32, wanted: &Wanted) -> Option<(Short, Held)> {
        by_row!(self, row, way => way.try_keep(row, wanted))
    }

    fn expose(
        &mut self,
        key: Option<u64>,
        place: &ExposedPlace,
        memory: &Exposed,
    ) -> Option<(u16, u64)> {
        self.rings.expose(key, place, memory)
    }

    fn conceal(&mut self, entry: u16) {
        self.rings.conceal(entry);
    }

    fn can_copy(&self, row: u32, is_put: bool) -> bool {
        row < self.first && self.rings.can_copy(row, is_put)
    }

    fn take_back(&mut self, row: u32, first: u64, last: u64) -> bool {
        by_row!(self, row, way => Transport::take_back(way, row, first, last))
    }

    fn serve(&mut self, row: u32, number: u64) -> bool {
        by_row!(self, row, way => way.serve(row, number))
    }

    fn finish(&mut self, row: u32, number: u64) -> bool {
        by_row!(self, row, way => way.finish(row, number))
    }

    fn last_done(&self, row: u32) -> u64 {
        match &self.far {
            Some(far) if self.is_far(row) => far.tcp.last_done(row),
            _ => self.rings.last_done(row),
        }
    }

    fn is_announced(&self) -> bool {
        self.rings.is_announced()
    }

    fn copy_to(&mut self, row: u32, parts: &[Part], source: &impl Source) -> bool {
        by_row!(self, row, way => way.copy_to(row, parts, source))
    }

    fn copy_from(&mut self, row: u32, parts: &[Part], target: &mut dyn Sink) -> bool {
        by_row!(self, row, way => way.copy_from(row, parts, target))
    }

    fn is_here(&self, row: u32) -> bool {
        row < self.first && self.rings.is_here(row)
    }

    fn last_found(&self) -> u32 {
        match &self.far {
            Some(far) if far.was_last() => far.tcp.last_found(),
            _ => self.rings.last_found(),
        }
    }

    fn sleep(&mut self, limit_ns: u64, wanted: &[Room]) {
        let Some(far) = self.far.as_mut().filter(|far| far.tcp.has_peers()) else {
            return self.rings.sleep(limit_ns, wanted);
        };
        let (near_rooms, far_rooms) = rooms_of(wanted, self.first);
        // Peers of this machine ring the bell, which lies among the sockets.
        self.near.bell().silence();
        if self.rings.arm(&near_rooms) && far.tcp.may_sleep(&far_rooms) {
            far.tcp.rest(limit_ns.min(self.cap_ns));
        }
        self.rings.retract();
        far.look_now();
    }

    fn arm(&mut self, wanted: &[Room]) -> bool {
        let Some(far) = &mut self.far else { return self.rings.arm(wanted) };
        let (near_rooms, far_rooms) = rooms_of(wanted, self.first);
        if !self.rings.arm(&near_rooms) {
            return false;
        }
        far.look_now();
        let is_armed = far.tcp.arm(&far_rooms);
        if !is_armed {
            self.rings.retract();
        }
        is_armed
    }

    fn count(&self, counter: EndpointCounter) {
        self.rings.count(counter);
    }

    fn show_kept(&self, row: u32, kept: Kept) {
        if row < self.first {
            self.rings.show_kept(row, kept);
        }
    }
}

/// The rooms of each way.
fn rooms_of(wanted: &[Room], first: u32) -> (Vec<Room>, Vec<Room>) {
    wanted.iter().partition(|room| room.row < first)
}
