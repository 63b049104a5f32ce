//! Barrelfish MP: a channel to each receiver.

use std::cell::Cell;
use std::rc::Rc;

use super::{Ring, part};
use crate::published::{Flow, UMP_BYTES, Ump, UmpReceiver, UmpSender};
use crate::region::Region;
use crate::scheduler::{Role, Step};

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
    let channels = (0..receivers as usize).map(|row| {
        let channel = memory.part(row * bytes, bytes).expect("a part for each");
        Ump::new(&channel, slots_each, flow)
    });
    let channels: Vec<_> = channels.collect();
    let goal = Rc::new(Cell::new(0));
    let senders = channels.iter().map(Ump::sender).collect();
    let mut roles: Vec<Box<dyn Role>> = Vec::new();
    roles.push(Box::new(Sending { channels: senders, at: 0, sent: 0, goal: Rc::clone(&goal) }));
    for channel in &channels {
        let channel = channel.receiver();
        roles.push(Box::new(Receiving { channel, received: 0, goal: Rc::clone(&goal) }));
    }
    Ring { parts: vec![part(&memory, "channels")], roles, goals: vec![goal], slots }
}

struct Sending {
    channels: Vec<UmpSender>,
    /// Whose turn it is to get the next message.
    at: usize,
    sent: u64,
    goal: Rc<Cell<u64>>,
}

impl Role for Sending {
    fn step(&mut self) -> Step {
        if self.sent == self.goal.get() {
            return Step::Done;
        }
        // In the line of its header: what is counted there is counted for the header.
        let message = [self.sent.to_le_bytes(); 6];
        while let Some(channel) = self.channels.get_mut(self.at) {
            if !channel.try_send(message.as_flattened()) {
                return Step::Waits;
            }
            self.at += 1;
        }
        self.at = 0;
        self.sent += 1;
        Step::Did
    }
}

struct Receiving {
    channel: UmpReceiver,
    received: u64,
    goal: Rc<Cell<u64>>,
}

impl Role for Receiving {
    fn step(&mut self) -> Step {
        if self.received == self.goal.get() {
            return Step::Done;
        }
        let mut message = [0; UMP_BYTES];
        if self.channel.try_receive(&mut message).is_none() {
            return Step::Waits;
        }
        assert_eq!(message[..8], self.received.to_le_bytes(), "not the message that was due");
        self.received += 1;
        Step::Did
    }
}
