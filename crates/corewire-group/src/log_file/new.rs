//! A file that will have the name of a log when it is whole and on the disk.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::io::ErrorKind::{AlreadyExists, NotFound, PermissionDenied, Unsupported};
use std::path::{Path, PathBuf};

use corewire_os::locked::LockedFile;
use corewire_os::random_u128;

use super::error::{LogFileError, failed};
use super::file::LogFile;
use super::file_id::{directory_of, sync_directory};
use super::format::{Content, FIRST, Header, Marks, word};

/// How much is gathered before it is written.
const GATHERED_BYTES: usize = 1 << 20;

pub(super) struct New {
    path: PathBuf,
    name: Name,
    file: LockedFile,
    header: Header,
    gathered: Vec<u8>,
    length: u64,
    next: u64,
}

/// What the file is called until then. A file that still has this name is removed.
struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What the names of such files begin with, beside the log.
fn prefix_of(path: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".corewire-new.");
    prefix
}

/// Whether this is what a random number makes of a name.
pub(crate) fn is_random(rest: &[u8]) -> bool {
    rest.len() == 16 && rest.iter().all(u8::is_ascii_hexdigit)
}

/// Removes what processes have left that ended while they wrote one. Only who has the log's lock does this.
pub(super) fn sweep(path: &Path) {
    let prefix = prefix_of(path);
    let Ok(entries) = fs::read_dir(directory_of(path)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let rest = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        let is_its = rest.is_some_and(is_random);
        if is_its && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            // One that cannot be removed costs space, and nothing else.
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl New {
    /// Begins one beside the log, with the mode of an `old` one.
    pub(super) fn begin(path: &Path, old: Option<&LockedFile>) -> Result<Self, LogFileError> {
        let os = |error: corewire_os::OsError| io::Error::from_raw_os_error(error.errno);
        let random = random_u128().map_err(os).map_err(failed("write", path))?;
        let mut name = prefix_of(path);
        name.push(format!("{:016x}", random >> 64));
        let name = directory_of(path).join(name);
        let file = LockedFile::create_new(&name).map_err(failed("make", path))?;
        let name = Name(name);
        let bytes = random.to_le_bytes();
        let marks = Marks { mark: word(&bytes, 0), seed: word(&bytes, 4) };
        let header = Header { marks, number: 0, synced: FIRST, first: FIRST };
        let (path, gathered) = (path.to_owned(), Vec::new());
        let new = Self { path, name, file, header, gathered, length: FIRST, next: 0 };
        if let Some(old) = old {
            new.file.take_mode_of(old).map_err(failed("make", &new.path))?;
        }
        Ok(new)
    }

    /// Appends a record.
    pub(super) fn write(&mut self, content: &Content) -> Result<(), LogFileError> {
        // Nothing of the file is on the disk for certain before it has its name.
        self.header.marks.write(&mut self.gathered, FIRST, content);
        self.next = match content {
            Content::Snapshot(snapshot) => snapshot.next,
            Content::Entry(index, _) => index + 1,
        };
        if self.gathered.len() >= GATHERED_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), LogFileError> {
        let written = self.file.write_all_at(&self.gathered, self.length);
        written.map_err(failed("write", &self.path))?;
        self.length += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }

    /// Brings it to the disk and gives it the name of the log; nothing if there is another one by now, and it may not be
    /// replaced.
    pub(super) fn finish(mut self, replaces: bool) -> Result<Option<LogFile>, LogFileError> {
        self.flush()?;
        let written = self.file.set_length(self.length);
        let written = written.and_then(|()| self.header.write_next(&self.file, self.length));
        // Both headers: an old one could be taken for the other.
        let written = written.and_then(|()| self.header.write_next(&self.file, self.length));
        let written = written.and_then(|()| self.file.sync_all());
        written.map_err(failed("write", &self.path))?;
        let named = match replaces {
            true => fs::rename(&self.name.0, &self.path),
            false => match fs::hard_link(&self.name.0, &self.path) {
                Ok(()) => fs::remove_file(&self.name.0),
                // A file system without links.
                Err(error) if matches!(error.kind(), PermissionDenied | Unsupported) => {
                    rename_to_nothing(&self.name.0, &self.path)
                }
                Err(error) => Err(error),
            },
        };
        match named {
            // Another process has made one, or has removed this one while it looked after its own.
            Err(error) if matches!(error.kind(), AlreadyExists | NotFound) && !replaces => {
                return Ok(None);
            }
            named => named.map_err(failed("name", &self.path))?,
        }
        sync_directory(&self.path).map_err(failed("write the directory of", &self.path))?;
        let Self { path, file, header, length, next, .. } = self;
        Ok(Some(LogFile { path, file, header, length, next, is_mark_synced: true }))
    }
}

/// Gives a file a name that no other file has.
fn rename_to_nothing(name: &Path, path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, name, CWD, path, RenameFlags::NOREPLACE) {
        // A file system that cannot do that, either.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !path.exists() => {
            fs::rename(name, path)
        }
        renamed => Ok(renamed?),
    }
}
