//! A monitor: the process that forwards circuits for a core, a cache domain or a host (Grest, chapter 3).
//!
//! What it decides is in [`node`](crate::node); here are its sockets and rings. `corewire monitor` runs it.
//!
//! # Links
//!
//! A monitor has the name `monitor.N` in its domain, where programs and other monitors connect. Each link has two lanes:
//!
//! | lane | between processes of one user | otherwise |
//! |---|---|---|
//! | control | the socket on which the link began | the same |
//! | data | a ring, between `monitor.N.rings` or, for monitors, `monitor.N.trunk` and the other one's endpoint | a second socket |
//!
//! | neighbour | monitor |
//! |---|---|
//! | control: `Attach` | |
//! | | control: `Attached`, with a secret, and the name of its endpoint if the data lane can be a ring |
//! | ring: `Hello` with the secret; or second socket: `Lane` with it | |
//! | | control: `Ready` |
//!
//! # One turn
//!
//! A single thread takes turns ([`Monitor::turn`]): up to 64 frames of each endpoint, then what is due, and, when nothing
//! came or after 20 us, whatever has happened on sockets. Control never waits behind data for longer than that. When
//! nothing has come for `--poll-ns`, it sleeps until something does. It never waits for a neighbour: what has no room in
//! a ring is kept in memory that its circuit was granted, and packets that a neighbour does not read are kept up to a
//! bound, beyond which its link ends. A thread of its own connects to other monitors, since these may not answer. A
//! close can take long. So other threads close the sockets of programs, and the descriptors that they have sent: one for
//! each user. While that thread is far behind, the monitor reads nothing more from the user's programs. Of descriptors that
//! come from another monitor, it ends the circuit to which they belong.
//!
//! # Deaths
//!
//! A link is down when the neighbour's control lane has ended and everything that it had sent in both lanes has been
//! handled.

mod asking;
mod closer;
mod connection;
mod connections;
mod handle;
mod joining;
mod links;
mod rings;
mod shown;
mod start;
mod state;
mod tracing;
mod turn;

pub use asking::{AskError, Asking, monitors};
pub use handle::Handle;
pub use shown::{Circuit, Circuits, Link, Name, Routes};
pub use start::Options;
pub use state::{Monitor, MonitorError};
pub use turn::Found;
