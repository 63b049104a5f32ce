//! Connections that this side has left, until the other side has read all.
//!
//! A socket that is closed while something lies in it that was not read makes the kernel reset the connection, and what is
//! under way to the other side may never arrive. So it is read to its end, which comes once the other side has seen that this
//! one has left.

use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::wire::Wire;

/// How long the other side may take.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);
const STACK_BYTES: usize = 256 << 10;

/// Connections to be read to their ends.
#[derive(Debug)]
pub struct Closing(Vec<Wire>);

impl Closing {
    pub(super) fn new(wires: Vec<Wire>) -> Self {
        Self(wires)
    }

    /// The same, in a thread of its own: nobody waits for it.
    pub(super) fn finish_apart(self) {
        if self.0.is_empty() {
            return;
        }
        let thread = thread::Builder::new().name("corewire-close".into()).stack_size(STACK_BYTES);
        // Without a thread the kernel closes them as they are.
        let _ = thread.spawn(move || {
            corewire_os::process::block_all_signals();
            self.finish(CLOSED_WITHIN);
        });
    }

    /// Reads them to their ends, for at most so long. What a stopped process has not read by then may be lost to it.
    pub fn finish(mut self, within: Duration) {
        let until = Instant::now() + within;
        self.0.retain(Wire::is_ours);
        loop {
            self.0.retain(|wire| !has_ended(wire));
            let left = until.saturating_duration_since(Instant::now());
            if self.0.is_empty() || left.is_zero() {
                return;
            }
            let mut polled: Vec<_> = self
                .0
                .iter()
                .map(|wire| PollFd::from_borrowed_fd(wire.as_fd(), PollFlags::IN))
                .collect();
            let left = Timespec::try_from(left).unwrap_or_default();
            if !matches!(poll(&mut polled, Some(&left)), Ok(_) | Err(Errno::INTR)) {
                return;
            }
        }
    }
}

/// Reads what is there. True if nothing more will come.
fn has_ended(wire: &Wire) -> bool {
    let mut bytes = [MaybeUninit::uninit(); 4096];
    loop {
        match rustix::io::read(wire, &mut bytes[..]) {
            Ok((read, _)) if !read.is_empty() => {}
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return false,
            _ => return true,
        }
    }
}
