//! How a call waits, and how another thread ends its waiting.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_os::event::Bell;
use corewire_os::processor::pause_ns;
use corewire_os::sleep::wake_up_ns;
use corewire_ring::broadcast::SLEEP_CAP_NS;

/// How a call waits for a message, or for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Wait {
    /// Poll for ever. The lowest latency for a core that has nothing else to do.
    Spin,
    /// Poll for about as long as a wake-up costs, then sleep. Does not poll if the other side last
    /// ran on this very core.
    #[default]
    Adaptive,
    /// Sleep at once.
    Park,
}

/// How long a call may wait.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Patience {
    None,
    /// Until then, which is so long after it was said.
    Until(Instant, Duration),
    #[default]
    Forever,
}

impl Patience {
    pub(crate) fn until(timeout: Duration) -> Self {
        Instant::now().checked_add(timeout).map_or(Self::Forever, |at| Self::Until(at, timeout))
    }

    /// How long it may sleep; `None` if there is no time left.
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

/// The cap on sleeps, as a builder was told.
pub(crate) fn cap_ns(said: Option<Duration>) -> u64 {
    let cap_ns = |cap: Duration| u64::try_from(cap.as_nanos()).unwrap_or(u64::MAX);
    said.map_or(SLEEP_CAP_NS, |cap| cap_ns(cap).max(SLEEP_CAP_MIN_NS))
}

/// A shorter cap would be no sleep.
const SLEEP_CAP_MIN_NS: u64 = 1_000_000;
/// Polls without a pause before anything else is done: a message that is on its way is found so. (Who waits for
/// room pauses from the first one on.)
pub(crate) const BARE_POLLS: u32 = 64;
/// No limit on a sleep but its cap.
pub(crate) const NO_LIMIT_NS: u64 = u64::MAX;

/// Number of pauses that an adaptive wait makes before it sleeps: for as long as a wake-up costs here.
pub(crate) fn adaptive_pauses() -> u32 {
    let pauses = (wake_up_ns() / pause_ns()).clamp(16.0, 16_384.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let pauses = pauses as u32;
    pauses
}

/// Ends another thread's waiting call: that call returns `Interrupted`, or the next one does if none
/// is waiting now.
#[derive(Clone)]
pub struct Interrupter(Arc<dyn Fn() + Send + Sync>);

impl Interrupter {
    pub(crate) fn new(interrupt: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(interrupt))
    }

    /// Ends the wait. Does not block.
    pub fn interrupt(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Interrupter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupter")
    }
}

/// A descriptor that becomes readable when a receiver should be asked for messages: for `poll`,
/// `epoll` and event loops. Only while [`Receiver::arm`](crate::Receiver::arm) has said so; see
/// there.
#[derive(Debug, Clone)]
pub struct Readiness(pub(crate) Arc<Bell>);

/// For event loops that take nothing else; open for as long as this value or a clone of it lives.
impl AsRawFd for Readiness {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
