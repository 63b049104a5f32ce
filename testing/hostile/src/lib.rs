//! A neighbour that writes anything into its own memory, and the rings that have to bear it.
//!
//! The memory is what processes have: a memfd that its owner maps for writing and everyone else for
//! reading. Here each of these maps has an inaccessible page before and after it, so that an access
//! outside ends the test. [`receiver`] drives a receiver whose sender is hostile, [`sender`] a sender
//! one of whose receivers is, [`pairs`] an endpoint one of whose peers is. What the neighbour does is a list of [`Step`]s: from a seed, from a
//! property test that shrinks it, or from a fuzzer.
//!
//! What is asserted after every step: nothing panicked or faulted, no call did more work than the
//! sizes of the channel allow (exactly so with `--cfg corewire_steps`, see [`effort`]), and whoever
//! is not linked to the hostile neighbour got every message.

#![allow(
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    reason = "a harness: it panics when a test has failed"
)]

pub mod effort;
pub mod kernel;
pub mod memory;
pub mod pairs;
pub mod receiver;
pub mod sender;
pub mod step;

pub use step::{Random, Step};
