//! The thread that accepts connections of a service and reads them: requests of socket clients travel to the service's
//! thread through its mailbox. It sleeps in `epoll`, with all signals blocked, and does nothing for clients in rings.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use corewire::Listener;
use corewire_os::fork::generation;
use corewire_os::packet::SocketError;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

use super::mailbox::{Mail, Mailbox};
use super::socket_client::SocketClient;
use crate::error::ServeError;
use crate::lane::packet::{Assembled, PacketError};

/// The longest message before a client is bound: its interface.
const BIND_BYTES_MAX: u32 = 4 << 20;
/// Connections at one time, with those that have ended and of which something waits for the service's thread.
const CONNECTIONS_MAX: usize = 4096;
/// Connections of one foreign user at one time.
const CONNECTIONS_OF_USER_MAX: usize = 64;
/// Limits of the time to bind: the thread must sleep in between, and the clock must be able to express it.
const BIND_WITHIN: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(366 * 24 * 3600)];
/// Packets of one socket client before the others have their turn.
const PACKETS_PER_TURN: usize = 32;

const LISTENER: u64 = 0;
const END: u64 = 1;

/// The handle of the thread. Dropping it ends the thread.
pub(super) struct SocketThread {
    end: Arc<OwnedFd>,
    generation: u32,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl SocketThread {
    pub(super) fn start(
        listener: Listener,
        mailbox: Arc<Mailbox>,
        bind_within: Duration,
    ) -> Result<Self, ServeError> {
        let set = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (listener_data, end_data) = (EventData::new_u64(LISTENER), EventData::new_u64(END));
        epoll::add(&*set, listener.readiness(), listener_data, EventFlags::IN)?;
        epoll::add(&*set, &*end, end_data, EventFlags::IN)?;
        let bind_within = bind_within.clamp(BIND_WITHIN[0], BIND_WITHIN[1]);
        let (socket_clients, gone) = (HashMap::new(), Vec::new());
        let thread =
            Thread { listener, mailbox, set, bind_within, socket_clients, gone, last_key: END };
        let name = "corewire-sockets".to_owned();
        let spawned = std::thread::Builder::new().name(name).stack_size(512 << 10);
        let thread = spawned.spawn(move || thread.run())?;
        Ok(Self { end, generation: generation(), thread: Some(thread) })
    }
}

impl Drop for SocketThread {
    fn drop(&mut self) {
        // A forked child has no such thread, and must leave its parent's alone.
        if self.generation != generation() {
            return std::mem::forget(self.thread.take());
        }
        let _ = rustix::io::write(&self.end, &1_u64.to_le_bytes());
        // A thread that panicked has reported it.
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

struct Watched {
    socket_client: Arc<SocketClient>,
    /// Until when it must have bound.
    until: Instant,
}

struct Thread {
    listener: Listener,
    mailbox: Arc<Mailbox>,
    set: Arc<OwnedFd>,
    bind_within: Duration,
    socket_clients: HashMap<u64, Watched>,
    /// Socket clients whose connection has ended. They count as long as the service's thread has not handled what they
    /// left, or they have a ring.
    gone: Vec<Weak<SocketClient>>,
    last_key: u64,
}

impl Thread {
    fn run(mut self) {
        corewire_os::process::block_all_signals();
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            let left = self.expire().and_then(|left| Timespec::try_from(left).ok());
            match epoll::wait(
                &*self.set,
                rustix::buffer::spare_capacity(&mut events),
                left.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                // Nothing that can be mended: socket clients are served no longer, and see it.
                Err(_) => return,
            }
            for event in &events {
                match (event.data.u64(), event.flags) {
                    (END, _) => return self.leave(),
                    (LISTENER, _) => self.accept(),
                    (key, flags) => self.serve(key, flags),
                }
            }
        }
    }

    /// Closes connections that have not sent their interface in time. One that the service has accepted since may have
    /// said how it speaks, in a ring that the service has not read: the service decides. Returns the time until the next
    /// one.
    fn expire(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let unbound = |one: &Watched| !one.socket_client.is_bound();
        let late = |one: &Watched| unbound(one) && one.until <= now;
        let keys = self.socket_clients.iter().filter(|(_, one)| late(one)).map(|(key, _)| *key);
        for key in keys.collect::<Vec<_>>() {
            let Some(watched) = self.socket_clients.get_mut(&key) else { continue };
            if watched.socket_client.is_silent() {
                self.remove(key);
            } else {
                watched.until = now + self.bind_within;
                if watched.socket_client.must_report_late() {
                    let _ = self
                        .mailbox
                        .put(Mail::SocketClientLate(Arc::clone(&watched.socket_client)));
                }
            }
        }
        let waiting =
            self.socket_clients.values().filter(|one| unbound(one)).map(|one| one.until).min();
        waiting.map(|until| until.saturating_duration_since(now))
    }

    fn accept(&mut self) {
        while let Ok(Some(connection)) = self.listener.try_accept() {
            if !self.has_room_for(connection.uid()) {
                let socket_client = SocketClient::new(0, connection, &self.set, 0);
                socket_client.refuse("the service has as many connections as it can have");
                continue;
            }
            self.last_key += 1;
            let socket_client =
                SocketClient::new(self.last_key, connection, &self.set, BIND_BYTES_MAX);
            let flags = EventFlags::IN | EventFlags::RDHUP;
            let data = EventData::new_u64(socket_client.key);
            if epoll::add(&*self.set, socket_client.socket(), data, flags).is_ok() {
                let (key, until) = (socket_client.key, Instant::now() + self.bind_within);
                self.socket_clients
                    .insert(key, Watched { socket_client: Arc::new(socket_client), until });
            }
        }
    }

    fn has_room_for(&mut self, uid: u32) -> bool {
        self.gone.retain(|socket_client| socket_client.strong_count() > 0);
        let is_foreign = uid != rustix::process::geteuid().as_raw();
        let gone = self
            .gone
            .iter()
            .filter_map(Weak::upgrade)
            .map(|socket_client| socket_client.identity.uid);
        let here = self.socket_clients.values().map(|one| one.socket_client.identity.uid);
        let of_user = here.chain(gone).filter(|found| *found == uid).count();
        self.socket_clients.len() + self.gone.len() < CONNECTIONS_MAX
            && (!is_foreign || of_user < CONNECTIONS_OF_USER_MAX)
    }

    fn serve(&mut self, key: u64, flags: EventFlags) {
        let Some(watched) = self.socket_clients.get(&key) else { return };
        let socket_client = Arc::clone(&watched.socket_client);
        if flags.contains(EventFlags::OUT) && !socket_client.flush() {
            return self.remove(key);
        }
        // A connection that the service ends reports `RDHUP` too, while its reason still waits to be sent.
        let is_ended = flags.intersects(EventFlags::HUP | EventFlags::ERR)
            || flags.contains(EventFlags::RDHUP) && !socket_client.is_ending();
        if is_ended && !socket_client.is_read() {
            return self.remove(key);
        }
        for _ in 0..PACKETS_PER_TURN {
            // One that has gone has left no more than its socket holds, which is handled in any case.
            if !socket_client.is_read() || !is_ended && socket_client.is_full() {
                return;
            }
            match self.read(&socket_client) {
                Ok(()) => {}
                Err(SocketError::NotNow) if !is_ended => return,
                // The service has ended it meanwhile, with a reason that may still wait to be sent.
                Err(SocketError::Closed) if !is_ended && !socket_client.is_read() => return,
                Err(_) => return self.remove(key),
            }
        }
    }

    fn read(&self, socket_client: &Arc<SocketClient>) -> Result<(), SocketError> {
        let mut reading = socket_client.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = &mut *reading;
        if !socket_client.is_read() {
            return Err(SocketError::NotNow);
        }
        let received = match reading.receiver.receive(socket_client.socket()) {
            // The service's thread has shut it meanwhile, and its reason may be on its way.
            Err(_) if !socket_client.is_read() => return Err(SocketError::NotNow),
            received => received,
        };
        let (packet, descriptors) = received?;
        match reading.assembler.take(packet, descriptors) {
            Ok(Assembled::Nothing) => Ok(()),
            Ok(Assembled::Message(message)) => {
                socket_client.add_unhandled(&message);
                let mail = Mail::SocketClient(Arc::clone(socket_client), message);
                self.mailbox.put(mail).map_err(|_| {
                    socket_client.leave();
                    SocketError::Closed
                })
            }
            Ok(Assembled::Capabilities(..)) => Err(cut(socket_client, PacketError::Order)),
            Err(error) => Err(cut(socket_client, error)),
        }
    }

    fn remove(&mut self, key: u64) {
        if let Some(Watched { socket_client, .. }) = self.socket_clients.remove(&key) {
            // It is closed once nobody uses it.
            let _ = epoll::delete(&*self.set, socket_client.socket());
            let _ = rustix::net::shutdown(socket_client.socket(), rustix::net::Shutdown::Both);
            self.gone.push(Arc::downgrade(&socket_client));
            let _ = self.mailbox.put(Mail::SocketClientGone(socket_client));
        }
    }

    /// The service ends, and says so.
    fn leave(self) {
        self.socket_clients
            .values()
            .for_each(|Watched { socket_client, .. }| socket_client.leave());
    }
}

fn cut(socket_client: &SocketClient, error: PacketError) -> SocketError {
    socket_client.refuse(&format!("it sent {error}"));
    SocketError::Closed
}
