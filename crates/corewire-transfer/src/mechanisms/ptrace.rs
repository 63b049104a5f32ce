//! Copies as a debugger makes them: the receiver stops the sender (`ptrace`), reads its memory, and lets it go on.
//!
//! The paper attaches, reads `/proc/<pid>/mem`, and detaches. Since Linux 2.6.39 the file can be read without attaching,
//! by any process that might attach; so the stop adds nothing but its cost, and shows what the paper measured: while the receiver
//! copies, the sender does nothing else. Two things differ from the paper:
//!
//! - The receiver seizes the sender (`PTRACE_SEIZE`) and interrupts it. `PTRACE_ATTACH` would send it a `SIGSTOP`, which
//!   stays if the receiver dies before it has detached: the sender would be stopped for good. A seized process goes on
//!   when its tracer ends, for any reason.
//! - It detaches after each step of at most 1 MiB, also if the copy fails. A signal that arrives at the sender while it
//!   is stopped is handed on.
//!
//! Only the sender's first thread is stopped. A process has one tracer: this one is refused while a debugger is attached,
//! and a debugger while this one is. If the sender is the receiver's child, no other thread of the receiver may wait for
//! any child (`waitpid(-1, ..)`) during a step: it could take the stop's report.
//!
//! Source: Buntinas and others, II-C.
//!
//! | | cost of a message of n bytes |
//! |---|---|
//! | register, deregister | no system call |
//! | source | stopped and woken for each MiB |
//! | target | n bytes copied twice, through a page of the kernel's; for each MiB 7 system calls, and one for each part |

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use corewire_layout::rendezvous::Stretch;
use corewire_os::fork::Descriptor;
use corewire_ring::message::{Memory, Sink};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, retry_on_intr};

use crate::kernel_copy::Refusal;
use crate::mechanisms::kernel_get::read_step;
use crate::mechanisms::mechanism::{Busy, Mechanism, Peer};
use crate::mechanisms::outcome::{CopyError, NotRegistered, RegisterError, Role, Step};
use crate::mechanisms::permission::{self, Call, Reason};
use crate::mechanisms::piece::{
    self, Described, Description, Extra, Kind, Piece, Reading, Registry,
};
use crate::mechanisms::trace_call::{request, try_call};
use crate::walks::BothWalks;

/// Copies of the memory of a process that is stopped meanwhile.
///
/// # Example
/// ```
/// use corewire_transfer::mechanisms::{Mechanism, Peer, Ptrace, Reason, Role};
///
/// // A process cannot stop itself and go on.
/// let ptrace = Ptrace::initialise(Peer::own()?, Role::Target, ());
/// assert_eq!(ptrace.unwrap_err(), Reason::SameProcess);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Ptrace {
    peer: Peer,
    registry: Registry,
}

const KIND: Kind = Kind::Ptrace;

impl Mechanism for Ptrace {
    const NAME: &'static str = "ptrace";
    const LOCAL: Role = Role::Target;
    type Link = ();
    type Memory = Memory;

    fn initialise(peer: Peer, role: Role, (): ()) -> Result<Self, Reason> {
        let ptrace = Self { peer, registry: Registry::new(KIND, role)? };
        ptrace.possible()?;
        Ok(ptrace)
    }

    fn finalise(self) {}

    /// Does not attach. Attaching may still be refused.
    fn possible(&self) -> Result<(), Reason> {
        if self.peer.is_here() {
            return Err(Reason::SameProcess);
        }
        if self.registry.role() == Role::Source {
            return Ok(());
        }
        let pid = self.peer.pid();
        let tried = try_call().and_then(|()| open_memory(pid).map(drop));
        tried.map_err(|refusal| permission::explain(pid, Call::Ptrace, refusal))
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
        read_step(peer, Call::Ptrace, KIND, piece, other, |reading, memory, bytes| {
            let stopped = Stopped::stop(peer).map_err(|refusal| (0, refusal))?;
            let read = stopped.read(reading, memory, bytes);
            drop(stopped);
            read.map_err(|refusal| (0, refusal))
        })
    }

    fn copy_remote(&mut self, piece: &mut Piece, other: &Description) -> Result<Step, CopyError> {
        piece.check(KIND, Role::Source)?;
        Described::parse(other, KIND, Role::Target)?;
        Ok(Step::Done(piece.bytes()))
    }
}

/// Opens the memory of process `pid`.
fn open_memory(pid: u32) -> Result<Descriptor, Refusal> {
    if pid == 0 {
        return Err(Refusal::Invisible);
    }
    let path = format!("/proc/{pid}/mem");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let make = || retry_on_intr(|| open(path.as_str(), flags, Mode::empty()));
    Descriptor::make(make).map_err(|errno| match errno {
        Errno::NOENT => Refusal::NoProcess,
        Errno::PERM | Errno::ACCESS => Refusal::NotPermitted,
        errno => Refusal::Other(errno.raw_os_error()),
    })
}

/// A process that this thread has stopped. It goes on when this value is dropped, or when this process ends.
struct Stopped {
    pid: libc::pid_t,
    memory: Descriptor,
    /// The signal that it was about to receive, or 0.
    signal: usize,
}

impl Stopped {
    fn stop(peer: &Peer) -> Result<Self, Refusal> {
        let pid = libc::pid_t::try_from(peer.pid()).map_err(|_| Refusal::Invisible)?;
        let memory = open_memory(peer.pid())?;
        request(libc::PTRACE_SEIZE, pid, 0)?;
        // From here on the drop detaches. That needs a stop: nothing below returns without one, unless the process has
        // ended.
        let mut stopped = Self { pid, memory, signal: 0 };
        request(libc::PTRACE_INTERRUPT, pid, 0)?;
        stopped.signal = wait_for_stop(pid)?;
        // It is the peer, if the peer lives: a process that is traced keeps its number.
        if peer.has_ended() { Err(Refusal::NoProcess) } else { Ok(stopped) }
    }

    fn read(&self, reading: &Reading, memory: &mut Memory, bytes: u64) -> Result<(), Refusal> {
        let landing = memory.landing();
        let source = reading.place.stretches.iter().copied();
        let mut walk = BothWalks::new(landing.stretches_all(), source, reading.done, bytes);
        while let Some((here, there)) = walk.next_pair() {
            // SAFETY: the stretch belongs to `landing` alone.
            unsafe { self.read_at(there.address, here) }?;
        }
        if walk.left() > 0 {
            return Err(Refusal::NotMapped);
        }
        let mut token = [0u8; size_of::<u128>()];
        let here = Stretch {
            address: token.as_mut_ptr().expose_provenance() as u64,
            bytes: token.len() as u64,
        };
        // SAFETY: a local array.
        unsafe { self.read_at(reading.place.cookie, here) }.map_err(|_| Refusal::OtherProcess)?;
        reading.remote.check_cookie(token)
    }

    /// Reads `here.bytes` bytes from this address of the process.
    ///
    /// # Safety
    /// `here` is writable memory of this process, which nothing else uses.
    #[expect(clippy::cast_possible_truncation, reason = "an address and a length of this machine")]
    unsafe fn read_at(&self, address: u64, here: Stretch) -> Result<(), Refusal> {
        let (mut done, fd) = (0, self.memory.as_fd().as_raw_fd());
        while done < here.bytes {
            let target = std::ptr::with_exposed_provenance_mut((here.address + done) as usize);
            let offset = address.wrapping_add(done).cast_signed();
            // SAFETY: as the caller guarantees.
            let read = unsafe { libc::pread(fd, target, (here.bytes - done) as usize, offset) };
            match u64::try_from(read) {
                // The process has ended.
                Ok(0) => return Err(Refusal::NoProcess),
                Ok(read) => done += read,
                Err(_) => match Refusal::last() {
                    Refusal::Other(libc::EINTR) => {}
                    Refusal::Other(libc::EIO) => return Err(Refusal::NotMapped),
                    refusal => return Err(refusal),
                },
            }
        }
        Ok(())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It fails only if the process has ended.
        let _ = request(libc::PTRACE_DETACH, self.pid, self.signal);
    }
}

/// Waits until the process, which this thread has interrupted, has stopped. Returns the signal that it was about to
/// receive, or 0. If it has ended, leaves its status to its parent.
fn wait_for_stop(pid: libc::pid_t) -> Result<usize, Refusal> {
    let id = libc::id_t::try_from(pid).map_err(|_| Refusal::NoProcess)?;
    let flags = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL;
    loop {
        // SAFETY: an all-zero value is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: a local.
        if unsafe { libc::waitid(libc::P_PID, id, &raw mut info, flags) } != 0 {
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => continue,
                _ => return Err(Refusal::NoProcess),
            }
        }
        if info.si_code == libc::CLD_EXITED
            || info.si_code == libc::CLD_KILLED
            || info.si_code == libc::CLD_DUMPED
        {
            return Err(Refusal::NoProcess);
        }
        // SAFETY: `waitid` has filled in a report about a child.
        let status = unsafe { info.si_status() };
        // A stop by the interrupt has an event above the signal; a stop at a signal has the signal alone.
        return Ok(if status >> 8 == 0 { usize::try_from(status).unwrap_or(0) } else { 0 });
    }
}
