//! Endpoints that exchange large messages with the endpoint `parent`.

use corewire::{Domain, MessageError, Selector};
use corewire_processes::exchange;
use corewire_processes::talk::bytes_of;

use crate::refuse::refuse_beyond_streams;
use crate::{Options, Outcome};

/// Where a role's messages lie.
const BYTES: usize = 80 << 20;

fn is_over(error: &MessageError) -> bool {
    matches!(error, MessageError::PeerDied { .. } | MessageError::PeerLeft { .. })
}

/// Sends back whatever it gets. After `count` messages it may be refused copies from other processes.
pub(crate) fn echo(domain: &Domain, options: &Options) -> Outcome {
    // Nothing goes in place: large messages are copied.
    let builder = domain.endpoint(&options.channel).grants(0);
    let mut endpoint = builder.wait(options.wait).create()?;
    let parent = endpoint.peer_when_created("parent", None)?;
    let mut buffer = vec![0; BYTES];
    println!("ready");
    for number in 0.. {
        if options.is_filtered_later && number == options.count {
            refuse_beyond_streams(libc::SYS_process_vm_readv, libc::EPERM)?;
            refuse_beyond_streams(libc::SYS_process_vm_writev, libc::ENOSYS)?;
        }
        let status = match endpoint.receive_into(Selector::any().from(parent), &mut buffer) {
            Ok(status) => status,
            Err(error) if is_over(&error) => break,
            Err(error) => return Err(error.into()),
        };
        let length = usize::try_from(status.bytes)?;
        endpoint.send(parent, status.tag, &buffer[..length])?;
    }
    let [pulled, refusals] = ["pulled", "refusals"].map(|name| endpoint.counter(name));
    println!("pulled {}", pulled?);
    println!("refusals {}", refusals?);
    Ok(())
}

/// Sends numbered messages of `count` bytes until nobody is there.
pub(crate) fn push(domain: &Domain, options: &Options) -> Outcome {
    // Nothing goes in place: large messages are copied.
    let builder = domain.endpoint(&options.channel).grants(0);
    let mut endpoint = builder.wait(options.wait).create()?;
    let parent = endpoint.peer_when_created("parent", None)?;
    let length = usize::try_from(options.count)?;
    let messages = [0, 1].map(|number| bytes_of(number, length));
    for number in 0u64.. {
        let message = &messages[usize::try_from(number % 2)?];
        match endpoint.send(parent, number, message) {
            Ok(()) => {}
            Err(error) if is_over(&error) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives messages of `count` bytes until nobody is there.
pub(crate) fn pull(domain: &Domain, options: &Options) -> Outcome {
    // Nothing goes in place: large messages are copied.
    let builder = domain.endpoint(&options.channel).grants(0);
    let mut endpoint = builder.wait(options.wait).create()?;
    let parent = endpoint.peer_when_created("parent", None)?;
    let length = usize::try_from(options.count)?;
    let messages = [0, 1].map(|number| bytes_of(number, length));
    let mut buffer = vec![0; length];
    loop {
        match endpoint.receive_into(Selector::any().from(parent), &mut buffer) {
            Ok(status) => {
                let whole = &messages[usize::try_from(status.tag % 2)?];
                if buffer != *whole {
                    println!("torn {}", status.tag);
                }
            }
            Err(error) if is_over(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends a message of `count` bytes, and only then receives one: both sides do so at the same time.
pub(crate) fn collide(domain: &Domain, options: &Options) -> Outcome {
    // Nothing goes in place: large messages are copied.
    let builder = domain.endpoint(&options.channel).grants(0);
    let mut endpoint = builder.wait(options.wait).create()?;
    let parent = endpoint.peer_when_created("parent", None)?;
    let message = bytes_of(1, usize::try_from(options.count)?);
    endpoint.send(parent, 1, &message)?;
    let received = endpoint.receive(Selector::any())?;
    println!("same {}", received == message);
    Ok(endpoint.close()?)
}

/// Is the other side of the cases of a property test, one a line; see `proof/processes/tests/processes/exchanges.rs`.
pub(crate) fn exchange(domain: &Domain, options: &Options) -> Outcome {
    for line in std::io::stdin().lines() {
        let case: exchange::plan::Case = serde_json::from_str(&line?)?;
        let endpoint = exchange::create(domain, &options.channel, &case.sides[1])?;
        match exchange::run(endpoint, "parent", &case, 1) {
            Ok(()) => println!("good"),
            Err(error) => println!("bad {error}"),
        }
    }
    Ok(())
}
