//! The data path, read top to bottom: [`send`] and [`room`], then [`receive`]; [`batch`] for several messages at a
//! time; [`held`] for messages that outlive a call; [`snapshot`] for messages that may be overwritten while they are
//! read, and [`values`] for values of these; [`shared`] for several senders. [`window`] is memory that several processes use.
//!
//! This module waits and provides the public types. The ring itself is `corewire_ring::broadcast`.

pub(crate) mod batch;
mod common;
pub(crate) mod endpoint;
pub(crate) mod held;
pub(crate) mod receive;
mod room;
pub(crate) mod send;
pub(crate) mod shared;
pub(crate) mod snapshot;
mod values;
pub(crate) mod wait_set;
pub(crate) mod window;
