//! Why a call of a queue fails.

use corewire_endpoint::MessageError;

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
    /// The owner's process died, or has closed the queue; or this process was interrupted or forked.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The queue cannot be connected with.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// An endpoint cannot be created.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

corewire_layout::debug_is_text!(QueueError);
