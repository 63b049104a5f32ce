//! What peers ask a channel's sender for.

use std::os::fd::AsFd;

use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::{Frame, Hello, ROWS_PER_FRAME, Reason};
use corewire_os::OsError;
use corewire_os::fork::Descriptor;

use super::Owner;
use crate::control::reachable::{Reachable, Visitor};
use crate::tell::tell;

impl Reachable for Owner {
    fn serve(&self, at: &dyn Visitor, request: Frame, descriptors: Vec<Descriptor>) -> bool {
        match request {
            Frame::Hello(hello) => self.serve_receiver(at, &hello, descriptors),
            Frame::Observe { .. } => self.show(at),
            _ => at.refuse(Reason::NotShared),
        }
    }
}

impl Owner {
    fn serve_receiver(
        &self,
        at: &dyn Visitor,
        hello: &Hello,
        descriptors: Vec<Descriptor>,
    ) -> bool {
        if self.is_relayed(hello, at.peer()) {
            return at.kept(self.point_to_relay(hello, at.socket()));
        }
        // From here on the owner watches the socket.
        at.unwatch();
        match self.admit(hello, at.socket(), at.peer(), descriptors) {
            Ok(()) => false,
            Err(reason) => {
                self.count(ControlCounter::Refusals);
                tell!(info, "a receiver was refused", channel = hello.name, reason = reason);
                at.refuse(reason)
            }
        }
    }

    /// Gives an observer the sender's segment and those of its receivers.
    fn show(&self, at: &dyn Visitor) -> bool {
        let socket = at.socket();
        // Guests must not see the processes of other receivers.
        let joining = if at.is_foreign() { Vec::new() } else { self.joining() };
        at.answered(self.with_rows(|sender, rows| {
            // Guests must not see the pages of other receivers.
            let rows = if at.is_foreign() { &[] } else { rows };
            let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
            socket.send(&Frame::Observed { count, joining }, &[sender.as_fd()])?;
            for part in rows.chunks(ROWS_PER_FRAME) {
                let numbers = part.iter().map(|&(row, _)| row).collect();
                let segments: Vec<_> = part.iter().map(|(_, segment)| segment.as_fd()).collect();
                socket.send(&Frame::Rows(numbers), &segments)?;
            }
            Ok::<(), OsError>(())
        }))
    }
}
