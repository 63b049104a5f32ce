//! A receiver that gets its messages from its group's relay: it joins the relay's channel, or makes the
//! relay if there is none, and does so again when the relay goes.

use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use corewire_layout::frame::{Frame, Place, Start, Welcome};
use corewire_layout::name::ChannelName;
use corewire_layout::segment::{FenceMode, Policy, RECEIVER_SEGMENT_BYTES};
use corewire_os::OsError;
use corewire_os::directory::ClaimError;
use corewire_os::event::Bell;
use corewire_os::fork::Descriptor;
use corewire_os::process;
use corewire_os::socket::Socket;
use corewire_ring::broadcast::{ReceiverParts, ReceiverShared, notice};
use corewire_ring::region::Region;
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};

use super::relay::Relay;
use crate::control::attach::{
    self, Answer, Attached, Attachment, Linked, Note, Relayed, Wishes, open_sender,
};
use crate::control::domain::DomainInner;
use crate::control::hub::{Handler, Token, lock};
use crate::error::{JoinError, ReceiveError};
use crate::path::receive::{Reading, Receiver, ReceiverControl, ReceiverKernel, Ring};
use crate::wait::{Patience, Readiness, cap_ns};

/// How often one looks whether there is a relay by now, or somebody is to make one.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// How long a call waits at a time for the next relay.
const WAIT_AT_A_TIME: Duration = Duration::from_millis(100);

/// What stands behind a receiver of a group.
pub(crate) struct Follower {
    this: Weak<Self>,
    domain: Arc<DomainInner>,
    name: ChannelName,
    local: ChannelName,
    group: u32,
    wishes: Wishes,
    /// That it waits for a relay: it does all the time, and so none begins without it.
    note: Mutex<Option<Note>>,
    state: Mutex<State>,
    changed: Condvar,
    readiness: OnceLock<Arc<Bell>>,
}

#[derive(Default)]
struct State {
    /// The link to the relay whose ring is read.
    current: Option<Arc<Attachment>>,
    /// What to go on with when that ring has been read to its end.
    next: Option<Result<Next, JoinError>>,
    /// The relay, if it is in this process.
    relay: Option<Relay>,
    /// The link to the sender.
    standing: Option<Arc<Standing>>,
    is_following: bool,
    is_over: bool,
}

struct Next {
    ring: Ring,
    /// None to a sender that is gone.
    attachment: Option<Arc<Attachment>>,
}

/// Joins as one of `group`.
pub(crate) fn join<A: Reading>(
    domain: &Arc<DomainInner>,
    name: &ChannelName,
    group: u32,
    wishes: Wishes,
) -> Result<Receiver<A>, JoinError> {
    let local = name.relayed(group);
    let note = Note::leave(domain, &local)?;
    let follower = Arc::new_cyclic(|this| Follower {
        this: Weak::clone(this),
        domain: Arc::clone(domain),
        name: name.clone(),
        local,
        group,
        wishes,
        note: Mutex::new(Some(note)),
        state: Mutex::default(),
        changed: Condvar::new(),
        readiness: OnceLock::new(),
    });
    follower.begin().inspect_err(|_| follower.leave())
}

impl Follower {
    /// Takes its place for the first time.
    fn begin<A: Reading>(&self) -> Result<Receiver<A>, JoinError> {
        loop {
            let Linked { ring, attachment, access, header } = self.find(self.wishes.start)?;
            let (standing, kept) = Standing::take(self)?;
            // From here on the sender keeps what this relay has not sent on, if it still is the relay.
            if kept != header.incarnation {
                attachment.leave();
                standing.leave();
                continue;
            }
            let mut state = lock(&self.state);
            state.standing = Some(standing);
            state.current = Some(Arc::clone(&attachment));
            drop(state);
            self.watch(&attachment);
            let this: Arc<dyn Attached> = self.this()?;
            return Ok(Receiver::new(ring, this, access));
        }
    }

    fn this(&self) -> Result<Arc<Self>, JoinError> {
        // Whoever calls has one.
        self.this.upgrade().ok_or(JoinError::Forked)
    }

    /// Has the end of a relay looked to.
    fn watch(&self, attachment: &Arc<Attachment>) {
        let this = Weak::clone(&self.this);
        attachment.when_gone(move || {
            if let Some(follower) = this.upgrade() {
                follower.go_on();
            }
        });
    }

    /// The relay's channel, joined; made before if there is none.
    fn find<A: Reading>(&self, start: Start) -> Result<Linked<A>, JoinError> {
        let (waiter, bell) = match &*lock(&self.note) {
            Some(note) => (note.id(), Arc::clone(note.bell())),
            None => return Err(JoinError::NotFound(self.name.clone())),
        };
        let watch = self.domain.directory.watch()?;
        loop {
            self.lead(start)?;
            let wishes = Wishes { start, waiter, ..self.wishes };
            let control = ReceiverControl::of_group(wishes.wait, self.this()?);
            match attach::attach(&self.domain, &self.local, Place::Ring, wishes, control) {
                Ok(Answer::Linked(linked)) => {
                    self.domain.forget_invitations(waiter);
                    return Ok(linked);
                }
                Ok(_) => {
                    return Err(attach::protocol(&self.local, "as if it were no relay".into()));
                }
                // Whoever has the name is just making it, or is just going.
                Err(JoinError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
            if self.is_over() || self.sender_is_gone() {
                return Err(JoinError::NotFound(self.name.clone()));
            }
            if let Patience::Until(at, after) = self.wishes.patience
                && lock(&self.state).current.is_none()
                && Instant::now() >= at
            {
                return Err(JoinError::NoAnswer { name: self.local.clone(), after });
            }
            watch.wait(bell.as_fd(), Some(Instant::now() + LOOK_AGAIN_AFTER))?;
            bell.silence();
        }
    }

    /// Makes the relay, if nobody has.
    fn lead(&self, start: Start) -> Result<(), JoinError> {
        let claim = match self.domain.directory.claim(&self.local) {
            Ok(claim) => claim,
            Err(ClaimError::AlreadyExists(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let wishes = Wishes { start, ..self.wishes };
        let relay = Relay::start(&self.domain, &self.name, self.group, claim, wishes)?;
        let former = lock(&self.state).relay.replace(relay);
        if let Some(former) = former {
            former.stop();
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    fn sender_is_gone(&self) -> bool {
        lock(&self.state).standing.as_ref().is_some_and(|standing| standing.is_gone())
    }

    /// The relay is gone: finds the next one, on a thread of its own, since the receiver's may be busy with
    /// what the dead one has left, and the others wait for this one.
    fn go_on(&self) {
        let mut state = lock(&self.state);
        if state.is_over || std::mem::replace(&mut state.is_following, true) {
            return;
        }
        drop(state);
        let this = Weak::clone(&self.this);
        let following =
            std::thread::Builder::new().name("corewire-follow".into()).spawn(move || {
                process::block_all_signals();
                if let Some(follower) = this.upgrade() {
                    let next = follower.find_next();
                    follower.have(next);
                }
            });
        if let Err(error) = following {
            let errno = error.raw_os_error().unwrap_or_default();
            self.have(Err(OsError { what: "start a thread".into(), errno }.into()));
        }
    }

    /// Where the receiver will go on.
    fn find_next(&self) -> Result<Next, JoinError> {
        let (current, standing) = {
            let state = lock(&self.state);
            (state.current.clone(), state.standing.clone())
        };
        let (Some(current), Some(standing)) = (current, standing) else {
            return Err(JoinError::NotFound(self.name.clone()));
        };
        let from = current.head();
        while !standing.is_over() {
            match self.find::<crate::path::receive::Copying>(Start::At(from)) {
                Ok(Linked { ring, attachment, .. }) if ring.next() == from => {
                    return Ok(Next { ring, attachment: Some(attachment) });
                }
                Ok(Linked { ring, attachment, .. }) => {
                    attachment.leave();
                    let found = format!("from message {} instead of {from}", ring.next());
                    return Err(attach::protocol(&self.local, found));
                }
                // There is no sender any more.
                Err(JoinError::NotFound(_)) => break,
                // A process that is stopped is not dead.
                Err(JoinError::NoAnswer { .. }) => {}
                Err(_) if standing.is_over() => {}
                Err(error) => return Err(error),
            }
        }
        let ring = standing.rest(&self.name, from, self.wishes)?;
        Ok(Next { ring, attachment: None })
    }

    fn have(&self, next: Result<Next, JoinError>) {
        let mut state = lock(&self.state);
        if next.is_err() {
            // Nobody is to wait for one who cannot come.
            drop(lock(&self.note).take());
        }
        if state.is_over {
            drop(state);
            if let Ok(Next { attachment: Some(attachment), .. }) = next {
                attachment.leave();
            }
            return;
        }
        if let Ok(Next { attachment: Some(attachment), .. }) = &next
            && let Some(bell) = self.readiness.get()
        {
            attachment.use_bell(bell);
        }
        state.next = Some(next);
        drop(state);
        self.changed.notify_all();
        if let Some(bell) = self.readiness.get() {
            bell.ring();
        }
    }

    /// Goes on in the next ring, when `ring` has been read to its end. Waits for it, but not long.
    pub(crate) fn change_over(&self, ring: &mut Ring, limit_ns: u64) -> Result<(), ReceiveError> {
        let limit = Duration::from_nanos(limit_ns).min(WAIT_AT_A_TIME);
        let waits = |state: &mut State| {
            let is_interrupted = ring.shared().notices() & notice::INTERRUPTED != 0;
            state.next.is_none() && !state.is_over && !is_interrupted
        };
        let (mut state, _) = self
            .changed
            .wait_timeout_while(lock(&self.state), limit, waits)
            .unwrap_or_else(PoisonError::into_inner);
        let Some(next) = state.next.take() else { return Ok(()) };
        let Next { ring: next, attachment } =
            next.map_err(|error| ReceiveError::Relay(Box::new(error)))?;
        let former = std::mem::replace(ring, next);
        let pending = former.shared().notices() & notice::INTERRUPTED;
        if pending != 0 {
            ring.shared().notify(pending, &corewire_os::sleep::Linux::get());
        }
        let gone = std::mem::replace(&mut state.current, attachment.clone());
        state.is_following = false;
        drop(state);
        if let Some(gone) = gone {
            gone.leave();
        }
        if let Some(attachment) = attachment {
            self.watch(&attachment);
        }
        Ok(())
    }

    /// Is there nothing to be received before the next relay is found?
    pub(crate) fn is_between(&self, ring: &Ring) -> bool {
        let is_gone = ring.shared().notices() & notice::PEER_GONE != 0;
        is_gone && !ring.is_ready() && lock(&self.state).next.is_none()
    }
}

impl Attached for Follower {
    fn name(&self) -> &ChannelName {
        &self.name
    }

    fn notify(&self, notice: u32) {
        let current = lock(&self.state).current.clone();
        if let Some(current) = current {
            current.notify(notice);
        }
        self.changed.notify_all();
    }

    fn leave(&self) {
        // First of all: no relay is to wait for this one.
        drop(lock(&self.note).take());
        let mut state = lock(&self.state);
        state.is_over = true;
        let (current, next) = (state.current.take(), state.next.take());
        let (relay, standing) = (state.relay.take(), state.standing.take());
        drop(state);
        self.changed.notify_all();
        if let Some(current) = current {
            current.leave();
        }
        if let Some(Ok(Next { attachment: Some(attachment), .. })) = next {
            attachment.leave();
        }
        if let Some(relay) = relay {
            relay.stop();
        }
        // Last of all: while it stands there, the sender keeps what the relay has not sent on.
        if let Some(standing) = standing {
            standing.leave();
        }
    }

    fn readiness(&self) -> Result<Readiness, JoinError> {
        let bell = match self.readiness.get() {
            Some(bell) => bell,
            None => {
                let bell = Arc::new(Bell::new()?);
                self.readiness.get_or_init(|| bell)
            }
        };
        let current = lock(&self.state).current.clone();
        if let Some(current) = current {
            current.use_bell(bell);
            current.readiness()?;
        } else {
            // There is nobody to wait for.
            bell.ring();
        }
        Ok(Readiness(Arc::clone(bell)))
    }
}

/// A follower's link to the sender: whose life it sees, and who keeps messages while it is there.
struct Standing {
    domain: Arc<DomainInner>,
    socket: Socket,
    life: Descriptor,
    tokens: OnceLock<[Token; 2]>,
    is_gone: AtomicU32,
    memory: Region,
    header: corewire_layout::segment::SenderHeader,
}

impl Standing {
    /// Has the sender count `follower` in. Returns the incarnation of the relay's channel whose place in the
    /// ring is kept from here on, too.
    fn take(follower: &Follower) -> Result<(Arc<Self>, u128), JoinError> {
        let Follower { domain, name, group, wishes, .. } = follower;
        let control = ReceiverControl::new(wishes.wait);
        let place = Place::Follower(*group);
        let answer =
            attach::attach::<crate::path::receive::Copying>(domain, name, place, *wishes, control)?;
        let Answer::Relayed(Relayed { socket, relay, segment, life }) = answer else {
            return Err(attach::protocol(name, "as if it had one level".into()));
        };
        let (memory, header) = open_sender(name, segment)?;
        let life = socket.peer_life(Some(life))?;
        let standing = Arc::new(Self {
            domain: Arc::clone(domain),
            socket,
            life,
            tokens: OnceLock::new(),
            is_gone: AtomicU32::new(0),
            memory,
            header,
        });
        standing.watch()?;
        Ok((standing, relay))
    }

    fn watch(self: &Arc<Self>) -> Result<(), OsError> {
        let handler: Weak<dyn Handler> = Arc::downgrade(self) as Weak<dyn Handler>;
        let hub = self.domain.hub();
        let socket = hub.watch(&self.socket, Weak::clone(&handler))?;
        let life = hub.watch(&self.life, handler).inspect_err(|_| {
            hub.forget(&self.socket, socket);
        })?;
        let _ = self.tokens.set([socket, life]);
        Ok(())
    }

    fn unwatch(&self) {
        if let Some([socket, life]) = self.tokens.get() {
            self.domain.hub().forget(&self.socket, *socket);
            self.domain.hub().forget(&self.life, *life);
        }
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed) != 0
    }

    /// Is the sender gone, or has it closed the channel?
    fn is_over(&self) -> bool {
        use corewire_ring::broadcast::SenderWords;
        self.is_gone() || SenderWords::new(self.memory.clone()).closed().load(Relaxed) != 0
    }

    /// The sender's own ring from message `from` on, when nobody sends there any more.
    fn rest(&self, name: &ChannelName, from: u64, wishes: Wishes) -> Result<Ring, JoinError> {
        let own = Region::private(RECEIVER_SEGMENT_BYTES);
        let own =
            own.ok_or(OsError { what: format!("read the rest of {name}").into(), errno: 12 })?;
        let shared = Arc::new(ReceiverShared::default());
        shared.notify(notice::PEER_GONE, &corewire_os::sleep::Linux::get());
        let parts = ReceiverParts {
            sender: self.memory.clone(),
            geometry: self.header.geometry,
            fence_mode: FenceMode::Fenced,
            policy: Policy::Block,
            own,
            hint: None,
            welcome: Welcome {
                row: 0,
                start: from,
                epoch: 0,
                incarnation: self.header.incarnation,
                hint: false,
                table: false,
                settled: 0,
                generation: 0,
            },
            shared,
            many: None,
        };
        let mut ring = Ring::new(parts, ReceiverKernel::new(ReceiverControl::new(wishes.wait)));
        ring.set_sleep_cap(cap_ns(wishes.sleep_cap));
        ring.look_on();
        Ok(ring)
    }

    fn leave(&self) {
        self.unwatch();
        // If it does not get through, the hang-up says as much.
        let _ = self.socket.send(&Frame::Leave, &[]);
    }
}

impl Handler for Standing {
    fn on_event(&self, _token: Token, _hung_up: bool) {
        // The sender has nothing to say here: it has gone.
        self.is_gone.store(1, Relaxed);
        self.unwatch();
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.unwatch();
    }
}
