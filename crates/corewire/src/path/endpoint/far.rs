//! Peers on other hosts.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use corewire_endpoint::Peer;
use corewire_layout::name::ChannelName;
use corewire_net::open::{OpenError, Place, Target, TargetError};
use corewire_os::OsError;

use super::Endpoint;
use crate::error::ConnectError;
use crate::halves::EndpointHalf;

/// How long to wait before a host is asked again whether it has an endpoint.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// What a name means that is not the name of an endpoint of this machine.
pub(super) fn target(
    control: &dyn EndpointHalf,
    name: &str,
) -> Result<Option<Target>, ConnectError> {
    let target = Target::parse(name)?;
    Ok(target.filter(|target| !target.host().is_some_and(|host| control.far().is_own(host))))
}

/// An endpoint of another host cannot be connected now: waits before it is tried again. An error if there is no time left, or
/// trying again is of no use.
pub(super) fn pause(
    error: ConnectError,
    name: &str,
    deadline: Option<Instant>,
    timeout: Option<Duration>,
) -> Result<(), ConnectError> {
    let ConnectError::Far { error: why, .. } = &error else { return Err(error) };
    let may_come = matches!(
        why,
        OpenError::Refused(_)
            | OpenError::Unreachable { .. }
            | OpenError::Timeout { .. }
            | OpenError::Closed
    );
    if !may_come {
        return Err(error);
    }
    let left = deadline.map_or(ASK_AGAIN, |at| at.saturating_duration_since(Instant::now()));
    if left.is_zero() {
        let name = Target::parse(name)?.and_then(|it| Some(it.name.on_host(it.host()?)));
        return Err(match name {
            Some(name) => ConnectError::NotCreated { name, after: timeout.unwrap_or_default() },
            None => error,
        });
    }
    std::thread::park_timeout(left.min(ASK_AGAIN));
    Ok(())
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
    pub(super) fn far_peer(&mut self, target: &Target) -> Result<Peer, ConnectError> {
        if self.control.is_forked() {
            return Err(ConnectError::Forked);
        }
        let (number, _) = self.control.far().connect(target)?;
        self.handle_changes()?;
        let row = self.engine.transport().row_of(number);
        let peer = row.and_then(|row| self.engine.peer_at(row));
        let ended = || ConnectError::Far { name: target.to_string(), error: OpenError::Closed };
        peer.ok_or_else(ended)
    }

    /// An endpoint of another host, whether it can be connected yet or not.
    pub(super) fn address_far(
        &mut self,
        target: Target,
        incarnation: Option<u128>,
    ) -> Result<Peer, ConnectError> {
        let Place::Host(host) = &target.at else {
            return Err(TargetError::Address(target.to_string()).into());
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
