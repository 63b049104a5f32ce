//! A service: what it is set up with, and what it has.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use corewire::{Domain, OwnedMessage, Status, Wait};
use corewire_circuit::link::attach::MonitorAt;
use corewire_os::report::Report;

use super::client_id::ClientId;
use super::exporter::Exporter;
use super::mailbox::Mailbox;
use super::reply::{Outbox, Stopper};
use super::sending::Sending;
use super::socket_thread::SocketThread;
use crate::capability::Received;
use crate::error::ServeError;
use crate::exchange::{Description, SERVICE_NAME_BYTES_MAX};
use crate::identity::Identity;
use crate::message::{BUFFER_BYTES, DECODED_BYTES_MAX, Message};
use crate::reactor::{Given, Reactor, of_async_io};
use crate::totals::MethodTotals;

/// How a service is set up.
///
/// ```
/// use corewire_bind::{Serve, Wait};
///
/// let serve = Serve::default().clients(64).wait(Wait::Park);
/// ```
#[derive(Debug, Clone)]
#[must_use = "a service is created with it"]
pub struct Serve {
    wait: Wait,
    clients_max: usize,
    bind_within: Duration,
    decoded_bytes_max: usize,
    monitor: Option<MonitorAt>,
    report: Report,
    reactor: Option<Given>,
    #[cfg(feature = "net")]
    listen: Vec<String>,
}

impl Default for Serve {
    fn default() -> Self {
        Self {
            wait: Wait::default(),
            clients_max: 1024,
            bind_within: Duration::from_secs(10),
            decoded_bytes_max: DECODED_BYTES_MAX,
            monitor: Some(MonitorAt::default()),
            report: Report::standard_error(),
            reactor: None,
            #[cfg(feature = "net")]
            listen: Vec::new(),
        }
    }
}

impl Serve {
    /// Takes clients of other hosts at this address, `address:port`, and a port of its own. Without it they reach the service
    /// through `corewire monitor --listen`, if that runs here. Which hosts may do so the file of hosts says:
    /// [`EndpointBuilder::hosts`](corewire::EndpointBuilder::hosts).
    #[cfg(feature = "net")]
    pub fn listen(mut self, address: &str) -> Self {
        self.listen.push(address.into());
        self
    }

    /// Sets how the service's thread waits. Default: [`Wait::Adaptive`].
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Sets how many clients may be bound at one time. At most 1024 of them use rings, at most 65,534 rings or sockets,
    /// and others circuits. Default: 1024.
    pub fn clients(mut self, count_max: usize) -> Self {
        self.clients_max = count_max;
        self
    }

    /// Sets how much memory what is decoded of one message may take, if the message has elements of variable size. One
    /// that would take more is refused before the memory is allocated. Default: 256 MiB.
    pub fn decoded_bytes(mut self, bytes_max: usize) -> Self {
        self.decoded_bytes_max = bytes_max;
        self
    }

    /// Sets where the monitor is at which the service can be reached by circuits; `None` if it shall not be. The service
    /// goes there as soon as the monitor runs. Default: [`MonitorAt::default`].
    pub fn monitor(mut self, monitor: Option<MonitorAt>) -> Self {
        self.monitor = monitor;
        self
    }

    /// Calls `report` with a sentence when something happens that does not end the service, and that its users should
    /// know: the monitor's policy does not let it be reached by circuits, or does again; a reply could not be sent, because
    /// an argument is longer than its bound, for example. Any thread may call it. By default the sentence is written to
    /// standard error.
    pub fn report(mut self, report: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.report = Report(Arc::new(report));
        self
    }

    /// Sets where `serve_async` waits. Default: in the reactor of `async-io`, which has a thread of its own.
    pub fn reactor(mut self, reactor: Reactor) -> Self {
        self.reactor = Some(Given(reactor));
        self
    }

    /// Sets how long a connection may take to send its interface, and then to say how it speaks. Without that it is
    /// closed: in the second case after two or three times as long, since what it has said may wait in a ring that the
    /// service has not read. Default: 10 seconds.
    pub fn bind_within(mut self, time: Duration) -> Self {
        self.bind_within = time;
        self
    }
}

/// A service's end of all its connections, for generated code.
pub struct ServerCore {
    pub(super) sending: Sending,
    pub(super) mailbox: Arc<Mailbox>,
    /// Reads sockets until it is dropped.
    _porter: SocketThread,
    /// Keeps the service at its monitor until it is dropped.
    exporter: Option<Exporter>,
    pub(super) clients_max: usize,
    pub(super) has_mail: bool,
    /// Whether the mailbox had its turn last.
    pub(super) was_mail: bool,
    pub(super) was_stopped: bool,
    pub(super) refused_count: u64,
    pub(super) reactor: Reactor,
    /// Where messages are received that fit.
    pub(super) buffer: Box<[u8; BUFFER_BYTES]>,
    /// The capabilities of messages that have none: always empty. One for all of them, since dropping an empty one costs 20
    /// instructions a message.
    pub(super) no_capabilities: Vec<Received>,
}

/// What [`ServerCore::next`] found.
pub(super) enum Found {
    Bound(ClientId, Identity),
    Gone(ClientId),
    NotTaken(ClientId, u16),
    /// Much that is not for the program, and there may be more.
    Other,
    /// Its bytes are at the beginning of the buffer.
    Buffered(ClientId, Status, Vec<Received>),
    Owned(ClientId, OwnedMessage, Vec<Received>),
    Message(ClientId, Message),
}

impl ServerCore {
    /// Creates the service: a listener of this name, and an endpoint for rings.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn new(
        domain: &Domain,
        name: &str,
        serve: Serve,
        description: &'static Description<'static>,
    ) -> Result<Self, ServeError> {
        if name.len() > SERVICE_NAME_BYTES_MAX {
            return Err(ServeError::NameTooLong { asked: name.len() });
        }
        if let Some(Err(text)) = serve.monitor.as_ref().map(MonitorAt::check) {
            return Err(ServeError::MonitorVariable(text));
        }
        // The name is taken first: its errors say what is wrong with it.
        let listener = domain.listener(name)?;
        // Two more: the monitor, and one that has started again before the first is forgotten.
        let peers = serve.clients_max.saturating_add(2).clamp(1, 1024);
        let endpoint = domain.endpoint(&format!("{name}.rings")).wait(serve.wait).peers(peers);
        #[cfg(feature = "net")]
        let endpoint = serve.listen.iter().fold(endpoint, |endpoint, at| endpoint.listen(at));
        let endpoint = endpoint.create()?;
        let report = serve.report.clone();
        let mailbox = Mailbox::new(name, description, endpoint.interrupter(), report);
        let socket_thread = SocketThread::start(listener, Arc::clone(&mailbox), serve.bind_within)?;
        let exporter = match serve.monitor {
            Some(at) => {
                let (mailbox, connector) = (Arc::clone(&mailbox), endpoint.connector());
                Some(Exporter::start(domain, at, mailbox, connector, serve.report)?)
            }
            None => None,
        };
        Ok(Self {
            sending: Sending::new(endpoint, Arc::clone(&mailbox), serve.decoded_bytes_max),
            mailbox,
            _porter: socket_thread,
            exporter,
            clients_max: serve.clients_max,
            has_mail: false,
            was_mail: false,
            was_stopped: false,
            refused_count: 0,
            reactor: serve.reactor.map_or_else(of_async_io, |given| given.0),
            buffer: Box::new([0; BUFFER_BYTES]),
            no_capabilities: Vec::new(),
        })
    }

    /// Messages of clients that could not be decoded, that no binding belongs to, or that the interface does not have.
    #[must_use]
    pub const fn refused_count(&self) -> u64 {
        self.refused_count
    }

    /// What it has served since it began, of each method that was called, in the order of the interface file.
    pub fn totals(&self) -> impl Iterator<Item = &MethodTotals> {
        self.sending.totals.called()
    }

    /// A handle that ends [`serve_one`](Self::serve_one) from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.mailbox))
    }

    /// A handle that sends messages to clients, from any thread.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        Outbox(Arc::clone(&self.mailbox))
    }

    /// The clients that are bound now, with their processes.
    pub fn clients(&self) -> impl Iterator<Item = (ClientId, Identity)> {
        self.sending.clients.bound().map(|row| (row.id, row.identity))
    }
}

impl Drop for ServerCore {
    fn drop(&mut self) {
        self.sending.finish_circuits();
        // Clients in rings see the end of the endpoint, those on sockets a note of the socket thread. The monitor is
        // told first: it sees the end of the endpoint, too, and tells those with circuits.
        self.exporter = None;
        self.mailbox.close();
    }
}

impl fmt::Debug for ServerCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCore")
            .field("name", &self.mailbox.name())
            .field("interface", &self.mailbox.description().name)
            .finish_non_exhaustive()
    }
}
