//! Kernel copy as a get: the receiver copies the message out of the sender's memory (`process_vm_readv`).
//!
//! One-sided: the sender does nothing, and need not be in a call. The receiver needs the right to read the sender's
//! memory. Its cache has the message afterwards; the sender's cache is hardly touched.
//!
//! Source: Buntinas and others, II-D (Kaput, a kernel module). What was a module is a system call since Linux 3.2. The
//! module pinned memory when it was registered; the call looks pages up each time, so registration costs nothing here.
//!
//! | | cost of a message of n bytes |
//! |---|---|
//! | register, deregister | no system call |
//! | source | nothing |
//! | target | n bytes copied once; one system call for each MiB, or for each 1023 parts; pages pinned 16 at a time |

use corewire_ring::message::{Memory, Sink};

use crate::kernel_copy::Refusal;
use crate::mechanisms::mechanism::{Busy, Mechanism, Peer};
use crate::mechanisms::outcome::{CopyError, NotRegistered, RegisterError, Role, Step};
use crate::mechanisms::permission::{Call, Reason, may_read};
use crate::mechanisms::piece::{
    self, Copying, Described, Description, Extra, Kind, Piece, Reading, Registry,
};
use crate::thresholds::ALONE_BYTES;

/// Copies by the kernel, made by the receiver.
///
/// # Example
/// ```
/// use corewire_ring::message::Memory;
/// use corewire_transfer::mechanisms::{KernelGet, Mechanism, Peer, Role, Step};
///
/// let own = Peer::own()?;
/// let mut sender = KernelGet::initialise(own.clone(), Role::Source, ())?;
/// let mut receiver = KernelGet::initialise(own, Role::Target, ())?;
/// // The parts on the two sides need not be the same.
/// let mut source = sender.register(Memory::from(vec![vec![1; 3], vec![2; 3]]))?;
/// let mut target = receiver.register(Memory::from(vec![vec![0; 2], vec![0; 4]]))?;
/// let (from, to) = (source.description(), target.description());
/// assert_eq!(sender.copy_remote(&mut source, &to)?, Step::Done(6));
/// assert_eq!(receiver.copy_local(&mut target, &from)?, Step::Done(6));
/// assert_eq!(receiver.deregister(target)?.into_parts(), [vec![1, 1], vec![1, 2, 2, 2]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KernelGet {
    peer: Peer,
    registry: Registry,
}

const KIND: Kind = Kind::KernelGet;

impl Mechanism for KernelGet {
    const NAME: &'static str = "kernel get";
    const LOCAL: Role = Role::Target;
    type Link = ();
    type Memory = Memory;

    fn initialise(peer: Peer, role: Role, (): ()) -> Result<Self, Reason> {
        let get = Self { peer, registry: Registry::new(KIND, role)? };
        get.possible()?;
        Ok(get)
    }

    fn finalise(self) {}

    fn possible(&self) -> Result<(), Reason> {
        match self.registry.role() {
            // Only the target knows whether it may read.
            Role::Source => Ok(()),
            Role::Target => may_read(self.peer.pid()),
        }
    }

    fn allocate(&mut self, parts: &[usize]) -> Result<Memory, RegisterError> {
        Ok(piece::allocate(parts))
    }

    fn register(&mut self, memory: Memory) -> Result<Piece, NotRegistered<Memory>> {
        self.registry.register(memory, |_| Ok(Extra::default()))
    }

    fn deregister(&mut self, piece: Piece) -> Result<Memory, Busy<Memory>> {
        Ok(self.registry.deregister(piece))
    }

    fn copy_local(&mut self, piece: &mut Piece, other: &Description) -> Result<Step, CopyError> {
        let Self { peer, .. } = self;
        piece.check(KIND, Role::Target)?;
        read_step(peer, Call::Read, KIND, piece, other, |reading, memory, bytes| {
            let Reading { remote, place, done, .. } = reading;
            let landing = memory.landing();
            remote.read(place.cookie, &place.stretches, &landing, *done, bytes)
        })
    }

    fn copy_remote(&mut self, piece: &mut Piece, other: &Description) -> Result<Step, CopyError> {
        piece.check(KIND, Role::Source)?;
        Described::parse(other, KIND, Role::Target)?;
        Ok(Step::Done(piece.bytes()))
    }
}

/// The next part of a copy from the peer's memory by `call`, which `read` makes for so many bytes more.
pub(crate) fn read_step(
    peer: &Peer,
    call: Call,
    kind: Kind,
    piece: &mut Piece,
    other: &Description,
    read: impl FnOnce(&Reading, &mut Memory, u64) -> Result<(), (u64, Refusal)>,
) -> Result<Step, CopyError> {
    let mut reading = match std::mem::replace(&mut piece.copying, Copying::Nothing) {
        Copying::Reading(reading) => reading,
        _ => {
            let Described { bytes, token, place, .. } =
                Described::parse(other, kind, Role::Source)?;
            piece::check_room(bytes, piece.bytes())?;
            Reading { remote: peer.remote(token), place, bytes, done: 0 }
        }
    };
    let bytes = ALONE_BYTES.min(reading.bytes - reading.done);
    // An empty message has no bytes, but is registered or not.
    if bytes == 0 {
        let checked = reading.remote.check(reading.place.cookie);
        checked.map_err(|refusal| peer.refused(call, refusal))?;
    }
    if let Err((_, refusal)) = read(&reading, &mut piece.memory, bytes) {
        let is_gone = refusal == Refusal::NotMapped
            && reading.remote.check(reading.place.cookie) == Err(Refusal::OtherProcess);
        return Err(peer.refused(call, if is_gone { Refusal::OtherProcess } else { refusal }));
    }
    reading.done += bytes;
    if reading.done < reading.bytes {
        piece.copying = Copying::Reading(reading);
        return Ok(Step::More);
    }
    let written = usize::try_from(reading.bytes).unwrap_or(usize::MAX);
    // SAFETY: this side has copied them all.
    unsafe { piece.memory.landing().set_written(written) };
    Ok(Step::Done(reading.bytes))
}
