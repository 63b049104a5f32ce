//! The groups of a channel on two levels, as its sender sees them. Each group has a relay, which reads the ring, and
//! followers, which read what the relay forwards. The sender only watches whether followers are alive.
//!
//! If a relay ends while it has followers, its row becomes an *orphan*: the messages after its cursor stay in the ring
//! until the group's next relay takes the row over, or the last follower has gone. No time-out is involved: the kernel
//! reports which processes are alive.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::{Frame, Hello, Place, Reason, Welcome};
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::process;
use corewire_os::socket::{Peer, Socket};

use super::admission::Joining;
use super::groups::{FollowerLink, RelayRow};
use super::{HungUp, Owner, State, Watched};
use crate::control::frames::{next_descriptor, resources};
use crate::control::hub::Handler;
use crate::guard::lock;
use crate::tell::tell;

impl Owner {
    /// True if `hello` comes from a receiver that must join through the relay of its group.
    pub(crate) fn is_relayed(&self, hello: &Hello, peer: Peer) -> bool {
        let state = lock(&self.state);
        match (&state.groups, hello.place) {
            (Some(groups), Place::Group(group)) => group != groups.home && peer.trusted().is_some(),
            _ => false,
        }
    }

    /// Directs a receiver to the relay of its group.
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

    /// Adds a follower of the relay of `group`. Sends it the relay's channel; from then on that relay's place in the
    /// ring is kept.
    pub(super) fn add_follower(
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
        let life = socket
            .peer_life(next_descriptor(&mut descriptors))
            .map_err(|error| resources(&error))?;
        let seen_pid = socket.peer().map_or(0, |peer| peer.pid);
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
            let follower = FollowerLink { group, socket, life, seen_pid, tokens };
            groups.followers.insert(number, follower);
        }
        self.count(ControlCounter::Joins);
        // If the relay that the follower expects is not this one, the follower joins again, and its invitation stays
        // open.
        if relay == hello.socket {
            self.settle_invitation(state, hello);
        }
        Ok(())
    }

    /// Removes a follower that has left or died. Removes the orphan of its group with the last follower.
    pub(super) fn drop_follower(&self, number: u32, how: impl Fn(&HungUp) -> ControlCounter) {
        let mut state = lock(&self.state);
        let groups = state.groups.as_mut();
        let Some(follower) = groups.and_then(|groups| groups.followers.remove(&number)) else {
            return;
        };
        self.unwatch(&mut state, &follower.socket, &follower.life, follower.tokens);
        // The follower is removed whatever it has sent.
        let is_orderly = matches!(follower.socket.receive(), Ok((Frame::Leave, _)));
        self.remove_unneeded_orphan(&mut state, follower.group);
        drop(state);
        let FollowerLink { life, seen_pid, .. } = follower;
        let peer = HungUp { life: Arc::new(life), seen_pid, is_trusted: true };
        let has_left = is_orderly || how(&peer) == ControlCounter::Leaves;
        self.count(if has_left { ControlCounter::Leaves } else { ControlCounter::Deaths });
        self.shared.nudge(&self.linux);
        if has_left {
            tell!(info, "a follower left", channel = self.name);
        } else {
            tell!(warn, "a follower died", channel = self.name);
        }
    }

    /// Removes the orphan of `group` if the group has no followers: no other relay would take its row over, and the
    /// sender would wait for it.
    fn remove_unneeded_orphan(&self, state: &mut State, group: u32) {
        let Some(groups) = &mut state.groups else { return };
        let orphan = groups.relays.get(&group).filter(|relay| relay.is_orphan);
        if let Some(row) = orphan.map(|relay| relay.row).filter(|_| !groups.has_followers(group)) {
            groups.relays.remove(&group);
            self.remove_row(row, ControlCounter::Leaves);
            self.shared.nudge(&self.linux);
        }
    }

    /// Stops watching all followers.
    pub(super) fn drop_followers(&self, state: &mut State) {
        let followers = state.groups.as_mut().map(|groups| std::mem::take(&mut groups.followers));
        for (_, follower) in followers.into_iter().flatten() {
            self.unwatch(state, &follower.socket, &follower.life, follower.tokens);
        }
    }

    /// Adds the relay of `group`. It gets the row of the former relay if that row is kept.
    pub(super) fn add_relay(
        &self,
        state: &mut State,
        group: u32,
        joining: &Joining<'_>,
    ) -> Result<Welcome, Reason> {
        let Some(groups) = &mut state.groups else { return Err(Reason::Malformed) };
        let former = groups.relays.get_mut(&group).map(|relay| {
            relay.is_orphan = true;
            relay.row
        });
        if let Some(link) = former.and_then(|row| state.links.remove(&row)) {
            // The former relay has ended without the sender knowing yet, or is just leaving.
            self.unwatch(state, &link.socket, &link.life, link.tokens);
        }
        let welcome = match former {
            Some(row) => self.reassign_row(row, joining).inspect_err(|_| {
                // If there are followers, the last one of them removes it.
                self.remove_unneeded_orphan(state, group);
            })?,
            None => self.assign_row(joining)?,
        };
        if let Some(groups) = &mut state.groups {
            let relay =
                RelayRow { row: welcome.row, channel: joining.hello.waiter, is_orphan: false };
            groups.relays.insert(group, relay);
        }
        Ok(welcome)
    }
}
