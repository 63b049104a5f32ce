//! How an endpoint gets its peers by name.

use std::time::{Duration, Instant};

use corewire_endpoint::{MessageError, Peer};
use corewire_layout::name::ChannelName;

use super::Endpoint;
use crate::error::ConnectError;

impl Endpoint {
    /// Whether this is its name: `x`, or `x@a` on host `a`.
    ///
    /// # Errors
    /// [`ConnectError::Name`], and with the feature `net` `Target`, if it is no name.
    pub fn is_named(&self, name: &str) -> Result<bool, ConnectError> {
        #[cfg(feature = "net")]
        let name = match self.far_target(name)? {
            Ok(_) => return Ok(false),
            Err(name) => name,
        };
        #[cfg(not(feature = "net"))]
        let name = ChannelName::new(name)?;
        Ok(name == *self.control.name())
    }

    /// The existing endpoint of this name, which may be this endpoint itself. Asks its process to link with this
    /// endpoint, unless they are linked already. Waits for the answer, for at most 10 s.
    ///
    /// # Errors
    /// [`ConnectError::NotFound`] if there is none; otherwise another [`ConnectError`].
    pub fn peer(&mut self, name: &str) -> Result<Peer, ConnectError> {
        #[cfg(feature = "net")]
        let name = match self.far_target(name)? {
            Ok(target) => return self.far_peer(&target, None),
            Err(name) => name,
        };
        #[cfg(not(feature = "net"))]
        let name = ChannelName::new(name)?;
        self.near_peer(name)
    }

    fn near_peer(&mut self, name: ChannelName) -> Result<Peer, ConnectError> {
        let (row, _) = self.control.connect(&name)?;
        self.handle_changes()?;
        self.engine.peer_at(row).ok_or(ConnectError::NotFound(name))
    }

    /// The endpoint of this name, whether it exists yet or not. Returns at once, and asks nobody: the first message to it,
    /// or the first receive from it, makes a thread of this process link the two, while the caller goes on. What is sent
    /// until then is pending, in order; [`try_send`](Self::try_send) keeps copies up to one peer's share of the
    /// [budget](crate::EndpointBuilder::budget).
    ///
    /// An `incarnation` ([`incarnation`](Self::incarnation) of that endpoint) says which of its name it is: if that has
    /// ended, what waits for it ends with [`MessageError::PeerDied`]. Without one, a name that does not exist is waited for,
    /// and the first that has it is the peer from then on. The same name yields the same peer until that has gone, also if
    /// it comes by itself.
    ///
    /// ```
    /// use corewire::{Domain, Selector};
    ///
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-address-{}", std::process::id()));
    /// let domain = Domain::open_at(&directory)?;
    /// let mut early = domain.endpoint("early").create()?;
    /// let late = early.address("late", None)?;
    /// early.try_send(late, 1, b"hello")?;
    /// let mut late = domain.endpoint("late").create()?;
    /// let message = loop {
    ///     early.progress()?;
    ///     if let Some(message) = late.try_receive(Selector::any())? {
    ///         break message;
    ///     }
    /// };
    /// assert_eq!(&*message, b"hello");
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ConnectError::Name`], `Full`, `Forked`; `NotFound` with the endpoint's own name if it is closed.
    pub fn address(&mut self, name: &str, incarnation: Option<u128>) -> Result<Peer, ConnectError> {
        #[cfg(feature = "net")]
        let name = match self.far_target(name)? {
            Ok(target) => return self.address_far(target, incarnation),
            Err(name) => name,
        };
        #[cfg(not(feature = "net"))]
        let name = ChannelName::new(name)?;
        loop {
            self.handle_changes()?;
            // One that has gone is that peer, too, whose messages may be there still.
            let known = incarnation.and_then(|it| self.engine.peer_of_incarnation(it));
            if let Some(peer) = known {
                return Ok(peer);
            }
            let row = self.control.address(&name, incarnation)?;
            self.handle_changes()?;
            if let Some(peer) = self.engine.peer_at(row).or_else(|| self.engine.address(row, &name))
            {
                return Ok(peer);
            }
            // Its peer has come and gone meanwhile, and has the row still: there is another one for the name.
        }
    }

    /// Takes in what peers have come or gone, outside of a call that waits.
    pub(super) fn handle_changes(&mut self) -> Result<(), ConnectError> {
        match self.engine.handle_notices() {
            Err(MessageError::Forked) => return Err(ConnectError::Forked),
            // Left for the next call that waits.
            Err(MessageError::Interrupted) => self.interrupter().interrupt(),
            _ => {}
        }
        Ok(())
    }

    /// The endpoint of this name as soon as it exists. Waits for at most `timeout`; `None` waits without a limit.
    ///
    /// # Errors
    /// [`ConnectError::NotCreated`] if it was not created in time; otherwise as for [`peer`](Self::peer).
    pub fn peer_when_created(
        &mut self,
        name: &str,
        timeout: Option<Duration>,
    ) -> Result<Peer, ConnectError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        #[cfg(feature = "net")]
        let name = match self.far_target(name)? {
            Ok(target) => return self.far_peer_when_created(&target, timeout, deadline),
            Err(name) => name,
        };
        #[cfg(not(feature = "net"))]
        let name = ChannelName::new(name)?;
        let watch = self.control.watch_names()?;
        loop {
            match self.near_peer(name.clone()) {
                Err(ConnectError::NotFound(name)) => {
                    if !self.control.wait_for_names(&watch, deadline)? {
                        let after = timeout.unwrap_or_default();
                        return Err(ConnectError::NotCreated { name, after });
                    }
                }
                other => return other,
            }
        }
    }
}
