//! How a call waits, and how another thread ends the wait.

mod poller;
mod trial;

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_os::event::Bell;
use corewire_ring::doorbell::SLEEP_CAP_NS;

pub(crate) use self::poller::{Poller, Polls};

/// How a call waits for a message, or for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Wait {
    /// Poll without end. This gives the lowest latency, on a core that has nothing else to do.
    Spin,
    /// Poll for about as long as a wake-up costs, then sleep. While other threads that are ready to run
    /// need the processor, a wait for a message yields it instead. A receiver of a channel that finds no message after
    /// 64 or more that were there one after the other waits for 8 ns for each of them, at most about 16 us, before it
    /// polls: a sender that streams gets ahead, and both are faster. It tries now and then whether they are, and polls
    /// at once where they are not.
    #[default]
    Adaptive,
    /// Sleep at once.
    Park,
}

/// How long a call may wait.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Patience {
    None,
    /// Until the given time, which is the given duration after the call began.
    Until(Instant, Duration),
    #[default]
    Forever,
}

impl Patience {
    pub(crate) fn until(timeout: Duration) -> Self {
        Instant::now().checked_add(timeout).map_or(Self::Forever, |at| Self::Until(at, timeout))
    }

    /// The time at which the call ends, if there is one.
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Until(deadline, _) => Some(deadline),
            Self::None | Self::Forever => None,
        }
    }

    /// Maximum time to sleep, in nanoseconds; `None` if no time is left.
    pub(crate) fn limit_ns(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Forever => Some(NO_LIMIT_NS),
            Self::Until(deadline, _) => {
                let left = deadline.saturating_duration_since(Instant::now());
                let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
                (left_ns > 0).then_some(left_ns)
            }
        }
    }
}

/// The cap on a sleep in nanoseconds, for the value given to a builder.
pub(crate) fn cap_ns(said: Option<Duration>) -> u64 {
    let cap_ns = |cap: Duration| u64::try_from(cap.as_nanos()).unwrap_or(u64::MAX);
    said.map_or(SLEEP_CAP_NS, |cap| cap_ns(cap).max(SLEEP_CAP_MIN_NS))
}

/// Minimum cap. With a shorter one, a sleep would be a poll.
const SLEEP_CAP_MIN_NS: u64 = 1_000_000;
/// No limit on a sleep, except its cap.
pub(crate) const NO_LIMIT_NS: u64 = u64::MAX;

/// Ends a call of another thread that waits: the call returns `Interrupted`. If no call is waiting,
/// the next one that waits returns it.
#[derive(Clone)]
pub struct Interrupter(Arc<dyn Fn() + Send + Sync>);

impl Interrupter {
    pub(crate) fn new(interrupt: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(interrupt))
    }

    /// Ends the wait. Never blocks.
    pub fn interrupt(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Interrupter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupter")
    }
}

/// A descriptor that becomes readable when there may be something to receive: for `poll`, `epoll`
/// and event loops. It must be armed before each wait: see
/// [`Receiver::arm`](crate::Receiver::arm) and [`Endpoint::arm`](crate::Endpoint::arm).
#[derive(Debug, Clone)]
pub struct Readiness(Ready);

/// What becomes readable.
#[derive(Debug, Clone)]
enum Ready {
    Bell(Arc<Bell>),
    #[cfg(feature = "net")]
    Set(Arc<corewire_net::tcp::Set>),
}

impl Readiness {
    /// That of a bell.
    pub(crate) fn of(bell: &Arc<Bell>) -> Self {
        Self(Ready::Bell(Arc::clone(bell)))
    }

    /// That of a bell and connections.
    #[cfg(feature = "net")]
    pub(crate) fn of_set(set: &Arc<corewire_net::tcp::Set>) -> Self {
        Self(Ready::Set(Arc::clone(set)))
    }

    /// Before a wait: the bell has not rung.
    pub(crate) fn silence(&self) {
        match &self.0 {
            Ready::Bell(bell) => bell.silence(),
            // Its bell is the endpoint's, which silences it.
            #[cfg(feature = "net")]
            Ready::Set(_) => {}
        }
    }
}

/// For event loops that need a raw descriptor. It is open as long as this value or a clone of it
/// exists.
impl AsRawFd for Readiness {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Ready::Bell(bell) => bell.as_fd(),
            #[cfg(feature = "net")]
            Ready::Set(set) => set.as_fd(),
        }
    }
}
