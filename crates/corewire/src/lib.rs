//! Message passing between the cores of one machine: written once, read in place, by any number of
//! processes.
//!
//! A *channel* has one sender, or several, and up to 1024 receivers, in any processes of one user.
//! Every receiver gets every message, in one order, and reads it where it was written: no copy, no
//! system call, no broker. All come and go while others run; a process may die at any instruction,
//! and nothing that was sent is lost or torn by it. Processes of other users may be let in to read.
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
//! # The data path
//!
//! [`Sender::loan`] lends the place where a message will lie; [`Loan::send`] publishes it with one
//! store. [`Receiver::receive`] returns a [`Message`] that derefs to the bytes in place; dropping it
//! gives the place back. `src/path/` holds this path, read top to bottom; `corewire-ring` holds the
//! ring underneath.
//!
//! # Slow receivers
//!
//! A sender waits for its slowest receiver, unless the channel was made otherwise: with
//! [`SenderBuilder::overwrite`] a slow receiver misses messages and is told how many, with
//! [`SenderBuilder::evict`] it is left behind after a while. Messages of such channels are copied
//! out, by a [`SnapshotReceiver`].
//!
//! # Several senders
//!
//! [`SenderBuilder::open_shared`] makes a channel that up to 128 senders share, or becomes one of
//! them. All receivers get the messages in one order, and the channel lives as long as one of its
//! senders. It cannot overwrite, and is joined from now on only.
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
//! [`#[corewire::message]`](macro@message) declares a struct as a type of messages;
//! [`SenderBuilder::create_typed`] and [`ReceiverBuilder::join_typed`] make channels of it, whose
//! values are written and read in place. Whoever joins with another type, or with other fields, is
//! refused. [`zerocopy`], which its traits come from, is re-exported.
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
//! let mut sender = domain.sender("ticks").create_typed::<Tick>()?;
//! let mut receiver = domain.receiver("ticks").join_typed::<Tick>()?;
//! sender.send(&Tick { price: 101, volume: 7 })?;
//! assert_eq!(receiver.receive()?.volume, 7);
//! # drop((receiver, sender, domain)); std::fs::remove_dir_all(&dir)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Sleeping and waking
//!
//! [`Wait`] says how a call waits. By default it polls for as long as a wake-up would cost, and then
//! sleeps; the other side pays nothing as long as nobody sleeps.
//!
//! # Trust
//!
//! All processes that create channels in a domain run as one user (level 2 of `docs/threats.md`): any
//! of them may crash at any instruction. A process of another user (level 3) is refused, unless the
//! domain's owner lets it in as a guest: see [`Access`]. A guest joins channels of one sender, creates
//! none, and copies messages out, since nobody vouches for a sender of another user.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use std::path::Path;
//! use corewire::{Access, Domain};
//!
//! let path = Path::new("/tmp/prices"); // made by the owner, user 1000
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
//! `tracing`, off by default: joins, deaths, evictions and fall-backs as spans and events of the crate of
//! that name, target `corewire`. The data path is the same with it.

#![forbid(unsafe_code)]

mod control;
mod error;
mod kernel;
mod path;
mod tell;
mod topology;
mod typed;
mod wait;

pub use control::builder::{ReceiverBuilder, SenderBuilder};
pub use control::domain::{Domain, DomainBuilder};
pub use control::endpoint::observer::{EndpointObserver, EndpointView, PeerView};
pub use control::levels::Levels;
pub use control::look::{Observed, Sighting};
pub use control::observer::{ChannelView, Observer, ReceiverView};
pub use control::sample::MessageSample;
pub use corewire_derive::{MessageType, message};
pub use corewire_layout::endpoint::EndpointSizeError;
pub use corewire_layout::frame::Reason;
pub use corewire_layout::geometry::GeometryError;
pub use corewire_layout::message_type::TypeName;
pub use corewire_layout::name::{ChannelName, NameError};
pub use corewire_layout::segment::{HeaderError, Policy};
pub use corewire_os::OsError;
pub use corewire_os::access::Access;
pub use corewire_os::directory::DirectoryError;
pub use corewire_os::memory::SegmentError;
pub use corewire_ring::broadcast::Violation;
pub use corewire_ring::pair::PairViolation;
pub use error::{
    ConnectError, CounterError, CreateError, EndpointError, JoinError, MessageError, NameInUse,
    NameUse, OpenError, Overwritten, ReceiveError, SendError, ValueError, WaitError,
};
pub use path::batch::{Batch, SendBatch};
pub use path::endpoint::{
    Buffer, Completion, Endpoint, EndpointBuilder, Matched, Peer, Received, Request, Selector,
    Status,
};
pub use path::receive::{Copying, InPlace, Message, Reading, Receiver};
pub use path::send::{Loan, Sender};
pub use path::shared::{SharedBatch, SharedLoan, SharedSender};
pub use path::snapshot::{Snapshot, SnapshotReceiver};
pub use path::wait_set::{Source, WaitSet};
pub use topology::{Topology, TopologyError};
pub use typed::{
    ChannelType, MessageType, TypedBatch, TypedLoan, TypedReceiver, TypedSendBatch, TypedSender,
    TypedSharedBatch, TypedSharedLoan, TypedSnapshotReceiver, Value,
};
pub use wait::{Interrupter, Readiness, Wait};
pub use zerocopy;

/// What the macros of `corewire-derive` need. Nothing here is for other code.
#[doc(hidden)]
pub mod __private {
    pub use crate::typed::schema::{Probe, Schema, Undeclared};
}
