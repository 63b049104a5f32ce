//! Why a call of a queue fails.

use std::time::Duration;

use corewire_endpoint::MessageError;
use corewire_layout::name::ChannelName;

use crate::error::{ConnectError, EndpointError};

/// Why a call of a queue, a producer or a worker failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The job is longer than the queue's maximum. It was not accepted.
    #[error("job of {asked} bytes: at most {max} are possible in this queue")]
    TooLong {
        /// The queue's maximum, in bytes.
        max: u64,
        /// The job's length in bytes.
        asked: u64,
    },
    /// There is no room for a job now.
    #[error("the queue has {capacity} jobs, as many as it can have")]
    Full {
        /// The most jobs of the queue.
        capacity: usize,
    },
    /// The queue accepts no more jobs: its owner [finishes](crate::Queue::finish) it.
    #[error("the queue is being finished: it accepts no more jobs")]
    Finished,
    /// There is no such queue. There may be something else of this name.
    #[error("queue {0} does not exist")]
    NotFound(ChannelName),
    /// There was no such queue in time.
    #[error("queue {name} was not created within {after:?}")]
    NotCreated {
        /// The queue.
        name: ChannelName,
        /// The given time.
        after: Duration,
    },
    /// The owner's process died, or has closed the queue; or this process was interrupted or forked.
    #[error(transparent)]
    Message(MessageError),
    /// The queue cannot be connected with.
    #[error(transparent)]
    Connect(ConnectError),
    /// An endpoint cannot be created.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// The end of the name of an owner's endpoint.
pub(super) const ENDPOINT: &str = ".queue";

/// The queue of an owner's endpoint.
fn queue_of(endpoint: ChannelName) -> ChannelName {
    let name = endpoint.as_str().strip_suffix(ENDPOINT).map(ChannelName::new);
    name.and_then(Result::ok).unwrap_or(endpoint)
}

impl From<MessageError> for QueueError {
    fn from(error: MessageError) -> Self {
        Self::Message(match error {
            MessageError::PeerDied { name } => MessageError::PeerDied { name: queue_of(name) },
            MessageError::PeerLeft { name } => MessageError::PeerLeft { name: queue_of(name) },
            other => other,
        })
    }
}

impl From<ConnectError> for QueueError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::NotFound(name) => Self::NotFound(queue_of(name)),
            ConnectError::NotCreated { name, after } => {
                Self::NotCreated { name: queue_of(name), after }
            }
            other => Self::Connect(other),
        }
    }
}

corewire_layout::debug_is_text!(QueueError);
