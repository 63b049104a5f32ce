//! What a service sends without being asked, as lines of JSON.

use std::num::NonZeroU64;
use std::os::fd::AsFd;

use corewire_bind::{Binding, CallError, Message};
use corewire_idl::form::{Message as Declared, Role, Route, Wire};
use corewire_idl::json;
use corewire_os::event::wait_readable;
use serde::Serialize;
use serde_json::Value;

use super::Args;
use super::service::Service;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::{output, units};

#[derive(Debug, Serialize)]
struct Line<'a> {
    event: &'a str,
    arguments: Value,
}

/// Prints events until `--count`, a signal, or the end of the service.
pub(super) fn run(args: &Args, event: Option<&str>) -> Result<(), Failure> {
    let service = Service::ask(args)?;
    let wanted = event.map(|event| find(&service, event)).transpose()?;
    if wanted.is_none()
        && !service.interface.messages.iter().any(|one| sent_by_service(one).is_some())
    {
        return Err(Failure::usage(format!("{} has no events", args.name)));
    }
    let signals = Signals::catch()?;
    let mut binding = service.bind()?;
    let mut left = args.count.map_or(u64::MAX, NonZeroU64::get);
    while left > 0 {
        let Some((ordinal, message)) = next(&service, &mut binding, &signals)? else {
            return Ok(());
        };
        if wanted.is_some_and(|wanted| wanted != ordinal) {
            continue;
        }
        print(&service, ordinal, &message)?;
        left -= 1;
    }
    Ok(())
}

/// The next event; `None` if a signal was caught, or the service has closed.
fn next(
    service: &Service<'_>,
    binding: &mut Binding,
    signals: &Signals,
) -> Result<Option<(u16, Message)>, Failure> {
    loop {
        if signals.caught().is_some() {
            return Ok(None);
        }
        match binding.try_event() {
            Ok(Some(event)) => return Ok(Some(event)),
            Ok(None) => {}
            Err(error @ CallError::EventsLost { .. }) => {
                output::note(error);
                continue;
            }
            Err(CallError::PeerLeft { .. }) => return Ok(None),
            Err(CallError::PeerDied { .. }) => {
                let message = format!("{} died", service.args.name);
                return Err(Failure { message, code: 3 });
            }
            Err(error) => return Err(service.failure(error)),
        }
        let failed = |error| service.failure(error);
        let readiness = binding.readiness().map_err(failed)?;
        if binding.arm().map_err(failed)? {
            wait_readable(&[readiness.as_fd(), signals.descriptor()], None)?;
        }
    }
}

fn print(service: &Service<'_>, ordinal: u16, message: &Message) -> Result<(), Failure> {
    let sent = service.interface.messages.iter().filter(|one| one.ordinal == ordinal);
    let Some((declared, wire)) = sent.filter_map(|one| Some((one, sent_by_service(one)?))).next()
    else {
        return Err(Failure::other(format!(
            "{} sent a message that its interface does not have: ordinal {ordinal}",
            service.args.name
        )));
    };
    let arguments = json::decode(&service.interface, declared, wire, message);
    let arguments =
        arguments.map_err(|error| Failure::other(units::printable(&error.to_string())))?;
    output::print_line(&Line { event: &declared.name, arguments })
}

/// What of a message comes from the service without being asked for.
fn sent_by_service(message: &Declared) -> Option<&Wire> {
    let is_event = |wire: &&Wire| wire.role == Role::OneWay && wire.direction != Route::ToService;
    message.wires.iter().find(is_event)
}

/// The ordinal of an event.
fn find(service: &Service<'_>, event: &str) -> Result<u16, Failure> {
    let (name, asked) = (&service.args.name, units::printable(event));
    match service.interface.message(event) {
        Some(message) if sent_by_service(message).is_some() => Ok(message.ordinal),
        Some(_) => Err(Failure::usage(format!("`{asked}` of {name} is a method, not an event"))),
        None => {
            let hint = match service.interface.message_like(event) {
                Some(similar) => format!("did you mean `{}`?", units::printable(similar)),
                None => format!("its events: {}", service.names(|route| route != Route::ToService)),
            };
            Err(Failure::usage(format!("{name} has no event `{asked}`: {hint}")))
        }
    }
}
