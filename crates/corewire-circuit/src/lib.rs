//! Circuits: bindings through monitors, over as many hops as it takes, many of them over one link (Grest, chapter 3).
//!
//! A client and a service that have no link of their own are joined by a *circuit* through one or more *monitors*.
//! `corewire-bind` opens circuits for its driver `circuit`, and `corewire monitor` runs a monitor.
//!
//! | module | holds | input and output |
//! |---|---|---|
//! | [`wire`] | what travels: frames, packets, credit; and what a trace records | none |
//! | [`ends`] | a program's ends of its circuits | none |
//! | [`node`] | what a monitor decides: forwarding, set-up and tear-down, routing tables, policy | none |
//! | [`link`] | the two lanes of a link between neighbours, and a program's link to its monitor | rings, sockets |
//! | [`patience`] | how long a call waits | none |
//! | `monitor` (feature `monitor`) | the process around a node; what it shows | rings, sockets, `epoll` |

#![forbid(unsafe_code)]

pub mod ends;
pub mod link;
#[cfg(feature = "monitor")]
pub mod monitor;
pub mod node;
pub mod patience;
pub mod wire;
