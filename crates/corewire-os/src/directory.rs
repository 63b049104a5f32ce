//! The runtime directory: names, their owners, those who wait. It is the whole registry: there is
//! no server. `corewire_layout::name` says which files it holds.
//!
//! A name is taken by holding a lock on its file for life. The kernel lets go of the lock when the
//! owner's process ends, however it ends; so a claim is exact, and there is nothing to time out.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use corewire_layout::name::{ChannelName, NameRecord, RECORD_BYTES, SocketName};
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, fstat, inotify, mkdir, open, openat, renameat, statat,
    unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

use crate::event::wait_readable;
use crate::fork::Descriptor;
use crate::process::effective_uid;
use crate::socket::{Listener, Socket};
use crate::{Doing, OsError, random_u128};

/// A claim waits this long for somebody who is just removing a dead owner's file.
const CLEANER_WAIT: Duration = Duration::from_millis(200);

/// Why a runtime directory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It belongs to somebody else.
    #[error("runtime directory {path:?} belongs to user {owner}, this process runs as user {user}")]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// Others may read or write it.
    #[error(
        "runtime directory {path:?} has mode {mode:04o}; others must have no access \
         (chmod 0700 it)"
    )]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Why a name cannot be claimed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// Somebody who is alive has it.
    #[error("channel {0} already exists")]
    AlreadyExists(ChannelName),
    /// A file of that name is there that corewire did not make.
    #[error("{0:?} in the runtime directory is not a file of corewire's: remove it")]
    Foreign(String),
    /// A call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Where the runtime directory is: `COREWIRE_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/corewire`, else
/// a directory of this user's in `/tmp`.
#[must_use]
pub fn default_path() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match (variable("COREWIRE_RUNTIME_DIR"), variable("XDG_RUNTIME_DIR")) {
        (Some(path), _) => path.into(),
        (None, Some(path)) => Path::new(&path).join("corewire"),
        (None, None) => format!("/tmp/corewire-{}", effective_uid()).into(),
    }
}

/// An open runtime directory.
#[derive(Debug)]
pub struct RuntimeDirectory {
    descriptor: Descriptor,
    path: PathBuf,
}

impl RuntimeDirectory {
    /// Opens the directory at `path`, making it if it is not there. It must belong to this user,
    /// and nobody else may have access.
    ///
    /// # Errors
    /// [`DirectoryError`] says what is wrong with it.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        match mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => {
                let what = format!("make runtime directory {}", path.display());
                return Err(OsError::new(what, errno).into());
            }
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let what = format!("open runtime directory {}", path.display());
        let descriptor = retry_on_intr(|| open(path, flags, Mode::empty())).doing(what)?;
        let status = fstat(&descriptor).doing("look at the runtime directory")?;
        let (owner, user) = (status.st_uid, effective_uid());
        let path = path.to_owned();
        if owner != user {
            return Err(DirectoryError::Owner { path, owner, user });
        }
        let mode = status.st_mode & 0o7777;
        if mode & 0o077 != 0 {
            return Err(DirectoryError::Mode { path, mode });
        }
        Ok(Self { descriptor: Descriptor::new(descriptor), path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path to `file` in this very directory, short enough for a socket address.
    fn short_path(&self, file: &str) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}/{file}", self.descriptor.as_fd().as_raw_fd())
    }

    /// Listens under a new random name. The socket appears only once it listens, so whoever finds
    /// one that refuses a connection may remove it.
    ///
    /// # Errors
    /// [`OsError`] if the directory cannot be written.
    pub fn listen(&self) -> Result<(Listener, SocketName), OsError> {
        loop {
            let name = SocketName(random_u128()?);
            let hidden = format!(".{}", name.file());
            let listener = Listener::bind(&self.short_path(&hidden))?;
            match renameat(&self.descriptor, &hidden, &self.descriptor, name.file()) {
                // Somebody who swept took it for a dead process's, before it listened.
                Err(Errno::NOENT) => {}
                other => {
                    other.doing("show the process's socket")?;
                    return Ok((listener, name));
                }
            }
        }
    }

    /// Connects to a process. `None` if it is not there any more.
    ///
    /// # Errors
    /// [`OsError`] for anything else.
    pub fn connect(&self, name: SocketName) -> Result<Option<Socket>, OsError> {
        match Socket::connect(&self.short_path(&name.file())) {
            Ok(socket) => Ok(Some(socket)),
            Err(error) if error.is(Errno::CONNREFUSED) || error.is(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes `name` for this process, for as long as the claim lives. Others find it once
    /// [`Claim::write`] has said where.
    ///
    /// # Errors
    /// [`ClaimError::AlreadyExists`] exactly if somebody alive has it.
    pub fn claim(&self, name: &ChannelName) -> Result<Claim, ClaimError> {
        let file = name.name_file();
        let deadline = Instant::now() + CLEANER_WAIT;
        loop {
            match self.lock_file(&file, OFlags::CREATE)? {
                Lock::Held(descriptor) => {
                    // What is not ours is not to be overwritten.
                    self.read_record(&file)?;
                    retry_on_intr(|| rustix::fs::ftruncate(&descriptor, 0))
                        .doing(format!("clear {file}"))?;
                    return Ok(Claim { descriptor, file });
                }
                Lock::Replaced => {}
                // Whoever holds the lock has the name, or has seen that its owner is dead and is
                // just removing the file.
                Lock::Busy => {
                    let holder = self.read_record(&file)?;
                    let alive = holder.map(|record| self.is_alive(record.socket)).transpose()?;
                    if alive == Some(true) || Instant::now() >= deadline {
                        return Err(ClaimError::AlreadyExists(name.clone()));
                    }
                    rustix::thread::sched_yield();
                }
            }
        }
    }

    /// Who has `name`, as far as its file says; `None` if nobody. The file may be a dead owner's:
    /// connecting tells.
    ///
    /// # Errors
    /// [`ClaimError::Foreign`] if something else than a file is there, or the failed call.
    pub fn look_up(&self, name: &ChannelName) -> Result<Option<NameRecord>, ClaimError> {
        self.read_record(&name.name_file())
    }

    /// Leaves a note that this process waits for `name`.
    ///
    /// # Errors
    /// The failed call.
    pub fn leave_waiter(
        &self,
        name: &ChannelName,
        waiter: u128,
        socket: SocketName,
    ) -> Result<Claim, ClaimError> {
        let file = name.waiter_file(waiter);
        loop {
            // Whoever sweeps may take a file that is not yet locked for one that the dead have left.
            // The name is random: nobody else's note is removed if this one cannot be kept.
            let lock = self.lock_file(&file, OFlags::CREATE).inspect_err(|_| {
                self.remove(&file);
            })?;
            if let Lock::Held(descriptor) = lock {
                let claim = Claim { descriptor, file };
                return match claim.write(NameRecord { socket, incarnation: waiter }) {
                    Ok(()) => Ok(claim),
                    Err(error) => {
                        claim.release(self);
                        Err(error.into())
                    }
                };
            }
            rustix::thread::sched_yield();
        }
    }

    /// Those who wait for `name`, dead ones too: connecting tells.
    ///
    /// # Errors
    /// [`OsError`] if the directory or a note cannot be read.
    pub fn waiters(&self, name: &ChannelName) -> Result<Vec<NameRecord>, OsError> {
        let mut waiters = Vec::new();
        for file in self.files()? {
            let Some(waiter) = name.waiter_of_file(&file) else { continue };
            match self.read_record(&file) {
                Ok(record) => waiters.extend(record.filter(|it| it.incarnation == waiter)),
                Err(ClaimError::Os(error)) => return Err(error),
                // Not a note.
                Err(_) => {}
            }
        }
        Ok(waiters)
    }

    /// The names that are taken, dead owners' too, in order.
    ///
    /// # Errors
    /// [`OsError`] if the directory cannot be read.
    pub fn names(&self) -> Result<Vec<ChannelName>, OsError> {
        let mut names: Vec<_> =
            self.files()?.iter().filter_map(|file| ChannelName::of_name_file(file)).collect();
        names.sort();
        Ok(names)
    }

    /// Removes what the dead have left: sockets that refuse a connection, and the files of names
    /// and waiters whose socket does. Returns how many.
    ///
    /// # Errors
    /// [`OsError`] if the directory cannot be read.
    pub fn sweep(&self) -> Result<usize, OsError> {
        let mut removed = 0;
        let files = self.files()?;
        for socket in files.iter().filter_map(|file| SocketName::of_file(file)) {
            if !self.is_alive(socket)? {
                removed += usize::from(self.remove(&socket.file()));
            }
        }
        // Left by one who died before its socket could be shown.
        for file in files.iter().filter(|file| file.starts_with(".p.")) {
            if let Err(error) = Socket::connect(&self.short_path(file))
                && error.is(Errno::CONNREFUSED)
            {
                removed += usize::from(self.remove(file));
            }
        }
        for file in files.iter().filter(|file| file.starts_with("n.") || file.starts_with("w.")) {
            let Ok(record) = self.read_record(file) else { continue };
            let is_dead = match record {
                Some(record) => !self.is_alive(record.socket)?,
                // Just made, or made by somebody who died before writing: the lock tells.
                None => true,
            };
            if is_dead && let Ok(Lock::Held(_lock)) = self.lock_file(file, OFlags::empty()) {
                removed += usize::from(self.remove(file));
            }
        }
        Ok(removed)
    }

    /// A watch on the directory's files.
    ///
    /// # Errors
    /// [`OsError`] if the kernel has no more watches to give.
    pub fn watch(&self) -> Result<Watch, OsError> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let descriptor = inotify::init(flags).doing("watch the runtime directory")?;
        let what = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::DELETE;
        inotify::add_watch(&descriptor, self.short_path("."), what)
            .doing("watch the runtime directory")?;
        Ok(Watch(Descriptor::new(descriptor)))
    }

    /// Is there a process that listens at `socket`?
    ///
    /// # Errors
    /// [`OsError`] if that cannot be said.
    pub fn is_alive(&self, socket: SocketName) -> Result<bool, OsError> {
        match self.connect(socket) {
            Ok(found) => Ok(found.is_some()),
            // More connections wait than it can queue: it is alive, if not well.
            Err(error) if error.is(Errno::AGAIN) => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn files(&self) -> Result<Vec<String>, OsError> {
        // All over again: what has failed once gives no more entries.
        retry_on_intr(|| self.list()).doing("read the runtime directory")
    }

    fn list(&self) -> Result<Vec<String>, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let again = openat(&self.descriptor, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(again)? {
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn read_record(&self, file: &str) -> Result<Option<NameRecord>, ClaimError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = || openat(&self.descriptor, file, flags, Mode::empty());
        let descriptor = match retry_on_intr(open) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => return Err(ClaimError::Foreign(file.into())),
            other => other.doing(format!("open {file}"))?,
        };
        let mut text = [0u8; RECORD_BYTES + 1];
        let bytes = match retry_on_intr(|| rustix::io::read(&descriptor, &mut text)) {
            Err(Errno::ISDIR) => return Err(ClaimError::Foreign(file.into())),
            other => other.doing(format!("read {file}"))?,
        };
        match NameRecord::parse(&text[..bytes]) {
            Some(record) => Ok(Some(record)),
            None if bytes == 0 => Ok(None),
            None => Err(ClaimError::Foreign(file.into())),
        }
    }

    fn lock_file(&self, file: &str, extra: OFlags) -> Result<Lock, ClaimError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | extra;
        let mode = Mode::RUSR | Mode::WUSR;
        let open = || openat(&self.descriptor, file, flags, mode);
        let descriptor = match retry_on_intr(open) {
            Err(Errno::NOENT) => return Ok(Lock::Replaced),
            Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
                return Err(ClaimError::Foreign(file.into()));
            }
            other => Descriptor::new(other.doing(format!("open {file}"))?),
        };
        let operation = FlockOperation::NonBlockingLockExclusive;
        match retry_on_intr(|| rustix::fs::flock(&descriptor, operation)) {
            Err(Errno::WOULDBLOCK) => return Ok(Lock::Busy),
            other => other.doing(format!("lock {file}"))?,
        }
        // Somebody may have removed the file, and a third made another, before we had the lock.
        let ours = fstat(&descriptor).doing(format!("look at {file}"))?;
        match statat(&self.descriptor, file, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) if (named.st_ino, named.st_dev) == (ours.st_ino, ours.st_dev) => {
                Ok(Lock::Held(descriptor))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(Lock::Replaced),
            Err(errno) => Err(OsError::new(format!("look at {file}"), errno).into()),
        }
    }

    /// Removes a file; true if it was there. A forked child removes nothing.
    pub fn remove(&self, file: &str) -> bool {
        self.descriptor.is_ours() && unlinkat(&self.descriptor, file, AtFlags::empty()).is_ok()
    }
}

enum Lock {
    Held(Descriptor),
    Busy,
    /// The file was removed or replaced meanwhile: try again.
    Replaced,
}

/// A file of the directory that this process has locked. Dropping it lets go of the lock and leaves
/// the file for the next sweep; [`Claim::release`] removes it.
#[derive(Debug)]
pub struct Claim {
    descriptor: Descriptor,
    file: String,
}

impl Claim {
    /// Says where the holder is.
    ///
    /// # Errors
    /// [`OsError`] if the file cannot be written.
    pub fn write(&self, record: NameRecord) -> Result<(), OsError> {
        let text = record.to_text();
        let written = retry_on_intr(|| rustix::io::pwrite(&self.descriptor, text.as_bytes(), 0));
        match written.doing(format!("write {}", self.file))? {
            bytes if bytes == text.len() => Ok(()),
            _ => Err(OsError::new(format!("write {}", self.file), Errno::NOSPC)),
        }
    }

    /// Removes the file while it is still locked, then lets go of it.
    pub fn release(self, directory: &RuntimeDirectory) {
        if self.descriptor.is_ours() {
            directory.remove(&self.file);
        }
    }
}

/// Notices of changes in the directory.
#[derive(Debug)]
pub struct Watch(Descriptor);

impl Watch {
    /// Waits until a file of the directory changes, `other` becomes readable, or `deadline` passes.
    /// Returns false in the last case.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses.
    pub fn wait(&self, other: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<bool, OsError> {
        let ready = wait_readable(&[self.0.as_fd(), other], deadline)?;
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut space);
        while events.next().is_ok_and(|event| event.file_name().is_some_and(is_any)) {}
        Ok(ready.contains(&true))
    }
}

fn is_any(_: &CStr) -> bool {
    true
}
