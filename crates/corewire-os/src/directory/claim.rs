//! Claiming a name, and being a member of a shared channel: files that a process holds locked.

use std::time::{Duration, Instant};

use corewire_layout::name::{ChannelName, NameKind, NameRecord, SocketName};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, fchmod, fstat, openat, statat};
use rustix::io::{Errno, retry_on_intr};

use super::{RuntimeDirectory, copy_file};
use crate::fork::Descriptor;
use crate::process::check_file_size;
use crate::{Doing, OsError};

/// Maximum time that a claim waits for a process that is just removing a dead owner's file.
const CLEANER_WAIT: Duration = Duration::from_millis(200);

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

impl RuntimeDirectory {
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
            std::thread::yield_now();
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
    pub(super) fn lock_empty(&self, file: &str) -> Result<Option<Descriptor>, ClaimError> {
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
            std::thread::yield_now();
        }
    }

    pub(super) fn lock_file(&self, file: &str, extra: OFlags) -> Result<Lock, ClaimError> {
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
            Err(Errno::NOENT) if extra.contains(OFlags::CREATE) => {
                let what = format!("make {file}: {} was removed", self.path.display());
                return Err(OsError::new(what, Errno::NOENT).into());
            }
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
}

pub(super) enum Lock {
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
