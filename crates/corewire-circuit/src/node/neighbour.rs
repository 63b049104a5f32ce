//! A node's neighbours: who they are, what is under way with each, and how they end.

use std::collections::{BTreeMap, VecDeque};

use super::circuit::At;
use crate::wire::packet::Origin;
use crate::wire::{Label, NodeId, PAYLOAD_BYTES_MAX};

/// Who a neighbour is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neighbour {
    /// A program, as the kernel tells.
    Program(Origin),
    /// Another monitor.
    Monitor(NodeId),
}

/// How a neighbour has gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Down {
    /// Its process has ended: the kernel says so.
    Died,
    /// Its connection has ended, and its process may live.
    Closed,
    /// It did what it must not, and was cut off.
    CutOff(String),
    /// Something failed on this side.
    Failed(String),
}

/// A neighbour.
#[derive(Debug, Clone)]
pub(crate) struct NeighbourLink {
    pub(crate) neighbour: Neighbour,
    /// The first of its circuits.
    pub(crate) first: At,
    pub(crate) circuit_count: usize,
    /// Sides with frames that wait, and credit for them.
    pub(crate) active: VecDeque<At>,
    /// Sides that owe the neighbour a word.
    pub(crate) due: VecDeque<At>,
    /// It is in the node's list of links with something to send.
    pub(crate) is_ready: bool,
    /// The circuits that the neighbour has set up, by its label.
    pub(crate) setups: BTreeMap<Label, u32>,
    /// Frames that may still come of circuits that are gone.
    pub(crate) late_count: u64,
    pub(crate) unknown_count: u32,
    /// Lines that are lent to it.
    pub(crate) loan_lines: usize,
    /// It has said that it closes the link.
    pub(crate) is_leaving: bool,
    pub(crate) need: Need,
}

/// How far two monitors are with the end of their link, which neither may need any more (Grest, section 1.1.2). The one
/// with the higher number offers its end, and sets up no circuit on it before the answer; the one with the lower number
/// ends it, or refuses. So no circuit is lost, whatever crosses.
///
/// ```text
///   higher                                   lower
///   Open   --Unneeded-> Offered              Open     --Needed-> Refused     it has circuits, or the table needs it
///   Offered <--Needed-- Kept                 Refused  --Unneeded-> Open      no longer: the other may offer again
///   Kept  <--Unneeded-- Open                 Open, Refused: ends it, if it needs it neither
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing was said.
    Open,
    /// The end was offered, or has begun: no circuit is set up on it.
    Offered,
    /// The other side has refused, and says when it would not.
    Kept,
    /// This side has refused.
    Refused,
}

/// What a neighbour did that it must not. Its link must be ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// It sent more than it was granted.
    #[error("a frame of {lines} lines, where {granted} were granted")]
    Overdrawn {
        /// Lines of the frame.
        lines: u32,
        /// Lines that were granted.
        granted: u32,
    },
    /// It sent a frame that is longer than any.
    #[error("a frame of {found} bytes: at most {PAYLOAD_BYTES_MAX} are possible")]
    Long {
        /// Its length.
        found: usize,
    },
    /// It granted more than any window has.
    #[error("a grant of more lines than there can be")]
    Grant,
    /// It sent frames of circuits that it does not have.
    #[error("{count} frames of circuits that it does not have")]
    Unknown {
        /// How many.
        count: u32,
    },
    /// It sent a frame behind the last one.
    #[error("a frame behind the last one of its circuit")]
    AfterLast,
    /// It sent a packet that it may not send, or not now.
    #[error("{what}")]
    Packet {
        /// What was wrong.
        what: &'static str,
    },
}

impl Violation {
    pub(crate) const fn packet(what: &'static str) -> Self {
        Self::Packet { what }
    }
}
