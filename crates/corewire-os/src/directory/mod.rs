//! The runtime directory: names, their owners, and processes that wait for a name. It is the whole
//! registry; there is no server. `corewire_layout::name` lists its files.
//!
//! A process owns a name as long as it holds a lock on the name's file. The kernel releases the lock
//! when the process ends, for any reason. So a claim is exact, and nothing depends on a time-out.
//!
//! Only processes of the directory's owner change anything here. The owner may admit other users as
//! guests, who find names and connect: see [`Access`]. A process that can read a file can also lock it,
//! so guests read a copy of the record in a separate file, `g.<name>`, which no process locks.

mod claim;
mod error;
mod rule;
mod sweep;
mod watch;

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corewire_layout::name::{ChannelName, NameRecord, RECORD_BYTES, SocketName};
use rustix::fs::{
    Access as Rights, AtFlags, CWD, FileType, Mode, OFlags, RawDir, accessat, chmodat, fstat,
    mkdir, open, openat, renameat, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

pub use self::claim::{Claim, ClaimError, Membership};
pub use self::error::{DirectoryError, WrongMode};
pub use self::sweep::ForeignFile;
pub use self::watch::Watch;
use crate::access::Access;
use crate::fork::Descriptor;
use crate::process::{effective_uid, known_uid};
use crate::socket::{Listener, Socket};
use crate::{Doing, OsError, random_u128};

/// The default runtime directory: `$COREWIRE_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/corewire`, else
/// `/tmp/corewire-UID`. A variable that is empty counts as not set, and so does `XDG_RUNTIME_DIR` where it is not a
/// directory of this user: a program that was started as another user may have it from there, and must not make a
/// directory in it that the other user cannot use.
#[must_use]
pub fn default_path() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let is_own = |path: &PathBuf| {
        statat(CWD, path, AtFlags::empty()).is_ok_and(|found| {
            FileType::from_raw_mode(found.st_mode) == FileType::Directory
                && found.st_uid == effective_uid()
        })
    };
    match (variable("COREWIRE_RUNTIME_DIR"), variable("XDG_RUNTIME_DIR").map(PathBuf::from)) {
        (Some(path), _) => path.into(),
        (None, Some(path)) if is_own(&path) => path.join("corewire"),
        _ => format!("/tmp/corewire-{}", effective_uid()).into(),
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
    /// Its owner. Creates the directory if it does not exist, and follows its rule if it has one. Without a rule no other
    /// user may have access.
    Owner,
    /// Its owner, which accepts the directory's mode. Other users may be admitted, but may not write. This process answers
    /// none of them, whatever the directory's rule is.
    Resident,
    /// Its owner, which gives the directory this rule.
    Ruler(Access),
    /// A guest of this user. Changes nothing.
    Guest(u32),
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
        let unusable = |error| DirectoryError::unusable(path, error, user, expected);
        if !is_guest {
            make(path).map_err(unusable)?;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let open_path = || retry_on_intr(|| open(path, flags, Mode::empty()));
        let descriptor = Descriptor::make(open_path).doing("open it").map_err(unusable)?;
        let status = fstat(&descriptor).doing("look at the runtime directory")?;
        let (owner, path) = (status.st_uid, path.to_owned());
        if let Err(Errno::NOENT) = statat(CWD, "/proc/self/fd", AtFlags::empty()) {
            return Err(DirectoryError::NoProc);
        }
        let mode = status.st_mode & 0o7777;
        if owner != expected {
            return Err(DirectoryError::Owner { path, owner, mode, expected, user });
        }
        let access = Access::Owner;
        let mut directory = Self { descriptor, path, owner, access, is_guest };
        let wrong = |wrong| {
            let path = directory.path.clone();
            Err(DirectoryError::Mode { path, owner, mode, wrong })
        };
        match role {
            Role::Ruler(rule) => {
                directory.set_rule(&rule)?;
                directory.access = rule;
                return Ok(directory);
            }
            _ if mode & 0o022 != 0 => return wrong(WrongMode::Writable),
            Role::Guest(_) => return Ok(directory),
            _ if mode & 0o700 != 0o700 && !directory.is_usable() => {
                return wrong(WrongMode::Closed);
            }
            _ => {}
        }
        if role == Role::Owner {
            match directory.rule()? {
                Some(rule) => directory.access = rule,
                None if mode & 0o077 != 0 => return wrong(WrongMode::OpenWithoutRule),
                None => {}
            }
        }
        Ok(directory)
    }

    /// Whether this process may do with it what its owner does. Root may, whatever its mode is.
    fn is_usable(&self) -> bool {
        let all = Rights::READ_OK | Rights::WRITE_OK | Rights::EXEC_OK;
        accessat(&self.descriptor, ".", all, AtFlags::EACCESS).is_ok()
    }

    /// Says of a call that failed what it has to do with the directory.
    #[must_use]
    pub fn explain(&self, error: OsError) -> DirectoryError {
        let of_it = [Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::NOSPC, Errno::DQUOT];
        match of_it.into_iter().any(|errno| error.is(errno)) {
            true => DirectoryError::unusable(&self.path, error, effective_uid(), self.owner),
            false => error.into(),
        }
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

    /// Reads the record of `name`; `None` if there is none. The file may belong to a dead owner: an
    /// attempt to connect shows it.
    ///
    /// # Errors
    /// [`ClaimError::Foreign`] if corewire did not create the file; [`ClaimError::Os`].
    pub fn look_up(&self, name: &ChannelName) -> Result<Option<NameRecord>, ClaimError> {
        self.read_record(&if self.is_guest { copy_file(name) } else { name.name_file() })
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

/// Makes the directory at `path` if nothing is there. Its user can use it, whatever the process's mask is.
fn make(path: &Path) -> Result<(), OsError> {
    match mkdir(path, Mode::RWXU) {
        Ok(()) => retry_on_intr(|| chmodat(CWD, path, Mode::RWXU, AtFlags::empty()))
            .doing("give it mode 0700"),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(OsError::new("make it", errno)),
    }
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
