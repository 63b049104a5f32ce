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
mod sweep;
mod watch;

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corewire_layout::name::{ChannelName, NameRecord, RECORD_BYTES, SocketName};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RawDir, chmodat, fchmod, fchown, fstat, mkdir, open,
    openat, renameat, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

pub use self::claim::{Claim, ClaimError, Membership};
pub use self::sweep::ForeignFile;
pub use self::watch::Watch;
use crate::access::Access;
use crate::fork::Descriptor;
use crate::process::{effective_uid, known_uid};
use crate::socket::{Listener, Socket};
use crate::{Doing, OsError, random_u128};

/// Why a runtime directory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It belongs to another user.
    #[error(
        "runtime directory {path:?} belongs to user {owner}, {}",
        if expected == user {
            format!(
                "this process runs as user {user}: ask user {owner} to remove it, or set \
                 COREWIRE_RUNTIME_DIR to a directory of this user's"
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
