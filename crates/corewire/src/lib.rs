//! Message passing between the processes of one machine: a message is written once, into shared memory,
//! and every receiver reads it there.
//!
//! A *channel* has one sender, or several, and up to 1024 receivers, in any processes of one user.
//! Every receiver gets every message, in one order, and reads it in place: without a copy, a system
//! call or a broker. Senders and receivers join and leave while others run. A process may die at any
//! instruction: the messages that it sent are delivered, and none is torn. Processes of other users can be
//! admitted to read. *Endpoints* carry messages between any two processes, matched by tag and sender.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("corewire-doc-{}", std::process::id()));
//! use corewire::Domain;
//!
//! # let domain = Domain::open_at(&dir)?;
//! # let _ = || Domain::open();
//! // let domain = Domain::open()?;
//! let mut sender = domain.sender("greetings").create()?;
//! let mut receiver = domain.receiver("greetings").join()?; // any process of this user
//!
//! sender.send(b"hello, cores")?;
//! let message = receiver.receive()?;
//! assert_eq!(&message[..], b"hello, cores");
//! # drop(message); drop(receiver); drop(sender); drop(domain); std::fs::remove_dir_all(&dir)?;
//! # Ok(())
//! # }
//! ```
//!
//! | you want | use |
//! |---|---|
//! | every receiver to get every message | [`Domain::sender`], [`SenderBuilder::create`] |
//! | the newest messages, from a sender that never waits | [`SenderBuilder::overwrite`] |
//! | to continue without a receiver that is too slow | [`SenderBuilder::evict`] |
//! | several senders, in one order | [`SenderBuilder::open_shared`] |
//! | values of one type | [`SenderBuilder::typed`] |
//! | requests and replies between any two processes | [`Domain::endpoint`] |
//! | a connected socket to a process of this or another user | [`Domain::listener`], [`Domain::connect`] |
//! | memory that several processes read and write | [`Domain::window`], [`Domain::attach_window`] |
//! | to wait for several of these at once | [`WaitSet`] |
//! | to observe without taking part | [`Domain::observe_all`] |
//!
//! The user guide is `docs/guide.md`.
//!
//! # Names
//!
//! Processes find each other by name in a *domain*, a directory: `$COREWIRE_RUNTIME_DIR`, else
//! `$XDG_RUNTIME_DIR/corewire`, else `/tmp/corewire-UID`. There is no server.
//! [`ReceiverBuilder::join`] joins an existing channel; the receiver begins with the next message sent.
//! [`ReceiverBuilder::join_when_created`] waits for the channel, and the receiver gets its first message,
//! unless this process is stopped for longer than the sender waits for it
//! ([`SenderBuilder::invitation_timeout`], [`Receiver::late_by`]).
//!
//! # The data path
//!
//! [`Sender::send`] copies a message into the channel. [`Sender::loan`] lends memory in the channel, and
//! [`Loan::send`] publishes the message with one store. [`Receiver::receive`] returns a [`Message`], which
//! derefs to the bytes in place; dropping it releases the memory. [`Message::hold`] keeps it for longer, while
//! the receiver continues, and for other threads. `src/path/` holds this path; `corewire-ring` holds the ring
//! underneath.
//!
//! # Slow receivers
//!
//! A sender waits for its slowest receiver, unless the channel was created otherwise. With
//! [`SenderBuilder::overwrite`] the sender never waits; a slow receiver misses messages and knows how
//! many. With [`SenderBuilder::evict`] the sender waits for a limited time and then continues without the
//! receiver, whose next call returns an error. Messages of such channels are copied out, by a
//! [`SnapshotReceiver`], and each copy is checked to be complete.
//!
//! # Several senders
//!
//! [`SenderBuilder::open_shared`] creates a channel that up to 128 senders share, or joins it as one of
//! its senders if it exists. All receivers get the messages in one order, and the channel lives as long as
//! one of its senders. It cannot overwrite, and its receivers begin with the next message sent.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let domain = corewire::Domain::open()?;
//! let mut log = domain.sender("log").open_shared(16)?; // each of up to 16 senders does this
//! log.send(b"started")?;
//! # Ok(())
//! # }
//! ```
//!
//! # Typed messages
//!
//! [`#[corewire::message]`](macro@message) declares a struct as a type of messages.
//! [`SenderBuilder::typed`] and [`ReceiverBuilder::typed`] make channels of such values,
//! which are written and read in place. A receiver with another type, or with other fields, is refused
//! with an error that names both types. With [`ReceiverBuilder::snapshots`] values are copied out. The
//! crate [`zerocopy`], which defines the traits behind this, is re-exported.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("corewire-doc-lib-{}", std::process::id()));
//! # let domain = corewire::Domain::open_at(&dir)?;
//! #[corewire::message]
//! struct Tick {
//!     price: u64,
//!     volume: u64,
//! }
//!
//! let mut sender = domain.sender("ticks").typed::<Tick>().create()?;
//! let mut receiver = domain.receiver("ticks").typed::<Tick>().join()?;
//! sender.send(&Tick { price: 101, volume: 7 })?;
//! assert_eq!(receiver.receive()?.volume, 7);
//! # drop((receiver, sender, domain)); std::fs::remove_dir_all(&dir)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Endpoints
//!
//! An [`Endpoint`] is an address for messages from any other endpoint of this user. Each message has a
//! tag of 64 bits, and a receive takes messages by tag and sender ([`Selector`]). Messages that no
//! receive has asked for yet are kept within a budget ([`EndpointBuilder::budget`]); beyond it they stay
//! with their sender. A [call](Endpoint::call) sends a request and waits for its reply. When a peer dies, calls that
//! wait only for that peer end with an error; [`Endpoint::receive_event`] reports peers that come and go.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use corewire::Domain;
//!
//! // A server, which replies to each request:
//! # let domain = Domain::open()?;
//! let mut server = domain.endpoint("squares").create()?;
//! let request = server.receive_request()?;
//! let number = u64::from_le_bytes(request[..].try_into()?);
//! request.reply(&(number * number).to_le_bytes())?;
//!
//! // A client, in another process:
//! let mut client = domain.endpoint("client-1").create()?;
//! let squares = client.peer_when_created("squares", Some(Duration::from_secs(5)))?;
//! let mut square = [0; 8];
//! client.call_into(squares, &12u64.to_le_bytes(), &mut square)?;
//! assert_eq!(u64::from_le_bytes(square), 144);
//! # Ok(())
//! # }
//! ```
//!
//! # Listeners
//!
//! A [`Listener`] is a name to which processes connect, also guests of the domain. Both programs get one end of a
//! connected socket, a [`Connection`]: for handshakes, descriptors, and what else does not belong into shared memory.
//! See [`Domain::listener`] and [`Domain::connect_when_created`].
//!
//! # Sleeping and waking
//!
//! [`Wait`] says how a call waits. By default it polls for about as long as a wake-up costs, and then
//! sleeps. A sender pays nothing for receivers that do not sleep. Most calls have a variant that never
//! waits (`try_`) and one with a time limit (`_timeout`). In event loops and async code use
//! [`Receiver::readiness`] and [`Endpoint::readiness`].
//!
//! # Forks
//!
//! In a forked child every handle returns `Forked`, and the parent's channels are not affected. The
//! child may open the domain again.
//!
//! # Trust
//!
//! All processes that create channels in a domain run as one user (level 2 of `docs/threats.md`). Any
//! of them may crash at any instruction. A process of another user (level 3) is refused, unless the
//! domain's owner admits it as a guest: see [`Access`]. A guest joins channels of one sender, begins with
//! the next message sent, and creates no channels. It copies messages out, because a sender of another user
//! is not trusted: it could change a message while it is read.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use std::path::Path;
//! use corewire::{Access, Domain};
//!
//! let path = Path::new("/tmp/prices"); // created by the owner, user 1000
//! let domain = Domain::builder().path(path).access(Access::Users(vec![1001])).open()?;
//! let sender = domain.sender("prices").create()?;
//!
//! // In a process of user 1001:
//! let domain = Domain::builder().path(path).owner(1000).open()?;
//! let mut receiver = domain.receiver("prices").snapshots().join()?;
//! let message = receiver.receive()?.to_vec()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! `tracing`, off by default: reports joins, deaths, evictions and fallbacks as spans and events of the
//! crate `tracing`, with the target `corewire`. The data path is the same with it.

#![forbid(unsafe_code)]

mod control;
mod error;
mod guard;
mod halves;
mod host;
mod open;
mod path;
mod patterns;
mod rings;
mod tell;
mod topology;
mod tuning;
mod typed;
mod wait;
#[cfg(feature = "net")]
mod ways;
mod window_handle;

pub use control::endpoint::observer::{EndpointObserver, EndpointView, FarPeerView, PeerView};
pub use control::look::{ListenerView, Observed, Sighting};
pub use control::observer::{ChannelView, Observer, ReceiverView};
pub use control::sample::MessageSample;
pub use control::window::observer::{ParticipantView, WindowObserver, WindowView};
/// Implements `MessageType` for a struct that has `#[repr(C)]` or `#[repr(transparent)]` and the
/// traits of `zerocopy` already.
///
/// [`#[corewire::message]`](macro@crate::message) adds all of these, and is the usual way. This derive is
/// for a struct that is declared with `zerocopy` for other reasons, too.
///
/// ```
/// use corewire::MessageType;
/// use corewire::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, MessageType)]
/// #[zerocopy(crate = "corewire::zerocopy")] // not needed if the program depends on zerocopy
/// #[corewire(name = "example.Tick.1")] // the options of #[corewire::message]
/// #[repr(C)]
/// struct Tick {
///     price: u64,
///     volume: u64,
/// }
/// # assert_eq!(Tick::NAME, "example.Tick.1");
/// ```
pub use corewire_derive::MessageType;
/// Declares a struct as a type of messages.
///
/// It needs nothing else, and no other crate: the struct gets `#[repr(C)]` unless it says
/// `#[repr(C)]` or `#[repr(transparent)]` itself, the traits of `zerocopy` that make its bytes a
/// message (`FromBytes`, `IntoBytes`, `KnownLayout`, `Immutable`), and `MessageType`.
///
/// ```
/// #[corewire::message]
/// #[derive(Debug, Clone, Copy, PartialEq)]
/// struct Tick {
///     price: u64,
///     volume: u64,
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("corewire-doc-message-{}", std::process::id()));
/// # let domain = corewire::Domain::open_at(&dir)?;
/// let mut sender = domain.sender("ticks").typed::<Tick>().create()?;
/// let mut receiver = domain.receiver("ticks").typed::<Tick>().join()?;
/// sender.send(&Tick { price: 101, volume: 7 })?;
/// assert_eq!(*receiver.receive()?, Tick { price: 101, volume: 7 });
/// # drop((receiver, sender, domain)); std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
///
/// # What both sides must agree on
///
/// The name of the struct; its size and alignment; the name, the type and the offset of each field.
/// A program that swaps two fields, renames one, or makes a `u32` an `f32` is refused when it joins,
/// with an error that names both types. The type of a field is compared by its own schema if it is a
/// message type (numbers, arrays of message types, and structs declared like this one are), else by
/// its size, its alignment and the text with which it is written.
///
/// The module does not count. A name of 1 to 64 printable ASCII characters can be given. Change it
/// when the meaning of a field changes and its name does not:
///
/// ```
/// #[corewire::message(name = "example.Tick.2")]
/// struct Tick {
///     /// In cents. Version 1 had euros.
///     price: u64,
///     volume: u64,
/// }
/// # use corewire::MessageType;
/// # assert_eq!(Tick::NAME, "example.Tick.2");
/// ```
///
/// # What is refused by the compiler
///
/// Padding, since its bytes would carry whatever was in memory. Name the gap as a field:
///
/// ```compile_fail
/// #[corewire::message]
/// struct Sample {
///     kelvin: f32, // 4 bytes of padding follow
///     time_ns: u64,
/// }
/// ```
///
/// ```
/// #[corewire::message]
/// struct Sample {
///     kelvin: f32,
///     unused: [u8; 4],
///     time_ns: u64,
/// }
/// ```
///
/// Types for which not all bytes are valid (`bool`, `char`, enums: send a number), references,
/// pointers, generic structs, enums and unions; an alignment of more than 64 bytes, or of more than
/// 16 for up to 48 bytes.
///
/// # Options
///
/// - `name = "..."`: the name, if not the struct's.
/// - `crate = "..."`: the path of the crate `corewire`, if it is not `::corewire`.
pub use corewire_derive::message;
pub use corewire_endpoint::{
    Change as NumberChange, Denial as AccessDenial, Exposed as ExposedMemory, Kind as RemoteChange,
    Number as NumberKind, Part as RemotePart, Relation as NumberRelation,
};
pub use corewire_endpoint::{
    Completion, Count, CounterId, End, Envelope, LossReason, Matched, Memory, MessageError,
    OperationHandle, OperationKind, Options, OwnedMessage, Peer, PeerViolation, Report, Selector,
    Status, Until,
};
pub use corewire_layout::endpoint::EndpointSizeError;
pub use corewire_layout::frame::Reason;
pub use corewire_layout::geometry::GeometryError;
pub use corewire_layout::message_type::TypeName;
pub use corewire_layout::name::{ChannelName, NameError, NameKind};
pub use corewire_layout::segment::{HeaderError, Policy};
pub use corewire_layout::window::{Rights as WindowRights, WINDOW_COUNTERS_MAX};
#[cfg(feature = "net")]
pub use corewire_net::{
    hosts::{Host, Hosts, HostsError},
    open::{OpenError as HostError, TargetError},
};
pub use corewire_os::OsError;
pub use corewire_os::access::Access;
pub use corewire_os::directory::DirectoryError;
pub use corewire_os::memory::SegmentError;
pub use corewire_ring::broadcast::Violation;
pub use corewire_ring::window::{Number as WindowNumber, Word as WindowWord};
pub use error::{
    AcceptError, AttachError, ConnectError, ConnectServiceError, CounterError, CreateError,
    EndpointError, JoinError, ListenError, NameInUse, NameUse, OpenError, Overwritten,
    ReceiveError, SendError, ValueError, WaitError, WindowCreateError, WindowError,
};
pub use open::channel::SenderBuilder;
pub use open::domain::{Domain, DomainBuilder, NameWatch};
pub use open::endpoint::EndpointBuilder;
#[cfg(feature = "net")]
pub use open::gateway::Gateway;
pub use open::levels::Levels;
pub use open::listener::{Connection, Listener};
pub use open::receiver::ReceiverBuilder;
pub use open::window::WindowBuilder;
pub use path::batch::{Batch, SendBatch};
pub use path::endpoint::{
    Connector, DetachedRequest, Endpoint, EndpointGuard, EndpointLoan, Event, OwedReply,
    ProgressingEndpoint, RemoteNumber, Request, UnsentLoan, Within,
};
pub use path::held::HeldMessage;
pub use path::receive::{Copying, InPlace, Message, Reading, Receiver};
pub use path::send::{Loan, Sender};
pub use path::shared::{SharedBatch, SharedLoan, SharedSender};
pub use path::snapshot::{Snapshot, SnapshotReceiver};
pub use path::wait_set::{Source, WaitSet};
pub use path::window::{Lock as WindowLocking, Window, WindowLock, WindowParticipant};
pub use patterns::latest::{LatestBuilder, LatestReader, LatestWriter};
pub use patterns::queue::{
    Delivery, Job, Producer, Queue, QueueBuilder, QueueError, QueueView, Worker,
};
pub use rings::Rendezvous;
pub use topology::{Topology, TopologyError};
pub use tuning::{Tuning, TuningError, TuningInUse, tuning};
pub use typed::payload::Payload;
pub use typed::schema::{ChannelType, MessageType};
pub use wait::{Interrupter, Readiness, Wait};
pub use window_handle::WindowHandle;
pub use zerocopy;

/// Items that the macros of `corewire-derive` need. Other code must not use them.
#[doc(hidden)]
pub mod __private {
    pub use crate::typed::schema::{Probe, Schema, Undeclared};
}
