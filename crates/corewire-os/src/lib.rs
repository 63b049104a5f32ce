//! corewire's use of Linux. Every system call of the data path and the control path is made here, except copies from one
//! process's memory to another's (`corewire-transfer`).
//!
//! | module | holds |
//! |---|---|
//! | [`memory`] | segments: memory that one process writes and others only read |
//! | [`sleep`] | barriers, sleeping and waking: the machine's [`Kernel`](corewire_ring::Kernel) |
//! | [`fork`] | the effect of a fork on all this |
//! | [`packet`] | packets of any bytes, with descriptors |
//! | [`socket`] | frames of the attach handshake, and the identity of the peer |
//! | [`stream`] | connected sockets whose bytes go straight to where a message is received |
//! | [`directory`] | the runtime directory: names, their owners, processes that wait for a name |
//! | [`access`] | the users that the directory is open to |
//! | [`event`] | waiting for many descriptors at once |
//! | [`process`] | limits, signals, deaths of processes |
//! | [`processor`] | cores, caches, pinning, the cost of a pause |
//! | [`probe`] | what this machine offers, for `corewire doctor` |
//! | [`report`] | who is told what ends nothing |
//! | [`allocations`] | an allocator that counts, for measurements |

pub mod access;
pub mod allocations;
mod available;
pub mod directory;
pub mod event;
pub mod file;
pub mod fork;
pub mod locked;
pub mod memory;
pub mod packet;
pub mod probe;
pub mod process;
pub mod processor;
pub mod report;
pub mod sleep;
pub mod socket;
pub mod stream;

use std::borrow::Cow;
use std::io;
use std::path::Path;

use rustix::io::Errno;

/// A system call that failed, and its purpose.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {}", io::Error::from_raw_os_error(*.errno))]
pub struct OsError {
    /// The operation that failed, and its object.
    pub what: Cow<'static, str>,
    /// The error number.
    pub errno: i32,
}

impl OsError {
    /// The error `errno` of the operation `what`.
    #[must_use]
    pub fn new(what: impl Into<Cow<'static, str>>, errno: Errno) -> Self {
        Self { what: what.into(), errno: errno.raw_os_error() }
    }

    /// Whether it is the error `errno`.
    #[must_use]
    pub fn is(&self, errno: Errno) -> bool {
        self.errno == errno.raw_os_error()
    }

    /// Whether the other end of a connection hung up (`EPIPE`, `ECONNRESET`).
    #[must_use]
    pub fn is_hang_up(&self) -> bool {
        self.is(Errno::PIPE) || self.is(Errno::CONNRESET)
    }
}

impl From<OsError> for io::Error {
    fn from(error: OsError) -> Self {
        let kind = Self::from_raw_os_error(error.errno).kind();
        Self::new(kind, error)
    }
}

/// Adds the purpose of a call to its error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl Into<Cow<'static, str>>) -> Result<T, OsError>;
}

impl<T> Doing<T> for Result<T, Errno> {
    fn doing(self, what: impl Into<Cow<'static, str>>) -> Result<T, OsError> {
        self.map_err(|errno| OsError::new(what, errno))
    }
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl Into<Cow<'static, str>>) -> Result<T, OsError> {
        self.map_err(|error| OsError {
            what: what.into(),
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        })
    }
}

/// Reads the text of the file at `path`. A forked child keeps no descriptor of it. From a file that is not a
/// regular file, reads what is available without waiting.
///
/// # Errors
/// The error of the failed call, or `InvalidData` if the text is not UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read_bytes(path)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// As [`read_text`], of any bytes.
pub(crate) fn read_bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = fork::Descriptor::make(|| open(path.as_ref(), flags, Mode::empty()))?;
    let mut text = Vec::new();
    loop {
        text.reserve(4096);
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut text)) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(text)
}

/// 128 random bits from the kernel.
///
/// # Errors
/// [`OsError`] if the kernel provides none.
pub fn random_u128() -> Result<u128, OsError> {
    let mut bytes = [0u8; 16];
    let flags = rustix::rand::GetRandomFlags::empty();
    let count = rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes[..], flags))
        .doing("random number")?;
    if count == bytes.len() {
        Ok(u128::from_le_bytes(bytes))
    } else {
        Err(OsError::new("random number", Errno::IO))
    }
}
