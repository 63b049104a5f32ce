//! Removing what dead processes have left, and finding what corewire did not make.

use corewire_layout::name::{ChannelName, SocketName};
use rustix::fs::{AtFlags, FileType, OFlags, statat};
use rustix::io::Errno;

use super::claim::Lock;
use super::rule::{RULE_FILE, is_new_rule};
use super::{ClaimError, RuntimeDirectory, copy_file, name_of_copy, word_of};
use crate::OsError;
use crate::socket::Socket;

/// A file in the runtime directory that corewire did not make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignFile {
    /// Its name; characters that are not UTF-8 are replaced.
    pub name: String,
    /// What kind of file it is, in words.
    pub kind: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
}

impl ForeignFile {
    /// The channel, endpoint or listener that cannot be created while this file is there, if there is one.
    #[must_use]
    pub fn blocks(&self) -> Option<ChannelName> {
        // A members' file is locked; what it holds does not matter.
        let is_locked = self.kind == word_of(FileType::RegularFile);
        let members = || self.name.strip_prefix("m.").filter(|_| !is_locked);
        ChannelName::of_any(self.name.strip_prefix("n.").or_else(members)?).ok()
    }
}

impl RuntimeDirectory {
    /// Removes the files of dead processes: sockets that refuse a connection, the files of names and
    /// of waiting processes whose socket does, copies for guests without a name, the files of shared
    /// channels without a sender, and rules that were not finished. A file that corewire did not create stays, even if its name
    /// has this form. Returns the number of removed files. Never waits.
    ///
    /// # Errors
    /// [`OsError`] if the directory cannot be read.
    pub fn sweep(&self) -> Result<usize, OsError> {
        let mut removed = 0;
        let files = self.files()?;
        // Sockets whose names begin with a dot were left by processes that died before they renamed them.
        for file in files
            .iter()
            .filter(|file| SocketName::of_file(file.strip_prefix('.').unwrap_or(file)).is_some())
        {
            if self.is_socket(file)
                && let Err(error) = Socket::connect_now(&self.short_path(file))
                && error.is(Errno::CONNREFUSED)
            {
                removed += usize::from(self.remove(file));
            }
        }
        for file in files.iter().filter(|file| is_new_rule(file)) {
            removed += usize::from(self.remove(file));
        }
        for file in files.iter().filter(|file| is_members_file(file)) {
            if let Ok(Some(_lock)) = self.lock_empty(file) {
                removed += usize::from(self.remove(file));
            }
        }
        for file in files.iter().filter(|file| file.starts_with("n.") || file.starts_with("w.")) {
            let Ok(record) = self.read_record(file) else { continue };
            let is_dead = match record {
                Some(record) => matches!(self.is_alive(record.socket), Ok(false)),
                // Created just now, or by a process that died before it wrote the record: the lock shows which.
                None => true,
            };
            if is_dead && let Ok(Lock::Held(_lock)) = self.lock_file(file, OFlags::empty()) {
                let copy = ChannelName::of_name_file(file).map(|name| copy_file(&name));
                if let Some(copy) = copy.filter(|copy| self.read_record(copy).is_ok()) {
                    removed += usize::from(self.remove(&copy));
                }
                removed += usize::from(self.remove(file));
            }
        }
        // Copies that could not be removed with their names. Only the process that holds the lock creates
        // or removes a copy.
        for (name, copy) in files.iter().filter_map(|file| Some((name_of_copy(file)?, file))) {
            let file = name.name_file();
            if !files.contains(&file)
                && let Ok(Lock::Held(_lock)) = self.lock_file(&file, OFlags::CREATE)
            {
                if self.read_record(copy).is_ok() {
                    removed += usize::from(self.remove(copy));
                }
                self.remove(&file);
            }
        }
        Ok(removed)
    }

    /// The files of the directory that corewire did not make, in order: what has none of its names,
    /// and what has one but is something else. Does not block.
    ///
    /// # Errors
    /// [`OsError`] if the directory cannot be read.
    pub fn foreign_files(&self) -> Result<Vec<ForeignFile>, OsError> {
        let mut foreign = Vec::new();
        for name in self.list()? {
            // It may have gone by now.
            let Ok(found) = statat(&self.descriptor, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let kind = FileType::from_raw_mode(found.st_mode);
            let bytes = u64::try_from(found.st_size).unwrap_or_default();
            if !name.to_str().is_ok_and(|name| self.is_own(name, kind, bytes)) {
                let name = name.to_string_lossy().into_owned();
                foreign.push(ForeignFile { name, kind: word_of(kind), bytes });
            }
        }
        foreign.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(foreign)
    }

    /// Could corewire have made this file? A file that cannot be read is not called foreign.
    fn is_own(&self, name: &str, kind: FileType, bytes: u64) -> bool {
        if SocketName::of_file(name.strip_prefix('.').unwrap_or(name)).is_some() {
            return kind == FileType::Socket;
        }
        if is_members_file(name) {
            return kind == FileType::RegularFile && bytes == 0;
        }
        if name == RULE_FILE || is_new_rule(name) {
            return kind == FileType::RegularFile;
        }
        let holds_record = ChannelName::of_name_file(name).is_some()
            || name_of_copy(name).is_some()
            || is_waiter_file(name);
        holds_record && !matches!(self.read_record(name), Err(ClaimError::Foreign(_)))
    }

    fn is_socket(&self, file: &str) -> bool {
        let found = statat(&self.descriptor, file, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket)
    }
}

fn is_waiter_file(file: &str) -> bool {
    let parts = file.strip_prefix("w.").and_then(|rest| rest.rsplit_once('.'));
    let name = parts.and_then(|(name, _)| ChannelName::of_any(name).ok());
    name.is_some_and(|name| name.waiter_of_file(file).is_some())
}

fn is_members_file(file: &str) -> bool {
    file.strip_prefix("m.").is_some_and(|name| ChannelName::new(name).is_ok())
}
