//! Why a stream of a channel fails.

use corewire::{JoinError, OsError, ReceiveError};

/// Why no message of a channel, or no newer value, was received.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The channel has failed, or its sender has died.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// There is no descriptor to wait for.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// tokio does not watch the descriptor.
    #[error(transparent)]
    Os(#[from] OsError),
    /// There is no runtime of tokio here, or it has ended.
    #[error("wait in tokio: {0}")]
    Runtime(String),
}

impl std::fmt::Debug for StreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// A failure of the reactor.
pub(crate) fn reactor_failed(error: &std::io::Error) -> StreamError {
    match error.raw_os_error() {
        Some(errno) => OsError { what: "wait in tokio".into(), errno }.into(),
        None => StreamError::Runtime(error.to_string()),
    }
}
