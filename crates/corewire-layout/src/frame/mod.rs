//! The messages of the attach handshake: frames of 256 bytes, one per packet, over a SEQPACKET
//! socket. The kernel tells which process is the peer.
//!
//! | frame | from, to | descriptors | meaning |
//! |---|---|---|---|
//! | `Hello` | receiver, owner | its segment, its process | let me read channel `name` |
//! | `Welcome` | owner, receiver | sender's segment, its process, hint segment or table if any | you are row `row`, and begin at `start` |
//! | `Relayed` | owner, receiver | | your group has a relay: read its channel, and send `Hello` as its follower |
//! | | owner, follower | sender's segment, its process | you count; this relay keeps its place |
//! | `Refused` | owner, any requester | | no, because of `reason` |
//! | `Readiness` | receiver, owner | an eventfd, or none to an owner of another user | wake me through this when I ask for it |
//! | `Ring` | owner, receiver of another user | | the wake-up that `Readiness` asked for |
//! | `Done` | owner, receiver | | the last request is done |
//! | | listener, client | | the listener has the connection: what follows are no frames |
//! | | listener, observer | | that is a listener |
//! | | new sender or receiver, host, and back | | I have taken my place in the shared channel; you count |
//! | `Leave` | receiver, owner | | I am leaving; what follows is a hang-up, not a death |
//! | `Enter` | sender, host | | let me send on the shared channel `name` |
//! | `Entered` | host, sender | ring, table | you are sender `row` |
//! | `Start` | host, receiver or sender | | after `Welcome` or `Entered`, in a shared channel: you begin at `start` |
//! | `Follow` | sender, host | | I send on `name`, too; tell me when you go |
//! | `Wake` | sender, receiver | | ring your descriptor for row `row` |
//! | `Invite` | owner, waiter | | the name you wait for exists now |
//! | `Observe` | observer, owner | | let me observe the channel, endpoint, listener or window `name` |
//! | `Observed` | owner, observer | sender's segment | followed by `count` rows; these processes are joining |
//! | `ObservedEndpoint` | owner, observer | endpoint's segment, list of its peers | |
//! | `Rows` | owner, observer | receivers' segments | the rows they belong to |
//! | `Pair` | endpoint, endpoint | its segment, its activity page, its eventfd, its process | connect: you are my row `row`, by my reservation `reservation` |
//! | `Paired` | endpoint, endpoint | the same | I can connect: you are my row `row`, by my reservation `reservation` |
//! | `Done` | endpoint, endpoint | | after `Paired`: I have connected |
//! | `Linked` | endpoint, endpoint | | after `Done`: so have I |
//! | `Attach` | participant, owner | its process | let me attach to window `name`, with these rights |
//! | `Attached` | owner, participant | data; the book and its process, unless the participant is a guest | you are row `row` |
//! | `Leave` | participant, owner | | I detach |
//! | `ObservedWindow` | owner, observer | the book, unless the observer is a guest | |
//! | `Connect` | client, listener | | hand this connection to the listener `name` |
//! | `Dialled` | process that takes connections of other hosts, endpoint | a connected socket | another host has dialled `name` |
//!
//! A frame is hostile until [`Frame::parse`] has read it. A frame that it refuses closes the
//! connection.

mod reason;
#[cfg(test)]
mod tests;
mod wire;

use alloc::vec::Vec;

pub use self::reason::Reason;
use crate::LAYOUT_VERSION;
use crate::message_type::TypeKey;
use crate::name::ChannelName;
use crate::window::Rights;

/// Bytes of every frame.
pub const FRAME_BYTES: usize = 256;
/// Maximum number of descriptors with one frame.
pub const DESCRIPTORS_MAX: usize = ROWS_PER_FRAME;
/// Maximum number of rows in one [`Frame::Rows`].
pub const ROWS_PER_FRAME: usize = 50;

/// Maximum number of joining processes in one [`Frame::Observed`].
pub const JOINING_MAX: usize = 44;

/// Where a new receiver begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// At the next message sent.
    #[default]
    Now,
    /// At the oldest message that is still whole.
    Oldest,
    /// The same where the channel allows it to this receiver, otherwise at the next message sent.
    OldestIfPossible,
    /// At the message with this number, which has not been sent yet.
    At(u64),
}

/// The part of a channel in which a receiver wants to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// A receiver that reads the sender's ring.
    #[default]
    Ring,
    /// A receiver in this group of processors; the group may have a relay if the channel has two
    /// levels.
    Group(u32),
    /// The relay of this group: it reads the sender's ring, and begins where the previous relay
    /// ended.
    Relay(u32),
    /// A receiver that gets its messages from the relay of this group, and counts with the sender.
    Follower(u32),
}

/// A request to read a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The channel's name.
    pub name: ChannelName,
    /// Where to begin.
    pub start: Start,
    /// The receiver's number if it waited for the name, otherwise 0. For a relay: the incarnation
    /// of its channel.
    pub waiter: u128,
    /// The part of the channel in which the receiver wants to be.
    pub place: Place,
    /// The receiver cannot call `membarrier`, so the sender must fence.
    pub needs_fence: bool,
    /// The type of messages that the receiver expects.
    pub type_key: TypeKey,
    /// The socket of the receiver's process; 0 if it has none. For a follower: the incarnation of
    /// the relay's channel that it has joined.
    pub socket: u128,
}

/// The answer to [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The receiver's row.
    pub row: u32,
    /// The sequence number of its first message.
    pub start: u64,
    /// The epoch (even) at which its sleeping word begins.
    pub epoch: u32,
    /// The channel's incarnation.
    pub incarnation: u128,
    /// True if a hint segment comes with this frame.
    pub hint: bool,
    /// True if the channel is shared and its table comes with this frame; `Start` follows.
    pub table: bool,
    /// Messages from this one on are fenced, if the receiver asked for that. The message before it
    /// may already be in flight.
    pub settled: u64,
    /// Number of receivers that the row has had, including this one. The row's door holds it while
    /// the receiver counts.
    pub generation: u32,
}

/// A frame of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame {
    /// A request to read a channel.
    Hello(Hello),
    /// The answer to it.
    Welcome(Welcome),
    /// The other answer to it: to a receiver of a group, or to a follower.
    Relayed {
        /// The channel's incarnation.
        channel: u128,
        /// To a follower: the incarnation of the relay's channel whose place in the ring is kept. 0
        /// if there is none.
        relay: u128,
    },
    /// A refusal of any request.
    Refused(Reason),
    /// Carries the receiver's readiness descriptor.
    Readiness,
    /// Wakes a receiver that gave no descriptor.
    Ring,
    /// The last request is done.
    Done,
    /// The receiver leaves.
    Leave,
    /// The channel that a waiter waits for exists now.
    Invite {
        /// The channel.
        name: ChannelName,
        /// The waiter's number.
        waiter: u128,
    },
    /// A request to observe a channel, an endpoint, a listener or a window.
    Observe {
        /// Its name.
        name: ChannelName,
    },
    /// The answer to it.
    Observed {
        /// Number of rows that follow.
        count: u32,
        /// Processes of receivers that were invited and have not joined yet, at most
        /// [`JOINING_MAX`] of them.
        joining: Vec<u32>,
    },
    /// The answer to it if the name is an endpoint's.
    ObservedEndpoint,
    /// Some of the rows.
    Rows(Vec<u16>),
    /// A request to send on a shared channel.
    Enter {
        /// The channel.
        name: ChannelName,
        /// The type of its messages.
        type_key: TypeKey,
        /// The socket of the sender's process.
        socket: u128,
    },
    /// The answer to it.
    Entered {
        /// The sender's row.
        row: u32,
        /// Number of senders that the row has had, including this one.
        generation: u32,
        /// The channel's incarnation.
        incarnation: u128,
    },
    /// Where a receiver of a shared channel begins.
    Start {
        /// The sequence number of its first message.
        start: u64,
    },
    /// A sender's request to learn when the host goes.
    Follow {
        /// The channel.
        name: ChannelName,
    },
    /// Makes the process of a shared channel's receiver ring the receiver's descriptor.
    Wake {
        /// The receiver's row.
        row: u32,
        /// The channel's incarnation.
        incarnation: u128,
    },
    /// A request to connect with an endpoint.
    Pair {
        /// The name of the endpoint that receives the request.
        name: ChannelName,
        /// The row that this endpoint has with the requester.
        row: u32,
        /// The number of the requester's reservation of that row. The requester never uses it again.
        reservation: u64,
        /// The requester's incarnation.
        incarnation: u128,
        /// The incarnation of the endpoint that the requester has looked up. A later one of the same name refuses.
        target: u128,
    },
    /// The answer to it.
    Paired {
        /// The row that the requester has.
        row: u32,
        /// The number of the reservation of that row, which its endpoint never uses again.
        reservation: u64,
        /// The incarnation of the answering endpoint.
        incarnation: u128,
    },
    /// The answer to a `Done` of a requester that has connected with an endpoint: it has done so, too.
    Linked,
    /// A request to hand this connection to a listener.
    Connect {
        /// The listener.
        name: ChannelName,
    },
    /// Another host has dialled an endpoint: the socket comes with this frame, and its preface was read.
    Dialled {
        /// The endpoint.
        name: ChannelName,
        /// Whether a handshake of TLS follows.
        is_tls: bool,
    },
    /// A request to attach to a window.
    Attach {
        /// The window.
        name: ChannelName,
        /// The rights that the participant wants.
        rights: Rights,
        /// The window of that name that is meant; 0 for the present one.
        incarnation: u128,
    },
    /// The answer to it.
    Attached {
        /// The window.
        window: WindowFacts,
        /// The participant's row; `None` for a guest, which has none.
        row: Option<u32>,
        /// Number of participants that the row has had, including this one.
        generation: u32,
        /// The window's incarnation.
        incarnation: u128,
    },
    /// The answer to `Observe` if the name is a window's.
    ObservedWindow(WindowFacts),
}

/// What an owner tells of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowFacts {
    /// Bytes of its data.
    pub bytes: u64,
    /// Where the data begins in the owner's address space.
    pub address: u64,
    /// The most that another participant may do, in an answer to an observer; what this participant may do, otherwise.
    pub rights: Rights,
    /// Number of rows of its book.
    pub participants_max: u32,
}

/// Why a packet is not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The packet has the wrong size.
    #[error("a packet of {found} bytes instead of a frame of {FRAME_BYTES}")]
    Length {
        /// Its size.
        found: usize,
    },
    /// The packet is not from corewire.
    #[error("a packet that is not a corewire frame")]
    Magic,
    /// The frame has another layout version.
    #[error("a frame of layout version {found}, but this corewire speaks {LAYOUT_VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
    /// The frame has a field with a meaningless value.
    #[error("frame field {field} holds {found}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it holds.
        found: u64,
    },
}

fn rights(word: u64) -> Result<Rights, FrameError> {
    Rights::of_word(word).ok_or(FrameError::Field { field: "rights", found: word })
}

fn small(field: &'static str, word: u64) -> Result<u32, FrameError> {
    u32::try_from(word).map_err(|_| FrameError::Field { field, found: word })
}
