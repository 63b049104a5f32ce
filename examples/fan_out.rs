//! One sender and three receivers, one thread each. The sender writes every message once, in place;
//! each receiver reads every byte there.

use std::error::Error;
use std::thread;

use corewire::{Domain, ReceiveError, Receiver};

const MESSAGES: u64 = 200;
const BYTES: usize = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let mut sender = domain.sender("example-fan-out").largest_message(BYTES).create()?;
    let mut readers = Vec::new();
    for _ in 0..3 {
        let receiver = domain.receiver("example-fan-out").join()?;
        readers.push(thread::spawn(move || read(receiver)));
    }
    for number in 0..MESSAGES {
        let mut loan = sender.loan(BYTES)?;
        loan.fill(number.to_le_bytes()[0]);
        loan.send();
    }
    // Receivers get all sent messages, then the end of the stream.
    sender.close();
    for reader in readers {
        let (messages, sum) = reader.join().map_err(|_| "a reader panicked")??;
        println!("{messages} messages, sum of all bytes {sum}");
    }
    Ok(())
}

fn read(mut receiver: Receiver) -> Result<(u64, u64), ReceiveError> {
    let (mut messages, mut sum) = (0, 0);
    receiver.for_each(|message| {
        messages += 1;
        sum += message.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    })?;
    Ok((messages, sum))
}
