//! The engine of corewire's endpoints: which receive gets which message, operations that go on by
//! themselves, and the protocols that carry messages, over any [`Transport`].
//!
//! An engine makes no system call, has no clock and draws no random number; what it does depends on its
//! calls and on what its transport returns, so that tests can repeat every run. The crate `corewire`
//! waits, connects, and carries messages between the processes of one machine; most programs use its
//! `Endpoint`.
//!
//! # The way of a message
//!
//! 1. [`Engine::try_inject`]: a short message to an open peer goes to the transport at once. Everything
//!    else goes through [`Engine::send_step`] or [`Engine::start_send`], in order behind what waits there.
//! 2. [`Engine::try_take_short`] and [`Engine::try_take_owned`]: while nothing else is going on, a receive that finds a
//!    whole message which it asks for takes it from the transport at once.
//! 3. Otherwise [`Engine::progress`] takes each arrival. The oldest receive that asks for it gets it;
//!    if there is none, it is kept, within a budget; beyond that it stays with its sender.
//! 4. Each fragment is copied to where its message goes, and passed. With the last one the operation
//!    ends and is reported: by its handle, in the completion queue, or by a counter.
//!
//! A large message is only offered on this way, and copied when a receive has got the offer: see `rendezvous.rs`.
//!
//! # Cost
//!
//! Sender and receiver each copy a message once. A large message is copied once in all. A message that was kept before a
//! receive asked for it is copied once more, unless it is received into an [`OwnedMessage`]. Steps 1 and 2 allocate
//! nothing, except the memory of an [`OwnedMessage`] before it is there, and compare one word ([`Engine::is_at_rest`]) to
//! know that nothing else is going on. Matching takes constant time for each pattern of selectors in use, whatever the number of receives
//! and messages that wait.

mod budget;
mod caller;
mod engine;
mod error;
mod exposures;
mod grants;
pub mod in_memory;
mod incoming;
mod list;
mod matching;
mod message;
mod operations;
mod peers;
mod pool;
mod rendezvous;
mod selector;
pub mod transport;

pub use corewire_layout::access::{Change, Denial, Kind, Number, Part, Relation, Rights};
pub use corewire_ring::message::{
    Arrival, Envelope, Exposed, Fragment, Held, Home, Landing, Memory, Place, Sink, Source, Space,
    Wanted, Wants,
};

pub use budget::{Budget, Kept};
pub use caller::{Caller, Looked, Matched};
pub use engine::{Engine, MessageTarget};
pub use error::MessageError;
pub use grants::Grants;
pub use list::Seed;
pub use message::{OwnedMessage, Target};
pub use operations::{
    Completion, Count, CounterId, End, OperationHandle, OperationKind, Options, Report, Until,
};
pub use peers::{Lent, PeerEvent};
pub use selector::{Peer, Selector, Status};
pub use transport::{LossReason, PeerViolation, Transport};
