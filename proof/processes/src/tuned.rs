//! Two endpoints that follow the tuning file of their process.

use std::thread;

use corewire::{Domain, Endpoint};

use crate::{Options, Outcome};

/// Number of messages. Where others need the processors, not each goes the way that the file names.
const MESSAGES: usize = 200;

/// Sends messages of `count` bytes from one endpoint to another one. Prints whether any stayed in its sender's memory until it
/// was received, and the sizes of the cells.
pub(crate) fn send_one(domain: &Domain, options: &Options) -> Outcome {
    let mut receiver = domain.endpoint("receiver").create()?;
    let mut sender = domain.endpoint("sender").create()?;
    let bytes = vec![7; usize::try_from(options.count)?];
    thread::scope(|scope| {
        let sending = scope.spawn(move || -> Result<Endpoint, String> {
            let to = sender.peer("receiver").map_err(|error| error.to_string())?;
            for _ in 0..MESSAGES {
                sender.call(to, &bytes).map_err(|error| error.to_string())?;
            }
            Ok(sender)
        });
        for _ in 0..MESSAGES {
            receiver.receive_request()?.reply(b"")?;
        }
        let _sender = sending.join().map_err(|_| "it panicked")??;
        let offered = receiver.counter("pulled")? + receiver.counter("refusals")?;
        println!("offered {}", offered > 0);
        let (cells, bytes) = corewire::tuning().tuning.cells();
        println!("cells {cells} of {bytes}");
        Ok(())
    })
}
