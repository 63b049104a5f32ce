//! An endpoint of another host, as far as its peers can tell: it takes their numbered messages in order.

use std::io::Write;
use std::path::Path;

use corewire::{Domain, Event, MessageError, Selector};
use corewire_processes::talk::{bytes_of, length_of};

use crate::{Options, Outcome};

/// Listens as `sink`, with the file of hosts that the channel's name is.
pub(crate) fn sink(domain: &Domain, options: &Options) -> Outcome {
    let hosts = Path::new(&options.channel);
    let builder = domain.endpoint("sink").wait(options.wait).hosts(hosts);
    let mut endpoint = builder.listen("127.0.0.1:0").create()?;
    let mut out = std::io::stdout();
    writeln!(out, "at {}", endpoint.listening()[0])?;
    let mut number = 0;
    loop {
        match endpoint.receive_event(Selector::any())? {
            Event::Received(message) => {
                let bytes = bytes_of(number, length_of(number));
                if message.status().tag != number || *message != bytes[..] {
                    return Err(format!("message {number} has another number or content").into());
                }
                number += 1;
                if number.is_multiple_of(256) {
                    writeln!(out, "received {number}")?;
                }
            }
            Event::Gone { why: MessageError::PeerLeft { .. }, .. } => {
                return Ok(writeln!(out, "left {number}")?);
            }
            Event::Gone { why, .. } => return Err(why.into()),
            _ => {}
        }
    }
}
