//! The control path: joining, leaving and death. No message passes through this code.
//!
//! | module | holds |
//! |---|---|
//! | [`hub`] | the one control thread of the process |
//! | [`domain`] | a runtime directory, opened; this process's socket in it |
//! | `accepting` | who may connect to that socket |
//! | [`connection`] | the requests of a peer that has connected |
//! | [`reachable`] | what they find by name: senders, endpoints, windows and listeners serve them |
//! | [`asking`] | asking another process: its answers and refusals |
//! | `frames` | what several of these do with frames and errors |
//! | [`owner`] | the sender's side: who has joined, left, died |
//! | [`attach`] | the receiver's side: joining, and the sender's death |
//! | [`shared`] | channels of several senders: entering, admitting, taking over, watching |
//! | [`endpoint`] | an endpoint's side: who its peers are |
//! | [`window`] | windows: the owner's side, and that of the others |
//! | [`listener`] | a listener's side: connections that wait to be accepted |
//! | `taking`, `strangers` | connections of other hosts that are taken at an address; those that have not said yet who they are |
//! | [`look`] | asking the processes that have names, one or all at once |
//! | [`memory`] | private memory of senders |
//! | [`observer`] | looking on without joining |
//!
//! The data half of a handle sees what is here through the traits in [`halves`](crate::halves).

use std::time::Duration;

mod accepting;
pub(crate) mod asking;
pub(crate) mod attach;
pub(crate) mod connection;
pub(crate) mod domain;
pub(crate) mod endpoint;
pub(crate) mod frames;
pub(crate) mod hub;
pub(crate) mod listener;
pub(crate) mod look;
pub(crate) mod memory;
pub(crate) mod observer;
pub(crate) mod owner;
pub(crate) mod reachable;
pub(crate) mod sample;
pub(crate) mod shared;
#[cfg(feature = "net")]
pub(crate) mod strangers;
#[cfg(feature = "net")]
pub(crate) mod taking;
pub(crate) mod window;

/// How long a process may take to end after its sockets, where the kernel does not show that it is ending.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_millis(100);
