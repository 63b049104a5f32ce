//! Endpoints whose messages stay where they were written, with the endpoint `parent`.

use corewire::{Domain, MessageError, Selector};
use corewire_processes::talk::bytes_of;

use crate::{Options, Outcome};

fn is_over(error: &MessageError) -> bool {
    matches!(error, MessageError::PeerDied { .. } | MessageError::PeerLeft { .. })
}

/// The length of message `number`.
fn length_of(number: u64) -> usize {
    usize::try_from(161 + number * 7919 % 40_000).unwrap_or_default()
}

/// Sends messages until `count` bytes have been sent, or nobody is there. Every fourth one is a loan. One that is refused is
/// sent again, patiently.
pub(crate) fn burst(domain: &Domain, options: &Options) -> Outcome {
    let mut endpoint = domain.endpoint(&options.channel).wait(options.wait).create()?;
    let parent = endpoint.peer_when_created("parent", None)?;
    let mut sent = 0;
    let mut number = 0;
    while sent < options.count {
        let message = bytes_of(number, length_of(number));
        let ended = if number % 4 == 3 {
            endpoint.loan(parent, message.len()).and_then(|mut loan| {
                loan.copy_from_slice(&message);
                endpoint.send_loan(loan, number).map_err(|unsent| unsent.error)
            })
        } else {
            match endpoint.try_send(parent, number, &message) {
                Err(MessageError::ReceiverFull { .. } | MessageError::Full { .. }) => {
                    endpoint.send(parent, number, &message)
                }
                other => other,
            }
        };
        match ended {
            Ok(()) => {}
            Err(error) if is_over(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        sent += message.len() as u64;
        number += 1;
    }
    println!("nacks {}", endpoint.counter("nacks")?);
    endpoint.close()?;
    Ok(())
}

/// Receives messages, and keeps up to 20 of them, which never change.
pub(crate) fn hold(domain: &Domain, options: &Options) -> Outcome {
    let mut endpoint = domain.endpoint(&options.channel).wait(options.wait).create()?;
    let parent = endpoint.peer_when_created("parent", None)?;
    let mut held = Vec::new();
    println!("ready");
    loop {
        match endpoint.receive(Selector::any().from(parent)) {
            Ok(message) => held.push(message),
            Err(error) if is_over(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if held.len() > 20 {
            let message = held.swap_remove(held.len() * 7 % 20);
            if message != bytes_of(message.tag(), message.len()) {
                println!("torn {}", message.tag());
            }
        }
    }
}
