//! Moving large payloads between the address spaces of one machine.
//!
//! | | holds |
//! |---|---|
//! | `pull.rs` | what endpoints use: the copy of one message by the kernel, from both ends |
//! | `kernel_copy.rs` | the calls that copy from and to another process's memory |
//! | `walks.rs`, `detour.rs` | the lists of those calls, and copies that would be slow |
//! | `own_memory.rs` | whether memory of this process can be read and written |
//! | `thresholds.rs` | from which size on what is used, where nothing was measured |
//! | [`mechanisms`] | seven ways to move a message behind one interface, for comparison |

mod detour;
mod kernel_copy;
pub mod mechanisms;
mod own_memory;
mod pull;
pub mod thresholds;
mod walks;

pub use kernel_copy::{Refusal, Remote};
pub use own_memory::{is_readable, is_writable};
pub use pull::{Help, HelpStep, Pull, PullStep, chunks_of};
