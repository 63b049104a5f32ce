//! What owner, producers and workers say to each other: a tag, and a job's bytes.
//!
//! | tag | from | to | bytes |
//! |---|---|---|---|
//! | push | producer | owner | a job |
//! | accepted; too long, with the longest; finished | owner | producer | |
//! | ask | worker | owner | |
//! | give, with the job's number, and whether it is done when the worker has got it | owner | worker | the job |
//! | finished | owner | worker | |
//! | done, back, with the job's number | worker | owner | |

/// `number:58 | is_done:1 | is_repeated:1 | kind:4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    Push,
    Accepted,
    TooLong { max: u64 },
    Ask,
    Give { number: u64, is_repeated: bool, is_done: bool },
    Done { number: u64 },
    Back { number: u64 },
    Finished,
}

impl Message {
    pub(super) const fn tag(self) -> u64 {
        let (kind, number, flags) = match self {
            Self::Push => (1, 0, 0),
            Self::Accepted => (2, 0, 0),
            Self::TooLong { max } => (3, max, 0),
            Self::Ask => (4, 0, 0),
            Self::Give { number, is_repeated, is_done } => {
                (5, number, (is_done as u64) << 1 | is_repeated as u64)
            }
            Self::Done { number } => (6, number, 0),
            Self::Back { number } => (7, number, 0),
            Self::Finished => (8, 0, 0),
        };
        number << 6 | flags << 4 | kind
    }

    /// `None` for a tag that nobody here sends.
    pub(super) const fn of_tag(tag: u64) -> Option<Self> {
        let (number, is_done, is_repeated) = (tag >> 6, tag >> 5 & 1 == 1, tag >> 4 & 1 == 1);
        Some(match tag & 0xf {
            1 => Self::Push,
            2 => Self::Accepted,
            3 => Self::TooLong { max: number },
            4 => Self::Ask,
            5 => Self::Give { number, is_repeated, is_done },
            6 => Self::Done { number },
            7 => Self::Back { number },
            8 => Self::Finished,
            _ => return None,
        })
    }
}
