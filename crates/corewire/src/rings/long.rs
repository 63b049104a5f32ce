//! How messages move that do not fit in slots.

use corewire_transfer::thresholds::Thresholds;

/// How an endpoint moves messages that stay in their sender's memory: see [`Endpoint`](crate::Endpoint). The sender's
/// setting decides whether a message goes through cells. Both sides copy only if both say `BothSides`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Rendezvous {
    /// As a sender: its peers may read the message in its memory; from 64 KiB on it writes to their memory, too,
    /// while it is in a call. As a receiver: it reads its peers' memory, and lets them write to the memory of the
    /// receive.
    #[default]
    BothSides,
    /// As a sender: its peers may read the message in its memory. As a receiver: it reads its peers' memory. It
    /// writes to no other process's memory, and lets no peer write to its own.
    Pull,
    /// As a sender: its messages go through its cells, copied twice, and no peer reads its memory. As a receiver: it
    /// reads the messages that peers offer in their memory.
    Cells,
}

/// How an endpoint sends messages that do not fit in slots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongMessages {
    pub(crate) rendezvous: Rendezvous,
    pub(crate) thresholds: Thresholds,
}
