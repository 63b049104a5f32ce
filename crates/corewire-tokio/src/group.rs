//! Groups.

use std::sync::Arc;

use corewire_group::{Decided, Group, GroupError};

/// The decisions of a group's log from this index on, in order: a [`Stream`](futures_core::Stream). A task that waits is woken
/// by the group's own thread; no descriptor is needed.
#[must_use]
pub fn decisions(group: &Group, first: u64) -> Decided {
    group.decided(first)
}

/// Proposes a command, and waits until it is decided: returns its index. A thread of tokio's pool waits. If the future is
/// dropped, the command stays proposed.
///
/// # Errors
/// As for [`Group::propose`].
pub async fn propose(group: &Arc<Group>, command: Vec<u8>) -> Result<u64, GroupError> {
    let (own, name) = (Arc::clone(group), group.name().to_owned());
    let proposing = tokio::task::spawn_blocking(move || own.propose(&command));
    // The runtime ends.
    proposing.await.unwrap_or(Err(GroupError::Left(name)))
}
