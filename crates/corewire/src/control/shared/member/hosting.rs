//! The host of a shared channel: the sender that holds its name, invites receivers, and admits receivers and senders.
//!
//! A newcomer is told its row before it is counted in (R3, R4), so that it can vacate the row if this host dies in
//! between. Then it is told where it begins.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use corewire_layout::frame::{Frame, Hello, Place, Reason, Start, Welcome};
use corewire_layout::message_type::TypeKey;
use corewire_layout::name::NameRecord;
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::process;
use corewire_os::socket::{Peer, Socket};
use corewire_ring::shared::{Entrance, Party, Roster};

use super::Member;
use crate::control::frames::{invite, resources};
use crate::control::hub::Handler;
use crate::control::reachable::{Admitted, Reachable, Visitor};
use crate::guard::lock;
use crate::host::Hosted;

/// A party that the host has admitted and that has not confirmed yet. If it never confirms, the host vacates its row.
/// The party neither sends nor receives before its confirmation is answered.
struct Arrival {
    roster: Roster,
    kernel: Hosted,
    party: Party,
    who: Entrance,
}

impl Admitted for Arrival {
    fn vacate(self: Box<Self>) {
        self.roster.vacate(self.party, self.who, &self.kernel);
    }
}

impl Reachable for Member {
    /// The connection of a sender stays open: its end tells that sender that this host is gone.
    fn serve(&self, at: &dyn Visitor, request: Frame, _: Vec<Descriptor>) -> bool {
        let admitted = match request {
            Frame::Hello(hello) => self.admit(&hello, at.socket(), at.peer()),
            Frame::Enter { type_key, socket, .. } => {
                self.admit_sender(type_key, socket, at.socket(), at.peer())
            }
            Frame::Follow { .. } => return at.kept(self.add_follower(at.socket())),
            Frame::Observe { .. } => return self.show(at),
            _ => Err(Reason::Malformed),
        };
        at.kept(admitted.map(|party| at.expect(party)))
    }
}

impl Member {
    /// Publishes the channel's name record and invites the receivers that wait for the channel.
    pub(super) fn publish(&self) -> Result<(), OsError> {
        if let (Some(claim), Some(record)) = (&lock(&self.state).claim, self.record()) {
            claim.write(record)?;
        }
        for waiter in self.domain.directory.waiters(&self.name)? {
            self.invite(waiter)?;
        }
        lock(&self.state).is_inviting = false;
        self.release_if_all_joined();
        Ok(())
    }

    pub(super) fn invite(&self, waiter: NameRecord) -> Result<(), OsError> {
        let Some(socket) = self.domain.connect_to_waiter(&waiter)? else { return Ok(()) };
        // A receiver that joins at once needs this lock, and so joins after the invitation is stored. A receiver that
        // had joined before closes the connection.
        let mut state = lock(&self.state);
        if invite(&socket, &self.name, waiter.incarnation)? {
            let handler: Weak<dyn Handler> = self.this.clone();
            let token = self.hub().watch(&socket, handler)?;
            state.invitations.insert(waiter.incarnation, (socket, token));
        }
        Ok(())
    }

    pub(super) fn release_if_all_joined(&self) {
        let state = lock(&self.state);
        let is_over = !state.is_inviting && state.invitations.is_empty();
        drop(state);
        if is_over && self.link.roster.let_go(self.entrance.row, &self.linux) {
            self.shared.nudge(&self.linux);
        }
    }

    /// As host: admits a receiver, or returns the reason for its refusal.
    fn admit(
        &self,
        hello: &Hello,
        socket: &Socket,
        peer: Peer,
    ) -> Result<Box<dyn Admitted>, Reason> {
        let header = &self.memory.header;
        if peer.trusted().is_none() || hello.socket == 0 {
            return Err(Reason::NotForGuests);
        }
        if !hello.type_key.accepts(header.type_tag.key) {
            return Err(header.type_tag.refusal());
        }
        match (hello.start, hello.place) {
            (Start::Oldest, _) => return Err(Reason::FromNow),
            // A shared channel has one level.
            (Start::Now | Start::OldestIfPossible, Place::Ring | Place::Group(_)) => {}
            _ => return Err(Reason::Malformed),
        }
        let max = header.geometry.receivers_max();
        let state = lock(&self.state);
        if state.is_closed || state.claim.is_none() {
            return Err(Reason::NotFound);
        }
        let roster = &self.link.roster;
        let vacant = roster.vacant_row().or_else(|| {
            // Some rows may belong to dead receivers that no handle has watched yet.
            self.link.watch_all(Party::Receiver);
            roster.vacant_row()
        });
        let entrance = vacant.ok_or(Reason::Full { max })?;
        let ring =
            self.memory.ring_segment.reopen_read_only().map_err(|error| resources(&error))?;
        let life = process::own_life().map_err(|error| resources(&error))?;
        let welcome = Welcome {
            row: entrance.row,
            start: 0,
            epoch: 0,
            incarnation: header.incarnation,
            hint: false,
            table: true,
            settled: 0,
            generation: entrance.generation,
        };
        let descriptors = [ring.as_fd(), life.as_fd(), self.memory.table_segment.as_fd()];
        socket.send(&Frame::Welcome(welcome), &descriptors).map_err(|error| resources(&error))?;
        // From here on the receiver knows its row, and vacates the row if this host dies before the next frame.
        let start = roster.admit(entrance, hello.socket, peer.pid);
        if let Err(error) = socket.send(&Frame::Start { start }, &[]) {
            roster.vacate(Party::Receiver, entrance, &self.linux);
            return Err(resources(&error));
        }
        drop(state);
        self.shared.nudge(&self.linux);
        self.remove_invitation(hello.waiter);
        Ok(self.arrival(Party::Receiver, entrance))
    }

    fn arrival(&self, party: Party, who: Entrance) -> Box<dyn Admitted> {
        Box::new(Arrival {
            roster: self.link.roster.clone(),
            kernel: self.kernel.clone(),
            party,
            who,
        })
    }

    /// As host: admits a sender, or returns the reason for its refusal.
    fn admit_sender(
        &self,
        type_key: TypeKey,
        process: u128,
        socket: &Arc<Socket>,
        peer: Peer,
    ) -> Result<Box<dyn Admitted>, Reason> {
        let header = &self.memory.header;
        if peer.trusted().is_none() || process == 0 {
            return Err(Reason::NotForGuests);
        }
        if type_key != header.type_tag.key {
            return Err(header.type_tag.refusal());
        }
        let mut state = lock(&self.state);
        if state.is_closed || state.claim.is_none() {
            return Err(Reason::NotFound);
        }
        let roster = &self.link.roster;
        let entrance = roster.vacant_sender_row().or_else(|| {
            self.link.watch_all(Party::Sender);
            roster.vacant_sender_row()
        });
        let max = header.geometry.senders_max();
        let entrance = entrance.ok_or(Reason::SendersFull { max })?;
        let Entrance { row, generation } = entrance;
        let entered = Frame::Entered { row, generation, incarnation: header.incarnation };
        let descriptors = [self.memory.ring_segment.as_fd(), self.memory.table_segment.as_fd()];
        socket.send(&entered, &descriptors).map_err(|error| resources(&error))?;
        // From here on the sender knows its row, and vacates the row if this host dies before the next frame.
        roster.let_send(entrance, process, peer.pid, &self.kernel);
        if let Err(error) = socket.send(&Frame::Start { start: 0 }, &[]) {
            roster.vacate(Party::Sender, entrance, &self.kernel);
            return Err(resources(&error));
        }
        state.add_follower(socket);
        Ok(self.arrival(Party::Sender, entrance))
    }

    /// Gives an observer the channel's segments.
    fn show(&self, at: &dyn Visitor) -> bool {
        if at.is_foreign() {
            return at.refuse(Reason::NotForGuests);
        }
        at.answered(self.segments().and_then(|(ring, table)| {
            let descriptors = [ring.as_fd(), table.as_fd()];
            let joining = self.joining();
            at.socket().send(&Frame::Observed { count: 0, joining }, &descriptors)
        }))
    }

    /// As host: registers a sender that wants to learn when this host goes.
    fn add_follower(&self, socket: &Arc<Socket>) -> Result<(), Reason> {
        let mut state = lock(&self.state);
        if state.is_closed || state.claim.is_none() {
            return Err(Reason::NotFound);
        }
        state.add_follower(socket);
        Ok(())
    }
}
