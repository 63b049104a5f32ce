//! The side that dials.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use corewire_layout::name::{ChannelName, NameError};
use corewire_layout::net::{ANSWER_BYTES, Answer, Hello, Preface, Refusal};
use corewire_os::fork::Descriptor;

use super::connecting::connect_to_any;
use super::waiting::Waiting;
use super::{Deadline, Numbers, OpenError, Opened, Own, credit_of, ends_of, is_loopback, users};
use crate::hosts::Hosts;
use crate::tls;
use crate::wire::{Wire, take_plain};

/// An endpoint of another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: ChannelName,
    /// Where it is.
    pub at: Place,
}

/// Where an endpoint is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On a host that the file of hosts names.
    Host(ChannelName),
    /// At an address.
    Address(String),
}

/// Why a text is no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The name of the endpoint or of the host breaks a rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// It begins with `tcp://`, and is otherwise wrong.
    #[error("{0:?} is no address of an endpoint: tcp://host:port/name is one")]
    Address(String),
    /// It is an address, where the name of the host is needed.
    #[error("{0:?} does not say the host's name: name@host does")]
    NoHost(String),
}

impl Target {
    /// The endpoint that `name@host` or `tcp://host:port/name` means; `None` if it is neither.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn parse(text: &str) -> Result<Option<Self>, TargetError> {
        if let Some(rest) = text.strip_prefix("tcp://") {
            let bad = || TargetError::Address(text.into());
            let (address, name) = rest.rsplit_once('/').ok_or_else(bad)?;
            let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
            if host.is_empty() || !port.parse::<u16>().is_ok_and(|port| port > 0) {
                return Err(bad());
            }
            let name = ChannelName::new(name)?;
            return Ok(Some(Self { name, at: Place::Address(address.into()) }));
        }
        let Some((name, host)) = text.split_once('@') else { return Ok(None) };
        let (name, host) = (ChannelName::new(name)?, ChannelName::new(host)?);
        Ok(Some(Self { name, at: Place::Host(host) }))
    }

    /// The host, if that is known.
    #[must_use]
    pub fn host(&self) -> Option<&ChannelName> {
        match &self.at {
            Place::Host(host) => Some(host),
            Place::Address(_) => None,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.at {
            Place::Host(host) => write!(f, "{}@{host}", self.name),
            Place::Address(address) => write!(f, "tcp://{address}/{}", self.name),
        }
    }
}

/// Connects to an endpoint of another host, within this time.
///
/// # Errors
/// [`OpenError`].
pub fn dial(
    hosts: &Hosts,
    own: &Own,
    numbers: Numbers,
    target: &Target,
    within: Duration,
) -> Result<Opened, OpenError> {
    let deadline = Deadline::within(within);
    let stream = match &target.at {
        Place::Host(host) => connect_to_any(&host_of(hosts, host)?.addresses, deadline)?,
        Place::Address(address) => connect_to_any(std::slice::from_ref(address), deadline)?,
    };
    introduce(stream, hosts, own, numbers, target, deadline)
}

/// Whether a host takes connections, within this time.
///
/// # Errors
/// [`OpenError`]: why not.
pub fn reach(hosts: &Hosts, host: &ChannelName, within: Duration) -> Result<(), OpenError> {
    let addresses = &host_of(hosts, host)?.addresses;
    connect_to_any(addresses, Deadline::within(within)).map(drop)
}

fn host_of<'a>(hosts: &'a Hosts, host: &ChannelName) -> Result<&'a crate::hosts::Host, OpenError> {
    let unknown = || OpenError::UnknownHost { host: host.clone(), path: hosts.path().into() };
    hosts.get(host).ok_or_else(unknown)
}

/// Says on a new connection what this side is and what it wants, and learns what the other side is. The socket does not
/// block.
///
/// # Errors
/// [`OpenError`].
pub fn introduce(
    stream: Descriptor,
    hosts: &Hosts,
    own: &Own,
    numbers: Numbers,
    target: &Target,
    deadline: Deadline,
) -> Result<Opened, OpenError> {
    let (own_end, other_end) = ends_of(&stream)?;
    let is_within = is_loopback(own_end.ip()) && is_loopback(other_end.ip());
    let (certificate_name, is_insecure) = match &target.at {
        Place::Host(host) => {
            let host = host_of(hosts, host)?;
            (host.certificate_name.clone(), host.is_insecure)
        }
        Place::Address(address) => {
            let host = address.rsplit_once(':').map_or(&address[..], |(host, _)| host);
            (host.trim_matches(['[', ']']).to_owned(), false)
        }
    };
    let files = hosts.tls().filter(|_| !is_insecure);
    if files.is_none() && !is_within && !is_insecure {
        return Err(OpenError::NotSecure { address: other_end.ip(), path: hosts.path().into() });
    }
    let own = own.hello(hosts, credit_of(&stream)?, numbers);
    let mut waiting = Waiting::new(&stream, deadline);
    let preface = Preface { is_tls: files.is_some(), wanted: target.name.clone() };
    waiting.write_all(&preface.to_bytes())?;
    let mut answered = [0; ANSWER_BYTES];
    read_all(&mut waiting, &mut answered)?;
    check(Answer::parse(&answered)?)?;
    if is_within && files.is_none() {
        users::check(own_end, other_end)?;
    }
    let mut session = match files {
        Some(files) => {
            let mut session = tls::dialling(files, &certificate_name)?;
            tls::shake_hands(&mut session, &mut waiting)?;
            Some(session)
        }
        None => None,
    };
    let hello = own.to_bytes();
    match &mut session {
        Some(session) => {
            session.writer().write_all(&hello)?;
            while session.wants_write() {
                session.write_tls(&mut waiting)?;
            }
        }
        None => waiting.write_all(&hello)?,
    }
    let mut arrived = Vec::new();
    let other = loop {
        if let Some(answer) = Answer::parse(&arrived)? {
            let is_crossed = answer == Answer::Refused(Refusal::Crossed);
            if !is_crossed {
                check(Some(answer))?;
            }
            if let Some((other, used)) = Hello::parse(&arrived[ANSWER_BYTES..])? {
                if is_crossed {
                    return Err(OpenError::Crossed { other: Box::new(other) });
                }
                arrived.drain(..ANSWER_BYTES + used);
                break other;
            }
        }
        read_more(&mut waiting, session.as_mut(), &mut arrived)?;
    };
    let is_that = other.name == target.name
        && match &target.at {
            Place::Host(host) => other.host == *host,
            Place::Address(_) => match (&session, hosts.get(&other.host)) {
                // Who says that it is a host which the file names must be that one.
                (Some(session), Some(host)) => tls::is_for(session, &host.certificate_name)?,
                _ => true,
            },
        };
    if !is_that {
        let found = other.name.on_host(&other.host).to_string();
        return Err(OpenError::OtherEndpoint { wanted: target.to_string(), found });
    }
    Ok(Opened { wire: Wire::new(stream, session), traffic: Arc::default(), arrived, own, other })
}

fn check(answer: Option<Answer>) -> Result<(), OpenError> {
    match answer {
        Some(Answer::Refused(why)) => Err(OpenError::Refused(why)),
        Some(Answer::Welcome) => Ok(()),
        None => Err(OpenError::Refused(Refusal::Busy)),
    }
}

/// Fills all of `bytes`, and reads nothing behind them.
fn read_all(waiting: &mut Waiting<'_>, bytes: &mut [u8]) -> Result<(), OpenError> {
    let mut filled = 0;
    while filled < bytes.len() {
        match waiting.read(&mut bytes[filled..])? {
            0 => return Err(OpenError::Closed),
            count => filled += count,
        }
        if let Some(Answer::Refused(why)) = Answer::parse(&bytes[..filled])? {
            return Err(OpenError::Refused(why));
        }
    }
    Ok(())
}

/// Appends what arrives next.
pub(super) fn read_more(
    waiting: &mut Waiting<'_>,
    session: Option<&mut rustls::Connection>,
    arrived: &mut Vec<u8>,
) -> Result<(), OpenError> {
    let Some(session) = session else {
        let mut bytes = [0; 1024];
        match waiting.read(&mut bytes)? {
            0 => return Err(OpenError::Closed),
            count => arrived.extend_from_slice(&bytes[..count]),
        }
        return Ok(());
    };
    // A handshake may have brought more already.
    let before = arrived.len();
    take_plain(session, arrived)?;
    if arrived.len() > before {
        return Ok(());
    }
    if session.read_tls(waiting)? == 0 {
        return Err(OpenError::Closed);
    }
    session.process_new_packets().map_err(tls::failed)?;
    Ok(take_plain(session, arrived)?)
}
