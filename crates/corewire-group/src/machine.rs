//! A state that all members have: what a log is mostly for.

use std::fmt;
use std::time::Duration;

use crate::decided::{Decided, DecidedEntry, Decision};
use crate::error::GroupError;
use crate::group::Group;

/// What becomes of a state when a command is decided. The same commands in the same order must give the same state:
/// nothing else may have a part in it, such as time or chance.
pub trait StateMachine {
    /// Does what a command says. A command that makes no sense must have the same effect everywhere, too.
    fn apply(&mut self, entry: &DecidedEntry);

    /// The state, for [`restore`](Self::restore).
    fn snapshot(&self) -> Vec<u8>;

    /// Becomes the state of which another member, of the same program, has made this snapshot.
    fn restore(&mut self, snapshot: &[u8]);
}

/// A state machine at a member of a group.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("corewire-doc-machine-{}", std::process::id()));
/// use corewire::Domain;
/// use corewire_group::{DecidedEntry, Group, Replicated, StateMachine};
///
/// /// The sum of all commands.
/// #[derive(Default)]
/// struct Sum(u64);
///
/// impl StateMachine for Sum {
///     fn apply(&mut self, entry: &DecidedEntry) {
///         self.0 += entry.command.iter().map(|byte| u64::from(*byte)).sum::<u64>();
///     }
///     fn snapshot(&self) -> Vec<u8> {
///         self.0.to_le_bytes().to_vec()
///     }
///     fn restore(&mut self, snapshot: &[u8]) {
///         self.0 = snapshot.try_into().map_or(0, u64::from_le_bytes);
///     }
/// }
///
/// let domain = Domain::open_at(&dir)?;
/// let mut sum = Replicated::new(Group::builder(&domain, "sum").join()?, Sum::default());
/// sum.propose(&[3, 4])?;
/// assert_eq!(sum.read().0, 7);
/// # drop((sum, domain)); std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
pub struct Replicated<S> {
    group: Group,
    decided: Decided,
    state: S,
    /// The index of the next entry to apply.
    next: u64,
    /// The entries behind the last snapshot, and how many make the next one.
    behind: u64,
    snapshot_every: u64,
}

impl<S: StateMachine> Replicated<S> {
    /// The state of an empty log, at a member of a group. Entries that are decided already are applied by the first call.
    pub fn new(group: Group, state: S) -> Self {
        let decided = group.decided(0);
        Self { group, decided, state, next: 0, behind: 0, snapshot_every: 10_000 }
    }

    /// After how many entries a snapshot takes their place, so that the log does not grow for ever. Default: 10,000; at
    /// least 1.
    #[must_use]
    pub fn snapshot_every(mut self, entries: u64) -> Self {
        self.snapshot_every = entries.max(1);
        self
    }

    /// Lets a command be decided, and applies it. Waits for that. Returns its index.
    ///
    /// # Errors
    /// As for [`Group::propose`].
    pub fn propose(&mut self, command: &[u8]) -> Result<u64, GroupError> {
        let index = self.group.propose(command)?;
        while self.next <= index {
            if let Some(decision) = self.decided.next_timeout(Duration::MAX)? {
                self.take(&decision);
            }
        }
        Ok(index)
    }

    /// Applies what is decided, as far as this member knows, and returns the state. Never waits. Another member may know
    /// more: to read what was decided before this call anywhere, [`propose`](Self::propose) something first. When the group
    /// has ended, this is the last state that this member knew.
    pub fn read(&mut self) -> &S {
        while let Ok(Some(decision)) = self.decided.try_next() {
            self.take(&decision);
        }
        &self.state
    }

    /// Waits until another entry is decided, for at most `timeout`, and applies it. False if there was none.
    ///
    /// # Errors
    /// What has ended the group.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, GroupError> {
        match self.decided.next_timeout(timeout)? {
            Some(decision) => {
                self.take(&decision);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// The member.
    #[must_use]
    pub const fn group(&self) -> &Group {
        &self.group
    }

    fn take(&mut self, decision: &Decision) {
        match decision {
            Decision::Entry(entry) => {
                self.state.apply(entry);
                self.next = entry.index + 1;
                self.behind += 1;
            }
            Decision::Snapshot { next, state } => {
                self.state.restore(state);
                (self.next, self.behind) = (*next, 0);
            }
        }
        if self.behind >= self.snapshot_every {
            // A group that has ended needs no snapshot.
            let _ = self.group.truncate(self.next, &self.state.snapshot());
            self.behind = 0;
        }
    }
}

impl<S> fmt::Debug for Replicated<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicated").field("group", &self.group).finish_non_exhaustive()
    }
}
