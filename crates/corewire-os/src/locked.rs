//! Files that one open of them has at a time, in all processes.
//!
//! The lock is one of the kernel, of the *open file description* (`F_OFD_SETLK`): it goes when the last descriptor of
//! this open is closed, whatever else the process opens, reads and closes. A record lock of the process (`F_SETLK`)
//! would go with the first close of the file by any code of the process. Both kinds exclude each other; `flock` would
//! not exclude versions of corewire that take record locks. A forked child closes its copy, so it does not keep the
//! lock when its parent has ended; it never unlocks it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    FileType, Mode, OFlags, SeekFrom, Stat, fdatasync, fstat, fsync, ftruncate, open, seek,
};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};

use crate::fork::Descriptor;

/// Takes a lock of the whole file, or changes the one that this open has. False if another open has one.
fn lock(file: &Descriptor, kind: libc::c_int) -> io::Result<bool> {
    // SAFETY: an all-zero `flock` is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::c_short::try_from(kind).unwrap_or_default();
    lock.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default();
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: the pointer is to a local.
    let result = unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// A lock that all processes have at the same time that give the same words; in a file of its own.
#[derive(Debug)]
pub struct SharedLock {
    file: LockedFile,
    path: PathBuf,
}

impl SharedLock {
    /// Takes the lock in the file at `path`, which is made for this user only if it does not exist; `None` if processes that
    /// have given other words have it. Waits for processes that are just taking it, at most until `deadline`.
    ///
    /// # Errors
    /// The error of the failed call; `InvalidInput` if the file is no regular file; `EPERM` if it belongs to another user,
    /// who could keep the lock from this one (who is not root); `TimedOut`.
    pub fn take(path: &Path, words: &[u8], deadline: Instant) -> io::Result<Option<Self>> {
        loop {
            let file = LockedFile::open_unlocked(path, OFlags::CREATE)?;
            let user = rustix::process::geteuid();
            if !user.is_root() && user.as_raw() != file.stat()?.st_uid {
                return Err(Errno::PERM.into());
            }
            // A process that is alone says which processes share the lock.
            let is_alone = lock(&file.0, libc::F_WRLCK)?;
            if is_alone {
                file.write_all_at(words, 0)?;
                file.set_length(words.len() as u64)?;
            }
            if lock(&file.0, libc::F_RDLCK)? && file.is_at(path)? {
                let mut found = vec![0; words.len() + 1];
                let count = file.read_at(&mut found, 0)?;
                let path = path.to_owned();
                return Ok((found.get(..count) == Some(words)).then_some(Self { file, path }));
            }
            if Instant::now() >= deadline {
                return Err(Errno::TIMEDOUT.into());
            }
            drop(file);
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Where its file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Is the file still where it was? If not, others may have another lock there.
    ///
    /// # Errors
    /// The error of the failed call.
    pub fn is_there(&self) -> io::Result<bool> {
        self.file.is_at(&self.path)
    }
}

/// An open regular file whose lock this open has.
#[derive(Debug)]
pub struct LockedFile(Descriptor);

impl LockedFile {
    /// Opens the file at `path`, which is no link, and takes its lock; `None` if another open of it has the lock. Does not
    /// wait. The lock is that of the file: by now `path` may lead to another one ([`LockedFile::is_at`]).
    ///
    /// # Errors
    /// The error of the failed call; `InvalidInput` if it is no regular file.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        Self::open_with(path, OFlags::empty())
    }

    /// Makes a file, for this user only, and takes its lock.
    ///
    /// # Errors
    /// The error of the failed call; `AlreadyExists`.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        let file = Self::open_with(path, OFlags::CREATE | OFlags::EXCL)?;
        file.ok_or_else(|| Errno::AGAIN.into())
    }

    fn open_with(path: &Path, flags: OFlags) -> io::Result<Option<Self>> {
        let file = Self::open_unlocked(path, flags)?;
        Ok(file.lock()?.then_some(file))
    }

    fn open_unlocked(path: &Path, flags: OFlags) -> io::Result<Self> {
        // A pipe would be waited for.
        let always = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = Self(Descriptor::make(|| open(path, always | flags, mode))?);
        if FileType::from_raw_mode(file.stat()?.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL.into());
        }
        Ok(file)
    }

    fn lock(&self) -> io::Result<bool> {
        lock(&self.0, libc::F_WRLCK)
    }

    fn stat(&self) -> io::Result<Stat> {
        self.check()?;
        Ok(fstat(&self.0)?)
    }

    /// In a forked child the descriptor is closed, and its number may belong to another file.
    fn check(&self) -> io::Result<()> {
        if self.0.is_ours() { Ok(()) } else { Err(Errno::BADF.into()) }
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// The error of the failed call.
    pub fn length(&self) -> io::Result<u64> {
        Ok(u64::try_from(self.stat()?.st_size).unwrap_or(0))
    }

    /// The end of the last byte from `from` on that the file system has: behind it are only zeros that nobody wrote, as many
    /// as the length says. The length, where the file system does not know.
    ///
    /// # Errors
    /// The error of the failed call.
    pub fn data_end(&self, from: u64) -> io::Result<u64> {
        let length = self.length()?;
        let mut end = from.min(length);
        loop {
            match seek(&self.0, SeekFrom::Data(end)) {
                Ok(data) => end = seek(&self.0, SeekFrom::Hole(data))?,
                Err(Errno::NXIO) => return Ok(end),
                Err(_) => return Ok(length),
            }
        }
    }

    /// Does `path` lead to this file?
    ///
    /// # Errors
    /// The error of the failed call.
    pub fn is_at(&self, path: &Path) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        let is = self.stat()?;
        match path.metadata() {
            Ok(there) => Ok((is.st_dev, is.st_ino) == (there.dev(), there.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether it has several names: hard links.
    ///
    /// # Errors
    /// The error of the failed call.
    pub fn has_other_names(&self) -> io::Result<bool> {
        Ok(self.stat()?.st_nlink > 1)
    }

    /// Reads from `at` on. Returns how many bytes; 0 at the end.
    ///
    /// # Errors
    /// The error of the failed call.
    pub fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.check()?;
        Ok(retry_on_intr(|| pread(&self.0, &mut *buffer, at))?)
    }

    /// Writes all of `bytes` from `at` on.
    ///
    /// # Errors
    /// The error of the failed call; a part may be written.
    pub fn write_all_at(&self, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        self.check()?;
        while !bytes.is_empty() {
            match retry_on_intr(|| pwrite(&self.0, bytes, at))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => {
                    bytes = bytes.get(count..).unwrap_or_default();
                    at += count as u64;
                }
            }
        }
        Ok(())
    }

    /// Sets its length.
    ///
    /// # Errors
    /// The error of the failed call.
    pub fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.check()?;
        Ok(retry_on_intr(|| ftruncate(&self.0, bytes))?)
    }

    /// Brings its content to the disk (`fdatasync`).
    ///
    /// # Errors
    /// The error of the failed call.
    pub fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        Ok(retry_on_intr(|| fdatasync(&self.0))?)
    }

    /// Brings content and attributes to the disk (`fsync`).
    ///
    /// # Errors
    /// The error of the failed call.
    pub fn sync_all(&self) -> io::Result<()> {
        self.check()?;
        Ok(retry_on_intr(|| fsync(&self.0))?)
    }

    /// Gives it the mode of `other`, and its user and group where that is permitted.
    ///
    /// # Errors
    /// The error of the failed call.
    pub fn take_mode_of(&self, other: &Self) -> io::Result<()> {
        let stat = other.stat()?;
        let owner = rustix::fs::Uid::from_raw(stat.st_uid);
        let group = rustix::fs::Gid::from_raw(stat.st_gid);
        // First: it clears the bits that only an owner may set.
        let _ = rustix::fs::fchown(&self.0, Some(owner), Some(group));
        Ok(rustix::fs::fchmod(&self.0, Mode::from_raw_mode(stat.st_mode))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Keeps P220.
    #[test]
    fn one_open_has_the_lock_whatever_else_reads_the_file() {
        let name = format!("corewire-os-locked-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let file = LockedFile::create_new(&path).unwrap();
        file.write_all_at(b"content", 0).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"content");
        assert!(LockedFile::open(&path).unwrap().is_none(), "reading it has not unlocked it");
        let link = path.with_extension("link");
        std::fs::hard_link(&path, &link).unwrap();
        assert!(LockedFile::open(&link).unwrap().is_none(), "by another name");
        drop(file);
        let file = LockedFile::open(&link).unwrap().unwrap();
        assert!(file.is_at(&path).unwrap());
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(LockedFile::open(&link).is_err(), "links are not followed");
        assert!(LockedFile::open(Path::new("/dev/null")).is_err(), "no regular file");
        std::fs::remove_file(&link).unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_nobody_has_written_at_the_end_is_known() {
        let name = format!("corewire-os-holes-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let file = LockedFile::create_new(&path).unwrap();
        file.write_all_at(b"content", 0).unwrap();
        file.write_all_at(b"more", 1 << 30).unwrap();
        file.set_length(1 << 40).unwrap();
        let end = file.data_end(7).unwrap();
        assert!(end >= (1 << 30) + 4 && (end < 1 << 31 || end == 1 << 40), "{end}");
        assert_eq!(file.data_end(1 << 40).unwrap(), 1 << 40);
        std::fs::remove_file(&path).unwrap();
    }

    // Keeps P220.
    #[test]
    fn a_shared_lock_is_shared_by_those_who_say_the_same() {
        let name = format!("corewire-os-shared-lock-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let take = |words: &[u8]| SharedLock::take(&path, words, Instant::now()).unwrap();
        let first = take(b"one").unwrap();
        let second = take(b"one").unwrap();
        assert!(take(b"two").is_none() && take(b"on").is_none());
        drop(first);
        assert!(take(b"two").is_none());
        drop(second);
        let other = take(b"two").unwrap();
        assert!(take(b"one").is_none());
        assert!(other.is_there().unwrap());
        std::fs::remove_file(&path).unwrap();
        let third = take(b"one").unwrap();
        assert!(third.is_there().unwrap() && !other.is_there().unwrap());
        drop((other, third));
        std::fs::remove_file(&path).unwrap();
    }
}
