//! What `fi_getinfo` says is possible, and how long closing takes.

use std::time::Duration;

/// Length of the longest message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 40;
/// Length of the longest message whose buffer is free when its call returns.
pub(crate) const INJECT_BYTES_MAX: usize = 4096;
/// Bytes of values of one atomic operation.
pub(crate) const ATOMIC_BYTES_MAX: usize = 64 << 10;
/// Buffers of one message.
pub(crate) const IOV_MAX: usize = 16;
/// Operations of one endpoint in each direction. No number is refused; programs ask for this many.
pub(crate) const OPERATIONS: usize = 4096;
/// Bytes beside a message.
pub(crate) const DATA_BYTES: usize = 8;
/// Length of the text in an error entry, with its final zero.
pub(crate) const ERROR_BYTES_MAX: usize = 256;
/// Objects of each kind in a domain. No number is refused.
pub(crate) const OBJECTS: usize = 1024;
/// Bytes of messages that an endpoint keeps before they are received, at least.
pub(crate) const KEPT_BYTES: usize = 16 << 20;
/// Bytes that a buffer for several messages must have free, unless the program sets another number.
pub(crate) const MULTI_RECV_LEAST_BYTES: usize = 64;
/// How long closing an endpoint sends what is pending; at the end of a process, closing all of them.
pub(crate) const FLUSH: Duration = Duration::from_secs(1);
