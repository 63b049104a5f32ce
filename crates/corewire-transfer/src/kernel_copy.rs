//! Copies by the kernel from and to another process's memory.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, OnceLock};

use corewire_layout::rendezvous::Stretch;
use corewire_ring::message::{Fragment, Landing, Source};
use libc::c_ulong;

use crate::detour::{Detour, is_slow};
use crate::walks::{BothWalks, Piece, vector_of};

const COOKIE_BYTES: usize = size_of::<u128>();
/// From here on, numbers of refusals hold an error's number.
const OTHER_CODE: u64 = 256;

/// Another process, as this one reaches its memory.
///
/// A process number may name another process by the time it is used, and a process may have replaced its memory
/// (`exec`). So each read also reads the *cookie*, 128 random bits at an address that the process has told. Before the
/// first write to a process its cookie is read, too, and before each further one the kernel is asked whether the process
/// has ended. (To read the cookie each time took 10 % of the time of a chunk.)
#[derive(Clone)]
pub struct Remote {
    pid: i32,
    /// It is the process that has made this value. (To ask the kernel each time takes a tenth of a short copy.)
    is_here: bool,
    cookie: u128,
    /// It has been the right process once.
    is_checked: Arc<OnceLock<()>>,
    /// Readable when the process has ended.
    life: Option<Arc<dyn AsFd + Send + Sync>>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// Why memory cannot be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The other process is not visible here: it belongs to another PID namespace.
    #[error("the process is not visible in this PID namespace")]
    Invisible,
    /// The kernel does not allow it (`EPERM`): another user namespace, a process that cannot be dumped, Yama, or a seccomp
    /// filter.
    #[error(
        "the kernel does not permit it (EPERM): user namespace, PR_SET_DUMPABLE, Yama or seccomp"
    )]
    NotPermitted,
    /// The kernel has no such call, or a filter hides it (`ENOSYS`).
    #[error("the kernel has no such call (ENOSYS), or seccomp hides it")]
    Unsupported,
    /// There is no such process any more.
    #[error("the process has ended")]
    NoProcess,
    /// The process of this number is another one by now, or has replaced its memory.
    #[error("the memory is another process's")]
    OtherProcess,
    /// A part of the memory is not there on one of the two sides (`EFAULT`).
    #[error("a part of the memory is not mapped")]
    NotMapped,
    /// Another error.
    #[error("error {0}")]
    Other(i32),
}

impl Refusal {
    /// Whether it says something about this machine, and not about one message or one process that has ended.
    #[must_use]
    pub const fn is_lasting(self) -> bool {
        matches!(self, Self::Invisible | Self::NotPermitted | Self::Unsupported | Self::Other(_))
    }

    /// Whether every other copy of this kind would be refused, too.
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::NotMapped)
    }

    /// Its number in shared memory: not 0.
    #[must_use]
    pub fn code(self) -> u64 {
        match self {
            Self::Invisible => 1,
            Self::NotPermitted => 2,
            Self::Unsupported => 3,
            Self::NoProcess => 4,
            Self::OtherProcess => 5,
            Self::NotMapped => 6,
            Self::Other(errno) => OTHER_CODE | u64::from(errno.unsigned_abs()),
        }
    }

    /// The refusal with this number; `None` if there is none.
    #[must_use]
    pub fn of_code(code: u64) -> Option<Self> {
        Some(match code {
            1 => Self::Invisible,
            2 => Self::NotPermitted,
            3 => Self::Unsupported,
            4 => Self::NoProcess,
            5 => Self::OtherProcess,
            6 => Self::NotMapped,
            code => Self::Other(i32::try_from(code.checked_sub(OTHER_CODE)?).ok()?),
        })
    }

    pub(crate) fn last() -> Self {
        match io::Error::last_os_error().raw_os_error().unwrap_or(0) {
            libc::EPERM | libc::EACCES => Self::NotPermitted,
            libc::ENOSYS => Self::Unsupported,
            libc::ESRCH => Self::NoProcess,
            libc::EFAULT => Self::NotMapped,
            other => Self::Other(other),
        }
    }
}

impl Remote {
    /// Process `pid`, 0 if it is not visible here, in whose memory `cookie` lies.
    #[must_use]
    pub fn new(pid: u32, cookie: u128) -> Self {
        let is_here = pid == std::process::id();
        let (pid, is_checked) = (i32::try_from(pid).unwrap_or(0), Arc::default());
        Self { pid, is_here, cookie, is_checked, life: None }
    }

    /// The same, with a descriptor that becomes readable when the process has ended.
    #[must_use]
    pub fn with_life(self, life: Arc<dyn AsFd + Send + Sync>) -> Self {
        Self { life: Some(life), ..self }
    }

    /// The same process, if it has this cookie instead. It has not been checked.
    pub(crate) fn with_cookie(self, cookie: u128) -> Self {
        Self { cookie, is_checked: Arc::default(), ..self }
    }

    /// Whether it is this process.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.is_here
    }

    /// Whether the process has ended, if that can be seen.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.life.is_some() && self.has_ended(0)
    }

    /// Waits for up to a millisecond until the process has ended. True if it has.
    pub(crate) fn wait_for_end(&self) -> bool {
        self.has_ended(1)
    }

    /// Whether the process has ended, or ends within so many milliseconds.
    pub(crate) fn has_ended(&self, limit_ms: i32) -> bool {
        // `poll` ignores descriptor -1, and only waits.
        let fd = self.life.as_ref().map_or(-1, |life| life.as_fd().as_raw_fd());
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, a local.
        let found = unsafe { libc::poll(&raw mut poll, 1, limit_ms) };
        // Another answer than that it is readable says that the call failed, not that the process has ended.
        found > 0 && poll.revents & libc::POLLIN != 0
    }

    /// Copies `bytes` bytes of its memory, from byte `from` of `source` on, to byte `from` of `target`. `cookie` is where its
    /// cookie lies.
    ///
    /// # Errors
    /// How many bytes were copied, and why no more.
    pub fn read(
        &self,
        cookie: u64,
        source: &[Stretch],
        target: &Landing<'_>,
        from: u64,
        bytes: u64,
    ) -> Result<(), (u64, Refusal)> {
        if self.pid == 0 {
            return Err((0, Refusal::Invisible));
        }
        let mut found = [0u8; COOKIE_BYTES];
        let there = Stretch { address: cookie, bytes: COOKIE_BYTES as u64 };
        let here = Stretch { address: found.as_mut_ptr().expose_provenance() as u64, ..there };
        let mut walk = BothWalks::new(target.stretches_all(), source.iter().copied(), from, bytes);
        let mut done = 0;
        while done < bytes {
            let mut piece = walk.next_piece(|local, remote| is_slow(remote, local));
            if piece.bytes == 0 {
                return Err((done, Refusal::NotMapped));
            }
            let detour = Detour::of(&mut piece);
            piece.push(here, there);
            // SAFETY: the local stretches belong to `target` alone, or to the detour, but for the last one, a local array;
            // the kernel checks the remote ones.
            let copied = unsafe {
                libc::process_vm_readv(
                    self.pid,
                    piece.local.as_ptr(),
                    piece.local.len() as c_ulong,
                    piece.remote.as_ptr(),
                    piece.remote.len() as c_ulong,
                    0,
                )
            };
            let Ok(copied) = u64::try_from(copied) else { return Err((done, Refusal::last())) };
            if copied < piece.bytes - there.bytes {
                // Not checked: the cookie comes last.
                return Err((done, Refusal::NotMapped));
            }
            if copied < piece.bytes {
                return Err((done, Refusal::OtherProcess));
            }
            self.check_cookie(found).map_err(|refusal| (done, refusal))?;
            if let Some(detour) = detour {
                // SAFETY: it was the piece's, and belongs to `target` alone.
                unsafe { detour.arrive() };
            }
            done += piece.bytes - there.bytes;
        }
        Ok(())
    }

    /// Copies the `bytes` bytes of `source` to the beginning of `target`. `cookie` is where its cookie lies.
    ///
    /// # Errors
    /// Why not all of them were copied.
    pub fn read_whole(
        &self,
        cookie: u64,
        source: &[Stretch],
        target: Landing<'_>,
        bytes: u64,
    ) -> Result<(), Refusal> {
        self.read(cookie, source, &target, 0, bytes).map_err(|(_, refusal)| refusal)?;
        // SAFETY: the kernel has written them.
        unsafe { target.set_written(usize::try_from(bytes).unwrap_or(0)) };
        Ok(())
    }

    /// Checks what was read as its cookie.
    pub(crate) fn check_cookie(&self, found: [u8; COOKIE_BYTES]) -> Result<(), Refusal> {
        let is_right = u128::from_le_bytes(found) == self.cookie;
        if is_right { Ok(()) } else { Err(Refusal::OtherProcess) }
    }

    /// Checks that it is the process that has this cookie, and that its memory can be read.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, cookie: u64) -> Result<(), Refusal> {
        let mut found = [0u8; COOKIE_BYTES];
        let source = [Stretch { address: cookie, bytes: COOKIE_BYTES as u64 }];
        let landing = Landing::of_slice(&mut found);
        self.read(cookie, &source, &landing, 0, COOKIE_BYTES as u64).map_err(|(_, refusal)| refusal)
    }

    /// Copies `bytes` bytes of this process's memory, from byte `from` of `source` on, to byte `from` of `target` in its
    /// memory. `cookie` is where its cookie lies.
    ///
    /// # Errors
    /// Why not all of it was copied.
    pub fn write(
        &self,
        cookie: u64,
        source: &[Stretch],
        target: &[Stretch],
        from: u64,
        bytes: u64,
    ) -> Result<(), Refusal> {
        self.begin_writing(cookie)?;
        let (source, target) = (source.iter().copied(), target.iter().copied());
        let mut walk = BothWalks::new(source, target, from, bytes);
        while walk.left() > 0 {
            self.write_piece(&walk.next_piece(|_, _| false))?;
        }
        Ok(())
    }

    /// Copies all of `source` to the beginning of `target` in its memory. `cookie` is where its cookie lies.
    ///
    /// # Errors
    /// Why not all of it was copied.
    pub fn write_whole(
        &self,
        cookie: u64,
        source: &impl Source,
        target: &[Stretch],
    ) -> Result<(), Refusal> {
        self.begin_writing(cookie)?;
        let mut from = Vec::new();
        source.stretches(&mut |stretch| from.push(stretch));
        let target = target.iter().copied();
        let mut walk = BothWalks::new(from.into_iter(), target, 0, source.bytes());
        let mut done = 0;
        while walk.left() > 0 {
            let mut piece = walk.next_piece(is_slow);
            let mut detour = Detour::of(&mut piece);
            if let Some(detour) = &mut detour {
                source.fill(done, &mut Fragment::private(detour.between()));
            }
            self.write_piece(&piece)?;
            done += piece.bytes;
        }
        Ok(())
    }

    /// Whether something may be written to it.
    fn begin_writing(&self, cookie: u64) -> Result<(), Refusal> {
        if self.is_here() {
            return Err(Refusal::OtherProcess);
        }
        if self.is_checked.get().is_none() {
            self.check(cookie)?;
            self.is_checked.get_or_init(|| ());
        } else if self.has_ended(0) {
            return Err(Refusal::NoProcess);
        }
        Ok(())
    }

    /// Writes a piece, after [`begin_writing`](Self::begin_writing).
    fn write_piece(&self, piece: &Piece) -> Result<(), Refusal> {
        if piece.bytes == 0 {
            return Err(Refusal::NotMapped);
        }
        // SAFETY: the kernel only reads the local stretches, and checks both. It writes to another process, as
        // `is_here` has found, which has asked for this.
        let copied = unsafe {
            libc::process_vm_writev(
                self.pid,
                piece.local.as_ptr(),
                piece.local.len() as c_ulong,
                piece.remote.as_ptr(),
                piece.remote.len() as c_ulong,
                0,
            )
        };
        match u64::try_from(copied) {
            Ok(copied) if copied == piece.bytes => Ok(()),
            Ok(_) => Err(Refusal::NotMapped),
            Err(_) => Err(Refusal::last()),
        }
    }
}

/// An address that no process can map: the kernel looks at it only after it has found that this process may reach the
/// other one's memory.
const NOWHERE: Stretch = Stretch { address: u64::MAX - 4095, bytes: 1 };

/// Asks whether this process may read the memory of process `pid`, 0 if it is not visible. Reads nothing.
///
/// # Errors
/// Why not.
pub(crate) fn try_read(pid: u32) -> Result<(), Refusal> {
    let mut byte = 0u8;
    let here = Stretch { address: (&raw mut byte).expose_provenance() as u64, bytes: 1 };
    let (here, there) = (vector_of(here), vector_of(NOWHERE));
    // SAFETY: one local byte, and an address that is not mapped.
    let copied =
        unsafe { libc::process_vm_readv(known(pid)?, &raw const here, 1, &raw const there, 1, 0) };
    tried(copied)
}

/// Asks whether this process may write to the memory of process `pid`, 0 if it is not visible. Writes nothing.
///
/// # Errors
/// Why not.
pub(crate) fn try_write(pid: u32) -> Result<(), Refusal> {
    let byte = 0u8;
    let here = Stretch { address: (&raw const byte).expose_provenance() as u64, bytes: 1 };
    let (here, there) = (vector_of(here), vector_of(NOWHERE));
    // SAFETY: one local byte, and an address that is not mapped.
    let copied =
        unsafe { libc::process_vm_writev(known(pid)?, &raw const here, 1, &raw const there, 1, 0) };
    tried(copied)
}

fn known(pid: u32) -> Result<i32, Refusal> {
    i32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(Refusal::Invisible)
}

fn tried(copied: isize) -> Result<(), Refusal> {
    match Refusal::last() {
        _ if copied >= 0 => Ok(()),
        Refusal::NotMapped => Ok(()),
        refusal => Err(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewire_ring::message::Sink;
    use proptest::prelude::*;

    fn stretch_of(bytes: &[u8]) -> Stretch {
        Stretch { address: bytes.as_ptr().expose_provenance() as u64, bytes: bytes.len() as u64 }
    }

    #[test]
    fn another_cookie_is_another_process() {
        let (cookie, source, mut target) = (7u128.to_le_bytes(), [5u8; 64], [0u8; 64]);
        let (me, here) = (std::process::id(), stretch_of(&cookie));
        let landing = Landing::of_slice(&mut target);
        let read =
            |remote: Remote, cookie| remote.read(cookie, &[stretch_of(&source)], &landing, 0, 64);
        assert_eq!(read(Remote::new(me, 8), here.address), Err((0, Refusal::OtherProcess)));
        assert_eq!(read(Remote::new(me, 7), 16), Err((0, Refusal::OtherProcess)));
        assert_eq!(read(Remote::new(0, 7), here.address), Err((0, Refusal::Invisible)));
        assert_eq!(
            read(Remote::new(i32::MAX as u32, 7), here.address),
            Err((0, Refusal::NoProcess))
        );
        assert_eq!(read(Remote::new(me, 7), here.address), Ok(()));
        assert_eq!(target, source);
    }

    #[test]
    fn refusals_have_numbers() {
        use Refusal::{
            Invisible, NoProcess, NotMapped, NotPermitted, Other, OtherProcess, Unsupported,
        };
        let all =
            [Invisible, NotPermitted, Unsupported, NoProcess, OtherProcess, NotMapped, Other(38)];
        assert_eq!(all.map(|it| Refusal::of_code(it.code())), all.map(Some));
        assert_eq!([0, 7, 255, u64::MAX].map(Refusal::of_code), [None; 4]);
    }

    #[test]
    fn a_hole_in_the_source_is_named() {
        let (cookie, mut target) = (7u128.to_le_bytes(), vec![0u8; 8192]);
        let source = vec![9u8; 4096];
        let hole = Stretch { address: 8, bytes: 4096 };
        let landing = Landing::of_slice(&mut target);
        let remote = Remote::new(std::process::id(), 7);
        let read = remote.read(
            stretch_of(&cookie).address,
            &[stretch_of(&source), hole],
            &landing,
            0,
            8192,
        );
        assert_eq!(read, Err((0, Refusal::NotMapped)));
    }

    /// Memory in which something begins `at` bytes into a page.
    fn in_page(bytes: usize, at: usize) -> (Vec<u8>, usize) {
        let memory = vec![0u8; bytes + 4096];
        let at = at.wrapping_sub(memory.as_ptr().addr()) % 4096;
        (memory, at)
    }

    // Some of these take a detour, where the processor makes one worth it.
    #[test]
    fn bytes_are_the_same_wherever_both_sides_begin_in_a_page() {
        let (cookie, remote) = (7u128.to_le_bytes(), Remote::new(std::process::id(), 7));
        for bytes in [2047, 2048, 5000, 300_000, 600_001] {
            for (there, here) in [(0, 0), (0, 16), (16, 0), (4090, 5), (0, 31), (0, 32), (100, 101)]
            {
                let (mut source, source_at) = in_page(bytes, there);
                let (mut target, target_at) = in_page(bytes, here);
                source.iter_mut().zip((0..251u8).cycle()).for_each(|(byte, value)| *byte = value);
                let source = &source[source_at..][..bytes];
                let landing = Landing::of_slice(&mut target[target_at..][..bytes]);
                // Two stretches: one of a few bytes, and the rest.
                let parts = [stretch_of(&source[..40]), stretch_of(&source[40..])];
                let read =
                    remote.read(stretch_of(&cookie).address, &parts, &landing, 0, bytes as u64);
                assert_eq!(read, Ok(()));
                assert!(target[target_at..][..bytes] == *source, "{bytes} from {there} to {here}");
            }
        }
    }

    proptest! {
        #[test]
        fn lists_are_copied_from_any_byte(
            source in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..1500),
            cuts in proptest::collection::vec(0usize..60, 1..1500),
            from in 0usize..3000,
        ) {
            let whole: Vec<u8> = source.concat();
            let mut parts: Vec<Vec<u8>> = Vec::new();
            let mut left = whole.len();
            for cut in cuts {
                parts.push(vec![0; cut.min(left)]);
                left -= cut.min(left);
            }
            parts.push(vec![0; left]);
            let from = from.min(whole.len());
            let cookie = 7u128.to_le_bytes();
            let remote = Remote::new(std::process::id(), 7);
            let stretches: Vec<_> = source.iter().map(|part| stretch_of(part)).collect();
            let mut slices: Vec<&mut [u8]> = parts.iter_mut().map(Vec::as_mut_slice).collect();
            let landing = slices.as_mut_slice().landing();
            let bytes = (whole.len() - from) as u64;
            let read = remote.read(stretch_of(&cookie).address, &stretches, &landing, from as u64, bytes);
            prop_assert_eq!(read, Ok(()));
            let found = parts.concat();
            prop_assert_eq!(&found[from..], &whole[from..]);
            prop_assert!(found[..from].iter().all(|byte| *byte == 0));
        }
    }
}
