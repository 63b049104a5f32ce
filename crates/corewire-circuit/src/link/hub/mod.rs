//! All circuits of a program's clients: one link to a monitor, shared by all threads.
//!
//! A thread that waits for a message *leads*: it waits for the link, and puts what comes for other circuits into their
//! queues. Other threads that wait meanwhile *follow*: they sleep until something has come for them, or until the leader
//! has left and one of them must lead. A thread that only sends interrupts the leader, who lets it in.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | the hub: how it begins and ends, how a thread gets in, and what is sent |
//! | `place` | which hub a monitor has |
//! | `waiting` | leaders and followers |
//! | `state` | what the threads share: circuits and what has come for them |
//! | `data` | the data lane, and how it is looked at |
//! | `inbox` | what the control lane's thread has read |
//! | `message` | what a circuit brings: messages, and its end |

mod data;
mod inbox;
mod message;
mod place;
mod state;
mod waiting;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use corewire::{Domain, Endpoint};
use corewire_os::fork::generation;
use corewire_ring::sync::AtomicU32;
use corewire_ring::sync::Ordering::{Acquire, Release};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use self::data::DataLane;
use self::inbox::{Inbox, Interrupt};
pub use self::message::{Bytes, BytesMaxOf, CircuitError, Message};
use self::state::{Look, State};
use super::attach::{self, AttachError, Data, attach};
use super::capability::{self, Outgoing};
use super::control::{Control, EVENTS_MAX};
use super::ring::RingLane;
use super::trace;
use crate::ends::{Ended, Head};
use crate::patience::Patience;
use crate::wire::packet::{End, Origin, Packet, Setup};
use crate::wire::trace::Kind;
use crate::wire::{NodeId, NodeSet};

/// Frames that one look takes.
const FRAMES_PER_LOOK: usize = 64;

/// The link of this process to a monitor.
pub struct Hub {
    state: Mutex<State>,
    /// How many threads want the state while another one has it.
    waiting: AtomicU32,
    interrupt: Interrupt,
    control: Arc<Control>,
    inbox: Arc<Inbox>,
    generation: u32,
}

/// A circuit that a service has accepted.
#[derive(Debug)]
pub struct Opened {
    /// What it is called here.
    pub index: u32,
    /// The service.
    pub origin: Origin,
    /// What it has said.
    pub answer: Vec<u8>,
}

/// What a circuit is opened with.
#[derive(Debug)]
pub struct Opening<'a> {
    /// The service's name.
    pub service: &'a str,
    /// The monitor at which it is looked for; `None` for any.
    pub node: Option<NodeId>,
    /// What the service is told.
    pub offer: Vec<u8>,
    /// The longest message that may come.
    pub bytes_max: usize,
    /// The longest message that may come after an answer.
    pub bytes_max_of: BytesMaxOf,
}

impl Hub {
    /// Attaches to a monitor.
    fn new(domain: &Domain, node: NodeId, until: Patience) -> Result<Self, AttachError> {
        let os = |errno: Errno| AttachError::Os {
            what: "attach to the monitor",
            errno: errno.raw_os_error(),
        };
        let endpoint = match domain.is_guest() {
            true => None,
            false => {
                let random =
                    random_u64().map_err(|errno| AttachError::Os { what: RANDOM, errno })?;
                let name = format!("circuits.{random:016x}");
                Some(domain.endpoint(&name).peers(4).create()?)
            }
        };
        let connector = endpoint.as_ref().map(Endpoint::connector);
        let attached = attach(domain, node, connector.as_ref(), until)?;
        let mut control = attached.lane;
        let (lane, interrupt) = match (attached.data, endpoint) {
            (Data::Ring { endpoint: name, secret }, Some(mut endpoint)) => {
                let ring = RingLane::to(&mut endpoint, &name);
                let mut ring = ring.ok_or(AttachError::Closed)?;
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
            (Data::Ring { .. }, None) => return Err(AttachError::Protocol),
        };
        match attach::receive(&mut control, until)? {
            Packet::Ready => {}
            Packet::Refused { reason } => return Err(AttachError::Refused { reason }),
            _ => return Err(AttachError::Protocol),
        }
        let control = Control::new(control).map_err(os)?;
        let inbox = Arc::<Inbox>::default();
        let hub = Self {
            state: Mutex::new(State::new(lane, Arc::clone(&control))),
            waiting: AtomicU32::new(0),
            interrupt,
            control,
            inbox,
            generation: generation(),
        };
        hub.start_thread()?;
        Ok(hub)
    }

    fn start_thread(&self) -> Result<(), AttachError> {
        let (control, inbox) = (Arc::clone(&self.control), Arc::clone(&self.inbox));
        let interrupt = self.interrupt.clone();
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
            AttachError::Os { what: "start a thread", errno }
        })
    }

    fn is_lost(&self) -> bool {
        let mut state = self.lock();
        self.open_inbox(&mut state);
        state.lost.is_some()
    }

    /// False in a forked child.
    #[must_use]
    pub fn is_ours(&self) -> bool {
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
    ///
    /// # Errors
    /// [`CircuitError`].
    pub fn open(
        self: &Arc<Self>,
        opening: Opening<'_>,
        until: Patience,
    ) -> Result<Opened, CircuitError> {
        let Opening { service, node, offer, bytes_max, bytes_max_of } = opening;
        let random = random_u64().map_err(|errno| CircuitError::Os { what: RANDOM, errno })?;
        let mut state = self.lock();
        let full = || {
            let reason = "this process has too many circuits".to_owned();
            CircuitError::Ended(Ended { end: End::Refused, reason }, 0)
        };
        let index = state.ends.open(random, bytes_max).ok_or_else(full)?;
        state.circuits.insert(index, bytes_max_of);
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
        match answer {
            Ok((origin, answer)) => Ok(Opened { index, origin, answer }),
            Err(error) => {
                self.close(index, End::Closed);
                Err(error)
            }
        }
    }

    /// Forgets a circuit. What was sent arrives.
    pub fn close(&self, index: u32, end: End) {
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
    ///
    /// # Errors
    /// [`CircuitError`].
    #[inline]
    pub fn try_send(&self, index: u32, head: Head, bytes: &[u8]) -> Result<bool, CircuitError> {
        let began = trace::begin();
        let mut state = self.lock();
        let state = &mut *state;
        if state.ends.try_send(index, head, bytes, &mut state.lane) {
            if began != 0 {
                let went = state.ends.sent_to(index);
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
    ///
    /// # Errors
    /// [`CircuitError`].
    pub fn send_capabilities(
        &self,
        index: u32,
        capabilities: &[Outgoing<'_>],
    ) -> Result<(), CircuitError> {
        let state = self.lock();
        let to = state.ends.label_of(index);
        let packet = capability::packet(to, capabilities);
        let (packet, descriptors) = packet.map_err(|_| CircuitError::NotSent)?;
        match self.control.send(&packet, descriptors) {
            true => Ok(()),
            false => Err(CircuitError::NotSent),
        }
    }

    /// Keeps a message until there is room for it.
    ///
    /// # Errors
    /// [`CircuitError`].
    pub fn keep(&self, index: u32, head: Head, bytes: &[u8]) -> Result<(), CircuitError> {
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
    #[must_use]
    pub fn is_all_sent(&self, index: u32) -> bool {
        self.lock().ends.is_all_sent(index)
    }

    /// Handles what the control lane's thread has read, as far as its queue holds: while more comes, frames have their
    /// turn.
    fn open_inbox(&self, state: &mut State) {
        for _ in 0..EVENTS_MAX {
            if !self.inbox.has_handled(|news| state.apply(news)) {
                return;
            }
        }
    }

    /// A descriptor that can be read when something may have come for a circuit.
    ///
    /// # Errors
    /// [`CircuitError`].
    pub fn readiness(&self, index: u32) -> Result<OwnedFd, CircuitError> {
        let os = CircuitError::os("make a descriptor");
        let mut state = self.lock();
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(&os)?;
        let bell = Arc::new(bell);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(&os)?;
        let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(&set, &bell, data, flags).map_err(&os)?;
        state.lane.watch(&set).map_err(&os)?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&set, 0).map_err(&os)?;
        let state = &mut *state;
        if let Some(local) = state.circuits.get_mut(index) {
            local.bell = Some(bell);
            local.set = Some((copy, false));
            state.bells.insert(index);
        }
        Ok(set)
    }

    /// Announces that the program waits for the descriptor. False if something has come already.
    ///
    /// # Errors
    /// [`CircuitError`].
    pub fn arm(&self, index: u32) -> Result<bool, CircuitError> {
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

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
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

const RANDOM: &str = "get a random number";

/// 64 random bits of the kernel's. Two forked children never get the same. The error is the system's number.
fn random_u64() -> Result<u64, i32> {
    let random = corewire_os::random_u128().map_err(|error| error.errno)?;
    Ok((random >> 64) as u64)
}
