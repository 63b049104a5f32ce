//! Why the program ends: one line for people, and an exit code for scripts.

use std::fmt::Display;

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    /// 1 failed, 2 wrong usage.
    pub(crate) code: u8,
}

impl Failure {
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 2 }
    }

    pub(crate) fn other(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 1 }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::other(error)
    }
}
