//! The thread that reads a program's control lane, and its data lane if that is a socket of a service. It sleeps in
//! `poll` with all signals blocked.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corewire::Connection;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::socket::{ControlLane, DATA_BYTES_MAX, LaneEnd, receive_frame};
use super::trace;
use crate::wire::packet::Packet;
use crate::wire::{Hop, Label, data_of_packet};

/// What has come from the monitor.
#[derive(Debug)]
pub enum MonitorEvent {
    /// A packet with its descriptors, `None` of these if this process could not take them.
    Packet(Packet, Option<Vec<OwnedFd>>),
    /// A frame of a data lane that is a socket.
    Frame(Label, Hop, Vec<u8>),
    /// There is room on such a socket.
    Room,
    /// The monitor has ended, or does what it must not.
    Lost(String),
}

/// Packets and frames of a monitor that may wait for the program.
pub const EVENTS_MAX: usize = 4096;

/// How many descriptors this process can have open.
#[must_use]
pub fn descriptors_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// How much of what a monitor has sent waits for the program. While it is too much the thread reads no more: half of the
/// descriptors that this process can open may wait.
#[derive(Debug, Default)]
pub struct Load {
    news_count: usize,
    descriptor_count: usize,
}

impl Load {
    const fn descriptors_of(news: &MonitorEvent) -> usize {
        match news {
            MonitorEvent::Packet(_, Some(rights)) => rights.len(),
            _ => 0,
        }
    }

    /// Whether one more may wait.
    #[must_use]
    pub fn has_room_for(&self, news: &MonitorEvent) -> bool {
        let (count, waiting) = (Self::descriptors_of(news), self.descriptor_count);
        let is_too_much = count > 0 && waiting > 0 && waiting + count > descriptors_max() / 2;
        self.news_count < EVENTS_MAX && !is_too_much
    }

    /// One more waits.
    pub const fn add(&mut self, news: &MonitorEvent) {
        self.news_count += 1;
        self.descriptor_count += Self::descriptors_of(news);
    }

    /// That of one alone.
    #[must_use]
    pub const fn of(news: &MonitorEvent) -> Self {
        Self { news_count: 1, descriptor_count: Self::descriptors_of(news) }
    }

    /// One of this load waits no longer. True if the thread must look again whether there is room.
    #[must_use]
    pub const fn remove(&mut self, one: Self) -> bool {
        self.news_count -= one.news_count;
        self.descriptor_count -= one.descriptor_count;
        self.news_count == EVENTS_MAX / 2 || one.descriptor_count > 0
    }
}

/// The control lane of a link, from any thread.
pub struct Control {
    lane: Mutex<ControlLane<Connection>>,
    wake: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    must_end: bool,
    /// The data lane has no room.
    is_data_full: bool,
    /// The monitor has asked for a trace.
    is_traced: bool,
    /// The monitor has not read what was sent, and some of it is lost.
    unread: Option<String>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl Control {
    /// The control lane of a new link. [`run`](Self::run) reads it.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(lane: ControlLane<Connection>) -> Result<Arc<Self>, Errno> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { lane: Mutex::new(lane), wake, state: Mutex::default() }))
    }

    /// Sends a packet, or keeps it until there is room. What is wrong with the socket the thread sees. False if the
    /// kernel does not pass the descriptors: then nothing was sent.
    pub fn send(&self, packet: &Packet, descriptors: Vec<OwnedFd>) -> bool {
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread that does so otherwise may wait for the program.
        let _ = lane.flush();
        let sent = lane.send_whole(packet, descriptors);
        let must_watch = sent.is_err() || lane.has_unsent();
        drop(lane);
        if let Err(end @ LaneEnd::Unread { .. }) = &sent {
            // The packet is lost: the link must not go on without it.
            let mut state = self.lock_state();
            state.unread.get_or_insert_with(|| end.to_string());
        }
        if must_watch {
            self.wake();
        }
        !matches!(sent, Err(LaneEnd::Descriptors(_)))
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_le_bytes());
    }

    /// There was no room on the data lane's socket: tells when there is.
    pub fn wait_for_room(&self) {
        self.lock_state().is_data_full = true;
        self.wake();
    }

    /// Ends the thread, after saying that the link is closed.
    pub fn end(&self) {
        self.send(&Packet::Leave, Vec::new());
        self.lock_state().must_end = true;
        self.wake();
    }

    /// Starts or stops recording, as the monitor asks. A monitor of another user is not obeyed.
    fn trace(&self, is_on: bool) {
        let uid = self.lane.lock().unwrap_or_else(PoisonError::into_inner).socket().uid();
        if uid != corewire_os::process::effective_uid() {
            return;
        }
        // Only this thread looks at it.
        let was_on = self.lock_state().is_traced;
        match (was_on, is_on) {
            (true, false) => trace::stop(),
            (false, true) => match trace::start(&trace::own_name()) {
                Ok(memory) => _ = self.send(&Packet::Traced, vec![memory]),
                Err(_) => return,
            },
            _ => {}
        }
        self.lock_state().is_traced = is_on;
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads until the link has ended. `told` is told of everything that comes, the end last, unless this process has
    /// ended it.
    pub fn run(&self, data: Option<&Connection>, put: impl FnMut(MonitorEvent)) {
        self.read(data, put);
        self.trace(false);
    }

    fn read(&self, data: Option<&Connection>, mut put: impl FnMut(MonitorEvent)) {
        let socket = {
            let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
            rustix::io::fcntl_dupfd_cloexec(lane.socket(), 0)
        };
        let Ok(socket) = socket else {
            return put(MonitorEvent::Lost("no descriptor is left".to_owned()));
        };
        let mut buffer = Box::new([0; DATA_BYTES_MAX + 1]);
        loop {
            let (must_end, is_data_full, unread) = {
                let mut state = self.lock_state();
                (state.must_end, state.is_data_full, state.unread.take())
            };
            if let Some(unread) = unread {
                return put(MonitorEvent::Lost(unread));
            }
            let has_unsent = {
                let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
                match lane.flush() {
                    Ok(is_all_sent) => !is_all_sent,
                    Err(end) => return put(MonitorEvent::Lost(end.to_string())),
                }
            };
            if must_end && !has_unsent {
                let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
                return;
            }
            let out = |wanted| if wanted { PollFlags::OUT } else { PollFlags::empty() };
            let mut all = vec![
                PollFd::new(&self.wake, PollFlags::IN),
                PollFd::new(&socket, PollFlags::IN | out(has_unsent)),
            ];
            all.extend(data.map(|data| PollFd::new(data, PollFlags::IN | out(is_data_full))));
            match poll(&mut all, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return put(MonitorEvent::Lost("poll failed".to_owned())),
            }
            let seen = all.iter().map(PollFd::revents).collect::<Vec<_>>();
            drop(all);
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            if seen.get(2).is_some_and(|seen| seen.contains(PollFlags::OUT)) {
                self.lock_state().is_data_full = false;
                put(MonitorEvent::Room);
            }
            // What a monitor has sent before it ended comes first.
            let ended = data.and_then(|data| read_frames(data, &mut buffer, &mut put).err());
            loop {
                let received = self.lane.lock().unwrap_or_else(PoisonError::into_inner).receive();
                match received {
                    Ok(None) => break,
                    Ok(Some((Packet::Trace { is_on }, _))) => self.trace(is_on),
                    Ok(Some((packet, descriptors))) => {
                        put(MonitorEvent::Packet(packet, descriptors))
                    }
                    Err(_) if must_end => return,
                    Err(end) => {
                        // What has come since the data lane was read, and before the end.
                        if let Some(data) = data {
                            let _ = rustix::net::shutdown(data, rustix::net::Shutdown::Read);
                            let _ = read_frames(data, &mut buffer, &mut put);
                        }
                        return put(MonitorEvent::Lost(end.to_string()));
                    }
                }
            }
            if let Some(end) = ended {
                return put(MonitorEvent::Lost(end.to_string()));
            }
        }
    }
}

fn read_frames(
    data: &Connection,
    buffer: &mut [u8; DATA_BYTES_MAX + 1],
    put: &mut impl FnMut(MonitorEvent),
) -> Result<(), LaneEnd> {
    while let Some(length) = receive_frame(data, buffer, &mut Vec::new())? {
        let frame = buffer.get(..length).and_then(data_of_packet);
        let (label, hop, payload) = frame.ok_or(LaneEnd::Os(Errno::PROTO.raw_os_error()))?;
        put(MonitorEvent::Frame(label, hop, payload.to_vec()));
    }
    Ok(())
}
