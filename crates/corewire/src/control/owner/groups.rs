//! The groups of a channel on two levels: relays and followers.

use std::collections::BTreeMap;
use std::sync::Arc;

use corewire_os::fork::Descriptor;
use corewire_os::socket::Socket;

use crate::control::hub::Token;

/// The groups of one channel.
pub(super) struct Groups {
    /// The group of the sender itself. It needs no relay.
    pub(super) home: u32,
    pub(super) relays: BTreeMap<u32, RelayRow>,
    pub(super) followers: BTreeMap<u32, FollowerLink>,
    pub(super) last_follower: u32,
}

/// The row of a group's relay.
pub(super) struct RelayRow {
    pub(super) row: u32,
    /// The incarnation of the channel on which the relay forwards messages.
    pub(super) channel: u128,
    /// The relay is gone.
    pub(super) is_orphan: bool,
}

/// A receiver that reads what a relay forwards.
pub(super) struct FollowerLink {
    pub(super) group: u32,
    pub(super) socket: Arc<Socket>,
    pub(super) life: Descriptor,
    /// The number of its process here.
    pub(super) seen_pid: u32,
    pub(super) tokens: [Token; 2],
}

impl Groups {
    pub(super) fn new(home: u32) -> Self {
        let (relays, followers) = (BTreeMap::new(), BTreeMap::new());
        Self { home, relays, followers, last_follower: 0 }
    }

    pub(super) fn group_of_row(&self, row: u32) -> Option<u32> {
        self.relays.iter().find(|(_, relay)| relay.row == row).map(|(&group, _)| group)
    }

    pub(super) fn has_followers(&self, group: u32) -> bool {
        self.followers.values().any(|follower| follower.group == group)
    }

    /// Updates the groups after the receiver of `row` has gone. True if the row must be kept as an orphan: it belonged
    /// to a relay with `is_believed` that has followers.
    pub(super) fn remove_receiver(&mut self, row: u32, is_believed: bool) -> bool {
        let Some(group) = self.group_of_row(row) else { return false };
        let is_kept = is_believed && self.has_followers(group);
        match self.relays.get_mut(&group) {
            Some(relay) if is_kept => relay.is_orphan = true,
            _ => drop(self.relays.remove(&group)),
        }
        is_kept
    }

    /// Removes the orphan of `row`. True if there was one.
    pub(super) fn forget_orphan(&mut self, row: u32) -> bool {
        let group = self.group_of_row(row);
        group.is_some_and(|group| self.relays.remove(&group).is_some())
    }

    /// Number of receivers minus number of rows in use.
    pub(super) fn followers_without_row(&self) -> isize {
        self.followers.len().cast_signed() - self.relays.len().cast_signed()
    }
}
