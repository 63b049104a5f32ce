//! The runtime directory: names, their owners, those who wait. It is the whole registry: there is
//! no server. `corewire_layout::name` says which files it holds.
//!
//! A name is taken by holding a lock on its file for life. The kernel lets go of the lock when the
//! owner's process ends, however it ends; so a claim is exact, and there is nothing to time out.
//!
//! All processes that change anything here are of the directory's owner. It may let others in, as
//! guests, who find names and connect; [`Access`] says whom. Whoever may read a file may also lock
//! it, so guests read a copy of the record in a file of its own, `g.<name>`, which nobody locks.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use corewire_layout::name::{ChannelName, NameKind, NameRecord, RECORD_BYTES, SocketName};
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Gid, Mode, OFlags, chmodat, fchmod, fchown, fstat,
    inotify, mkdir, open, openat, renameat, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

use crate::access::Access;
use crate::event::wait_readable;
use crate::fork::{Descriptor, without_forks};
use crate::process::{check_file_size, effective_uid, known_uid};
use crate::socket::{Listener, Socket};
use crate::{Doing, OsError, random_u128};

/// A claim waits this long for somebody who is just removing a dead owner's file.
const CLEANER_WAIT: Duration = Duration::from_millis(200);

/// Why a runtime directory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It belongs to somebody else.
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
        /// Whom it was to belong to.
        expected: u32,
        /// This process's effective user.
        user: u32,
    },
    /// Others may read or write it, and that was not asked for.
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
    /// Others may write it: whoever is found there may be anybody.
    #[error("runtime directory {path:?} has mode {mode:04o}; only its owner may write it")]
    Writable {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The kernel did not take the group or the mode of an access rule.
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
    /// Descriptors are reached through `/proc/self/fd`, and that is not there.
    #[error("/proc/self/fd is not there: mount /proc (a chroot needs one of its own)")]
    NoProc,
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

/// Where a guest finds the runtime directory of user `owner`: `COREWIRE_RUNTIME_DIR`, else that
/// user's directory in `/tmp`. Nobody enters another user's `$XDG_RUNTIME_DIR`.
#[must_use]
pub fn default_path_of(owner: u32) -> PathBuf {
    let given = std::env::var_os("COREWIRE_RUNTIME_DIR").filter(|value| !value.is_empty());
    given.map_or_else(|| format!("/tmp/corewire-{owner}").into(), PathBuf::from)
}

/// As what a process opens a runtime directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// As its owner, who makes it if it is not there. Nobody else may have access.
    Owner,
    /// As its owner, who takes it as it is: others may have been let in, but not to write. This
    /// process answers none of them.
    Resident,
    /// As its owner, who sets this rule: mode and group of the directory become what it says.
    Ruler(Access),
    /// As a guest of this user, who changes nothing.
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

    /// Whom it belongs to.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Whom this process answers.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
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
            let mode = Mode::from_raw_mode(self.access.socket_mode());
            let opened =
                retry_on_intr(|| chmodat(&self.descriptor, &hidden, mode, AtFlags::empty()));
            let shown = opened
                .and_then(|()| renameat(&self.descriptor, &hidden, &self.descriptor, name.file()));
            match shown {
                // Somebody who swept took it for a dead process's, before it listened.
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

    /// Connects to a process. `None` if it is not there any more.
    ///
    /// # Errors
    /// [`OsError`] for anything else.
    pub fn connect(&self, name: SocketName) -> Result<Option<Socket>, OsError> {
        unless_gone(Socket::connect(&self.short_path(&name.file())))
    }

    /// The same, but never waits.
    ///
    /// # Errors
    /// [`OsError`]: `EAGAIN` if the process has more connections waiting than it can queue.
    pub fn connect_now(&self, name: SocketName) -> Result<Option<Socket>, OsError> {
        unless_gone(Socket::connect_now(&self.short_path(&name.file())))
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
            if let Some(claim) = self.try_claim(name)? {
                return Ok(claim);
            }
            // Whoever holds the lock has the name, or has seen that its owner is dead and is just
            // removing the file.
            let holder = self.read_record(&file)?;
            let alive = holder.map(|record| self.is_alive(record.socket)).transpose()?;
            if alive == Some(true) || Instant::now() >= deadline {
                return Err(ClaimError::AlreadyExists(name.clone()));
            }
            rustix::thread::sched_yield();
        }
    }

    /// The same, but never waits: `None` if somebody has the name's file locked, who may be just removing
    /// what a dead owner has left.
    ///
    /// # Errors
    /// The failed call.
    pub fn try_claim(&self, name: &ChannelName) -> Result<Option<Claim>, ClaimError> {
        let file = name.name_file();
        loop {
            match self.lock_file(&file, OFlags::CREATE)? {
                Lock::Held(descriptor) => {
                    // What is not ours is not to be overwritten.
                    self.read_record(&file)?;
                    retry_on_intr(|| rustix::fs::ftruncate(&descriptor, 0))
                        .doing(format!("clear {file}"))?;
                    let copy = self.make_copy(name).inspect_err(|_| {
                        // Its record is cleared.
                        self.remove(&file);
                    })?;
                    return Ok(Some(Claim { descriptor, file, copy }));
                }
                Lock::Replaced => {}
                Lock::Busy => return Ok(None),
            }
        }
    }

    /// Counts this process among the members of the shared channel `name`, for as long as the
    /// membership lives; or, if `alone`, only if there is no other: then nobody else can become one
    /// before [`Membership::admit_others`]. `None` if others are, or are not, as asked.
    ///
    /// # Errors
    /// The failed call.
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

    /// Removes the files of the shared channel `name` that nobody holds: what members lock, and the
    /// name's, which one who just could not take it may have made.
    pub fn clear(&self, name: &ChannelName) {
        if !self.descriptor.is_ours() {
            return;
        }
        for file in [name.members_file(), name.name_file()] {
            // Once more if a call failed: whatever was wrong with it may be over.
            if let Some(Ok(Some(_lock))) =
                (0..2).map(|_| self.lock_empty(&file)).find(Result::is_ok)
            {
                self.remove(&file);
            }
        }
    }

    /// Locks `file` if it is there, nobody holds it, and nothing is in it.
    fn lock_empty(&self, file: &str) -> Result<Option<Descriptor>, ClaimError> {
        let Lock::Held(lock) = self.lock_file(file, OFlags::empty())? else { return Ok(None) };
        let found = fstat(&lock).doing(format!("look at {file}"))?;
        Ok((found.st_size == 0).then_some(lock))
    }

    /// Does anybody count as a member of the shared channel `name`?
    ///
    /// # Errors
    /// The failed call.
    pub fn has_members(&self, name: &ChannelName) -> Result<bool, ClaimError> {
        let alone = FlockOperation::NonBlockingLockExclusive;
        let lock = self.lock_file_as(&name.members_file(), OFlags::empty(), alone)?;
        Ok(matches!(lock, Lock::Busy))
    }

    /// Who has `name`, as far as its file says; `None` if nobody. The file may be a dead owner's:
    /// connecting tells.
    ///
    /// # Errors
    /// [`ClaimError::Foreign`] if something else than a file is there, or the failed call.
    pub fn look_up(&self, name: &ChannelName) -> Result<Option<NameRecord>, ClaimError> {
        self.read_record(&if self.is_guest { copy_file(name) } else { name.name_file() })
    }

    /// Makes the file that guests read, empty, for who has locked the name's; none if there are to
    /// be no guests. A dead owner's is replaced, for it may have had another group.
    fn make_copy(&self, name: &ChannelName) -> Result<Option<(Descriptor, String)>, ClaimError> {
        let file = copy_file(name);
        let is_ours = self.read_record(&file).map(|_| self.remove(&file));
        // A relay is for receivers of the same user.
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
        let name_of = |file: &String| match self.is_guest {
            true => name_of_copy(file),
            false => ChannelName::of_name_file(file),
        };
        let mut names: Vec<_> = self.files()?.iter().filter_map(name_of).collect();
        names.sort();
        Ok(names)
    }

    /// Removes what the dead have left: sockets that refuse a connection, the files of names and
    /// waiters whose socket does, copies for guests without a name, and the files of shared channels
    /// that have no sender. Other files of such names stay: what is no socket, and what holds something
    /// else. Returns how many.
    ///
    /// # Errors
    /// [`OsError`] if the directory cannot be read.
    pub fn sweep(&self) -> Result<usize, OsError> {
        let mut removed = 0;
        let files = self.files()?;
        // Those that begin with a dot were left by processes that died before they could show them.
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
                // Just made, or made by somebody who died before writing: the lock tells.
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
        // Copies that could not be removed with their names. Who has the lock makes or removes them.
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
        for name in without_forks(|| retry_on_intr(|| self.list())).doing(READ)? {
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

    /// A watch on the directory's files.
    ///
    /// # Errors
    /// [`OsError`] if the kernel has no more watches to give.
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

    /// Is there a process that listens at `socket`? For a guest, one that lets guests in.
    ///
    /// # Errors
    /// [`OsError`] if that cannot be said.
    pub fn is_alive(&self, socket: SocketName) -> Result<bool, OsError> {
        match self.connect_now(socket) {
            Ok(found) => Ok(found.is_some()),
            // More connections wait than it can queue: it is alive, if not well.
            Err(error) if error.is(Errno::AGAIN) => Ok(true),
            // A socket of another kind: no process of corewire's listens there.
            Err(error) if error.is(Errno::PROTOTYPE) => Ok(false),
            Err(error) if error.is(Errno::ACCESS) && self.is_guest => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn files(&self) -> Result<Vec<String>, OsError> {
        // All over again: what has failed once gives no more entries.
        // The list is read at once: a forked child keeps no descriptor of it.
        let names = without_forks(|| retry_on_intr(|| self.list())).doing(READ)?;
        // Corewire's own names are ASCII.
        Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    fn list(&self) -> Result<Vec<CString>, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let again = openat(&self.descriptor, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(again)? {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Nothing but a regular file is opened: a FIFO or a device that somebody put there is left alone.
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
            // Just being made.
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

/// Begins the names of the files that guests read.
const COPY_PREFIX: &str = "g.";

/// Where guests find what is said of `name`.
fn copy_file(name: &ChannelName) -> String {
    format!("{COPY_PREFIX}{name}")
}

/// `None` if nobody listens there.
fn unless_gone(connected: Result<Socket, OsError>) -> Result<Option<Socket>, OsError> {
    match connected {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.is(Errno::CONNREFUSED) || error.is(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name that `file` is said of, if guests find it there.
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

/// Gives the directory the mode of `access`, and its group if it names one.
fn set_rule(directory: &Descriptor, path: &Path, access: &Access) -> Result<(), DirectoryError> {
    let look = || fstat(directory).doing("look at the runtime directory");
    let mode_asked = access.directory_mode();
    let before = look()?;
    let group_asked = if let Access::Group(gid) = *access { gid } else { before.st_gid };
    if group_asked == u32::MAX {
        // The kernel would take it for "no change".
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
    // The kernel drops the set-group-id bit silently if the caller is not of that group.
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
    /// The file was removed or replaced meanwhile: try again.
    Replaced,
}

/// A file of the directory that this process has locked. Dropping it lets go of the lock and leaves
/// the file for the next sweep; [`Claim::release`] removes it.
#[derive(Debug)]
pub struct Claim {
    descriptor: Descriptor,
    file: String,
    /// What guests read, if there may be any.
    copy: Option<(Descriptor, String)>,
}

impl Claim {
    /// Says where the holder is.
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

    /// Removes the file while it is still locked, then lets go of it.
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

/// A share in a channel of several senders: as long as one process has one, the channel lives. The
/// last one to leave removes the file ([`RuntimeDirectory::clear`]).
#[derive(Debug)]
pub struct Membership(Descriptor);

impl Membership {
    /// Lets others be members, too.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses.
    pub fn admit_others(&self) -> Result<(), OsError> {
        let operation = FlockOperation::NonBlockingLockShared;
        retry_on_intr(|| rustix::fs::flock(&self.0, operation)).doing("share a channel")
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
