//! How long a call waits.

use std::time::{Duration, Instant};

/// How long a call waits.
#[derive(Debug, Clone, Copy)]
pub enum Patience {
    /// Not at all: the caller is told that it would have to wait.
    None,
    /// Not at all: the caller is told that its time is over.
    Zero,
    /// Until this time, so long after the call.
    Until(Instant, Duration),
    /// Without a limit.
    Forever,
}

/// Why a call does not wait any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Late {
    /// It must not wait at all.
    #[error("busy")]
    Busy,
    /// Its time is over.
    #[error("not within {after:?}")]
    Timeout {
        /// How long it waited.
        after: Duration,
    },
}

impl Patience {
    /// `None` is without a limit; so is a time that the clock cannot express.
    #[must_use]
    pub fn of(timeout: Option<Duration>) -> Self {
        let Some(after) = timeout else { return Self::Forever };
        // A program that polls does not pay for the clock.
        if after.is_zero() {
            return Self::Zero;
        }
        Instant::now().checked_add(after).map_or(Self::Forever, |at| Self::Until(at, after))
    }

    /// The time that is left; `None` if there is no limit.
    ///
    /// # Errors
    /// Nothing is left, or the call must not wait.
    pub fn left(self) -> Result<Option<Duration>, Late> {
        match self {
            Self::None => Err(Late::Busy),
            Self::Zero => Err(self.late()),
            Self::Forever => Ok(None),
            Self::Until(at, after) => match at.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => Ok(Some(left)),
                _ => Err(Late::Timeout { after }),
            },
        }
    }

    /// Why there is nothing yet.
    #[must_use]
    pub const fn late(self) -> Late {
        match self {
            Self::Until(_, after) => Late::Timeout { after },
            Self::Zero => Late::Timeout { after: Duration::ZERO },
            Self::None | Self::Forever => Late::Busy,
        }
    }

    /// When it ends; `None` if there is no such time.
    #[must_use]
    pub fn deadline(self) -> Option<Instant> {
        match self {
            Self::Until(at, _) => Some(at),
            Self::Zero => Some(Instant::now()),
            Self::None | Self::Forever => None,
        }
    }
}
