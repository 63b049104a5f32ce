//! An endpoint's shared memory.
//!
//! Its segment (writable for its owner; the kernel makes it read-only for all other processes):
//!
//! ```text
//!      0  header, 256 bytes        written before the segment is handed out, never again
//!    256  sleeping u32 | mode u32  owner: odd epoch: asleep, or about to be
//!    384  blocked u32 | cpu u32    owner: odd while it waits for room, and how; where it ran then
//!    512  counters, 15 x u64       owner
//!    632  refusal u64              owner: why it could last not copy from a peer's memory
//!    640  cookie u64               owner: the address of its incarnation in its own memory
//!   4096  rows, 512 bytes each     owner; one for each peer:
//!           0  state u32           as a receiver: is this pair polled, or must messages be announced?
//!           8  ring u64            as a sender: which of the rings carries messages to this peer
//!         128  cursor u64          as a receiver: number of slots of this pair that it has finished with
//!         192  counters, 8 x u64   what has gone to this peer and come from it, for observers
//!         256  helped u64          as a sender: what it copies of the message that this peer pulls, from the end
//!         320  earlier, 4 x u64    what the first four counters had when this peer came: they go on counting
//!         352  done u64            the last request of this peer for access that it tells so to be done
//!         384  pulled u64          as a receiver: the message of this peer that it pulls, from the beginning
//!         392  served u64          the last request of this peer for access that it has begun
//!         400  admits u64          1 while the owner looks for visits of this peer before it reuses memory
//!         448  visits u64          odd while it copies to or from what this peer exposes
//!         456  taken u64           the last request to this peer that it has taken back
//!         offers, 1024 x u64       as a sender: the offers that are valid
//!         exposures, 256 x 64 bytes  the memory that it exposes: see [`crate::access`]
//!         rings, 64 bytes a slot   as a sender
//!         cells                    as a sender
//!         releases, 512 bytes a row  as a receiver: one bit for each block of this peer's heap that it was sent
//!         heap, in chunks          as a sender: messages that their receivers read here
//! ```
//!
//! Its activity page, which every peer writes, and which contains only hints:
//!
//! ```text
//!      0  summary u64              one bit for each of the words that is not 0
//!      8  words, 16 x u64          one bit for each row with activity
//!    256  doorbell u32             changes when the owner, asleep, must check
//! ```

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::access::{EXPOSURE_BYTES, EXPOSURES_MAX};
use crate::grants::{HEAP_BYTES_MAX, HEAP_CHUNK_BYTES, RELEASES_BYTES};
use crate::name::{ChannelName, NAME_BYTES_MAX};
use crate::pair::MESSAGE_SLOTS_MAX;
use crate::rendezvous::OFFERS_MAX;
use crate::segment::{FenceMode, HeaderError, SleepMode, check_start};
use crate::slot::SLOT_BYTES;
use crate::{LAYOUT_VERSION, LINE_BYTES, PAGE_BYTES, ROLE_BYTES, round_up};

/// First eight bytes of an endpoint's segment.
pub const ENDPOINT_MAGIC: u64 = u64::from_le_bytes(*b"cwire-ep");

/// Endpoint: u32 epoch, odd while the owner sleeps or is about to.
pub const ENDPOINT_SLEEPING: usize = 256;
/// Endpoint: u32, how it wants to be woken: one of [`SleepMode`].
pub const ENDPOINT_MODE: usize = 260;
/// Endpoint: u32, a value made by [`blocked`], which is odd while the owner waits for room.
pub const ENDPOINT_BLOCKED: usize = 384;
/// Endpoint: u32, the processor that the owner ran on when it last began to wait for room, or woke
/// a peer that waited for room (a hint).
pub const ENDPOINT_CPU: usize = 388;
/// Endpoint: its counters.
pub const ENDPOINT_COUNTERS: usize = 512;
/// Endpoint: u64, why it could last not copy from a peer's memory, or 0: for observers.
pub const ENDPOINT_REFUSAL: usize = ENDPOINT_COUNTERS + 8 * (crate::counters::COUNTERS_MAX - 1);
/// Endpoint: u64, where its incarnation lies in its owner's memory, set before it exposes anything.
pub const ENDPOINT_COOKIE: usize = ENDPOINT_REFUSAL + 8;
/// Endpoint: the first row.
pub const ENDPOINT_ROWS: usize = PAGE_BYTES;
/// Bytes of a row.
pub const ROW_BYTES: usize = 4 * ROLE_BYTES;
/// Row: u32, one of [`PairState`].
pub const ROW_STATE: usize = 0;
/// Row: u64. High half: how often a ring was assigned. Low half: the ring's number plus one, or 0
/// for none.
pub const ROW_RING: usize = 8;
/// Row: u64, number of slots of the pair that the owner has finished with.
pub const ROW_CURSOR: usize = ROLE_BYTES;
/// Row: the counters of [`PeerCounter`](crate::counters::PeerCounter), on a line of their own.
pub const ROW_COUNTERS: usize = ROLE_BYTES + LINE_BYTES;

/// Row: u64, which chunks of the message that the peer pulls the owner copies: see [`crate::rendezvous::helped`].
pub const ROW_HELPED: usize = 2 * ROLE_BYTES;
/// Row: the first [`TRAFFIC_COUNTERS`](crate::counters::TRAFFIC_COUNTERS) counters as they were when the peer came.
pub const ROW_EARLIER: usize = ROW_HELPED + LINE_BYTES;
/// Row: u64, number of the last request of the peer for access that is done, of those that are told so: see [`crate::access`].
pub const ROW_DONE: usize = ROW_EARLIER + 8 * crate::counters::TRAFFIC_COUNTERS;
/// Row: u64, which chunks of the message that the owner pulls it copies: see [`crate::rendezvous::pulled`].
pub const ROW_PULLED: usize = 3 * ROLE_BYTES;
/// Row: u64, number of the last request of the peer for access that the owner has begun: see [`crate::access`].
pub const ROW_SERVED: usize = ROW_PULLED + 8;
/// Row: u64, 1 while the owner looks whether the peer visits before it uses exposed memory for something else. No peer may
/// visit before that, or after.
pub const ROW_ADMITS: usize = ROW_SERVED + 8;
/// Row: u64, odd while the owner copies to or from memory that the peer exposes.
pub const ROW_VISITS: usize = ROW_PULLED + LINE_BYTES;
/// Row: u64, number of the last request for access to the peer that the owner has taken back.
pub const ROW_TAKEN: usize = ROW_VISITS + 8;

/// Activity: u64, one bit for each word that is not 0.
pub const SUMMARY: usize = 0;
/// Activity: the words, with one bit for each row.
pub const ACTIVE: usize = 8;
/// Activity: u32 that changes when a sleeping owner must check.
pub const DOORBELL: usize = 256;
/// Bytes of the activity page.
pub const ACTIVITY_BYTES: usize = PAGE_BYTES;
/// Maximum number of peers of an endpoint.
pub const PEERS_MAX: u64 = 1024;
/// Number of words of activity.
pub const ACTIVE_WORDS: usize = 16;

/// How the receiver of a pair learns of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum PairState {
    /// The sender must announce messages, by a bit in the receiver's activity page.
    Cold = 0,
    /// The receiver itself polls the next slot.
    Hot = 1,
}

/// The `blocked` word of an endpoint that waits for room: how many times it has waited, and how it
/// wants to be woken. Both are in one word, so that a peer that makes room never uses the mode of
/// an earlier wait.
#[must_use]
pub const fn blocked(times: u32, mode: SleepMode) -> u32 {
    times << 2 | (mode as u32) << 1 | 1
}

/// How an endpoint with this `blocked` word wants to be woken; `None` if it does not wait for room.
#[must_use]
pub const fn blocked_mode(blocked: u32) -> Option<SleepMode> {
    match blocked & 0b11 {
        0b01 => Some(SleepMode::Futex),
        0b11 => Some(SleepMode::Descriptor),
        _ => None,
    }
}

/// Why the sizes of an endpoint are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointSizeError {
    /// The number of peers is out of range.
    #[error("peers: 1 to {PEERS_MAX} are possible, not {asked}")]
    Peers {
        /// What was asked for.
        asked: u64,
    },
    /// The number of rings is out of range.
    #[error("rings: 1 to {PEERS_MAX} are possible, not {asked}")]
    Rings {
        /// What was asked for.
        asked: u64,
    },
    /// A ring's slots are not a power of two in range.
    #[error("slots of a ring: a power of two from {min} to {max} is needed, not {asked}")]
    Slots {
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
        /// What was asked for.
        asked: u64,
    },
    /// The number of cells is out of range.
    #[error("cells: {min} to {max} are possible, not {asked}")]
    Cells {
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
        /// What was asked for.
        asked: u64,
    },
    /// A cell's size is not a power of two in range.
    #[error("bytes of a cell: a power of two from {min} to {max} is needed, not {asked}")]
    CellBytes {
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
        /// What was asked for.
        asked: u64,
    },
    /// The heap's size is out of range.
    #[error("bytes of the heap: a multiple of {unit} up to {max} is needed, not {asked}")]
    HeapBytes {
        /// Bytes of a chunk.
        unit: u64,
        /// Largest allowed.
        max: u64,
        /// What was asked for.
        asked: u64,
    },
}

/// Minimum and maximum number of slots of a ring.
pub const RING_SLOTS: (u64, u64) =
    (if cfg!(loom) { 2 } else { (2 * MESSAGE_SLOTS_MAX).next_power_of_two() }, 1 << 16);
/// Minimum and maximum number of cells.
pub const CELLS: (u64, u64) = (2, 1 << 12);
/// Minimum and maximum bytes of a cell.
pub const CELL_BYTES: (u64, u64) = (if cfg!(loom) { 64 } else { PAGE_BYTES as u64 }, 1 << 18);

const _: () = assert!(CELLS.1 * CELL_BYTES.1 <= 1 << 32, "an offset among the cells has 32 bits");

/// Sizes and offsets of an endpoint's parts, all derived from six numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointSizes {
    peers_max: u64,
    rings: u64,
    ring_slots: u64,
    cells: u64,
    cell_bytes: u64,
    heap_bytes: u64,
}

impl EndpointSizes {
    /// Checks the first five numbers. There is no heap: see [`with_heap`](Self::with_heap).
    ///
    /// # Errors
    /// [`EndpointSizeError`], which names the first number that is out of range.
    pub const fn new(
        peers_max: u64,
        rings: u64,
        ring_slots: u64,
        cells: u64,
        cell_bytes: u64,
    ) -> Result<Self, EndpointSizeError> {
        use EndpointSizeError as Error;
        if peers_max == 0 || peers_max > PEERS_MAX {
            return Err(Error::Peers { asked: peers_max });
        }
        if rings == 0 || rings > PEERS_MAX {
            return Err(Error::Rings { asked: rings });
        }
        let (min, max) = RING_SLOTS;
        if ring_slots < min || ring_slots > max || !ring_slots.is_power_of_two() {
            return Err(Error::Slots { min, max, asked: ring_slots });
        }
        let (min, max) = CELLS;
        if cells < min || cells > max {
            return Err(Error::Cells { min, max, asked: cells });
        }
        let (min, max) = CELL_BYTES;
        if cell_bytes < min || cell_bytes > max || !cell_bytes.is_power_of_two() {
            return Err(Error::CellBytes { min, max, asked: cell_bytes });
        }
        Ok(Self { peers_max, rings, ring_slots, cells, cell_bytes, heap_bytes: 0 })
    }

    /// The same sizes, with a heap of `heap_bytes` bytes.
    ///
    /// # Errors
    /// [`EndpointSizeError::HeapBytes`].
    pub const fn with_heap(self, heap_bytes: u64) -> Result<Self, EndpointSizeError> {
        if heap_bytes > HEAP_BYTES_MAX || !heap_bytes.is_multiple_of(HEAP_CHUNK_BYTES) {
            let (unit, max) = (HEAP_CHUNK_BYTES, HEAP_BYTES_MAX);
            return Err(EndpointSizeError::HeapBytes { unit, max, asked: heap_bytes });
        }
        Ok(Self { heap_bytes, ..self })
    }

    /// Maximum number of peers at one time.
    #[inline]
    #[must_use]
    pub const fn peers_max(&self) -> u64 {
        self.peers_max
    }

    /// Number of peers that it can send to at one time without taking a ring back from another
    /// peer.
    #[inline]
    #[must_use]
    pub const fn rings(&self) -> u64 {
        self.rings
    }

    /// Number of slots of each ring, a power of two.
    #[inline]
    #[must_use]
    pub const fn ring_slots(&self) -> u64 {
        self.ring_slots
    }

    /// Number of cells. Cells hold messages that are too long for slots.
    #[inline]
    #[must_use]
    pub const fn cells(&self) -> u64 {
        self.cells
    }

    /// Bytes of a cell, a power of two.
    #[inline]
    #[must_use]
    pub const fn cell_bytes(&self) -> u64 {
        self.cell_bytes
    }

    /// Bytes of a ring.
    #[must_use]
    pub const fn ring_bytes(&self) -> u64 {
        self.ring_slots * SLOT_BYTES as u64
    }

    /// Offset of row `row`.
    #[must_use]
    pub const fn row_offset(&self, row: u32) -> usize {
        ENDPOINT_ROWS + row as usize * ROW_BYTES
    }

    /// Offset of the word of offer `index`, below [`OFFERS_MAX`].
    #[must_use]
    pub const fn offer_offset(&self, index: u16) -> usize {
        // At most half a megabyte.
        #[expect(clippy::cast_possible_truncation, reason = "checked by `new`")]
        let rows = ENDPOINT_ROWS + self.peers_max as usize * ROW_BYTES;
        rows + 8 * index as usize
    }

    /// Offset of entry `index` of the table of exposed memory, below [`EXPOSURES_MAX`].
    #[must_use]
    pub const fn exposure_offset(&self, index: u16) -> usize {
        self.offer_offset(OFFERS_MAX).next_multiple_of(EXPOSURE_BYTES)
            + EXPOSURE_BYTES * index as usize
    }

    /// Offset of ring `ring`.
    #[must_use]
    pub const fn ring_offset(&self, ring: u64) -> u64 {
        let exposures = self.exposure_offset(EXPOSURES_MAX) as u64;
        match round_up(exposures, PAGE_BYTES as u64) {
            Some(rings) => rings + ring * self.ring_bytes(),
            None => u64::MAX,
        }
    }

    /// Offset of the cells.
    #[must_use]
    pub const fn cells_offset(&self) -> u64 {
        match round_up(self.ring_offset(self.rings), PAGE_BYTES as u64) {
            Some(cells) => cells,
            None => u64::MAX,
        }
    }

    /// Bytes of all cells.
    #[must_use]
    pub const fn cells_bytes(&self) -> u64 {
        self.cells * self.cell_bytes
    }

    /// Bytes of the heap, a multiple of [`HEAP_CHUNK_BYTES`].
    #[must_use]
    pub const fn heap_bytes(&self) -> u64 {
        self.heap_bytes
    }

    /// Offset of the release bits of the peer of `row`.
    #[must_use]
    pub const fn releases_offset(&self, row: u32) -> u64 {
        match round_up(self.cells_offset() + self.cells_bytes(), PAGE_BYTES as u64) {
            Some(releases) => releases + row as u64 * RELEASES_BYTES as u64,
            None => u64::MAX,
        }
    }

    /// Offset of the heap.
    #[must_use]
    pub const fn heap_offset(&self) -> u64 {
        // At most 1024 rows.
        #[expect(clippy::cast_possible_truncation, reason = "checked by `new`")]
        let releases = self.releases_offset(self.peers_max as u32);
        match round_up(releases, PAGE_BYTES as u64) {
            Some(heap) => heap,
            None => u64::MAX,
        }
    }

    /// Bytes of the segment.
    #[must_use]
    pub const fn segment_bytes(&self) -> u64 {
        match round_up(self.heap_offset() + self.heap_bytes, PAGE_BYTES as u64) {
            Some(bytes) => bytes,
            None => u64::MAX,
        }
    }
}

/// An endpoint's header as it lies in memory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RawEndpointHeader {
    magic: U64,
    version: U32,
    fence_mode: U32,
    peers_max: U64,
    rings: U64,
    ring_slots: U64,
    cells: U64,
    cell_bytes: U64,
    incarnation: [u8; 16],
    pid: U32,
    name_length: U32,
    name: [u8; 112],
    budget_bytes: U64,
    heap_bytes: U64,
    reserved: [u8; 48],
}

const _: () = assert!(size_of::<RawEndpointHeader>() == ENDPOINT_SLEEPING);
const _: () = assert!(NAME_BYTES_MAX <= 112);
const _: () = assert!(ENDPOINT_COUNTERS + 8 * crate::counters::COUNTERS_MAX <= ENDPOINT_COOKIE);
const _: () = assert!(ENDPOINT_COOKIE + 8 <= ENDPOINT_ROWS && ROW_TAKEN + 8 <= ROW_BYTES);
const _: () = assert!(ROW_DONE + 8 <= ROW_PULLED);
const _: () = assert!(crate::counters::EndpointCounter::ALL.len() < crate::counters::COUNTERS_MAX);
const _: () = assert!(ROW_CURSOR + 8 <= ROW_COUNTERS && ROW_RING + 8 <= ROW_CURSOR);
const _: () = assert!(ROW_COUNTERS + 8 * crate::counters::PeerCounter::ALL.len() <= ROW_HELPED);
const _: () = assert!(ROW_EARLIER + 8 * crate::counters::TRAFFIC_COUNTERS <= ROW_PULLED);
const _: () = assert!(64 * ACTIVE_WORDS as u64 == PEERS_MAX);
const _: () = assert!(ACTIVE + 8 * ACTIVE_WORDS <= DOORBELL && ACTIVE_WORDS <= 64);

/// An endpoint's header after its check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointHeader {
    /// Sizes and offsets.
    pub sizes: EndpointSizes,
    /// Whether `membarrier` reaches the endpoint's process and the process can call it.
    pub fence_mode: FenceMode,
    /// Random, new for each endpoint ever made.
    pub incarnation: u128,
    /// The number of the endpoint's process, for people to read.
    pub pid: u32,
    /// Its name.
    pub name: ChannelName,
    /// Bytes of messages that it keeps before a receive asks for them, for people to read.
    pub budget_bytes: u64,
}

impl EndpointHeader {
    /// The header as bytes, to be written at the start of a segment.
    #[must_use]
    pub fn to_raw(&self) -> RawEndpointHeader {
        let text = self.name.as_str().as_bytes();
        let mut name = [0; 112];
        name[..text.len()].copy_from_slice(text);
        RawEndpointHeader {
            magic: ENDPOINT_MAGIC.into(),
            version: LAYOUT_VERSION.into(),
            fence_mode: (self.fence_mode as u32).into(),
            peers_max: self.sizes.peers_max.into(),
            rings: self.sizes.rings.into(),
            ring_slots: self.sizes.ring_slots.into(),
            cells: self.sizes.cells.into(),
            cell_bytes: self.sizes.cell_bytes.into(),
            incarnation: self.incarnation.to_le_bytes(),
            pid: self.pid.into(),
            name_length: u32::try_from(text.len()).unwrap_or_default().into(),
            name,
            budget_bytes: self.budget_bytes.into(),
            heap_bytes: self.sizes.heap_bytes.into(),
            reserved: [0; 48],
        }
    }

    /// Checks a copy of the first 256 bytes of a segment of `segment_bytes` bytes. The offsets are
    /// computed again from the six sizes, so no offset is ever taken from a peer.
    ///
    /// # Errors
    /// [`HeaderError`], with the value that was found.
    pub fn parse(raw: &RawEndpointHeader, segment_bytes: u64) -> Result<Self, HeaderError> {
        check_start("endpoint", ENDPOINT_MAGIC, raw.magic.get(), raw.version.get())?;
        let fence_mode = FenceMode::of_word(raw.fence_mode.get())?;
        let sizes = EndpointSizes::new(
            raw.peers_max.get(),
            raw.rings.get(),
            raw.ring_slots.get(),
            raw.cells.get(),
            raw.cell_bytes.get(),
        )?
        .with_heap(raw.heap_bytes.get())?;
        let expected = sizes.segment_bytes();
        if expected != segment_bytes {
            return Err(HeaderError::Length { expected, found: segment_bytes });
        }
        let length = raw.name_length.get();
        let bad = HeaderError::Field { field: "name", found: length.into() };
        let text = usize::try_from(length).ok().and_then(|length| raw.name.get(..length));
        let name = text
            .and_then(|text| core::str::from_utf8(text).ok())
            .and_then(|text| ChannelName::new(text).ok())
            .ok_or(bad)?;
        let incarnation = u128::from_le_bytes(raw.incarnation);
        let (pid, budget_bytes) = (raw.pid.get(), raw.budget_bytes.get());
        Ok(Self { sizes, fence_mode, incarnation, pid, name, budget_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> EndpointHeader {
        EndpointHeader {
            sizes: EndpointSizes::new(256, 64, 64, 64, 16 << 10)
                .unwrap()
                .with_heap(1 << 20)
                .unwrap(),
            fence_mode: FenceMode::Fenced,
            incarnation: 7,
            pid: 3,
            name: ChannelName::new("rank-0").unwrap(),
            budget_bytes: 1 << 20,
        }
    }

    #[test]
    fn a_header_survives_memory() {
        let bytes = header().sizes.segment_bytes();
        assert_eq!(EndpointHeader::parse(&header().to_raw(), bytes), Ok(header()));
        let error = EndpointHeader::parse(&header().to_raw(), bytes + 1).unwrap_err();
        assert_eq!(error, HeaderError::Length { expected: bytes, found: bytes + 1 });
    }

    #[test]
    fn the_parts_do_not_overlap() {
        let sizes = header().sizes;
        assert!(sizes.row_offset(255) as u64 + ROW_BYTES as u64 <= sizes.ring_offset(0));
        assert!(sizes.ring_offset(64) <= sizes.cells_offset());
        assert!(sizes.cells_offset() + sizes.cells_bytes() <= sizes.releases_offset(0));
        assert!(sizes.releases_offset(255) + RELEASES_BYTES as u64 <= sizes.heap_offset());
        assert!(sizes.heap_offset() + sizes.heap_bytes() <= sizes.segment_bytes());
    }

    #[test]
    fn sizes_out_of_range_are_named() {
        let new = EndpointSizes::new;
        assert_eq!(new(0, 1, 64, 2, 4096), Err(EndpointSizeError::Peers { asked: 0 }));
        assert_eq!(new(1, 1025, 64, 2, 4096), Err(EndpointSizeError::Rings { asked: 1025 }));
        assert!(matches!(new(1, 1, 65, 2, 4096), Err(EndpointSizeError::Slots { .. })));
        assert!(matches!(new(1, 1, 64, 1, 4096), Err(EndpointSizeError::Cells { .. })));
        assert!(matches!(new(1, 1, 64, 2, 100), Err(EndpointSizeError::CellBytes { .. })));
        let heap = |bytes| new(1, 1, 64, 2, 4096).unwrap().with_heap(bytes);
        assert!(matches!(heap(4096), Err(EndpointSizeError::HeapBytes { asked: 4096, .. })));
        assert!(heap(HEAP_BYTES_MAX + HEAP_CHUNK_BYTES).is_err() && heap(0).is_ok());
    }

    proptest! {
        #[test]
        fn any_header_is_refused_or_has_the_length_that_was_found(
            flips in proptest::collection::vec((0usize..256, any::<u8>()), 0..6),
        ) {
            let mut bytes: [u8; 256] = zerocopy::transmute!(header().to_raw());
            for (at, value) in flips {
                bytes[at] = value;
            }
            let raw: RawEndpointHeader = zerocopy::transmute!(bytes);
            let length = header().sizes.segment_bytes();
            if let Ok(parsed) = EndpointHeader::parse(&raw, length) {
                prop_assert_eq!(parsed.sizes.segment_bytes(), length);
            }
        }
    }
}
