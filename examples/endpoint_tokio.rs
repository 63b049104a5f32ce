//! An endpoint in async code: tokio waits for its readiness descriptor, together with anything else.
//! The runtime has one thread, and no call here blocks it.

use std::error::Error;
use std::thread;

use corewire::{Domain, Endpoint, OwnedMessage, Selector};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const MESSAGES: u64 = 1000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let endpoint = domain.endpoint("example-tokio").create()?;
    let talking = thread::spawn(move || -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut talker = domain.endpoint("example-talker").create()?;
        let to = talker.peer("example-tokio")?;
        (0..MESSAGES).try_for_each(|number| talker.send(to, number, b"something"))?;
        Ok(talker.close()?)
    });

    let mut messages = Messages::new(endpoint)?;
    for number in 0..MESSAGES {
        let received = messages.next(Selector::tag(number)).await?;
        assert_eq!(received, b"something");
    }
    talking.join().map_err(|_| "the talker panicked")?.map_err(|error| error.to_string())?;
    println!("received {MESSAGES} messages");
    Ok(())
}

/// The messages of an endpoint, for async code.
struct Messages {
    endpoint: Endpoint,
    readiness: AsyncFd<corewire::Readiness>,
}

impl Messages {
    fn new(endpoint: Endpoint) -> Result<Self, Box<dyn Error>> {
        #[expect(deprecated, reason = "sound for a descriptor that is owned; the other is unsafe")]
        let readiness = AsyncFd::with_interest(endpoint.readiness(), Interest::READABLE)?;
        Ok(Self { endpoint, readiness })
    }

    /// The next message that matches `selector`. This is cancel-safe: no message is lost if the future
    /// is dropped.
    async fn next(&mut self, selector: Selector) -> Result<OwnedMessage, Box<dyn Error>> {
        loop {
            if self.endpoint.now().probe(selector)?.is_some() {
                return Ok(self.endpoint.receive(selector)?);
            }
            // Returns false if something has arrived in the meantime.
            if self.endpoint.arm()? {
                let mut ready = self.readiness.readable().await?;
                // `arm` has reset the descriptor: the next readiness belongs to a new message.
                ready.clear_ready();
            }
        }
    }
}
