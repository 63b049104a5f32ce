//! Lanes: what carries the messages of a binding, at either end.
//!
//! | file | holds |
//! |---|---|
//! | `ring` | a client's end of a pair ring, and the socket beside it |
//! | `socket` | a client's end of a socket |
//! | `circuit` | a client's end of a circuit |
//! | `packet`, `packets` | what travels on a socket, and how it is sent and received |
//! | `backlog` | what waits for a client, and what is done when that is too much |
//!
//! `client/link.rs` calls a client's end, `server/lane.rs` holds the service's ends.

pub(crate) mod backlog;
mod circuit;
pub(crate) mod packet;
pub(crate) mod packets;
mod ring;
mod socket;
mod wait;

pub(crate) use self::circuit::CircuitLink;
pub(crate) use self::ring::{LaneError, RingLink, take_beside};
pub(crate) use self::socket::SocketLink;
pub(crate) use self::wait::Interest;
