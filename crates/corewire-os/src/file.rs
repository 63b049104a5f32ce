//! Files that users name: what is read is a regular file of limited length, and is not waited for; what is written is there
//! whole or not at all, and takes the place of nothing but a regular file.

use std::env;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid, access, fchmod,
    fchown, fcntl_setfl, fstat, open, readlinkat, renameat_with, statat,
};
use rustix::io::Errno;

use crate::process::{effective_uid, has_own_rights};

/// How many links lead to one file at most, as in the kernel.
const LINKS_MAX: usize = 40;
/// How many names for a new file are tried: one that a killed process has left may exist.
const NAMES_MAX: u32 = 100;

/// Opens the regular file at `path` for reading. Links are followed. Waits for nobody.
///
/// # Errors
/// The error of the failed call; `InvalidInput` if it is something else, with a message that says what.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // A pipe without a writer would be waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match open(path, flags, Mode::empty()) {
        // A socket cannot be opened.
        Err(Errno::NXIO) => return Err(not_regular(FileType::Socket)),
        file => File::from(file?),
    };
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        other => Err(not_regular(other)),
    }
}

/// Reads the regular file at `path`, which has at most `bytes_max` bytes. Links are followed. Waits for nobody.
///
/// # Errors
/// As for [`open_regular`]; `FileTooLarge`, with a message that gives the limit.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    bytes_of(open_regular(path)?, bytes_max)
}

fn bytes_of(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let limit = match bytes_max >> 20 {
            0 => format!("{bytes_max} bytes"),
            mib => format!("{mib} MiB"),
        };
        let text = format!("more than {limit} are not possible");
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// As [`read_regular`], of text.
///
/// # Errors
/// As for [`read_regular`]; `InvalidData` if the text is not UTF-8, with a message that says where.
pub fn read_regular_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    text_of(read_regular(path, bytes_max)?)
}

fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(ErrorKind::InvalidData, format!("byte {at} is not UTF-8"))
    })
}

/// As [`read_regular_text`], of settings that this process follows: only their owner, who is this process's user or root, may
/// be able to write them.
///
/// # Errors
/// As for [`read_regular_text`]; `PermissionDenied`, with a message that names the owner or the mode.
pub fn read_settings(path: &Path, bytes_max: u64) -> io::Result<String> {
    text_of(read_trusted(path, bytes_max)?)
}

/// As [`read_settings`], of bytes.
///
/// # Errors
/// As for [`read_settings`].
pub fn read_trusted(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_private(path, bytes_max, 0o022, "write it")
}

/// As [`read_trusted`], of a secret: nobody but its owner may be able to read it either.
///
/// # Errors
/// As for [`read_settings`].
pub fn read_secret(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_private(path, bytes_max, 0o077, "read or write it")
}

fn read_private(path: &Path, bytes_max: u64, forbidden: u32, what: &str) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let status = fstat(&file)?;
    let user = effective_uid();
    let denied = |text: String| Err(io::Error::new(ErrorKind::PermissionDenied, text));
    if status.st_uid != user && status.st_uid != 0 {
        return denied(format!("it belongs to user {}, not to {user} or root", status.st_uid));
    }
    let mode = status.st_mode & 0o7777;
    if mode & forbidden != 0 {
        return denied(format!("it has mode {mode:04o}, so that others can {what}"));
    }
    bytes_of(file, bytes_max)
}

fn not_regular(kind: FileType) -> io::Error {
    let kind = match kind {
        FileType::Directory => "it is a directory",
        FileType::Fifo => "it is a pipe, not a regular file",
        FileType::Socket => "it is a socket, not a regular file",
        FileType::CharacterDevice | FileType::BlockDevice => "it is a device, not a regular file",
        _ => "it is not a regular file",
    };
    io::Error::new(ErrorKind::InvalidInput, kind)
}

/// The file of settings of this process: the one that this variable of the environment names, whether it exists or not; else the
/// first that exists of `file` in `$XDG_CONFIG_HOME` or `~/.config`, and in the directories of `$XDG_CONFIG_DIRS` or `/etc/xdg`.
///
/// A process that runs with rights that its caller lacks takes no word of the environment for it.
#[must_use]
pub fn find_settings(variable: &str, file: &str) -> Option<PathBuf> {
    let get = |name: &str| env::var_os(name).filter(|value| !value.is_empty() && has_own_rights());
    find_settings_with(get, Path::exists, variable, file)
}

fn find_settings_with(
    get: impl Fn(&str) -> Option<OsString>,
    exists: impl Fn(&Path) -> bool,
    variable: &str,
    file: &str,
) -> Option<PathBuf> {
    if let Some(given) = get(variable) {
        return Some(given.into());
    }
    // Relative paths in these variables are to be ignored, says the standard.
    let absolute = |path: &PathBuf| path.is_absolute();
    let own = get("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(absolute)
        .or_else(|| get("HOME").map(|home| Path::new(&home).join(".config")).filter(absolute));
    let shared = get("XDG_CONFIG_DIRS").unwrap_or_else(|| "/etc/xdg".into());
    let shared: Vec<PathBuf> = env::split_paths(&shared).filter(absolute).collect();
    own.into_iter().chain(shared).map(|directory| directory.join(file)).find(|path| exists(path))
}

/// Writes `bytes` to the file at `path`, as [`write_with`] does.
///
/// # Errors
/// As for [`write_with`].
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with(path, |file| file.write_all(bytes))
}

/// Writes a file: `fill` gets it empty. A process that reads it meanwhile finds the old content or the new one, and after a failure
/// the old one is there. It keeps its owner and its mode; one that is made has those of new files of this user.
///
/// A link stays, and what it leads to is written. A device or a pipe is written into, and is not replaced. A file with several
/// names, or whose owner this process cannot keep, or in a directory that it cannot write, is written in place: then a
/// failure leaves a part.
///
/// # Errors
/// The error of the failed call, or of `fill`; `PermissionDenied` for a link of another user than this one and root; for a
/// pipe that nobody reads, and a socket, `NotConnected`.
pub fn write_with(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let target = follow(path)?;
    let old = match statat(CWD, &target, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(old) => Some(old),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(errno.into()),
    };
    match old.map(|old| (FileType::from_raw_mode(old.st_mode), old)) {
        None => New::beside(&target, 0o666)?.fill(fill),
        Some((FileType::RegularFile, old)) => {
            // Renaming needs permission for the directory only, but a file that is read-only is not to be changed.
            let there = open_to_write(&target)?;
            match New::beside_old(&target, &old) {
                Some(new) => new.fill(fill),
                None => fill_in_place(there, fill),
            }
        }
        Some(_) => fill_in_place(open_to_write(&target)?, fill),
    }
}

/// Whether [`write_with`] can probably write the file at `path`, to be known before what is written costs time. Writes
/// nothing, and makes nothing.
///
/// # Errors
/// As for [`write_with`].
pub fn check_writable(path: &Path) -> io::Result<()> {
    let target = follow(path)?;
    match statat(CWD, &target, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
            Err(Errno::ISDIR.into())
        }
        // Who reads a pipe would see its end if it were opened and closed.
        Ok(_) => Ok(access(&target, Access::WRITE_OK)?),
        Err(Errno::NOENT) => {
            let directory = target.parent().filter(|path| !path.as_os_str().is_empty());
            Ok(access(directory.unwrap_or(Path::new(".")), Access::WRITE_OK | Access::EXEC_OK)?)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Where links lead.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let found = match statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(path),
            Err(errno) => return Err(errno.into()),
        };
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            return Ok(path);
        }
        // Others can put links where they know that this user writes.
        if ![0, effective_uid()].contains(&found.st_uid) {
            let text = format!("it is a link of user {}", found.st_uid);
            return Err(io::Error::new(ErrorKind::PermissionDenied, text));
        }
        // What the kernel keeps of open files is no path.
        if path.starts_with("/proc") {
            return Ok(path);
        }
        let leads_to = readlinkat(CWD, &path, Vec::new())?;
        let leads_to = PathBuf::from(OsString::from_vec(leads_to.into_bytes()));
        path = path.parent().unwrap_or(Path::new("")).join(leads_to);
    }
    Err(Errno::LOOP.into())
}

/// Opens what is at `path`, whatever it is.
fn open_to_write(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    match open(path, flags | OFlags::NONBLOCK, Mode::empty()) {
        Err(Errno::NXIO) => Err(io::Error::new(
            ErrorKind::NotConnected,
            "it is a pipe or a socket that nobody reads",
        )),
        file => {
            let file = file?;
            fcntl_setfl(&file, OFlags::WRONLY)?;
            Ok(file.into())
        }
    }
}

fn fill_in_place(mut file: File, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    fill(&mut file)
}

/// A file that is to take the place of another one, or of none.
struct New<'a> {
    file: File,
    name: PathBuf,
    target: &'a Path,
    has_old: bool,
    is_done: bool,
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = std::fs::remove_file(&self.name);
        }
    }
}

impl<'a> New<'a> {
    fn beside(target: &'a Path, mode: u32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        let process = std::process::id();
        let mut last = io::Error::from(ErrorKind::AlreadyExists);
        for number in 0..NAMES_MAX {
            let name = target.with_file_name(format!(".corewire-{process}-{number}"));
            match options.open(&name) {
                Ok(file) => return Ok(Self { file, name, target, has_old: false, is_done: false }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// With owner, group and mode of the old one; `None` if that cannot be.
    fn beside_old(target: &'a Path, old: &Stat) -> Option<Self> {
        if old.st_nlink > 1 {
            return None;
        }
        let mut new = Self::beside(target, 0o600).ok()?;
        new.has_old = true;
        let made = fstat(&new.file).ok()?;
        if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid) {
            let (owner, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
            // First: it clears bits of the mode.
            fchown(&new.file, Some(owner), Some(group)).ok()?;
        }
        fchmod(&new.file, Mode::from_raw_mode(old.st_mode)).ok()?;
        Some(new)
    }

    fn fill(mut self, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        fill(&mut self.file)?;
        self.file.sync_all()?;
        self.rename()?;
        self.is_done = true;
        Ok(())
    }

    fn rename(&self) -> io::Result<()> {
        if !self.has_old {
            match renameat_with(CWD, &self.name, CWD, self.target, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(()),
                // A file system that cannot do that.
                Err(Errno::INVAL | Errno::NOSYS) if !self.target.exists() => {}
                // Another process has made one meanwhile.
                Err(Errno::EXIST) if self.target.symlink_metadata()?.is_file() => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        std::fs::rename(&self.name, self.target)
    }
}

#[cfg(test)]
mod tests;
