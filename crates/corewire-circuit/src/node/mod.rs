//! Circuits over many hops, without input and output: what a monitor decides, as a state machine.
//!
//! A *circuit* joins a client and a service that have no link of their own (Grest). Between them are one or more
//! monitors, each a [`Node`]. The node is told what came from which neighbour, and says through [`Wires`] what goes to
//! which. It never waits, reads no clock and draws no random numbers: the same source runs in the monitor, in a
//! simulator of hundreds of monitors, and under a state explorer.
//!
//! # The way of a frame
//!
//! ```text
//!  client ==ring==> node A ==ring==> node B ==ring==> service
//!         label a1          label b1        label s1
//! ```
//!
//! | step | what happens | in |
//! |---|---|---|
//! | 1 | The label is an index into the table of circuits, and a guard that must be the same there. | [`Node::frame`] |
//! | 2 | The frame's credit raises what may be sent back. Its lines must have been granted. | `crate::wire::credit` |
//! | 3 | If nothing of the circuit waits, nothing of other circuits waits for the next link, and the next hop has granted enough: it goes on with the next hop's label and this hop's credit. | [`Node::frame`] |
//! | 4 | Otherwise it is stored, in memory that was reserved or lent before its lines were granted. | `store.rs` |
//! | 5 | What is stored goes when there is room and credit, each circuit of a link in its turn. | [`Node::flush`] |
//! | 6 | Credit goes back with frames in the other direction, or in a frame of its own when less than half of a window is left and the round has ended. | [`Node::flush`] |
//!
//! # Why nothing is lost, and nothing stands still
//!
//! A neighbour sends only what was granted, and what is granted has memory: a node takes every frame at once, and no link
//! is ever blocked by a circuit whose receiver is slow. A frame that is stored waits only for the same circuit's memory
//! at the next hop, and each circuit has a reserve at every hop that no other one can take. A circuit never goes round in
//! a circle, since its request carries the monitors on its way. So the frames of any circuit can always go on as long as
//! its receiver receives.
//!
//! # Memory
//!
//! | what | bytes |
//! |---|---|
//! | a circuit at a node | at most 320, with what its lists and maps take |
//! | its reserve | 4 lines of 64 bytes, two for each direction |
//! | lent on demand | 16, 64 or 256 lines more for each direction, as long as nobody else needs them |
//!
//! # Who may do what
//!
//! The first monitor of a circuit writes into the request who asks, as the kernel told it. [`Policy`] says who may serve
//! and who may reach which name. A program that sends what it must not ([`Violation`]) is cut off, with all of its
//! circuits; labels mean something on one link only, and cannot be guessed.

mod circuit;
mod config;
mod forward;
mod machine;
mod mistakes;
mod names;
mod neighbour;
mod policy;
mod schedule;
mod setup;
mod store;
pub mod table;
mod view;

pub use circuit::LinkId;
pub use config::Config;
#[cfg(feature = "test-hooks")]
pub use config::Mistake;
pub use forward::{Sender, WAITING_BYTES_MAX, WAITING_BYTES_OF_FOREIGN_MAX};
pub use machine::{Counts, Node, Wires};
pub use neighbour::{Down, Neighbour, Violation};
pub use policy::{Act, Policy, Rule};
pub use view::{CircuitView, LinkView, PhaseView};
