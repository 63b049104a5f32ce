//! A feed that waits for nobody: the sender overwrites what a slow reader has not read, and the reader
//! knows how much it missed. What it copies out is whole, always, and the newest is never far.

use std::error::Error;
use std::thread;

use corewire::{Domain, ReceiveError, SnapshotReceiver};

/// Prices that are sent.
const PRICES: u64 = 200_000;
/// A small ring, so that a slow reader is overtaken soon.
const SLOTS: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let mut feed = domain.sender("example-prices").slots(SLOTS).overwrite().create()?;
    let quick = domain.receiver("example-prices").snapshots().join()?;
    let slow = domain.receiver("example-prices").snapshots().join()?;
    let readers = [("quick", quick, 1), ("slow", slow, 1000)]
        .map(|(name, prices, work)| (name, thread::spawn(move || read(prices, work))));
    for number in 0..PRICES {
        // Both words say the same: a torn message would show.
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

/// How many prices it has read, working for so long with each, and how many it has missed.
fn read(mut prices: SnapshotReceiver, work: u32) -> Result<(u64, u64), ReceiveError> {
    let (mut read, mut last) = (0, None);
    loop {
        let mut price = [0; 16];
        let copied = match prices.receive() {
            Ok(mut snapshot) => snapshot.copy_to(0, &mut price),
            Err(ReceiveError::EndOfStream) => break,
            Err(error) => return Err(error),
        };
        // Else it was overtaken while it copied; that one counts as missed.
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
