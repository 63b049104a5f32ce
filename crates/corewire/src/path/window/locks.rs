//! Passive epochs: a participant has the window to itself, or shares it with others that only read. The owner does nothing
//! for this.

use std::ops::Deref;
use std::time::Duration;

use super::Window;
use crate::error::WindowError;
use crate::wait::Patience;

/// How a window is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lock {
    /// For one participant alone.
    Exclusive,
    /// For any number of participants, while none has it alone.
    Shared,
}

/// A lock of a window, from [`Window::lock`]. It is given back when this is dropped; what was put before is visible to who
/// gets it next.
#[derive(Debug)]
#[must_use = "the lock is given back when this is dropped"]
pub struct WindowLock<'w> {
    window: &'w Window,
    kind: Lock,
}

impl Window {
    /// Locks the window. Waits until it is free. A participant that waits for the lock alone lets no further ones share it.
    ///
    /// The lock is for participants that use it: it keeps nobody else from the data. Of a participant that dies, the lock
    /// is free as soon as the control thread of the owner's process has learned of the death, and what it has put stays. A
    /// participant that is stopped keeps it. If the owner's process is stopped, a lock of a participant that has died stays
    /// taken until it continues.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-lock-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// use corewire::WindowLocking;
    ///
    /// let mut window = domain.window("account", 16).create()?;
    /// let account = window.lock(WindowLocking::Exclusive)?;
    /// let balance: i64 = account.load(0)?;
    /// account.put(0, &(balance + 100).to_le_bytes())?;
    /// account.put(8, &1u64.to_le_bytes())?;
    /// drop(account);
    /// # drop((window, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WindowError::Guest`]; [`WindowError::PeerDied`] or [`WindowError::Closed`] if the owner is gone or goes;
    /// [`WindowError::Locked`] if a lock of this participant was leaked; [`WindowError::Detached`],
    /// [`WindowError::Interrupted`], [`WindowError::Forked`].
    pub fn lock(&mut self, kind: Lock) -> Result<WindowLock<'_>, WindowError> {
        loop {
            if self.take(kind, Patience::Forever)? {
                return Ok(WindowLock { window: self, kind });
            }
        }
    }

    /// As [`lock`](Self::lock), but never waits: `None` if the window is locked.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock).
    pub fn try_lock(&mut self, kind: Lock) -> Result<Option<WindowLock<'_>>, WindowError> {
        Ok(self.take(kind, Patience::None)?.then(|| WindowLock { window: self, kind }))
    }

    /// As [`lock`](Self::lock), but waits for at most `timeout`.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock).
    pub fn lock_timeout(
        &mut self,
        kind: Lock,
        timeout: Duration,
    ) -> Result<Option<WindowLock<'_>>, WindowError> {
        let is_taken = self.take(kind, Patience::until(timeout))?;
        Ok(is_taken.then(|| WindowLock { window: self, kind }))
    }

    /// Takes the lock. False if the time is up.
    fn take(&self, kind: Lock, patience: Patience) -> Result<bool, WindowError> {
        if self.ended().is_none() && self.seated()?.has_lock() {
            return Err(WindowError::Locked(self.name_of().clone()));
        }
        let linux = self.linux;
        match kind {
            Lock::Shared => self.wait_for(patience, |one| one.try_share(&linux)),
            Lock::Exclusive => {
                if !self.wait_for(patience, |one| one.try_claim())? {
                    return Ok(false);
                }
                let found = self.wait_for(patience, |one| Ok(one.has_no_readers()));
                if !matches!(found, Ok(true)) {
                    self.give_back(Lock::Exclusive);
                }
                found
            }
        }
    }

    fn give_back(&self, kind: Lock) {
        // A forked child has no part in it.
        if let Some(participant) = self.participant.as_ref().filter(|_| !self.is_forked()) {
            match kind {
                Lock::Exclusive => participant.release(),
                Lock::Shared => participant.unshare(),
            }
            participant.tell(&self.linux);
        }
    }

    fn is_forked(&self) -> bool {
        matches!(self.ended(), Some(WindowError::Forked))
    }
}

impl Deref for WindowLock<'_> {
    type Target = Window;

    fn deref(&self) -> &Window {
        self.window
    }
}

impl Drop for WindowLock<'_> {
    fn drop(&mut self) {
        self.window.give_back(self.kind);
    }
}
