//! The algorithms that corewire runs on shared memory. They make no system calls: a ring gets what
//! it needs from an operating system through [`Kernel`], and from the
//! control thread of its process through [`Control`]. So loom and Miri run exactly the source
//! that real processes run.
//!
//! | module | contents |
//! |---|---|
//! | [`sync`] | the only place that names atomics: the variant for real machines, and those for tests |
//! | [`region`] | the only place that turns an offset into a pointer |
//! | [`doorbell`] | sleep and wake, the same for every ring |
//! | `channel` | what channels of one sender and of several have in common |
//! | [`broadcast`] | one sender, many receivers, every message in place |
//! | [`shared`] | several senders, many receivers, one order |
//! | [`copying`] | the routines that copy bytes, and which of them copies how many |
//! | [`message`] | the bytes of messages on the side of the program |
//! | [`pair`] | any endpoint to any endpoint: a ring for each pair that talks |
//! | [`window`] | memory that several processes read and write: its lock, fences, epochs and counters |
//! | [`handoff`] | the lock that fork handlers take |

#![no_std]

extern crate alloc;
#[cfg(any(test, loom, corewire_kill))]
extern crate std;

mod bell;
pub mod broadcast;
mod channel;
mod cold;
pub mod copying;
pub mod doorbell;
pub mod handoff;
mod host;
pub mod message;
pub mod pair;
pub mod region;
pub mod shared;
pub mod sync;
pub mod window;

pub use host::{Control, Host, Kernel, Lock, Trusted};
