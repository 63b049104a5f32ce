//! Barrelfish MP: a channel to each receiver.

use super::{Messages, Ring, part};
use crate::published::{Flow, UMP_BYTES, Ump};
use crate::region::Region;

/// As many channels of `slots` slots as there are receivers, for messages of 48 bytes. A message is
/// copied into each in turn.
///
/// # Panics
/// If there are fewer than two slots, or there is no memory.
#[must_use]
pub fn barrelfish_mp(receivers: u32, slots: u64, flow: Flow) -> Ring {
    let slots_each = usize::try_from(slots).expect("a small ring");
    let bytes = Ump::bytes(slots_each);
    let memory = Region::private(bytes * receivers as usize).expect("memory for a model");
    let channel = |row: usize| {
        let part = memory.part(row * bytes, bytes).expect("a part for each");
        Ump::new(&part, slots_each, flow)
    };
    let channels: Vec<_> = (0..receivers as usize).map(channel).collect();
    let mut ring = Ring::new(vec![part(&memory, "channels")], slots);
    let mut senders: Vec<_> = channels.iter().map(Ump::sender).collect();
    // Whose turn it is to get the next message.
    let mut at = 0;
    ring.add(move |number| {
        // In the line of its header: what is counted there is counted for the header.
        while let Some(sender) = senders.get_mut(at) {
            if !sender.try_send(&Messages::of(number)) {
                return false;
            }
            at += 1;
        }
        at = 0;
        true
    });
    for mut receiver in channels.iter().map(Ump::receiver) {
        ring.add(move |number| {
            let mut message = [0; UMP_BYTES];
            let length = receiver.try_receive(&mut message);
            length.inspect(|&length| Messages::check(number, &message[..length])).is_some()
        });
    }
    ring
}
