//! A method of a service: arguments and reply in JSON.

use std::io::{self, IsTerminal, Read};

use corewire_idl::form::{Message, Role, Route, Wire};
use corewire_idl::json;
use serde_json::Value;

use super::rights::{self, Rights};
use super::service::Service;
use super::{Args, parts};
use crate::failure::Failure;
use crate::{output, units};

/// Calls the method, or sends a message without a reply.
pub(super) fn run(args: &Args, method: &str) -> Result<(), Failure> {
    // Wrong arguments are an error even if the service has to be waited for.
    let arguments = arguments(args)?;
    let service = Service::ask(args)?;
    let (message, wire) = find(&service, method)?;
    let encoded = json::encode(&service.interface, message, wire, &arguments);
    let encoded = encoded.map_err(|error| Failure::usage(units::printable(&error.to_string())))?;
    let rights = Rights::open(&service, &encoded.capabilities)?;
    let (bytes, capabilities) = (&encoded.bytes, rights.capabilities());
    let mut binding = service.bind()?;
    let Some(reply_wire) = message.wires.iter().find(|one| one.role == Role::Reply) else {
        let sent = binding.send(message.ordinal, bytes, &capabilities, service.limit.left());
        return sent.map_err(|error| service.failure(error));
    };
    if let Some(part) = message.wires.iter().find(|one| one.role == Role::Part) {
        let wires = (part, reply_wire);
        return parts::run(&service, &mut binding, message, wires, (bytes, &capabilities));
    }
    if args.count.is_some() {
        return Err(Failure::usage(format!("--count: `{method}` answers once, not in parts")));
    }
    let (bytes_max, left) = (reply_wire.layout.bytes_max, service.limit.left());
    let reply = binding.call(message.ordinal, bytes, &capabilities, bytes_max, left);
    let mut reply = reply.map_err(|error| service.failure(error))?;
    let (bytes, arrived) = reply.parts("the reply");
    let value = json::decode(&service.interface, message, reply_wire, bytes);
    let value = value.map_err(|error| Failure::other(units::printable(&error.to_string())))?;
    if json::error(message, reply_wire, &value).is_some() {
        return parts::failed(&value);
    }
    match &args.copy_to {
        Some(target) if target.as_os_str() == "-" => rights::copy(arrived, target),
        Some(target) => {
            output::print_value(&value)?;
            rights::copy(arrived, target)
        }
        None => output::print_value(&value),
    }
}

/// The arguments as they were given.
fn arguments(args: &Args) -> Result<Value, Failure> {
    let mut read = String::new();
    let text = match args.arguments.as_deref() {
        None => "{}",
        Some("-") => {
            if io::stdin().is_terminal() {
                output::note("reads the arguments from standard input, up to its end (Ctrl-D)");
            }
            io::stdin().lock().read_to_string(&mut read).map_err(|error| {
                Failure::other(format!("cannot read the arguments from standard input: {error}"))
            })?;
            &read
        }
        Some(text) => text,
    };
    serde_json::from_str(text)
        .map_err(|error| Failure::usage(format!("the arguments are not JSON: {error}")))
}

/// The message, and what of it travels to the service.
fn find<'s>(service: &'s Service<'_>, method: &str) -> Result<(&'s Message, &'s Wire), Failure> {
    let (name, interface) = (&service.args.name, &service.interface);
    let asked = units::printable(method);
    let Some(message) = interface.message(method) else {
        let hint = match interface.message_like(method) {
            Some(similar) => format!("did you mean `{}`?", units::printable(similar)),
            None => format!("its methods: {}", service.names(|route| route != Route::ToClient)),
        };
        return Err(Failure::usage(format!("{name} has no method `{asked}`: {hint}")));
    };
    let wire = message.wires.iter().find(|wire| wire.direction != Route::ToClient);
    wire.map(|wire| (message, wire)).ok_or_else(|| {
        let command = format!("corewire call {name} --events {asked}");
        Failure::usage(format!("{name} sends `{asked}` itself: `{command}` prints it"))
    })
}
