//! What mechanisms need of the pair of rings between two processes: cells, the numbers of offers, and the words of
//! claims.
//!
//! An endpoint has a pair with each of its peers. [`PairLink`] is a pair without the rest of an endpoint.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use corewire_layout::endpoint::{ACTIVITY_BYTES, EndpointSizeError, EndpointSizes};
use corewire_layout::pair::PAIR_INLINE_BYTES_MAX;
use corewire_layout::segment::FenceMode;
use corewire_os::OsError;
use corewire_os::sleep::Linux;
use corewire_ring::message::{Arrival, Envelope, Fragment, Sink, Source};
use corewire_ring::pair::{
    Activity, Endpoint, EndpointMemory, EndpointParts, EndpointShared, Helper, PairViolation,
    PeerParts, Puller,
};
use corewire_ring::region::Region;
use corewire_ring::{Host, Trusted};

/// Which cells a message goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cells {
    /// Few, used again and again: they stay in the caches of both sides.
    Recent,
    /// All in turn.
    InTurn,
}

/// One end of the pair of rings between this process and a peer. It serves one transfer at a time in each direction.
///
/// Nothing here waits. A peer can write anything into its memory: the pair's own checks find what is impossible.
pub trait Link {
    /// Bytes of a cell.
    fn cell_bytes(&self) -> u64;

    /// Sends the next bytes of the message `source`, of which `sent` bytes have been sent, with this tag. Returns how
    /// many: 0 if there is no room now. The message is not empty.
    ///
    /// # Errors
    /// A [`PairViolation`]: the peer is not to be trusted any more.
    fn send(
        &mut self,
        tag: u64,
        source: &impl Source,
        sent: u64,
        cells: Cells,
    ) -> Result<u64, PairViolation>;

    /// Sends a message of no bytes with this tag. False if there is no room now.
    ///
    /// # Errors
    /// As [`Link::send`].
    fn send_tag(&mut self, tag: u64) -> Result<bool, PairViolation>;

    /// What has arrived next, if anything has.
    ///
    /// # Errors
    /// As [`Link::send`].
    fn arrival(&mut self) -> Result<Option<Arrival>, PairViolation>;

    /// Copies an arrival to byte `at` of `sink`.
    fn copy(&mut self, arrival: &Arrival, at: usize, sink: &mut impl Sink);

    /// Moves past an arrival.
    fn pass(&mut self, arrival: &Arrival);

    /// The number of a new offer, valid from now on. `None` if there are too many.
    fn make_offer(&mut self) -> Option<u64>;

    /// An offer of this side is not valid any more.
    fn end_offer(&mut self, number: u64);

    /// Whether the peer copies the message of this offer.
    fn has_begun(&self, number: u64) -> bool;

    /// The receiver's side of a copy of the peer's offer, in so many chunks. `None` if there can be no such offer.
    fn puller(&self, number: u64, chunks: u16) -> Option<Puller>;

    /// The sender's side of a copy of this side's offer.
    fn helper(&self, number: u64, chunks: u16) -> Option<Helper>;
}

/// Whether the peer's piece with this number is registered.
pub(crate) fn is_registered(link: &impl Link, number: u64) -> bool {
    link.puller(number, 1).is_some_and(|puller| puller.is_valid())
}

/// A pair of rings by itself. Its clones are the same pair.
///
/// # Example
/// ```
/// use corewire_transfer::mechanisms::{Cells, Link, PairLink};
///
/// let (mut near, mut far) = PairLink::between_threads(16, 16 << 10)?;
/// assert_eq!(near.send(7, &b"hello".as_slice(), 0, Cells::InTurn)?, 5);
/// let arrival = far.arrival()?.ok_or("nothing")?;
/// let mut text = [0; 5];
/// far.copy(&arrival, 0, &mut &mut text[..]);
/// far.pass(&arrival);
/// assert_eq!((arrival.envelope.tag, &text), (7, b"hello"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PairLink<H = Linux> {
    pairs: Rc<RefCell<Endpoint<H>>>,
}

impl<H> Clone for PairLink<H> {
    fn clone(&self) -> Self {
        Self { pairs: Rc::clone(&self.pairs) }
    }
}

impl<H> fmt::Debug for PairLink<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairLink").finish_non_exhaustive()
    }
}

/// The only row.
const ROW: u32 = 0;
const RING_SLOTS: u64 = 64;

/// The memory of one end of a pair.
#[derive(Debug, Clone)]
pub struct LinkMemory {
    /// Its segment, with [`PairLink::sizes`]. Only its owner writes it.
    pub segment: Region,
    /// Its activity page, of [`LinkMemory::PAGE_BYTES`] bytes, which both write.
    pub page: Region,
}

impl LinkMemory {
    /// Bytes of an activity page.
    pub const PAGE_BYTES: usize = ACTIVITY_BYTES;

    fn words(&self, sizes: EndpointSizes) -> (EndpointMemory, Activity) {
        (EndpointMemory::new(self.segment.clone(), sizes), Activity::new(self.page.clone()))
    }
}

impl PairLink<Linux> {
    /// The sizes of the memory of an end with so many cells of so many bytes.
    ///
    /// # Errors
    /// [`EndpointSizeError`], which names the limit.
    pub const fn sizes(cells: u64, cell_bytes: u64) -> Result<EndpointSizes, EndpointSizeError> {
        EndpointSizes::new(1, 1, RING_SLOTS, cells, cell_bytes)
    }

    /// An end, in zeroed memory of these sizes. `trusted` says that the peer may crash, but keeps to the protocol.
    #[must_use]
    pub fn new(
        own: &LinkMemory,
        peer: &LinkMemory,
        sizes: EndpointSizes,
        trusted: Trusted,
    ) -> Self {
        let fence_mode = FenceMode::Fenced;
        let (memory, activity) = own.words(sizes);
        let shared = Arc::new(EndpointShared::new(&activity));
        let parts = EndpointParts { memory, activity, fence_mode, shared };
        let mut pairs = Endpoint::new(parts, Linux::get());
        let (memory, activity) = peer.words(sizes);
        let peer = PeerParts { memory, activity, row_there: ROW, fence_mode, trusted };
        let is_added = pairs.add_peer(ROW, peer);
        debug_assert!(is_added, "the only row is free");
        Self { pairs: Rc::new(RefCell::new(pairs)) }
    }

    /// Both ends of a pair within this process.
    ///
    /// # Errors
    /// [`OsError`] if there is no memory for it, or the sizes are not possible.
    pub fn between_threads(cells: u64, cell_bytes: u64) -> Result<(Self, Self), OsError> {
        let sizes = Self::sizes(cells, cell_bytes);
        let sizes = sizes.map_err(|error| OsError {
            what: format!("make a pair of rings: {error}").into(),
            errno: libc::EINVAL,
        })?;
        let out = || OsError { what: "allocate a pair of rings".into(), errno: libc::ENOMEM };
        let make = || {
            let bytes = usize::try_from(sizes.segment_bytes()).map_err(|_| out())?;
            let segment = Region::private(bytes).ok_or_else(out)?;
            let page = Region::private(ACTIVITY_BYTES).ok_or_else(out)?;
            Ok(LinkMemory { segment, page })
        };
        let (near, far) = (make()?, make()?);
        // SAFETY: both ends are this code.
        let trusted = unsafe { Trusted::assume() };
        Ok((Self::new(&near, &far, sizes, trusted), Self::new(&far, &near, sizes, trusted)))
    }
}

impl<H: Host> Link for PairLink<H> {
    fn cell_bytes(&self) -> u64 {
        self.pairs.borrow().sizes().cell_bytes()
    }

    fn send(
        &mut self,
        tag: u64,
        source: &impl Source,
        sent: u64,
        cells: Cells,
    ) -> Result<u64, PairViolation> {
        let mut pairs = self.pairs.borrow_mut();
        let (envelope, total) = (Envelope::tagged(tag), source.bytes());
        loop {
            let bytes = if total <= envelope.inline_bytes_max() as u64 {
                if send_short(&mut pairs, &envelope, source) { total } else { 0 }
            } else {
                pairs.take_recent_cells(cells == Cells::Recent);
                pairs.send_fragment(ROW, &envelope, source, sent)
            };
            if bytes > 0 || !is_room_made(&mut pairs, &envelope, total)? {
                return Ok(bytes);
            }
        }
    }

    fn send_tag(&mut self, tag: u64) -> Result<bool, PairViolation> {
        let mut pairs = self.pairs.borrow_mut();
        let envelope = Envelope::tagged(tag);
        loop {
            if pairs.try_send(ROW, &envelope, &[]) {
                return Ok(true);
            }
            if !is_room_made(&mut pairs, &envelope, 0)? {
                return Ok(false);
            }
        }
    }

    fn arrival(&mut self) -> Result<Option<Arrival>, PairViolation> {
        let mut pairs = self.pairs.borrow_mut();
        let found = match pairs.poll() {
            Some(row) => pairs.arrival(row)?,
            None => None,
        };
        if found.is_none() {
            // The peer may wait for what has been read.
            pairs.publish_cursors();
        }
        Ok(found)
    }

    fn copy(&mut self, arrival: &Arrival, at: usize, sink: &mut impl Sink) {
        self.pairs.borrow().copy(ROW, arrival, at, sink);
    }

    fn pass(&mut self, arrival: &Arrival) {
        self.pairs.borrow_mut().pass(ROW, arrival);
    }

    fn make_offer(&mut self) -> Option<u64> {
        self.pairs.borrow_mut().make_offer(ROW)
    }

    fn end_offer(&mut self, number: u64) {
        self.pairs.borrow_mut().end_offer(number);
    }

    fn has_begun(&self, number: u64) -> bool {
        self.pairs.borrow().has_begun(ROW, number)
    }

    fn puller(&self, number: u64, chunks: u16) -> Option<Puller> {
        self.pairs.borrow().puller(ROW, number, chunks)
    }

    fn helper(&self, number: u64, chunks: u16) -> Option<Helper> {
        self.pairs.borrow().helper(ROW, number, chunks)
    }
}

/// Sends a message in slots. True if there was room for it.
fn send_short<H: Host>(pairs: &mut Endpoint<H>, envelope: &Envelope, source: &impl Source) -> bool {
    let mut bytes = [0; PAIR_INLINE_BYTES_MAX];
    let total = usize::try_from(source.bytes()).unwrap_or(0).min(bytes.len());
    let message = &mut bytes[..total];
    source.fill(0, &mut Fragment::private(message));
    pairs.try_send(ROW, envelope, message)
}

/// Whether there is room now for the next part of a message of `total` bytes.
fn is_room_made<H: Host>(
    pairs: &mut Endpoint<H>,
    envelope: &Envelope,
    total: u64,
) -> Result<bool, PairViolation> {
    if pairs.has_ring(ROW) {
        return pairs.has_room(ROW, envelope, total);
    }
    Ok(pairs.next_ring().is_some() && pairs.assign_ring(ROW))
}
