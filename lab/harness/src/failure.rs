//! Why a measurement is not possible: a sentence for the user, an exit code for scripts.

use std::fmt::{self, Display};

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// One line.
    pub message: String,
    /// The exit code of a program that ends because of it.
    pub code: u8,
}

impl Failure {
    /// The caller asked for something impossible: exit code 2.
    pub fn usage(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 2 }
    }

    /// Any other failure: exit code 1.
    pub fn other(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 1 }
    }
}

impl Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

/// An error that says enough by itself.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::other(error)
    }
}

/// Adds to an error what the failed step was for.
pub trait Doing<T> {
    /// Names the step.
    ///
    /// ```
    /// use corewire_harness::failure::Doing;
    ///
    /// let failure = "x".parse::<u8>().doing("read a number").unwrap_err();
    /// assert_eq!(failure.message, "cannot read a number: invalid digit found in string");
    /// ```
    ///
    /// # Errors
    /// The error of `self`, where `what` completes the sentence "cannot {what}: ...".
    fn doing(self, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: Display> Doing<T> for Result<T, E> {
    // What is measured must not move results about.
    #[inline(always)]
    fn doing(self, what: impl Display) -> Result<T, Failure> {
        match self {
            Ok(done) => Ok(done),
            Err(error) => Err(failed(&what, &error)),
        }
    }
}

#[cold]
fn failed(what: &dyn Display, error: &dyn Display) -> Failure {
    Failure::other(format!("cannot {what}: {error}"))
}
