//! A state that all members have: what a log is mostly for.

use std::fmt;
use std::time::Duration;

use crate::decided::{Decided, DecidedEntry, Decision};
use crate::error::GroupError;
use crate::group::Group;

/// What becomes of a state when a command is decided. The same commands in the same order must give the same state:
/// nothing else may have a part in it, such as time or chance.
pub trait StateMachine {
    /// What a command gives to the member that proposed it: whether it was accepted, what it has found. `()` if nothing.
    type Output;

    /// Does what a command says. A command that makes no sense must have the same effect everywhere, too.
    fn apply(&mut self, entry: &DecidedEntry) -> Self::Output;

    /// The state, for [`restore`](Self::restore).
    fn snapshot(&self) -> Vec<u8>;

    /// Becomes the state of which another member, of the same program, has made this snapshot.
    fn restore(&mut self, snapshot: &[u8]);
}

/// What has become of a command that was proposed: it is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proposed<T> {
    /// The state machine of this member has applied it.
    Applied {
        /// Its index in the log.
        index: u64,
        /// What it gave.
        output: T,
    },
    /// Another member's snapshot stands for it, which this member has got instead of the entries: it is in the state, and
    /// what it gave is not known here. A member that was behind, because it was stopped for example, gets one.
    Skipped {
        /// Its index in the log.
        index: u64,
    },
}

impl<T> Proposed<T> {
    /// The index of the command in the log.
    #[must_use]
    pub const fn index(&self) -> u64 {
        match self {
            Self::Applied { index, .. } | Self::Skipped { index } => *index,
        }
    }

    /// What the command gave; `None` if that is not known here.
    #[must_use]
    pub fn output(self) -> Option<T> {
        match self {
            Self::Applied { output, .. } => Some(output),
            Self::Skipped { .. } => None,
        }
    }
}

/// A state machine at a member of a group.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("corewire-doc-machine-{}", std::process::id()));
/// use corewire::Domain;
/// use corewire_group::{DecidedEntry, Group, Proposed, Replicated, StateMachine};
///
/// /// An account, from which each command takes some.
/// struct Account(u64);
///
/// impl StateMachine for Account {
///     /// What is left, if there was enough.
///     type Output = Option<u64>;
///
///     fn apply(&mut self, entry: &DecidedEntry) -> Option<u64> {
///         let amount = entry.command.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
///         self.0 = self.0.checked_sub(amount)?;
///         Some(self.0)
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
/// let mut account = Replicated::new(Group::builder(&domain, "account").join()?, Account(10));
/// assert_eq!(account.propose(&7_u64.to_le_bytes())?, Proposed::Applied { index: 0, output: Some(3) });
/// assert_eq!(account.propose(&4_u64.to_le_bytes())?.output(), Some(None));
/// assert_eq!(account.read_at(1)?.0, 3);
/// # drop((account, domain)); std::fs::remove_dir_all(&dir)?;
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
    /// The bytes of these entries, and those of the last snapshot.
    behind_bytes: usize,
    snapshot_bytes: usize,
}

/// Entries of so many bytes, and of so many times the bytes of the last snapshot, make the next one: what members keep stays
/// small, and what snapshots cost is a part of what the entries cost.
const SNAPSHOT_BYTES: usize = 1 << 20;
const SNAPSHOT_TIMES: usize = 4;

impl<S: StateMachine> Replicated<S> {
    /// The state of an empty log, at a member of a group. Entries that are decided already are applied by the first call.
    pub fn new(group: Group, state: S) -> Self {
        let decided = group.decided(0);
        Self {
            group,
            decided,
            state,
            next: 0,
            behind: 0,
            snapshot_every: 10_000,
            behind_bytes: 0,
            snapshot_bytes: 0,
        }
    }

    /// After how many entries a snapshot takes their place, so that the log does not grow for ever. Default: 10,000; at
    /// least 1. It does so earlier if the entries have 1 MiB, and four times the bytes of the snapshot before.
    #[must_use]
    pub fn snapshot_every(mut self, entries: u64) -> Self {
        self.snapshot_every = entries.max(1);
        self
    }

    /// Lets a command be decided, and applies it. Waits for that. Returns what it gave.
    ///
    /// # Errors
    /// As for [`Group::propose`].
    pub fn propose(&mut self, command: &[u8]) -> Result<Proposed<S::Output>, GroupError> {
        let index = self.group.propose(command)?;
        let mut last = None;
        while self.next <= index {
            if let Some(decision) = self.decided.next_timeout(Duration::MAX)? {
                last = self.take(&decision);
            }
        }
        // The loop ends with this entry, or with a snapshot.
        Ok(match last {
            Some(output) => Proposed::Applied { index, output },
            None => Proposed::Skipped { index },
        })
    }

    /// The state with the entry of this index, and all before it: that of another member's answer, for example. Waits until
    /// they are decided.
    ///
    /// # Errors
    /// What has ended the group.
    pub fn read_at(&mut self, index: u64) -> Result<&S, GroupError> {
        while self.next <= index {
            self.wait(Duration::MAX)?;
        }
        Ok(self.read())
    }

    /// How many entries are in the state: it is that of the log before the entry of this index.
    #[must_use]
    pub const fn applied_count(&self) -> u64 {
        self.next
    }

    /// Applies what is decided, as far as this member knows, and returns the state. Never waits. Another member may know
    /// more: to read what was decided before this call anywhere, [`propose`](Self::propose) something first. When the group
    /// has ended, this is the last state that this member knew.
    pub fn read(&mut self) -> &S {
        // What is decided while it applies is for the next call: this one ends.
        let known = self.decided.look().unwrap_or(u64::MAX);
        while self.next < known
            && let Ok(Some(decision)) = self.decided.try_next()
        {
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

    /// Applies what is decided; `None` for a snapshot.
    fn take(&mut self, decision: &Decision) -> Option<S::Output> {
        let output = match decision {
            Decision::Entry(entry) => {
                let output = self.state.apply(entry);
                self.next = entry.index + 1;
                self.behind += 1;
                self.behind_bytes += entry.command.len();
                Some(output)
            }
            Decision::Snapshot { next, state } => {
                self.state.restore(state);
                (self.next, self.behind) = (*next, 0);
                (self.behind_bytes, self.snapshot_bytes) = (0, state.len());
                None
            }
        };
        let is_large = self.behind_bytes >= SNAPSHOT_BYTES
            && self.behind_bytes / SNAPSHOT_TIMES >= self.snapshot_bytes;
        if self.behind >= self.snapshot_every || is_large {
            let snapshot = self.state.snapshot();
            // A group that has ended needs no snapshot.
            let _ = self.group.truncate(self.next, &snapshot);
            (self.behind, self.behind_bytes, self.snapshot_bytes) = (0, 0, snapshot.len());
        }
        output
    }
}

impl<S> fmt::Debug for Replicated<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicated").field("group", &self.group).finish_non_exhaustive()
    }
}
