//! One address of a host for all endpoints of a domain.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use corewire_layout::frame::{Frame, Reason};
use corewire_layout::name::{ChannelName, NameKind};
use corewire_layout::net::{Preface, Refusal};
use corewire_net::open::{Deadline, refuse};
use corewire_os::fork::Descriptor;

use crate::control::domain::DomainHandle;
use crate::control::taking::Taking;
use crate::error::EndpointError;
use crate::guard::lock;
use crate::open::domain::Domain;

/// How long the process of an endpoint may take to say that it has a connection.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// Before a process that had no room is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(5);
/// A process that has not taken so many connections for so long gets no more meanwhile: while it is stopped, it holds up no others.
const SLOW_MAX: usize = 32;
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// Takes connections of other hosts at one address, for all endpoints of a domain, and hands each to the process that has the
/// endpoint which is wanted: nothing of what is sent passes through it. Returned by [`Domain::gateway`]. Dropping it frees the
/// address; connections that were handed over stay.
pub struct Gateway(Taking);

impl Domain {
    /// Takes connections of other hosts at `address`, `address:port`, from now on, in threads of this process. Which of them
    /// reach which endpoints the file of hosts of each endpoint says
    /// ([`EndpointBuilder::hosts`](crate::EndpointBuilder::hosts)). `corewire monitor --listen` is such a process.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-gateway-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// let gateway = domain.gateway("127.0.0.1:0")?;
    /// println!("other hosts find this one at {}", gateway.address());
    /// # drop((gateway, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EndpointError::Address`] or `Listen`; `Forked`; `Guest` if the domain belongs to another user.
    pub fn gateway(&self, address: &str) -> Result<Gateway, EndpointError> {
        if self.inner.is_forked() {
            return Err(EndpointError::Forked);
        }
        if self.is_guest() {
            let (owner, user) = (self.owner(), corewire_os::process::effective_uid());
            return Err(EndpointError::Guest { owner, user });
        }
        let at = address.parse().map_err(|_| EndpointError::Address(address.into()))?;
        let domain = self.inner.clone();
        let handed_over = Mutex::new(BTreeMap::new());
        let taking = Taking::start(at, move |stream, preface, deadline| {
            let handed = match Turn::of(&handed_over, &preface.wanted) {
                Some(_turn) => hand_over(&domain, &stream, &preface, deadline),
                None => Err(Refusal::Busy),
            };
            if let Err(why) = handed {
                refuse(&stream, why);
            }
        })?;
        Ok(Gateway(taking))
    }
}

impl Gateway {
    /// Where it takes connections.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.at()
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gateway").field(&self.address()).finish()
    }
}

/// When the connections were taken that are handed over now, by the endpoint that is wanted.
type HandedOver = Mutex<BTreeMap<ChannelName, Vec<Instant>>>;

/// One of them.
struct Turn<'a> {
    all: &'a HandedOver,
    wanted: &'a ChannelName,
    since: Instant,
}

impl<'a> Turn<'a> {
    /// `None` if the process of this endpoint does not take what was handed over before.
    fn of(all: &'a HandedOver, wanted: &'a ChannelName) -> Option<Self> {
        let mut handed_over = lock(all);
        let of_this = handed_over.entry(wanted.clone()).or_default();
        let slow = of_this.iter().filter(|since| since.elapsed() > SLOW_AFTER).count();
        if slow >= SLOW_MAX {
            return None;
        }
        let since = Instant::now();
        of_this.push(since);
        Some(Self { all, wanted, since })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut handed_over = lock(self.all);
        if let Some(of_this) = handed_over.get_mut(self.wanted) {
            if let Some(at) = of_this.iter().position(|since| *since == self.since) {
                of_this.swap_remove(at);
            }
            if of_this.is_empty() {
                handed_over.remove(self.wanted);
            }
        }
    }
}

/// Hands a connection to the process that has the endpoint which is wanted. One that knows no more strangers for the moment is
/// asked again.
fn hand_over(
    domain: &DomainHandle,
    stream: &Descriptor,
    preface: &Preface,
    deadline: Deadline,
) -> Result<(), Refusal> {
    loop {
        let within = deadline.left().ok_or(Refusal::Busy)?.min(TAKEN_WITHIN);
        if has_handed_over(domain, stream, preface, within)? {
            return Ok(());
        }
        std::thread::park_timeout(AGAIN_AFTER);
    }
}

/// The same, once. False if the process has no room for it now.
fn has_handed_over(
    domain: &DomainHandle,
    stream: &Descriptor,
    Preface { wanted, is_tls }: &Preface,
    within: Duration,
) -> Result<bool, Refusal> {
    let record = domain.directory.look_up(wanted).map_err(|_| Refusal::Busy)?;
    let record =
        record.filter(|record| record.kind == NameKind::Endpoint).ok_or(Refusal::NotFound)?;
    let socket = domain.directory.connect(record.socket, within).map_err(|_| Refusal::Busy)?;
    let socket = socket.ok_or(Refusal::NotFound)?;
    let is_trusted = socket.peer().is_ok_and(|peer| peer.trusted().is_some());
    if !is_trusted {
        return Err(Refusal::NotFound);
    }
    let (name, is_tls) = (wanted.clone(), *is_tls);
    let sent = socket.send(&Frame::Dialled { name, is_tls }, &[stream.as_fd()]);
    sent.map_err(|_| Refusal::Busy)?;
    match socket.receive_by(Instant::now().checked_add(within)) {
        Ok((Frame::Done, _)) => Ok(true),
        Ok((Frame::Refused(Reason::Resources { .. }), _)) => Ok(false),
        // A process without connections to other hosts does not know the request.
        Ok(_) => Err(Refusal::NotFound),
        Err(_) => Err(Refusal::Busy),
    }
}
