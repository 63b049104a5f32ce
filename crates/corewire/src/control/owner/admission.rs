//! Taking a receiver in: what it sends is checked, it gets a row of the ring, and is told where it begins.

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

use super::{Link, Owner, Readiness, State, resources};
use crate::control::domain::take;
use crate::control::hub::Token;
use crate::guard::lock;
use crate::tell::tell;

/// One who is being taken in.
pub(super) struct Joining<'a> {
    pub(super) hello: &'a Hello,
    peer: Peer,
    segment: &'a Segment,
}

impl Owner {
    /// Takes a receiver in, or says why not.
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
            // What a newcomer needs is held for it, which costs the sender.
            if hello.start == Start::Oldest {
                return Err(Reason::GuestFromNow);
            }
            // Its receivers are those that the sender points here.
            if self.name.is_relayed() {
                return Err(Reason::NotForGuests);
            }
        }
        if let Place::Follower(group) = hello.place {
            self.take_follower(&mut state, group, hello, socket, descriptors)?;
            drop(state);
            // It may be waited for.
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
        let segment = take(&mut descriptors).ok_or(Reason::Malformed)?;
        let segment = check_receiver(segment)?;
        let life = socket.peer_life(take(&mut descriptors)).map_err(|error| resources(&error))?;
        let joining = Joining { hello, peer, segment: &segment };
        let welcome = match hello.place {
            Place::Relay(group) => self.take_relay(&mut state, group, &joining)?,
            _ => self.take_row(&joining)?,
        };
        let row = welcome.row;
        let linked = self.welcome(&mut state, socket, &life, row, welcome);
        match linked {
            Ok(tokens) => {
                let link = Link {
                    socket: Arc::clone(socket),
                    unread: Arc::default(),
                    unanswered: Arc::default(),
                    is_trusted,
                    life,
                    segment,
                    readiness: Readiness::None,
                    tokens,
                };
                state.links.insert(row, link);
            }
            Err(error) => {
                self.give_up_row(&mut state, row, ControlCounter::Leaves);
                self.shared.nudge(&self.linux);
                return Err(resources(&error));
            }
        }
        if !matches!(hello.place, Place::Relay(_)) {
            self.note_answer(&mut state, hello);
        }
        drop(state);
        self.shared.nudge(&self.linux);
        tell!(info, "a receiver joined", channel = self.name, row = row, pid = peer.pid);
        Ok(())
    }

    /// The guests of one user may have a quarter of the `max` rows, and all guests three quarters: the rest is
    /// for processes of the sender's own user. A single row has no such rest.
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

    /// One who may have been invited has come.
    pub(super) fn note_answer(&self, state: &mut State, hello: &Hello) {
        if hello.waiter != 0 {
            if !state.are_invited {
                state.arrived.insert(hello.waiter);
            }
            self.answered(state, hello.waiter);
        }
    }

    /// Gives one who joins a row of its own.
    pub(super) fn take_row(&self, joining: &Joining<'_>) -> Result<Welcome, Reason> {
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

    /// Gives one who joins the row of another, which may be gone.
    pub(super) fn replace_row(&self, row: u32, joining: &Joining<'_>) -> Result<Welcome, Reason> {
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

    /// A fence after each stamp costs every other receiver, too: not for a guest, who must then look up
    /// every millisecond.
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

/// Checks a receiver's segment before it is mapped for good.
fn check_receiver(descriptor: Descriptor) -> Result<Segment, Reason> {
    let bad = |error: SegmentError| match error {
        SegmentError::Os(error) => Reason::Segment { errno: error.errno.unsigned_abs() },
        _ => Reason::Segment { errno: 0 },
    };
    let segment = Segment::adopt(descriptor, false).map_err(bad)?;
    let memory = segment.map(RECEIVER_SEGMENT_BYTES as u64).map_err(|error| match error {
        // Nothing is wrong with it: this process cannot map it.
        SegmentError::Os(error) => resources(&error),
        other => bad(other),
    })?;
    let mut raw = RawReceiverHeader::new_zeroed();
    memory.copy_out(0, raw.as_mut_bytes());
    ReceiverHeader::parse(&raw, segment.bytes()).map_err(|_| Reason::Segment { errno: 0 })?;
    Ok(segment)
}
