//! Both forms of Barrelfish's message passing, with one channel to each receiver.

use corewire_layout::slot::INLINE_BYTES_MAX;

use super::{Messages, Ring, part};
use crate::published::{BarrelfishMp, Flow, UMP_BYTES, Ump};
use crate::region::Region;

/// One channel of `slots` slots for each receiver, for messages of 48 bytes, in the form that the
/// authors of ZIMP ran. The sender copies each message into every channel in turn.
///
/// # Panics
/// If there is no slot, or no memory.
#[must_use]
pub fn barrelfish_mp(receivers: u32, slots: u64) -> Ring {
    let slots_each = usize::try_from(slots).expect("a small ring");
    let bytes = BarrelfishMp::bytes(slots_each, INLINE_BYTES_MAX);
    let memory = Region::private(bytes * receivers as usize).expect("memory for a model");
    let channel = |row: usize| {
        let part = memory.part(row * bytes, bytes).expect("a part for each");
        BarrelfishMp::new(&part, slots_each, INLINE_BYTES_MAX)
    };
    let channels: Vec<_> = (0..receivers as usize).map(channel).collect();
    let mut ring = Ring::new(vec![part(&memory, "channels")], slots);
    let mut senders: Vec<_> = channels.iter().map(BarrelfishMp::sender).collect();
    let mut each = EachInTurn::default();
    // The message lies in the line of its header, so the accesses to the header count for both.
    ring.add(move |number| each.of(&mut senders, |sender| sender.try_send(&Messages::of(number))));
    for mut receiver in channels.iter().map(BarrelfishMp::receiver) {
        ring.add(move |number| {
            let mut message = [0; INLINE_BYTES_MAX];
            let received = receiver.try_receive(&mut message);
            if received {
                Messages::check(number, &message);
            }
            received
        });
    }
    ring
}

/// Index of the receiver to send to next, for a message that goes to all receivers.
#[derive(Default)]
struct EachInTurn(usize);

impl EachInTurn {
    /// Sends to the receivers in order, from where the previous call stopped, until one has no room.
    /// Returns true once the message was sent to all of them; after false, call again.
    fn of<S>(&mut self, senders: &mut [S], mut send: impl FnMut(&mut S) -> bool) -> bool {
        while let Some(sender) = senders.get_mut(self.0) {
            if !send(sender) {
                return false;
            }
            self.0 += 1;
        }
        self.0 = 0;
        true
    }
}

/// One channel of `slots` slots for each receiver, in the form that Barrelfish itself uses.
///
/// # Panics
/// If there are fewer than two slots, or there is no memory.
#[must_use]
pub fn barrelfish_ump(receivers: u32, slots: u64, flow: Flow) -> Ring {
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
    let mut each = EachInTurn::default();
    ring.add(move |number| each.of(&mut senders, |sender| sender.try_send(&Messages::of(number))));
    for mut receiver in channels.iter().map(Ump::receiver) {
        ring.add(move |number| {
            let mut message = [0; UMP_BYTES];
            let length = receiver.try_receive(&mut message);
            length.inspect(|&length| Messages::check(number, &message[..length])).is_some()
        });
    }
    ring
}
