//! The ways between one endpoint and its peers: rings to those on this machine, connections to those on other hosts.
//!
//! A peer has one way for life, which its row tells: rows of the rings come first, those of connections behind. So the order
//! of the messages of one peer is that of its way.
//!
//! | file | holds |
//! |---|---|
//! | this one | both ways, and peers that come and go |
//! | [`transport`] | both ways as one transport |
//! | [`far`] | when connections are looked at |
//!
//! # Cost
//!
//! Without connections one branch more per call than the rings alone. With connections the rings are polled first:
//! a look at the sockets is a system call.
//!
//! Sources: Buntinas and others, "Design and Evaluation of Nemesis", 2.2 (several networks behind one queue).

mod far;
mod transport;

use std::fmt;
use std::sync::Arc;

use corewire_endpoint::transport::{Change, Polling, Short, Transport};
use corewire_endpoint::{Envelope, Wanted};
use corewire_layout::counters::EndpointCounter;
use corewire_layout::name::ChannelName;
use corewire_net::open::Target;
use corewire_net::tcp::Tcp;
use corewire_ring::pair::{Lending, LentBlock};

use self::far::Far;
use crate::halves::{EndpointHalf, FarHalf};
use crate::rings::{PairRings, Returned};

/// Rings and connections.
pub(crate) struct Ways {
    rings: PairRings,
    /// `None` until there is a connection.
    far: Option<Box<Far>>,
    /// The first row of a connection.
    first: u32,
    half: Arc<dyn FarHalf>,
    near: Arc<dyn EndpointHalf>,
    cap_ns: u64,
}

/// A large message that is being read.
pub(crate) enum Pull {
    Near(<PairRings as Transport>::Pull),
    Far(<Tcp as Transport>::Pull),
}

/// A large message that is being copied to its receiver.
pub(crate) enum Help {
    Near(<PairRings as Transport>::Help),
    Far(<Tcp as Transport>::Help),
}

impl Ways {
    /// The rings, which have the rows before `first`, and connections. A sleep of an endpoint with connections ends after
    /// `cap_ns` at the latest.
    pub(crate) fn new(
        rings: PairRings,
        near: Arc<dyn EndpointHalf>,
        half: Arc<dyn FarHalf>,
        first: u32,
        cap_ns: u64,
    ) -> Self {
        Self { rings, far: None, first, half, near, cap_ns }
    }

    fn far_or_new(&mut self) -> &mut Far {
        let Self { far, half, first, .. } = self;
        far.get_or_insert_with(|| Box::new(Far::new(Tcp::new(Arc::clone(half.set()), *first))))
    }

    /// The row of the connection with this number; `None` if it has ended.
    pub(crate) fn row_of(&self, number: u64) -> Option<u32> {
        self.far.as_ref()?.tcp.row_of(number)
    }

    /// The row of an endpoint of another host that may not be connected yet.
    pub(crate) fn reserve(
        &mut self,
        target: Target,
        name: &ChannelName,
        incarnation: Option<u128>,
    ) -> std::io::Result<u32> {
        let far = self.far_or_new();
        let row = far.tcp.reserve(name, incarnation)?;
        far.name(row, target, incarnation);
        Ok(row)
    }

    /// Says to all peers on other hosts that this endpoint closes, and waits until their kernels have all that was sent.
    pub(crate) fn settle_far(&mut self) {
        if let Some(far) = &mut self.far {
            let mut closing = far.tcp.close();
            closing.settle();
            closing.finish_apart();
        }
    }

    /// Whether a peer is on another host.
    pub(crate) fn is_far(&self, row: u32) -> bool {
        row >= self.first
    }

    // What only rings have.

    pub(crate) fn counter(&self, counter: EndpointCounter) -> u64 {
        self.rings.counter(counter)
    }

    pub(crate) fn lend(&mut self, row: u32, bytes: usize) -> Lending<LentBlock> {
        if self.is_far(row) { Lending::Impossible } else { self.rings.lend(row, bytes) }
    }

    pub(crate) fn show_waiting_loan(&mut self, row: u32, bytes: u64) {
        if !self.is_far(row) {
            self.rings.show_waiting_loan(row, bytes);
        }
    }

    pub(crate) fn take_back(&mut self, lent: &LentBlock) {
        self.rings.take_back(lent);
    }

    pub(crate) fn returned(&self) -> &Arc<Returned> {
        self.rings.returned()
    }

    pub(crate) fn refuses(&mut self, row: u32, envelope: &Envelope, bytes: u64) -> bool {
        !self.is_far(row) && self.rings.refuses(row, envelope, bytes)
    }

    pub(crate) fn must_look_for_grants(&mut self) -> bool {
        self.rings.must_look_for_grants()
    }

    // Connections that come and go.

    /// Takes in what the control half has found out about other hosts.
    #[cold]
    fn take_far_changes(&mut self, changes: &mut Vec<Change>) {
        let half = Arc::clone(&self.half);
        for change in half.changes() {
            self.far_or_new().take(change, &*half);
        }
        let Some(far) = &mut self.far else { return };
        let before = changes.len();
        far.tcp.publish();
        far.tcp.take_notices(changes);
        for change in &changes[before..] {
            if let Change::Gone { row, .. } = change {
                half.ended(far.tcp.number_of(*row));
            }
        }
    }

    /// Takes a message of whichever way has one.
    #[cold]
    #[inline(never)]
    fn take_of_any(&mut self, polling: Polling, wanted: &Wanted, target: &mut [u8]) -> Short {
        let Self { rings, far: Some(far), .. } = self else { return Short::Nothing };
        if let Some(short) = far.take_next(wanted, target) {
            return short;
        }
        if far.is_first()
            && let found @ (Short::Taken { .. } | Short::Other(_)) =
                far.try_take(polling, wanted, target)
        {
            return found;
        }
        match rings.try_take(polling, wanted, target) {
            Short::Nothing if far.is_due() => far.try_take(polling, wanted, target),
            Short::Nothing => Short::Nothing,
            found => {
                far.note_near();
                found
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn poll_any(&mut self) -> Option<u32> {
        let Self { rings, far: Some(far), .. } = self else { return None };
        if far.is_first()
            && let Some(row) = far.poll()
        {
            return Some(row);
        }
        match rings.poll() {
            Some(row) => {
                far.note_near();
                Some(row)
            }
            None if far.is_due() => far.poll(),
            None => None,
        }
    }
}

impl fmt::Debug for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ways").finish_non_exhaustive()
    }
}

/// Leaves the connections. The rings are dropped after that, and close the endpoint.
impl Drop for Ways {
    fn drop(&mut self) {
        self.far = None;
    }
}
