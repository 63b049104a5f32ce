//! The calls that are measured.

use serde::{Deserialize, Serialize};

/// A collective call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    Barrier,
    Broadcast,
    Reduce,
    Allreduce,
    Gather,
    AllToAll,
}

/// A call with so many bytes at each process; of one part, where there is one for each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) call: Call,
    pub(crate) bytes: usize,
}

/// The bytes of a call: a word, a page, and more than a cell of any library.
const BYTES: [usize; 3] = [8, 4096, 65_536];

impl Shape {
    /// All that is measured, in this order.
    pub(crate) fn all() -> Vec<Self> {
        let calls = [Call::Broadcast, Call::Reduce, Call::Allreduce, Call::Gather, Call::AllToAll];
        let barrier = Self { call: Call::Barrier, bytes: 0 };
        let others =
            calls.iter().flat_map(|&call| BYTES.into_iter().map(move |bytes| Self { call, bytes }));
        std::iter::once(barrier).chain(others).collect()
    }

    /// Words of eight bytes at each process, or of a part.
    pub(crate) const fn words(self) -> usize {
        self.bytes / 8
    }
}

impl Call {
    /// Its name to display.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::Gather => "gather",
            Self::AllToAll => "all-to-all",
        }
    }
}
