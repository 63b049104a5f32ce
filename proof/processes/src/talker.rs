//! An endpoint that sends numbered messages of mixed lengths to the endpoint `sink`, and receives
//! what the sink sends.

use std::io::Write;

use corewire::{Domain, MessageError, Selector};
use corewire_processes::talk::{HELLO, bytes_of, length_of};

use crate::{Options, Outcome};

pub(crate) fn talk(domain: &Domain, options: &Options) -> Outcome {
    let mut endpoint = domain.endpoint(&options.channel).wait(options.wait).create()?;
    let sink = endpoint.peer_when_created("sink", None)?;
    endpoint.send(sink, HELLO, options.channel.as_bytes())?;
    let mut out = std::io::stdout();
    let mut buffer = vec![0; 200_000];
    for number in 0u64.. {
        match endpoint.send(sink, number, &bytes_of(number, length_of(number))) {
            Ok(()) => {}
            Err(MessageError::PeerDied { .. } | MessageError::PeerLeft { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        // For a while each of them, so that the last one before a death is known; then fewer, so that deaths come at other
        // points than this call, too.
        if number % 256 < 128 || number.is_multiple_of(16) {
            // All messages up to this one are sent.
            writeln!(out, "sent {number}")?;
        }
        while endpoint.try_receive_into(Selector::any(), &mut buffer)?.is_some() {}
    }
    Ok(())
}
