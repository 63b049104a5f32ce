//! All circuits of a program's clients: one link to a monitor, shared by all threads.
//!
//! A thread that waits for a message *leads*: it waits for the link, and puts what comes for other circuits into their
//! queues. Other threads that wait meanwhile *follow*: they sleep until something has come for them, or until the leader
//! has left and one of them must lead. A thread that only sends interrupts the leader, who lets it in.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use corewire::{Connection, Domain, Endpoint, Event, Interrupter, MessageError, Peer, Selector};
use corewire_layout::circuit::packet::{End, Origin, Packet, Setup};
use corewire_layout::circuit::{Hop, Label, NodeId, NodeSet, data_of_packet, lines_of};
use corewire_layout::trace::{Kind, Point};
use corewire_os::fork::{PerProcess, generation};
use corewire_ring::sync::AtomicU32;
use corewire_ring::sync::Ordering::{Acquire, Release};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

use super::attach::{Data, attach};
use super::capabilities;
use super::control::{Control, Load, NEWS_MAX, News, descriptors_max};
use super::ends::{Came, Ended, Ends, Head, Lane, Wrong};
use super::lane::{DATA_BYTES_MAX, LaneEnd, receive_frame, send_frame};
use super::ring::RingLane;
use super::trace;
use crate::capability::{Capabilities, Received};
use crate::error::{BindReason, CallError};
use crate::message::{Body, Message};
use crate::patience::Patience;
use crate::random::random_u64;
use crate::server::Acceptance;
use crate::socket::SocketError;
use crate::tag::{Tag, status};

/// Frames that one look takes.
const FRAMES_PER_LOOK: usize = 64;

/// Frames that a monitor which has ended may have left.
const LEFT_MAX: usize = 65_536;

/// The link of this process to a monitor.
pub(crate) struct Hub {
    state: Mutex<State>,
    /// How many threads want the state while another one has it.
    waiting: AtomicU32,
    interrupt: Interrupt,
    control: Arc<Control>,
    inbox: Arc<Inbox>,
    generation: u32,
}

/// What the control lane's thread has read.
#[derive(Default)]
struct Inbox {
    /// How many there are. Only a thread that holds the lock writes it.
    count: AtomicU32,
    unread: Mutex<Unread>,
    /// Some of it has been taken, or the hub has gone.
    taken: Condvar,
}

#[derive(Default)]
struct Unread {
    news: VecDeque<News>,
    load: Load,
    is_closed: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the program is far behind.
    fn put(&self, one: News) {
        let mut unread = self.lock();
        while !unread.load.has_room_for(&one) && !unread.is_closed {
            unread = self.taken.wait(unread).unwrap_or_else(PoisonError::into_inner);
        }
        if !unread.is_closed {
            unread.load.add(&one);
            unread.news.push_back(one);
            self.count.fetch_add(1, Release);
        }
    }

    /// Nothing more is taken.
    fn close(&self) {
        let mut unread = self.lock();
        unread.is_closed = true;
        let left = std::mem::take(&mut unread.news);
        drop(unread);
        self.taken.notify_all();
        drop(left);
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    /// One that is put at the same time may be missed: its thread interrupts the hub's endpoint behind it.
    #[inline]
    fn take(&self) -> Option<News> {
        if self.is_empty() {
            return None;
        }
        let mut unread = self.lock();
        let one = unread.news.pop_front()?;
        self.count.fetch_sub(1, Release);
        if unread.load.remove(&one) {
            self.taken.notify_all();
        }
        Some(one)
    }
}

enum Interrupt {
    Endpoint(Interrupter),
    Event(Arc<OwnedFd>),
}

impl Interrupt {
    fn interrupt(&self) {
        match self {
            Self::Endpoint(interrupter) => interrupter.interrupt(),
            Self::Event(event) => _ = rustix::io::write(event, &1_u64.to_le_bytes()),
        }
    }
}

struct State {
    ends: Ends,
    lane: DataLane,
    circuits: Locals,
    control: Arc<Control>,
    /// A thread waits for the link.
    is_led: bool,
    /// The circuits whose threads follow.
    followers: Vec<u32>,
    /// The circuits with a descriptor that a program waits for.
    bells: BTreeSet<u32>,
    lost: Option<String>,
    /// Descriptors of services of other users whose messages have not been taken.
    foreign_descriptors: usize,
    buffer: Box<[u8; DATA_BYTES_MAX + 1]>,
}

/// Wakes a thread that follows. It has a lock of its own: the leader keeps the state while it waits.
#[derive(Default)]
struct Signal {
    is_given: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn give(&self) {
        *self.is_given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Waits until it is given, for at most so long.
    fn wait(&self, left: Option<Duration>) {
        let is_given = self.is_given.lock().unwrap_or_else(PoisonError::into_inner);
        let left = left.unwrap_or(Duration::MAX);
        let _ = self.changed.wait_timeout_while(is_given, left, |is_given| !*is_given);
    }
}

/// What is known here of a circuit.
#[derive(Default)]
struct Local {
    queue: VecDeque<Arrived>,
    rights: VecDeque<Option<Vec<Received>>>,
    answer: Option<(Origin, Vec<u8>)>,
    /// The service's process may be of another user.
    is_foreign: bool,
    /// Wakes the thread that follows for it.
    follower: Option<Arc<Signal>>,
    bell: Option<Arc<OwnedFd>>,
    /// What the program waits for, and whether that has room on the data lane's socket in it.
    set: Option<(OwnedFd, bool)>,
}

impl Local {
    /// Descriptors whose messages have not been taken.
    fn descriptor_count(&self) -> usize {
        self.rights.iter().flatten().map(Vec::len).sum()
    }

    /// Whether so many descriptors more may wait: for one service of another user a quarter of what this process can open,
    /// for all of them, which have `foreign`, three quarters.
    fn has_room(&self, count: usize, foreign: usize) -> bool {
        let quarter = descriptors_max() / 4;
        !self.is_foreign
            || count == 0
            || self.descriptor_count() + count <= quarter && foreign + count <= 3 * quarter
    }

    /// Whether what its program waits for announces room on the data lane's socket.
    const fn watches_room(&self) -> bool {
        matches!(&self.set, Some((_, true)))
    }

    fn ring(&self) {
        if let Some(follower) = &self.follower {
            follower.give();
        }
        if let Some(bell) = &self.bell {
            let _ = rustix::io::write(bell, &1_u64.to_le_bytes());
        }
    }
}

enum DataLane {
    Ring {
        endpoint: Box<Endpoint>,
        ring: RingLane,
    },
    /// `is_over`: its end has been read, and that of the control lane is to come.
    Socket {
        socket: Connection,
        event: Arc<OwnedFd>,
        is_full: bool,
        is_over: bool,
    },
}

impl Lane for DataLane {
    #[inline]
    fn frame(&mut self, label: Label, hop: Hop, payload: &[u8]) -> bool {
        match self {
            Self::Ring { endpoint, ring } => ring.frame(endpoint, label, hop, payload),
            Self::Socket { socket, is_full, .. } => {
                *is_full = *is_full || send_frame(&*socket, label, hop, payload) == Ok(false);
                !*is_full
            }
        }
    }

    fn went(&mut self, went: Point, ordinal: u16, bytes: usize) {
        trace::sent(went, ordinal, bytes);
    }
}

/// A circuit that a service has accepted.
pub(crate) struct Opened {
    pub(crate) index: u32,
    /// The service.
    pub(crate) origin: Origin,
    /// What it has said.
    pub(crate) answer: Vec<u8>,
}

/// Why a circuit cannot be used.
pub(crate) enum HubError {
    /// It has ended, after so many messages had come.
    Ended(Ended, u64),
    Call(CallError),
}

impl From<CallError> for HubError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// Circuits by index.
#[derive(Default)]
struct Locals(Vec<Option<Local>>);

impl Locals {
    fn insert(&mut self, index: u32) {
        let index = index as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(Local { is_foreign: true, ..Local::default() });
    }

    #[inline]
    fn get(&self, index: u32) -> Option<&Local> {
        self.0.get(index as usize)?.as_ref()
    }

    #[inline]
    fn get_mut(&mut self, index: u32) -> Option<&mut Local> {
        self.0.get_mut(index as usize)?.as_mut()
    }

    fn remove(&mut self, index: u32) -> Option<Local> {
        let removed = self.0.get_mut(index as usize)?.take();
        while matches!(self.0.last(), Some(None)) {
            self.0.pop();
        }
        removed
    }

    fn iter(&self) -> impl Iterator<Item = &Local> {
        self.0.iter().flatten()
    }
}

/// A message that has come for a circuit, and waits for its receiver.
struct Arrived {
    message: Message,
    /// What it takes of the credit that was granted.
    lines: u32,
    /// How many capabilities it has; they come in the control lane.
    capabilities: u8,
}

/// What a look at the link has found.
enum Look {
    /// A message of a circuit, which is in no queue yet.
    Message(u32, Arrived),
    Something,
    Nothing,
    Interrupted,
}

/// What a first look for the next message of a circuit has found.
enum First {
    Message(Message),
    Nothing,
    /// Something else, or something else must be done first.
    Other,
}

/// The hub of a monitor, or the place where it will be: threads wait only for the monitor that they want.
#[derive(Default)]
struct Place {
    state: Mutex<PlaceState>,
    changed: Condvar,
}

#[derive(Default)]
struct PlaceState {
    hub: Weak<Hub>,
    is_attaching: bool,
}

type Places = Vec<(PathBuf, NodeId, Arc<Place>)>;

static PLACES: PerProcess<Mutex<Places>> = PerProcess::new();

impl Place {
    fn of(domain: &Domain, node: NodeId) -> Arc<Self> {
        let path = domain.runtime_directory();
        let mut places = PLACES.get().lock().unwrap_or_else(PoisonError::into_inner);
        let found = places.iter().find(|(at, number, _)| at == path && *number == node);
        if let Some((_, _, place)) = found {
            return Arc::clone(place);
        }
        // Those of monitors that nobody uses any more.
        places.retain(|(_, _, place)| Arc::strong_count(place) > 1 || place.is_used());
        let place = Arc::new(Self::default());
        places.push((path.to_owned(), node, Arc::clone(&place)));
        place
    }

    fn lock(&self) -> MutexGuard<'_, PlaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_used(&self) -> bool {
        self.lock().hub.strong_count() > 0
    }
}

impl Hub {
    /// The hub of this process for a monitor: there is one for all clients.
    pub(crate) fn of(
        domain: &Domain,
        node: NodeId,
        until: Patience,
    ) -> Result<Arc<Self>, BindReason> {
        let place = Place::of(domain, node);
        let mut state = place.lock();
        while state.is_attaching {
            let left = until.left()?.unwrap_or(Duration::MAX);
            let waited = place.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_usable = |hub: &Arc<Self>| hub.is_ours() && !hub.is_lost();
        if let Some(hub) = state.hub.upgrade().filter(is_usable) {
            return Ok(hub);
        }
        state.is_attaching = true;
        drop(state);
        let attached = Self::new(domain, node, until).map(Arc::new);
        let mut state = place.lock();
        state.is_attaching = false;
        state.hub = attached.as_ref().map_or_else(|_| Weak::new(), Arc::downgrade);
        place.changed.notify_all();
        attached
    }

    fn new(domain: &Domain, node: NodeId, until: Patience) -> Result<Self, BindReason> {
        let os = |errno: rustix::io::Errno| CallError::Os {
            what: "attach to the monitor",
            errno: errno.raw_os_error(),
        };
        let endpoint = match domain.is_guest() {
            true => None,
            false => {
                let name = format!("circuits.{:016x}", random_u64()?);
                Some(domain.endpoint(&name).peers(4).create()?)
            }
        };
        let connector = endpoint.as_ref().map(Endpoint::connector);
        let attached = attach(domain, node, connector.as_ref(), until)?;
        let mut control = attached.lane;
        let (lane, interrupt) = match (attached.data, endpoint) {
            (Data::Ring { endpoint: name, secret }, Some(mut endpoint)) => {
                let ring = RingLane::to(&mut endpoint, &name);
                let mut ring = ring.ok_or(BindReason::Closed)?;
                ring.say_hello(&mut endpoint, secret);
                let interrupt = Interrupt::Endpoint(endpoint.interrupter());
                (DataLane::Ring { endpoint: Box::new(endpoint), ring }, interrupt)
            }
            (Data::Socket(socket), _) => {
                let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
                let event = Arc::new(event.map_err(os)?);
                let interrupt = Interrupt::Event(Arc::clone(&event));
                (DataLane::Socket { socket, event, is_full: false, is_over: false }, interrupt)
            }
            (Data::Ring { .. }, None) => return Err(BindReason::Protocol),
        };
        match super::attach::receive(&mut control, until)? {
            Packet::Ready => {}
            Packet::Refused { reason } => return Err(BindReason::Refused { reason }),
            _ => return Err(BindReason::Protocol),
        }
        let control = Control::new(control).map_err(os)?;
        let inbox = Arc::<Inbox>::default();
        let hub = Self {
            state: Mutex::new(State {
                ends: Ends::default(),
                lane,
                circuits: Locals::default(),
                control: Arc::clone(&control),
                is_led: false,
                followers: Vec::new(),
                bells: BTreeSet::new(),
                lost: None,
                foreign_descriptors: 0,
                buffer: Box::new([0; DATA_BYTES_MAX + 1]),
            }),
            waiting: AtomicU32::new(0),
            interrupt,
            control,
            inbox,
            generation: generation(),
        };
        hub.start_thread()?;
        Ok(hub)
    }

    fn start_thread(&self) -> Result<(), BindReason> {
        let (control, inbox) = (Arc::clone(&self.control), Arc::clone(&self.inbox));
        let interrupt = match &self.interrupt {
            Interrupt::Endpoint(interrupter) => Interrupt::Endpoint(interrupter.clone()),
            Interrupt::Event(event) => Interrupt::Event(Arc::clone(event)),
        };
        let work = move || {
            corewire_os::process::block_all_signals();
            control.run(None, |news| {
                inbox.put(news);
                interrupt.interrupt();
            });
        };
        let builder = std::thread::Builder::new().name("corewire-circuits".to_owned());
        let spawned = builder.stack_size(512 << 10).spawn(work);
        spawned.map(drop).map_err(|error| {
            let errno = error.raw_os_error().unwrap_or_default();
            CallError::Os { what: "start a thread", errno }.into()
        })
    }

    fn is_lost(&self) -> bool {
        let mut state = self.lock();
        self.open_inbox(&mut state);
        state.lost.is_some()
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.generation == generation()
    }

    /// The state. A thread that waits for the link with it is interrupted.
    fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Ok(state) => return state,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        // The interruption that follows carries it to a thread that does not see it now.
        self.waiting.fetch_add(1, Release);
        self.interrupt.interrupt();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Release);
        state
    }

    /// Whether another thread wants the state.
    #[inline]
    fn is_wanted(&self) -> bool {
        self.waiting.load(Acquire) > 0
    }

    /// Lets threads in that wait for the state.
    fn let_in<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if !self.is_wanted() {
            return state;
        }
        drop(state);
        while self.is_wanted() {
            std::thread::yield_now();
        }
        self.lock()
    }

    /// Opens a circuit, and waits for the service's answer.
    pub(crate) fn open(
        self: &Arc<Self>,
        service: &str,
        node: Option<NodeId>,
        offer: Vec<u8>,
        until: Patience,
    ) -> Result<Opened, BindReason> {
        let random = random_u64()?;
        let mut state = self.lock();
        let index = state.ends.open(random, crate::message::BUFFER_BYTES);
        let full =
            || BindReason::Refused { reason: "this process has too many circuits".to_owned() };
        let index = index.ok_or_else(full)?;
        state.circuits.insert(index);
        let (label, credit) = state.ends.greeting(index);
        let setup = Setup {
            label,
            credit,
            service: service.to_owned(),
            node,
            origin: Origin::default(),
            path: Vec::new(),
            visited: NodeSet::default(),
            offer,
        };
        self.control.send(&Packet::Setup(Box::new(setup)), Vec::new());
        drop(state);
        let answer =
            self.wait_until(index, until, |state| state.circuits.get_mut(index)?.answer.take());
        let error = match answer {
            Ok((origin, answer)) => return Ok(Opened { index, origin, answer }),
            Err(error) => error,
        };
        self.close(index, End::Closed);
        Err(match error {
            HubError::Ended(Ended { end: End::Refused, reason }, _) => {
                BindReason::Refused { reason }
            }
            HubError::Ended(Ended { end: End::NotFound, reason }, _) => {
                BindReason::NotServed { reason }
            }
            HubError::Ended(Ended { reason, .. }, _) => BindReason::Circuit { reason },
            HubError::Call(error) => error.into(),
        })
    }

    /// Forgets a circuit. What was sent arrives.
    pub(crate) fn close(&self, index: u32, end: End) {
        let mut state = self.lock();
        let local = state.circuits.remove(index);
        if let Some(local) = &local {
            if local.bell.is_some() {
                state.bells.remove(&index);
            }
            state.foreign_descriptors -=
                if local.is_foreign { local.descriptor_count() } else { 0 };
        }
        if let Some(reset) = state.ends.close(index, end, "the client has closed it") {
            self.control.send(&Packet::Reset(Box::new(reset)), Vec::new());
        }
        state.end_lead();
        // Its descriptors may take time to close.
        drop(state);
        drop(local);
    }

    /// Sends a message if there is room for it at once.
    #[inline]
    pub(crate) fn try_send(&self, index: u32, head: Head, bytes: &[u8]) -> Result<bool, HubError> {
        let began = trace::begin();
        let mut state = self.lock();
        let state = &mut *state;
        if state.ends.try_send(index, head, bytes, &mut state.lane) {
            if began != 0 {
                let went = state.ends.went(index);
                trace::end(began, Kind::Send, [None, went], head.ordinal, bytes.len());
            }
            return Ok(true);
        }
        match state.ended(index) {
            Some(error) => Err(error),
            None => Ok(false),
        }
    }

    /// Sends the capabilities of the message that is sent next.
    pub(crate) fn send_capabilities(
        &self,
        index: u32,
        capabilities: &Capabilities<'_>,
    ) -> Result<(), HubError> {
        let state = self.lock();
        let to = state.ends.label_of(index);
        let packet = capabilities::packet(to, capabilities);
        let packet = packet.map_err(|_| CallError::NotSent)?;
        match self.control.send(&packet.0, packet.1) {
            true => Ok(()),
            false => Err(CallError::NotSent.into()),
        }
    }

    /// Keeps a message until there is room for it.
    pub(crate) fn keep(&self, index: u32, head: Head, bytes: &[u8]) -> Result<(), HubError> {
        let mut state = self.lock();
        let state = &mut *state;
        if let Some(error) = state.ended(index) {
            return Err(error);
        }
        state.ends.queue(index, head, bytes.to_vec());
        state.flush();
        Ok(())
    }

    /// Whether nothing of a circuit waits to be sent.
    pub(crate) fn is_all_sent(&self, index: u32) -> bool {
        self.lock().ends.is_all_sent(index)
    }

    /// Waits until nothing of a circuit waits to be sent.
    pub(crate) fn flush(&self, index: u32, patience: Patience) -> Result<(), HubError> {
        self.wait_until(index, patience, |state| state.ends.is_all_sent(index).then_some(()))
    }

    /// The next message of a circuit.
    #[inline]
    pub(crate) fn receive(&self, index: u32, patience: Patience) -> Result<Message, HubError> {
        let mut state = self.lock();
        match self.look_first(&mut state, index, patience)? {
            First::Message(message) => Ok(message),
            First::Nothing if matches!(patience, Patience::None) => Err(CallError::Busy.into()),
            _ => self.wait_from(state, index, patience, |state| state.take(index)),
        }
    }

    /// The next message of a circuit, if it has come.
    #[inline]
    pub(crate) fn try_receive(&self, index: u32) -> Result<Option<Message>, HubError> {
        let mut state = self.lock();
        match self.look_first(&mut state, index, Patience::None)? {
            First::Message(message) => Ok(Some(message)),
            First::Nothing => Ok(None),
            First::Other => {
                match self.wait_from(state, index, Patience::None, |state| state.take(index)) {
                    Err(HubError::Call(CallError::Busy)) => Ok(None),
                    received => received.map(Some),
                }
            }
        }
    }

    /// The usual way to the next message of a circuit: no other thread, and nothing waits.
    #[inline]
    fn look_first(
        &self,
        state: &mut State,
        index: u32,
        patience: Patience,
    ) -> Result<First, CallError> {
        if self.is_wanted() || !self.inbox.is_empty() || !state.is_quiet(index) {
            return Ok(First::Other);
        }
        match state.look(patience)? {
            Look::Message(found, Arrived { message, capabilities: 0, .. }) if found == index => {
                state.end_lead();
                return Ok(First::Message(message));
            }
            Look::Message(found, arrived) => state.put(found, arrived),
            Look::Something | Look::Interrupted => {}
            Look::Nothing => return Ok(First::Nothing),
        }
        Ok(First::Other)
    }

    /// Waits until something has come for a circuit, or what waited has been sent.
    pub(crate) fn wait(&self, index: u32, patience: Patience) -> Result<(), HubError> {
        let was_keeping = !self.is_all_sent(index);
        self.wait_until(index, patience, |state| {
            let has_message = state.has_message(index);
            (has_message || was_keeping && state.ends.is_all_sent(index)).then_some(())
        })
    }

    /// Waits until `find` finds something: leads, or follows.
    fn wait_until<R>(
        &self,
        index: u32,
        patience: Patience,
        find: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, HubError> {
        self.wait_from(self.lock(), index, patience, find)
    }

    fn wait_from<'a, R>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        index: u32,
        patience: Patience,
        mut find: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, HubError> {
        let mut leads = false;
        let mut looks = 0_usize;
        let waited = loop {
            looks += 1;
            self.open_inbox(&mut state);
            // First: what is sent now may be what the caller waits for.
            state.flush();
            // What has come already counts, whatever has happened since.
            if let Some(found) = find(&mut state) {
                break Ok(found);
            }
            if let Some(error) = state.ended(index) {
                break Err(error);
            }
            // What comes for others, however much it is, must not hold up the caller.
            if looks.is_multiple_of(FRAMES_PER_LOOK)
                && let Err(error) = patience.left()
            {
                break Err(error.into());
            }
            if state.is_led && !leads {
                state = self.follow(state, index, patience)?;
                continue;
            }
            (state.is_led, leads) = (true, true);
            // Those that come from now on interrupt the look.
            if self.is_wanted() {
                state = self.let_in(state);
                continue;
            }
            match state.look(patience) {
                Ok(Look::Message(found, arrived)) => state.put(found, arrived),
                Ok(Look::Something | Look::Interrupted) => {}
                Ok(Look::Nothing) => {
                    self.open_inbox(&mut state);
                    if let Some(found) = find(&mut state) {
                        break Ok(found);
                    }
                    if let Err(error) = patience.left() {
                        break Err(state.ended(index).unwrap_or(error.into()));
                    }
                }
                Err(error) => break Err(error.into()),
            }
        };
        if leads {
            state.is_led = false;
        }
        state.end_lead();
        waited
    }

    /// Sleeps until the leader has found something for this circuit, or has left.
    fn follow<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        index: u32,
        patience: Patience,
    ) -> Result<MutexGuard<'a, State>, CallError> {
        let left = patience.left()?;
        let Some(local) = state.circuits.get_mut(index) else { return Ok(state) };
        let signal = Arc::<Signal>::default();
        local.follower = Some(Arc::clone(&signal));
        state.followers.push(index);
        drop(state);
        signal.wait(left);
        // The leader may be waiting with the state: this interrupts it.
        let mut state = self.lock();
        state.followers.retain(|one| *one != index);
        if let Some(local) = state.circuits.get_mut(index) {
            local.follower = None;
        }
        Ok(state)
    }

    /// Handles what the control lane's thread has read, as far as its queue holds: while more comes, frames have their
    /// turn.
    fn open_inbox(&self, state: &mut State) {
        for _ in 0..NEWS_MAX {
            let Some(news) = self.inbox.take() else { return };
            state.learn(news);
        }
    }

    /// A descriptor that can be read when something may have come for a circuit.
    pub(crate) fn readiness(&self, index: u32) -> Result<OwnedFd, CallError> {
        let os = |errno: rustix::io::Errno| CallError::Os {
            what: "make a descriptor",
            errno: errno.raw_os_error(),
        };
        let mut state = self.lock();
        let bell =
            Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(os)?);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os)?;
        let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(&set, &bell, data, flags).map_err(os)?;
        match &state.lane {
            DataLane::Ring { endpoint, .. } => {
                epoll::add(&set, endpoint.readiness(), data, flags).map_err(os)?;
            }
            DataLane::Socket { socket, event, .. } => {
                epoll::add(&set, socket, data, flags).map_err(os)?;
                epoll::add(&set, event, data, flags).map_err(os)?;
            }
        }
        let copy = rustix::io::fcntl_dupfd_cloexec(&set, 0).map_err(os)?;
        let state = &mut *state;
        if let Some(local) = state.circuits.get_mut(index) {
            local.bell = Some(bell);
            local.set = Some((copy, false));
            state.bells.insert(index);
        }
        Ok(set)
    }

    /// Announces that the program waits for the descriptor. False if something has come already.
    pub(crate) fn arm(&self, index: u32) -> Result<bool, CallError> {
        let mut state = self.lock();
        if let Some(bell) = state.circuits.get(index).and_then(|local| local.bell.as_ref()) {
            let _ = rustix::io::read(&**bell, &mut [0; 8]);
        }
        for _ in 0..FRAMES_PER_LOOK {
            match state.look(Patience::None)? {
                Look::Nothing => break,
                Look::Interrupted => self.open_inbox(&mut state),
                Look::Message(found, arrived) => state.put(found, arrived),
                Look::Something => {}
            }
        }
        self.open_inbox(&mut state);
        if state.has_message(index) || state.ended(index).is_some() {
            return Ok(false);
        }
        // Arming may have found no room any more.
        let is_armed = state.arm()?;
        state.watch_room(index)?;
        Ok(is_armed)
    }
}

impl State {
    /// The end of a circuit, once everything that came before it has been taken.
    fn ended(&self, index: u32) -> Option<HubError> {
        let local = self.circuits.get(index)?;
        if !local.queue.is_empty() {
            return None;
        }
        let ended = match self.ends.ended(index) {
            Some(ended) => ended.clone(),
            None if self.ends.has_last(index) => {
                Ended { end: End::Closed, reason: "the service has closed it".to_owned() }
            }
            None => Ended { end: End::Lost, reason: self.lost.clone()? },
        };
        Some(HubError::Ended(ended, self.ends.delivered_count(index)))
    }

    fn has_message(&self, index: u32) -> bool {
        self.circuits.get(index).is_some_and(|local| match local.queue.front() {
            // Once the circuit has ended no capabilities can come any more.
            Some(Arrived { capabilities, .. }) => {
                let is_over = || self.lost.is_some() || self.ends.ended(index).is_some();
                *capabilities == 0 || !local.rights.is_empty() || is_over()
            }
            None => false,
        })
    }

    /// Takes the next message of a circuit. One whose capabilities have not come waits, with those behind it.
    fn take(&mut self, index: u32) -> Option<Message> {
        if !self.has_message(index) {
            return None;
        }
        let local = self.circuits.get_mut(index)?;
        let Arrived { mut message, lines, capabilities } = local.queue.pop_front()?;
        if capabilities > 0 {
            let rights = local.rights.pop_front().flatten();
            if local.is_foreign {
                self.foreign_descriptors -= rights.as_ref().map_or(0, Vec::len);
            }
            match rights {
                Some(rights) if rights.len() == usize::from(capabilities) => {
                    message.set_capabilities(rights);
                }
                _ => {
                    let tag = message.tag();
                    message = Message::new(tag, Some(status::LOST_HERE), Body::empty(), Vec::new());
                }
            }
        }
        self.ends.release(index, lines);
        Some(message)
    }

    /// Sends what waits, as far as there is room.
    #[inline]
    fn flush(&mut self) {
        if self.ends.has_work() {
            self.ends.flush(&mut self.lane, |_| {});
        }
    }

    /// A thread has done what it came for: another one may have to lead.
    fn end_lead(&mut self) {
        self.flush();
        if !self.is_led
            && let Some(&first) = self.followers.first()
            && let Some(follower) = self.circuits.get(first).and_then(|one| one.follower.as_ref())
        {
            follower.give();
        }
        if self.bells.is_empty() {
            return;
        }
        // Programs that wait for descriptors: this thread has taken away what announced the next message, or has left no room,
        // of which those learn that do not watch it.
        let is_armed = matches!(self.arm(), Ok(true));
        let is_full = matches!(self.lane, DataLane::Socket { is_full: true, .. });
        let locals = self.bells.iter().filter_map(|index| self.circuits.get(*index));
        locals
            .filter(|local| !is_armed || is_full && !local.watches_room())
            .filter_map(|local| local.bell.as_ref())
            .for_each(|bell| _ = rustix::io::write(bell, &1_u64.to_le_bytes()));
    }

    /// Lets the descriptor of a circuit announce room on the data lane's socket while there is none.
    fn watch_room(&mut self, index: u32) -> Result<(), CallError> {
        let DataLane::Socket { socket, is_full, .. } = &self.lane else { return Ok(()) };
        let local = self.circuits.get_mut(index);
        let Some((set, is_watched)) = local.and_then(|local| local.set.as_mut()) else {
            return Ok(());
        };
        if is_watched != is_full {
            let out = if *is_full { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let flags = epoll::EventFlags::IN | out;
            epoll::modify(set, socket, epoll::EventData::new_u64(0), flags).map_err(|errno| {
                CallError::Os { what: "watch the monitor", errno: errno.raw_os_error() }
            })?;
            *is_watched = *is_full;
        }
        Ok(())
    }

    /// Announces that a program waits for the descriptors. False if there is something to do before.
    fn arm(&mut self) -> Result<bool, CallError> {
        if let DataLane::Ring { endpoint, ring } = &mut self.lane {
            match endpoint.arm() {
                Ok(true) => {}
                Err(MessageError::Interrupted) => {
                    ring.set_interrupted();
                    return Ok(false);
                }
                armed => return armed.map_err(CallError::Message),
            }
        }
        // What came, or found room, before that will not be announced.
        match self.look(Patience::None)? {
            Look::Nothing => Ok(true),
            Look::Message(index, arrived) => {
                self.put(index, arrived);
                Ok(false)
            }
            Look::Something | Look::Interrupted => Ok(false),
        }
    }

    /// Sends what is due, and takes what has come, waiting for the first of it.
    fn look(&mut self, patience: Patience) -> Result<Look, CallError> {
        self.flush();
        match &mut self.lane {
            DataLane::Ring { endpoint, ring } => {
                let has_room_again = ring.has_room_again(endpoint);
                if ring.take_interrupted() {
                    return Ok(Look::Interrupted);
                }
                if has_room_again {
                    return Ok(Look::Something);
                }
                let must_look_for_room = ring.is_full();
                let any = Selector::any();
                let buffer = &mut self.buffer[..];
                let received = match patience.left() {
                    // A receive would not return when there is room.
                    Ok(left) if must_look_for_room => {
                        match endpoint.try_receive_event_into(any, buffer) {
                            Ok(None) => return self.wait_armed(left),
                            received => received,
                        }
                    }
                    Ok(None) => endpoint.receive_event_into(any, buffer).map(Some),
                    Ok(Some(left)) => endpoint.receive_event_into_timeout(any, buffer, left),
                    Err(_) => endpoint.try_receive_event_into(any, buffer),
                };
                match received {
                    Ok(Some(Event::Received(found))) if found.source == ring.peer() => {
                        let hop = found.immediate.and_then(Hop::of_word);
                        let length = usize::try_from(found.bytes).unwrap_or(usize::MAX);
                        self.frame(Label::of_word(found.tag), hop, length)
                    }
                    // If it has ended, the end of its control lane comes behind what is in there.
                    Ok(Some(Event::Gone { peer, why: why @ MessageError::PeerCutOff { .. } }))
                        if peer == ring.peer() =>
                    {
                        self.lose(&why.to_string());
                        Ok(Look::Something)
                    }
                    // Nobody else has a reason to send anything here.
                    Ok(Some(_)) => Ok(Look::Something),
                    Ok(None) => Ok(Look::Nothing),
                    Err(MessageError::Interrupted) => Ok(Look::Interrupted),
                    Err(MessageError::Forked) => Err(CallError::Message(MessageError::Forked)),
                    Err(MessageError::BufferTooSmall { .. })
                        if discard_of_strangers(endpoint, ring.peer()) =>
                    {
                        Ok(Look::Something)
                    }
                    Err(error) => {
                        self.lose(&error.to_string());
                        Ok(Look::Something)
                    }
                }
            }
            DataLane::Socket { socket, event, is_full, is_over } => {
                let received = match *is_over {
                    true => Ok(None),
                    false => receive_frame(&*socket, &mut self.buffer, &mut Vec::new()),
                };
                match received {
                    Ok(Some(length)) => {
                        let frame = data_of_packet(self.buffer.get(..length).unwrap_or_default());
                        let Some((label, hop, _)) = frame else {
                            self.lose("the monitor sent a frame that is none");
                            return Ok(Look::Something);
                        };
                        self.buffer.copy_within(16..length, 0);
                        return self.frame(label, Some(hop), length - 16);
                    }
                    Ok(None) => {}
                    // That of the control lane comes behind what is in there.
                    Err(LaneEnd::Closed) => *is_over = true,
                    Err(end) => {
                        let reason = end.to_string();
                        self.lose(&reason);
                        return Ok(Look::Something);
                    }
                }
                let left = patience.left().unwrap_or(Some(Duration::ZERO));
                let out = if *is_full { PollFlags::OUT } else { PollFlags::empty() };
                let mut all =
                    [PollFd::new(event, PollFlags::IN), PollFd::new(&*socket, PollFlags::IN | out)];
                let left = left.and_then(|left| Timespec::try_from(left).ok());
                // An end could be read for ever.
                let watched = if *is_over { 1 } else { 2 };
                let polled = poll(&mut all[..watched], left.as_ref());
                let [on_event, on_socket] = all.map(|one| one.revents());
                if on_socket.contains(PollFlags::OUT) {
                    *is_full = false;
                }
                if on_event.contains(PollFlags::IN) {
                    let _ = rustix::io::read(&*event, &mut [0; 8]);
                    return Ok(Look::Interrupted);
                }
                Ok(if polled == Ok(0) { Look::Nothing } else { Look::Something })
            }
        }
    }

    /// Waits for the endpoint's descriptor: for a message, for room, or for an interruption.
    fn wait_armed(&mut self, left: Option<Duration>) -> Result<Look, CallError> {
        if !self.arm()? {
            return Ok(Look::Interrupted);
        }
        let DataLane::Ring { endpoint, .. } = &self.lane else { return Ok(Look::Nothing) };
        let until = left.and_then(|left| std::time::Instant::now().checked_add(left));
        match crate::socket::wait(endpoint.readiness(), PollFlags::IN, until) {
            Ok(true) => Ok(Look::Interrupted),
            Ok(false) => Ok(Look::Nothing),
            Err(SocketError::Os(errno)) => Err(CallError::Os { what: "wait", errno }),
            Err(_) => Ok(Look::Nothing),
        }
    }

    /// Handles a frame whose payload is in the buffer.
    #[inline]
    fn frame(&mut self, label: Label, hop: Option<Hop>, length: usize) -> Result<Look, CallError> {
        let payload = self.buffer.get(..length).unwrap_or_default();
        let Some(hop) = hop else {
            self.lose("the monitor sent a frame that is none");
            return Ok(Look::Something);
        };
        let mut lines = lines_of(payload.len());
        let began = trace::begin();
        let (index, head, body) = match self.ends.frame(label, hop, payload) {
            Ok(Came::Short(index, head, bytes)) => (index, head, Body::of(bytes)),
            Ok(Came::Long(index, head, bytes)) => {
                lines = lines_of(bytes.len());
                (index, head, Body::Long(bytes))
            }
            Ok(Came::Changed(index)) => {
                self.ring(index);
                return Ok(Look::Something);
            }
            Ok(Came::Nothing) => return Ok(Look::Something),
            Err(Wrong::Peer { index, what }) => {
                let reason = format!("the service sent {what}");
                if let Some(reset) = self.ends.cut(index, End::Violation, &reason) {
                    self.control.send(&Packet::Reset(Box::new(reset)), Vec::new());
                }
                self.ring(index);
                return Ok(Look::Something);
            }
            Err(wrong) => {
                self.lose(&wrong.to_string());
                return Ok(Look::Something);
            }
        };
        if began != 0 {
            let came = self.ends.came(label);
            trace::end(began, Kind::Receive, [came, None], head.ordinal, length);
        }
        let tag = Tag::new(0, head.ordinal, head.token);
        let message = Message::new(tag, head.status.map(u64::from), body, Vec::new());
        Ok(Look::Message(index, Arrived { message, lines, capabilities: head.capabilities }))
    }

    /// Puts a message into the queue of its circuit.
    fn put(&mut self, index: u32, arrived: Arrived) {
        if let Some(local) = self.circuits.get_mut(index) {
            self.ends.store(index, arrived.lines);
            local.queue.push_back(arrived);
            local.ring();
        }
    }

    /// Whether nothing of a circuit waits, and no other thread waits for anything.
    #[inline]
    fn is_quiet(&self, index: u32) -> bool {
        !self.is_led && !self.ends.has_work() && self.lost.is_none() && self.ends.is_quiet(index)
    }

    /// Wakes the thread or task that waits for a circuit.
    fn ring(&self, index: u32) {
        if let Some(local) = self.circuits.get(index) {
            local.ring();
        }
    }

    /// The link has ended.
    fn lose(&mut self, reason: &str) {
        self.lost.get_or_insert_with(|| reason.to_owned());
        self.ends.link_lost(reason);
        self.circuits.iter().for_each(Local::ring);
    }

    /// Handles what came in the control lane.
    fn learn(&mut self, news: News) {
        match news {
            News::Packet(Packet::Accept { to, label, credit, origin, answer }, _) => {
                if let Some(index) = self.ends.find(to) {
                    self.ends.accepted(index, label, credit);
                    // Before the first of its messages is read.
                    if let Some(acceptance) = Acceptance::of_bytes(&answer) {
                        let bytes_max = acceptance.bytes_max.max(1024);
                        self.ends.set_bytes_max(index, usize::try_from(bytes_max).unwrap_or(0));
                    }
                    if let Some(local) = self.circuits.get_mut(index) {
                        if local.is_foreign && origin.uid == rustix::process::geteuid().as_raw() {
                            local.is_foreign = false;
                            self.foreign_descriptors -= local.descriptor_count();
                        }
                        local.answer = Some((origin, answer));
                    }
                    self.ring(index);
                }
            }
            News::Packet(Packet::Reset(reset), _) => {
                if let Some(index) = self.ends.reset(*reset) {
                    self.ring(index);
                }
            }
            News::Packet(Packet::Capabilities { to, is_lost, notes }, rights) => {
                if let Some(index) = self.ends.find(to) {
                    let rights = capabilities::parse(is_lost, &notes, rights);
                    let foreign = self.foreign_descriptors;
                    if let Some(local) = self.circuits.get_mut(index) {
                        let rights = rights.filter(|rights| local.has_room(rights.len(), foreign));
                        if local.is_foreign {
                            self.foreign_descriptors += rights.as_ref().map_or(0, Vec::len);
                        }
                        local.rights.push_back(rights);
                    }
                    self.ring(index);
                }
            }
            News::Packet(Packet::Refused { reason }, _) => {
                self.lose(&format!("the monitor has ended the link: {reason}"));
            }
            News::Lost(reason) => self.drain(&reason),
            News::Packet(..) | News::Frame(..) | News::Room => {}
        }
    }

    /// The control lane has ended: takes first what is left in the data lane.
    fn drain(&mut self, reason: &str) {
        // A socket's buffer holds fewer frames: a monitor that goes on sending is not heard any more.
        for _ in 0..LEFT_MAX {
            if self.lost.is_some() {
                break;
            }
            match self.look(Patience::None) {
                Ok(Look::Message(index, arrived)) => self.put(index, arrived),
                // What interrupted it is handled already, or counted in `waiting`.
                Ok(Look::Something | Look::Interrupted) => {}
                _ => break,
            }
        }
        self.lose(&match self.lane {
            DataLane::Ring { .. } => "the link to the monitor has ended".to_owned(),
            DataLane::Socket { .. } => format!("the monitor has ended the link: {reason}"),
        });
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        // What was sent arrives, as it does through a direct ring.
        if let DataLane::Ring { endpoint, ring } = &mut self.lock().lane {
            ring.finish(endpoint);
        }
        self.control.end();
        self.inbox.close();
    }
}

/// Discards a message that is longer than a frame, if another process than the monitor has sent it. False if the monitor
/// has.
#[cold]
fn discard_of_strangers(endpoint: &mut Endpoint, monitor: Peer) -> bool {
    match endpoint.try_probe(Selector::any()) {
        Ok(Some(status)) if status.source == monitor => false,
        Ok(Some(status)) => {
            // An error is that of the next call, too.
            let _ = endpoint.discard(Selector::any().from(status.source));
            true
        }
        // Its sender has stopped in the middle of it.
        _ => {
            std::thread::yield_now();
            true
        }
    }
}
