//! A receiver in an event loop: `poll` sleeps on its readiness descriptor, together with any others.
//! The order is: receive until there is no message, arm, poll, and repeat.

use std::error::Error;
use std::thread;

use corewire::{Domain, ReceiveError};
use rustix::event::{PollFd, PollFlags, poll};

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let mut sender = domain.sender("example-readiness").create()?;
    let mut receiver = domain.receiver("example-readiness").join()?;
    let readiness = receiver.readiness()?;
    let sending =
        thread::spawn(move || (0..1000u64).try_for_each(|i| sender.send(&i.to_le_bytes())));

    let mut received = 0u64;
    loop {
        match receiver.try_receive() {
            Ok(Some(message)) if message[..] == received.to_le_bytes() => {
                received += 1;
                continue;
            }
            Ok(Some(message)) => return Err(format!("{message:?} is out of order").into()),
            Ok(None) => {}
            Err(ReceiveError::EndOfStream) => break,
            Err(error) => return Err(error.into()),
        }
        // Returns false if a message has arrived in the meantime.
        if receiver.arm()? {
            poll(&mut [PollFd::new(&readiness, PollFlags::IN)], None)?;
        }
    }
    sending.join().map_err(|_| "the sender panicked")??;
    println!("received {received} messages");
    Ok(())
}
