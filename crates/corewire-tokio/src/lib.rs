//! corewire for programs that use tokio.
//!
//! | of corewire | here |
//! |---|---|
//! | a receiver of a channel | [`ReceiverStream`], a [`Stream`](futures_core::Stream) |
//! | its sender | [`SenderSink`], a [`Sink`](futures_sink::Sink) |
//! | an endpoint | [`TokioEndpoint`]: messages, calls, requests, streams and sinks |
//! | a client or a service of an interface | [`bind`] and [`serve`], for the generated `AsyncClient::bind` and `Server::with` |
//! | a last value, a worker of a queue | [`LatestStream`], [`QueueWorker`] |
//! | a group | [`decisions`], [`propose`] |
//!
//! Everything waits in tokio's reactor: no thread stands between. Only what blocks by its nature runs in tokio's pool for
//! such calls: linking endpoints, binding, a channel's sender that waits for room, and proposals.
//!
//! # How it waits
//!
//! tokio is told once when a descriptor becomes readable, and not again before it was not. So each wait is: take what is
//! there; arm, which makes the descriptor unreadable and looks again; and only then wait. What comes after that makes it
//! readable again. A future that is dropped leaves what has come where it is: no message is lost.
//!
//! # Cost
//!
//! A message to a task that waits costs its sender a write to an eventfd, as a wake-up by a bare eventfd does, and its
//! receiver the turn of tokio's reactor and a read of the eventfd. A message to a task that runs costs what it costs
//! without tokio.
//!
//! ```
//! use corewire::Domain;
//! use corewire_tokio::{ReceiverStream, SenderSink};
//! use futures_lite::StreamExt;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("corewire-doc-tokio-{}", std::process::id()));
//! # let domain = Domain::open_at(&dir)?;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let mut sender = SenderSink::new(domain.sender("greetings").create()?);
//! let mut receiver = ReceiverStream::new(domain.receiver("greetings").join()?)?;
//! sender.send(b"hello, tasks").await?;
//! drop(sender);
//! while let Some(message) = receiver.next().await {
//!     assert_eq!(message?, b"hello, tasks");
//! }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # drop(domain); std::fs::remove_dir_all(&dir)?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod bindings;
mod endpoint;
mod error;
mod group;
mod patterns;
mod ready;
mod receiver;
mod sender;

pub use bindings::{bind, reactor, serve};
pub use endpoint::{Messages, PeerSink, TokioEndpoint};
pub use error::StreamError;
pub use group::{decisions, propose};
pub use patterns::{LatestStream, QueueWorker};
pub use receiver::ReceiverStream;
pub use sender::SenderSink;
