//! What a service tells everybody who connects: its interface, which clients are bound, and what it has served.

use std::time::Duration;

use corewire::Connection;
use corewire_circuit::patience::Patience;

use crate::driver::Driver;
use crate::error::BindReason;
use crate::exchange::{Cursor, put_name};
use crate::identity::Identity;
use crate::message::Message;
use crate::question::ask;
use crate::tag::{Control, Tag};
use crate::totals::MethodTotals;

/// A connection to a service that is asked what it is, and not bound. The thread of the service answers, between two
/// requests. A service closes such a connection after 10 s.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use corewire_bind::{Domain, Introspection};
/// use std::time::Duration;
///
/// let limit = Duration::from_secs(1);
/// let service = Introspection::new(Domain::open()?.connect("calculator", limit)?);
/// for client in service.bindings(limit)?.clients {
///     println!("process {} by {}", client.identity.pid, client.driver);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Introspection(Connection);

/// The interface of a service, and its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bindings {
    /// The interface's name.
    pub interface: String,
    /// Structural hash of all messages of the interface.
    pub hash: u64,
    /// The clients that are bound now.
    pub clients: Vec<BoundClient>,
}

/// A client of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoundClient {
    /// Its process, by the kernel's word.
    pub identity: Identity,
    /// What it is bound by.
    pub driver: Driver,
}

impl Introspection {
    /// Asks on this connection, which [`Domain::connect`](corewire::Domain::connect) or
    /// [`connect_when_created`](corewire::Domain::connect_when_created) made.
    #[must_use]
    pub const fn new(connection: Connection) -> Self {
        Self(connection)
    }

    /// The interface in JSON, as `corewire_idl::form::Interface::from_json` reads it.
    ///
    /// # Errors
    /// [`BindReason`]: no answer in time, or what answered is no service.
    pub fn form(&self, timeout: Duration) -> Result<String, BindReason> {
        let answer = self.ask(Control::Describe, timeout)?;
        let text = std::str::from_utf8(&answer).map_err(|_| BindReason::Protocol)?;
        Ok(text.to_owned())
    }

    /// The clients that are bound.
    ///
    /// # Errors
    /// As for [`form`](Self::form).
    pub fn bindings(&self, timeout: Duration) -> Result<Bindings, BindReason> {
        let answer = self.ask(Control::List, timeout)?;
        Bindings::of_bytes(&answer).ok_or(BindReason::Protocol)
    }

    /// What the service has served since it began, of each method that was called, in the order of its interface file.
    ///
    /// # Errors
    /// As for [`form`](Self::form).
    pub fn totals(&self, timeout: Duration) -> Result<Vec<MethodTotals>, BindReason> {
        let answer = self.ask(Control::Totals, timeout)?;
        MethodTotals::all_of_bytes(&answer).ok_or(BindReason::Protocol)
    }

    fn ask(&self, control: Control, timeout: Duration) -> Result<Message, BindReason> {
        let (tag, until) = (Tag::control(0, control), Patience::of(Some(timeout)));
        let answer = ask(&self.0, tag, &[], until)?;
        match Control::of(answer.tag()) {
            Some(answered) if answered == control => Ok(answer),
            Some(Control::Refuse) => {
                let reason = String::from_utf8_lossy(answer.get(..1024).unwrap_or(&answer));
                Err(BindReason::Refused { reason: reason.into_owned() })
            }
            Some(Control::Leave) => Err(BindReason::Closed),
            _ => Err(BindReason::Protocol),
        }
    }
}

impl Bindings {
    /// `hash:8 | length:1 name`, then `pid:4 | uid:4 | gid:4 | driver:1` for each client.
    pub(crate) fn to_bytes(
        interface: &str,
        hash: u64,
        clients: impl Iterator<Item = BoundClient>,
    ) -> Vec<u8> {
        let mut bytes = hash.to_le_bytes().to_vec();
        if put_name(&mut bytes, interface).is_none() {
            // No client can bind to an interface with such a name.
            bytes.push(0);
        }
        for BoundClient { identity: Identity { uid, gid, pid }, driver } in clients {
            bytes.extend([pid, uid, gid].iter().flat_map(|number| number.to_le_bytes()));
            bytes.push(driver as u8);
        }
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let mut at = Cursor(bytes);
        let (hash, interface) = (at.number::<8>()?, at.name()?.to_owned());
        let mut clients = Vec::new();
        while !at.0.is_empty() {
            clients.push(BoundClient::read(&mut at)?);
        }
        Some(Self { interface, hash, clients })
    }
}

impl BoundClient {
    pub(crate) const fn new(identity: Identity, driver: Driver) -> Self {
        Self { identity, driver }
    }

    fn read(at: &mut Cursor<'_>) -> Option<Self> {
        let mut number = || u32::try_from(at.number::<4>()?).ok();
        let (pid, uid, gid) = (number()?, number()?, number()?);
        let driver = at.number::<1>()?;
        let driver = Driver::ALL.into_iter().find(|one| *one as u64 == driver)?;
        Some(Self { identity: Identity { uid, gid, pid }, driver })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_clients_is_read_and_any_prefix_is_harmless() {
        let client =
            |pid, driver| BoundClient { identity: Identity { uid: 1, gid: 2, pid }, driver };
        let clients = vec![client(3, Driver::Sock), client(4, Driver::Local)];
        let bytes = Bindings::to_bytes("calc", 77, clients.iter().copied());
        let all = Bindings { interface: "calc".to_owned(), hash: 77, clients };
        assert_eq!(Bindings::of_bytes(&bytes), Some(all));
        for length in 0..bytes.len() {
            let read = Bindings::of_bytes(&bytes[..length]);
            assert!(read.is_none_or(|read| read.clients.len() < 2));
        }
        let mut unknown = bytes;
        *unknown.last_mut().unwrap() = 9;
        assert_eq!(Bindings::of_bytes(&unknown), None);
    }
}
