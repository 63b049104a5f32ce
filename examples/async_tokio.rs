//! A receiver in async code: tokio waits for its readiness descriptor, together with anything else. The
//! runtime has one thread, and no call here blocks it.

use std::error::Error;
use std::time::Duration;

use corewire::{Domain, ReceiveError, Receiver};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{MissedTickBehavior, interval};

const MESSAGES: u64 = 1000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let mut sender = domain.sender("example-tokio").create()?;
    let receiver = domain.receiver("example-tokio").join()?;
    let sending = std::thread::spawn(move || {
        (0..MESSAGES).try_for_each(|number| sender.send(&number.to_le_bytes()))
    });

    let mut messages = Messages::new(receiver)?;
    let mut clock = interval(Duration::from_millis(1));
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut received = 0u64;
    loop {
        tokio::select! {
            message = messages.next() => match message? {
                Some(message) if message == received.to_le_bytes() => received += 1,
                Some(message) => return Err(format!("{message:?} is out of order").into()),
                None => break,
            },
            // Stands for anything else that the program waits for.
            _ = clock.tick() => {}
        }
    }
    sending.join().map_err(|_| "the sender panicked")??;
    println!("received {received} messages");
    Ok(())
}

/// The messages of a receiver, for async code.
struct Messages {
    receiver: Receiver,
    readiness: AsyncFd<corewire::Readiness>,
}

impl Messages {
    fn new(receiver: Receiver) -> Result<Self, Box<dyn Error>> {
        #[expect(deprecated, reason = "sound for a descriptor that is owned; the other is unsafe")]
        let readiness = AsyncFd::with_interest(receiver.readiness()?, Interest::READABLE)?;
        Ok(Self { receiver, readiness })
    }

    /// A copy of the next message; `None` at the end of the stream. This is cancel-safe: no message is
    /// lost if the future is dropped.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Box<dyn Error>> {
        loop {
            match self.receiver.try_receive() {
                Ok(Some(message)) => return Ok(Some(message.to_vec())),
                Ok(None) => {}
                Err(ReceiveError::EndOfStream) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // Returns false if a message has arrived in the meantime.
            if self.receiver.arm()? {
                let mut ready = self.readiness.readable().await?;
                // `arm` has reset the descriptor: the next readiness belongs to a new message.
                ready.clear_ready();
            }
        }
    }
}
