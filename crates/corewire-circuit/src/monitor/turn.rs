//! The turns of a monitor.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use corewire::{Event, MessageError, Selector, Status};
use corewire_os::processor::{tick_ns, ticks};
use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::io::Errno;

use super::links::DataLane;
use super::state::{Monitor, MonitorError, key};
use crate::link::trace;
use crate::node::Down;
use crate::wire::{Hop, Kind, Label};

/// Descriptors that one look at them reports.
const EVENTS_MAX: usize = 64;
/// Frames of one endpoint in a turn.
const FRAMES_PER_TURN: usize = 64;
/// How long sockets are not looked at while the monitor polls or has frames. A look is a system call, which takes as long
/// as several frames.
const WITHOUT_SOCKETS_NS: f64 = 20_000.0;
/// Frames and departures that one look at an endpoint takes.
const EVENTS_PER_LOOK: usize = 4096;
/// Frames that a program which has ended may have left in its ring, which holds fewer.
const LEFT_MAX: usize = 65_536;
/// So many circuits take memory that is worth giving back.
const GIVE_BACK_FROM: usize = 1024;
/// How long a sleep lasts at most: connections that have not become links end.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// What a turn has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Frames or packets.
    Something,
    /// Nothing.
    Nothing,
    /// Somebody has asked the monitor to end.
    Stop,
}

impl Monitor {
    /// Runs until a [`Handle`](super::Handle) ends it. Sleeps when there is nothing to do.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn run(&mut self) -> Result<(), MonitorError> {
        let poll_ticks = in_ticks(self.poll.as_secs_f64() * 1e9);
        let (mut idle_since, mut must_yield) = (None, false);
        loop {
            match self.turn()? {
                Found::Stop => return Ok(()),
                Found::Something => idle_since = None,
                Found::Nothing => {
                    let now = ticks();
                    let since = *idle_since.get_or_insert_with(|| {
                        must_yield = self.out.has_sent_here();
                        now
                    });
                    if now.wrapping_sub(since) >= poll_ticks {
                        if self.sleep()? {
                            return Ok(());
                        }
                        idle_since = None;
                    } else if must_yield {
                        // The receiver of the last frame needs this core to read it.
                        std::thread::yield_now();
                    } else {
                        std::hint::spin_loop();
                    }
                }
            }
        }
    }

    /// Handles what has come, and sends what is due. Never waits.
    ///
    /// # Errors
    /// [`MonitorError`].
    #[inline]
    pub fn turn(&mut self) -> Result<Found, MonitorError> {
        let mut found = Found::Nothing;
        for which in 0..self.out.rings.len() {
            for _ in 0..FRAMES_PER_TURN {
                if !self.take_frame(which, Selector::any())? {
                    break;
                }
                found = Found::Something;
            }
        }
        if self.out.stuck_count > 0 {
            self.out.look_at_stuck();
        }
        if self.node.flush(&mut self.out) {
            found = Found::Something;
        }
        // A monitor that sleeps waits for its sockets.
        if ticks().wrapping_sub(self.sockets_at) >= self.without_sockets_ticks {
            match self.sockets(Some(Duration::ZERO))? {
                Found::Nothing => {}
                other => found = other,
            }
        }
        Ok(found)
    }

    /// Takes a frame of an endpoint. False if there is none. The selector of the usual way is a constant there.
    #[inline(always)]
    fn take_frame(&mut self, which: usize, wanted: Selector) -> Result<bool, MonitorError> {
        let rings = &mut self.out.rings[which];
        let status = match rings.endpoint.try_receive_into(wanted, &mut *self.buffer) {
            Ok(None) => return Ok(false),
            Ok(Some(status)) => status,
            Err(MessageError::Interrupted) => return Ok(true),
            Err(MessageError::BufferTooSmall { .. }) => return self.cut_long(which, wanted),
            Err(error) if is_about_peer(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.take(which, &status);
        Ok(true)
    }

    /// Gives a frame in the buffer to the node.
    #[inline]
    fn take(&mut self, which: usize, status: &Status) {
        let label = Label::of_word(status.tag);
        let hop = status.immediate.and_then(Hop::of_word);
        let Some(link) = self.out.rings[which].link_of(status.source) else {
            if hop.is_some_and(|hop| hop.kind == Kind::Hello) {
                self.hello(which, status.source, label);
            }
            return;
        };
        let Some(hop) = hop else { return self.cut_link(link, "it sent a frame that is none") };
        let length = usize::try_from(status.bytes).unwrap_or(usize::MAX);
        let payload = self.buffer.get(..length).unwrap_or_default();
        let began = trace::begin();
        let handled = self.node.frame(link, label, hop, payload, &mut self.out);
        if began != 0 {
            self.out.record(began, hop.ordinal, length);
        }
        if let Err(violation) = handled {
            self.cut_link(link, &format!("it sent {violation}"));
        }
    }

    /// Ends the link of a neighbour that has sent what is longer than any frame. False if not all of it has come.
    #[cold]
    fn cut_long(&mut self, which: usize, wanted: Selector) -> Result<bool, MonitorError> {
        let rings = &mut self.out.rings[which];
        let status = match rings.endpoint.now().probe(wanted) {
            Ok(Some(status)) => status,
            Ok(None) => return Ok(false),
            Err(MessageError::Interrupted) => return Ok(true),
            Err(error) if is_about_peer(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        rings.endpoint.discard(Selector::any().from(status.source))?;
        if let Some(link) = rings.link_of(status.source) {
            self.cut_link(link, "it sent a frame that is none");
        }
        Ok(true)
    }

    /// Takes what an endpoint reports, with the peers that have gone. How much it was; less than [`EVENTS_PER_LOOK`] if
    /// nothing is left.
    fn take_events(&mut self, which: usize) -> Result<usize, MonitorError> {
        for taken in 0..EVENTS_PER_LOOK {
            let rings = &mut self.out.rings[which];
            let event = rings.endpoint.now().receive_event_into(Selector::any(), &mut *self.buffer);
            match event {
                Ok(Some(Event::Gone { peer, why })) => {
                    if let Some(link) = self.out.rings[which].link_of(peer) {
                        if let MessageError::PeerCutOff { violation, .. } = &why
                            && let Some(Some(link)) = self.out.links.get_mut(link.index())
                        {
                            link.down = Down::CutOff(format!("its ring holds {violation}"));
                        }
                        self.data_ended(link);
                    }
                }
                Ok(Some(Event::Came(_))) | Err(MessageError::Interrupted) => {}
                Ok(Some(Event::Received(status))) => self.take(which, &status),
                // The rest of it has not come: it is nothing yet.
                Err(MessageError::BufferTooSmall { .. })
                    if !self.cut_long(which, Selector::any())? =>
                {
                    return Ok(taken);
                }
                Err(MessageError::BufferTooSmall { .. }) => {}
                Ok(None) => return Ok(taken),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(EVENTS_PER_LOOK)
    }

    /// Handles what has happened on sockets. Waits for at most `timeout`.
    fn sockets(&mut self, timeout: Option<Duration>) -> Result<Found, MonitorError> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut space = [MaybeUninit::uninit(); EVENTS_MAX];
        let events = match epoll::wait(&self.out.set, &mut space, timeout.as_ref()) {
            Ok((events, _)) => &*events,
            Err(Errno::INTR) => &[],
            Err(error) => return Err(MonitorError::os("wait for descriptors")(error)),
        };
        self.sockets_at = ticks();
        let mut found = Found::Nothing;
        for event in events {
            // The endpoints' descriptors stay readable until they are armed again: the turn finds what has come.
            if !matches!(event.data.u64(), key::RINGS | key::TRUNK) {
                found = Found::Something;
            }
            match event.data.u64() {
                key::LISTENER => self.accept(),
                key::NAMES => self.names_have_changed |= self.names.has_changed(),
                key::WAKE => {
                    if self.take_joined() {
                        return Ok(Found::Stop);
                    }
                }
                key::RINGS | key::TRUNK => {}
                connection => self.serve(connection, event.flags),
            }
        }
        for which in 0..self.out.rings.len() {
            if self.take_events(which)? > 0 {
                found = Found::Something;
            }
        }
        while let Some(key) = self.out.broken.pop() {
            // What it has sent before it broke is read first.
            for _ in 0..64 {
                self.read(key);
            }
            match self.out.connections.get(&key).and_then(|connection| connection.link()) {
                Some(link) if self.out.held.contains(&key) => self.data_ended(link),
                Some(link) => self.cut_link(link, "it does not read what it is sent"),
                None => self.forget(key),
            }
        }
        self.end_links()?;
        for link in std::mem::take(&mut self.out.unneeded) {
            self.link_down(link);
        }
        self.names_have_changed |= self.node.take_unused();
        let now = Instant::now();
        if now.duration_since(self.last_look) >= SLEEP_MAX {
            self.last_look = now;
            self.expire(now);
            self.out.closers.tidy();
            self.give_back();
            self.join_late();
            if !std::mem::take(&mut self.failed).is_empty() {
                self.names_have_changed = true;
            }
        }
        if self.names_have_changed {
            self.join_others();
        }
        Ok(found)
    }

    /// Gives memory back once far fewer circuits are left than there were.
    fn give_back(&mut self) {
        let count = self.node.circuit_count();
        let before = std::mem::replace(&mut self.circuits_before, count);
        self.circuits_most = self.circuits_most.max(count);
        if self.circuits_most >= GIVE_BACK_FROM && count <= self.circuits_most / 2 {
            // Once more at each halving, and at the end if few are left.
            self.circuits_most = if count < before { count.max(GIVE_BACK_FROM) } else { count };
            self.node.give_back_memory();
            corewire_os::process::give_back_memory();
        }
    }

    /// Links whose control lane has ended are down once their data lane is empty: a process that has ended has left no more
    /// than is there now. One that has not ended is not waited for.
    fn end_links(&mut self) -> Result<(), MonitorError> {
        while let Some(link) = self.ending.pop() {
            match self.out.link(link).map(|link| &link.data) {
                Some(&DataLane::Socket { key }) => {
                    self.out.take_no_more(key);
                    while self.out.link(link).is_some() && self.read_frame(key, link) {}
                }
                Some(DataLane::Ring { which, ring }) => {
                    let (which, peer) = (*which, ring.peer());
                    for _ in 0..LEFT_MAX {
                        if self.out.link(link).is_none()
                            || !self.take_frame(which, Selector::any().from(peer))?
                        {
                            break;
                        }
                    }
                }
                None => {}
            }
            self.link_down(link);
        }
        Ok(())
    }

    /// Sleeps until something comes. True if the monitor must end.
    fn sleep(&mut self) -> Result<bool, MonitorError> {
        for rings in &mut self.out.rings {
            match rings.endpoint.arm() {
                Ok(true) => {}
                Ok(false) | Err(MessageError::Interrupted) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        // What came, or found room, before the endpoints were armed.
        let mut has_done = self.out.look_at_stuck();
        for which in 0..self.out.rings.len() {
            has_done |= self.take_events(which)? > 0;
        }
        if has_done {
            return Ok(false);
        }
        Ok(self.sockets(Some(SLEEP_MAX))? == Found::Stop)
    }
}

/// Whether the peer of which frames are wanted has gone, and has left nothing more.
const fn is_about_peer(error: &MessageError) -> bool {
    use MessageError::{PeerCutOff, PeerDied, PeerLeft, PeerLost, UnknownPeer};
    matches!(
        error,
        PeerDied { .. } | PeerLeft { .. } | PeerLost { .. } | PeerCutOff { .. } | UnknownPeer
    )
}

/// The time in ticks of the processor's counter.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn in_ticks(ns: f64) -> u64 {
    (ns / tick_ns()) as u64
}

/// How many ticks sockets are not looked at.
pub(crate) fn without_sockets_ticks() -> u64 {
    in_ticks(WITHOUT_SOCKETS_NS)
}
