//! How a client finds its service: drivers, one after the other.

use std::time::Duration;

use corewire::{Connection, Domain, Endpoint, Selector};
use corewire_circuit::ends::Ended;
use corewire_circuit::link::attach::MonitorAt;
use corewire_circuit::link::hub::{CircuitError, Hub, Opening};
use corewire_circuit::patience::Patience;
use corewire_circuit::wire::NodeId;
use corewire_circuit::wire::packet::{End, OFFER_BYTES_MAX, Origin};
use corewire_idl::form::Interface;

use super::link::ClientLink;
use super::versions::conflicts;
use super::{Binding, Bound, Limits};
use crate::capability::Capabilities;
use crate::driver::Driver;
use crate::error::{BindError, BindReason, CallError};
use crate::exchange::{Acceptance, Description, Forms, hello};
use crate::identity::Identity;
use crate::introspection::Introspection;
use crate::lane::backlog::WAITING_BYTES_MAX;
use crate::lane::{CircuitLink, RingLink, SocketLink};
use crate::message::{BUFFER_BYTES, DECODED_BYTES_MAX};
use crate::question::ask;
use crate::random::random_u64;
use crate::reactor::{Given, Reactor, of_async_io};
use crate::tag::{Control, Tag};

/// How a client binds. The default tries all drivers in the order of [`Driver::ALL`], and waits for 10 seconds for a
/// service to appear.
///
/// ```
/// use std::time::Duration;
/// use corewire_bind::{Bind, Driver};
///
/// let bind = Bind::default().drivers([Driver::Ump]).timeout(Duration::from_secs(1));
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is bound before `connect`"]
pub struct Bind {
    drivers: Vec<Driver>,
    timeout: Duration,
    event_bytes_max: usize,
    decoded_bytes_max: usize,
    /// The core on which the client runs, if another thread binds for it.
    core: Option<usize>,
    monitor: MonitorAt,
    reactor: Option<Given>,
}

impl Default for Bind {
    fn default() -> Self {
        let (drivers, timeout) = (Driver::ALL.to_vec(), Duration::from_secs(10));
        let monitor = MonitorAt::default();
        let (event_bytes_max, decoded_bytes_max) = (WAITING_BYTES_MAX, DECODED_BYTES_MAX);
        let (core, reactor) = (None, None);
        Self { drivers, timeout, event_bytes_max, decoded_bytes_max, core, monitor, reactor }
    }
}

impl Bind {
    /// Sets the drivers to try, in this order.
    pub fn drivers(mut self, drivers: impl IntoIterator<Item = Driver>) -> Self {
        self.drivers = drivers.into_iter().collect();
        self
    }

    /// Tries a circuit through monitors before a ring or a socket of its own, unless the service is in this process or on
    /// this core. This is Barrelfish's flag `IDC_BIND_FLAG_MULTIHOP` (Grest, section 4.1).
    pub fn multi_hop(mut self, is_first: bool) -> Self {
        self.drivers = if is_first { Driver::MULTI_HOP } else { Driver::ALL }.to_vec();
        self
    }

    /// Sets where the monitor is, for circuits.
    pub fn monitor(mut self, monitor: MonitorAt) -> Self {
        self.monitor = monitor;
        self
    }

    /// Sets how long binding may take, with all drivers together: until the service exists and has answered. A ring
    /// with a process that is stopped may take 10 seconds more.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how many bytes of events the client keeps that the program has not taken, each counted with 256 more.
    /// Events beyond that are left out, and the program is told where they are missing; one of any length is kept.
    /// Default: 1 MiB.
    pub fn event_bytes(mut self, bytes_max: usize) -> Self {
        self.event_bytes_max = bytes_max;
        self
    }

    /// Sets how much memory what is decoded of one message may take, if the message has elements of variable size. One
    /// that would take more is refused before the memory is allocated. Default: 256 MiB.
    pub fn decoded_bytes(mut self, bytes_max: usize) -> Self {
        self.decoded_bytes_max = bytes_max;
        self
    }

    /// Sets where the tasks of an `AsyncClient` wait. Default: in the reactor of `async-io`, which has a thread of its own.
    /// `corewire_tokio::bind()` sets that of tokio.
    pub fn reactor(mut self, reactor: Reactor) -> Self {
        self.reactor = Some(Given(reactor));
        self
    }

    pub(super) fn reactor_of_tasks(&self) -> Reactor {
        self.reactor.clone().map_or_else(of_async_io, |given| given.0)
    }

    /// Lets another thread bind for a client that runs on this core: what `lmp` compares.
    pub(crate) fn on_core(mut self, core: usize) -> Self {
        self.core = Some(core);
        self
    }

    /// Those that can reach a service of this name: one with a host is no service of this machine. All, if none can.
    fn drivers_for(&self, service: &str) -> Vec<Driver> {
        let can = |driver: &Driver| match (service.contains('@'), driver) {
            (_, Driver::Circuit) => true,
            (has_host, Driver::Net) => has_host,
            (has_host, _) => !has_host,
        };
        let found: Vec<_> = self.drivers.iter().copied().filter(can).collect();
        if found.is_empty() { self.drivers.clone() } else { found }
    }

    /// Binds to the service of this name. For generated code. Waits until the service exists and has answered.
    ///
    /// # Errors
    /// [`BindError`] with the reason of each driver.
    pub fn connect(
        &self,
        domain: &Domain,
        service: &str,
        own: &Description<'_>,
    ) -> Result<Binding, BindError> {
        let until = Patience::of(Some(self.timeout));
        // A service that is not here may be behind a monitor: then nobody waits for the one before asking the other.
        let monitors = self.monitor.domain_or(domain);
        let may_be_far = self.drivers.contains(&Driver::Circuit)
            && (self.drivers.len() == 1 || self.monitor.find(monitors).is_some());
        let mut names_within = may_be_far.then_some(Duration::ZERO);
        let mut before = Vec::new();
        loop {
            let mut tried = Vec::new();
            let mut attempt =
                Attempt { bind: self, domain, service, own, until, met: None, names_within };
            for driver in self.drivers_for(service) {
                match attempt.by(driver) {
                    Ok(binding) => return Ok(binding),
                    Err(reason) => {
                        if let Some(reason) = attempt.other_version(&reason) {
                            let (service, tried) = (service.to_owned(), vec![(driver, reason)]);
                            return Err(BindError { service, tried });
                        }
                        tried.push((driver, reason));
                    }
                }
            }
            let is_absent = |(_, reason): &(Driver, BindReason)| reason.is_absence();
            if !may_be_far || until.left().is_err() || !tried.iter().all(is_absent) {
                // The time was over during the last attempt: the one before says why.
                let is_late = |(_, reason): &(Driver, BindReason)| {
                    matches!(reason, BindReason::Call(CallError::Timeout { .. }))
                };
                if !before.is_empty() && tried.iter().any(is_late) {
                    tried = before;
                }
                return Err(BindError { service: service.to_owned(), tried });
            }
            before = tried;
            if self.drivers.len() == 1 {
                std::thread::park_timeout(LOOK_AGAIN);
            }
            names_within = Some(LOOK_AGAIN);
        }
    }
}

/// How long a service that refuses a client may take to say what its interface is.
const EXPLAINED_WITHIN: Duration = Duration::from_secs(1);

/// A service's description of its interface is compared up to this length, or four times that of the own.
const FORM_MAX: usize = 64 << 10;

/// How soon a client asks again for a service that is not there.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// An attempt to bind, with the connection that its drivers share.
struct Attempt<'a> {
    bind: &'a Bind,
    domain: &'a Domain,
    service: &'a str,
    own: &'a Description<'a>,
    until: Patience,
    met: Option<Met>,
    /// How long to wait for the service's name in the domain; until the end without it. Only the first driver waits.
    names_within: Option<Duration>,
}

/// A service that has accepted.
struct Met {
    socket: Connection,
    acceptance: Acceptance,
}

impl Attempt<'_> {
    fn by(&mut self, driver: Driver) -> Result<Binding, BindReason> {
        match driver {
            Driver::Local => {
                // 0 is a process in another container.
                let pid = self.meet()?.socket.pid();
                match pid == std::process::id() && pid != 0 {
                    true => self.ring(driver),
                    false => Err(BindReason::OtherProcess { pid }),
                }
            }
            Driver::Lmp => {
                let acceptance = &self.meet()?.acceptance;
                let service = acceptance.processor;
                let own = self.bind.core.unwrap_or_else(rustix::thread::sched_getcpu);
                match usize::try_from(service) == Ok(own) {
                    true => self.ring(driver),
                    false => Err(BindReason::OtherCore { service, own }),
                }
            }
            Driver::Ump => self.ring(driver),
            Driver::Sock => self.socket(),
            Driver::Circuit => self.circuit(),
            Driver::Net => self.net(),
        }
    }

    /// What a service's interface breaks for this client, if that is why it refuses.
    #[cold]
    fn other_version(&self, reason: &BindReason) -> Option<BindReason> {
        if !matches!(reason, BindReason::Refused { .. }) {
            return None;
        }
        let within = self.left().min(EXPLAINED_WITHIN);
        let asked = Introspection::new(self.domain.connect(self.service, within).ok()?);
        let form = asked.form(within).ok()?;
        if form.len() > FORM_MAX.max(4 * self.own.form.len()) {
            return None;
        }
        let theirs = Interface::from_json(&form).ok()?;
        let own = Interface::from_json(self.own.form).ok()?;
        if theirs.name != own.name {
            return None;
        }
        let interface = own.name.clone();
        let changes = conflicts(theirs, own);
        (!changes.is_empty()).then_some(BindReason::Interface { interface, changes })
    }

    fn left(&self) -> Duration {
        self.until.left().map_or(Duration::ZERO, |left| left.unwrap_or(Duration::MAX))
    }

    fn bound(
        &self,
        link: ClientLink,
        driver: Driver,
        number: u16,
        forms: Forms,
        identity: Identity,
    ) -> Binding {
        let service = self.service.to_owned();
        let Bind { event_bytes_max, decoded_bytes_max, .. } = *self.bind;
        let limits = Limits { event_bytes_max, decoded_bytes_max };
        Binding::new(link, Bound { service, driver, number, forms, identity, limits })
    }

    /// Finds the service, and asks it to accept.
    fn meet(&mut self) -> Result<&Met, BindReason> {
        let met = match self.met.take() {
            Some(met) => met,
            None => self.ask()?,
        };
        Ok(self.met.insert(met))
    }

    fn ask(&mut self) -> Result<Met, BindReason> {
        let description = self.own.to_bytes();
        let bytes =
            description.ok_or_else(|| BindReason::TooLarge { name: self.own.name.to_owned() })?;
        let names_within = self.names_within.map_or(self.left(), |within| within.min(self.left()));
        if self.names_within.is_some() {
            self.names_within = Some(Duration::ZERO);
        }
        let socket = self.domain.connect_when_created(self.service, Some(names_within))?;
        let asked = Tag::control(0, Control::Bind);
        let answer = ask(&socket, asked, &bytes, self.until)?;
        match Control::of(answer.tag()) {
            Some(Control::Accept) => match Acceptance::of_bytes(&answer) {
                Some(acceptance) => Ok(Met { socket, acceptance }),
                None => Err(BindReason::Protocol),
            },
            Some(Control::Refuse) => {
                let reason = String::from_utf8_lossy(answer.get(..1024).unwrap_or(&answer));
                Err(BindReason::Refused { reason: reason.into_owned() })
            }
            _ => Err(BindReason::Protocol),
        }
    }

    fn ring(&mut self, driver: Driver) -> Result<Binding, BindReason> {
        self.meet()?;
        let Some(Met { acceptance, socket }) = &self.met else { return Err(BindReason::Protocol) };
        if !acceptance.may_use_ring {
            return Err(BindReason::OtherUser { uid: socket.uid() });
        }
        let mut endpoint = create(self.domain, self.service)?;
        let peer = endpoint.peer(&acceptance.endpoint)?;
        let (tag, hello) = hello(acceptance.number, acceptance.secret, driver);
        // From here on the service may take the ring at any time: what it has accepted is of no use to another driver.
        let left = self.left();
        let Some(Met { acceptance, socket }) = self.met.take() else {
            return Err(BindReason::Protocol);
        };
        endpoint.send_timeout(peer, tag.0, &hello, left)?;
        let welcome = Tag::control(acceptance.number, Control::Welcome);
        let selector = Selector::tag(welcome.0).from(peer);
        if endpoint.receive_into_timeout(selector, &mut [], self.left())?.is_none() {
            return Err(BindReason::NoAnswer { after: self.bind.timeout });
        }
        let identity = identity_of(&socket);
        let link =
            ClientLink::Ring(Box::new(RingLink::new(endpoint, peer, Some(socket), self.service)));
        Ok(self.bound(link, driver, acceptance.number, acceptance.forms, identity))
    }

    fn socket(&mut self) -> Result<Binding, BindReason> {
        self.meet()?;
        let Some(Met { acceptance, socket }) = self.met.take() else {
            return Err(BindReason::Protocol);
        };
        let identity = identity_of(&socket);
        let mut link = ClientLink::Socket(Box::new(SocketLink::new(
            socket,
            acceptance.bytes_max,
            self.service,
        )));
        let tag = Tag::control(acceptance.number, Control::UseSocket);
        link.send(tag, &[], &Capabilities::new(), self.until)?;
        Ok(self.bound(link, Driver::Sock, acceptance.number, acceptance.forms, identity))
    }
}

#[cfg(not(feature = "net"))]
impl Attempt<'_> {
    fn net(&self) -> Result<Binding, BindReason> {
        Err(if self.service.contains('@') { BindReason::NoNetwork } else { BindReason::NoHost })
    }
}

#[cfg(feature = "net")]
impl Attempt<'_> {
    /// On another host.
    fn net(&self) -> Result<Binding, BindReason> {
        let Some((service, host)) = self.service.split_once('@') else {
            return Err(BindReason::NoHost);
        };
        let too_large = || BindReason::TooLarge { name: self.own.name.to_owned() };
        let offer = self.own.to_bytes();
        let is_short = |offer: &Vec<u8>| offer.len() as u64 <= crate::exchange::FAR_OFFER_BYTES_MAX;
        let offer = offer.filter(is_short).ok_or_else(too_large)?;
        let mut endpoint = create(self.domain, service)?;
        let at = format!("{service}.rings@{host}");
        let peer = endpoint.peer_when_created(&at, Some(self.left()))?;
        let asked = Tag::control(0, Control::Bind);
        endpoint.send_timeout(peer, asked.0, &offer, self.left())?;
        let from = Selector::any().from(peer);
        let late = BindReason::NoAnswer { after: self.bind.timeout };
        let answer = endpoint.receive_timeout(from, self.left())?.ok_or(late)?;
        let acceptance = match Control::of(Tag(answer.status().tag)) {
            Some(Control::Accept) => Acceptance::of_bytes(&answer).ok_or(BindReason::Protocol)?,
            Some(Control::Refuse) => {
                let reason = String::from_utf8_lossy(answer.get(..1024).unwrap_or(&answer));
                return Err(BindReason::Refused { reason: reason.into_owned() });
            }
            _ => return Err(BindReason::Protocol),
        };
        drop(answer);
        let link = ClientLink::Ring(Box::new(RingLink::new(endpoint, peer, None, self.service)));
        let Acceptance { number, forms, .. } = acceptance;
        Ok(self.bound(link, Driver::Net, number, forms, Identity::FAR))
    }
}

impl Attempt<'_> {
    /// Through monitors.
    fn circuit(&self) -> Result<Binding, BindReason> {
        let too_large = || BindReason::TooLarge { name: self.own.name.to_owned() };
        let offer = self.own.to_bytes().filter(|offer| offer.len() <= OFFER_BYTES_MAX);
        let offer = offer.ok_or_else(too_large)?;
        let (service, node) = match self.service.rsplit_once('@') {
            Some((service, asked)) => {
                let node = asked.parse().ok().and_then(NodeId::new);
                let none = || BindReason::MonitorNumber { asked: asked.to_owned() };
                (service, Some(node.ok_or_else(none)?))
            }
            None => (self.service, None),
        };
        let domain = self.bind.monitor.domain_or(self.domain);
        let attached = || {
            let monitor = self.bind.monitor.find(domain);
            Hub::of(domain, monitor.ok_or_else(|| self.bind.monitor.why_none())?, self.until)
        };
        // The monitor may have died, and there may be another one.
        let hub = attached().or_else(|_| attached())?;
        let opening = Opening { service, node, offer, bytes_max: BUFFER_BYTES, bytes_max_of };
        let opened = hub.open(opening, self.until).map_err(not_opened)?;
        let Origin { uid, gid, pid } = opened.origin;
        let acceptance = Acceptance::of_bytes(&opened.answer);
        let Some(Acceptance { forms, .. }) = acceptance else {
            hub.close(opened.index, End::Violation);
            return Err(BindReason::Protocol);
        };
        let link = CircuitLink::new(hub, opened.index, self.service);
        let link = ClientLink::Circuit(link);
        Ok(self.bound(link, Driver::Circuit, 0, forms, Identity { uid, gid, pid }))
    }
}

/// The longest message of a service, by its answer.
fn bytes_max_of(answer: &[u8]) -> Option<usize> {
    let bytes_max = Acceptance::of_bytes(answer)?.bytes_max.max(1024);
    usize::try_from(bytes_max).ok()
}

/// Why a circuit was not opened.
fn not_opened(error: CircuitError) -> BindReason {
    let (end, reason) = match error {
        CircuitError::Ended(Ended { end, reason }, _) => (end, reason),
        CircuitError::Late(late) => return CallError::from(late).into(),
        CircuitError::NotSent => return CallError::NotSent.into(),
        CircuitError::Message(error) => return CallError::Message(error).into(),
        CircuitError::Os { what, errno } => return CallError::Os { what, errno }.into(),
    };
    match end {
        End::Refused => BindReason::Refused { reason },
        End::NotFound => BindReason::NotServed { reason },
        _ => BindReason::Circuit { reason },
    }
}

fn identity_of(socket: &Connection) -> Identity {
    Identity { uid: socket.uid(), gid: socket.gid(), pid: socket.pid() }
}

/// An endpoint whose name tells whose client it is.
fn create(domain: &Domain, service: &str) -> Result<Endpoint, BindReason> {
    let name = format!("{service}.{:016x}", random_u64()?);
    Ok(domain.endpoint(&name).peers(8).create()?)
}
