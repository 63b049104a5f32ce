//! Listeners, and connections to them.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_layout::name::{ChannelName, NameKind, NameRecord};
use corewire_os::directory::ClaimError;
use corewire_os::socket::{Peer, Socket};
use corewire_os::{process, random_u128};

use crate::control::listener::{self, ListenerControl};
use crate::control::reachable::Kind;
use crate::error::{AcceptError, ConnectServiceError, ListenError, OpenError};
use crate::open::domain::Domain;
use crate::wait::Readiness;

/// A name to which other processes connect, created by [`Domain::listener`]. Each connection is a socket between the
/// two programs. Dropping the listener releases the name and closes the connections that were not accepted: a client
/// reads the end, or `ECONNRESET` if it has sent something. In a forked child, its calls return an error.
pub struct Listener {
    control: Arc<ListenerControl>,
}

/// One end of a connected socket, from [`Domain::connect`] or a [`Listener`]: `SOCK_SEQPACKET`, non-blocking, closed on
/// `exec`. The programs at both ends decide what they send. It has no function that sends or receives: use its
/// descriptor, or turn it into an [`OwnedFd`].
///
/// A forked child does not keep the descriptor, as with all of corewire's; in the child it must not be used. An
/// [`OwnedFd`] that was a connection is an ordinary descriptor, which a child keeps.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    peer: Peer,
}

impl Domain {
    /// Creates the listener `name`: from now on other processes can connect to it, also guests of this domain. Up to
    /// 256 connections wait to be accepted; of these up to 64 are of one foreign user, and up to 192 of all foreign
    /// users. Further ones are refused.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-listener-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// use std::os::fd::OwnedFd;
    /// use std::time::Duration;
    ///
    /// let listener = domain.listener("clock")?;
    /// // In this or another process:
    /// let connection = domain.connect("clock", Duration::from_secs(1))?;
    /// assert_eq!(connection.pid(), std::process::id());
    ///
    /// let accepted = OwnedFd::from(listener.accept()?);
    /// rustix::io::write(&accepted, b"12:00")?;
    /// let mut time = [0; 5];
    /// assert_eq!(rustix::io::read(&connection, &mut time)?, 5);
    /// # drop((connection, listener, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ListenError`]: a bad name, a name in use by a living process, another user's domain, or a failed call.
    pub fn listener(&self, name: &str) -> Result<Listener, ListenError> {
        let name = ChannelName::new(name)?;
        let domain = &self.inner;
        if domain.is_forked() {
            return Err(ListenError::Forked);
        }
        let Some(socket) = domain.socket_name() else {
            let (owner, user) = (domain.directory.owner(), process::effective_uid());
            return Err(ListenError::Guest { owner, user });
        };
        let control = ListenerControl::new(domain, name.clone())?;
        let incarnation = random_u128()?;
        let claim = domain.directory.claim(&name).map_err(|error| match error {
            ClaimError::AlreadyExists(name) => {
                ListenError::AlreadyExists(domain.name_in_use(&name))
            }
            error => error.into(),
        })?;
        // The senders of a shared channel have its name even during a change of host.
        let is_taken = domain.directory.has_members(&name);
        if !matches!(is_taken, Ok(false)) {
            claim.release(&domain.directory);
            is_taken?;
            return Err(ListenError::AlreadyExists(domain.name_in_use(&name)));
        }
        domain.add(Kind::Listener, control.name(), &control);
        let written = claim.write(NameRecord { kind: NameKind::Listener, socket, incarnation });
        control.keep_claim(claim);
        // Dropping the listener releases the name.
        let listener = Listener { control };
        written?;
        Ok(listener)
    }

    /// Connects to the existing listener `name`, which may be in this process. Waits for the answer of its process for
    /// at most `timeout`, not for the listener to accept the connection: what is sent until then is kept for it.
    ///
    /// # Errors
    /// [`ConnectServiceError::NotFound`] if there is no listener of this name, or its process is dead;
    /// [`Full`](ConnectServiceError::Full) if too many connections wait there; otherwise another
    /// [`ConnectServiceError`].
    pub fn connect(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Connection, ConnectServiceError> {
        let (socket, peer) = listener::connect(&self.inner, &ChannelName::new(name)?, timeout)?;
        Ok(Connection { socket, peer })
    }

    /// Connects to the listener `name` as soon as it exists. Waits for at most `timeout`; `None` waits without a limit.
    /// A listener that exists has at least half a second and at most 10 s to answer.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-connect-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// use corewire::ConnectServiceError;
    /// use std::time::Duration;
    ///
    /// let soon = Some(Duration::from_millis(1));
    /// let error = domain.connect_when_created("clock", soon).unwrap_err();
    /// assert!(matches!(error, ConnectServiceError::NotCreated { .. }));
    ///
    /// let listener = domain.listener("clock")?;
    /// let connection = domain.connect_when_created("clock", None)?;
    /// assert_eq!(domain.listeners()?[0].as_str(), "clock");
    /// # drop((connection, listener, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ConnectServiceError::NotCreated`] if it was not created in time; otherwise as for [`connect`](Self::connect).
    pub fn connect_when_created(
        &self,
        name: &str,
        timeout: Option<Duration>,
    ) -> Result<Connection, ConnectServiceError> {
        let name = ChannelName::new(name)?;
        let (socket, peer) = listener::connect_when_created(&self.inner, &name, timeout)?;
        Ok(Connection { socket, peer })
    }

    /// Lists the names of the existing listeners, in order, like [`channels`](Self::channels): a guest sees those of
    /// processes that admit guests.
    ///
    /// # Errors
    /// As for [`channels`](Self::channels).
    pub fn listeners(&self) -> Result<Vec<ChannelName>, OpenError> {
        self.names_of(NameKind::Listener)
    }
}

impl Listener {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.control.name().as_str()
    }

    /// Accepts the connection that has waited for the longest. Never waits: `None` if there is none.
    ///
    /// # Errors
    /// [`AcceptError::Forked`].
    pub fn try_accept(&self) -> Result<Option<Connection>, AcceptError> {
        Ok(self.control.take()?.map(|(socket, peer)| Connection { socket, peer }))
    }

    /// As [`try_accept`](Self::try_accept), but waits for a connection for at most `timeout`.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Option<Connection>, AcceptError> {
        let taken = self.control.take_by(Instant::now().checked_add(timeout))?;
        Ok(taken.map(|(socket, peer)| Connection { socket, peer }))
    }

    /// Accepts the connection that has waited for the longest. Waits until there is one.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub fn accept(&self) -> Result<Connection, AcceptError> {
        loop {
            if let Some((socket, peer)) = self.control.take_by(None)? {
                return Ok(Connection { socket, peer });
            }
        }
    }

    /// A descriptor that is readable while connections wait to be accepted. It needs no arming, and stays the same for
    /// the listener's life. Do not read from it.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        Readiness::of(self.control.bell())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.control.close();
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Connection {
    /// The effective user of the process at the other end. The kernel has recorded it: for an accepted connection when
    /// that process connected, for the other end when the listener's process opened its domain.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.peer.uid
    }

    /// The effective group of the process at the other end, recorded at the same time.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.peer.gid
    }

    /// The process at the other end; 0 if it is in another container.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.peer.pid
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The descriptor becomes an ordinary one, which a forked child keeps. Of a connection that a forked child has
/// inherited, the result is a socket whose other end is closed.
impl From<Connection> for OwnedFd {
    fn from(connection: Connection) -> Self {
        connection.socket.into_fd()
    }
}
