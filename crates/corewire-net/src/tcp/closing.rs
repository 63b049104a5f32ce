//! Connections that this side has left, until the other side has all.
//!
//! What waits to leave is sent first. A socket that is closed while something lies in it that was not read makes the kernel reset
//! the connection, and what is under way to the other side may never arrive. So it is read to its end, which comes once the other
//! side has seen that this one has left.

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use corewire_os::stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::wire::Wire;

/// How long the other side may take to read all.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks whether the other side's kernel has all, of which nothing tells: the first, and the longest.
const PAUSE: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(10);
const STACK_BYTES: usize = 256 << 10;

/// A connection that this side has left.
#[derive(Debug)]
pub(super) struct Leaving {
    wire: Wire,
    /// What waits to leave.
    out: Vec<u8>,
    silence: Duration,
    has_said_all: bool,
}

impl Leaving {
    pub(super) fn new(wire: Wire, out: Vec<u8>, silence: Duration) -> Self {
        Self { wire, out, silence, has_said_all: false }
    }

    /// Sends and reads what there is. True if nothing more will come.
    fn go_on(&mut self) -> bool {
        while !self.has_said_all {
            let written = match self.out.is_empty() {
                true => self.wire.flush().map(|()| 0),
                false => self.wire.write(&self.out),
            };
            match written {
                Ok(_) if self.out.is_empty() => {
                    self.wire.end_writing();
                    self.has_said_all = true;
                }
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The other side reads nothing more.
                Err(_) => return true,
            }
        }
        has_ended(&self.wire)
    }

    /// How much the other side's kernel does not have yet; 0 only if it has all.
    fn left(&self) -> u64 {
        let unsent = stream::state_of(&self.wire).map_or(0, |(_, unsent)| u64::from(unsent));
        unsent + self.out.len() as u64 + u64::from(!self.has_said_all)
    }

    fn wants(&self) -> PollFlags {
        if self.has_said_all { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }
}

/// Connections to be read to their ends.
#[derive(Debug)]
pub struct Closing(Vec<Leaving>);

impl Closing {
    /// Sends what the kernels take at once.
    pub(super) fn new(mut all: Vec<Leaving>) -> Self {
        all.retain_mut(|leaving| !leaving.go_on());
        Self(all)
    }

    /// Reads them to their ends in a thread of its own: nobody waits for it.
    pub fn finish_apart(self) {
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

    /// Waits until the kernel of each other side has all that was sent, or takes nothing for as long as a silent host may: nothing
    /// is lost by the end of this process then.
    pub fn settle(&mut self) {
        let silence = self.0.iter().map(|leaving| leaving.silence).max().unwrap_or_default();
        let limit = silence + Duration::from_secs(1);
        let (mut left, mut until) = (u64::MAX, Instant::now() + limit);
        let mut pause = PAUSE;
        loop {
            self.0.retain_mut(|leaving| !leaving.go_on());
            let now_left = self.0.iter().map(Leaving::left).fold(0, u64::saturating_add);
            if now_left < left {
                (left, until) = (now_left, Instant::now() + limit);
            }
            if left == 0 || Instant::now() >= until {
                return;
            }
            if !self.wait(pause) {
                return;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Reads them to their ends, for at most so long. What a stopped process has not read by then may be lost to it.
    pub fn finish(mut self, within: Duration) {
        let until = Instant::now() + within;
        self.0.retain(|leaving| leaving.wire.is_ours());
        loop {
            self.0.retain_mut(|leaving| !leaving.go_on());
            let left = until.saturating_duration_since(Instant::now());
            if self.0.is_empty() || left.is_zero() || !self.wait(left) {
                return;
            }
        }
    }

    /// Waits until one of them has something, for at most so long. False if that is not possible.
    fn wait(&self, limit: Duration) -> bool {
        let all = self.0.iter();
        let mut polled: Vec<_> =
            all.map(|it| PollFd::from_borrowed_fd(it.wire.as_fd(), it.wants())).collect();
        let limit = Timespec::try_from(limit).unwrap_or_default();
        matches!(poll(&mut polled, Some(&limit)), Ok(_) | Err(Errno::INTR))
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
