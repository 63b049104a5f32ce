//! Moving large payloads between the address spaces of one machine.
//!
//! | file | holds |
//! |---|---|
//! | `kernel_copy.rs` | copies by the kernel from and to another process's memory |
//! | `both_sides.rs` | one message, copied from its beginning by the receiver and from its end by the sender |
//! | `thresholds.rs` | from which size on what is used |
//!
//! # Cost of a message of `n` bytes
//!
//! | | bytes copied | system calls |
//! |---|---|---|
//! | receiver alone | n, once | one for each MiB, besides a first one for 32 to 256 KiB |
//! | both | n, once, about half by each side | one for each chunk of 32 to 256 KiB; the sender makes one more for each |
//!
//! The pages of both sides are pinned by the kernel while it copies, 16 at a time. The data need not lie in shared
//! memory, and no copy of it is made on the way.
//!
//! Sources: Buntinas and others, "Data Transfers between Processes in a SMP System" (II-D, Kaput: a copy by the kernel);
//! the copy from both ends is corewire's own.

mod both_sides;
mod kernel_copy;
pub mod thresholds;

pub use both_sides::{Help, HelpStep, Pull, PullStep, chunks_of};
pub use kernel_copy::{Refusal, Remote};
