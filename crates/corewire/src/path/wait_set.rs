//! Waiting for several endpoints and receivers at once: polls them in turn, then arms all of them and waits for their
//! descriptors.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use corewire_os::event::wait_readable;
use corewire_ring::doorbell::SLEEP_CAP_NS;

use super::endpoint::Endpoint;
use super::receive::Receiver;
use crate::error::WaitError;
use crate::wait::{Patience, Poller, Polls, Readiness, Wait};

pub(crate) mod sealed {
    use super::{Readiness, WaitError};

    /// The operations that a set needs of its sources.
    pub trait Source {
        /// True if there is something to receive. Does not wait.
        fn look(&mut self) -> Result<bool, WaitError>;
        /// Makes its descriptor readable at the next arrival. False if there is something already.
        fn arm(&mut self) -> Result<bool, WaitError>;
        /// Its descriptor.
        fn descriptor(&self) -> Result<Readiness, WaitError>;
    }
}

/// A source of a [`WaitSet`]: an [`Endpoint`] or a [`Receiver`] of either kind.
pub trait Source: sealed::Source {}

impl<S: sealed::Source + ?Sized> Source for S {}

impl sealed::Source for Endpoint {
    fn look(&mut self) -> Result<bool, WaitError> {
        Ok(Endpoint::look(self)?)
    }

    fn arm(&mut self) -> Result<bool, WaitError> {
        Ok(Endpoint::arm(self)?)
    }

    fn descriptor(&self) -> Result<Readiness, WaitError> {
        Ok(self.readiness())
    }
}

impl<T: ?Sized, A> sealed::Source for Receiver<T, A> {
    fn look(&mut self) -> Result<bool, WaitError> {
        // Errors and ends are for the caller's next receive, so they count as something.
        let is_there = !self.is_between() && self.untyped.ring.must_look();
        if !is_there {
            // What comes later belongs to another run.
            let _ = self.untyped.ring.end_run(0);
        }
        Ok(is_there)
    }

    fn arm(&mut self) -> Result<bool, WaitError> {
        Ok(Receiver::arm(self)?)
    }

    fn descriptor(&self) -> Result<Readiness, WaitError> {
        Ok(self.readiness()?)
    }
}

/// Waits until one of several endpoints and receivers has something to receive.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use corewire::{Domain, Selector, WaitSet};
///
/// let domain = Domain::open()?;
/// let mut requests = domain.endpoint("server").create()?;
/// let mut prices = domain.receiver("prices").join()?;
/// let mut set = WaitSet::default();
/// let mut request = [0; 64];
/// loop {
///     match set.wait(&mut [&mut requests, &mut prices], None)? {
///         Some(0) => while requests.try_receive_into(Selector::any(), &mut request)?.is_some() {},
///         _ => while prices.try_receive()?.is_some() {},
///     }
/// }
/// # }
/// ```
///
/// Receive until there is nothing before you wait again: an endpoint reports a message or the end of an operation only
/// once. It may also report one that has been received since. The end of a channel and an interruption are reported
/// too.
#[derive(Debug)]
pub struct WaitSet {
    poller: Poller,
    /// The source to check first. It changes, so that sources take turns.
    first: usize,
}

impl Default for WaitSet {
    fn default() -> Self {
        Self::new(Wait::default())
    }
}

impl WaitSet {
    /// A set that waits in this way, whatever its sources' builders chose. With [`Wait::Spin`] it makes no system call.
    #[must_use]
    pub fn new(wait: Wait) -> Self {
        Self { poller: Poller::for_messages(wait), first: 0 }
    }

    /// Waits until one of `sources` has something, for at most `timeout`; `None` waits without a limit. Returns its
    /// index in `sources`, or `None` after the timeout. If several have something, they take turns.
    ///
    /// # Errors
    /// The error of a failed source; [`WaitError::Os`] if a system call fails.
    pub fn wait(
        &mut self,
        sources: &mut [&mut dyn Source],
        timeout: Option<Duration>,
    ) -> Result<Option<usize>, WaitError> {
        let patience = timeout.map_or(Patience::Forever, Patience::until);
        let deadline = patience.deadline();
        loop {
            let limit_ns = patience.limit_ns().unwrap_or(0);
            if let Some(found) = self.poll(sources, limit_ns)? {
                return Ok(Some(found));
            }
            if patience.limit_ns().is_none() {
                self.poller.gives_up();
                return Ok(None);
            }
            if self.poller.may_sleep() {
                self.poller.sleeps();
                if let Some(found) = self.sleep(sources, deadline)? {
                    return Ok(Some(found));
                }
            }
        }
    }

    /// Polls all sources for as long as a wake-up would take.
    fn poll(
        &mut self,
        sources: &mut [&mut dyn Source],
        limit_ns: u64,
    ) -> Result<Option<usize>, WaitError> {
        let (mut bare, mut polls) = (self.poller.bare_polls(), Polls::within(limit_ns));
        loop {
            for index in self.turn(sources.len()) {
                if sources[index].look()? {
                    return Ok(Some(self.found(index)));
                }
            }
            if bare > 1 {
                bare -= 1;
            } else if !self.poller.may_poll(&mut polls, || false) {
                return Ok(None);
            }
        }
    }

    /// Waits for the sources' descriptors, for no longer than the maximum sleep.
    fn sleep(
        &mut self,
        sources: &mut [&mut dyn Source],
        deadline: Option<Instant>,
    ) -> Result<Option<usize>, WaitError> {
        for index in self.turn(sources.len()) {
            if !sources[index].arm()? {
                return Ok(Some(self.found(index)));
            }
        }
        let descriptors: Result<Vec<_>, _> =
            sources.iter().map(|source| source.descriptor()).collect();
        let descriptors = descriptors?;
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let cap = Instant::now().checked_add(Duration::from_nanos(SLEEP_CAP_NS));
        let until = deadline.into_iter().chain(cap).min();
        let is_ready = wait_readable(&descriptors, until)?;
        let ready = self.turn(sources.len()).find(|&index| is_ready[index]);
        Ok(ready.map(|index| self.found(index)))
    }

    /// All indices of `count` sources, beginning after the last source that had something.
    fn turn(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let first = if self.first < count { self.first } else { 0 };
        (first..count).chain(0..first)
    }

    fn found(&mut self, index: usize) -> usize {
        self.first = index + 1;
        index
    }
}
