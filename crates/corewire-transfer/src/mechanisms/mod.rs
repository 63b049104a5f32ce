//! Seven mechanisms behind one interface of six operations: [`Mechanism`]. Which of them are possible depends on the kernel,
//! the two processes and the direction; each says so, and why not: [`Reason`].
//!
//! | file | holds |
//! |---|---|
//! | `mechanism.rs` | the six operations: initialise, finalise, register, deregister, copy at the local and at the remote side |
//! | `piece.rs` | registered memory, and its description for the other side |
//! | `permission.rs` | whether the kernel lets this process reach a peer's memory, and why not |
//! | `link.rs` | what mechanisms need of a pair of rings |
//! | `shared_buffer.rs` | through a reused pipe of cells |
//! | `message_queue.rs` | through cells, each a message |
//! | `kernel_get.rs`, `kernel_put.rs` | by the kernel, by the receiver or by the sender |
//! | `both_sides.rs` | by the kernel, from the beginning by the receiver and from the end by the sender |
//! | `ptrace.rs` | by the kernel, from a process that is stopped meanwhile |
//! | `mapped.rs` | out of the sender's memory, which the receiver has mapped |
//! | `driver.rs` | moves messages between two processes by any mechanism |
//!
//! # Cost of a message of `n` bytes
//!
//! | | bytes copied | system calls | needs | both in a call |
//! |---|---|---|---|---|
//! | shared buffer | n, twice | none | a pair of rings | yes |
//! | message queue | n, twice | none | a pair of rings | yes |
//! | kernel get | n, once | one for each MiB | the right to read the sender | no |
//! | kernel put | n, once | two for each chunk of 32 to 256 KiB | the rights to read and write the receiver | to begin |
//! | both sides | n, once, about half by each side | one or two for each chunk | the right to read the sender; to write the receiver, or the receiver copies all | no |
//! | ptrace | n, twice | 7 for each MiB, one for each part | the right to trace the sender | no, but stopped |
//! | mapped memory | n, once | none, after the first | a message that lies in memory from the mechanism | no |
//!
//! While the kernel copies, it pins the pages of both sides, 16 at a time. Except for mapped memory, the data need not
//! lie in shared memory.
//!
//! Sources: Buntinas and others, "Data Transfers between Processes in a SMP System" (II: the mechanisms; III-A: the
//! interface); the copy from both ends is corewire's own.

mod both_sides;
pub mod driver;
mod kernel_get;
mod kernel_put;
mod link;
mod mapped;
mod mechanism;
mod message_queue;
mod outcome;
mod permission;
mod piece;
mod ptrace;
mod shared_buffer;
mod trace_call;

pub use both_sides::BothSides;
pub use kernel_get::KernelGet;
pub use kernel_put::KernelPut;
pub use link::{Cells, Link, LinkMemory, PairLink};
pub use mapped::{MAPS_MAX, Mapped, MappedMemory};
pub use mechanism::{Busy, Mechanism, Peer};
pub use message_queue::MessageQueue;
pub use outcome::{CopyError, NotRegistered, RegisterError, Role, Step};
pub use permission::Reason;
pub use piece::{DESCRIPTION_BYTES_MAX, Description, Piece};
pub use ptrace::Ptrace;
pub use shared_buffer::SharedBuffer;
