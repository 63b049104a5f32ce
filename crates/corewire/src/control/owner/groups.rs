//! The groups of a channel on two levels, as its sender sees them: each has a relay, which reads the ring,
//! and followers, which read what the relay sends on and are watched here only for their lives.
//!
//! A relay that goes while it has followers leaves its row behind, an *orphan*: what its cursor holds
//! stays in the ring until the next relay takes the row over, or the last follower has gone. Nothing is
//! timed: the kernel says who is there.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::{Frame, Hello, Place, Reason, Welcome};
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::process;
use corewire_os::socket::{Peer, Socket};

use super::admission::Joining;
use super::{Owner, State, Watched, resources};
use crate::control::domain::take;
use crate::control::hub::{Handler, Token};
use crate::guard::lock;
use crate::tell::tell;

/// The groups of one channel.
pub(super) struct Groups {
    /// That of the sender itself: it needs no relay.
    home: u32,
    relays: BTreeMap<u32, RelayRow>,
    followers: BTreeMap<u32, FollowerLink>,
    last_follower: u32,
}

/// The row of a group's relay.
struct RelayRow {
    row: u32,
    /// The incarnation of the channel that it sends on.
    channel: u128,
    /// It is gone.
    is_orphan: bool,
}

/// A receiver that reads what a relay sends on.
struct FollowerLink {
    group: u32,
    socket: Arc<Socket>,
    life: Descriptor,
    tokens: [Token; 2],
}

impl Groups {
    pub(super) fn new(home: u32) -> Self {
        let (relays, followers) = (BTreeMap::new(), BTreeMap::new());
        Self { home, relays, followers, last_follower: 0 }
    }

    fn group_of_row(&self, row: u32) -> Option<u32> {
        self.relays.iter().find(|(_, relay)| relay.row == row).map(|(&group, _)| group)
    }

    fn has_followers(&self, group: u32) -> bool {
        self.followers.values().any(|follower| follower.group == group)
    }

    /// A receiver has gone. Whether its row is to be kept: as an orphan, if it was a relay that
    /// `is_believed`, and has followers.
    pub(super) fn give_up(&mut self, row: u32, is_believed: bool) -> bool {
        let Some(group) = self.group_of_row(row) else { return false };
        let is_kept = is_believed && self.has_followers(group);
        match self.relays.get_mut(&group) {
            Some(relay) if is_kept => relay.is_orphan = true,
            _ => drop(self.relays.remove(&group)),
        }
        is_kept
    }

    /// Whether an orphan has that row, which then is none any more.
    pub(super) fn forget_orphan(&mut self, row: u32) -> bool {
        let group = self.group_of_row(row);
        group.is_some_and(|group| self.relays.remove(&group).is_some())
    }

    /// How many more receivers there are than rows are taken.
    pub(super) fn more_than_rows(&self) -> isize {
        self.followers.len().cast_signed() - self.relays.len().cast_signed()
    }
}

impl Owner {
    /// Whether `hello` is that of one whose group has a relay, or is to have one.
    pub(crate) fn is_relayed(&self, hello: &Hello, peer: Peer) -> bool {
        let state = lock(&self.state);
        match (&state.groups, hello.place) {
            (Some(groups), Place::Group(group)) => group != groups.home && peer.trusted().is_some(),
            _ => false,
        }
    }

    /// Points a receiver to the relay of its group.
    pub(crate) fn point_to_relay(&self, hello: &Hello, socket: &Socket) -> Result<(), Reason> {
        self.check_type(hello)?;
        let answer = Frame::Relayed { channel: self.header.incarnation, relay: 0 };
        socket.send(&answer, &[]).map_err(|error| resources(&error))
    }

    fn show_relay(&self, socket: &Socket, relay: u128) -> Result<(), OsError> {
        let life = process::own_life()?;
        let answer = Frame::Relayed { channel: self.header.incarnation, relay };
        socket.send(&answer, &[self.segment.as_fd(), life.as_fd()])
    }

    /// Counts one in that gets its messages from the relay of `group`, and tells it which channel's place
    /// in the ring is kept from here on.
    pub(super) fn take_follower(
        &self,
        state: &mut State,
        group: u32,
        hello: &Hello,
        socket: &Arc<Socket>,
        mut descriptors: Vec<Descriptor>,
    ) -> Result<(), Reason> {
        let max = self.header.geometry.receivers_max();
        if self.joined_with(state) as u64 >= max {
            return Err(Reason::Full { max });
        }
        let life = socket.peer_life(take(&mut descriptors)).map_err(|error| resources(&error))?;
        let Some(groups) = &mut state.groups else { return Err(Reason::Malformed) };
        groups.last_follower = groups.last_follower.wrapping_add(1);
        let number = groups.last_follower;
        let relay = groups.relays.get(&group).map_or(0, |relay| relay.channel);
        let handler: Weak<dyn Handler> = self.this.clone();
        let watch = [Watched::FollowerSocket(number), Watched::FollowerLife(number)];
        let tokens = self.watch_both(state, socket, &life, &handler, watch);
        let tokens = tokens.map_err(|error| resources(&error))?;
        if let Err(error) = self.show_relay(socket, relay) {
            self.unwatch(state, socket, &life, tokens);
            return Err(resources(&error));
        }
        if let Some(groups) = &mut state.groups {
            let socket = Arc::clone(socket);
            groups.followers.insert(number, FollowerLink { group, socket, life, tokens });
        }
        self.count(ControlCounter::Joins);
        // Whose relay has just gone comes again, and is waited for.
        if relay == hello.socket {
            self.note_answer(state, hello);
        }
        Ok(())
    }

    /// A follower has gone, for whatever reason; and with the last of a group its orphaned row.
    pub(super) fn drop_follower(&self, number: u32) {
        let mut state = lock(&self.state);
        let groups = state.groups.as_mut();
        let Some(follower) = groups.and_then(|groups| groups.followers.remove(&number)) else {
            return;
        };
        self.unwatch(&mut state, &follower.socket, &follower.life, follower.tokens);
        // Whatever else it may say, it goes.
        let is_orderly = matches!(follower.socket.receive(), Ok((Frame::Leave, _)));
        self.count(if is_orderly { ControlCounter::Leaves } else { ControlCounter::Deaths });
        let Some(groups) = &mut state.groups else { return };
        let is_over = !groups.has_followers(follower.group);
        let orphan = groups.relays.get(&follower.group).filter(|relay| relay.is_orphan);
        if let Some(row) = orphan.map(|relay| relay.row).filter(|_| is_over) {
            groups.relays.remove(&follower.group);
            self.forget_row(row, ControlCounter::Leaves);
        }
        drop(state);
        self.shared.nudge(&self.linux);
        if is_orderly {
            tell!(info, "a follower left", channel = self.name);
        } else {
            tell!(warn, "a follower died", channel = self.name);
        }
    }

    /// Lets go of all followers.
    pub(super) fn drop_followers(&self, state: &mut State) {
        let followers = state.groups.as_mut().map(|groups| std::mem::take(&mut groups.followers));
        for (_, follower) in followers.into_iter().flatten() {
            self.unwatch(state, &follower.socket, &follower.life, follower.tokens);
        }
    }

    /// Takes the relay of `group` in: in the row of the one before it, if that is kept.
    pub(super) fn take_relay(
        &self,
        state: &mut State,
        group: u32,
        joining: &Joining<'_>,
    ) -> Result<Welcome, Reason> {
        let Some(groups) = &mut state.groups else { return Err(Reason::Malformed) };
        let former = groups.relays.get_mut(&group).map(|relay| {
            // If it cannot be replaced now, the last follower lets it go.
            relay.is_orphan = true;
            relay.row
        });
        if let Some(link) = former.and_then(|row| state.links.remove(&row)) {
            // Its end is not known here yet, or it is just going.
            self.unwatch(state, &link.socket, &link.life, link.tokens);
        }
        let welcome = match former {
            Some(row) => self.replace_row(row, joining)?,
            None => self.take_row(joining)?,
        };
        if let Some(groups) = &mut state.groups {
            let relay =
                RelayRow { row: welcome.row, channel: joining.hello.waiter, is_orphan: false };
            groups.relays.insert(group, relay);
        }
        Ok(welcome)
    }
}
