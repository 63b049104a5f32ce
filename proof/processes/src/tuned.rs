//! Two endpoints that follow the tuning file of their process.

use std::thread;

use corewire::{Domain, Endpoint};

use crate::{Options, Outcome};

/// Sends `count` bytes from one endpoint to another one. Prints how many messages stayed in their sender's memory until they
/// were received, and the sizes of the cells.
pub(crate) fn send_one(domain: &Domain, options: &Options) -> Outcome {
    let mut receiver = domain.endpoint("receiver").create()?;
    let mut sender = domain.endpoint("sender").create()?;
    let bytes = vec![7; usize::try_from(options.count)?];
    thread::scope(|scope| {
        let sending = scope.spawn(move || -> Result<Endpoint, String> {
            let to = sender.peer("receiver").map_err(|error| error.to_string())?;
            sender.call(to, &bytes).map_err(|error| error.to_string())?;
            Ok(sender)
        });
        receiver.receive_request()?.reply(b"")?;
        let _sender = sending.join().map_err(|_| "it panicked")??;
        let offered = receiver.counter("pulled")? + receiver.counter("refusals")?;
        println!("offered {offered}");
        let (cells, bytes) = corewire::tuning().tuning.cells();
        println!("cells {cells} of {bytes}");
        Ok(())
    })
}
