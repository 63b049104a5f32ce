//! The files of checkpoints: one directory for all ranks, one file for each checkpoint.
//!
//! ```text
//!  NAME.RANK.NUMBER
//!  0  "a checkpoint\0\0\0\0"  16 bytes
//! 16  version               u32
//! 20  checksum              u32, CRC-32 of the next 8 bytes and the first part
//! 24  length                u64: bytes of the first part
//! 32  checksum              u32, CRC-32 of the second part
//! 36  zeros
//! 40  the first part        what the protocol needs, in the format of the crate `postcard`
//!     the second part       the program's state
//! ```
//!
//! A file is on its disk before it has its name, so a file that has its name is whole. Until then it is called
//! `.NAME.RANK.new.*`. Each is written by its rank alone, for this user only, in a directory that no other user may write.
//!
//! All ranks of a computation hold a lock of the kernel in the file `NAME.lock`, which they share: in it is which domain they
//! are in. So a computation of the same name in another domain, such as another container, is refused as long as one
//! process of the first one lives, also if that is stopped.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_os::locked::SharedLock;
use corewire_os::process::effective_uid;
use corewire_os::random_u128;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::part::{Mark, recovery_line};
use crate::frame::{Command, decode, encode};
use crate::log_file::{is_random, sync_directory};
use crate::owner::words_of;

const MAGIC: &[u8; 16] = b"a checkpoint\0\0\0\0";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;

/// Why a checkpoint cannot be written or read.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointFileError {
    /// A system call failed.
    #[error("cannot {what} {path:?}: {}", io::Error::from_raw_os_error(*errno))]
    Os {
        /// What was tried.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error number.
        errno: i32,
    },
    /// The file is not what was once written. Nothing was changed.
    #[error("{0:?} is damaged, or is not a checkpoint")]
    Damaged(PathBuf),
    /// Processes of another domain have a computation of this name in the directory.
    #[error(
        "another domain has a computation {name:?} in {directory:?}: its processes hold the lock {lock:?}"
    )]
    InUse {
        /// The computation.
        name: String,
        /// The directory.
        directory: PathBuf,
        /// The file with the lock.
        lock: PathBuf,
    },
    /// While the computation ran, somebody has removed or replaced its lock, or the directory: others may write there.
    #[error(
        "the lock in {0:?}, or the directory, was removed or replaced while the computation ran"
    )]
    Replaced(PathBuf),
    /// Other users could read or replace what is in the directory.
    #[error(
        "{directory:?} belongs to user {owner} with mode {mode:o}: it must belong to this user ({user}), and no other one may write in it (chmod go-w)"
    )]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Its mode.
        mode: u32,
        /// The user of this process.
        user: u32,
    },
    /// A checkpoint is missing that the state to restore needs.
    #[error(
        "a checkpoint of rank {rank} with number {line} or a higher one is missing in {directory:?}"
    )]
    Missing {
        /// Where it should be.
        directory: PathBuf,
        /// The rank.
        rank: usize,
        /// The lowest number that would do.
        line: u64,
    },
    /// Another version of corewire has written it.
    #[error("{path:?} has version {found} of the format, and this is version {VERSION}")]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// It belongs to a computation with another number of ranks.
    #[error("{path:?} belongs to a computation of {found} ranks, this one has {own}")]
    Ranks {
        /// The file.
        path: PathBuf,
        /// How many ranks its computation has.
        found: usize,
        /// How many this one has.
        own: usize,
    },
}

/// The first part of a file.
#[derive(Debug, Serialize, Deserialize)]
struct First {
    rank: usize,
    before: u64,
    is_final: bool,
    mark: Mark<Command>,
}

/// A checkpoint.
#[derive(Debug, Clone)]
pub(super) struct Checkpoint {
    pub(super) mark: Mark<Command>,
    /// The number of the one before it. It is the first one with every number behind that, up to its own.
    pub(super) before: u64,
    /// The rank has finished.
    pub(super) is_final: bool,
    pub(super) state: Arc<Vec<u8>>,
}

/// How many messages of each rank a checkpoint of a rank has processed.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) rank: usize,
    pub(super) number: u64,
    pub(super) received: Vec<u64>,
}

/// The files of one rank, which is the only one that writes or removes them.
#[derive(Debug, Clone)]
pub(super) struct Files {
    directory: PathBuf,
    name: String,
    rank: usize,
    ranks: usize,
    lock: Arc<SharedLock>,
}

/// How long another process may be about to take or give up the lock.
const LOCK_WITHIN: Duration = Duration::from_secs(10);

/// Opens a checkpoint; anything but a file is none.
fn open_regular(path: &Path) -> Result<File, CheckpointFileError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match opened {
        // A link.
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(CheckpointFileError::Damaged(path.to_owned()));
        }
        opened => opened.map_err(failed("read", path))?,
    };
    match file.metadata().map_err(failed("read", path))?.is_file() {
        true => Ok(file),
        false => Err(CheckpointFileError::Damaged(path.to_owned())),
    }
}

fn failed<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl Fn(io::Error) -> CheckpointFileError + Copy + 'a {
    move |error| CheckpointFileError::Os {
        what,
        path: path.to_owned(),
        errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
    }
}

/// Makes room for so many bytes in all.
fn reserve(bytes: &mut Vec<u8>, length: u64) -> io::Result<()> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let reserved = bytes.try_reserve(length.saturating_sub(bytes.len()));
    reserved.map_err(|_| Errno::NOMEM.into())
}

fn checksum_of(length: &[u8], first: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(length);
    hasher.update(first);
    hasher.finalize()
}

impl Files {
    /// Makes the directory, for this user only, if it does not exist. Takes the lock for a computation in the domain with
    /// this runtime directory.
    pub(super) fn open(
        directory: &Path,
        domain: &Path,
        name: &str,
        rank: usize,
        ranks: usize,
        until: Option<Instant>,
    ) -> Result<Self, CheckpointFileError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(failed("make", directory))?;
        let is = directory.metadata().map_err(failed("find", directory))?;
        let (owner, mode, user) = (is.uid(), is.mode() & 0o7777, effective_uid());
        // By whatever path: a link may lead elsewhere by then.
        let directory = std::fs::canonicalize(directory).map_err(failed("find", directory))?;
        if owner != user || mode & 0o022 != 0 {
            return Err(CheckpointFileError::Directory { directory, owner, mode, user });
        }
        let lock = directory.join(format!("{name}.lock"));
        let words = words_of(domain).map_err(failed("find", domain))?;
        let within = Instant::now() + LOCK_WITHIN;
        let until = until.map_or(within, |until| until.min(within));
        let taken = SharedLock::take(&lock, words.as_bytes(), until);
        let name = name.to_owned();
        let Some(taken) = taken.map_err(failed("lock", &lock))? else {
            return Err(CheckpointFileError::InUse { name, directory, lock });
        };
        Ok(Self { directory, name, rank, ranks, lock: Arc::new(taken) })
    }

    /// The lock is that of the directory's processes as long as its file is where it was.
    fn check_lock(&self) -> Result<(), CheckpointFileError> {
        match self.lock.is_there().map_err(failed("find", &self.directory))? {
            true => Ok(()),
            false => Err(CheckpointFileError::Replaced(self.directory.clone())),
        }
    }

    /// What the names of this rank's files begin with until they are whole.
    fn prefix(&self) -> String {
        format!(".{}.{}.new.", self.name, self.rank)
    }

    /// Removes what a process has left that ended while it wrote a checkpoint. Only the rank itself does this.
    pub(super) fn sweep(&self) -> Result<(), CheckpointFileError> {
        let failed = failed("list", &self.directory);
        let (prefix, old) = (self.prefix(), format!("{}.{}.new", self.name, self.rank));
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let rest = name.as_encoded_bytes().strip_prefix(prefix.as_bytes());
            let is_its = rest.is_some_and(is_random) || name.as_encoded_bytes() == old.as_bytes();
            if is_its && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                // One that cannot be removed costs space, and nothing else.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    fn path(&self, rank: usize, number: u64) -> PathBuf {
        self.directory.join(format!("{}.{rank}.{number}", self.name))
    }

    /// The numbers of all checkpoints of each rank, in their order.
    fn all(&self) -> Result<BTreeMap<usize, Vec<u64>>, CheckpointFileError> {
        let failed = failed("list", &self.directory);
        let mut all: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name =
                name.to_str().and_then(|name| name.strip_prefix(&self.name)?.strip_prefix('.'));
            let Some(written) = name else { continue };
            let Some((rank, number)) = written.split_once('.') else { continue };
            let (Ok(rank), Ok(number)) = (rank.parse(), number.parse()) else { continue };
            // Not another file that looks like one.
            if format!("{rank}.{number}") == written {
                all.entry(rank).or_default().push(number);
            }
        }
        all.values_mut().for_each(|numbers| numbers.sort_unstable());
        Ok(all)
    }

    /// The number of this rank's newest checkpoint; 0 if there is none.
    pub(super) fn newest(&self) -> Result<u64, CheckpointFileError> {
        let all = self.all()?;
        let of = |rank| all.get(&rank).and_then(|numbers| numbers.last()).copied();
        Ok(of(self.rank).unwrap_or(0))
    }

    /// This rank's first checkpoint with this number or a higher one; nothing stands for the beginning. Removes those behind
    /// it.
    pub(super) fn restore(&self, line: u64) -> Result<Option<Checkpoint>, CheckpointFileError> {
        let numbers = self.all()?.remove(&self.rank).unwrap_or_default();
        let first = numbers.iter().copied().find(|number| line > 0 && *number >= line);
        let restored = first.map(|number| self.read(number)).transpose()?;
        // Those before the first one that is there were removed when no line needed them any more. If one does now, somebody
        // has removed files.
        let begins_at = match (&restored, numbers.first()) {
            (Some(restored), _) => Some(restored.before),
            (None, Some(oldest)) if line == 0 => Some(self.first_of(self.rank, *oldest)?.before),
            (None, _) => (line == 0).then_some(0),
        };
        if begins_at.is_none_or(|before| before >= line.max(1)) {
            let (directory, rank) = (self.directory.clone(), self.rank);
            return Err(CheckpointFileError::Missing { directory, rank, line });
        }
        self.check_lock()?;
        for number in numbers.into_iter().filter(|number| *number > first.unwrap_or(0)) {
            let path = self.path(self.rank, number);
            std::fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
        sync_directory(&self.path(self.rank, 0)).map_err(failed("write", &self.directory))?;
        Ok(restored)
    }

    fn read(&self, number: u64) -> Result<Checkpoint, CheckpointFileError> {
        let path = self.path(self.rank, number);
        let mut bytes = Vec::new();
        let mut file = open_regular(&path)?;
        let length = file.metadata().map_err(failed("read", &path))?.len();
        reserve(&mut bytes, length).map_err(failed("read", &path))?;
        file.read_to_end(&mut bytes).map_err(failed("read", &path))?;
        let (first, at) = self.first(&path, &bytes, self.rank)?;
        let sum = bytes.get(32..36).and_then(|sum| sum.try_into().ok()).map(u32::from_le_bytes);
        if first.mark.number != number || sum != bytes.get(at..).map(crc32fast::hash) {
            return Err(CheckpointFileError::Damaged(path));
        }
        let state = Arc::new(bytes.get(at..).unwrap_or_default().to_vec());
        let First { mark, before, is_final, .. } = first;
        Ok(Checkpoint { mark, before, is_final, state })
    }

    /// The first part of a rank's file.
    fn first_of(&self, rank: usize, number: u64) -> Result<First, CheckpointFileError> {
        let path = self.path(rank, number);
        let failed = failed("read", &path);
        let file = open_regular(&path)?;
        let mut bytes = vec![0; HEADER_BYTES];
        let length = file.metadata().map_err(failed)?.len();
        if length < HEADER_BYTES as u64 {
            return Err(CheckpointFileError::Damaged(path));
        }
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        let first = bytes[24..].first_chunk().copied().map_or(0, u64::from_le_bytes);
        let whole = (HEADER_BYTES as u64).saturating_add(first).min(length);
        reserve(&mut bytes, whole).map_err(failed)?;
        bytes.resize(usize::try_from(whole).unwrap_or(HEADER_BYTES), 0);
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        let (first, _) = self.first(&path, &bytes, rank)?;
        match first.mark.number == number {
            true => Ok(first),
            false => Err(CheckpointFileError::Damaged(path)),
        }
    }

    /// Whether a rank has finished: its newest checkpoint says so.
    pub(super) fn has_finished(&self, rank: usize) -> Result<bool, CheckpointFileError> {
        match self.all()?.remove(&rank).and_then(|numbers| numbers.last().copied()) {
            Some(newest) => Ok(self.first_of(rank, newest)?.is_final),
            None => Ok(false),
        }
    }

    /// This rank's newest checkpoint, if all ranks have finished.
    pub(super) fn finished(&self) -> Result<Option<Checkpoint>, CheckpointFileError> {
        for rank in 0..self.ranks {
            if !self.has_finished(rank)? {
                return Ok(None);
            }
        }
        self.read(self.newest()?).map(Some)
    }

    /// Which directory it is, by whatever path.
    pub(super) fn directory(&self) -> Result<(u64, u64), CheckpointFileError> {
        let is = self.directory.metadata().map_err(failed("find", &self.directory))?;
        Ok((is.dev(), is.ino()))
    }

    /// The first part of a file, and where the second one begins.
    fn first(
        &self,
        path: &Path,
        bytes: &[u8],
        rank: usize,
    ) -> Result<(First, usize), CheckpointFileError> {
        let damaged = || CheckpointFileError::Damaged(path.to_owned());
        let header = bytes.get(..HEADER_BYTES).filter(|header| header.starts_with(MAGIC));
        let header = header.ok_or_else(damaged)?;
        let word = |at: usize| header[at..].first_chunk().copied().map_or(0, u32::from_le_bytes);
        let length = header[24..].first_chunk().copied().map_or(0, u64::from_le_bytes);
        if word(16) != VERSION {
            return Err(CheckpointFileError::Version { path: path.to_owned(), found: word(16) });
        }
        let end = usize::try_from(length).ok().and_then(|length| length.checked_add(HEADER_BYTES));
        let part = end.and_then(|end| bytes.get(HEADER_BYTES..end)).ok_or_else(damaged)?;
        if word(20) != checksum_of(&header[24..32], part) {
            return Err(damaged());
        }
        let first: First =
            decode(part).filter(|first: &First| first.rank == rank).ok_or_else(damaged)?;
        let Mark { sent, received, unsettled, .. } = &first.mark;
        let found = sent.len();
        if received.len() != found || unsettled.len() != found {
            return Err(damaged());
        }
        match found == self.ranks {
            true => Ok((first, HEADER_BYTES + part.len())),
            false => {
                Err(CheckpointFileError::Ranks { path: path.to_owned(), found, own: self.ranks })
            }
        }
    }

    /// Writes a checkpoint, and removes files that no state needs any more. When it returns, the checkpoint outlives the
    /// machine.
    pub(super) fn write(&self, checkpoint: &Checkpoint) -> Result<(), CheckpointFileError> {
        let path = self.path(self.rank, checkpoint.mark.number);
        let random = random_u128()
            .map_err(|error| failed("write", &path)(io::Error::from_raw_os_error(error.errno)))?;
        let new = self.directory.join(format!("{}{:016x}", self.prefix(), random >> 64));
        let Checkpoint { mark, before, is_final, state } = checkpoint;
        let (mark, before, is_final) = (mark.clone(), *before, *is_final);
        let first = encode(&First { rank: self.rank, before, is_final, mark });
        let length = (first.len() as u64).to_le_bytes();
        let sums = [checksum_of(&length, &first), crc32fast::hash(state)].map(u32::to_le_bytes);
        let header = [MAGIC, &VERSION.to_le_bytes()[..], &sums[0], &length, &sums[1], &[0; 4]];
        let failed_to_write = failed("write", &new);
        // What is at such a name, a link too, was put there by somebody else.
        if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
            return Err(CheckpointFileError::Damaged(path));
        }
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&new);
        let mut file = file.map_err(failed_to_write)?;
        let parts = [&header.concat(), &first, &checkpoint.state[..]];
        let written = parts.into_iter().try_for_each(|part| file.write_all(part));
        let written = written.and_then(|()| file.sync_all());
        let named = written
            .map_err(failed_to_write)
            .and_then(|()| self.check_lock())
            .and_then(|()| std::fs::rename(&new, &path).map_err(failed("name", &path)));
        if named.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        named?;
        sync_directory(&path).map_err(failed("write", &self.directory))?;
        self.remove_unneeded()
    }

    /// No state is restored from a line before the present one.
    fn remove_unneeded(&self) -> Result<(), CheckpointFileError> {
        let all = self.all()?;
        let newest = |rank| all.get(&rank).and_then(|numbers| numbers.last()).copied();
        let line = recovery_line((0..self.ranks).map(|rank| newest(rank).unwrap_or(0)));
        let own = all.get(&self.rank).map_or(&[][..], Vec::as_slice);
        let first = own.iter().copied().find(|number| *number >= line).unwrap_or(0);
        for number in own.iter().filter(|number| **number < first) {
            let path = self.path(self.rank, *number);
            std::fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
        Ok(())
    }

    /// How far the others are, each in its newest checkpoint that has not a higher number than this.
    pub(super) fn progress(&self, number: u64) -> Result<Vec<Progress>, CheckpointFileError> {
        let mut found = Vec::new();
        for (rank, numbers) in self.all()? {
            let number = numbers.into_iter().rev().find(|one| *one <= number);
            let Some(number) = number.filter(|_| rank != self.rank && rank < self.ranks) else {
                continue;
            };
            let mark = match self.first_of(rank, number) {
                Ok(first) => first.mark,
                // Its owner has removed it meanwhile.
                Err(CheckpointFileError::Os { errno, .. })
                    if errno == Errno::NOENT.raw_os_error() =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            found.push(Progress { rank, number, received: mark.received });
        }
        Ok(found)
    }
}

corewire_layout::debug_is_text!(CheckpointFileError);

#[cfg(test)]
mod tests;
