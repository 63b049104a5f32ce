//! What other threads of its process leave for a service: messages from sockets, and what the program wants sent. A
//! thread that puts something into an empty mailbox interrupts the service's endpoint, where the service waits.

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use corewire::{Connection, Interrupter, MessageError};
use corewire_circuit::link::control::{Control, Load, MonitorEvent};
use corewire_os::fork::generation;
use corewire_os::report::Report;

use super::client_id::ClientId;
use super::later::{LaterEvent, LaterMessage};
use super::socket_client::SocketClient;
use crate::error::CallError;
use crate::exchange::Description;
use crate::message::Message;

/// Bytes of events that wait for the service's thread.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// What the service's thread is told of a new link.
pub(super) struct NewLink {
    pub(super) control: Arc<Control>,
    pub(super) data: LinkData,
}

/// Its data lane.
pub(super) enum LinkData {
    /// A ring to this endpoint, in which the service must say hello.
    Ring {
        endpoint: String,
        secret: u64,
    },
    Socket(Arc<Connection>),
}

/// What a mailbox holds.
pub(super) enum Mail {
    /// Something came on a socket. The first message binds.
    SocketClient(Arc<SocketClient>, Message),
    /// Everything that a socket client had sent has been handled.
    SocketClientGone(Arc<SocketClient>),
    /// A socket client has not said in time how it speaks.
    SocketClientLate(Arc<SocketClient>),
    /// A monitor has accepted the service as its neighbour.
    Link(Box<NewLink>),
    /// Something has come from the monitor.
    MonitorEvent(Arc<Control>, MonitorEvent),
    /// A reply.
    Reply(ClientId, LaterMessage),
    /// To one client, or to all of them.
    Event(Option<ClientId>, LaterEvent),
}

#[derive(Default)]
struct Queue {
    mail: VecDeque<Mail>,
    event_bytes: usize,
    /// What a monitor has sent of it.
    news: Load,
    is_notified: bool,
    is_stopped: bool,
    is_closed: bool,
}

/// What other threads of this process leave for a service.
pub(crate) struct Mailbox {
    name: String,
    /// Of the process that serves: a forked child must leave its parent alone.
    generation: u32,
    description: &'static Description<'static>,
    queue: Mutex<Queue>,
    /// Who is told what the service's users should know, and of which messages it knows already.
    report: Report,
    reported: Mutex<HashSet<u16>>,
    /// Half of what a monitor has sent has been taken, or some of its descriptors.
    news_taken: Condvar,
    interrupter: Interrupter,
}

thread_local! {
    /// The mailbox of the service of which this thread runs a handler, as a number.
    static SERVING: Cell<usize> = const { Cell::new(0) };
}

/// The handler has returned.
#[inline(always)]
pub(super) fn end_serving(outside: usize) {
    SERVING.set(outside);
}

/// What [`Mailbox::take`] found.
pub(super) enum Taken {
    Mail(Mail),
    Stop,
    Nothing,
}

impl Mailbox {
    pub(super) fn new(
        name: &str,
        description: &'static Description<'static>,
        interrupter: Interrupter,
        report: Report,
    ) -> Arc<Self> {
        let (name, queue, reported) = (name.to_owned(), Mutex::default(), Mutex::default());
        let (generation, news_taken) = (generation(), Condvar::new());
        Arc::new(Self {
            name,
            generation,
            description,
            queue,
            report,
            reported,
            news_taken,
            interrupter,
        })
    }

    /// Notes that this thread runs a handler of this service. Gives what it ran before, for [`end_serving`].
    #[inline(always)]
    pub(super) fn begin_serving(&self) -> usize {
        SERVING.replace(std::ptr::from_ref(self).addr())
    }

    /// Whether this thread runs a handler of this service: then it must not wait for what only the service does.
    pub(super) fn is_serving_here(&self) -> bool {
        SERVING.get() == std::ptr::from_ref(self).addr()
    }

    /// Whether a reply was sent. If not, says why, once for each request of the interface: a client may ask often.
    #[inline]
    pub(super) fn is_sent(&self, ordinal: u16, sent: &Result<(), CallError>) -> bool {
        match sent {
            Ok(()) => true,
            Err(error) => self.not_sent(ordinal, error),
        }
    }

    #[cold]
    fn not_sent(&self, ordinal: u16, error: &CallError) -> bool {
        if self.reported.lock().unwrap_or_else(PoisonError::into_inner).insert(ordinal) {
            let name = self.description.request_of(ordinal);
            let text = format!(
                "service {}: a reply to `{name}` was not sent, which its caller was told: {error}. Others like it are not \
                 reported",
                self.name
            );
            (self.report.0)(&text);
        }
        false
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn description(&self) -> &'static Description<'static> {
        self.description
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, mut queue: MutexGuard<'_, Queue>) {
        let was_notified = std::mem::replace(&mut queue.is_notified, true);
        drop(queue);
        if !was_notified {
            self.interrupter.interrupt();
        }
    }

    pub(super) fn check(&self) -> Result<(), CallError> {
        match self.is_ours() {
            true => Ok(()),
            false => Err(CallError::Message(MessageError::Forked)),
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        self.generation == generation()
    }

    fn left(&self) -> CallError {
        CallError::PeerLeft { name: self.name.clone() }
    }

    /// Leaves something that never waits for room.
    pub(super) fn put(&self, mail: Mail) -> Result<(), CallError> {
        self.check()?;
        let mut queue = self.lock();
        if queue.is_closed {
            return Err(self.left());
        }
        queue.mail.push_back(mail);
        self.notify(queue);
        Ok(())
    }

    /// Leaves what a monitor has sent. Waits while the service's thread is far behind, so that no more is read meanwhile:
    /// half of the descriptors that this process can open may wait here.
    pub(super) fn put_news(&self, control: &Arc<Control>, news: MonitorEvent) {
        let mut queue = self.lock();
        while !queue.news.has_room_for(&news) && !queue.is_closed {
            queue = self.news_taken.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if !queue.is_closed {
            queue.news.add(&news);
            queue.mail.push_back(Mail::MonitorEvent(Arc::clone(control), news));
            self.notify(queue);
        }
    }

    /// Leaves an event. [`CallError::Busy`] if the service's thread is far behind.
    pub(super) fn put_event(
        &self,
        to: Option<ClientId>,
        event: LaterEvent,
    ) -> Result<(), CallError> {
        self.check()?;
        let mut queue = self.lock();
        if queue.is_closed {
            return Err(self.left());
        }
        if queue.event_bytes + event.cost_bytes() > EVENT_BYTES_MAX && queue.event_bytes > 0 {
            return Err(CallError::Busy);
        }
        queue.event_bytes += event.cost_bytes();
        queue.mail.push_back(Mail::Event(to, event));
        self.notify(queue);
        Ok(())
    }

    /// Takes what came first. Once there is nothing, the next one to leave something interrupts the service again.
    pub(super) fn take(&self) -> Taken {
        let mut queue = self.lock();
        if std::mem::take(&mut queue.is_stopped) {
            return Taken::Stop;
        }
        let Some(mail) = queue.mail.pop_front() else {
            queue.is_notified = false;
            return Taken::Nothing;
        };
        match &mail {
            Mail::Event(_, event) => queue.event_bytes -= event.cost_bytes(),
            Mail::MonitorEvent(_, news) => {
                let has_room = queue.news.remove(Load::of(news));
                has_room.then(|| self.news_taken.notify_all());
            }
            _ => {}
        }
        Taken::Mail(mail)
    }

    pub(super) fn stop(&self) {
        if !self.is_ours() {
            return;
        }
        let mut queue = self.lock();
        queue.is_stopped = true;
        self.notify(queue);
    }

    /// Nothing more is taken.
    pub(super) fn close(&self) {
        // Another thread of the parent may have had the lock.
        if !self.is_ours() {
            return;
        }
        let mut queue = self.lock();
        queue.is_closed = true;
        let left = std::mem::take(&mut queue.mail);
        drop(queue);
        self.news_taken.notify_all();
        drop(left);
    }
}
