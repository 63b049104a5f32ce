//! Moving large payloads between the address spaces of one machine.
//!
//! | | holds |
//! |---|---|
//! | `pull.rs` | what endpoints use: the copy of one message by the kernel, from both ends |
//! | `kernel_copy.rs` | the calls that copy from and to another process's memory |
//! | `thresholds.rs` | from which size on what is used, where nothing was measured |
//! | [`mechanisms`] | seven ways to move a message behind one interface, for comparison |

mod kernel_copy;
pub mod mechanisms;
mod pull;
pub mod thresholds;

pub use kernel_copy::{Refusal, Remote, is_readable, is_writable};
pub use pull::{Help, HelpStep, Pull, PullStep, chunks_of};
