//! Why an operation of an endpoint failed.

use std::time::Duration;

use corewire_layout::access::Denial;
use corewire_layout::name::ChannelName;

use crate::selector::Status;
use crate::transport::{LossReason, PeerViolation};

/// Why an endpoint's operation failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The peer's process died. Everything that it had sent completely was delivered before. Messages that
    /// it had not received are lost.
    #[error("endpoint {name} died")]
    PeerDied {
        /// The peer.
        name: ChannelName,
    },
    /// The peer's endpoint was closed.
    #[error("endpoint {name} was closed")]
    PeerLeft {
        /// The peer.
        name: ChannelName,
    },
    /// What connected the peer with this endpoint has ended: the network between two hosts, for example. Nobody can tell
    /// whether its process lives. Everything that had arrived was delivered before. The rings between the processes of
    /// one machine never end so.
    #[error(
        "the connection to endpoint {name} was lost after {delivered} messages that are known to have arrived: {reason}"
    )]
    PeerLost {
        /// The peer.
        name: ChannelName,
        /// Why it has ended.
        reason: LossReason,
        /// The number of messages to the peer that it is known to have received, from the first one on. Others may have
        /// arrived, or not.
        delivered: u64,
    },
    /// The peer has sent an impossible value, or its memory contains one, so the peer was disconnected.
    #[error("endpoint {name} was cut off: {violation}")]
    PeerCutOff {
        /// The peer.
        name: ChannelName,
        /// The impossible value.
        violation: PeerViolation,
    },
    /// The handle does not belong to a peer of this endpoint, or belongs to a peer that has gone and whose row another
    /// peer has taken. A row is taken again after eight or more other peers have come, or if no other row is free.
    #[error("no such peer: it is another endpoint's, or has gone")]
    UnknownPeer,
    /// The handle does not belong to an operation of this endpoint, or the end of the operation was already reported.
    #[error("no such operation: it is another endpoint's, or its end was reported")]
    UnknownOperation,
    /// There is no room now, because the peer has not received enough of what was sent.
    #[error("no room towards endpoint {name}")]
    Full {
        /// The peer.
        name: ChannelName,
    },
    /// The peer has not released enough of what was sent to it, and refuses more: see
    /// [`EndpointBuilder::refuse_beyond_grants`](https://docs.rs/corewire/latest/corewire/struct.EndpointBuilder.html).
    #[error("endpoint {name} has no room for {needed} bytes: it grants {granted}")]
    ReceiverFull {
        /// The peer.
        name: ChannelName,
        /// Bytes that it grants altogether.
        granted: u64,
        /// The message's length in bytes.
        needed: u64,
    },
    /// The operation did not complete within the given time.
    #[error("not within {after:?}")]
    Timeout {
        /// How long the call waited.
        after: Duration,
    },
    /// The message does not fit in the buffer. It can still be received.
    #[error("message of {needed} bytes, but the buffer has {given}")]
    BufferTooSmall {
        /// The message's length in bytes.
        needed: u64,
        /// The buffer's length in bytes.
        given: usize,
    },
    /// The message was longer than the memory of its receive, which holds its first bytes. The rest is
    /// lost. Only receives that [ask for it](crate::Options::truncates) end so.
    #[error("message of {} bytes truncated to {given}", .status.bytes)]
    Truncated {
        /// Whose message it was, its tag and its whole length.
        status: Status,
        /// The memory's length in bytes.
        given: usize,
    },
    /// The peer dropped the request without a reply.
    #[error("endpoint {name} dropped the request")]
    RequestDropped {
        /// The peer.
        name: ChannelName,
    },
    /// The peer does not let its memory be accessed so. Of several parts, those before may have been accessed.
    #[error(
        "{bytes} bytes at {offset:#x} in the memory of endpoint {name} with key {key:#x}: {denial}"
    )]
    Denied {
        /// The peer.
        name: ChannelName,
        /// The key of its memory.
        key: u64,
        /// The place that was asked for.
        offset: u64,
        /// Number of bytes there.
        bytes: u64,
        /// Why not.
        denial: Denial,
    },
    /// The parts of the peer's memory and the memory of this side have different lengths.
    #[error("the parts of the peer's memory have {parts} bytes, the memory here has {given}")]
    PartsDiffer {
        /// Length of all parts in bytes.
        parts: u64,
        /// Length of the memory in bytes.
        given: u64,
    },
    /// A part of the peer's memory ends within a number.
    #[error("a part of {bytes} bytes has not only whole numbers of {width} bytes")]
    PartOfNumber {
        /// Length of the part in bytes.
        bytes: u64,
        /// Bytes of a number.
        width: u64,
    },
    /// Other memory is exposed under this key.
    #[error("key {key:#x} is in use")]
    KeyInUse {
        /// The key.
        key: u64,
    },
    /// This endpoint exposes nothing under this key.
    #[error("nothing is exposed under key {key:#x}")]
    UnknownKey {
        /// The key.
        key: u64,
    },
    /// The operation was cancelled; or the message that was claimed, or that a receive was getting, was taken back by its
    /// sender.
    #[error("cancelled")]
    Cancelled,
    /// The memory of a message that was to be sent, which its owner had [pinned](crate::Memory::pinned), cannot be read any
    /// more. The message was not sent.
    #[error("the memory of the message is not mapped any more")]
    Unmapped,
    /// Another thread interrupted the call.
    #[error("interrupted")]
    Interrupted,
    /// This process is a forked child, and the endpoint belongs to its parent.
    #[error("this process was forked from the one that has the endpoint")]
    Forked,
    /// There is no memory for a message. It can still be received.
    #[error("no memory for a message of {bytes} bytes")]
    NoMemory {
        /// The message's length in bytes.
        bytes: u64,
    },
    /// The transport failed: a system call that it needed, for example for memory. The text names the call
    /// and its error.
    #[error("{0}")]
    Transport(String),
}

corewire_layout::debug_is_text!(MessageError);
