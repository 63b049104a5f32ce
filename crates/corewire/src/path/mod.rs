//! The data path, read top to bottom: [`send`] and [`room`], then [`receive`]; [`batch`] for many at once;
//! [`snapshot`] where messages may be written over while they are read; [`shared`] where several
//! processes send.
//!
//! What is here is the waiting and the words for a user; the ring itself is
//! `corewire_ring::broadcast`.

pub(crate) mod batch;
mod common;
pub(crate) mod endpoint;
pub(crate) mod receive;
mod room;
pub(crate) mod send;
pub(crate) mod shared;
pub(crate) mod snapshot;
pub(crate) mod wait_set;
