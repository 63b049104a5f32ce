//! Peers on other hosts.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use corewire_endpoint::Peer;
use corewire_layout::name::ChannelName;
use corewire_layout::net::Refusal;
use corewire_net::open::{OpenError, Place, Target, TargetError};
use corewire_os::OsError;

use super::Endpoint;
use crate::error::ConnectError;
use crate::halves::EndpointHalf;

/// How long to wait before a host is asked again whether it has an endpoint.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How long an endpoint that exists may take to be connected, however little time there is.
const ONCE_WITHIN: Duration = Duration::from_millis(50);

/// What a name means that is not the name of an endpoint of this machine.
pub(super) fn target(
    control: &dyn EndpointHalf,
    name: &str,
) -> Result<Option<Target>, ConnectError> {
    let target = Target::parse(name)?;
    Ok(target.filter(|target| !target.host().is_some_and(|host| control.far().is_own(host))))
}

impl Endpoint {
    /// Where the endpoint takes connections of other hosts: see [`EndpointBuilder::listen`](crate::EndpointBuilder::listen).
    #[must_use]
    pub fn listening(&self) -> Vec<SocketAddr> {
        self.control.far().addresses()
    }

    /// Whether a peer is on another host.
    #[must_use]
    pub fn is_far(&self, peer: Peer) -> bool {
        self.engine.transport().is_far(peer.row())
    }

    /// What a name means: an endpoint of another host, or the name of one of this machine.
    pub(super) fn far_target(
        &self,
        name: &str,
    ) -> Result<Result<Target, ChannelName>, ConnectError> {
        match Target::parse(name)? {
            None => Ok(Err(ChannelName::new(name)?)),
            Some(target) => Ok(match target.host() {
                Some(host) if self.control.far().is_own(host) => Err(target.name),
                _ => Ok(target),
            }),
        }
    }

    /// An endpoint of another host. Connects to it, unless it is connected.
    pub(super) fn far_peer(
        &mut self,
        target: &Target,
        within: Option<Duration>,
    ) -> Result<Peer, ConnectError> {
        if self.control.is_forked() {
            return Err(ConnectError::Forked);
        }
        let (number, _) = self.control.far().connect(target, within)?;
        self.handle_changes()?;
        let row = self.engine.transport().row_of(number);
        let peer = row.and_then(|row| self.engine.peer_at(row));
        let ended = || ConnectError::Far { name: target.to_string(), error: OpenError::Closed };
        peer.ok_or_else(ended)
    }

    /// An endpoint of another host as soon as it exists.
    pub(super) fn far_peer_when_created(
        &mut self,
        target: &Target,
        timeout: Option<Duration>,
        deadline: Option<Instant>,
    ) -> Result<Peer, ConnectError> {
        // Whatever little time there is, what is there at once is found.
        let mut within = timeout.map(|timeout| timeout.max(ONCE_WITHIN));
        let mut is_missing = false;
        loop {
            let error = match self.far_peer(target, within) {
                Err(error) if error.may_come() => error,
                other => return other,
            };
            // A host that cannot be reached, or has no room, is another matter than an endpoint that is not there. The last try may
            // have had too little time to learn it.
            is_missing = match &error {
                ConnectError::Far { error: OpenError::Refused(Refusal::NotFound), .. } => true,
                ConnectError::Far { error: OpenError::Timeout { .. }, .. } => is_missing,
                _ => false,
            };
            within = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if within.is_some_and(|left| left.is_zero()) {
                return Err(match target.host().filter(|_| is_missing) {
                    Some(host) => ConnectError::NotCreated {
                        name: target.name.on_host(host),
                        after: timeout.unwrap_or_default(),
                    },
                    None => error,
                });
            }
            std::thread::park_timeout(within.unwrap_or(ASK_AGAIN).min(ASK_AGAIN));
        }
    }

    /// An endpoint of another host, whether it can be connected yet or not.
    pub(super) fn address_far(
        &mut self,
        target: Target,
        incarnation: Option<u128>,
    ) -> Result<Peer, ConnectError> {
        let Place::Host(host) = &target.at else {
            return Err(TargetError::NoHost(target.to_string()).into());
        };
        let name = target.name.on_host(host);
        loop {
            self.handle_changes()?;
            let is_its = |peer: &Peer| {
                let is_that =
                    incarnation.is_none_or(|it| self.engine.incarnation_of(*peer) == Some(it));
                self.is_far(*peer) && is_that && self.engine.name_of(*peer) == Some(&name)
            };
            let known = self.engine.peers().find(is_its);
            if let Some(peer) = known {
                return Ok(peer);
            }
            let failed = |error: std::io::Error| OsError {
                what: "give a peer a row".into(),
                errno: error.raw_os_error().unwrap_or_default(),
            };
            let ways = self.engine.transport_mut();
            let row = ways.reserve(target.clone(), &name, incarnation).map_err(failed)?;
            if let Some(peer) = self.engine.peer_at(row).or_else(|| self.engine.address(row, &name))
            {
                return Ok(peer);
            }
        }
    }
}
