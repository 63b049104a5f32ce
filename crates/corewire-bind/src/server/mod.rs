//! A service's end of its connections.
//!
//! One thread serves: it waits for the service's endpoint, where messages of rings arrive, and which its mailbox
//! interrupts. A second one, the socket thread, sleeps until something happens on a socket.
//!
//! | file | holds |
//! |---|---|
//! | `core` | what a service is set up with, and what it has |
//! | `serving` | what comes next, and what is done with it |
//! | `dispatch` | what the program gets |
//! | `asked`, `reply` | a request whose handler runs, and what the program answers with |
//! | `streams`, `flow` | answers in parts, and how much of them may be sent |
//! | `later` | what other threads of the process have sent |
//! | `sending` | what is sent, kept, left out; who is cut off |
//! | `clients`, `client_id`, `lane` | the clients, and how each is reached |
//! | `binding` | how clients come and go, by a socket |
//! | `circuits`, `by_circuit` | clients behind monitors |
//! | `socket_client`, `socket_thread` | clients at the other end of a socket, and the thread that reads them |
//! | `exporter` | the thread that keeps the service at its monitor |
//! | `asynchronous` | serving in a task |
//! | `mailbox` | what other threads leave for the service's |

mod asked;
mod asynchronous;
mod binding;
mod by_circuit;
mod circuits;
mod client_id;
mod clients;
mod core;
mod dispatch;
mod exporter;
mod flow;
mod lane;
mod later;
mod mailbox;
mod reply;
mod sending;
mod serving;
mod socket_client;
mod socket_thread;
mod streams;

pub use self::client_id::ClientId;
pub use self::core::{Serve, ServerCore};
pub use self::dispatch::{Dispatch, Incoming, Refusal};
pub use self::flow::Pulled;
pub use self::later::Version;
pub use self::reply::{LaterReply, Outbox, Reply, Stopper};
pub use self::streams::PartSender;
