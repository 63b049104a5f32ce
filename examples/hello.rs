//! Messages into any number of processes: run `hello receive` once or more, and `hello send`.

use std::error::Error;
use std::time::Duration;

use corewire::Domain;

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    if std::env::args().nth(1).as_deref() == Some("send") {
        let mut sender = domain.sender("greetings").create()?;
        if sender.wait_for_receivers_timeout(1, Duration::from_secs(1))? == 0 {
            eprintln!("waiting for a receiver: start `hello receive`");
        }
        sender.wait_for_receivers(1)?;
        sender.send(b"hello, cores")?; // one copy, into the channel
        let mut loan = sender.loan(16)?; // no copy: written where it will be read
        loan.copy_from_slice(b"written in place");
        loan.send();
    } else {
        if domain.observe("greetings").is_err() {
            eprintln!("waiting for a sender: start `hello send`");
        }
        let mut receiver = domain.receiver("greetings").join_when_created()?;
        receiver.for_each(|message| println!("{}", message.escape_ascii()))?;
    }
    Ok(())
}
