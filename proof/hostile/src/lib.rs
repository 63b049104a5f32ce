//! A neighbour that writes anything into its own memory, and the rings that must withstand it.
//!
//! The memory is that of real processes: a memfd that its owner maps writable and all others map
//! read-only. Here each map has an inaccessible page before and after it, so an access outside the
//! map ends the test. [`receiver`] tests a receiver with a hostile sender, [`sender`] a sender with
//! a hostile receiver, [`pairs`] an endpoint with a hostile peer. The neighbour's actions are a
//! list of [`Step`]s: from a seed, from a property test that shrinks it, or from a fuzzer.
//!
//! After every step the tests assert: nothing panicked or faulted; no call did more work than the
//! sizes of the channel allow (checked exactly with `--cfg corewire_steps`, see [`effort`]); and
//! every party that is not linked to the hostile neighbour got every message.

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
