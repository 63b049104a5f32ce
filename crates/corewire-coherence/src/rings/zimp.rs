//! ZIMP, as printed.

use std::cell::Cell;
use std::rc::Rc;

use corewire_layout::slot::INLINE_BYTES_MAX;

use super::{Ring, part};
use crate::caches::{read_bytes, write_bytes};
use crate::published::{Zimp, ZimpReceiver, ZimpSender};
use crate::region::Region;
use crate::scheduler::{Role, Step};

/// A ring of `entries` entries and as many receivers as said, for messages of 48 bytes, with one of its
/// senders.
///
/// # Panics
/// If there are no entries, no receivers or more than 512, or there is no memory.
#[must_use]
pub fn zimp(receivers: u32, entries: u64) -> Ring {
    let entries_there = usize::try_from(entries).expect("a small ring");
    let bytes = Zimp::bytes(entries_there, receivers as usize, INLINE_BYTES_MAX);
    let memory = Region::private(bytes).expect("memory for a model");
    let ring = Zimp::new(&memory, entries_there, receivers as usize, INLINE_BYTES_MAX);
    let goal = Rc::new(Cell::new(0));
    let mut roles: Vec<Box<dyn Role>> = Vec::new();
    roles.push(Box::new(Sending { ring: ring.sender(), sent: 0, goal: Rc::clone(&goal) }));
    for row in 0..receivers as usize {
        let ring = ring.receiver(row);
        roles.push(Box::new(Receiving { ring, received: 0, goal: Rc::clone(&goal) }));
    }
    Ring { parts: vec![part(&memory, "ring")], roles, goals: vec![goal], slots: entries }
}

struct Sending {
    ring: ZimpSender,
    sent: u64,
    goal: Rc<Cell<u64>>,
}

impl Role for Sending {
    fn step(&mut self) -> Step {
        if self.sent == self.goal.get() {
            return Step::Done;
        }
        let is_free = || unreachable!("a role is not stopped while it has the lock");
        let Some(mut entry) = self.ring.try_claim(is_free) else { return Step::Waits };
        let bytes = entry.bytes_mut();
        bytes.copy_from_slice([self.sent.to_le_bytes(); 6].as_flattened());
        write_bytes(bytes.as_ptr().addr(), bytes.len());
        entry.send(INLINE_BYTES_MAX);
        self.sent += 1;
        Step::Did
    }
}

struct Receiving {
    ring: ZimpReceiver,
    received: u64,
    goal: Rc<Cell<u64>>,
}

impl Role for Receiving {
    fn step(&mut self) -> Step {
        if self.received == self.goal.get() {
            return Step::Done;
        }
        let due = self.received.to_le_bytes();
        let message = self.ring.try_receive(|message| {
            read_bytes(message.as_ptr().addr(), message.len());
            assert_eq!(message[..8], due, "not the message that was due");
        });
        if message.is_none() {
            return Step::Waits;
        }
        self.received += 1;
        Step::Did
    }
}
