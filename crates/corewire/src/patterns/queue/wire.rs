//! What owner, producers and workers say to each other: a tag, and a job's bytes.
//!
//! | tag | from | to | bytes |
//! |---|---|---|---|
//! | push | producer | owner | a job |
//! | accepted; too long, with the longest; finished | owner | producer | |
//! | ask | worker | owner | |
//! | give, with the job's number | owner | worker | the job |
//! | finished | owner | worker | |
//! | done, back, with the job's number | worker | owner | |

/// `number:59 | is_repeated:1 | kind:4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    Push,
    Accepted,
    TooLong { max: u64 },
    Ask,
    Give { number: u64, is_repeated: bool },
    Done { number: u64 },
    Back { number: u64 },
    Finished,
}

impl Message {
    pub(super) const fn tag(self) -> u64 {
        let (kind, number, is_repeated) = match self {
            Self::Push => (1, 0, false),
            Self::Accepted => (2, 0, false),
            Self::TooLong { max } => (3, max, false),
            Self::Ask => (4, 0, false),
            Self::Give { number, is_repeated } => (5, number, is_repeated),
            Self::Done { number } => (6, number, false),
            Self::Back { number } => (7, number, false),
            Self::Finished => (8, 0, false),
        };
        number << 5 | (is_repeated as u64) << 4 | kind
    }

    /// `None` for a tag that nobody here sends.
    pub(super) const fn of_tag(tag: u64) -> Option<Self> {
        let (number, is_repeated) = (tag >> 5, tag >> 4 & 1 == 1);
        Some(match tag & 0xf {
            1 => Self::Push,
            2 => Self::Accepted,
            3 => Self::TooLong { max: number },
            4 => Self::Ask,
            5 => Self::Give { number, is_repeated },
            6 => Self::Done { number },
            7 => Self::Back { number },
            8 => Self::Finished,
            _ => return None,
        })
    }
}
