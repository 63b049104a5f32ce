//! A receiver in async code: a stream, which tokio waits for together with anything else. The runtime has one thread, and
//! no call here blocks it.

use std::error::Error;
use std::time::Duration;

use corewire::Domain;
use corewire_tokio::{ReceiverStream, SenderSink};
use futures_lite::StreamExt;
use tokio::time::{MissedTickBehavior, interval};

const MESSAGES: u64 = 1000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let mut sender = SenderSink::new(domain.sender("example-tokio").create()?);
    let mut messages = ReceiverStream::new(domain.receiver("example-tokio").join()?)?;
    let sending = tokio::spawn(async move {
        for number in 0..MESSAGES {
            sender.send(&number.to_le_bytes()).await?;
        }
        Ok::<_, corewire::SendError>(())
    });
    let mut clock = interval(Duration::from_millis(1));
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut received = 0u64;
    loop {
        tokio::select! {
            // Where another branch is taken, no message is lost.
            message = messages.next() => match message.transpose()? {
                Some(message) if message == received.to_le_bytes() => received += 1,
                Some(message) => return Err(format!("{message:?} is out of order").into()),
                None => break,
            },
            // Stands for anything else that the program waits for.
            _ = clock.tick() => {}
        }
    }
    sending.await??;
    println!("received {received} messages");
    Ok(())
}
