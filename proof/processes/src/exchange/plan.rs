//! What two endpoints do, one after the other: the case of a property test, which goes to the other process as one
//! line.

use serde::{Deserialize, Serialize};

/// Two sides, and what they send each other. The first side is the test, the second one its child process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// How each side's endpoint is made.
    pub sides: [Side; 2],
    /// What they send each other.
    pub rounds: Vec<Round>,
}

/// How an endpoint is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// How large messages travel.
    pub rendezvous: Way,
    /// Bytes that it grants its senders.
    pub grants: usize,
    /// Bytes of the longest message that it sends in place.
    pub in_place_up_to: usize,
    /// Bytes of its heap.
    pub heap: usize,
    /// It refuses what does not fit in what it grants.
    pub refuses: bool,
    /// Number and length of its cells.
    pub cells: (usize, usize),
    /// Bytes of messages that nobody has asked for.
    pub budget: usize,
    /// It sleeps at once when it waits.
    pub parks: bool,
}

/// [`corewire::Rendezvous`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "see there")]
pub enum Way {
    BothSides,
    Pull,
    Cells,
}

/// Messages that are sent one after the other, and received before the next round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Those that the first side sends, and those of the second side.
    pub messages: [Vec<Message>; 2],
    /// They are received by their tags, in reverse order.
    pub is_reversed: bool,
}

/// A message, how it is sent and how it is received.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its length.
    pub bytes: usize,
    /// How it is sent.
    pub sending: Sending,
    /// The parts of the memory that it is sent from.
    pub source: Parts,
    /// How it is received.
    pub receiving: Receiving,
    /// The parts of the memory that it is received into; `None` for memory of the endpoint.
    pub target: Option<Parts>,
    /// How much memory that is.
    pub room: Room,
}

/// How a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sending {
    /// By a call that waits.
    Call,
    /// By a call with a limit in microseconds; again without one, if it ends late.
    Timed(u64),
    /// By a call that does not wait; by one that waits, if there is no room.
    Try,
    /// In the background, from memory of its own.
    Background,
    /// In the background, from memory that is lent.
    Lent,
}

/// How a message is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Receiving {
    /// By a call that waits.
    Call,
    /// By calls with a limit in microseconds.
    Timed(u64),
    /// By calls that do not wait.
    Tries,
    /// By a call, after a probe has found it.
    Probed,
    /// It is claimed first.
    Claimed,
    /// In the background, by a receive that is posted before it is sent.
    PostedBefore {
        /// It may be truncated.
        truncates: bool,
    },
    /// In the background, by a receive that is posted after it has arrived.
    PostedAfter {
        /// It may be truncated.
        truncates: bool,
    },
    /// In the background, after it was claimed.
    PostedClaimed {
        /// It may be truncated.
        truncates: bool,
    },
}

/// Cuts memory into parts, some of which are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// Their number; at least 1.
    pub count: usize,
    /// Chooses their lengths.
    pub seed: u64,
}

/// How much memory a receive has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Room {
    /// As much as the message needs.
    Exact,
    /// So many bytes more.
    More(usize),
    /// So many thousandths of it.
    Less(usize),
}

/// Both sides may send at once, or keep all messages of a round, only if no more than this is sent.
const KEPT_BYTES_MAX: usize = 1 << 20;

impl Case {
    /// The same without what is bound to wait for ever: both sides send at once, or messages are received in another
    /// order, though one side keeps less than it is sent.
    #[must_use]
    pub fn without_deadlocks(mut self) -> Self {
        let keeps = |side: &Side| !side.refuses && side.budget >= 8 * KEPT_BYTES_MAX;
        let all_keep = self.sides.iter().all(keeps);
        for round in &mut self.rounds {
            let [first, second] = round.messages.each_ref().map(|messages| total(messages));
            let is_much = first.max(second) > KEPT_BYTES_MAX;
            if !all_keep || is_much {
                round.is_reversed = false;
                if first > second {
                    round.messages[1].clear();
                } else {
                    round.messages[0].clear();
                }
            }
        }
        self
    }
}

fn total(messages: &[Message]) -> usize {
    messages.iter().map(|message| message.bytes).sum()
}

impl Parts {
    /// All in one.
    pub const ONE: Self = Self { count: 1, seed: 0 };

    /// The lengths of the parts of `bytes` bytes.
    #[must_use]
    pub fn lengths(&self, bytes: usize) -> Vec<usize> {
        let mut random = Mixer(self.seed);
        let mut cuts: Vec<usize> =
            (1..self.count.max(1)).map(|_| random.below(bytes + 1)).collect();
        // Parts that are empty.
        for index in 1..cuts.len() {
            if random.below(4) == 0 {
                cuts[index] = cuts[index - 1];
            }
        }
        cuts.sort_unstable();
        cuts.push(bytes);
        let mut from = 0;
        cuts.iter().map(|&to| to - std::mem::replace(&mut from, to)).collect()
    }
}

impl Room {
    /// The bytes of the memory for a message of `bytes` bytes.
    #[must_use]
    pub fn of(self, bytes: usize) -> usize {
        match self {
            Self::Exact => bytes,
            Self::More(more) => bytes + more,
            Self::Less(thousandths) => bytes * thousandths.min(1000) / 1000,
        }
    }
}

/// Numbers from a seed.
#[derive(Debug)]
pub(super) struct Mixer(pub(super) u64);

impl Mixer {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap_or_default()
    }
}
