//! The interface that all mechanisms have, and what passes through it.
//!
//! These are the six operations of the benchmark of Buntinas and others, "Data Transfers between Processes in a SMP
//! System" (III-A): initialise, finalise, register memory, deregister it, copy at the *local* side, and copy at the
//! *remote* side. The local side is the one that starts the copy: the receiver, except for a put. In a one-sided
//! mechanism the remote side has nothing to do.
//!
//! Three things differ from the paper. Each operation does a part of the work and never waits, so that one thread can
//! serve several transfers and can notice a death. Each mechanism says whether it is possible here, because the kernel may
//! refuse it, for one peer, for one direction, at any time. And a piece of memory has a number, so that a copy from memory
//! that is no longer registered is an error.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;

use corewire_os::OsError;
use corewire_ring::message::{Sink, Source};

use crate::kernel_copy::{Refusal, Remote};
use crate::mechanisms::outcome::{CopyError, NotRegistered, RegisterError, Role, Step};
use crate::mechanisms::permission::{self, Call, Reason};
use crate::mechanisms::piece::{Description, Piece};

/// A way to move a message from the memory of one process to that of another one.
///
/// Both processes have a value, with opposite roles. Each registers a piece of memory and sends its description to the
/// other one. Then one side calls [`copy_local`](Self::copy_local) and the other side
/// [`copy_remote`](Self::copy_remote), until each has returned [`Step::Done`]. [`driver::move_message`] does all this.
///
/// A value serves one transfer at a time. It and its pieces belong to one thread at a time.
///
/// Source: Buntinas and others, III-A and Table I.
///
/// # Example
/// One process plays both sides; a copy by the kernel does not mind.
/// ```
/// use corewire_ring::message::Memory;
/// use corewire_transfer::mechanisms::{KernelGet, Mechanism, Peer, Role, Step};
///
/// let own = Peer::own()?;
/// let mut sender = KernelGet::initialise(own.clone(), Role::Source, ())?;
/// let mut receiver = KernelGet::initialise(own, Role::Target, ())?;
/// let source = sender.register(Memory::from(b"a message".as_slice()))?;
/// let mut target = receiver.register(Memory::from(vec![0; 9]))?;
/// assert_eq!(receiver.copy_local(&mut target, &source.description())?, Step::Done(9));
/// assert_eq!(receiver.deregister(target)?.into_vec(), b"a message");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`driver::move_message`]: crate::mechanisms::driver::move_message
pub trait Mechanism: Sized {
    /// Its name, for people.
    const NAME: &'static str;
    /// The role of the side that calls [`copy_local`](Self::copy_local).
    const LOCAL: Role;
    /// What it needs besides the peer: a pair of rings, or nothing.
    type Link;
    /// The memory that it can register.
    type Memory: Source + Sink + fmt::Debug;

    /// Prepares transfers with `peer`, in which this process has `role`.
    ///
    /// # Errors
    /// Why the mechanism is not possible with this peer in this direction.
    fn initialise(peer: Peer, role: Role, link: Self::Link) -> Result<Self, Reason>;

    /// Ends transfers with the peer. All pieces should have been deregistered: a piece that has not is kept from the
    /// other side's writes by its own drop, which waits for them, and its number is not used again.
    fn finalise(self) -> Self::Link;

    /// Asks again what [`initialise`](Self::initialise) asked: whether this process may do its part. The kernel may
    /// refuse a copy later although it has allowed this.
    ///
    /// # Errors
    /// Why not.
    fn possible(&self) -> Result<(), Reason>;

    /// Allocates zeroed memory that the mechanism can register, in parts of these lengths.
    ///
    /// # Errors
    /// [`RegisterError`] if there is no memory.
    fn allocate(&mut self, parts: &[usize]) -> Result<Self::Memory, RegisterError>;

    /// Registers memory: the other side may use it, once it has the [description](Piece::description).
    ///
    /// A piece serves any number of messages, one after the other. With [`KernelPut`](super::KernelPut) and
    /// [`BothSides`](super::BothSides) the piece of the source serves one, and is registered again for the next.
    ///
    /// # Errors
    /// [`NotRegistered`], with the memory.
    fn register(
        &mut self,
        memory: Self::Memory,
    ) -> Result<Piece<Self::Memory>, NotRegistered<Self::Memory>>;

    /// Takes memory back. From now on the other side gets [`CopyError::Deregistered`].
    ///
    /// # Errors
    /// [`Busy`], with the piece, while the other side writes to the memory, or counts on the rest of a message that
    /// it has received in part. Try again, after [`copy_remote`](Self::copy_remote) in the second case. If the peer ends,
    /// this ends, too.
    fn deregister(
        &mut self,
        piece: Piece<Self::Memory>,
    ) -> Result<Self::Memory, Busy<Self::Memory>>;

    /// The local side's next part of the copy between `piece` and the memory that the other side has described. All calls
    /// for one copy must give the same description. After an error the copy is over.
    ///
    /// # Errors
    /// [`CopyError`].
    fn copy_local(
        &mut self,
        piece: &mut Piece<Self::Memory>,
        other: &Description,
    ) -> Result<Step, CopyError>;

    /// The remote side's next part. In a one-sided mechanism it is done at once.
    ///
    /// # Errors
    /// [`CopyError`].
    fn copy_remote(
        &mut self,
        piece: &mut Piece<Self::Memory>,
        other: &Description,
    ) -> Result<Step, CopyError>;
}

/// The process at the other end.
#[derive(Debug, Clone)]
pub struct Peer {
    pid: u32,
    remote: Remote,
}

impl Peer {
    /// Process `pid`, 0 if it is not visible in this PID namespace; `life` becomes readable when it has ended. Both should
    /// come from the same source, such as the peer's socket.
    #[must_use]
    pub fn new(pid: u32, life: Arc<dyn AsFd + Send + Sync>) -> Self {
        Self { pid, remote: Remote::new(pid, 0).with_life(life) }
    }

    /// This process, for transfers between its threads.
    ///
    /// # Errors
    /// [`OsError`] before Linux 5.3, or without a free descriptor.
    pub fn own() -> Result<Self, OsError> {
        Ok(Self::new(std::process::id(), Arc::new(corewire_os::process::own_life()?)))
    }

    /// Its number, 0 if it is not visible here.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has ended: all its threads, so that it writes nowhere any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.remote.has_ended(0)
    }

    /// Whether it is this process.
    pub(crate) fn is_here(&self) -> bool {
        self.remote.is_here()
    }

    /// The process, if `token` lies in its memory.
    pub(crate) fn remote(&self, token: u128) -> Remote {
        self.remote.clone().with_cookie(token)
    }

    /// The error of a copy by `call`.
    pub(crate) fn refused(&self, call: Call, refusal: Refusal) -> CopyError {
        match refusal {
            // The kernel has another answer for each call.
            _ if self.has_ended() => CopyError::PeerEnded,
            Refusal::NoProcess => CopyError::PeerEnded,
            Refusal::OtherProcess => CopyError::Deregistered,
            Refusal::NotMapped => CopyError::NotMapped,
            Refusal::Other(errno) => CopyError::System { call: call.name(), errno },
            Refusal::Invisible | Refusal::NotPermitted | Refusal::Unsupported => {
                CopyError::Refused(permission::explain(self.pid, call, refusal))
            }
        }
    }
}

/// A piece of memory that cannot be deregistered yet.
#[derive(Debug, thiserror::Error)]
#[error("the other side still uses the memory")]
pub struct Busy<M: fmt::Debug>(pub Box<Piece<M>>);
