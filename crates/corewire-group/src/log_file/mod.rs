//! The file of a group's log: what is decided outlives all members, and the machine.
//!
//! A group has one file, and its acceptor writes it. There is one acceptor at a time, so it has one writer at a time; a lock
//! of the kernel keeps out other groups, which know nothing of this one. An entry is in the file, and the file is on its
//! disk, before the acceptor publishes it. A process that founds the group anew reads it.
//!
//! ```text
//!    0  header A, 48 bytes
//! 4096  header B, 48 bytes; they are written in turn, and of those that are whole the one with the higher number is valid
//!        0  "corewire's log\n\0"  16 bytes
//!       16  version               u32, 2
//!       20  mark                  u32, random: the first word of each record
//!       24  seed                  u32, random: where each record's checksum begins
//!       28  checksum              u32, CRC-32 of bytes 0 to 27 and 32 to 47
//!       32  number                u64: counts headers
//!       40  synced                u64: the file is on its disk up to here
//! 8192  records, each at a multiple of 8:
//!        0  mark      u32
//!        4  checksum  u32, CRC-32 of what follows, padding excluded
//!        8  length    u64: bytes of the content
//!       16  synced    u64: the file was on its disk up to here when this record was written
//!       24  content: a snapshot (the first record only), or an index and an entry, in the format of the crate `postcard`
//! ```
//!
//! The mark in the header, **synced**, tells what must be there from what may be torn. Damage before it is an
//! [error](LogFileError::Damaged), and changes nothing. Behind it, a record that is not whole ends the file: the process, or
//! the machine, ended while it was written, and nobody was told of it. (A later record that says that the file was on its
//! disk beyond that place makes it damage, too.) What is cut off is counted, and kept in a file beside, `PATH.cut-N`.
//!
//! | when | what is written |
//! |---|---|
//! | the acceptor accepts entries | records behind the last one, then `fdatasync`, once for all entries that have come meanwhile; then the header, which the next `fdatasync` brings to the disk, or one after a second without entries, or at the end |
//! | another acceptor begins | first the lowered mark, and `fdatasync`; then entries that the acceptor before had written and not published are copied to `PATH.cut-N` and cut off |
//! | the acceptor's program truncates the log | a new file, `.NAME.corewire-new.*`, with the snapshot and the entries behind it, which takes the place of the old one |
//! | a file of version 1 is opened | the same, with all of its entries |

mod error;
mod file;
mod file_id;
mod format;
mod new;
mod salvage;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

use std::fs::OpenOptions;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use corewire_os::locked::{LockedFile, SharedLock};
use corewire_os::report::Tell;
use rustix::io::Errno;

pub use self::error::LogFileError;
pub(crate) use self::error::failed;
pub(crate) use self::file::LogFile;
pub(crate) use self::file_id::{FileId, sync_directory};
use self::format::{At, Beginning, Content, Header};
use self::new::New;
pub(crate) use self::new::is_random;
pub use self::salvage::{Salvaged, salvage_log};
use crate::frame::Command;
use crate::kept::{Entry, Snapshot};

/// Opens a file and takes its lock; `None` if another open of it has it.
fn open_locked(path: &Path) -> Result<Option<LockedFile>, LogFileError> {
    loop {
        let file = match LockedFile::open(path) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(LogFileError::NotALog(path.to_owned()));
            }
            Err(error) => return Err(failed("open", path)(error)),
        };
        if file.is_at(path).map_err(failed("open", path))? {
            return Ok(Some(file));
        }
        // Another file has taken its place before it was locked.
    }
}

/// What is in a file.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) snapshot: Option<Snapshot<Command>>,
    pub(crate) entries: Vec<Entry<Command>>,
}

impl LogFile {
    /// Opens a log, or makes an empty one, and reads it. `None` if another process has it.
    pub(crate) fn load(
        path: &Path,
        lock: &SharedLock,
        tell: &Tell,
    ) -> Result<Option<(Self, Contents)>, LogFileError> {
        let mut contents = Contents::default();
        let opened = Self::open(path, lock, true, tell, |_, content| match content {
            Content::Snapshot(snapshot) => contents.snapshot = Some(snapshot),
            Content::Entry(_, entry) => contents.entries.push(entry),
        });
        Ok(opened?.map(|file| (file, contents)))
    }

    /// Opens a log whose entries before an index are decided, and no others; `None` if another process has it.
    pub(crate) fn begin_at(
        path: &Path,
        lock: &SharedLock,
        next: u64,
        tell: &Tell,
    ) -> Result<Option<Self>, LogFileError> {
        // One that is gone is not made again, but by the acceptor of the first entry.
        let makes = next == 0;
        let Some(mut file) = Self::open(path, lock, makes, tell, |_, _| {})? else {
            return Ok(None);
        };
        let mut cut = None;
        if file.next > next {
            file.read(|at, content| match content {
                Content::Entry(index, _) if index == next => cut = Some(at),
                _ => {}
            })?;
        }
        if let Some(at) = cut {
            let count = file.next - next;
            file.cut(at, tell, &format!("the last {count} entries, which were never published,"))?;
            file.next = next;
        }
        match file.next == next {
            true => Ok(Some(file)),
            false => Err(LogFileError::Replaced(path.to_owned())),
        }
    }

    /// Opens the file of the group that has the lock beside it.
    fn open(
        path: &Path,
        lock: &SharedLock,
        makes: bool,
        tell: &Tell,
        each: impl FnMut(u64, Content),
    ) -> Result<Option<Self>, LogFileError> {
        let file = match open_locked(path) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(None),
            Err(LogFileError::Os { errno, .. }) if errno == Errno::NOENT.raw_os_error() => {
                return match makes {
                    true => New::begin(path, None)?.finish(false),
                    false => Err(LogFileError::Replaced(path.to_owned())),
                };
            }
            Err(error) => return Err(error),
        };
        // Now that no other group can open it.
        if !lock.is_there().map_err(failed("find", lock.path()))? {
            return Err(LogFileError::LockReplaced(lock.path().to_owned()));
        }
        let path = path.to_owned();
        new::sweep(&path);
        let (header, is_old) = match Beginning::read(&file).map_err(failed("read", &path))? {
            Beginning::Log(header) => (header, false),
            Beginning::Old(header) => (header, true),
            Beginning::Version(found) => return Err(LogFileError::Version { path, found }),
            Beginning::Damaged => return Err(LogFileError::Damaged { path, at: 0, next: 0 }),
            Beginning::Empty => return Err(LogFileError::Empty(path)),
            Beginning::Other => return Err(LogFileError::NotALog(path)),
        };
        let (length, next) = (header.first, 0);
        let mut log = Self { path, file, header, length, next, is_mark_synced: false };
        // A later acceptor opens what its group has already, unless it makes another file of it.
        let begins = makes || is_old;
        if begins && log.file.has_other_names().map_err(failed("find", &log.path))? {
            return Err(LogFileError::Linked(log.path.clone()));
        }
        let length = log.read(each)?;
        log.cut(length, tell, "what is not whole")?;
        if is_old {
            log.rewrite(None)?;
        }
        // The process that wrote it may have ended before it was on the disk.
        log.file.sync_data().map_err(failed("write", &log.path))?;
        sync_directory(&log.path).map_err(failed("write the directory of", &log.path))?;
        if log.header.synced < log.length {
            log.mark()?;
        }
        Ok(Some(log))
    }

    /// Reads all records. Returns where the last one ends.
    fn read(&mut self, mut each: impl FnMut(u64, Content)) -> Result<u64, LogFileError> {
        let failed = failed("read", &self.path);
        let Header { marks, synced, first, .. } = self.header;
        let end = self.file.length().map_err(failed)?;
        let mut reader = BufReader::with_capacity(1 << 20, At { file: &self.file, at: first });
        let (mut at, mut next) = (first, 0);
        let mut bytes = Vec::new();
        while let Some((length, _)) =
            marks.read(&mut reader, end.saturating_sub(at), &mut bytes).map_err(failed)?
        {
            match postcard::from_bytes(&bytes) {
                Ok(Content::Snapshot(snapshot)) if at == first => {
                    next = snapshot.next;
                    each(at, Content::Snapshot(snapshot));
                }
                Ok(Content::Entry(index, entry)) if index == next => {
                    next += 1;
                    each(at, Content::Entry(index, entry));
                }
                // It is whole, but not what was once written here.
                _ => break,
            }
            at += length;
        }
        if at < synced || (at < end && self.was_synced_beyond(at, end)?) {
            return Err(LogFileError::Damaged { path: self.path.clone(), at, next });
        }
        self.next = next;
        Ok(at)
    }

    /// Whether a record behind this place says that the file was on its disk beyond it.
    fn was_synced_beyond(&self, at: u64, end: u64) -> Result<bool, LogFileError> {
        let says_so = |synced| synced > at;
        let found = self.header.marks.find(&self.file, at, end, says_so);
        Ok(found.map_err(failed("read", &self.path))?.is_some())
    }

    /// Cuts off what is behind this place, which nobody was told of: `what`. Keeps it beside the file.
    fn cut(&mut self, length: u64, tell: &Tell, what: &str) -> Result<(), LogFileError> {
        let end = self.file.length().map_err(failed("read", &self.path))?;
        if end > length {
            let kept = self.keep(length, end)?;
            let kept = match kept {
                Some(kept) => format!("is kept in {}", kept.display()),
                None => "was only zeros".to_owned(),
            };
            let failed = failed("cut", &self.path);
            if self.header.synced > length {
                // Else the cut would look like damage if the machine failed now.
                self.header.write_next(&self.file, length).map_err(failed)?;
                self.file.sync_data().map_err(failed)?;
            }
            self.file.set_length(length).map_err(failed)?;
            self.file.sync_data().map_err(failed)?;
            let bytes = end - length;
            tell(&format!(
                "cut {bytes} bytes off {} from byte {length} on: {what} {kept}",
                self.path.display()
            ));
        }
        self.length = length;
        Ok(())
    }

    /// Copies a part of the file to a new one beside it, and brings it to the disk; nothing if it is only zeros.
    fn keep(&self, from: u64, end: u64) -> Result<Option<PathBuf>, LogFileError> {
        let zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let mut bytes = vec![0; 1 << 20];
        // Behind the last byte that is not zero, a file system may have kept room, as much as there is.
        let mut last = from;
        let mut at = from;
        let failed_to_read = failed("read", &self.path);
        let end = self.file.data_end(from).map_err(failed_to_read)?.min(end);
        while at < end {
            let count = self.file.read_at(&mut bytes, at).map_err(failed_to_read)?;
            let read = bytes.get(..count).filter(|read| !read.is_empty());
            let Some(read) = read else { break };
            at += count as u64;
            if !zeros(read) {
                last = at.min(end);
            }
        }
        if last == from {
            return Ok(None);
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        for number in 1_u32.. {
            let mut name = self.path.as_os_str().to_owned();
            name.push(format!(".cut-{number}"));
            let name = PathBuf::from(name);
            let mut copy = match options.open(&name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                opened => opened.map_err(failed("write", &name))?,
            };
            let copied =
                io::copy(&mut At { file: &self.file, at: from }.take(last - from), &mut copy);
            let copied = copied.and_then(|_| copy.flush()).and_then(|()| copy.sync_all());
            let copied = copied.and_then(|()| sync_directory(&name));
            if let Err(error) = copied {
                let _ = std::fs::remove_file(&name);
                return Err(failed("write", &name)(error));
            }
            return Ok(Some(name));
        }
        Ok(None)
    }

    /// Says in the header that all of the file is on the disk.
    fn mark(&mut self) -> Result<(), LogFileError> {
        let written = self.header.write_next(&self.file, self.length);
        self.is_mark_synced = false;
        written.map_err(failed("write", &self.path))
    }

    /// Brings the header to the disk, too.
    pub(crate) fn settle(&mut self) -> Result<(), LogFileError> {
        if !self.is_mark_synced {
            self.file.sync_data().map_err(failed("write", &self.path))?;
            self.is_mark_synced = true;
        }
        Ok(())
    }

    /// Writes entries, from this index on. When it returns they are on the disk.
    pub(crate) fn append(&mut self, entries: Vec<Entry<Command>>) -> Result<(), LogFileError> {
        let mut buffer = Vec::new();
        let first = self.next;
        for entry in entries {
            let content = Content::Entry(self.next, entry);
            self.header.marks.write(&mut buffer, self.length, &content);
            self.next += 1;
        }
        let failed = failed("write", &self.path);
        // A file that somebody has cut meanwhile would get a hole.
        let is_whole = self.file.length().map_err(failed)? == self.length;
        if !is_whole || !self.file.is_at(&self.path).map_err(failed)? {
            return Err(LogFileError::Replaced(self.path.clone()));
        }
        let written = self.file.write_all_at(&buffer, self.length);
        if let Err(error) = written.and_then(|()| self.file.sync_data()) {
            // What is not on the disk must not look as if it were.
            let _ = self.file.set_length(self.length);
            self.next = first;
            return Err(failed(error));
        }
        self.length += buffer.len() as u64;
        self.mark()?;
        match self.file.is_at(&self.path).map_err(self::failed("find", &self.path))? {
            true => Ok(()),
            false => Err(LogFileError::Replaced(self.path.clone())),
        }
    }

    /// The index of the next entry.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Puts a snapshot in the place of the entries before it. If there is no room for the new file, the old one stays.
    pub(crate) fn compact(
        &mut self,
        snapshot: Snapshot<Command>,
        tell: &Tell,
    ) -> Result<(), LogFileError> {
        if snapshot.next > self.next {
            return Ok(());
        }
        match self.rewrite(Some(snapshot)) {
            Err(error @ LogFileError::Os { .. }) => {
                tell(&format!("{} does not become shorter: {error}", self.path.display()));
                Ok(())
            }
            rewritten => rewritten,
        }
    }

    /// Writes a new file with this snapshot, if there is one, and all entries that it does not stand for.
    fn rewrite(&mut self, snapshot: Option<Snapshot<Command>>) -> Result<(), LogFileError> {
        let mut new = New::begin(&self.path, Some(&self.file))?;
        let first = snapshot.as_ref().map_or(0, |snapshot| snapshot.next);
        let has_snapshot = snapshot.is_some();
        let mut written = match snapshot {
            Some(snapshot) => new.write(&Content::Snapshot(snapshot)),
            None => Ok(()),
        };
        self.read(|_, content| {
            let is_kept = match &content {
                Content::Entry(index, _) => *index >= first,
                Content::Snapshot(_) => !has_snapshot,
            };
            if is_kept && written.is_ok() {
                written = new.write(&content);
            }
        })?;
        written?;
        // Another file that somebody has put there meanwhile is not this group's.
        if !self.file.is_at(&self.path).map_err(failed("find", &self.path))? {
            return Err(LogFileError::Replaced(self.path.clone()));
        }
        if let Some(file) = new.finish(true)? {
            *self = file;
        }
        Ok(())
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        // Without it the mark may be lower on the disk, which only matters if the machine fails now.
        let _ = self.settle();
    }
}
