//! Endpoints: messages between any two processes, with matching.
//!
//! | file | holds |
//! |---|---|
//! | this one | the endpoint, what is known of its peers, waiting, closing |
//! | [`naming`] | peers by name |
//! | [`send`] | sending, at once or when there is room |
//! | [`receive`] | receiving |
//! | [`loans`] | messages that the program writes where their receiver reads them |
//! | [`operations`] | operations that continue by themselves |
//! | [`probes`] | probing for messages, claiming and discarding them |
//! | [`calls`] | requests and replies |
//! | [`access`] | memory that peers access by themselves, and that of peers |
//! | [`far`] | peers on other hosts |
//! | [`events`] | peers that come and go, between the messages |
//! | [`progressing`] | a thread that continues operations while the program computes |
//!
//! The engine handles messages: see `corewire-endpoint`. This module makes its calls wait. What carries the messages is
//! below the engine: [`rings`](crate::rings).

mod access;
mod calls;
mod events;
#[cfg(feature = "net")]
mod far;
mod loans;
mod naming;
mod operations;
mod probes;
mod progressing;
mod receive;
mod send;
mod within;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use corewire_endpoint::transport::{Room, Transport};
use corewire_endpoint::{Budget, Caller, Engine, Grants, MessageError, Peer, Seed};
use corewire_layout::counters::EndpointCounter;
use corewire_layout::name::ChannelName;

pub use self::access::RemoteNumber;
pub use self::calls::{DetachedRequest, OwedReply, Request};
pub use self::events::Event;
pub use self::loans::{EndpointLoan, UnsentLoan};
pub use self::progressing::{EndpointGuard, ProgressingEndpoint};
pub use self::within::Within;
use crate::error::{ConnectError, CounterError};
use crate::halves::{EndpointHalf, notice};
use crate::host::PairRing;
use crate::rings::{LongMessages, PairRings};
use crate::wait::{Interrupter, Patience, Poller, Polls, Readiness, Wait};
#[cfg(feature = "net")]
use crate::ways::Ways;

/// Polls in a row that find nothing, after which a receive that waits for the rest of a message takes another one.
const LONG_POLLS: u32 = 1 << 16;

/// A process's address for messages from any other process, returned by
/// [`EndpointBuilder::create`](crate::EndpointBuilder::create).
///
/// A message has a *tag*, 64 bits of the sender's choice. A receive asks for messages by tag and sender
/// ([`Selector`](crate::Selector)). Messages from one endpoint to another that a receive asks for are received in the
/// order in which they were sent. Those that arrive before a receive asks for them are kept, within a budget
/// ([`EndpointBuilder::budget`](crate::EndpointBuilder::budget)). Beyond it a message stays with its sender, which then
/// waits. Nothing is lost.
///
/// # How messages travel
///
/// | message | travels | copied |
/// |---|---|---|
/// | up to 160 bytes | in the slots of the pair's ring | twice |
/// | up to 16 KiB ([`EndpointBuilder::in_place_up_to`](crate::EndpointBuilder::in_place_up_to)), to a peer that grants it ([`EndpointBuilder::grants`](crate::EndpointBuilder::grants)) | stays in the sender's heap, where its receiver reads it | once; not at all from a [`loan`](Self::loan) |
/// | otherwise up to 128 KiB; up to 32 KiB while the cells have no room for it | through cells of the sender's memory | twice |
/// | longer | stays in the sender's memory until a receive asks for it; then the kernel copies it | once |
/// | longer, where the kernel does not permit that (another user or PID namespace, seccomp, Yama, a process that cannot be dumped), from `try_send`, or in more than 250 parts | through cells, in as many fragments as needed | twice |
///
/// From 64 KiB on the receiver and a sender that is in a call copy at once, from both ends
/// ([`EndpointBuilder::rendezvous`](crate::EndpointBuilder::rendezvous)).
///
/// `send` returns when the buffer may be reused. A short message may not have been received by then. A message that
/// stays in its sender's memory has been received by then, or is kept by the peer within its budget; if the peer
/// does neither, it goes through cells, provided that it fits there, and otherwise the call waits. If a call runs
/// out of time, `Timeout` means that the message was never sent; if the peer had begun to read it, the call returns
/// `Ok`, and a copy of the message is delivered later.
///
/// A receive without a time limit lets the sender write to its buffer. If such a receive is interrupted while the
/// sender writes, it returns when the sender has written its piece of at most 256 KiB; so does dropping an endpoint
/// with a receive in the background.
///
/// # Progress
///
/// An endpoint works only inside its calls: receives and sends that are under way ([`isend`](Self::isend)) continue
/// while one of its calls runs or waits. [`with_progress_thread`](Self::with_progress_thread) starts a thread that
/// continues them while the program computes.
///
/// # Threads
///
/// Its calls need exclusive access, so several threads share one behind a mutex, and a thread that waits in it blocks
/// the others. One endpoint per thread is faster: each endpoint costs a name and
/// [`EndpointBuilder`](crate::EndpointBuilder)'s memory. An [`Interrupter`] ends another thread's wait. In event loops
/// and async code, use [`readiness`](Self::readiness).
///
/// # Deaths
///
/// Messages that a peer sent completely before it died are received; incomplete ones are discarded. Then calls that
/// wait for that peer alone end with [`MessageError::PeerDied`]. Receives from any peer continue;
/// [`receive_event`](Self::receive_event) reports peers that come and go.
///
/// Dropping an endpoint closes it, and discards what it has not sent; [`close`](Self::close) sends it first.
pub struct Endpoint {
    engine: Engine<Ways>,
    control: Arc<dyn EndpointHalf>,
    ring_slots: u64,
    /// How it polls for messages, and for room.
    poller: Poller,
    room_poller: Poller,
}

impl Endpoint {
    /// Puts the halves together. A sleep ends after so many nanoseconds at the latest.
    pub(crate) fn new(
        pairs: PairRing,
        control: Arc<dyn EndpointHalf>,
        budget: Budget,
        seed: Seed,
        grants: Grants,
        (wait, cap_ns): (Wait, u64),
        long: LongMessages,
    ) -> Self {
        let (ring_slots, peers_max) = (pairs.sizes().ring_slots(), pairs.sizes().peers_max());
        let rings = PairRings::new(pairs, Arc::clone(&control), long);
        let ways = ways(rings, &control, peers_max, cap_ns);
        Self {
            engine: Engine::new(ways, budget, seed).with_grants(grants),
            control,
            ring_slots,
            poller: Poller::for_messages(wait),
            room_poller: Poller::for_room_of_many(wait),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.control.name().as_str()
    }

    /// A peer's name; `None` if it is not a peer of this endpoint, or another peer has taken its place.
    #[must_use]
    pub fn name_of(&self, peer: Peer) -> Option<&str> {
        self.engine.name_of(peer).map(ChannelName::as_str)
    }

    /// Which endpoint of its name this one is: a random number that no other one has.
    #[must_use]
    pub fn incarnation(&self) -> u128 {
        self.control.incarnation()
    }

    /// Which endpoint of its [name](Self::name_of) a peer is, so that a process can be told from its predecessor of the
    /// same name; `None` as for its name. The peer says so itself.
    #[must_use]
    pub fn incarnation_of(&self, peer: Peer) -> Option<u128> {
        self.engine.incarnation_of(peer)
    }

    /// Whether a peer that was [addressed](Self::address) is linked, or was. What is sent to one that is not waits here, and
    /// is lost without a word if it turns out that it cannot be linked, but for what operations send.
    #[inline(always)]
    #[must_use]
    pub fn is_linked(&self, peer: Peer) -> bool {
        self.engine.is_linked(peer)
    }

    /// Gives a peer a number of the caller's choice, with which [`poll`](Self::poll) tells of its messages: a place in a
    /// table of the caller's, for example. It stays as long as the peer does.
    ///
    /// # Errors
    /// [`MessageError::UnknownPeer`].
    pub fn set_label(&mut self, peer: Peer, label: u64) -> Result<(), MessageError> {
        self.engine.set_label(peer, label)
    }

    /// The number that [`set_label`](Self::set_label) has given to a peer; 0 if none.
    #[must_use]
    pub fn label_of(&self, peer: Peer) -> u64 {
        self.engine.label_of(peer)
    }

    /// The peers that are linked now and have not left or died.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`.
    pub fn peers(&mut self) -> Result<Vec<Peer>, MessageError> {
        self.engine.handle_notices()?;
        Ok(self.engine.peers().collect())
    }

    /// One of the endpoint's counters, by name. Does not block.
    ///
    /// | name | what it counts |
    /// |---|---|
    /// | `waits` | times that the endpoint waited for a message or for room |
    /// | `sleeps` | times that it slept while it waited |
    /// | `cap_finds` | times that it found something only because the cap ended a sleep |
    /// | `wakes` | times that it woke a sleeping peer |
    /// | `announcements` | messages that it announced by a bit, because the receiver did not poll the pair |
    /// | `unexpected` | messages that arrived before a receive for them was posted |
    /// | `stalls` | times that such a message stayed with its sender, because the budget was spent |
    /// | `rings_taken` | rings taken back from a pair for another pair |
    /// | `deaths` | peers whose process died |
    /// | `violations` | peers disconnected because their memory held an impossible value |
    /// | `discarded` | messages that no receive had asked for, and that the program discarded |
    /// | `pulled` | large messages that it copied from their senders' memory |
    /// | `refusals` | large messages that it could not copy from there, and that came through cells |
    /// | `in_place` | messages that it received and reads where their senders wrote them |
    /// | `nacks` | times that a message of its own did not fit in what its receiver grants |
    ///
    /// # Errors
    /// [`CounterError`] if there is no counter of that name; it lists the names.
    pub fn counter(&self, name: &str) -> Result<u64, CounterError> {
        let counter = CounterError::find(name, "an endpoint", &EndpointCounter::ALL)?;
        Ok(self.engine.transport().counter(counter))
    }

    /// A handle with which another thread ends a waiting call of this endpoint.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        let control = Arc::clone(&self.control);
        Interrupter::new(move || control.notify(notice::INTERRUPTED))
    }

    /// A handle with which another thread connects this endpoint, so that a peer that does not answer holds up that
    /// thread alone.
    ///
    /// ```
    /// use corewire::{Domain, Event, Selector};
    ///
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-connector-{}", std::process::id()));
    /// let domain = Domain::open_at(&directory)?;
    /// let mut server = domain.endpoint("server").create()?;
    /// let _worker = domain.endpoint("worker").create()?;
    /// let connector = server.connector();
    /// let thread = std::thread::spawn(move || connector.connect("worker"));
    /// let Event::Came(worker) = server.receive_event(Selector::any())? else { unreachable!() };
    /// assert_eq!(server.name_of(worker), Some("worker"));
    /// # thread.join().unwrap()?;
    /// # drop((server, _worker, domain));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn connector(&self) -> Connector {
        Connector(Arc::clone(&self.control))
    }

    /// A descriptor that becomes readable when something has happened after [`arm`](Self::arm). It stays the same for
    /// the endpoint's life.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        #[cfg(feature = "net")]
        return Readiness::of_set(self.control.far().set());
        #[cfg(not(feature = "net"))]
        Readiness::of(self.control.bell())
    }

    /// Announces that the caller is about to wait for the [`Readiness`] descriptor. Returns false if something has
    /// happened already: then check again first. The order is: check ([`try_receive_into`](Self::try_receive_into),
    /// [`test`](Self::test)) until there is nothing, `arm`, wait until readable, and repeat.
    ///
    /// # Errors
    /// [`MessageError::Forked`].
    pub fn arm(&mut self) -> Result<bool, MessageError> {
        if self.control.is_forked() {
            return Err(MessageError::Forked);
        }
        if self.engine.is_copying() || self.engine.take_back_accesses() {
            return Ok(false);
        }
        // What a poll has left rings no bell any more. An error is the next call's.
        if self.engine.has_left_some() && self.engine.progress(None).unwrap_or(true) {
            return Ok(false);
        }
        self.control.bell().silence();
        let wanted = self.engine.wanted_room();
        Ok(self.engine.transport_mut().arm(&wanted))
    }

    /// Handles arrivals, and sends what there is room for. Never blocks. True if anything was done.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`.
    pub fn progress(&mut self) -> Result<bool, MessageError> {
        self.engine.progress(None)
    }

    /// Handles arrivals. Returns whether a message was kept or an operation has ended since the last call of this
    /// method.
    pub(crate) fn look(&mut self) -> Result<bool, MessageError> {
        self.engine.progress(None)?;
        Ok(self.engine.take_news())
    }

    /// Completes all sends that are under way, including replies, and all accesses to peers' memory. Waits for as long as that
    /// takes: for large messages that do not fit in the cells until the peer receives them, for accesses that it must carry
    /// out until its next call.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; the rest is sent by later calls.
    pub fn flush(&mut self) -> Result<(), MessageError> {
        self.flush_slowly(Patience::Forever)
    }

    /// Whether a send is under way that [`flush`](Self::flush) would complete. Does nothing else, and never blocks.
    #[must_use]
    pub fn has_pending_sends(&self) -> bool {
        self.engine.has_pending_sends()
    }

    pub(super) fn flush_slowly(&mut self, patience: Patience) -> Result<(), MessageError> {
        self.wait_for(patience, None, None, |endpoint, _| {
            let is_done = !endpoint.has_pending_sends() && !endpoint.engine.has_accesses();
            is_done.then_some(())
        })
    }

    /// Completes all that is under way, as [`flush`](Self::flush) does, and closes the endpoint. Peers may
    /// receive messages after that that went through rings or cells, or lie in the kernel of another host: waits until they do, or
    /// that host is lost.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; the endpoint is closed all the same.
    pub fn close(mut self) -> Result<(), MessageError> {
        self.flush()?;
        #[cfg(feature = "net")]
        self.engine.transport_mut().settle_far();
        Ok(())
    }

    /// The engine alone, for tests that use other transports beside the rings.
    #[cfg(feature = "test-hooks")]
    #[must_use]
    pub fn into_engine(self) -> Engine<impl Transport> {
        self.engine
    }

    /// Handles the arrivals and departures of peers, if there is a notice.
    fn handle_notices(&mut self) -> Result<(), MessageError> {
        if self.engine.has_notice() { self.engine.handle_notices() } else { Ok(()) }
    }

    /// Polls for a while, then sleeps, and repeats until `done` returns a result. `room` is room to wait for, in
    /// addition to that for pending sends.
    fn wait_for<T>(
        &mut self,
        patience: Patience,
        mut caller: Option<&mut Caller<'_>>,
        room: Option<Room>,
        mut done: impl FnMut(&mut Self, Option<&mut Caller<'_>>) -> Option<T>,
    ) -> Result<T, MessageError> {
        let (mut has_slept, mut idle_polls) = (false, 0_u32);
        let source = caller.as_ref().and_then(|caller| caller.source());
        let is_for_room = room.is_some();
        let late = MessageError::Timeout { after: Duration::ZERO };
        loop {
            // Checks at least once, even if there is no time.
            let limit_ns = patience.limit_ns().unwrap_or(0);
            let (mut bare, mut polls) =
                (self.poller(is_for_room).bare_polls(), Polls::within(limit_ns));
            loop {
                let is_busy = self.engine.progress(caller.as_deref_mut())?;
                if let Some(end) = done(self, caller.as_deref_mut()) {
                    if !has_slept {
                        self.poller(is_for_room).found();
                    }
                    return Ok(end);
                }
                idle_polls = if is_busy { 0 } else { idle_polls + 1 };
                if idle_polls == LONG_POLLS {
                    idle_polls = 0;
                    caller.as_deref_mut().map(|caller| self.engine.step_aside(caller));
                }
                if is_busy {
                    let Some(limit_ns) = patience.limit_ns() else {
                        self.poller(is_for_room).gives_up();
                        return Err(late);
                    };
                    bare = self.poller(is_for_room).bare_polls();
                    polls = Polls::within(limit_ns);
                } else if bare > 1 {
                    bare -= 1;
                } else if !self.may_poll(&mut polls, source, room) {
                    break;
                }
            }
            let Some(limit_ns) = patience.limit_ns() else {
                self.poller(is_for_room).gives_up();
                return Err(late);
            };
            if caller.is_none() && self.engine.relieve() || self.engine.take_back_accesses() {
                continue;
            }
            if caller.as_deref_mut().is_some_and(|caller| self.engine.step_aside(caller)) {
                continue;
            }
            self.engine.transport().count(EndpointCounter::Waits);
            let poller = self.poller(is_for_room);
            if poller.may_sleep() {
                poller.sleeps();
                let mut wanted = self.engine.wanted_room();
                wanted.extend(room.and_then(|room| self.engine.room_for(room)));
                self.engine.transport_mut().sleep(limit_ns, &wanted);
                has_slept = true;
            }
        }
    }

    fn poller(&mut self, is_for_room: bool) -> &mut Poller {
        if is_for_room { &mut self.room_poller } else { &mut self.poller }
    }

    /// Whether a peer last ran on the core on which this thread runs: a thread that polls for it then keeps it from
    /// running, and should yield.
    #[must_use]
    pub fn is_on_this_core(&self, peer: Peer) -> bool {
        self.engine.transport().is_here(peer.row())
    }

    /// Pauses or yields before the next poll, for a message from `source` or for `room`. False if it is time to sleep.
    fn may_poll(&mut self, polls: &mut Polls, source: Option<Peer>, room: Option<Room>) -> bool {
        let Self { engine, poller, room_poller, .. } = self;
        let rings = engine.transport();
        match room {
            Some(room) => room_poller.may_poll(polls, || rings.is_here(room.row)),
            // A message may come from any peer: checks the peer heard last.
            None => poller.may_poll(polls, || {
                rings.is_here(source.map_or_else(|| rings.last_found(), Peer::row))
            }),
        }
    }
}

/// Connects an endpoint from another thread, returned by [`Endpoint::connector`].
#[derive(Clone)]
pub struct Connector(Arc<dyn EndpointHalf>);

impl Connector {
    /// Connects the endpoint to the one of this name, as [`Endpoint::peer`] does. It then has the peer, which
    /// [`receive_event`](Endpoint::receive_event) reports. Returns [which endpoint](Endpoint::incarnation_of) of that name
    /// it is: it had the name after this call began, so those that had the name before have ended or left.
    ///
    /// # Errors
    /// As for [`Endpoint::peer`]; [`ConnectError::NotFound`] with the endpoint's own name if it has been dropped.
    pub fn connect(&self, name: &str) -> Result<u128, ConnectError> {
        #[cfg(feature = "net")]
        if let Some(target) = far::target(&*self.0, name)? {
            return match self.0.is_forked() {
                true => Err(ConnectError::Forked),
                false => self.0.far().connect(&target, None).map(|(_, incarnation)| incarnation),
            };
        }
        self.0.connect(&ChannelName::new(name)?).map(|(_, incarnation)| incarnation)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.0.name()).finish()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.name()).finish_non_exhaustive()
    }
}

#[cfg(not(feature = "net"))]
type Ways = PairRings;

#[cfg(not(feature = "net"))]
fn ways(rings: PairRings, _: &Arc<dyn EndpointHalf>, _: u64, _: u64) -> Ways {
    rings
}

#[cfg(feature = "net")]
fn ways(rings: PairRings, control: &Arc<dyn EndpointHalf>, peers_max: u64, cap_ns: u64) -> Ways {
    let first = u32::try_from(peers_max).unwrap_or(u32::MAX);
    Ways::new(rings, Arc::clone(control), Arc::clone(control.far()), first, cap_ns)
}

/// The duration of the wait, for an error.
fn after(patience: Patience) -> Duration {
    match patience {
        Patience::Until(_, timeout) => timeout,
        _ => Duration::ZERO,
    }
}
