//! Why the study cannot do something: a sentence for the user, an exit code for scripts.

use std::fmt::Display;

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// One line.
    pub(crate) message: String,
    /// The exit code.
    pub(crate) code: u8,
}

impl Failure {
    /// The caller asked for something impossible.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 2 }
    }

    /// Any other failure.
    pub(crate) fn other(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 1 }
    }
}

/// Adds to an error what the failed step was for.
pub(crate) trait Doing<T> {
    /// Names the step; `what` completes the sentence "cannot {what}: ...".
    fn doing(self, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: Display> Doing<T> for Result<T, E> {
    fn doing(self, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::other(format!("cannot {what}: {error}")))
    }
}
