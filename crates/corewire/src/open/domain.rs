//! A domain: a set of processes that can find each other.
//!
//! Opening it opens the runtime directory, starts the control thread if there is none, removes the files of dead
//! processes, and creates this process's socket. A guest in another user's domain removes nothing and has no socket:
//! it can only join and connect.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use corewire_layout::name::{ChannelName, NameKind};
use corewire_os::access::Access;
use corewire_os::directory::{
    ClaimError, Role, RuntimeDirectory, Watch, default_path, default_path_of,
};
use corewire_os::process::{self, effective_uid};
use corewire_os::sleep::Linux;

use crate::control::asking::ANSWER_TIMEOUT;
use crate::control::domain::{DomainHandle, DomainInner};
use crate::control::endpoint::observer::EndpointObserver;
use crate::control::hub::HubHandle;
use crate::control::look::{self, Observed, Sighting};
use crate::control::observer::Observer;
use crate::error::{JoinError, OpenError};
use crate::tell::tell;
use crate::tuning::tuning;

/// A set of processes that can find each other: all that open the same runtime directory as the same user, its owner.
/// The owner can admit other users as guests ([`DomainBuilder::access`]). Guests find and join channels, connect
/// to listeners, and create neither. A clone is cheap. Handles stay valid after the domain is dropped.
///
/// Opening a domain starts the process's control thread, which blocks all signals and sleeps unless something changes.
/// It also raises the soft limit on descriptors to the hard one.
#[derive(Clone)]
pub struct Domain {
    pub(crate) inner: DomainHandle,
    /// The file of hosts of its endpoints.
    #[cfg(feature = "net")]
    pub(crate) hosts: Option<PathBuf>,
}

impl Domain {
    /// Opens the default domain: the runtime directory `$COREWIRE_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/corewire` if that
    /// variable names a directory of this user, else `/tmp/corewire-UID`. Creates the directory if it does not exist. The
    /// domain is for processes of this user only, unless the directory has an [access rule](DomainBuilder::access).
    ///
    /// # Errors
    /// [`OpenError`]: the directory belongs to another user or is open to others, or a call failed.
    pub fn open() -> Result<Self, OpenError> {
        Self::builder().open()
    }

    /// Opens the domain of the runtime directory at `path`.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_at(path: &Path) -> Result<Self, OpenError> {
        Self::builder().path(path).open()
    }

    /// Returns a builder, for a domain that admits other users, or for a domain of another user.
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

    /// Its runtime directory: all processes of the domain have the same one.
    ///
    /// ```
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-directory-{}", std::process::id()));
    /// let domain = corewire::Domain::open_at(&directory)?;
    /// assert_eq!(domain.runtime_directory(), directory);
    /// # drop(domain);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn runtime_directory(&self) -> &Path {
        self.inner.directory.path()
    }

    /// Lists the names of the existing endpoints, in order, like [`channels`](Self::channels). A guest sees none.
    ///
    /// # Errors
    /// As for [`channels`](Self::channels).
    pub fn endpoints(&self) -> Result<Vec<ChannelName>, OpenError> {
        self.names_of(NameKind::Endpoint)
    }

    /// Lists the names of the existing channels, in order. Names of dead processes are left out. For a guest, names of
    /// processes that admit no guests are left out too. Never waits for another process.
    ///
    /// # Errors
    /// [`OpenError::Os`] if the runtime directory or a file in it cannot be read, or if it cannot be determined whether
    /// a process is alive.
    pub fn channels(&self) -> Result<Vec<ChannelName>, OpenError> {
        self.names_of(NameKind::Channel)
    }

    /// Watches the runtime directory for names that come and go.
    ///
    /// # Errors
    /// [`OpenError::Os`] if this user has as many watches as the system allows; [`OpenError::Forked`].
    pub fn watch_names(&self) -> Result<NameWatch, OpenError> {
        if self.inner.is_forked() {
            return Err(OpenError::Forked);
        }
        Ok(NameWatch(self.inner.directory.watch()?))
    }

    pub(crate) fn names_of(&self, kind: NameKind) -> Result<Vec<ChannelName>, OpenError> {
        if self.inner.is_forked() {
            return Err(OpenError::Forked);
        }
        let directory = &self.inner.directory;
        let mut names = Vec::new();
        for name in directory.names()? {
            let record = match directory.look_up(&name) {
                Err(ClaimError::Os(error)) => return Err(error.into()),
                // A file that corewire did not create is not a channel.
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

    /// Observes channel `name` without becoming a receiver: its counters, cursors and sizes. This costs the channel
    /// nothing. A guest does not see the receivers. Waits for the owner's answer for at most 10 s.
    ///
    /// # Errors
    /// As for joining.
    pub fn observe(&self, name: &str) -> Result<Observer, JoinError> {
        let name = ChannelName::of_any(name)?;
        match look::one(&self.inner, &name, NameKind::Channel, ANSWER_TIMEOUT)? {
            Observed::Channel(observer) => Ok(observer),
            _ => Err(JoinError::NotAChannel(name)),
        }
    }

    /// Observes endpoint `name` without linking with it: its peers, the messages in each direction, and the messages
    /// that it keeps. Not for guests. Waits for the answer of its process for at most 10 s.
    ///
    /// # Errors
    /// As for joining, and [`JoinError::NotAnEndpoint`].
    pub fn observe_endpoint(&self, name: &str) -> Result<EndpointObserver, JoinError> {
        let name = ChannelName::of_any(name)?;
        match look::one(&self.inner, &name, NameKind::Endpoint, ANSWER_TIMEOUT)? {
            Observed::Endpoint(observer) => Ok(observer),
            _ => Err(JoinError::NotAnEndpoint(name)),
        }
    }

    /// Observes all channels, endpoints and listeners, in the order of their names. Asks up to 256 processes at one
    /// time, each for one name after the other. Waits for at most `timeout` in all. A stopped process delays no other
    /// answer; its names are listed with [`JoinError::NoAnswer`]. A guest sees no endpoints.
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

    /// The domain's owner.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.inner.directory.owner()
    }

    /// True if the domain belongs to another user: this process joins channels here and creates none.
    #[must_use]
    pub fn is_guest(&self) -> bool {
        self.inner.socket_name().is_none()
    }
}

/// A watch on a domain's names, made by [`Domain::watch_names`]. Its descriptor is readable when names may have come or
/// gone: for `poll`, `epoll` and event loops.
#[derive(Debug)]
pub struct NameWatch(Watch);

impl NameWatch {
    /// Whether names may have come or gone since the last call. Never waits.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.0.has_changed()
    }
}

impl AsFd for NameWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Builder of a domain, returned by [`Domain::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is opened before `open`"]
pub struct DomainBuilder {
    path: Option<PathBuf>,
    access: Option<Access>,
    owner: Option<u32>,
    #[cfg(feature = "net")]
    hosts: Option<PathBuf>,
}

impl DomainBuilder {
    /// Sets the file that names other hosts, for the endpoints that are created by this value: see
    /// [`EndpointBuilder::hosts`](crate::EndpointBuilder::hosts).
    #[cfg(feature = "net")]
    pub fn hosts(mut self, path: &Path) -> Self {
        self.hosts = Some(path.to_owned());
        self
    }

    /// Sets the runtime directory. Default: `$COREWIRE_RUNTIME_DIR`. Without that variable, `/tmp/corewire-OWNER` if an
    /// [`owner`](Self::owner) is given or other users are admitted, and otherwise as for [`Domain::open`].
    pub fn path(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Gives the domain a rule: who may join the channels of its processes and connect to their listeners. Default: the
    /// rule that the directory has, and without one, only processes of this user.
    ///
    /// The rule stays with the directory, in its file `rule`; opening sets the directory's mode, and for
    /// [`Access::Group`] its group, to exactly what the rule requires. All processes of this user that open the directory
    /// from then on follow it, until a later rule replaces it: [`Access::Owner`] removes it. Receivers that have joined
    /// stay, and running processes keep the rule with which they were opened. If someone gives the directory a mode that
    /// lets in more users than its rule, the rule does not count.
    pub fn access(mut self, rule: Access) -> Self {
        self.access = Some(rule);
        self
    }

    /// Sets the owner of the domain, a user. Default: this process's user. With another user, this process is a
    /// guest. The directory must then belong to that user, and no other user may be able to write it. A guest finds,
    /// joins and observes channels, creates none, and leaves nothing in the directory. A guest gets no invitations, so
    /// it may miss messages sent before it joined.
    ///
    /// With this process's own user and no rule, the directory is used as it is, even if it is open to other users. What
    /// this process creates is then only for its own user, whatever the directory's rule is.
    pub fn owner(mut self, uid: u32) -> Self {
        self.owner = Some(uid);
        self
    }

    /// Opens the domain. Never waits for another process.
    ///
    /// # Errors
    /// [`OpenError::Directory`]: the directory cannot be made or opened, belongs to another user than given, is open to
    /// others without a rule, can be written by others or not by its owner, or did not accept the rule's group or mode.
    /// [`OpenError::Guest`]: a rule was given for another user's domain. [`OpenError::Os`]: another call failed.
    pub fn open(self) -> Result<Domain, OpenError> {
        let user = effective_uid();
        // The default path of a domain that other users may enter does not depend on the user that opens it.
        let (default, role) = match (self.owner, self.access) {
            (Some(owner), Some(_)) if owner != user => {
                return Err(OpenError::Guest { owner, user });
            }
            (Some(owner), None) if owner != user => (default_path_of(owner), Role::Guest(owner)),
            (Some(_), None) => (default_path_of(user), Role::Resident),
            (None, Some(Access::Owner)) => (default_path(), Role::Ruler(Access::Owner)),
            (_, Some(access)) => (default_path_of(user), Role::Ruler(access)),
            (None, None) => (default_path(), Role::Owner),
        };
        let path = self.path.unwrap_or(default);
        let _ = process::raise_descriptor_limit();
        let is_guest = matches!(role, Role::Guest(_));
        let directory = RuntimeDirectory::open(&path, role)?;
        let hub = HubHandle::get()?;
        report_fallbacks();
        tuning();
        let listening = if is_guest {
            None
        } else {
            let explain = |error| directory.explain(error);
            directory.sweep().map_err(explain)?;
            Some(directory.listen().map_err(explain)?)
        };
        let inner = DomainInner::start(directory, hub, listening)?;
        Ok(Domain {
            inner,
            #[cfg(feature = "net")]
            hosts: self.hosts,
        })
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Reports fallbacks: system calls that the kernel refuses, and what replaces them.
fn report_fallbacks() {
    let linux = Linux::get();
    if !linux.has_membarrier() {
        tell!(warn, "the kernel refuses membarrier: each message costs a locked instruction");
    }
    if !linux.has_waitv() {
        tell!(warn, "the kernel refuses futex_waitv: sleepers look up every 4 ms");
    }
}
