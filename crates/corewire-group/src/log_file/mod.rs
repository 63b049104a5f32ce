//! The file of a group's log: what is decided outlives all members, and the machine.
//!
//! A group has one file, and its acceptor writes it. There is one acceptor at a time, so it has one writer at a time; a lock
//! of the kernel keeps out other groups, which know nothing of this one. An entry is in the file, and the file is on its
//! disk, before the acceptor publishes it. A process that founds the group anew reads it.
//!
//! ```text
//!  0  "corewire's log\n\0"  16 bytes
//! 16  version               u32
//! 20  mark                  u32, random: the first word of each record
//! 24  seed                  u32, random: where each record's checksum begins
//! 28  checksum              u32, CRC-32 of bytes 0 to 27 and 32 to 39
//! 32  whole                 u64: the file was on its disk up to here when it took its name
//! 40  records, each at a multiple of 8:
//!      0  mark      u32
//!      4  checksum  u32, CRC-32 of what follows, padding excluded
//!      8  length    u64: bytes of the content
//!     16  synced    u64: the file was on its disk up to here when this record was written
//!     24  content: a snapshot (the first record only), or an index and an entry, in the format of the crate `postcard`
//! ```
//!
//! A record that is not whole ends the file: the process, or the machine, ended while it was written, and nobody was told of
//! it. But if a record behind it says that the file was on its disk beyond that place, then somebody was, and the file
//! is [damaged](LogFileError::Damaged). Damage to the records that were written last cannot be told from a torn end.
//!
//! | when | what is written |
//! |---|---|
//! | the acceptor accepts entries | records behind the last one, then `fdatasync`: once for all entries that have come meanwhile |
//! | another acceptor begins | nothing; what the one before had written and not published is cut off |
//! | the acceptor's program truncates the log | a new file, `PATH.corewire-new`, with the snapshot and the entries behind it, which takes the place of the old one |

pub(crate) mod writer;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind::{PermissionDenied, Unsupported};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use corewire_os::fork::PerProcess;
use corewire_os::random_u128;
use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::frame::{Command, encode};
use crate::kept::Snapshot;
use crate::replica::Entry;

const MAGIC: &[u8; 16] = b"corewire's log\n\0";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;
/// Where the first record is.
const FIRST: u64 = HEADER_BYTES as u64;
const RECORD_HEADER_BYTES: usize = 24;

/// Why the file of a group's log cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogFileError {
    /// A system call failed.
    #[error("cannot {what} {path:?}: {}", io::Error::from_raw_os_error(*errno))]
    Os {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error number.
        errno: i32,
    },
    /// The file is something else. It was not changed.
    #[error("{0:?} is not the file of a log")]
    NotALog(PathBuf),
    /// Another version of corewire has written it.
    #[error("{path:?} has version {found} of the format, and this is version {VERSION}")]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// What was once on the disk is not there any more: entries that somebody was told of are lost. The file was not
    /// changed.
    #[error("{path:?} is damaged at byte {at}: entries from index {next} on cannot be read")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        at: u64,
        /// The first entry that is lost.
        next: u64,
    },
    /// A process of another group has it, or one that is stopped.
    #[error("another process has {0:?}")]
    InUse(PathBuf),
    /// While the group lived, somebody has removed the file, or put another one in its place.
    #[error("{0:?} was removed or replaced while its group lived")]
    Replaced(PathBuf),
}

/// Which file a group has: the same one by whatever path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FileId {
    /// Any bytes, as a path may have.
    path: Vec<u8>,
    device: u64,
    directory: u64,
}

impl PartialEq for FileId {
    fn eq(&self, other: &Self) -> bool {
        let name = |id: &Self| id.path().file_name().map(ToOwned::to_owned);
        (self.device, self.directory, name(self)) == (other.device, other.directory, name(other))
    }
}

impl FileId {
    /// Of a path whose directory exists.
    pub(crate) fn of(path: &Path) -> Result<Self, LogFileError> {
        let is_other = path.metadata().is_ok_and(|metadata| !metadata.is_file());
        if path.file_name().is_none() || is_other {
            return Err(LogFileError::NotALog(path.to_owned()));
        }
        // The file that a link leads to.
        let followed = std::fs::canonicalize(path);
        let path = followed.as_deref().unwrap_or(path);
        let directory = std::fs::canonicalize(directory_of(path));
        let directory = directory.map_err(failed("find the directory of", path))?;
        let is = directory.metadata().map_err(failed("find the directory of", path))?;
        let path = directory.join(path.file_name().unwrap_or_default());
        Ok(Self { path: path.into_os_string().into_vec(), device: is.dev(), directory: is.ino() })
    }

    pub(crate) fn path(&self) -> PathBuf {
        OsString::from_vec(self.path.clone()).into()
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn failed<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl Fn(io::Error) -> LogFileError + Copy + 'a {
    move |error| LogFileError::Os {
        what,
        path: path.to_owned(),
        errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
    }
}

/// What a record holds.
#[derive(Serialize, Deserialize)]
enum Content {
    Snapshot(Snapshot<Command>),
    Entry(u64, Entry<Command>),
}

/// What marks the records of one file, so that no command can look like one by chance.
#[derive(Clone, Copy)]
struct Marks {
    mark: u32,
    seed: u32,
}

impl Marks {
    /// Appends a record.
    fn write(self, buffer: &mut Vec<u8>, synced: u64, content: &Content) {
        let content = encode(content);
        let at = buffer.len();
        buffer.extend(self.mark.to_le_bytes());
        buffer.extend([0; 4]);
        buffer.extend((content.len() as u64).to_le_bytes());
        buffer.extend(synced.to_le_bytes());
        buffer.extend(&content);
        let checksum = checksum(self.seed, &[&buffer[at + 8..]]);
        buffer[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
        buffer.resize(buffer.len().next_multiple_of(8), 0);
    }

    /// The length of the content, if a header can begin a record; and what it says was synced.
    fn header(self, header: &[u8; RECORD_HEADER_BYTES]) -> Option<(u64, u64)> {
        (word(header, 0) == self.mark).then(|| (long(header, 8), long(header, 16)))
    }
}

fn checksum(seed: u32, parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Takes the lock of a file, which this process keeps until it closes it.
fn lock(file: &File) -> io::Result<bool> {
    match fcntl_lock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether a path still leads to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let is = file.metadata()?;
    match path.metadata() {
        Ok(there) => Ok((is.dev(), is.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens a file and takes its lock; `None` if another process has it.
fn open_locked(path: &Path, creates: bool) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(creates).truncate(false).mode(0o600);
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    options.custom_flags(no_follow);
    loop {
        let file = options.open(path)?;
        if !lock(&file)? {
            return Ok(None);
        }
        if is_at(&file, path)? {
            return Ok(Some(file));
        }
        // Another file has taken its place before it was locked.
    }
}

/// A lock of the kernel is one of the whole process; this one keeps out other members in the same process.
struct InProcess(PathBuf);

static IN_PROCESS: PerProcess<Mutex<BTreeSet<PathBuf>>> = PerProcess::new();

impl InProcess {
    fn paths() -> MutexGuard<'static, BTreeSet<PathBuf>> {
        IN_PROCESS.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(path: &Path) -> Option<Self> {
        Self::paths().insert(path.to_owned()).then(|| Self(path.to_owned()))
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        Self::paths().remove(&self.0);
    }
}

/// The open file of a group's log. This process has its lock.
pub(crate) struct LogFile {
    path: PathBuf,
    /// Given up after the file is closed.
    file: File,
    in_process: InProcess,
    marks: Marks,
    /// Where the next record begins: everything before is on the disk.
    length: u64,
    /// The index of the next entry.
    next: u64,
}

/// What is in a file.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) snapshot: Option<Snapshot<Command>>,
    pub(crate) entries: Vec<Entry<Command>>,
}

impl LogFile {
    /// Opens a log, or makes an empty one, and reads it. `None` if another process has it.
    pub(crate) fn load(path: &Path) -> Result<Option<(Self, Contents)>, LogFileError> {
        let mut contents = Contents::default();
        let opened = Self::open(path, |_, content| match content {
            Content::Snapshot(snapshot) => contents.snapshot = Some(snapshot),
            Content::Entry(_, entry) => contents.entries.push(entry),
        });
        Ok(opened?.map(|file| (file, contents)))
    }

    /// Opens a log whose entries before an index are decided, and no others; `None` if another process has it.
    pub(crate) fn begin_at(path: &Path, next: u64) -> Result<Option<Self>, LogFileError> {
        if next > 0 && !path.exists() {
            return Err(LogFileError::Replaced(path.to_owned()));
        }
        let mut cut = None;
        let opened = Self::open(path, |at, content| match content {
            Content::Entry(index, _) if index == next => cut = Some(at),
            _ => {}
        });
        let Some(mut file) = opened? else { return Ok(None) };
        if let Some(at) = cut {
            file.cut(at)?;
            file.next = next;
        }
        match file.next == next {
            true => Ok(Some(file)),
            false => Err(LogFileError::Replaced(path.to_owned())),
        }
    }

    fn open(path: &Path, each: impl FnMut(u64, Content)) -> Result<Option<Self>, LogFileError> {
        let Some(in_process) = InProcess::take(path) else { return Ok(None) };
        let file = match open_locked(path, false) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let Some(new) = New::begin(path, None)? else { return Ok(None) };
                return new.finish(in_process, false);
            }
            Err(error) => return Err(failed("open", path)(error)),
        };
        if file.metadata().map_err(failed("read", path))?.len() == 0 {
            let Some(new) = New::begin(path, Some(&file))? else { return Ok(None) };
            return new.finish(in_process, true);
        }
        let mut log = Self {
            path: path.to_owned(),
            in_process,
            file,
            marks: Marks { mark: 0, seed: 0 },
            length: FIRST,
            next: 0,
        };
        let length = log.read(each)?;
        log.cut(length)?;
        // The process that wrote it may have ended before it was on the disk.
        log.file.sync_data().map_err(failed("write", path))?;
        sync_directory(path).map_err(failed("write the directory of", path))?;
        Ok(Some(log))
    }

    /// Reads all records. Returns where the last one ends.
    fn read(&mut self, mut each: impl FnMut(u64, Content)) -> Result<u64, LogFileError> {
        let failed = failed("read", &self.path);
        (&self.file).rewind().map_err(failed)?;
        let end = self.file.metadata().map_err(failed)?.len();
        let mut reader = BufReader::with_capacity(1 << 20, &self.file);
        let mut header = [0; HEADER_BYTES];
        let is_whole = end >= FIRST;
        if is_whole {
            reader.read_exact(&mut header).map_err(failed)?;
        }
        let sum = checksum(0, &[&header[..28], &header[32..]]);
        if !is_whole || !header.starts_with(MAGIC) {
            return Err(LogFileError::NotALog(self.path.clone()));
        }
        let version = word(&header, 16);
        if version != VERSION {
            return Err(LogFileError::Version { path: self.path.clone(), found: version });
        }
        if sum != word(&header, 28) {
            return Err(LogFileError::Damaged { path: self.path.clone(), at: 0, next: 0 });
        }
        self.marks = Marks { mark: word(&header, 20), seed: word(&header, 24) };
        let whole = long(&header, 32);
        let (mut at, mut next) = (FIRST, 0);
        let mut bytes = Vec::new();
        while let Some(length) =
            read_record(&mut reader, self.marks, end - at, &mut bytes).map_err(failed)?
        {
            match postcard::from_bytes(&bytes) {
                Ok(Content::Snapshot(snapshot)) if at == FIRST => {
                    next = snapshot.next;
                    each(at, Content::Snapshot(snapshot));
                }
                Ok(Content::Entry(index, entry)) if index == next => {
                    next += 1;
                    each(at, Content::Entry(index, entry));
                }
                // It is whole, but not what was once written here.
                _ => return Err(LogFileError::Damaged { path: self.path.clone(), at, next }),
            }
            at += length;
        }
        if at < whole || (at < end && self.was_synced_beyond(at, end)?) {
            return Err(LogFileError::Damaged { path: self.path.clone(), at, next });
        }
        self.next = next;
        Ok(at)
    }

    /// Whether a record behind this place says that the file was on its disk beyond it.
    fn was_synced_beyond(&self, at: u64, end: u64) -> Result<bool, LogFileError> {
        let failed = failed("read", &self.path);
        let mut bytes = Vec::new();
        (&self.file).seek(io::SeekFrom::Start(at)).map_err(failed)?;
        let mut words = BufReader::with_capacity(1 << 20, &self.file);
        for place in (at..end).step_by(8) {
            let mut word_there = [0; 8];
            if words.read_exact(&mut word_there).is_err() {
                break;
            }
            if word(&word_there, 0) != self.marks.mark {
                continue;
            }
            let mut record = At { file: &self.file, at: place };
            let is_record = read_record(&mut record, self.marks, end - place, &mut bytes);
            if is_record.map_err(failed)?.is_some() {
                let mut header = [0; RECORD_HEADER_BYTES];
                self.file.read_exact_at(&mut header, place).map_err(failed)?;
                if long(&header, 16) > at {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// What is behind this place was never published.
    fn cut(&mut self, length: u64) -> Result<(), LogFileError> {
        let failed = failed("cut", &self.path);
        if self.file.metadata().map_err(failed)?.len() > length {
            self.file.set_len(length).map_err(failed)?;
            self.file.sync_data().map_err(failed)?;
        }
        self.length = length;
        Ok(())
    }

    /// Writes entries, from this index on. When it returns they are on the disk.
    pub(crate) fn append(&mut self, entries: Vec<Entry<Command>>) -> Result<(), LogFileError> {
        let mut buffer = Vec::new();
        for entry in entries {
            let content = Content::Entry(self.next, entry);
            self.marks.write(&mut buffer, self.length, &content);
            self.next += 1;
        }
        let failed = failed("write", &self.path);
        let written = self.file.write_all_at(&buffer, self.length);
        if let Err(error) = written.and_then(|()| self.file.sync_data()) {
            // What is not on the disk must not look as if it were.
            let _ = self.file.set_len(self.length);
            return Err(failed(error));
        }
        self.length += buffer.len() as u64;
        match is_at(&self.file, &self.path).map_err(failed)? {
            true => Ok(()),
            false => Err(LogFileError::Replaced(self.path.clone())),
        }
    }

    /// The index of the next entry.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Puts a snapshot in the place of the entries before it. If there is no room for the new file, the old one stays.
    pub(crate) fn compact(&mut self, snapshot: Snapshot<Command>) -> Result<(), LogFileError> {
        let first = snapshot.next;
        if first > self.next {
            return Ok(());
        }
        let path = self.path.clone();
        let Ok(Some(mut new)) = New::begin(&path, Some(&self.file)) else { return Ok(()) };
        new.next = first;
        let mut written = new.write(&Content::Snapshot(snapshot));
        let read = self.read(|_, content| {
            if let Content::Entry(index, _) = &content
                && *index >= first
                && written.is_ok()
            {
                new.next = index + 1;
                written = new.write(&content);
            }
        });
        read?;
        if written.and_then(|()| new.flush()).is_err() {
            let _ = std::fs::remove_file(&new.name);
            return Ok(());
        }
        let in_process = std::mem::replace(&mut self.in_process, InProcess(PathBuf::new()));
        match new.finish(in_process, true)? {
            Some(file) => *self = file,
            None => return Err(LogFileError::InUse(path)),
        }
        Ok(())
    }
}

/// A file that will have the name of a log when it is whole and on the disk.
struct New {
    path: PathBuf,
    /// What it is called until then.
    name: PathBuf,
    writer: BufWriter<File>,
    marks: Marks,
    next: u64,
}

impl New {
    /// Begins one beside the log; `None` if another process does so.
    fn begin(path: &Path, old: Option<&File>) -> Result<Option<Self>, LogFileError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".corewire-new");
        let name = PathBuf::from(name);
        let failed = failed("write", &name);
        let Some(file) = open_locked(&name, true).map_err(failed)? else { return Ok(None) };
        // A process may have ended while it wrote one.
        let mut before = [0; MAGIC.len()];
        let is_other = At { file: &file, at: 0 }.read_exact(&mut before).is_ok()
            && before != *MAGIC
            && before != [0; MAGIC.len()];
        if is_other {
            return Err(LogFileError::NotALog(name));
        }
        if let Some(old) = old {
            let permissions = old.metadata().map_err(failed)?.permissions();
            file.set_permissions(permissions).map_err(failed)?;
        }
        file.set_len(0).map_err(failed)?;
        let random =
            random_u128().map_err(|error| failed(io::Error::from_raw_os_error(error.errno)))?;
        let random = random.to_le_bytes();
        let marks = Marks { mark: word(&random, 0), seed: word(&random, 4) };
        let mut writer = BufWriter::with_capacity(1 << 20, file);
        writer.write_all(&[0; HEADER_BYTES]).map_err(failed)?;
        Ok(Some(Self { path: path.to_owned(), name, writer, marks, next: 0 }))
    }

    fn write(&mut self, content: &Content) -> io::Result<()> {
        let mut record = Vec::new();
        self.marks.write(&mut record, 0, content);
        self.writer.write_all(&record)
    }

    /// Brings it to the disk, with its header.
    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()?;
        let file = self.writer.get_ref();
        let length = file.metadata()?.len();
        let mut header = [0; HEADER_BYTES];
        header[..16].copy_from_slice(MAGIC);
        header[16..20].copy_from_slice(&VERSION.to_le_bytes());
        header[20..24].copy_from_slice(&self.marks.mark.to_le_bytes());
        header[24..28].copy_from_slice(&self.marks.seed.to_le_bytes());
        header[32..].copy_from_slice(&length.to_le_bytes());
        let sum = checksum(0, &[&header[..28], &header[32..]]);
        header[28..32].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&header, 0)?;
        file.sync_all()
    }

    /// Gives it the name of the log; nothing if there is another one by now, and it may not be replaced.
    fn finish(
        mut self,
        in_process: InProcess,
        replaces: bool,
    ) -> Result<Option<LogFile>, LogFileError> {
        self.flush().map_err(failed("write", &self.name))?;
        let Self { path, name, writer, marks, next } = self;
        let named = match replaces {
            true => std::fs::rename(&name, &path),
            false => match std::fs::hard_link(&name, &path) {
                Ok(()) => std::fs::remove_file(&name),
                // A file system without links.
                Err(error) if matches!(error.kind(), PermissionDenied | Unsupported) => {
                    std::fs::rename(&name, &path)
                }
                Err(error) => Err(error),
            },
        };
        match named {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            named => named.map_err(failed("name", &path))?,
        }
        sync_directory(&path).map_err(failed("write the directory of", &path))?;
        let file = writer.into_inner().map_err(|error| failed("write", &path)(error.into()))?;
        let length = file.metadata().map_err(failed("read", &path))?.len();
        Ok(Some(LogFile { path, in_process, file, marks, length, next }))
    }
}

/// Makes a new name in the directory of a path outlive the machine.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

/// Reads a file from a place on.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Reads the content of the next record, of which there are so many bytes at most. Returns the length of the record,
/// or nothing if none is whole there.
fn read_record(
    reader: &mut impl Read,
    marks: Marks,
    most: u64,
    content: &mut Vec<u8>,
) -> io::Result<Option<u64>> {
    let mut header = [0; RECORD_HEADER_BYTES];
    let Some(rest) = most.checked_sub(RECORD_HEADER_BYTES as u64) else { return Ok(None) };
    reader.read_exact(&mut header)?;
    let Some((length, _)) = marks.header(&header) else { return Ok(None) };
    let Some(padded) = length.checked_next_multiple_of(8).filter(|padded| *padded <= rest) else {
        return Ok(None);
    };
    let Ok(bytes) = usize::try_from(padded) else { return Ok(None) };
    content.clear();
    content.resize(bytes, 0);
    reader.read_exact(content)?;
    content.truncate(usize::try_from(length).unwrap_or(bytes));
    let sum = checksum(marks.seed, &[&header[8..], content]);
    Ok((sum == word(&header, 4)).then_some(RECORD_HEADER_BYTES as u64 + padded))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Member;

    /// A directory that goes with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Self {
            let name = format!("corewire-group-file-{test}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn log(&self) -> PathBuf {
            self.0.join("log")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn entries(numbers: impl IntoIterator<Item = u64>) -> Vec<Entry<Command>> {
        let from = Member { place: 1, life: 7 };
        let entry = |number: u64| {
            let command = Command(vec![b'x'; usize::try_from(number).unwrap()].into());
            Entry { from, number, command }
        };
        numbers.into_iter().map(entry).collect()
    }

    fn load(path: &Path) -> Result<(u64, Vec<u64>), LogFileError> {
        let (file, contents) = LogFile::load(path)?.unwrap();
        assert_eq!(contents.entries, entries(contents.entries.iter().map(|entry| entry.number)));
        Ok((file.next(), contents.entries.iter().map(|entry| entry.number).collect()))
    }

    #[test]
    fn a_file_gives_back_what_was_appended() {
        let scratch = Scratch::new("appended");
        let (mut file, contents) = LogFile::load(&scratch.log()).unwrap().unwrap();
        assert!(contents.snapshot.is_none() && contents.entries.is_empty());
        file.append(entries(1..=3)).unwrap();
        file.append(entries(4..=4)).unwrap();
        drop(file);
        assert_eq!(load(&scratch.log()).unwrap(), (4, vec![1, 2, 3, 4]));
    }

    #[test]
    fn a_torn_tail_is_cut_at_every_length() {
        let scratch = Scratch::new("torn");
        let (mut file, _) = LogFile::load(&scratch.log()).unwrap().unwrap();
        file.append(entries(1..=2)).unwrap();
        let synced = scratch.log().metadata().unwrap().len();
        file.append(entries(3..=5)).unwrap();
        drop(file);
        let whole = std::fs::read(scratch.log()).unwrap();
        for length in synced..whole.len() as u64 {
            let length = usize::try_from(length).unwrap();
            std::fs::write(scratch.log(), &whole[..length]).unwrap();
            let (next, numbers) = load(&scratch.log()).unwrap();
            assert!((2..5).contains(&next), "{next} at {length}");
            assert_eq!(numbers, Vec::from_iter(1..=next));
            // It goes on from there.
            let (mut file, _) = LogFile::load(&scratch.log()).unwrap().unwrap();
            file.append(entries([next + 1])).unwrap();
            drop(file);
            assert_eq!(load(&scratch.log()).unwrap().0, next + 1);
        }
    }

    /// Of the records of the last write, any may be on the disk when the machine fails.
    #[test]
    fn a_hole_in_the_last_write_is_cut() {
        let scratch = Scratch::new("hole");
        let (mut file, _) = LogFile::load(&scratch.log()).unwrap().unwrap();
        file.append(entries(1..=2)).unwrap();
        let synced = usize::try_from(scratch.log().metadata().unwrap().len()).unwrap();
        file.append(entries(3..=5)).unwrap();
        drop(file);
        let mut bytes = std::fs::read(scratch.log()).unwrap();
        bytes[synced..synced + 24].fill(0);
        std::fs::write(scratch.log(), &bytes).unwrap();
        assert_eq!(load(&scratch.log()).unwrap(), (2, vec![1, 2]));
    }

    #[test]
    fn what_was_on_the_disk_and_is_not_any_more_is_damage() {
        let scratch = Scratch::new("damage");
        let (mut file, _) = LogFile::load(&scratch.log()).unwrap().unwrap();
        file.append(entries(1..=2)).unwrap();
        let synced = usize::try_from(scratch.log().metadata().unwrap().len()).unwrap();
        file.append(entries(3..=3)).unwrap();
        drop(file);
        let whole = std::fs::read(scratch.log()).unwrap();
        // Padding means nothing.
        let mut found = 0;
        for at in 0..synced {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(scratch.log(), &bytes).unwrap();
            match load(&scratch.log()) {
                Ok(read) => assert_eq!(read, (3, vec![1, 2, 3]), "at {at}"),
                Err(_) => found += 1,
            }
            assert_eq!(std::fs::read(scratch.log()).unwrap(), bytes, "it is left as it is");
        }
        assert!(found > synced - 16, "{found} of {synced}");
        std::fs::write(scratch.log(), &whole).unwrap();
        // A new file was whole when it took its name.
        let (mut file, _) = LogFile::load(&scratch.log()).unwrap().unwrap();
        let snapshot =
            Snapshot { next: 1, last: Default::default(), state: entries([9])[0].command.clone() };
        file.compact(snapshot).unwrap();
        drop(file);
        let mut bytes = std::fs::read(scratch.log()).unwrap();
        // Cut between two records.
        std::fs::write(scratch.log(), &bytes[..HEADER_BYTES]).unwrap();
        assert!(matches!(load(&scratch.log()), Err(LogFileError::Damaged { next: 0, .. })));
        let last = bytes.len() - 8;
        bytes[last] ^= 1;
        std::fs::write(scratch.log(), &bytes).unwrap();
        assert!(matches!(load(&scratch.log()), Err(LogFileError::Damaged { next: 2, .. })));
    }

    #[test]
    fn a_snapshot_takes_the_place_of_entries() {
        let scratch = Scratch::new("snapshot");
        let (mut file, _) = LogFile::load(&scratch.log()).unwrap().unwrap();
        file.append(entries(1..=5)).unwrap();
        let state = entries([9])[0].command.clone();
        file.compact(Snapshot { next: 3, last: Default::default(), state: state.clone() }).unwrap();
        file.append(entries(6..=6)).unwrap();
        drop(file);
        let (file, contents) = LogFile::load(&scratch.log()).unwrap().unwrap();
        assert_eq!(file.next(), 6);
        assert_eq!(
            contents.snapshot.map(|snapshot| (snapshot.next, snapshot.state)),
            Some((3, state))
        );
        assert_eq!(contents.entries, entries(4..=6));
    }

    #[test]
    fn another_acceptor_cuts_what_was_not_published() {
        let scratch = Scratch::new("begin");
        let (mut file, _) = LogFile::load(&scratch.log()).unwrap().unwrap();
        file.append(entries(1..=5)).unwrap();
        drop(file);
        let mut file = LogFile::begin_at(&scratch.log(), 3).unwrap().unwrap();
        file.append(entries(40..=40)).unwrap();
        drop(file);
        assert_eq!(load(&scratch.log()).unwrap(), (4, vec![1, 2, 3, 40]));
        let late = LogFile::begin_at(&scratch.log(), 9).map(drop);
        assert_eq!(late, Err(LogFileError::Replaced(scratch.log())), "entries are missing");
    }

    #[test]
    fn other_files_are_left_alone() {
        let scratch = Scratch::new("other");
        for text in ["x", "a letter to a friend, long enough to be a log by its length"] {
            std::fs::write(scratch.log(), text).unwrap();
            let opened = LogFile::load(&scratch.log()).map(drop);
            assert_eq!(opened, Err(LogFileError::NotALog(scratch.log())));
            assert_eq!(std::fs::read_to_string(scratch.log()).unwrap(), text);
        }
        // An empty one, as `mktemp` makes it, becomes a log.
        std::fs::write(scratch.log(), "").unwrap();
        assert_eq!(load(&scratch.log()).unwrap().0, 0);
        assert_eq!(FileId::of(&scratch.0), Err(LogFileError::NotALog(scratch.0.clone())));
        assert!(FileId::of(&scratch.0.join("nowhere/log")).is_err());
        std::fs::create_dir(scratch.0.join("sub")).unwrap();
        let by_another_way = scratch.0.join("sub/../log");
        assert_eq!(FileId::of(&by_another_way), FileId::of(&scratch.log()));
    }

    #[test]
    fn a_file_that_was_removed_is_noticed() {
        let scratch = Scratch::new("removed");
        let (mut file, _) = LogFile::load(&scratch.log()).unwrap().unwrap();
        file.append(entries(1..=1)).unwrap();
        std::fs::remove_file(scratch.log()).unwrap();
        assert_eq!(file.append(entries(2..=2)), Err(LogFileError::Replaced(scratch.log())));
    }
}
