//! How long a call waits.

use std::time::{Duration, Instant};

use crate::CallError;

/// How long a call waits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// Not at all: the caller is told that it would have to wait.
    None,
    /// Not at all: the caller is told that its time is over.
    Zero,
    Until(Instant, Duration),
    Forever,
}

impl Patience {
    /// `None` is without a limit; so is a time that the clock cannot express.
    pub(crate) fn of(timeout: Option<Duration>) -> Self {
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
    pub(crate) fn left(self) -> Result<Option<Duration>, CallError> {
        match self {
            Self::None => Err(CallError::Busy),
            Self::Zero => Err(self.late()),
            Self::Forever => Ok(None),
            Self::Until(at, after) => match at.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => Ok(Some(left)),
                _ => Err(CallError::Timeout { after }),
            },
        }
    }

    /// Why there is nothing yet.
    pub(crate) const fn late(self) -> CallError {
        match self {
            Self::Until(_, after) => CallError::Timeout { after },
            Self::Zero => CallError::Timeout { after: Duration::ZERO },
            Self::None | Self::Forever => CallError::Busy,
        }
    }

    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Until(at, _) => Some(at),
            Self::Zero => Some(Instant::now()),
            Self::None | Self::Forever => None,
        }
    }
}
