//! The runtime directory: names, their owners, and processes that wait for a name. It is the whole
//! registry; there is no server. `corewire_layout::name` lists its files.
//!
//! A process owns a name as long as it holds a lock on the name's file. The kernel releases the lock
//! when the process ends, for any reason. So a claim is exact, and nothing depends on a time-out.
//!
//! Only processes of the directory's owner change anything here. The owner may admit other users as
//! guests, who find names and connect: see [`Access`]. A process that can read a file can also lock it,
//! so guests read a copy of the record in a separate file, `g.<name>`, which no process locks.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use corewire_layout::name::{ChannelName, NameKind, NameRecord, RECORD_BYTES, SocketName};
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Gid, Mode, OFlags, RawDir, chmodat, fchmod, fchown,
    fstat, inotify, mkdir, open, openat, renameat, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

use crate::access::Access;
use crate::event::wait_readable;
use crate::fork::Descriptor;
use crate::process::{check_file_size, effective_uid, known_uid};
use crate::socket::{Listener, Socket};
use crate::{Doing, OsError, random_u128};

/// Maximum time that a claim waits for a process that is just removing a dead owner's file.
const CLEANER_WAIT: Duration = Duration::from_millis(200);

/// Why a runtime directory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It belongs to another user.
    #[error(
        "runtime directory {path:?} belongs to user {owner}, {}",
        if expected == user {
            format!(
                "this process runs as user {user}: have it removed, or set COREWIRE_RUNTIME_DIR to a \
                 directory of this user's"
            )
        } else {
            format!("not to user {expected}")
        }
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The expected owner.
        expected: u32,
        /// This process's effective user.
        user: u32,
    },
    /// Other users may read or write it, and no access rule was given.
    #[error(
        "runtime directory {path:?} has mode {mode:04o}; others must have no access \
         (chmod 0700 it, or open it with an access rule)"
    )]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Other users may write it, so a socket in it may belong to any of them.
    #[error("runtime directory {path:?} has mode {mode:04o}; only its owner may write it")]
    Writable {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The kernel did not set the group or the mode of an access rule.
    #[error(
        "runtime directory {path:?} has group {group} and mode {mode:04o} where group \
         {group_asked} and mode {mode_asked:04o} were asked for"
    )]
    Rule {
        /// The directory.
        path: PathBuf,
        /// Its group.
        group: u32,
        /// Its mode.
        mode: u32,
        /// The rule's group.
        group_asked: u32,
        /// The rule's mode.
        mode_asked: u32,
    },
    /// `/proc/self/fd`, which corewire needs, does not exist.
    #[error("/proc/self/fd is not there: mount /proc (a chroot needs one of its own)")]
    NoProc,
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Why a name cannot be claimed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// A living process has it.
    #[error("channel {0} already exists")]
    AlreadyExists(ChannelName),
    /// The directory contains a file of that name that corewire did not create.
    #[error("file {0:?} in the runtime directory was not created by corewire: remove it")]
    Foreign(String),
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// The default runtime directory: `$COREWIRE_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/corewire`, else
/// `/tmp/corewire-UID`. A variable that is empty counts as not set.
#[must_use]
pub fn default_path() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match (variable("COREWIRE_RUNTIME_DIR"), variable("XDG_RUNTIME_DIR")) {
        (Some(path), _) => path.into(),
        (None, Some(path)) => Path::new(&path).join("corewire"),
        (None, None) => format!("/tmp/corewire-{}", effective_uid()).into(),
    }
}

/// The default runtime directory of user `owner` for guests: `$COREWIRE_RUNTIME_DIR`, else
/// `/tmp/corewire-OWNER`. No user can enter another user's `$XDG_RUNTIME_DIR`.
#[must_use]
pub fn default_path_of(owner: u32) -> PathBuf {
    let given = std::env::var_os("COREWIRE_RUNTIME_DIR").filter(|value| !value.is_empty());
    given.map_or_else(|| format!("/tmp/corewire-{owner}").into(), PathBuf::from)
}

/// The role in which a process opens a runtime directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Its owner. Creates the directory if it does not exist. No other user may have access.
    Owner,
    /// Its owner, which accepts the directory's mode. Other users may be admitted, but may not write.
    /// This process answers none of them.
    Resident,
    /// Its owner, which sets this rule: the directory gets the mode and the group of the rule.
    Ruler(Access),
    /// A guest of this user. Changes nothing.
    Guest(u32),
}

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
    /// The channel or endpoint that cannot be created while this file is there, if there is one.
    #[must_use]
    pub fn blocks(&self) -> Option<ChannelName> {
        // A members' file is locked; what it holds does not matter.
        let is_locked = self.kind == word_of(FileType::RegularFile);
        let members = || self.name.strip_prefix("m.").filter(|_| !is_locked);
        ChannelName::of_any(self.name.strip_prefix("n.").or_else(members)?).ok()
    }
}

/// What is being done when the directory's entries cannot be read.
const READ: &str = "read the runtime directory";

/// An open runtime directory.
#[derive(Debug)]
pub struct RuntimeDirectory {
    descriptor: Descriptor,
    path: PathBuf,
    owner: u32,
    access: Access,
    is_guest: bool,
}

impl RuntimeDirectory {
    /// Opens the directory at `path` in `role`. Does not block.
    ///
    /// # Errors
    /// [`DirectoryError`] says what is wrong with it.
    pub fn open(path: &Path, role: Role) -> Result<Self, DirectoryError> {
        let user = known_uid()?;
        let expected = if let Role::Guest(owner) = role { owner } else { user };
        let is_guest = matches!(role, Role::Guest(_));
        if !is_guest {
            match mkdir(path, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => {
                    let what = format!("make runtime directory {}", path.display());
                    return Err(OsError::new(what, errno).into());
                }
            }
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let what = match is_guest {
            true => format!("open runtime directory {} of user {expected}", path.display()),
            false => format!("open runtime directory {}", path.display()),
        };
        let open_path = || retry_on_intr(|| open(path, flags, Mode::empty()));
        let descriptor = Descriptor::make(open_path).doing(what)?;
        let status = fstat(&descriptor).doing("look at the runtime directory")?;
        let (owner, path) = (status.st_uid, path.to_owned());
        if let Err(Errno::NOENT) = statat(CWD, "/proc/self/fd", AtFlags::empty()) {
            return Err(DirectoryError::NoProc);
        }
        if owner != expected {
            return Err(DirectoryError::Owner { path, owner, expected, user });
        }
        let mode = status.st_mode & 0o7777;
        let access = match role {
            Role::Owner if mode & 0o077 != 0 => return Err(DirectoryError::Mode { path, mode }),
            Role::Resident | Role::Guest(_) if mode & 0o022 != 0 => {
                return Err(DirectoryError::Writable { path, mode });
            }
            Role::Ruler(access) => {
                set_rule(&descriptor, &path, &access)?;
                access
            }
            _ => Access::Owner,
        };
        Ok(Self { descriptor, path, owner, access, is_guest })
    }

    /// The user that it belongs to.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// The users that this process answers.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path to `file` in this directory, short enough for a socket address.
    fn short_path(&self, file: &str) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}/{file}", self.descriptor.as_fd().as_raw_fd())
    }

    /// Listens under a new random name. The socket gets its name only when it listens, so a process
    /// that finds one that refuses a connection may remove it.
    ///
    /// # Errors
    /// [`OsError`] if the directory cannot be written.
    pub fn listen(&self) -> Result<(Listener, SocketName), OsError> {
        loop {
            let name = SocketName(random_u128()?);
            let hidden = format!(".{}", name.file());
            let listener = Listener::bind(&self.short_path(&hidden)).map_err(|error| {
                let what = format!("{} in {}", error.what, self.path.display());
                OsError { what: what.into(), ..error }
            })?;
            let mode = Mode::from_raw_mode(self.access.socket_mode());
            let opened =
                retry_on_intr(|| chmodat(&self.descriptor, &hidden, mode, AtFlags::empty()));
            let shown = opened
                .and_then(|()| renameat(&self.descriptor, &hidden, &self.descriptor, name.file()));
            match shown {
                // A process that sweeps removed it before it listened.
                Err(Errno::NOENT) => {}
                other => {
                    other.doing("show the process's socket").inspect_err(|_| {
                        self.remove(&hidden);
                    })?;
                    return Ok((listener, name));
                }
            }
        }
    }

    /// Connects to a process. `None` if the process does not exist any more. If its queue of
    /// connections is full, waits for at most `limit`.
    ///
    /// # Errors
    /// [`OsError`]: `EAGAIN` after `limit`.
    pub fn connect(&self, name: SocketName, limit: Duration) -> Result<Option<Socket>, OsError> {
        unless_gone(Socket::connect(&self.short_path(&name.file()), limit))
    }

    /// As [`RuntimeDirectory::connect`], but never waits.
    ///
    /// # Errors
    /// [`OsError`]: `EAGAIN` if the process's queue of connections is full.
    pub fn connect_now(&self, name: SocketName) -> Result<Option<Socket>, OsError> {
        unless_gone(Socket::connect_now(&self.short_path(&name.file())))
    }

    /// Claims `name` for this process, for the lifetime of the [`Claim`]. Other processes find the
    /// name after [`Claim::write`]. Waits for a short time for a process that is just removing a
    /// dead owner's file.
    ///
    /// # Errors
    /// [`ClaimError::AlreadyExists`] exactly if a living process has the name; [`ClaimError`].
    pub fn claim(&self, name: &ChannelName) -> Result<Claim, ClaimError> {
        let file = name.name_file();
        let deadline = Instant::now() + CLEANER_WAIT;
        loop {
            if let Some(claim) = self.try_claim(name)? {
                return Ok(claim);
            }
            // The process that holds the lock has the name, or has found its owner dead and is just
            // removing the file.
            let holder = self.read_record(&file)?;
            let alive = holder.map(|record| self.is_alive(record.socket)).transpose()?;
            if alive == Some(true) || Instant::now() >= deadline {
                return Err(ClaimError::AlreadyExists(name.clone()));
            }
            rustix::thread::sched_yield();
        }
    }

    /// As [`RuntimeDirectory::claim`], but never waits: `None` if a process has locked the name's
    /// file. That process may be just removing what a dead owner left.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn try_claim(&self, name: &ChannelName) -> Result<Option<Claim>, ClaimError> {
        let file = name.name_file();
        loop {
            match self.lock_file(&file, OFlags::CREATE)? {
                Lock::Held(descriptor) => {
                    // A file that corewire did not create must not be overwritten.
                    self.read_record(&file)?;
                    retry_on_intr(|| rustix::fs::ftruncate(&descriptor, 0))
                        .doing(format!("clear {file}"))?;
                    let copy = self.make_copy(name).inspect_err(|_| {
                        // Its record was cleared.
                        self.remove(&file);
                    })?;
                    return Ok(Some(Claim { descriptor, file, copy }));
                }
                Lock::Replaced => {}
                Lock::Busy => return Ok(None),
            }
        }
    }

    /// Makes this process a member of the shared channel `name`, for the lifetime of the
    /// [`Membership`]. With `alone`, it becomes a member only if there is no other, and no other
    /// process can become one before [`Membership::admit_others`]. `None` if that is not possible:
    /// with `alone` there is another member, without it another process is a member alone.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn join_members(
        &self,
        name: &ChannelName,
        alone: bool,
    ) -> Result<Option<Membership>, ClaimError> {
        let file = name.members_file();
        let operation = if alone {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        loop {
            match self.lock_file_as(&file, OFlags::CREATE, operation)? {
                Lock::Held(descriptor) => return Ok(Some(Membership(descriptor))),
                Lock::Busy => return Ok(None),
                Lock::Replaced => {}
            }
        }
    }

    /// Removes the files of the shared channel `name` that no process holds: the file that members
    /// lock, and the name's file, which a process that could not claim it may have created.
    pub fn clear(&self, name: &ChannelName) {
        if !self.descriptor.is_ours() {
            return;
        }
        for file in [name.members_file(), name.name_file()] {
            // A second attempt if a call failed, because the reason may be over.
            if let Some(Ok(Some(_lock))) =
                (0..2).map(|_| self.lock_empty(&file)).find(Result::is_ok)
            {
                self.remove(&file);
            }
        }
    }

    /// Locks `file` if it exists, no process holds it, and it is empty.
    fn lock_empty(&self, file: &str) -> Result<Option<Descriptor>, ClaimError> {
        let Lock::Held(lock) = self.lock_file(file, OFlags::empty())? else { return Ok(None) };
        let found = fstat(&lock).doing(format!("look at {file}"))?;
        Ok((found.st_size == 0).then_some(lock))
    }

    /// Whether the shared channel `name` has a member.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn has_members(&self, name: &ChannelName) -> Result<bool, ClaimError> {
        let alone = FlockOperation::NonBlockingLockExclusive;
        let lock = self.lock_file_as(&name.members_file(), OFlags::empty(), alone)?;
        Ok(matches!(lock, Lock::Busy))
    }

    /// Reads the record of `name`; `None` if there is none. The file may belong to a dead owner: an
    /// attempt to connect shows it.
    ///
    /// # Errors
    /// [`ClaimError::Foreign`] if corewire did not create the file; [`ClaimError::Os`].
    pub fn look_up(&self, name: &ChannelName) -> Result<Option<NameRecord>, ClaimError> {
        self.read_record(&if self.is_guest { copy_file(name) } else { name.name_file() })
    }

    /// Creates the empty file that guests read. The caller has locked the name's file. Creates none
    /// if no guests are admitted. A dead owner's file is replaced, because it may have another group.
    fn make_copy(&self, name: &ChannelName) -> Result<Option<(Descriptor, String)>, ClaimError> {
        let file = copy_file(name);
        let is_ours = self.read_record(&file).map(|_| self.remove(&file));
        // A relay serves only receivers of the same user.
        if !self.access.is_open_to_others() || name.is_relayed() {
            return Ok(None);
        }
        is_ours?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let what = format!("make {file}");
        let open = || openat(&self.descriptor, &file, flags, Mode::RUSR | Mode::WUSR);
        let copy = Descriptor::make(|| retry_on_intr(open)).doing(what.clone())?;
        let mode = Mode::from_raw_mode(self.access.file_mode());
        retry_on_intr(|| fchmod(&copy, mode)).doing(what).inspect_err(|_| {
            self.remove(&file);
        })?;
        Ok(Some((copy, file)))
    }

    /// Leaves a note that this process waits for `name`, under the random number `waiter`.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn leave_waiter(
        &self,
        name: &ChannelName,
        waiter: u128,
        socket: SocketName,
    ) -> Result<Claim, ClaimError> {
        let file = name.waiter_file(waiter);
        loop {
            // A process that sweeps may remove a file that is not yet locked. The number is random, so
            // no other process's note is removed if this one fails.
            let lock = self.lock_file(&file, OFlags::CREATE).inspect_err(|_| {
                self.remove(&file);
            })?;
            if let Lock::Held(descriptor) = lock {
                let claim = Claim { descriptor, file, copy: None };
                let kind = NameKind::Channel;
                return match claim.write(NameRecord { kind, socket, incarnation: waiter }) {
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

    /// The processes that wait for `name`, dead ones included: an attempt to connect shows which are
    /// alive.
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
                // The file is not a note.
                Err(_) => {}
            }
        }
        Ok(waiters)
    }

    /// The names that have a file, in order, those of dead owners included.
    ///
    /// # Errors
    /// [`OsError`] if the directory cannot be read.
    pub fn names(&self) -> Result<Vec<ChannelName>, OsError> {
        let name_of = |file: &String| match self.is_guest {
            true => name_of_copy(file),
            false => ChannelName::of_name_file(file),
        };
        let mut names: Vec<_> = self.files()?.iter().filter_map(name_of).collect();
        names.sort();
        Ok(names)
    }

    /// Removes the files of dead processes: sockets that refuse a connection, the files of names and
    /// of waiting processes whose socket does, copies for guests without a name, and the files of
    /// shared channels without a sender. A file that corewire did not create stays, even if its name
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
        let holds_record = ChannelName::of_name_file(name).is_some()
            || name_of_copy(name).is_some()
            || is_waiter_file(name);
        holds_record && !matches!(self.read_record(name), Err(ClaimError::Foreign(_)))
    }

    fn is_socket(&self, file: &str) -> bool {
        let found = statat(&self.descriptor, file, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket)
    }

    /// Starts to watch the directory's files.
    ///
    /// # Errors
    /// [`OsError`] if this user has its maximum number of watches.
    pub fn watch(&self) -> Result<Watch, OsError> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let make = || inotify::init(flags);
        let descriptor = Descriptor::make(make).doing("watch the runtime directory")?;
        let what = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::DELETE;
        inotify::add_watch(&descriptor, self.short_path("."), what)
            .doing("watch the runtime directory")?;
        Ok(Watch(descriptor))
    }

    /// Whether a living process listens at `socket`; for a guest, whether that process admits guests. Never
    /// waits.
    ///
    /// # Errors
    /// [`OsError`] if this cannot be determined.
    pub fn is_alive(&self, socket: SocketName) -> Result<bool, OsError> {
        match self.connect_now(socket) {
            Ok(found) => Ok(found.is_some_and(|socket| !socket.is_peer_gone())),
            // Its queue of connections is full, so it is alive.
            Err(error) if error.is(Errno::AGAIN) => Ok(true),
            // A socket of another kind, at which no corewire process listens.
            Err(error) if error.is(Errno::PROTOTYPE) => Ok(false),
            Err(error) if error.is(Errno::ACCESS) && self.is_guest => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn files(&self) -> Result<Vec<String>, OsError> {
        // Corewire's own names are ASCII.
        Ok(self.list()?.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    fn list(&self) -> Result<Vec<CString>, OsError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || openat(&self.descriptor, ".", flags, Mode::empty());
        let again = Descriptor::make(|| retry_on_intr(open)).doing(READ)?;
        let (mut names, mut space) = (Vec::new(), [MaybeUninit::uninit(); 8192]);
        let mut entries = RawDir::new(&again, &mut space);
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Ok(entry) => names.push(entry.file_name().to_owned()),
                // The next call goes on at the same entry.
                Err(Errno::INTR) => {}
                Err(errno) => return Err(OsError::new(READ, errno)),
            }
        }
        Ok(names)
    }

    /// Refuses a file that is not a regular file. Opening a FIFO or a device could block.
    fn refuse_foreign(&self, file: &str) -> Result<(), ClaimError> {
        match statat(&self.descriptor, file, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile => {
                Err(ClaimError::Foreign(file.into()))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(OsError::new(format!("look at {file}"), errno).into()),
        }
    }

    fn read_record(&self, file: &str) -> Result<Option<NameRecord>, ClaimError> {
        self.refuse_foreign(file)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = || openat(&self.descriptor, file, flags, Mode::empty());
        let descriptor = match Descriptor::make(|| retry_on_intr(open)) {
            Err(Errno::NOENT) => return Ok(None),
            // The file is just being created.
            Err(Errno::ACCESS) if self.is_guest => return Ok(None),
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
        self.lock_file_as(file, extra, FlockOperation::NonBlockingLockExclusive)
    }

    fn lock_file_as(
        &self,
        file: &str,
        extra: OFlags,
        operation: FlockOperation,
    ) -> Result<Lock, ClaimError> {
        self.refuse_foreign(file)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | extra;
        let mode = Mode::RUSR | Mode::WUSR;
        let open = || openat(&self.descriptor, file, flags, mode);
        let descriptor = match Descriptor::make(|| retry_on_intr(open)) {
            Err(Errno::NOENT) => return Ok(Lock::Replaced),
            Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
                return Err(ClaimError::Foreign(file.into()));
            }
            other => other.doing(format!("open {file}"))?,
        };
        match retry_on_intr(|| rustix::fs::flock(&descriptor, operation)) {
            Err(Errno::WOULDBLOCK) => return Ok(Lock::Busy),
            other => other.doing(format!("lock {file}"))?,
        }
        // Before this process had the lock, another process may have removed the file, and a third one
        // created another.
        let ours = fstat(&descriptor).doing(format!("look at {file}"))?;
        match statat(&self.descriptor, file, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) if (named.st_ino, named.st_dev) == (ours.st_ino, ours.st_dev) => {
                Ok(Lock::Held(descriptor))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(Lock::Replaced),
            Err(errno) => Err(OsError::new(format!("look at {file}"), errno).into()),
        }
    }

    /// Removes a file; true if it existed. A forked child removes nothing.
    pub fn remove(&self, file: &str) -> bool {
        self.descriptor.is_ours() && unlinkat(&self.descriptor, file, AtFlags::empty()).is_ok()
    }
}

/// Prefix of the files that guests read.
const COPY_PREFIX: &str = "g.";

/// The file in which guests find the record of `name`.
fn copy_file(name: &ChannelName) -> String {
    format!("{COPY_PREFIX}{name}")
}

/// `None` if no process listens there.
fn unless_gone(connected: Result<Socket, OsError>) -> Result<Option<Socket>, OsError> {
    match connected {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.is(Errno::CONNREFUSED) || error.is(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name to which `file` belongs, if it is a file that guests read.
fn name_of_copy(file: &str) -> Option<ChannelName> {
    ChannelName::of_any(file.strip_prefix(COPY_PREFIX)?).ok()
}

fn is_waiter_file(file: &str) -> bool {
    let parts = file.strip_prefix("w.").and_then(|rest| rest.rsplit_once('.'));
    let name = parts.and_then(|(name, _)| ChannelName::of_any(name).ok());
    name.is_some_and(|name| name.waiter_of_file(file).is_some())
}

/// A kind of file, in words.
fn word_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "named pipe",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Unknown => "file of an unknown kind",
    }
}

fn is_members_file(file: &str) -> bool {
    file.strip_prefix("m.").is_some_and(|name| ChannelName::new(name).is_ok())
}

/// Sets the directory's mode to that of `access`, and its group if `access` names one.
fn set_rule(directory: &Descriptor, path: &Path, access: &Access) -> Result<(), DirectoryError> {
    let look = || fstat(directory).doing("look at the runtime directory");
    let mode_asked = access.directory_mode();
    let before = look()?;
    let group_asked = if let Access::Group(gid) = *access { gid } else { before.st_gid };
    if group_asked == u32::MAX {
        // To the kernel this value means "no change".
        return Err(OsError { what: format!("use group {group_asked}").into(), errno: 22 }.into());
    }
    if before.st_gid != group_asked {
        let what = format!("give runtime directory {} to group {group_asked}", path.display());
        let group = Some(Gid::from_raw(group_asked));
        retry_on_intr(|| fchown(directory, None, group)).doing(what)?;
    }
    if before.st_mode & 0o7777 != mode_asked {
        let what = format!("give runtime directory {} mode {mode_asked:04o}", path.display());
        retry_on_intr(|| fchmod(directory, Mode::from_raw_mode(mode_asked))).doing(what)?;
    }
    // The kernel silently clears the set-group-id bit if the caller does not belong to the group.
    let after = look()?;
    let (group, mode) = (after.st_gid, after.st_mode & 0o7777);
    if (group, mode) == (group_asked, mode_asked) {
        return Ok(());
    }
    let path = path.to_owned();
    Err(DirectoryError::Rule { path, group, mode, group_asked, mode_asked })
}

enum Lock {
    Held(Descriptor),
    Busy,
    /// The file was removed or replaced meanwhile: the caller tries again.
    Replaced,
}

/// A file of the directory that this process has locked. Dropping the claim releases the lock and leaves
/// the file to the next sweep; [`Claim::release`] removes the file.
#[derive(Debug)]
pub struct Claim {
    descriptor: Descriptor,
    file: String,
    /// The file that guests read, if guests are admitted.
    copy: Option<(Descriptor, String)>,
}

impl Claim {
    /// Writes the record, which says where the holder listens.
    ///
    /// # Errors
    /// [`OsError`] if the file cannot be written.
    pub fn write(&self, record: NameRecord) -> Result<(), OsError> {
        write_record(&self.descriptor, &self.file, record)?;
        match &self.copy {
            Some((descriptor, file)) => write_record(descriptor, file, record),
            None => Ok(()),
        }
    }

    /// Removes the file while it is still locked, then releases the lock.
    pub fn release(self, directory: &RuntimeDirectory) {
        if self.descriptor.is_ours() {
            if let Some((_, file)) = &self.copy {
                directory.remove(file);
            }
            directory.remove(&self.file);
        }
    }
}

fn write_record(descriptor: &Descriptor, file: &str, record: NameRecord) -> Result<(), OsError> {
    let text = record.to_text();
    check_file_size(text.len() as u64, file)?;
    let written = retry_on_intr(|| rustix::io::pwrite(descriptor, text.as_bytes(), 0));
    match written.doing(format!("write {file}"))? {
        bytes if bytes == text.len() => Ok(()),
        _ => Err(OsError::new(format!("write {file}"), Errno::NOSPC)),
    }
}

/// Membership in a shared channel. The channel lives as long as one process is a member. The last
/// member to leave removes the file ([`RuntimeDirectory::clear`]).
#[derive(Debug)]
pub struct Membership(Descriptor);

impl Membership {
    /// Allows other processes to become members.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses.
    pub fn admit_others(&self) -> Result<(), OsError> {
        let operation = FlockOperation::NonBlockingLockShared;
        retry_on_intr(|| rustix::fs::flock(&self.0, operation)).doing("share a channel")
    }
}

/// A watch on the directory's files (inotify).
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

impl Drop for Watch {
    fn drop(&mut self) {
        // It takes the kernel 10 ms.
        self.0.close_early();
    }
}

fn is_any(_: &CStr) -> bool {
    true
}
