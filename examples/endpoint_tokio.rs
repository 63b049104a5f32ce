//! Endpoints in async code: messages by tag, and calls. The runtime has one thread, and no call here blocks it.

use std::error::Error;

use corewire::{Domain, Selector};
use corewire_tokio::TokioEndpoint;

const MESSAGES: u64 = 1000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let mut endpoint = TokioEndpoint::new(domain.endpoint("example-tokio").create()?)?;
    let mut talker = TokioEndpoint::new(domain.endpoint("example-talker").create()?)?;
    let talking = tokio::spawn(async move {
        let to = talker.peer("example-tokio").await?;
        for number in 0..MESSAGES {
            talker.send(to, number, b"something").await?;
        }
        Ok::<_, Box<dyn Error + Send + Sync>>(talker.call(to, b"how many were there?").await?)
    });
    for number in 0..MESSAGES {
        let received = endpoint.receive(Selector::tag(number)).await?;
        assert_eq!(received, b"something");
    }
    let (owed, _question) = endpoint.receive_request().await?;
    endpoint.get_mut().reply(owed, MESSAGES.to_string().as_bytes())?;
    let answer = talking.await?.map_err(|error| error.to_string())?;
    println!("received {} messages", String::from_utf8(answer)?);
    Ok(())
}
