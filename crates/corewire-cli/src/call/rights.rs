//! Capabilities: those of the arguments, and the file that came with a reply.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use corewire_bind::{Arrived, Capabilities, ChannelRef, EndpointRef, Right, ServiceRef, WindowRef};
use corewire_idl::form::{CapabilityKind, Resolved, Type};
use corewire_idl::json::{CapabilitySource, CapabilityUse};
use corewire_os::file::write_with;
use corewire_os::fork::Descriptor;

use super::service::Service;
use crate::failure::Failure;
use crate::{output, units};

/// Capabilities of a message to send.
pub(super) struct Rights(Vec<Outgoing>);

enum Outgoing {
    File(File),
    Inherited(Descriptor),
    Endpoint(EndpointRef),
    Channel(ChannelRef<()>),
    Service(ServiceRef),
    Window(WindowRef),
}

impl Rights {
    /// Opens what the arguments name.
    pub(super) fn open(service: &Service<'_>, uses: &[CapabilityUse]) -> Result<Self, Failure> {
        uses.iter().map(|one| open(service, one)).collect::<Result<_, _>>().map(Self)
    }

    /// As they are sent.
    pub(super) fn capabilities(&self) -> Capabilities<'_> {
        let mut all = Capabilities::new();
        for one in &self.0 {
            match one {
                Outgoing::File(file) => all.descriptor(file.as_fd()),
                Outgoing::Inherited(descriptor) => all.descriptor(descriptor.as_fd()),
                Outgoing::Endpoint(endpoint) => all.endpoint(endpoint),
                Outgoing::Channel(channel) => all.channel(channel),
                Outgoing::Service(service) => all.service(service),
                Outgoing::Window(window) => all.window(window),
            }
        }
        all
    }
}

fn open(service: &Service<'_>, one: &CapabilityUse) -> Result<Outgoing, Failure> {
    let usage = |why: String| Failure::usage(units::printable(&format!("{}: {why}", one.path)));
    let failed = |error: io::Error| usage(error.to_string());
    let domain = &service.domain;
    let of = match service.interface.resolve(&one.of) {
        Resolved::Plain(of) => of,
        Resolved::Declared(_) => &one.of,
    };
    match (of, &one.source) {
        (_, CapabilitySource::Received(_)) => {
            Err(usage("nothing was received: a path or a descriptor is needed".to_owned()))
        }
        (
            Type::Capability { capability: CapabilityKind::Endpoint },
            CapabilitySource::Path(name),
        ) => EndpointRef::new(domain, name).map(Outgoing::Endpoint).map_err(failed),
        (Type::Capability { capability: CapabilityKind::Window }, CapabilitySource::Path(name)) => {
            let handle = domain.window_handle(name).map_err(|error| usage(error.to_string()))?;
            WindowRef::new(domain, handle).map(Outgoing::Window).map_err(failed)
        }
        (Type::Channel { .. }, CapabilitySource::Path(name)) => {
            ChannelRef::new(domain, name).map(Outgoing::Channel).map_err(failed)
        }
        (Type::Client { .. }, CapabilitySource::Path(name)) => {
            ServiceRef::new(domain, name).map(Outgoing::Service).map_err(failed)
        }
        (Type::Capability { capability }, _)
            if !matches!(capability, CapabilityKind::Endpoint | CapabilityKind::Window) =>
        {
            match &one.source {
                CapabilitySource::Path(path) => {
                    let opened = File::open(path).map(Outgoing::File);
                    opened.map_err(|error| usage(format!("cannot open {path}: {error}")))
                }
                CapabilitySource::Descriptor(number) => {
                    let inherited = corewire_os::process::inherited(*number);
                    inherited.map(Outgoing::Inherited).map_err(|error| usage(error.to_string()))
                }
                _ => Err(usage("a path or a descriptor is needed".to_owned())),
            }
        }
        _ => Err(usage(format!("a name is needed: the type is {of}"))),
    }
}

/// Copies the one file that came with a reply.
pub(super) fn copy(mut arrived: Arrived<'_>, target: &Path) -> Result<(), Failure> {
    let rights = std::iter::from_fn(|| arrived.any().transpose()).collect::<Result<Vec<_>, _>>();
    let rights = rights.map_err(|error| Failure::other(error.to_string()))?;
    let count = rights.len();
    let mut rights = rights.into_iter();
    let (Some(Right::Descriptor(descriptor)), None) = (rights.next(), rights.next()) else {
        let found = units::counted(count, "capability", "capabilities");
        let why = format!("the reply has {found}: --copy-to needs exactly one descriptor");
        return Err(Failure::other(why));
    };
    let mut source = Source { file: File::from(descriptor), error: None };
    let copied = match target.as_os_str() == "-" {
        true => {
            let mut stdout = io::stdout().lock();
            io::copy(&mut source, &mut stdout).and_then(|_| stdout.flush())
        }
        false => write_with(target, |file| io::copy(&mut source, file).map(drop)),
    };
    copied.map_err(|error| match source.error {
        Some(error) => Failure::other(format!("cannot read the descriptor of the reply: {error}")),
        None if target.as_os_str() == "-" => output::failed(&error),
        None => {
            let target = units::printable(&target.to_string_lossy());
            Failure::other(format!("cannot write {target}: {error}"))
        }
    })
}

/// Tells errors of reading from errors of writing.
struct Source {
    file: File,
    error: Option<String>,
}

impl io::Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer);
        if let Err(error) = &read
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.error = Some(error.to_string());
        }
        read
    }
}
