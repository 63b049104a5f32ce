//! The control half of a channel's sender: which receivers are invited, have joined, have left or have died. Runs on
//! the control thread.
//!
//! A receiver that leaves says `Leave` first. If its socket hangs up without that, the kernel says whether its process is
//! ending: then it has died, otherwise it has left. A process descriptor that becomes readable is a death. In each case
//! the receiver stops counting, the limit becomes 0, zeroes replace its page, and a sender that waits for it is woken.

mod admission;
mod data_thread;
mod groups;
mod levels;
mod serving;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::{Frame, Reason};
use corewire_layout::name::{ChannelName, NameRecord};
use corewire_layout::segment::SenderHeader;
use corewire_os::OsError;
use corewire_os::directory::Claim;
use corewire_os::event::Bell;
use corewire_os::fork::{Descriptor, InChild};
use corewire_os::memory::{RowTable, Segment};
use corewire_os::process;
use corewire_os::sleep::Linux;
use corewire_os::socket::{ReceiveError, Socket};
use corewire_ring::Lock;
use corewire_ring::broadcast::{Channel, Members, SenderShared, SenderWords};
use corewire_ring::doorbell::notice::FORKED;
use corewire_ring::region::{Region, Slots};
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};

pub(crate) use self::data_thread::SenderControl;
use self::groups::Groups;
use crate::control::ENDS_WITHIN;
use crate::control::domain::DomainHandle;
use crate::control::frames::{EMFILE, REQUESTS_PER_TURN, invite, next_descriptor, resources};
use crate::control::hub::{Failures, Handler, Hub, Token};
use crate::control::reachable::Kind;
use crate::guard::{Guarded, lock};
use crate::halves::SenderHalf;
use crate::tell::tell;
use crate::wait::NO_LIMIT_NS;

/// The control half of a channel's sender.
pub(crate) struct Owner {
    this: Weak<Self>,
    name: ChannelName,
    header: SenderHeader,
    segment: Segment,
    hint: Option<Segment>,
    words: SenderWords,
    slots: Slots,
    shared: Arc<SenderShared>,
    members: Guarded<Members>,
    rows: RowTable,
    linux: Linux,
    domain: DomainHandle,
    state: Mutex<State>,
    /// How long the first message waits for invited receivers, and the end of that time.
    invitation_patience: Option<Duration>,
    invited_until: OnceLock<Instant>,
    /// 1 while the control thread has been asked to drop receivers.
    is_dropping: AtomicU32,
}

#[derive(Default)]
struct State {
    links: BTreeMap<u32, ReceiverLink>,
    invitations: BTreeMap<u128, Invitation>,
    /// Waiters that joined before they were invited. Empty once all waiters have been invited.
    arrived: BTreeSet<u128>,
    are_invited: bool,
    /// Present if the channel has two levels.
    groups: Option<Groups>,
    watched: BTreeMap<Token, Watched>,
    claim: Option<Claim>,
    is_closed: bool,
}

/// A receiver that has joined.
struct ReceiverLink {
    socket: Arc<Socket>,
    /// Failed calls in a row that read from the socket.
    unread: Arc<Failures>,
    /// Answers in a row that could not be sent.
    unanswered: Arc<Failures>,
    /// The receiver runs as this process's user.
    is_trusted: bool,
    life: Arc<Descriptor>,
    /// The number of its process here.
    seen_pid: u32,
    segment: Segment,
    readiness: Readiness,
    tokens: [Token; 2],
}

/// A receiver that has hung up without a frame: its process has died, or is just dying, or lives on without the
/// channel, as after `exec`.
struct HungUp {
    life: Arc<Descriptor>,
    seen_pid: u32,
    is_trusted: bool,
}

impl HungUp {
    /// What counts its end. May wait for a moment.
    fn counter(&self) -> ControlCounter {
        // This thread does not wait for a guest.
        let limit = if self.is_trusted { ENDS_WITHIN } else { Duration::ZERO };
        match process::is_ending(&*self.life, self.seen_pid, limit) {
            true => ControlCounter::Deaths,
            false => ControlCounter::Leaves,
        }
    }
}

impl ReceiverLink {
    fn hung_up(&self) -> HungUp {
        let (life, seen_pid) = (Arc::clone(&self.life), self.seen_pid);
        HungUp { life, seen_pid, is_trusted: self.is_trusted }
    }
}

/// How a receiver that waits for its readiness descriptor is woken.
#[derive(Default)]
enum Readiness {
    /// The receiver has not asked for it.
    #[default]
    None,
    /// By writing to its descriptor.
    Bell(Bell),
    /// By a frame. The receiver's own control thread then writes to the descriptor. A descriptor of another user may be
    /// anything, and a write to it may block.
    Frames,
}

/// A receiver that was waiting for the channel when it was created.
struct Invitation {
    /// Hangs up when the waiter has died or stopped waiting.
    socket: Socket,
    token: Token,
    /// The waiter's process, for display.
    pid: u32,
}

#[derive(Clone, Copy)]
enum Watched {
    LinkSocket(u32),
    LinkLife(u32),
    FollowerSocket(u32),
    FollowerLife(u32),
    Invitation(u128),
}

/// The parts of an [`Owner`].
pub(crate) struct OwnerParts {
    pub(crate) name: ChannelName,
    pub(crate) header: SenderHeader,
    pub(crate) segment: Segment,
    pub(crate) memory: Region,
    pub(crate) hint: Option<Segment>,
    pub(crate) rows: RowTable,
    pub(crate) shared: Arc<SenderShared>,
    /// The number of the first message.
    pub(crate) first: u64,
    /// The group of the sender, if the channel has two levels.
    pub(crate) home: Option<u32>,
    /// How long the first message waits for invited receivers. `None`: until all have joined.
    pub(crate) invitation_patience: Option<Duration>,
    pub(crate) domain: DomainHandle,
}

impl Owner {
    pub(crate) fn new(parts: OwnerParts) -> Arc<Self> {
        let OwnerParts { name, header, segment, memory, hint, rows, shared, domain, .. } = parts;
        let state = State { groups: parts.home.map(Groups::new), ..State::default() };
        let geometry = &header.geometry;
        let receivers_max = u32::try_from(geometry.receivers_max()).unwrap_or(u32::MAX);
        let owner = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            name,
            header,
            segment,
            hint,
            slots: Slots::new(&memory, geometry),
            words: SenderWords::new(memory),
            shared,
            members: Guarded(Mutex::new(Members::new(receivers_max).beginning_with(parts.first))),
            rows,
            linux: Linux::get(),
            domain,
            state: Mutex::new(state),
            invitation_patience: parts.invitation_patience,
            invited_until: OnceLock::new(),
            is_dropping: AtomicU32::new(0),
        });
        let in_child: Weak<dyn InChild> = owner.this.clone();
        corewire_os::fork::notify_in_child(in_child);
        owner
    }

    /// Keeps the claim on the channel's name until the channel is closed.
    pub(crate) fn keep_claim(&self, claim: Claim) {
        lock(&self.state).claim = Some(claim);
    }

    fn joined_with(&self, state: &State) -> usize {
        let rows = self.members.with(|members| members.joined()) as usize;
        let more = state.groups.as_ref().map_or(0, Groups::followers_without_row);
        rows.saturating_add_signed(more)
    }

    fn notify(&self, notice: u32) {
        // A forked child lacks the thread that may hold this lock.
        if self.shared.notices() & FORKED != 0 {
            return;
        }
        // Under the lock, like every change of the limit: a concurrent refresh sees the notice, or this call overwrites
        // its limit.
        self.members.with(|_| self.shared.notify(notice, &self.linux));
    }

    pub(crate) fn count(&self, counter: ControlCounter) {
        let counter = self.words.control_counter(counter);
        counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
    }

    fn hub(&self) -> &Arc<Hub> {
        self.domain.hub()
    }

    fn channel(&self) -> Channel<'_> {
        Channel {
            shared: &self.shared,
            slots: &self.slots,
            words: &self.words,
            geometry: &self.header.geometry,
            policy: self.header.policy,
        }
    }

    /// Publishes the channel's name record and invites the receivers that wait for the channel. Sending waits until
    /// each of them has joined, stopped waiting or died.
    pub(crate) fn publish(&self, record: NameRecord) -> Result<(), OsError> {
        if let Some(claim) = &lock(&self.state).claim {
            claim.write(record)?;
        }
        if let Some(until) =
            self.invitation_patience.and_then(|patience| Instant::now().checked_add(patience))
        {
            let _ = self.invited_until.set(until);
        }
        for waiter in self.domain.directory.waiters(&self.name)? {
            self.invite(waiter)?;
        }
        let mut state = lock(&self.state);
        state.are_invited = true;
        state.arrived = BTreeSet::new();
        Ok(())
    }

    fn invite(&self, waiter: NameRecord) -> Result<(), OsError> {
        let Some(socket) = self.domain.connect_to_waiter(&waiter)? else { return Ok(()) };
        let id = waiter.incarnation;
        // A receiver that joins at once needs this lock, and so joins after the invitation is stored.
        let mut state = lock(&self.state);
        if state.arrived.contains(&id) || !invite(&socket, &self.name, id)? {
            return Ok(());
        }
        // A sender that never waits does not wait for invited receivers either.
        if self.invitation_patience.is_some_and(|patience| patience.is_zero()) {
            return Ok(());
        }
        let pid = socket.peer()?.pid;
        let handler: Weak<dyn Handler> = self.this.clone();
        let token = self.hub().watch(&socket, handler)?;
        state.watched.insert(token, Watched::Invitation(id));
        state.invitations.insert(id, Invitation { socket, token, pid });
        self.members.with(Members::invite);
        self.shared.revoke();
        Ok(())
    }

    /// The processes of receivers that are invited and have not joined.
    pub(crate) fn joining(&self) -> Vec<u32> {
        lock(&self.state).invitations.values().map(|invitation| invitation.pid).collect()
    }

    fn watch(
        &self,
        state: &mut State,
        socket: &Socket,
        life: &Descriptor,
        row: u32,
    ) -> Result<[Token; 2], OsError> {
        let handler: Weak<dyn Handler> = self.this.clone();
        let watched = [Watched::LinkSocket(row), Watched::LinkLife(row)];
        self.watch_both(state, socket, life, &handler, watched)
    }

    fn watch_both(
        &self,
        state: &mut State,
        socket: &Socket,
        life: &Descriptor,
        handler: &Weak<dyn Handler>,
        watched: [Watched; 2],
    ) -> Result<[Token; 2], OsError> {
        let tokens = self.hub().watch_both(socket, life, handler)?;
        state.watched.extend(tokens.into_iter().zip(watched));
        Ok(tokens)
    }

    fn unwatch(&self, state: &mut State, socket: &Socket, life: &Descriptor, tokens: [Token; 2]) {
        self.hub().forget_both(socket, life, tokens);
        for token in tokens {
            state.watched.remove(&token);
        }
    }

    /// Removes an invitation: the receiver has joined, stopped waiting or died.
    fn remove_invitation(&self, state: &mut State, waiter: u128) {
        if let Some(invitation) = state.invitations.remove(&waiter) {
            self.hub().forget(&invitation.socket, invitation.token);
            state.watched.remove(&invitation.token);
            self.members.with(Members::answered);
        }
    }

    /// Removes a receiver that has left, died, or is dropped.
    fn drop_link(&self, row: u32, why: ControlCounter) {
        let mut state = lock(&self.state);
        if let Some(link) = state.links.remove(&row) {
            self.unwatch(&mut state, &link.socket, &link.life, link.tokens);
            self.release_row(&mut state, row, why);
        } else if state.groups.as_mut().is_some_and(|groups| groups.forget_orphan(row)) {
            // The cursor that the orphan left holds an impossible value.
            self.remove_row(row, why);
        } else {
            return;
        }
        drop(state);
        self.shared.nudge(&self.linux);
        // Without the lock, because a subscriber may call anything.
        match why {
            ControlCounter::Deaths => {
                tell!(warn, "a receiver died", channel = self.name, row = row);
            }
            ControlCounter::Evictions => {
                tell!(warn, "a receiver was evicted", channel = self.name, row = row);
            }
            ControlCounter::Violations => {
                tell!(
                    warn,
                    "a receiver's memory held an impossible value",
                    channel = self.name,
                    row = row
                );
            }
            _ => {
                tell!(info, "a receiver left", channel = self.name, row = row);
            }
        }
    }

    /// Releases a row. The row of a relay may be kept for the group's next relay.
    fn release_row(&self, state: &mut State, row: u32, why: ControlCounter) {
        // The row of a relay that stored an impossible value is not kept.
        let is_believed = why != ControlCounter::Violations;
        let groups = state.groups.as_mut();
        if !groups.is_some_and(|groups| groups.remove_receiver(row, is_believed)) {
            self.remove_row(row, why);
        }
    }

    fn remove_row(&self, row: u32, why: ControlCounter) {
        let channel = self.channel();
        self.members.with(|members| members.leave(row, &channel, why));
        // The data thread may still read the row. It reads the receiver's last words, or zeros.
        let _ = self.rows.clear(row);
    }

    /// Runs `job` with the sender's segment and the rows and segments of its receivers.
    pub(crate) fn with_rows<R>(&self, job: impl FnOnce(&Segment, &[(u16, &Segment)]) -> R) -> R {
        let state = lock(&self.state);
        let mut rows: Vec<_> = state
            .links
            .iter()
            .filter_map(|(&row, link)| Some((u16::try_from(row).ok()?, &link.segment)))
            .collect();
        rows.sort_by_key(|&(row, _)| row);
        job(&self.segment, &rows)
    }

    /// Reads a receiver's frames. If it has hung up without one, `how` says what counts that.
    fn on_link(&self, row: u32, hung_up: bool, how: impl Fn(&HungUp) -> ControlCounter) {
        // The next event, which comes at once, handles the remaining frames.
        for _ in 0..REQUESTS_PER_TURN {
            let (socket, unread, peer) = match lock(&self.state).links.get(&row) {
                Some(link) => (Arc::clone(&link.socket), Arc::clone(&link.unread), link.hung_up()),
                None => return,
            };
            let is_trusted = peer.is_trusted;
            let received = socket.receive();
            if !matches!(received, Err(ReceiveError::Os(_))) {
                unread.end();
            }
            match received {
                Ok((Frame::Leave, _)) => return self.drop_link(row, ControlCounter::Leaves),
                Ok((Frame::Readiness, mut descriptors)) => {
                    let given = next_descriptor(&mut descriptors).filter(|_| is_trusted);
                    let readiness = match given.map(Bell::adopt) {
                        Some(Ok(bell)) => Readiness::Bell(bell),
                        // EINVAL: the descriptor is not an eventfd.
                        Some(Err(error)) if error.errno == 22 => {
                            return self.drop_link(row, ControlCounter::Violations);
                        }
                        Some(Err(error)) => {
                            self.answer(row, &socket, &Frame::Refused(resources(&error)));
                            continue;
                        }
                        None => Readiness::Frames,
                    };
                    if let Some(link) = lock(&self.state).links.get_mut(&row) {
                        link.readiness = readiness;
                    }
                    self.answer(row, &socket, &Frame::Done);
                }
                Ok(_) | Err(ReceiveError::Frame(_)) => {
                    return self.drop_link(row, ControlCounter::Violations);
                }
                Err(ReceiveError::Closed) => {
                    return self.drop_link(row, how(&peer));
                }
                // This process had no free descriptor. The receiver is alive, and continues to read.
                Err(ReceiveError::Descriptors) => {
                    let reason = Reason::Resources { errno: EMFILE };
                    self.answer(row, &socket, &Frame::Refused(reason));
                }
                // A failed call says nothing about the receiver, which may read a message in place. It is told that
                // nothing reads its frames; one of another user reads nothing in place.
                Err(ReceiveError::Os(error)) => {
                    let is_broken = unread.add();
                    if hung_up {
                        return self.drop_link(row, how(&peer));
                    }
                    match is_trusted {
                        true if is_broken => {
                            self.answer(row, &socket, &Frame::Refused(resources(&error)));
                        }
                        false if is_broken => self.drop_link(row, ControlCounter::Leaves),
                        _ => {}
                    }
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// Answers a receiver. A receiver asks again if an answer is lost. One of another user that several answers in a row
    /// did not reach is dropped.
    fn answer(&self, row: u32, socket: &Socket, answer: &Frame) {
        let (unanswered, is_trusted) = match lock(&self.state).links.get(&row) {
            Some(link) => (Arc::clone(&link.unanswered), link.is_trusted),
            None => return,
        };
        match socket.send(answer, &[]) {
            Ok(()) => unanswered.end(),
            // The hang-up event handles this receiver.
            Err(error) if error.is_hang_up() => {}
            Err(_) if unanswered.add() && !is_trusted => {
                self.drop_link(row, ControlCounter::Leaves);
            }
            Err(_) => {}
        }
    }
}

impl SenderHalf for Owner {
    fn members(&self) -> &Guarded<Members> {
        &self.members
    }

    fn name(&self) -> &ChannelName {
        &self.name
    }

    fn joined(&self) -> usize {
        self.joined_with(&lock(&self.state))
    }

    fn invited(&self) -> usize {
        self.members.with(|members| members.invited()) as usize
    }

    fn invitation_left_ns(&self) -> u64 {
        if self.invited() == 0 {
            return NO_LIMIT_NS;
        }
        let left = |until: &Instant| until.saturating_duration_since(Instant::now()).as_nanos();
        let left_ns = self.invited_until.get().map(left);
        left_ns.map_or(NO_LIMIT_NS, |left_ns| u64::try_from(left_ns).unwrap_or(NO_LIMIT_NS))
    }

    fn cancel_invitations(&self) {
        let mut state = lock(&self.state);
        let waiters: Vec<_> = state.invitations.keys().copied().collect();
        for waiter in waiters {
            self.remove_invitation(&mut state, waiter);
        }
    }

    fn drop_rejected(&self) {
        if self.members.with(|members| members.has_violators() || members.has_evicted())
            && self.is_dropping.fetch_or(1, Relaxed) == 0
        {
            let this = self.this.clone();
            self.hub().run_soon(move || {
                let Some(owner) = this.upgrade() else { return };
                owner.is_dropping.store(0, Relaxed);
                for row in owner.members.with(|members| members.take_evicted()) {
                    owner.drop_link(row, ControlCounter::Evictions);
                }
                for row in owner.members.with(|members| members.take_violators()) {
                    owner.drop_link(row, ControlCounter::Violations);
                }
            });
        }
    }

    fn notifier(&self) -> Box<dyn Fn(u32) + Send + Sync> {
        let this = Weak::clone(&self.this);
        Box::new(move |notices| {
            if let Some(owner) = this.upgrade() {
                owner.notify(notices);
            }
        })
    }

    fn close(&self) {
        self.domain.remove(Kind::Channel, &self.name, self);
        let mut state = lock(&self.state);
        state.is_closed = true;
        if let Some(claim) = state.claim.take() {
            claim.release(&self.domain.directory);
        }
        for (_, link) in std::mem::take(&mut state.links) {
            self.unwatch(&mut state, &link.socket, &link.life, link.tokens);
        }
        for (_, invitation) in std::mem::take(&mut state.invitations) {
            self.hub().forget(&invitation.socket, invitation.token);
        }
        self.drop_followers(&mut state);
        self.domain.end();
    }
}

impl Handler for Owner {
    fn on_event(&self, token: Token, hung_up: bool) {
        let watched = lock(&self.state).watched.get(&token).copied();
        match watched {
            Some(Watched::LinkSocket(row)) => self.on_link(row, hung_up, HungUp::counter),
            Some(Watched::LinkLife(row)) => {
                // Perhaps it has left before its process has ended.
                self.on_link(row, false, |_| ControlCounter::Deaths);
                if lock(&self.state).links.contains_key(&row) {
                    self.drop_link(row, ControlCounter::Deaths);
                }
            }
            Some(Watched::FollowerSocket(number)) => self.drop_follower(number, HungUp::counter),
            Some(Watched::FollowerLife(number)) => {
                self.drop_follower(number, |_| ControlCounter::Deaths);
            }
            Some(Watched::Invitation(waiter)) => {
                self.remove_invitation(&mut lock(&self.state), waiter);
                self.shared.nudge(&self.linux);
            }
            None => {}
        }
    }
}

impl InChild for Owner {
    fn forked(&self) {
        self.shared.mark_forked();
    }
}
