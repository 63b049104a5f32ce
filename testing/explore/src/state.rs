//! What memory holds: the ring and the two tables, which are shared, and each party's own.

use crate::walk::Walk;

/// The most slots of a ring.
pub(crate) const SLOTS_MAX: usize = 6;
/// The most senders, rows of senders, receivers, or rows of receivers.
pub(crate) const PARTIES_MAX: usize = 3;

/// What the word of a slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    pub(crate) sequence: u8,
    /// Claimed and not published.
    pub(crate) claimed: bool,
    /// How many slots belong to the claim that begins here; one if none begins here.
    pub(crate) run: u8,
    /// The row of the sender that claimed it.
    pub(crate) row: u8,
}

impl Stamp {
    /// Sequences begin with the number of slots, so that this is older than all of them.
    pub(crate) const NEVER: Self = Self { sequence: 0, claimed: false, run: 1, row: 0 };
}

/// A slot. Its payload is two words, so that a torn one shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) stamp: Stamp,
    pub(crate) words: [u8; 2],
}

/// A row of the senders' table. The holder stands for the generation too: no two generations of a
/// row have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SenderRow {
    pub(crate) holder: Option<u8>,
    pub(crate) generation: u8,
}

/// The state word of a row of the receivers' table, beside its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Seat {
    Free,
    /// Holds senders back.
    Joined(u8),
    Evicted(u8),
}

/// A row of the receivers' table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ReceiverRow {
    pub(crate) seat: Seat,
    pub(crate) generation: u8,
    pub(crate) cursor: u8,
}

/// What has become of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    /// Not started.
    Waiting,
    Live,
    Dead,
    /// Left in order, ended, evicted, or never let in.
    Gone,
}

/// Where a sender is. Sequences are named `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SenderAt {
    /// Looks for a host that lets it in.
    Enter,
    /// Its host is about to take that row for it.
    Let { host: u8, row: u8 },
    /// About to load the stamp at its guess.
    Look,
    /// Has found its guess claimed, and is about to load the shared tail.
    Tail,
    /// Looks for the first slot that nobody has claimed.
    Walk(Walk),
    /// About to load the stamp of a later slot of the run that it wants.
    Survey { at: u8, expected: Stamp },
    /// About to load the last stamp of an earlier run.
    Finish { at: u8, expected: Stamp, head: Stamp },
    /// About to load the row that an unfinished claim names.
    Judge { at: u8, expected: Stamp, row: u8 },
    /// About to compare and swap.
    Swap { expected: Stamp },
    /// Has claimed, and is about to store the shared tail.
    Hint,
    /// About to write the first word.
    Write { at: u8 },
    /// About to write the second word and the stamp.
    Publish { at: u8 },
    /// About to load the members' epoch.
    Refresh,
    /// About to load the state of a receiver's row.
    Seats { epoch: u8, row: u8, least: u8 },
    /// About to load the cursor of that row.
    Cursor { epoch: u8, row: u8, least: u8 },
    /// About to load the epoch again.
    Recheck { epoch: u8, least: u8 },
    /// Some receiver is too far behind.
    Held,
    /// Has sent all.
    Leave,
}

/// A sender's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sender {
    pub(crate) life: Life,
    pub(crate) row: u8,
    /// How much of its plan is done.
    pub(crate) sends: u8,
    /// Its guess: a claim begins there or will, and everything below has been claimed.
    pub(crate) next: u8,
    /// It may claim below this.
    pub(crate) limit: u8,
    pub(crate) known: Known,
    pub(crate) at: SenderAt,
}

/// The deaths that somebody has been told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Known {
    /// Senders from bit 0, receivers from bit 4.
    pub(crate) bits: u8,
    /// By sender's row, the last one told of, from 1; used by one mutant alone.
    pub(crate) last: [u8; PARTIES_MAX],
}

impl Known {
    pub(crate) const NONE: Self = Self { bits: 0, last: [0; PARTIES_MAX] };

    pub(crate) fn has_sender(self, index: u8) -> bool {
        self.bits & sender_bit(index) != 0
    }

    pub(crate) fn has_receiver(self, index: u8) -> bool {
        self.bits & receiver_bit(index) != 0
    }
}

/// How far a host has come with a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// Looks for a row, and tells the receiver.
    Choose,
    /// Looks for a head, for the first cursor.
    First(Walk),
    /// About to store it.
    Place { at: u8 },
    /// About to let the row count.
    Take,
    /// About to raise the epoch.
    Announce,
    /// Looks for the head.
    Head(Walk),
    /// About to store the cursor.
    Settle { at: u8 },
    /// About to tell the receiver where it starts.
    Welcome { at: u8 },
}

/// Where a receiver is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ReceiverAt {
    /// Looks for the host.
    Absent,
    /// Waits for its host, whose steps these are.
    Join {
        host: u8,
        stage: Stage,
    },
    /// About to load the stamp at its position.
    Look,
    /// Has found nothing there, and may look again or ask whether that is the end.
    Idle,
    /// Has copied the first word.
    Copy {
        word: u8,
    },
    /// Has copied both, and is about to ask whether that counts.
    Confirm {
        words: [u8; 2],
    },
    /// Has found `stamp`, and is about to load the row of whoever has claimed that slot.
    Judge {
        stamp: Stamp,
        owner: u8,
    },
    /// Knows that its owner is dead: about to load the stamp again.
    Reread {
        stamp: Stamp,
    },
    /// Looks for a sender that may live: the rows twice, so that they agree.
    Scan {
        again: bool,
        row: u8,
        generations: [u8; PARTIES_MAX],
        quiet: bool,
    },
    /// There was none: about to load the stamp for the last time.
    LastLook {
        quiet: bool,
    },
    /// Has found a later sequence.
    Lapped,
    Leave,
}

/// A run that a receiver is in: its first slot, the one after its last, and its owner's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) first: u8,
    pub(crate) end: u8,
    pub(crate) owner: u8,
}

/// A receiver's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Receiver {
    pub(crate) life: Life,
    pub(crate) row: u8,
    pub(crate) generation: u8,
    pub(crate) known: Known,
    pub(crate) start: u8,
    pub(crate) next: u8,
    /// The cursor that it has stored, if it puts that off.
    pub(crate) stored: u8,
    /// Forgotten when it is passed.
    pub(crate) run: Option<Run>,
    pub(crate) at: ReceiverAt,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) slots: [Slot; SLOTS_MAX],
    /// The shared tail.
    pub(crate) tail: u8,
    /// Where the next claim begins. Nobody knows it; rules are judged by it.
    pub(crate) head: u8,
    /// Who has the channel's name.
    pub(crate) host: u8,
    pub(crate) sender_rows: [SenderRow; PARTIES_MAX],
    pub(crate) receiver_rows: [ReceiverRow; PARTIES_MAX],
    pub(crate) epoch: u8,
    pub(crate) senders: [Sender; PARTIES_MAX],
    pub(crate) receivers: [Receiver; PARTIES_MAX],
    pub(crate) kills_count: u8,
}

/// The bit of a sender among the dead that somebody knows.
pub(crate) fn sender_bit(index: u8) -> u8 {
    1 << index
}

/// The bit of a receiver there.
pub(crate) fn receiver_bit(index: u8) -> u8 {
    1 << (4 + index)
}

impl Sender {
    /// Does it live and hold a row?
    pub(crate) fn is_present(&self) -> bool {
        let is_entering = matches!(self.at, SenderAt::Enter | SenderAt::Let { .. });
        self.life == Life::Live && !is_entering
    }
}
