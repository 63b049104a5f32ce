//! Capabilities: rights that travel beside the bytes of a message.
//!
//! Each is a descriptor, passed by the kernel (`SCM_RIGHTS`), and a short note. Papers/003, section 4.4.

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use corewire::Domain;
pub(crate) use corewire_circuit::link::capability::{Kind, Outgoing, Received};
use corewire_circuit::link::sent::{Sent, Whose};
pub(crate) use corewire_os::packet::DESCRIPTORS_MAX as CAPABILITIES_MAX;
use rustix::fs::{Mode, OFlags};

use crate::error::{DecodeError, Problem};

/// The longest note: a name.
pub(crate) const NOTE_BYTES_MAX: usize = 128;

/// Refuses the capabilities of a message that has none in the interface.
#[inline]
pub(crate) fn none_of(all: &[Received], place: &'static str) -> Result<(), DecodeError> {
    all.first().map_or(Ok(()), |found| Err(one_more(place, found)))
}

#[cold]
fn one_more(place: &'static str, found: &Received) -> DecodeError {
    DecodeError { place, problem: Problem::Capability { found: found.kind.name(), due: "none" } }
}

/// The capabilities of a message that has arrived, in the order of the interface. For generated code.
#[derive(Debug)]
pub struct Arrived<'a> {
    rest: Rest<'a>,
    place: &'static str,
}

#[derive(Debug)]
enum Rest<'a> {
    Message(std::vec::Drain<'a, Received>),
    Part(std::vec::IntoIter<Received>),
}

impl<'a> Arrived<'a> {
    pub(crate) fn new(place: &'static str, all: &'a mut Vec<Received>) -> Self {
        Self { rest: Rest::Message(all.drain(..)), place }
    }

    fn take(&mut self) -> Option<Received> {
        match &mut self.rest {
            Rest::Message(rest) => rest.next(),
            Rest::Part(rest) => rest.next(),
        }
    }

    /// The next ones, in a part for each of `counts`. There may be fewer: the caller that takes them finds out.
    ///
    /// For arrays of structs: the capabilities of one field travel together.
    #[must_use]
    pub fn parts<const N: usize>(&mut self, counts: [usize; N]) -> [Arrived<'static>; N] {
        counts.map(|count| {
            let part = std::iter::from_fn(|| self.take()).take(count).collect::<Vec<_>>();
            Arrived { rest: Rest::Part(part.into_iter()), place: self.place }
        })
    }

    fn next(&mut self, kind: Kind) -> Result<Received, DecodeError> {
        let problem = match self.take() {
            Some(found) if found.kind == kind => return Ok(found),
            Some(found) => Problem::Capability { found: found.kind.name(), due: kind.name() },
            None => Problem::Capability { found: "none", due: kind.name() },
        };
        Err(DecodeError { place: self.place, problem })
    }

    /// The next one, a descriptor.
    ///
    /// # Errors
    /// There is none, or it is something else.
    pub fn descriptor(&mut self) -> Result<OwnedFd, DecodeError> {
        self.next(Kind::Descriptor).map(|found| found.descriptor.take())
    }

    /// The next one, an endpoint.
    ///
    /// # Errors
    /// As for [`descriptor`](Self::descriptor).
    pub fn endpoint(&mut self) -> Result<EndpointRef, DecodeError> {
        self.next(Kind::Endpoint).map(|found| EndpointRef(Named::of(found)))
    }

    /// The next one, a channel.
    ///
    /// # Errors
    /// As for [`descriptor`](Self::descriptor).
    pub fn channel<T>(&mut self) -> Result<ChannelRef<T>, DecodeError> {
        self.next(Kind::Channel).map(|found| ChannelRef(Named::of(found), PhantomData))
    }

    /// The next one, a service.
    ///
    /// # Errors
    /// As for [`descriptor`](Self::descriptor).
    pub fn service(&mut self) -> Result<ServiceRef, DecodeError> {
        self.next(Kind::Service).map(|found| ServiceRef(Named::of(found)))
    }

    /// The next one, of any kind, for a program that knows the interface only at run time; `None` behind the last one.
    pub fn any(&mut self) -> Option<Right> {
        let found = self.take()?;
        Some(match found.kind {
            Kind::Descriptor => Right::Descriptor(found.descriptor.take()),
            Kind::Endpoint => Right::Endpoint(EndpointRef(Named::of(found))),
            Kind::Channel => Right::Channel(ChannelRef(Named::of(found), PhantomData)),
            Kind::Service => Right::Service(ServiceRef(Named::of(found))),
        })
    }

    /// Checks that there are no more.
    ///
    /// # Errors
    /// There are.
    pub fn finish(mut self) -> Result<(), DecodeError> {
        match self.take() {
            None => Ok(()),
            Some(found) => Err(one_more(self.place, &found)),
        }
    }
}

/// A capability of any kind that has arrived.
#[derive(Debug)]
#[non_exhaustive]
pub enum Right {
    /// Any descriptor.
    Descriptor(OwnedFd),
    /// An endpoint.
    Endpoint(EndpointRef),
    /// A channel.
    Channel(ChannelRef<()>),
    /// A service.
    Service(ServiceRef),
}

/// The capabilities of a message to send, in the order of the interface. For generated code.
#[derive(Debug, Default)]
pub struct Capabilities<'a>(Vec<Outgoing<'a>>);

impl<'a> Capabilities<'a> {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a descriptor.
    pub fn descriptor(&mut self, descriptor: BorrowedFd<'a>) {
        self.0.push(Outgoing { kind: Kind::Descriptor, note: "", descriptor });
    }

    /// Adds an endpoint.
    pub fn endpoint(&mut self, endpoint: &'a EndpointRef) {
        self.named(Kind::Endpoint, &endpoint.0);
    }

    /// Adds a channel.
    pub fn channel<T>(&mut self, channel: &'a ChannelRef<T>) {
        self.named(Kind::Channel, &channel.0);
    }

    /// Adds a service.
    pub fn service(&mut self, service: &'a ServiceRef) {
        self.named(Kind::Service, &service.0);
    }

    fn named(&mut self, kind: Kind, named: &'a Named) {
        self.0.push(Outgoing { kind, note: &named.name, descriptor: named.directory.as_fd() });
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn all(&self) -> &[Outgoing<'a>] {
        &self.0
    }

    /// Copies, for a message that waits.
    pub(crate) fn to_owned(&self) -> std::io::Result<Vec<Received>> {
        let copy = |one: &Outgoing<'_>| {
            let descriptor = Sent::new(one.descriptor.try_clone_to_owned()?, Whose::Own);
            Ok(Received { kind: one.kind, note: one.note.to_owned(), descriptor })
        };
        self.0.iter().map(copy).collect()
    }

    /// The first ones of a message that has waited.
    pub(crate) fn first_of(all: &'a [Received], count: usize) -> Self {
        Self::of_owned(all.get(..count).unwrap_or(all))
    }

    pub(crate) fn of_owned(all: &'a [Received]) -> Self {
        let lend = |one: &'a Received| Outgoing {
            kind: one.kind,
            note: &one.note,
            descriptor: one.descriptor.as_fd(),
        };
        Self(all.iter().map(lend).collect())
    }
}

/// A name in a domain, which can be sent to a process that does not know the domain's runtime directory.
struct Named {
    directory: OwnedFd,
    name: String,
}

impl Named {
    fn new(domain: &Domain, name: &str) -> std::io::Result<Self> {
        if name.len() > NOTE_BYTES_MAX {
            let (asked, what) = (name.len(), std::io::ErrorKind::InvalidInput);
            let text = format!("a name of {asked} bytes: at most {NOTE_BYTES_MAX} are possible");
            return Err(std::io::Error::new(what, text));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(domain.runtime_directory(), flags, Mode::empty())?;
        Ok(Self { directory, name: name.to_owned() })
    }

    fn of(found: Received) -> Self {
        Self { directory: found.descriptor.take(), name: found.note }
    }

    fn is_in(&self, domain: &Domain) -> bool {
        let own = rustix::fs::fstat(&self.directory);
        let other = std::fs::metadata(domain.runtime_directory());
        matches!((own, other), (Ok(own), Ok(other)) if own.st_dev == other.dev() && own.st_ino == other.ino())
    }

    fn path(&self) -> std::io::Result<PathBuf> {
        use std::os::fd::AsRawFd;
        std::fs::read_link(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

macro_rules! named {
    ($(#[$docs:meta])* $name:ident, $($of:ident)?, $value:expr, $what:literal) => {
        $(#[$docs])*
        #[derive(Debug)]
        pub struct $name$(<$of>)?(Named $(, PhantomData<fn() -> $of>)?);

        impl$(<$of>)? $name$(<$of>)? {
            #[doc = concat!("The ", $what, " of this name in a domain.")]
            ///
            /// # Errors
            /// The runtime directory cannot be opened.
            pub fn new(domain: &Domain, name: &str) -> std::io::Result<Self> {
                Named::new(domain, name).map($value)
            }

            /// Its name.
            #[must_use]
            pub fn name(&self) -> &str {
                &self.0.name
            }

            /// Whether it is in this domain.
            #[must_use]
            pub fn is_in(&self, domain: &Domain) -> bool {
                self.0.is_in(domain)
            }

            /// The runtime directory of its domain. A process in another container may see none there.
            ///
            /// # Errors
            /// `/proc` cannot be read.
            pub fn runtime_directory(&self) -> std::io::Result<PathBuf> {
                self.0.path()
            }
        }
    };
}

named!(
    /// An endpoint as an argument: `endpoint` in interface files.
    EndpointRef, , Self, "endpoint"
);
named!(
    /// A channel as an argument: `channel<T>` in interface files.
    ChannelRef, T, |named| Self(named, PhantomData), "channel"
);
named!(
    /// A service as an argument: `client<I>` in interface files. A program that gets it can bind to the service.
    ServiceRef, , Self, "service"
);
