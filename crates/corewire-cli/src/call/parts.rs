//! The answer of a method in parts, as lines of JSON.

use std::num::NonZeroU64;

use corewire_bind::{Binding, CallError, Capabilities, DecodeStream, Form, Message};
use corewire_idl::form::{self, Wire};
use corewire_idl::json;
use serde_json::Value;

use super::service::Service;
use crate::failure::Failure;
use crate::{output, units};

/// The exit code for an error that the service replied with.
const ERROR_CODE: u8 = 4;

/// How a stream has ended.
enum Ended {
    /// By this reply.
    Reply(Box<Message>),
    Call(CallError),
}

impl From<CallError> for Ended {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// Prints each part in a line, until `--count` or the end of the stream.
pub(super) fn run(
    service: &Service<'_>,
    binding: &mut Binding,
    message: &form::Message,
    (part, end): (&Wire, &Wire),
    request: (&[u8], &Capabilities<'_>),
) -> Result<(), Failure> {
    let decode = DecodeStream::<Message, Ended> {
        part: |part, _| Ok(part),
        end: |reply| Err(reply.map_or_else(Ended::Call, |reply| Ended::Reply(Box::new(reply)))),
        form: Form::Current,
    };
    let started = binding.start_stream(message.ordinal, request.0, request.1, decode);
    let mut stream = started.map_err(|error| service.failure(error))?;
    let mut left = service.args.count.map_or(u64::MAX, NonZeroU64::get);
    while left > 0 {
        let next = match service.limit.left() {
            None => stream.next(&mut Bound(binding)),
            Some(time) => stream.next_timeout(&mut Bound(binding), time),
        };
        let decoded = |wire, bytes| {
            let value = json::decode(&service.interface, message, wire, bytes);
            value.map_err(|error| Failure::other(units::printable(&error.to_string())))
        };
        match next {
            Some(Ok(bytes)) => output::print_line(&decoded(part, &bytes)?)?,
            Some(Err(Ended::Reply(reply))) => {
                let value = decoded(end, &reply)?;
                return match json::error(message, end, &value) {
                    Some(_) => failed(&value),
                    None => Ok(()),
                };
            }
            Some(Err(Ended::Call(error))) => return Err(service.failure(error)),
            None => return Ok(()),
        }
        left -= 1;
    }
    Ok(())
}

/// The service has replied with an error of its own.
pub(super) fn failed(value: &Value) -> Result<(), Failure> {
    output::print_value(value)?;
    Err(Failure::quiet(ERROR_CODE))
}

/// A binding that is lent.
struct Bound<'b>(&'b mut Binding);

impl AsMut<Binding> for Bound<'_> {
    fn as_mut(&mut self) -> &mut Binding {
        self.0
    }
}
