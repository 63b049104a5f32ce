//! The words of an endpoint's two memories, by name. `corewire_layout::endpoint` lists their writers.

use corewire_layout::access::{
    EXPOSURE_ADDRESS, EXPOSURE_KEY, EXPOSURE_LENGTH, EXPOSURE_ORIGIN, EXPOSURE_STATE,
};
use corewire_layout::counters::{EndpointCounter, PeerCounter, TRAFFIC_COUNTERS};
use corewire_layout::endpoint as at;
use corewire_layout::endpoint::EndpointSizes;
use corewire_layout::grants::RELEASES_BYTES;

use crate::region::{Region, Slots, Store, Word32, Word64};
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// An endpoint's segment: this endpoint's, or a peer's.
#[derive(Debug, Clone)]
pub struct EndpointMemory {
    segment: Region,
    sizes: EndpointSizes,
}

impl EndpointMemory {
    /// The words of `segment`, whose header gave `sizes`.
    #[inline]
    #[must_use]
    pub fn new(segment: Region, sizes: EndpointSizes) -> Self {
        Self { segment, sizes }
    }

    /// Sizes and offsets.
    #[inline]
    #[must_use]
    pub fn sizes(&self) -> &EndpointSizes {
        &self.sizes
    }

    /// Odd while the owner sleeps.
    #[inline]
    #[must_use]
    pub fn sleeping(&self) -> Word32 {
        self.segment.keep32(at::ENDPOINT_SLEEPING)
    }

    /// How to wake it.
    #[inline]
    #[must_use]
    pub fn mode(&self) -> Word32 {
        self.segment.keep32(at::ENDPOINT_MODE)
    }

    /// Whether it waits for room, and how.
    #[inline]
    #[must_use]
    pub fn blocked(&self) -> Word32 {
        self.segment.keep32(at::ENDPOINT_BLOCKED)
    }

    /// Its processor when it began to wait for room.
    #[inline]
    #[must_use]
    pub fn cpu(&self) -> Word32 {
        self.segment.keep32(at::ENDPOINT_CPU)
    }

    /// Is the pair of `row` polled?
    #[inline]
    #[must_use]
    pub fn state(&self, row: u32) -> Word32 {
        self.segment.keep32(self.sizes.row_offset(row) + at::ROW_STATE)
    }

    /// Which ring carries messages to the peer of `row`.
    #[inline]
    #[must_use]
    pub fn ring(&self, row: u32) -> Word64 {
        self.segment.keep64(self.sizes.row_offset(row) + at::ROW_RING)
    }

    /// Number of slots of the pair of `row` that its receiver has finished with.
    #[inline]
    #[must_use]
    pub fn cursor(&self, row: u32) -> Word64 {
        self.segment.keep64(self.sizes.row_offset(row) + at::ROW_CURSOR)
    }

    /// What the owner copies of the message that the peer of `row` pulls.
    #[inline]
    #[must_use]
    pub fn helped(&self, row: u32) -> Word64 {
        self.segment.keep64(self.sizes.row_offset(row) + at::ROW_HELPED)
    }

    /// What the owner copies of the message of the peer of `row` that it pulls.
    #[inline]
    #[must_use]
    pub fn pulled(&self, row: u32) -> Word64 {
        self.segment.keep64(self.sizes.row_offset(row) + at::ROW_PULLED)
    }

    /// Odd while the owner copies to or from memory that the peer of `row` exposes.
    #[inline]
    #[must_use]
    pub fn visits(&self, row: u32) -> Word64 {
        self.segment.keep64(self.sizes.row_offset(row) + at::ROW_VISITS)
    }

    /// Whether the owner looks for visits of the peer of `row`.
    #[inline]
    #[must_use]
    pub fn admits(&self, row: u32) -> &AtomicU64 {
        self.segment.word64(self.sizes.row_offset(row) + at::ROW_ADMITS)
    }

    /// The last request of the peer of `row` for access that the owner has begun.
    #[inline]
    #[must_use]
    pub fn served(&self, row: u32) -> &AtomicU64 {
        self.segment.word64(self.sizes.row_offset(row) + at::ROW_SERVED)
    }

    /// The last request of the peer of `row` for access that is done, of those that are told so.
    #[inline]
    #[must_use]
    pub fn done(&self, row: u32) -> &AtomicU64 {
        self.segment.word64(self.sizes.row_offset(row) + at::ROW_DONE)
    }

    /// The last request for access to the peer of `row` that the owner has taken back.
    #[inline]
    #[must_use]
    pub fn taken(&self, row: u32) -> &AtomicU64 {
        self.segment.word64(self.sizes.row_offset(row) + at::ROW_TAKEN)
    }

    /// Where the owner's incarnation lies in its memory.
    #[must_use]
    pub fn cookie(&self) -> &AtomicU64 {
        self.segment.word64(at::ENDPOINT_COOKIE)
    }

    /// The entry of this index in the table of exposed memory.
    #[inline]
    #[must_use]
    pub fn exposure(&self, index: u16) -> ExposureWords<'_> {
        ExposureWords { segment: &self.segment, at: self.sizes.exposure_offset(index) }
    }

    /// The number of the valid offer of this index, or 0.
    #[inline]
    #[must_use]
    pub fn offer(&self, index: u16) -> &AtomicU64 {
        self.segment.word64(self.sizes.offer_offset(index))
    }

    /// The same, as a handle to keep.
    #[inline]
    #[must_use]
    pub fn keep_offer(&self, index: u16) -> Word64 {
        self.segment.keep64(self.sizes.offer_offset(index))
    }

    /// Why the owner could last not copy from a peer's memory.
    #[must_use]
    pub fn refusal(&self) -> &AtomicU64 {
        self.segment.word64(at::ENDPOINT_REFUSAL)
    }

    /// A counter.
    #[inline]
    #[must_use]
    pub fn counter(&self, counter: EndpointCounter) -> &AtomicU64 {
        self.segment.word64(at::ENDPOINT_COUNTERS + 8 * counter as usize)
    }

    /// A counter of the peer of `row`.
    #[inline]
    #[must_use]
    pub fn peer_counter(&self, row: u32, counter: PeerCounter) -> &AtomicU64 {
        let counters = self.sizes.row_offset(row) + at::ROW_COUNTERS;
        self.segment.word64(counters + 8 * counter as usize)
    }

    /// What a counter of traffic had when the peer of `row` came.
    #[must_use]
    pub fn earlier_traffic(&self, row: u32, counter: PeerCounter) -> &AtomicU64 {
        let earlier = self.sizes.row_offset(row) + at::ROW_EARLIER;
        self.segment.word64(earlier + 8 * (counter as usize).min(TRAFFIC_COUNTERS - 1))
    }

    /// Adds one to a counter that only this thread writes.
    #[inline]
    pub(super) fn count(&self, counter: EndpointCounter) {
        let counter = self.counter(counter);
        counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The slots of a ring; `None` if there is no such ring.
    #[inline]
    #[must_use]
    pub fn slots(&self, ring: u64) -> Option<Slots> {
        let offset = usize::try_from(self.sizes.ring_offset(ring)).ok()?;
        let slots = self.sizes.ring_slots();
        (ring < self.sizes.rings()).then(|| Slots::at_offset(&self.segment, offset, slots))
    }

    /// The owner's release bits for the peer of `row`.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    #[must_use]
    pub fn releases(&self, row: u32) -> Region {
        let offset = usize::try_from(self.sizes.releases_offset(row)).unwrap_or(usize::MAX);
        self.segment.part(offset, RELEASES_BYTES).expect("own sizes")
    }

    /// The heap.
    #[inline]
    #[must_use]
    pub fn heap(&self) -> Store {
        Store::new(&self.segment, self.sizes.heap_offset(), self.sizes.heap_bytes())
    }

    /// The cells.
    #[inline]
    #[must_use]
    pub fn cells(&self) -> Store {
        Store::new(&self.segment, self.sizes.cells_offset(), self.sizes.cells_bytes())
    }
}

/// The words of an entry of the table of exposed memory.
#[derive(Debug, Clone, Copy)]
pub struct ExposureWords<'a> {
    segment: &'a Region,
    at: usize,
}

impl<'a> ExposureWords<'a> {
    /// Its rights and how often it was used, or 0.
    #[inline]
    #[must_use]
    pub fn state(self) -> &'a AtomicU64 {
        self.segment.word64(self.at + EXPOSURE_STATE)
    }

    /// What peers name it by.
    #[inline]
    #[must_use]
    pub fn key(self) -> &'a AtomicU64 {
        self.segment.word64(self.at + EXPOSURE_KEY)
    }

    /// Its first byte in its owner's memory.
    #[inline]
    #[must_use]
    pub fn address(self) -> &'a AtomicU64 {
        self.segment.word64(self.at + EXPOSURE_ADDRESS)
    }

    /// Its length.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> &'a AtomicU64 {
        self.segment.word64(self.at + EXPOSURE_LENGTH)
    }

    /// What peers call its first byte.
    #[inline]
    #[must_use]
    pub fn origin(self) -> &'a AtomicU64 {
        self.segment.word64(self.at + EXPOSURE_ORIGIN)
    }
}

/// An endpoint's activity page, which all its peers write.
#[derive(Debug, Clone)]
pub struct Activity {
    page: Region,
    summary: Word64,
    doorbell: Word32,
}

impl Activity {
    /// The words of `page`.
    #[inline]
    #[must_use]
    pub fn new(page: Region) -> Self {
        let (summary, doorbell) = (page.keep64(at::SUMMARY), page.keep32(at::DOORBELL));
        Self { page, summary, doorbell }
    }

    /// One bit for each word with a bit set.
    #[inline(always)]
    #[must_use]
    pub fn summary(&self) -> &Word64 {
        &self.summary
    }

    /// One bit for each row with activity.
    #[inline]
    #[must_use]
    pub fn word(&self, index: u32) -> &AtomicU64 {
        self.page.word64(at::ACTIVE + 8 * index as usize)
    }

    /// The same, as a handle to keep.
    #[inline]
    #[must_use]
    pub fn keep_word(&self, index: u32) -> Word64 {
        self.page.keep64(at::ACTIVE + 8 * index as usize)
    }

    /// Changes when the owner, asleep, must check.
    #[inline]
    #[must_use]
    pub fn doorbell(&self) -> &Word32 {
        &self.doorbell
    }
}
