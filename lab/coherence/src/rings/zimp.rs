//! ZIMP, as published.

use corewire_layout::slot::INLINE_BYTES_MAX;

use super::{Messages, Ring, part};
use crate::caches::{read_bytes, write_bytes};
use crate::published::Zimp;
use crate::region::Region;

/// A ring of `entries` entries with `receivers` receivers and one sender, for messages of 48 bytes.
///
/// # Panics
/// If there are no entries, no receivers or more than 448, or there is no memory.
#[must_use]
pub fn zimp(receivers: u32, entries: u64) -> Ring {
    let rows = receivers as usize;
    let count = u32::try_from(entries).expect("a small ring");
    let bytes = Zimp::bytes(count, rows, INLINE_BYTES_MAX);
    let memory = Region::private(bytes).expect("memory for a model");
    let zimp = Zimp::new(&memory, count, rows, INLINE_BYTES_MAX);
    let mut ring = Ring::new(vec![part(&memory, "ring")], entries);
    let mut sender = zimp.sender();
    ring.add(move |number| {
        let is_free = || unreachable!("a role is not stopped while it has the lock");
        let Some(mut entry) = sender.try_claim(is_free) else { return false };
        let bytes = entry.bytes_mut();
        bytes.copy_from_slice(&Messages::of(number));
        write_bytes(bytes.as_ptr().addr(), bytes.len());
        entry.send(INLINE_BYTES_MAX);
        true
    });
    for row in 0..rows {
        let mut receiver = zimp.receiver(row);
        ring.add(move |number| {
            let received = receiver.try_receive(|message| {
                read_bytes(message.as_ptr().addr(), message.len());
                Messages::check(number, message);
            });
            received.is_some()
        });
    }
    ring
}
