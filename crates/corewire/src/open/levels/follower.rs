//! A receiver that gets its messages from its group's relay. It joins the relay's channel, or creates the relay if
//! there is none. It does so again when the relay ends.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use corewire_layout::frame::{Place, Reason, Start};
use corewire_layout::name::ChannelName;
use corewire_layout::segment::TypeTag;
use corewire_layout::slot::stamp_of;
use corewire_os::OsError;
use corewire_os::event::{Bell, wait_readable};
use corewire_os::memory::SegmentError;
use corewire_os::process;
use corewire_os::sleep::Linux;
use corewire_ring::broadcast::{ReceiverShared, Violation};
use corewire_ring::doorbell::notice;

use super::is_relay_of;
use super::relay::Relay;
use super::sender_link::SenderLink;
use crate::control::asking::{self, ANSWER_TIMEOUT, Row, Wishes};
use crate::control::attach::{self, Answer, Attachment};
use crate::control::domain::DomainHandle;
use crate::error::{JoinError, ReceiveError};
use crate::guard::lock;
use crate::halves::ReceiverHalf;
use crate::host::ReceiverRing;
use crate::open::join::{Joiner, grant};
use crate::open::waiting::Note;
use crate::path::receive::{Reading, Receiver};
use crate::tell::tell;
use crate::wait::{Patience, Readiness};

/// How often a follower checks whether a relay exists or must be created. A new relay also rings the follower at once.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// Maximum time of one wait for the next relay.
const WAIT_AT_A_TIME: Duration = Duration::from_millis(100);
/// Maximum time for which calls may fail before the receiver gets an error.
const TROUBLE_MAX: Duration = Duration::from_secs(10);

/// The control half of a receiver of a group.
pub(crate) struct Follower {
    domain: DomainHandle,
    name: ChannelName,
    local: ChannelName,
    group: u32,
    /// The incarnation of the sender's channel.
    channel: u128,
    wishes: Wishes,
    /// The note that this follower waits for a relay. It stays while the follower lives, so every new relay waits for
    /// the follower.
    note: Mutex<Option<Note>>,
    state: Mutex<State>,
    changed: Condvar,
    readiness: OnceLock<Arc<Bell>>,
    /// The type of the channel's messages, once it has joined.
    type_tag: OnceLock<TypeTag>,
}

#[derive(Default)]
struct State {
    /// The part of the current ring that the control thread uses.
    shared: Option<Arc<ReceiverShared>>,
    /// The link to the relay of the current ring. `None` for the ring of a sender that is gone.
    current: Option<Arc<Attachment>>,
    /// The rings to read after the current one, in order.
    nexts: VecDeque<Next>,
    /// The link to the last of these relays, and the first message expected through it. The follower watches this link
    /// for its end.
    newest: Option<(Arc<Attachment>, u64)>,
    /// The relay, if it runs in this process.
    relay: Option<Relay>,
    sender: Option<Arc<SenderLink>>,
    /// The error after which there is no next ring.
    failure: Option<ReceiveError>,
    is_following: bool,
    is_over: bool,
}

struct Next {
    ring: ReceiverRing,
    attachment: Option<Arc<Attachment>>,
}

/// Joins the channel of this incarnation as a follower in `group`.
pub(crate) fn join<A: Reading>(
    joiner: Joiner,
    group: u32,
    channel: u128,
) -> Result<Receiver<[u8], A>, JoinError> {
    let Joiner { domain, name, wishes } = joiner;
    let local = name.relayed(group);
    let note = Note::leave(&domain, &local)?;
    let follower = Arc::new(Follower {
        domain,
        name,
        local,
        group,
        channel,
        wishes,
        note: Mutex::new(Some(note)),
        state: Mutex::default(),
        changed: Condvar::new(),
        readiness: OnceLock::new(),
        type_tag: OnceLock::new(),
    });
    follower.begin().inspect_err(|_| follower.leave())
}

impl Follower {
    /// Joins the relay's channel for the first time.
    fn begin<A: Reading>(self: &Arc<Self>) -> Result<Receiver<[u8], A>, JoinError> {
        let longest = Instant::now() + ANSWER_TIMEOUT;
        let (deadline, after) = match self.wishes.patience {
            Patience::Until(at, after) if at < longest => (at, after),
            _ => (longest, ANSWER_TIMEOUT),
        };
        loop {
            if let Some(linked) = self.find_relay(self.wishes, A::IS_IN_PLACE)? {
                let Row { ring, attachment, trusted, header } = linked;
                let access = grant(&ring, trusted, &*attachment, header.policy)?;
                let Self { domain, name, group, wishes, .. } = &**self;
                let registered =
                    SenderLink::register(domain, name, *group, header.incarnation, *wishes);
                let (sender, kept) = registered.inspect_err(|_| attachment.leave())?;
                // If this is still the relay, the sender now keeps the messages that it has not forwarded.
                if kept == header.incarnation && sender.incarnation() == self.channel {
                    let mut state = lock(&self.state);
                    state.sender = Some(sender);
                    state.shared = Some(Arc::clone(ring.shared()));
                    state.current = Some(Arc::clone(&attachment));
                    state.newest = Some((Arc::clone(&attachment), ring.next()));
                    drop(state);
                    let _ = self.type_tag.set(header.type_tag);
                    self.watch(&attachment);
                    let joiner = Arc::new(Joiner::new(domain, name, *wishes));
                    return Ok(Receiver::new(ring, self.clone(), access, wishes.wait, joiner));
                }
                attachment.leave();
                sender.leave();
                if sender.incarnation() != self.channel {
                    return Err(JoinError::NotFound(self.name.clone()));
                }
            }
            if Instant::now() >= deadline {
                return Err(JoinError::NoAnswer { name: self.local.clone(), after, pid: 0 });
            }
            self.wait_for_relay()?;
        }
    }

    /// Waits until a relay has been created, or until it is time to check again.
    fn wait_for_relay(&self) -> Result<(), JoinError> {
        let bell = lock(&self.note).as_ref().map(|note| Arc::clone(note.bell()));
        let bell = bell.ok_or_else(|| JoinError::NotFound(self.name.clone()))?;
        wait_readable(&[bell.as_fd()], Some(Instant::now() + LOOK_AGAIN_AFTER))?;
        bell.silence();
        Ok(())
    }

    /// Joins the relay's channel. Creates the relay first if there is none. `None` while another process is creating
    /// it, or while the former relay is ending.
    fn find_relay(
        self: &Arc<Self>,
        wishes: Wishes,
        is_in_place: bool,
    ) -> Result<Option<Row<Attachment>>, JoinError> {
        let Some(waiter) = lock(&self.note).as_ref().map(Note::id) else {
            return Err(JoinError::NotFound(self.name.clone()));
        };
        // Invitations of former relays, or of the current one.
        let invited = self.domain.invitations(waiter);
        self.create_relay(wishes)?;
        let wishes = Wishes { waiter, ..wishes };
        match attach::attach(&self.domain, &self.local, Place::Ring, wishes, is_in_place) {
            Ok(Answer::Linked(linked)) if is_relay_of(linked.header.incarnation, self.channel) => {
                self.domain.forget_invitations(waiter, invited);
                Ok(Some(linked))
            }
            // A channel that held this name before, or holds it now.
            Ok(Answer::Linked(linked)) => {
                linked.attachment.leave();
                Ok(None)
            }
            Ok(_) => Err(asking::protocol(&self.local, "as if it were not a relay".into())),
            Err(JoinError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the relay if no process has.
    fn create_relay(&self, wishes: Wishes) -> Result<(), JoinError> {
        if lock(&self.state).is_over {
            return Ok(());
        }
        let Some(claim) = self.domain.directory.try_claim(&self.local)? else { return Ok(()) };
        let relay =
            Relay::start(&self.domain, &self.name, self.group, self.channel, claim, wishes)?;
        let mut state = lock(&self.state);
        let unwanted = if state.is_over { Some(relay) } else { state.relay.replace(relay) };
        drop(state);
        drop(unwanted);
        Ok(())
    }

    /// Watches a relay for its end.
    fn watch(self: &Arc<Self>, attachment: &Arc<Attachment>) {
        let (this, gone) = (Arc::downgrade(self), Arc::downgrade(attachment));
        attachment.when_gone(move || {
            if let (Some(follower), Some(gone)) = (this.upgrade(), gone.upgrade()) {
                follower.start_change(gone);
            }
        });
    }

    /// Finds the next relay after the newest one has gone. Uses a thread of its own, because the receiver's thread may
    /// still be reading the dead relay's ring, and the other followers wait for this one.
    fn start_change(self: Arc<Self>, gone: Arc<Attachment>) {
        let mut state = lock(&self.state);
        let newest = state.newest.as_ref().filter(|(newest, _)| Arc::ptr_eq(newest, &gone));
        let Some(&(_, start)) = newest else { return };
        if state.is_over || std::mem::replace(&mut state.is_following, true) {
            return;
        }
        drop(state);
        tell!(info, "a relay is gone", channel = self.name, group = self.group);
        // The relay may have ended before it forwarded messages that this follower got from former relays.
        let from = gone.head().max(start);
        let follower = Arc::clone(&self);
        let following =
            std::thread::Builder::new().name("corewire-follow".into()).spawn(move || {
                process::block_all_signals();
                let next = follower.find_next(from);
                follower.add_next(next);
            });
        if let Err(error) = following {
            let errno = error.raw_os_error().unwrap_or_default();
            let error = OsError { what: "start a thread".into(), errno };
            self.add_next(Err(ReceiveError::Relay(Box::new(error.into()))));
        }
    }

    /// Finds the ring in which the receiver continues with message `from`.
    fn find_next(self: &Arc<Self>, from: u64) -> Result<Next, ReceiveError> {
        let failed = |error: JoinError| ReceiveError::Relay(Box::new(error));
        let wishes = Wishes { start: Start::At(from), patience: Patience::Forever, ..self.wishes };
        let mut trouble_since = None;
        loop {
            let (sender, violation) = {
                let state = lock(&self.state);
                let relay = state.relay.as_ref();
                (state.sender.clone(), relay.and_then(Relay::violation))
            };
            let not_found = || failed(JoinError::NotFound(self.name.clone()));
            let sender = sender.ok_or_else(not_found)?;
            // A dead relay's memory is not trusted either: no relay is ahead of its sender.
            if let Some(last) = from.checked_sub(1).filter(|&last| !sender.has_sent(last)) {
                return Err(
                    Violation { word: "stamp", found: stamp_of(last), sequence: last }.into()
                );
            }
            if sender.is_over() {
                return Ok(Next { ring: sender.rest(from, self.wishes), attachment: None });
            }
            if let Some(violation) = violation {
                return Err(violation.into());
            }
            match self.find_relay(wishes, false) {
                Ok(Some(Row { ring, attachment, .. })) if ring.next() == from => {
                    return Ok(Next { ring, attachment: Some(attachment) });
                }
                Ok(Some(Row { ring, attachment, .. })) => {
                    attachment.leave();
                    let found = format!("from message {} instead of {from}", ring.next());
                    return Err(failed(asking::protocol(&self.local, found)));
                }
                // The relay may be stopped, which is not death, or there may be no next relay yet.
                Ok(None) | Err(JoinError::NoAnswer { .. } | JoinError::NotFound(_)) => {
                    trouble_since = None;
                }
                Err(error) => {
                    let since = *trouble_since.get_or_insert_with(Instant::now);
                    if !is_temporary(&error) || since.elapsed() > TROUBLE_MAX {
                        return Err(failed(error));
                    }
                }
            }
            self.wait_for_relay().map_err(failed)?;
        }
    }

    /// Leaves the group. Keeps the row in the current relay's ring if `keeps_row`. A relay of this process ends even
    /// then: its ring stays readable.
    fn end(&self, keeps_row: bool) {
        if self.domain.is_forked() {
            return;
        }
        // First, so that no relay waits for this follower.
        drop(lock(&self.note).take());
        let mut state = lock(&self.state);
        state.is_over = true;
        state.newest = None;
        let (current, nexts) = (state.current.take(), std::mem::take(&mut state.nexts));
        let (relay, sender) = (state.relay.take(), state.sender.take());
        drop(state);
        self.changed.notify_all();
        let current = current.filter(|_| !keeps_row);
        for attachment in
            current.into_iter().chain(nexts.into_iter().filter_map(|it| it.attachment))
        {
            attachment.leave();
        }
        drop(relay);
        // Last, because the sender keeps unforwarded messages while this link exists.
        if let Some(sender) = sender {
            sender.leave();
        }
    }

    fn add_next(self: &Arc<Self>, next: Result<Next, ReceiveError>) {
        if !matches!(next, Ok(Next { attachment: Some(_), .. })) {
            // No relay must wait for a follower that does not join.
            drop(lock(&self.note).take());
        }
        let mut state = lock(&self.state);
        state.is_following = false;
        if state.is_over {
            drop(state);
            if let Ok(Next { attachment: Some(attachment), .. }) = next {
                attachment.leave();
            }
            return;
        }
        let mut given_up = None;
        let mut watched = None;
        match next {
            Ok(next) => {
                watched = next.attachment.clone();
                state.newest = watched.clone().map(|attachment| (attachment, next.ring.next()));
                state.nexts.push_back(next);
            }
            Err(error) => {
                state.newest = None;
                state.failure = Some(error);
                // The sender need not keep messages for this follower.
                given_up = state.sender.take();
            }
        }
        drop(state);
        if let Some(sender) = given_up {
            sender.leave();
        }
        if let Some(attachment) = watched {
            if let Some(bell) = self.readiness.get() {
                attachment.use_bell(bell);
            }
            self.watch(&attachment);
        }
        self.changed.notify_all();
        if let Some(bell) = self.readiness.get() {
            bell.ring();
        }
    }
}

/// True if a further attempt may succeed: a resource was lacking, or the rows of a process that has just died are not
/// free yet.
fn is_temporary(error: &JoinError) -> bool {
    match error {
        JoinError::Os(_) | JoinError::Segment { error: SegmentError::Os(_), .. } => true,
        JoinError::Refused { reason, .. } => {
            matches!(reason, Reason::Resources { .. } | Reason::Full { .. })
        }
        JoinError::Relay { .. } => true,
        _ => false,
    }
}

impl ReceiverHalf for Follower {
    fn name(&self) -> &ChannelName {
        &self.name
    }

    fn incarnation(&self) -> u128 {
        self.channel
    }

    fn type_tag(&self) -> TypeTag {
        self.type_tag.get().copied().unwrap_or_default()
    }

    fn notify(&self, notice: u32) {
        // A forked child lacks the thread that may hold this lock.
        if self.domain.is_forked() {
            return;
        }
        let state = lock(&self.state);
        if let Some(shared) = &state.shared {
            shared.notify(notice, &Linux::get());
        }
        drop(state);
        self.changed.notify_all();
        if let Some(bell) = self.readiness.get() {
            bell.ring();
        }
    }

    fn leave(&self) {
        self.end(false);
    }

    fn leave_except_row(&self) {
        self.end(true);
    }

    fn change_over(&self, ring: &mut ReceiverRing, limit_ns: u64) -> Result<bool, ReceiveError> {
        // The ring that has ended is the sender's own: there is no other.
        let has_no_next = |state: &State| state.current.is_none() && state.nexts.is_empty();
        if has_no_next(&lock(&self.state)) {
            let failure = lock(&self.state).failure.clone();
            return Err(failure.unwrap_or(ReceiveError::SenderDied));
        }
        let limit = Duration::from_nanos(limit_ns).min(WAIT_AT_A_TIME);
        let waits = |state: &mut State| {
            let is_interrupted = ring.shared().notices() & notice::INTERRUPTED != 0;
            let is_over = state.is_over || state.failure.is_some();
            state.nexts.is_empty() && !is_over && !is_interrupted
        };
        let (mut state, _) = self
            .changed
            .wait_timeout_while(lock(&self.state), limit, waits)
            .unwrap_or_else(PoisonError::into_inner);
        let Some(Next { ring: next, attachment }) = state.nexts.pop_front() else {
            return state.failure.clone().map_or(Ok(false), Err);
        };
        let former = std::mem::replace(ring, next);
        // Under the lock, so that an interrupt reaches exactly one of the two rings.
        let pending = former.shared().notices() & notice::INTERRUPTED;
        if pending != 0 {
            ring.shared().notify(pending, &Linux::get());
        }
        state.shared = Some(Arc::clone(ring.shared()));
        let gone = std::mem::replace(&mut state.current, attachment);
        drop(state);
        if let Some(gone) = gone {
            gone.leave();
        }
        Ok(true)
    }

    fn is_between(&self, ring: &ReceiverRing) -> bool {
        let state = lock(&self.state);
        ring.shared().notices() == notice::PEER_GONE
            && !ring.is_ready()
            && state.current.is_some()
            && state.nexts.is_empty()
            && state.failure.is_none()
    }

    fn readiness(&self) -> Result<Readiness, JoinError> {
        if self.domain.is_forked() {
            return Err(JoinError::Forked);
        }
        let bell = match self.readiness.get() {
            Some(bell) => bell,
            None => {
                let bell = Arc::new(Bell::new()?);
                self.readiness.get_or_init(|| bell)
            }
        };
        let current = lock(&self.state).current.clone();
        match current {
            Some(current) => {
                current.use_bell(bell);
                current.readiness()?;
            }
            // There is no next relay to wait for.
            None => bell.ring(),
        }
        Ok(Readiness::of(bell))
    }
}
