//! What channels of one sender and of several have in common.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | how a channel ends, impossible values, the slowest receiver |
//! | [`data_thread`] | what a data thread shares with the control thread of its process |
//! | [`area`] | room for payload outside the slots |
//! | [`pace`] | does the sender stream? |
//! | [`stall`] | what slow receivers cost a sender |

mod area;
mod data_thread;
mod pace;
mod stall;

pub use area::{Area, Room, Span};
pub(crate) use data_thread::NOT_ALONE;
pub use data_thread::{ReceiverShared, SenderShared};
pub use pace::head_start_ns;
pub(crate) use pace::{Pace, bytes_of, slots_ahead, write_ahead_bytes};
pub(crate) use stall::{Purse, Stall, lap};

/// A word in the sender's memory holds an impossible value. This link is closed; nothing else is
/// affected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sender's memory holds {found:#x} as {word} of message {sequence}")]
pub struct Violation {
    /// Which word.
    pub word: &'static str,
    /// What it holds.
    pub found: u64,
    /// The message it belongs to.
    pub sequence: u64,
}

/// Why no further message will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The sender closed the channel, and everything it sent has been received.
    Closed,
    /// The sender died or vanished, and everything it committed has been received.
    SenderGone,
    /// This receiver held the sender back for too long and no longer counts.
    Evicted,
}

/// The member that the sender waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slowest {
    /// Its row.
    pub row: u32,
    /// Its cursor.
    pub cursor: u64,
}
