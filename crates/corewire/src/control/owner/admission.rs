//! Admits a receiver: checks what it sent, assigns it a row of the ring, and sends it its first message's number.
//!
//! Compares the types; checks the seals, the size and the header of the receiver's segment; maps the segment in a free
//! row; lets the ring count it in (`corewire_ring::broadcast::Members::join`); watches its socket and its process; and
//! answers with the sender's segment, a descriptor of this process, and the hint segment if there is one.

use std::sync::Arc;

use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::{Frame, Hello, Place, Reason, Start, Welcome};
use corewire_layout::segment::{RECEIVER_SEGMENT_BYTES, RawReceiverHeader, ReceiverHeader};
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::memory::{Segment, SegmentError};
use corewire_os::process;
use corewire_os::socket::{Peer, Socket};
use corewire_ring::Lock;
use corewire_ring::broadcast::Joined;
use corewire_ring::region::Rows;
use zerocopy::{FromZeros, IntoBytes};

use super::{Owner, Readiness, ReceiverLink, State};
use crate::control::frames::{next_descriptor, resources};
use crate::control::hub::Token;
use crate::guard::lock;
use crate::tell::tell;

/// A receiver that is being admitted.
pub(super) struct Joining<'a> {
    pub(super) hello: &'a Hello,
    peer: Peer,
    segment: &'a Segment,
}

impl Owner {
    /// Admits a receiver, or returns the reason for its refusal.
    pub(crate) fn admit(
        &self,
        hello: &Hello,
        socket: &Arc<Socket>,
        peer: Peer,
        mut descriptors: Vec<Descriptor>,
    ) -> Result<(), Reason> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(Reason::NotFound);
        }
        self.check_type(hello)?;
        let is_trusted = peer.trusted().is_some();
        if !is_trusted {
            if hello.place != Place::Ring || matches!(hello.start, Start::At(_)) {
                return Err(Reason::Malformed);
            }
            // Messages held for a new receiver cost the sender room.
            if hello.start == Start::Oldest {
                return Err(Reason::GuestFromNow);
            }
            // Only receivers that the sender has directed to this relay join its channel.
            if self.name.is_relayed() {
                return Err(Reason::NotForGuests);
            }
        }
        if let Place::Follower(group) = hello.place {
            self.add_follower(&mut state, group, hello, socket, descriptors)?;
            drop(state);
            // The data thread may be waiting for this receiver.
            self.shared.nudge(&self.linux);
            tell!(info, "a follower joined", channel = self.name, group = group);
            return Ok(());
        }
        let max = self.header.geometry.receivers_max();
        if !matches!(hello.place, Place::Relay(_)) && self.joined_with(&state) as u64 >= max {
            return Err(Reason::Full { max });
        }
        if !is_trusted {
            self.check_share(peer.uid, max)?;
        }
        let segment = next_descriptor(&mut descriptors).ok_or(Reason::Malformed)?;
        let segment = check_receiver(segment)?;
        let life = socket
            .peer_life(next_descriptor(&mut descriptors))
            .map_err(|error| resources(&error))?;
        let joining = Joining { hello, peer, segment: &segment };
        let welcome = match hello.place {
            Place::Relay(group) => self.add_relay(&mut state, group, &joining)?,
            _ => self.assign_row(&joining)?,
        };
        let row = welcome.row;
        let linked = self.welcome(&mut state, socket, &life, row, welcome);
        match linked {
            Ok(tokens) => {
                let link = ReceiverLink {
                    socket: Arc::clone(socket),
                    unread: Arc::default(),
                    unanswered: Arc::default(),
                    is_trusted,
                    life: Arc::new(life),
                    seen_pid: peer.pid,
                    segment,
                    readiness: Readiness::None,
                    tokens,
                };
                state.links.insert(row, link);
            }
            Err(error) => {
                self.release_row(&mut state, row, ControlCounter::Leaves);
                self.shared.nudge(&self.linux);
                return Err(resources(&error));
            }
        }
        if !matches!(hello.place, Place::Relay(_)) {
            self.settle_invitation(&mut state, hello);
        }
        drop(state);
        self.shared.nudge(&self.linux);
        tell!(info, "a receiver joined", channel = self.name, row = row, pid = peer.pid);
        Ok(())
    }

    /// Guests of one user may use a quarter of the `max` rows, and all guests three quarters. The rest is for processes
    /// of the sender's own user. If there is one row, a guest may use it.
    fn check_share(&self, user: u32, max: u64) -> Result<(), Reason> {
        let (of_one, of_all) = ((max / 4).max(1), (max - (max / 4).max(1)).max(1));
        let (own, all) =
            self.members.with(|members| (members.guests(Some(user)), members.guests(None)));
        match (own as u64 >= of_one, all as u64 >= of_all) {
            (true, _) => Err(Reason::GuestsFull { user, max: of_one }),
            (_, true) => Err(Reason::GuestsFull { user, max: of_all }),
            _ => Ok(()),
        }
    }

    pub(super) fn check_type(&self, hello: &Hello) -> Result<(), Reason> {
        let tag = self.header.type_tag;
        if hello.type_key.accepts(tag.key) { Ok(()) } else { Err(tag.refusal()) }
    }

    /// Removes the invitation of a receiver that has joined, if it has one.
    pub(super) fn settle_invitation(&self, state: &mut State, hello: &Hello) {
        if hello.waiter != 0 {
            if !state.are_invited {
                state.arrived.insert(hello.waiter);
            }
            self.remove_invitation(state, hello.waiter);
        }
    }

    /// Assigns a free row to a new receiver.
    pub(super) fn assign_row(&self, joining: &Joining<'_>) -> Result<Welcome, Reason> {
        let Joining { hello, peer, segment } = *joining;
        let row = self.members.with(|members| members.free_row());
        let max = self.header.geometry.receivers_max();
        let row = row.ok_or(Reason::Full { max })?;
        self.rows.place(row, segment).map_err(|error| resources(&error))?;
        self.fence_for(joining);
        let channel = self.channel();
        let is_guest = peer.trusted().is_none();
        let start = if is_guest { Start::Now } else { hello.start };
        let joined = self.members.with(|members| {
            let joined = members.join(row, peer.pid, start, &channel, &self.linux);
            if is_guest {
                members.set_guest(row, peer.uid);
            }
            joined
        });
        Ok(self.welcome_to(row, joining, joined))
    }

    /// Assigns the row of a former receiver, which may have gone, to a new receiver.
    pub(super) fn reassign_row(&self, row: u32, joining: &Joining<'_>) -> Result<Welcome, Reason> {
        self.fence_for(joining);
        let channel = self.channel();
        let receivers_max = u32::try_from(self.header.geometry.receivers_max()).unwrap_or(u32::MAX);
        let rows = Rows::new(self.rows.region(), receivers_max);
        let place = || self.rows.place(row, joining.segment);
        let joined = self.members.with(|members| {
            members.succeed(row, joining.peer.pid, &rows, place, &channel, &self.linux)
        });
        let joined = joined.map_err(|error| resources(&error))?;
        Ok(self.welcome_to(row, joining, joined))
    }

    /// A fence after each stamp costs every other receiver too. The sender executes none for a guest, which must check
    /// for messages every 1 to 8 ms instead.
    fn fence_for(&self, joining: &Joining<'_>) {
        if joining.hello.needs_fence && joining.peer.trusted().is_some() {
            self.shared.demand_fence();
        }
    }

    fn welcome_to(&self, row: u32, joining: &Joining<'_>, joined: Joined) -> Welcome {
        let settled = match (joining.hello.needs_fence, joining.peer.trusted().is_some()) {
            (false, _) => 0,
            (true, true) => joined.settled,
            (true, false) => u64::MAX,
        };
        let welcome = joined.welcome(row, self.header.incarnation, self.hint.is_some());
        Welcome { settled, ..welcome }
    }

    fn welcome(
        &self,
        state: &mut State,
        socket: &Socket,
        life: &Descriptor,
        row: u32,
        welcome: Welcome,
    ) -> Result<[Token; 2], OsError> {
        use std::os::fd::AsFd;
        let own_life = process::own_life()?;
        let mut descriptors = vec![self.segment.as_fd(), own_life.as_fd()];
        descriptors.extend(self.hint.as_ref().map(AsFd::as_fd));
        let tokens = self.watch(state, socket, life, row)?;
        socket.send(&Frame::Welcome(welcome), &descriptors).inspect_err(|_| {
            self.unwatch(state, socket, life, tokens);
        })?;
        Ok(tokens)
    }
}

/// Checks a receiver's segment before the segment is placed in the row.
fn check_receiver(descriptor: Descriptor) -> Result<Segment, Reason> {
    let bad = |error: SegmentError| match error {
        SegmentError::Os(error) => Reason::Segment { errno: error.errno.unsigned_abs() },
        _ => Reason::Segment { errno: 0 },
    };
    let segment = Segment::adopt(descriptor, false).map_err(bad)?;
    let memory = segment.map(RECEIVER_SEGMENT_BYTES as u64).map_err(|error| match error {
        // The segment is valid, but this process cannot map it.
        SegmentError::Os(error) => resources(&error),
        other => bad(other),
    })?;
    let mut raw = RawReceiverHeader::new_zeroed();
    memory.copy_out(0, raw.as_mut_bytes());
    ReceiverHeader::parse(&raw, segment.bytes()).map_err(|_| Reason::Segment { errno: 0 })?;
    Ok(segment)
}
