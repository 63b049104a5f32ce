//! Mapped memory: the sender's buffer lies in memory that the receiver has mapped, so the receiver copies it directly.
//!
//! The sender allocates the buffer from the mechanism, which makes a segment for it: a memfd that nobody can resize, and
//! that only the sender's map can write (`corewire_os::memory`). The description carries the descriptor. The receiver
//! checks the seals and the size, maps the segment read-only when it sees it first, and keeps the map for later
//! messages from the same buffer, up to [`MAPS_MAX`].
//!
//! ```text
//!   0                                       4096
//!   | number of the registered piece, or 0  | the parts, each on a line of its own
//! ```
//!
//! One copy, no system call, and no right over the other process. The price is that the message must have been written
//! there. The receiver reads the number after the bytes: if it has changed, the sender has taken the memory back. A sender
//! that writes while the receiver copies makes the message a mixture, nothing worse.
//!
//! Source: Buntinas and others, IV-B (memory from `MPI_Alloc_Mem` that is mapped by the initiator).
//!
//! | | cost of a message of n bytes |
//! |---|---|
//! | allocate | a memfd: 5 system calls, and a page fault for each 4 KiB |
//! | register, deregister | no system call |
//! | source | nothing |
//! | target | n bytes copied once; the first time 7 system calls, and a fault for 16 pages or more |

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use corewire_layout::rendezvous::{MemoryPlace, Stretch};
use corewire_layout::{LINE_BYTES, PAGE_BYTES};
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::memory::{MemoryOptions, Segment, SegmentError};
use corewire_ring::copying::{self, NextReader};
use corewire_ring::message::{Fragment, Landing, Memory, Sink, Source};
use corewire_ring::region::Region;
use corewire_ring::sync::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

use crate::mechanisms::mechanism::{Busy, Mechanism, Peer};
use crate::mechanisms::outcome::{CopyError, NotRegistered, RegisterError, Role, Step};
use crate::mechanisms::permission::Reason;
use crate::mechanisms::piece::{
    self, Copying, Described, Description, Extra, Kind, Piece, Registry, View,
};
use crate::thresholds::{PARTS_MAX, STEP_BYTES};
use crate::walks::BothWalks;

/// Maximum number of the peer's segments that a receiver keeps mapped.
pub const MAPS_MAX: usize = 16;

/// Copies out of the sender's memory, which the receiver has mapped.
///
/// # Example
/// ```
/// use corewire_ring::message::{Memory, Sink};
/// use corewire_transfer::mechanisms::{Mapped, Mechanism, Peer, Role, Step};
///
/// let own = Peer::own()?;
/// let mut sender = Mapped::initialise(own.clone(), Role::Source, ())?;
/// let mut receiver = Mapped::initialise(own, Role::Target, ())?;
/// let mut memory = sender.allocate(&[9])?;
/// memory.put(0, b"a message");
/// let source = sender.register(memory)?;
/// let mut target = receiver.register(Memory::from(vec![0; 9]).into())?;
/// assert_eq!(receiver.copy_local(&mut target, &source.description())?, Step::Done(9));
/// assert_eq!(receiver.deregister(target)?.into_memory().unwrap().into_vec(), b"a message");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Mapped {
    peer: Peer,
    registry: Registry,
    /// The peer's segments, the one used last at the end.
    maps: VecDeque<Map>,
}

/// A segment of the peer, by the kernel's numbers of its file. They are its own as long as the map keeps it.
#[derive(Debug)]
struct Map {
    device: u64,
    inode: u64,
    region: Region,
}

/// Memory that can be registered for [`Mapped`]: a source from [`Mechanism::allocate`], or any target.
#[derive(Debug)]
pub struct MappedMemory {
    /// The parts, which lie in the segment if there is one.
    memory: Memory,
    segment: Option<Shared>,
}

#[derive(Debug)]
struct Shared {
    segment: Arc<Segment>,
    /// Keeps the parts mapped.
    region: Region,
    /// Where the parts lie in the segment.
    parts: Vec<Stretch>,
}

impl From<Memory> for MappedMemory {
    fn from(memory: Memory) -> Self {
        Self { memory, segment: None }
    }
}

impl MappedMemory {
    /// The memory that it was made of.
    ///
    /// # Errors
    /// This memory, if [`Mechanism::allocate`] has made it as a source.
    pub fn into_memory(self) -> Result<Memory, Self> {
        if self.segment.is_none() { Ok(self.memory) } else { Err(self) }
    }
}

impl Source for MappedMemory {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn fill(&self, offset: u64, target: &mut Fragment<'_>) {
        self.memory.fill(offset, target);
    }

    fn stretches(&self, each: &mut dyn FnMut(Stretch)) {
        self.memory.stretches(each);
    }
}

impl Sink for MappedMemory {
    fn room(&self) -> usize {
        self.memory.room()
    }

    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        self.memory.put(at, source)
    }

    fn landing(&mut self) -> Landing<'_> {
        self.memory.landing()
    }
}

const KIND: Kind = Kind::Mapped;

impl Mechanism for Mapped {
    const NAME: &'static str = "mapped memory";
    const LOCAL: Role = Role::Target;
    type Link = ();
    type Memory = MappedMemory;

    fn initialise(peer: Peer, role: Role, (): ()) -> Result<Self, Reason> {
        let mapped = Self { peer, registry: Registry::new(KIND, role)?, maps: VecDeque::new() };
        mapped.possible()?;
        Ok(mapped)
    }

    fn finalise(self) {}

    fn possible(&self) -> Result<(), Reason> {
        if self.peer.has_ended() {
            return Err(Reason::Ended);
        }
        // Sealed memory needs Linux 5.1, and a filter may refuse it.
        match self.registry.role() {
            Role::Source => {
                Ok(Segment::create(PAGE_BYTES as u64, MemoryOptions::default()).map(drop)?)
            }
            Role::Target => Ok(()),
        }
    }

    fn allocate(&mut self, parts: &[usize]) -> Result<MappedMemory, RegisterError> {
        if self.registry.role() == Role::Target {
            return Ok(piece::allocate(parts).into());
        }
        if parts.len() > PARTS_MAX {
            return Err(RegisterError::Parts { asked: parts.len(), max: PARTS_MAX });
        }
        let mut end = PAGE_BYTES as u64;
        let mut places = Vec::with_capacity(parts.len());
        for &part in parts {
            places.push(Stretch { address: end, bytes: part as u64 });
            end = end
                .checked_add(part as u64)
                .and_then(|end| end.checked_next_multiple_of(LINE_BYTES as u64))
                .ok_or(too_large())?;
        }
        let bytes = end.checked_next_multiple_of(PAGE_BYTES as u64).ok_or(too_large())?;
        let (segment, region) = Segment::create(bytes, MemoryOptions::default())?;
        let pins: Vec<_> = places.iter().map(|&part| pin(&region, part)).collect();
        // SAFETY: the parts lie in the region, which is kept beside them, and do not overlap. No other process can write
        // there, and this process uses them through this value alone.
        let memory = unsafe { Memory::pinned_parts(&pins) };
        let shared = Shared { segment: Arc::new(segment), region, parts: places };
        Ok(MappedMemory { memory, segment: Some(shared) })
    }

    fn register(
        &mut self,
        memory: MappedMemory,
    ) -> Result<Piece<MappedMemory>, NotRegistered<MappedMemory>> {
        let role = self.registry.role();
        let piece = self.registry.register(memory, |memory| match (&memory.segment, role) {
            (Some(shared), Role::Source) => Ok(Extra {
                stretches: Some(shared.parts.clone()),
                descriptor: Some(Arc::clone(&shared.segment) as _),
                ..Extra::default()
            }),
            (None, Role::Source) => Err(RegisterError::NotAllocated),
            (_, Role::Target) => Ok(Extra::default()),
        })?;
        if let Some(shared) = &piece.memory.segment {
            // The description, which the other side gets later, publishes it, with what lies in the memory.
            shared.region.word64(0).store(piece.number, Relaxed);
        }
        Ok(piece)
    }

    fn deregister(
        &mut self,
        piece: Piece<MappedMemory>,
    ) -> Result<MappedMemory, Busy<MappedMemory>> {
        if let Some(shared) = &piece.memory.segment {
            shared.region.word64(0).store(0, Relaxed);
            // Pairs with the fence in `View::step`: who has read anything that is written from now on finds that the
            // number is gone.
            fence(Release);
        }
        Ok(self.registry.deregister(piece))
    }

    fn copy_local(
        &mut self,
        piece: &mut Piece<MappedMemory>,
        other: &Description,
    ) -> Result<Step, CopyError> {
        piece.check(KIND, Role::Target)?;
        let mut view = match std::mem::replace(&mut piece.copying, Copying::Nothing) {
            Copying::Viewing(view) => view,
            _ => {
                let source = Described::parse(other, KIND, Role::Source)?;
                piece::check_room(source.bytes, piece.bytes())?;
                let region = self.map(other)?;
                check_parts(&source.place, region.bytes() as u64)?;
                let Described { number, bytes, place, .. } = source;
                View { region, number, place, bytes, done: 0 }
            }
        };
        let step = view.step(&mut piece.memory)?;
        if step == Step::More {
            piece.copying = Copying::Viewing(view);
        }
        Ok(step)
    }

    fn copy_remote(
        &mut self,
        piece: &mut Piece<MappedMemory>,
        other: &Description,
    ) -> Result<Step, CopyError> {
        piece.check(KIND, Role::Source)?;
        Described::parse(other, KIND, Role::Target)?;
        Ok(Step::Done(piece.bytes()))
    }
}

impl Mapped {
    /// The peer's segment, mapped.
    fn map(&mut self, other: &Description) -> Result<Region, CopyError> {
        let missing = CopyError::Unexpected { what: "the number of descriptors", found: 0 };
        let descriptor = other.descriptor.as_ref().ok_or(missing)?;
        let failed = |call, error: OsError| CopyError::System { call, errno: error.errno };
        let status = rustix::fs::fstat(descriptor.as_fd())
            .map_err(|errno| CopyError::System { call: "fstat", errno: errno.raw_os_error() })?;
        let (device, inode) = (status.st_dev, status.st_ino);
        let known = self.maps.iter().position(|map| (map.device, map.inode) == (device, inode));
        if let Some(map) = known.and_then(|index| self.maps.remove(index)) {
            let region = map.region.clone();
            self.maps.push_back(map);
            return Ok(region);
        }
        let copy =
            Descriptor::make(|| descriptor.as_fd().try_clone_to_owned()).map_err(|error| {
                CopyError::System { call: "dup", errno: error.raw_os_error().unwrap_or(libc::EIO) }
            })?;
        let region = Segment::adopt(copy, false)
            .and_then(|segment| segment.map(PAGE_BYTES as u64))
            .map_err(|error| match error {
                SegmentError::Seals { found, .. } => {
                    CopyError::Unexpected { what: "the seals of a segment", found: found.into() }
                }
                SegmentError::Size { found, .. } => {
                    CopyError::Unexpected { what: "the size of a segment", found }
                }
                SegmentError::Os(error) => failed("mmap", error),
                _ => CopyError::Unexpected { what: "a segment", found: 0 },
            })?;
        if self.maps.len() >= MAPS_MAX {
            self.maps.pop_front();
        }
        self.maps.push_back(Map { device, inode, region: region.clone() });
        Ok(region)
    }
}

/// Checks that the parts lie in a segment of this size, behind its first page.
fn check_parts(place: &MemoryPlace, bytes: u64) -> Result<(), CopyError> {
    for part in &place.stretches {
        let is_inside = part.address >= PAGE_BYTES as u64
            && part.address.checked_add(part.bytes).is_some_and(|end| end <= bytes);
        if !is_inside {
            return Err(CopyError::Unexpected {
                what: "the offset of a part in the segment",
                found: part.address,
            });
        }
    }
    Ok(())
}

/// Where a part lies that is inside the region.
#[expect(clippy::cast_possible_truncation, reason = "inside a region of this process")]
fn pin(region: &Region, part: Stretch) -> (NonNull<u8>, usize) {
    let (base, _) = region.address();
    // SAFETY: inside the region, as the callers have checked, or have made it.
    let at = unsafe { base.add(part.address as usize) };
    (at, part.bytes as usize)
}

#[expect(clippy::cast_possible_truncation, reason = "an address of this machine")]
fn address_of(stretch: Stretch) -> usize {
    stretch.address as usize
}

fn too_large() -> RegisterError {
    let what = "allocate mapped memory beyond the address space".into();
    RegisterError::Os(OsError { what, errno: libc::EOVERFLOW })
}

impl View {
    /// Copies the next bytes.
    fn step(&mut self, target: &mut MappedMemory) -> Result<Step, CopyError> {
        let bytes = STEP_BYTES.min(self.bytes - self.done);
        let landing = target.landing();
        let parts = self.place.stretches.iter().copied();
        let mut walk = BothWalks::new(landing.stretches_all(), parts, self.done, bytes);
        while let Some((here, there)) = walk.next_pair() {
            let (source, count) = pin(&self.region, there);
            let target = std::ptr::with_exposed_provenance_mut::<u8>(address_of(here));
            // SAFETY: the part lies in the region, as `check_parts` has found; the target belongs to `landing` alone. The
            // peer may write the source meanwhile: what is copied then is any mixture.
            unsafe { copying::copy(NextReader::Own, source.as_ptr(), target, count) };
        }
        let is_short = walk.left() > 0;
        drop(walk);
        if is_short {
            return Err(CopyError::NotMapped);
        }
        self.done += bytes;
        // Pairs with the fence in `deregister`: the number is read after the bytes.
        fence(Acquire);
        if self.region.word64(0).load(Relaxed) != self.number {
            return Err(CopyError::Deregistered);
        }
        if self.done < self.bytes {
            return Ok(Step::More);
        }
        // SAFETY: all of it has been copied.
        unsafe { landing.set_written(usize::try_from(self.bytes).unwrap_or(usize::MAX)) };
        Ok(Step::Done(self.bytes))
    }
}
