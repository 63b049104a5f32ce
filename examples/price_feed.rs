//! A feed whose sender never waits: it overwrites what a slow reader has not read yet, and the reader
//! knows how many messages it missed. A copy that a reader gets is never torn, and never far behind the
//! newest message.

use std::error::Error;
use std::thread;

use corewire::{Domain, ReceiveError, SnapshotReceiver};

/// Number of prices that are sent.
const PRICES: u64 = 200_000;
/// A small ring, so that a slow reader is soon overtaken.
const SLOTS: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let mut feed = domain.sender("example-prices").slots(SLOTS).overwrite().create()?;
    let quick = domain.receiver("example-prices").snapshots().join()?;
    let slow = domain.receiver("example-prices").snapshots().join()?;
    let readers = [("quick", quick, 1), ("slow", slow, 1000)]
        .map(|(name, prices, work)| (name, thread::spawn(move || read(prices, work))));
    for number in 0..PRICES {
        // Both words are the same, so a torn message would show.
        let price = [number.to_le_bytes(), number.to_le_bytes()];
        feed.send(price.as_flattened())?;
    }
    drop(feed);
    for (name, reader) in readers {
        let (read, missed) = reader.join().map_err(|_| "a reader panicked")??;
        assert_eq!(read + missed, PRICES, "each price was read or counted as missed");
        println!("the {name} reader: {PRICES} prices, read or known to be missed");
    }
    Ok(())
}

/// Reads prices, working for `work` steps after each. Returns how many it has read, and how many it has
/// missed.
fn read(mut prices: SnapshotReceiver, work: u32) -> Result<(u64, u64), ReceiveError> {
    let (mut read, mut last) = (0, None);
    loop {
        let mut price = [0; 16];
        let copied = match prices.receive() {
            Ok(mut snapshot) => snapshot.copy_to(0, &mut price),
            Err(ReceiveError::EndOfStream) => break,
            Err(error) => return Err(error),
        };
        // Otherwise the price was overwritten during the copy, and counts as missed.
        if copied.is_ok() {
            let (first, second) = price.split_at(8);
            assert_eq!(first, second, "torn");
            let number = first.try_into().map(u64::from_le_bytes).ok();
            assert!(number > last, "prices come in order");
            last = number;
            read += 1;
        }
        (0..work).for_each(|_| std::hint::spin_loop());
    }
    Ok((read, prices.missed()))
}
