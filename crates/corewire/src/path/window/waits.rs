//! How the calls of a window wait, and why a wait ends.

use corewire_ring::window::{Pace, Participant, Stop};

use super::Window;
use crate::error::WindowError;
use crate::halves::window_notice as notice;
use crate::wait::{Patience, Poller, Polls};

/// The pace of one wait.
struct Waiting {
    poller: Poller,
    polls: Polls,
    patience: Patience,
}

impl Pace for Waiting {
    #[inline]
    fn poll(&mut self) -> bool {
        self.poller.may_poll(&mut self.polls, || false)
    }

    fn may_sleep(&self) -> bool {
        self.poller.may_sleep()
    }

    fn left_ns(&mut self) -> Option<u64> {
        let left_ns = self.patience.limit_ns()?;
        self.polls = Polls::within(left_ns);
        Some(left_ns)
    }
}

impl Window {
    /// This window's participant.
    pub(super) fn seated(&self) -> Result<&Participant, WindowError> {
        self.participant.as_ref().ok_or_else(|| WindowError::Guest(self.name_of().clone()))
    }

    /// Waits until `look` finds something. False if the time is up.
    pub(super) fn wait_for(
        &self,
        patience: Patience,
        mut look: impl FnMut(&Participant) -> Result<bool, Stop>,
    ) -> Result<bool, WindowError> {
        if let Some(error) = self.ended() {
            return Err(error);
        }
        let participant = self.seated()?;
        if let Patience::None = patience {
            return look(participant).or_else(|stop| self.stopped(stop));
        }
        let limit_ns = patience.limit_ns().unwrap_or(0);
        let poller = Poller::for_messages(self.wait);
        let mut pace = Waiting { poller, polls: Polls::within(limit_ns), patience };
        let look = || Ok(look(participant)?.then_some(()));
        match participant.wait(&self.linux, &mut pace, look) {
            Ok(()) => Ok(true),
            Err(stop) => self.stopped(stop),
        }
    }

    /// Why a wait has ended. False if its time was up.
    fn stopped(&self, stop: Stop) -> Result<bool, WindowError> {
        match stop {
            Stop::TimedOut => Ok(false),
            Stop::Gone(seat) if self.participant.as_ref().is_some_and(|it| it.seat() == seat) => {
                Err(WindowError::Detached(self.name_of().clone()))
            }
            Stop::Gone(seat) => {
                Err(WindowError::Gone { name: self.name_of().clone(), row: seat.row })
            }
            Stop::Notice => Err(self.ended().unwrap_or_else(|| {
                self.shared.clear(notice::INTERRUPTED);
                WindowError::Interrupted
            })),
        }
    }
}
