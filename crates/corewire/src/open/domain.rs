//! A domain: the processes that may find each other.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use corewire_layout::name::{ChannelName, NameKind};
use corewire_os::access::Access;
use corewire_os::directory::{ClaimError, Role, RuntimeDirectory, default_path, default_path_of};
use corewire_os::process::{self, effective_uid};
use corewire_os::sleep::Linux;

use crate::control::attach::ANSWER_TIMEOUT;
use crate::control::domain::DomainInner;
use crate::control::endpoint::observer::EndpointObserver;
use crate::control::hub::HubHandle;
use crate::control::look::{self, Observed, Sighting};
use crate::control::observer::Observer;
use crate::error::{JoinError, OpenError};
use crate::open::channel::{ReceiverBuilder, SenderBuilder};
use crate::open::endpoint::EndpointBuilder;
use crate::tell::tell;

/// A set of processes that may find each other: all that open the same runtime directory as the
/// same user, its owner. It may let other users in as guests ([`DomainBuilder::access`]): they find
/// and join channels, and create none. Cheap to clone; what is made from it keeps what it needs.
///
/// Opening a domain starts the process's control thread (all signals blocked, asleep unless
/// something changes) and raises the soft limit on descriptors to the hard one.
#[derive(Clone)]
pub struct Domain {
    pub(crate) inner: Arc<DomainInner>,
}

impl Domain {
    /// Opens the default domain: the runtime directory `$COREWIRE_RUNTIME_DIR`, else
    /// `$XDG_RUNTIME_DIR/corewire`, else `/tmp/corewire-UID`; made if it is not there. For
    /// processes of this user alone.
    ///
    /// # Errors
    /// [`OpenError`]: the directory belongs to another user or is open to others, or a call failed.
    pub fn open() -> Result<Self, OpenError> {
        Self::builder().open()
    }

    /// Opens the domain of the runtime directory at `path`, for processes of this user alone.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_at(path: &Path) -> Result<Self, OpenError> {
        Self::builder().path(path).open()
    }

    /// Begins to open a domain that lets other users in, or another user's.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::temp_dir().join(format!("corewire-guests-{}", std::process::id()));
    /// use corewire::{Access, Domain};
    ///
    /// // The owner: users 1001 and 1002 may join its channels.
    /// let domain = Domain::builder().path(&path).access(Access::Users(vec![1001, 1002])).open()?;
    /// let sender = domain.sender("prices").create()?;
    ///
    /// // A process of one of them, where the owner is user 1000.
    /// let open_as_guest = || Domain::builder().path(&path).owner(1000).open();
    /// # let _ = open_as_guest;
    /// # drop(sender); drop(domain); std::fs::remove_dir_all(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> DomainBuilder {
        DomainBuilder::default()
    }

    /// Begins to make channel `name`, with this process as its sender.
    pub fn sender(&self, name: &str) -> SenderBuilder {
        SenderBuilder::new(self, name)
    }

    /// Begins to join channel `name`.
    pub fn receiver(&self, name: &str) -> ReceiverBuilder {
        ReceiverBuilder::new(self, name)
    }

    /// Begins to make endpoint `name`, by which this process and others send each other messages.
    pub fn endpoint(&self, name: &str) -> EndpointBuilder {
        EndpointBuilder::new(self, name)
    }

    /// The names of the endpoints that exist, in order; otherwise as [`channels`](Self::channels). A guest
    /// sees none.
    ///
    /// # Errors
    /// As for [`channels`](Self::channels).
    pub fn endpoints(&self) -> Result<Vec<ChannelName>, OpenError> {
        self.names_of(NameKind::Endpoint)
    }

    /// The names of the channels that exist, in order. Those of dead processes are left out, and
    /// for a guest those of processes that let no guests in. Never waits for another process.
    ///
    /// # Errors
    /// [`OpenError::Os`] if the runtime directory or a file of it cannot be read, or if it cannot be
    /// said whether a process is alive.
    pub fn channels(&self) -> Result<Vec<ChannelName>, OpenError> {
        self.names_of(NameKind::Channel)
    }

    fn names_of(&self, kind: NameKind) -> Result<Vec<ChannelName>, OpenError> {
        if self.inner.is_forked() {
            return Err(OpenError::Forked);
        }
        let directory = &self.inner.directory;
        let mut names = Vec::new();
        for name in directory.names()? {
            let record = match directory.look_up(&name) {
                Err(ClaimError::Os(error)) => return Err(error.into()),
                // What is not corewire's is no channel.
                found => found.ok().flatten(),
            };
            if let Some(record) = record
                && record.kind == kind
                && directory.is_alive(record.socket)?
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Looks at channel `name` without becoming a receiver: counters, cursors, sizes. Costs the
    /// channel nothing. A guest is not shown the receivers. Waits for the owner's answer, for at
    /// most 10 s.
    ///
    /// # Errors
    /// As for joining.
    pub fn observe(&self, name: &str) -> Result<Observer, JoinError> {
        let name = ChannelName::of_any(name)?;
        match look::one(&self.inner, &name, NameKind::Channel, ANSWER_TIMEOUT)? {
            Observed::Channel(observer) => Ok(observer),
            Observed::Endpoint(_) => Err(JoinError::NotAChannel(name)),
        }
    }

    /// Looks at endpoint `name` without linking with it: its peers, what has gone each way, what it keeps.
    /// Not for guests. Waits for the answer of its process, for at most 10 s.
    ///
    /// # Errors
    /// As for joining; [`JoinError::NotAnEndpoint`].
    pub fn observe_endpoint(&self, name: &str) -> Result<EndpointObserver, JoinError> {
        let name = ChannelName::of_any(name)?;
        match look::one(&self.inner, &name, NameKind::Endpoint, ANSWER_TIMEOUT)? {
            Observed::Endpoint(observer) => Ok(observer),
            Observed::Channel(_) => Err(JoinError::NotAnEndpoint(name)),
        }
    }

    /// Looks at all channels and endpoints, in the order of their names. Up to 256 processes are asked at one
    /// time, each for one name after the other, and answers are waited for until `timeout` has passed in
    /// all: a process that is stopped delays no other's answer, and its names are listed with
    /// [`JoinError::NoAnswer`]. A guest sees channels only.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-all-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// # let sender = domain.sender("log").create()?;
    /// use corewire::Observed;
    /// use std::time::Duration;
    ///
    /// for sighting in domain.observe_all(Duration::from_secs(1))? {
    ///     match sighting.observed {
    ///         Ok(Observed::Channel(channel)) => println!("{} sent", channel.look().sent),
    ///         Ok(Observed::Endpoint(endpoint)) => println!("{} peers", endpoint.look().peers.len()),
    ///         Ok(_) => {}
    ///         Err(error) => println!("{}: {error}", sighting.name),
    ///     }
    /// }
    /// # drop(sender); drop(domain); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OpenError::Os`] if the runtime directory cannot be read; [`OpenError::Forked`].
    pub fn observe_all(&self, timeout: Duration) -> Result<Vec<Sighting>, OpenError> {
        if self.inner.is_forked() {
            return Err(OpenError::Forked);
        }
        Ok(look::all(&self.inner, timeout)?)
    }

    /// Where the runtime directory is.
    #[must_use]
    pub fn runtime_directory(&self) -> &Path {
        self.inner.directory.path()
    }

    /// The user whose domain this is.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.inner.directory.owner()
    }

    /// True if it is another user's: this process joins channels here and creates none.
    #[must_use]
    pub fn is_guest(&self) -> bool {
        self.inner.socket_name().is_none()
    }
}

/// A domain to be opened; made by [`Domain::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is opened before `open`"]
pub struct DomainBuilder {
    path: Option<PathBuf>,
    access: Option<Access>,
    owner: Option<u32>,
}

impl DomainBuilder {
    /// The runtime directory. If not said: `$COREWIRE_RUNTIME_DIR`, else, where an
    /// [`owner`](Self::owner) is given or others are let in, `/tmp/corewire-OWNER`, and otherwise as for
    /// [`Domain::open`].
    pub fn path(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Who may join the channels that this process creates; this user's processes alone if not
    /// said.
    ///
    /// Opening sets the directory's mode, and for [`Access::Group`] its group, to exactly what the
    /// rule asks for, whatever they were: a later rule replaces an earlier one. Those who have
    /// joined stay, and processes that run go on answering by the rule that they were opened with.
    /// Under another rule than [`Access::Owner`] this user's own processes must all say either a
    /// rule or the [`owner`](Self::owner), since plain [`Domain::open`] refuses a directory that
    /// others may enter.
    pub fn access(mut self, rule: Access) -> Self {
        self.access = Some(rule);
        self
    }

    /// The user that the domain belongs to; this process's if not said. With another, the process
    /// is a guest: the directory must be that user's, and nobody else may be able to write it. It
    /// finds, joins and looks at channels, creates none, and leaves nothing in the directory. As
    /// nobody can invite it, it may miss messages that were sent before it joined.
    ///
    /// With this process's own user and no rule, the directory is taken as it is, even if it is
    /// open to others; channels that this process creates are then for its own user alone.
    pub fn owner(mut self, uid: u32) -> Self {
        self.owner = Some(uid);
        self
    }

    /// Opens the domain. Never waits for another process.
    ///
    /// # Errors
    /// [`OpenError::Directory`]: the directory belongs to another user than was said, is open to
    /// others and no rule was given, can be written by others, or did not take the rule's group or
    /// mode. [`OpenError::Guest`]: a rule was given for another user's domain. [`OpenError::Os`]: a
    /// call failed, such as entering a directory that this user was not let into.
    pub fn open(self) -> Result<Domain, OpenError> {
        let user = effective_uid();
        // Where a domain that others may enter lies does not depend on who opens it.
        let (default, role) = match (self.owner, self.access) {
            (Some(owner), Some(_)) if owner != user => {
                return Err(OpenError::Guest { owner, user });
            }
            (Some(owner), None) if owner != user => (default_path_of(owner), Role::Guest(owner)),
            (Some(_), None) => (default_path_of(user), Role::Resident),
            (_, Some(access)) if access.is_open_to_others() => {
                (default_path_of(user), Role::Ruler(access))
            }
            (_, Some(access)) => (default_path(), Role::Ruler(access)),
            (None, None) => (default_path(), Role::Owner),
        };
        let path = self.path.unwrap_or(default);
        let _ = process::raise_descriptor_limit();
        let is_guest = matches!(role, Role::Guest(_));
        let directory = RuntimeDirectory::open(&path, role)?;
        let hub = HubHandle::get()?;
        tell_fall_backs();
        let listening = if is_guest {
            None
        } else {
            directory.sweep()?;
            Some(directory.listen()?)
        };
        Ok(Domain { inner: DomainInner::start(directory, hub, listening)? })
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// What the kernel refuses, and what is done instead.
fn tell_fall_backs() {
    let linux = Linux::get();
    if !linux.has_membarrier() {
        tell!(warn, "the kernel refuses membarrier: each message costs a locked instruction");
    }
    if !linux.has_waitv() {
        tell!(warn, "the kernel refuses futex_waitv: sleepers look up every 4 ms");
    }
}
