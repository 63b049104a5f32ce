//! A service whose interface is known only at run time.

use std::time::Duration;

use corewire::{ConnectServiceError, Connection, Domain};
use corewire_bind::{
    Bind, BindError, BindReason, Binding, CallError, Description, Introspection, Wire,
};
use corewire_idl::form::{self, Interface, Route};

use super::{Args, Limit};
use crate::failure::Failure;
use crate::{access, output, units};

/// How long a service that exists may take to say what its interface is.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The same for a service that is only named in an error message.
const HINT_WITHIN: Duration = Duration::from_secs(1);
/// The limit on binding where the command has none.
const FOREVER: Duration = Duration::from_secs(1_000_000);
/// Methods that an error message lists; `--interface` shows more.
const LISTED_MAX: usize = 16;

/// A service that has said what its interface is.
pub(super) struct Service<'a> {
    pub(super) args: &'a Args,
    pub(super) domain: Domain,
    pub(super) limit: Limit,
    pub(super) interface: Interface,
}

impl<'a> Service<'a> {
    /// Asks the service, which may have to be waited for.
    pub(super) fn ask(args: &'a Args) -> Result<Self, Failure> {
        let (limit, domain) = (args.limit(), access::open_domain()?);
        let connection = connect(args, &domain, limit)?;
        let interface = interface(args, connection, limit.left_of(ANSWER_WITHIN))?;
        Ok(Self { args, domain, limit, interface })
    }

    /// Binds to the service with its own interface.
    pub(super) fn bind(&self) -> Result<Binding, Failure> {
        let wires = self.interface.wires().map(|(message, wire)| described(message, wire));
        let errors = self.interface.error_hashes();
        let errors = errors.iter().map(|(name, hash)| Wire {
            name,
            ordinal: 0,
            hash: hash.0,
            bytes_max: 0,
            earlier: &[],
        });
        let wires = wires.chain(errors).collect::<Vec<_>>();
        let (name, hash) = (self.interface.name.as_str(), self.interface.hash.0);
        let description = Description { name, hash, wires: &wires, form: "" };
        let mut bind = Bind::default().timeout(self.limit.left_of(FOREVER));
        if !self.args.drivers.is_empty() {
            bind = bind.drivers(self.args.drivers.iter().copied());
        }
        let bound = bind.connect(&self.domain, self.args.name.as_str(), &description);
        let binding = bound.map_err(|error| self.unbound(&error))?;
        // Another process may have taken the name since the service was asked.
        let same = |index| binding.form(index) == corewire_bind::Form::Current;
        match (0..wires.len()).all(same) {
            true => Ok(binding),
            false => Err(Failure::other(format!(
                "{} has changed its interface since it was asked: try again",
                self.args.name
            ))),
        }
    }

    fn unbound(&self, error: &BindError) -> Failure {
        let is_late =
            |reason: &BindReason| matches!(reason, BindReason::Call(CallError::Timeout { .. }));
        let is_late = error.tried.iter().any(|(_, reason)| is_late(reason));
        match is_late && self.args.timeout.is_some() {
            true => self.args.late(),
            false => Failure::other(units::printable(&error.to_string())),
        }
    }

    /// The failure for a call that ended without a reply.
    pub(super) fn failure(&self, error: CallError) -> Failure {
        match error {
            CallError::PeerDied { .. } => self.args.died(),
            CallError::Timeout { .. } => self.args.late(),
            CallError::Dropped => self.args.dropped(),
            other => Failure::other(units::printable(&other.to_string())),
        }
    }

    /// The names of what clients can send, or of what the service sends, for an error message.
    pub(super) fn names(&self, is_wanted: impl Fn(Route) -> bool) -> String {
        names(&self.interface, is_wanted)
    }
}

/// A message as both sides compare it.
fn described<'a>(message: &form::Message, wire: &'a form::Wire) -> Wire<'a> {
    Wire {
        name: &wire.name,
        ordinal: message.ordinal,
        hash: wire.hash.0,
        bytes_max: wire.layout.bytes_max,
        earlier: &[],
    }
}

/// Prints the interface.
pub(super) fn print(args: &Args) -> Result<(), Failure> {
    let Service { interface, .. } = Service::ask(args)?;
    match args.json {
        true => output::print(&interface.to_json()),
        false => {
            // Another process wrote it: nothing in it controls the terminal.
            let text = interface.to_text();
            let lines = text.lines().map(|line| units::printable(line) + "\n");
            output::print(&lines.collect::<String>())
        }
    }
}

/// The failure for a request without a method to what turned out to be a service.
pub(super) fn needs_method(args: &Args, domain: &Domain) -> Failure {
    let name = &args.name;
    let asked = domain.connect(name.as_str(), HINT_WITHIN).ok();
    let interface = asked.and_then(|connection| interface(args, connection, HINT_WITHIN).ok());
    let methods = match interface {
        Some(interface) => format!(" ({})", names(&interface, |route| route != Route::ToClient)),
        None => String::new(),
    };
    Failure::usage(format!("{name} is a service, not an endpoint: a METHOD is needed{methods}"))
}

fn names(interface: &Interface, is_wanted: impl Fn(Route) -> bool) -> String {
    let of = |message: &&form::Message| {
        message.wires.first().is_some_and(|wire| is_wanted(wire.direction))
    };
    let names = interface.messages.iter().filter(of).map(|one| format!("`{}`", one.name));
    let names = names.collect::<Vec<_>>();
    let text = match names.len() {
        0 => "there are none".to_owned(),
        count if count > LISTED_MAX => format!("--interface shows all {count}"),
        _ => names.join(", "),
    };
    units::printable(&text)
}

fn connect(args: &Args, domain: &Domain, limit: Limit) -> Result<Connection, Failure> {
    let name = args.name.as_str();
    let connected = match domain.connect(name, limit.left_of(ANSWER_WITHIN)) {
        Err(ConnectServiceError::NotFound(_)) if !args.no_wait => {
            output::waiting(name, domain);
            domain.connect_when_created(name, limit.left())
        }
        connected => connected,
    };
    connected.map_err(|error| match error {
        ConnectServiceError::NotFound(_) => {
            Failure::other(format!("service {name} does not exist"))
        }
        ConnectServiceError::NotCreated { .. } => args.late(),
        ConnectServiceError::NotAListener(_) => no_service(args, domain),
        error => Failure::other(error),
    })
}

fn no_service(args: &Args, domain: &Domain) -> Failure {
    let name = &args.name;
    if domain.channels().is_ok_and(|all| all.contains(name)) {
        return Failure::usage(format!("{name} is a channel, not a service"));
    }
    match domain.endpoints().is_ok_and(|all| all.contains(name)) {
        true => Failure::usage(format!(
            "{name} is an endpoint, not a service, and has no methods: `corewire call {name}` sends standard input to it"
        )),
        // A guest is not shown which of both it is.
        false => Failure::usage(format!("{name} is a channel or an endpoint, not a service")),
    }
}

/// What the service at the other end says its interface is.
fn interface(args: &Args, connection: Connection, limit: Duration) -> Result<Interface, Failure> {
    let name = &args.name;
    let form = Introspection::new(connection).form(limit).map_err(|error| match error {
        BindReason::Call(CallError::Timeout { .. }) if args.timeout.is_some() => args.late(),
        BindReason::Call(CallError::Timeout { after }) => Failure::other(format!(
            "{name} did not answer within {after:?}: it is busy or stopped, or serves no interface"
        )),
        BindReason::Closed => Failure::other(format!(
            "{name} closed the connection: it ended, or serves no interface"
        )),
        BindReason::Protocol => {
            Failure::other(format!("{name} serves no interface of this version of corewire"))
        }
        other => Failure::other(units::printable(&format!("{name}: {other}"))),
    })?;
    Interface::from_json(&form).map_err(|error| {
        let why = units::printable(&error.to_string());
        Failure::other(format!("{name} gives out no interface that can be read: {why}"))
    })
}
