//! The contents of memory: the ring and the two tables, which are shared, and each party's private
//! memory.

use crate::senders::walk::Walk;

/// The maximum number of slots of a ring.
pub(crate) const SLOTS_MAX: usize = 6;
/// The maximum number of senders, of receivers, and of rows of each.
pub(crate) const PARTIES_MAX: usize = 3;

/// The contents of a slot's stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    pub(crate) sequence: u8,
    /// Claimed and not published.
    pub(crate) claimed: bool,
    /// Number of slots of the claim that begins here; 1 if none begins here.
    pub(crate) run: u8,
    /// The row of the sender that claimed the slot.
    pub(crate) row: u8,
}

impl Stamp {
    /// Real sequences start at the number of slots, so this stamp is older than all of them.
    pub(crate) const NEVER: Self = Self { sequence: 0, claimed: false, run: 1, row: 0 };
}

/// A slot. Its payload has two words, so that a torn payload shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) stamp: Stamp,
    pub(crate) words: [u8; 2],
}

/// A row of the senders' table. The holder also stands for the generation: no holder has two
/// generations of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SenderRow {
    pub(crate) holder: Option<u8>,
    pub(crate) generation: u8,
}

/// The state word of a row of the receivers' table, beside its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Seat {
    Free,
    /// Counts: its cursor holds senders back.
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

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    /// Not started.
    Waiting,
    Live,
    Dead,
    /// Left in order, ended, was evicted, or was never admitted.
    Gone,
}

/// The position of a sender in its program. Sequences are called `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SenderAt {
    /// Looks for a host that admits it.
    Enter,
    /// Its host is about to take that row for it.
    Let { host: u8, row: u8 },
    /// About to load the stamp at its guess.
    Look,
    /// Has found its guess claimed, and is about to load the shared tail.
    Tail,
    /// Looks for the first slot that no sender has claimed.
    Walk(Walk),
    /// About to load the stamp of a later slot of the run that it wants to claim.
    Survey { at: u8, expected: Stamp },
    /// About to load the last stamp of an earlier run.
    Finish { at: u8, expected: Stamp, head: Stamp },
    /// About to load the row that an unfinished claim names.
    Judge { at: u8, expected: Stamp, row: u8 },
    /// About to compare and swap the first stamp.
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
    /// Held back: a receiver is too far behind.
    Held,
    /// Has sent everything.
    Leave,
}

/// A sender's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sender {
    pub(crate) life: Life,
    pub(crate) row: u8,
    /// Number of entries of its plan that are done.
    pub(crate) sends: u8,
    /// Its guess: a claim begins there or will begin there, and all slots below have been claimed.
    pub(crate) next: u8,
    /// It may claim slots below this sequence.
    pub(crate) limit: u8,
    pub(crate) known: Known,
    pub(crate) at: SenderAt,
}

/// The deaths that a party has been told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Known {
    /// One bit for each party: senders from bit 0, receivers from bit 4.
    pub(crate) bits: u8,
    /// For each sender's row, the last holder reported dead, counted from 1. Only one mutant uses
    /// it.
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

/// The host's progress with a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// Looks for a row, and tells the receiver about it.
    Choose,
    /// Looks for a head, to use as the first cursor.
    First(Walk),
    /// About to store the first cursor.
    Place { at: u8 },
    /// About to make the row count.
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

/// The position of a receiver in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ReceiverAt {
    /// Looks for the host.
    Absent,
    /// Waits for its host, which takes these steps.
    Join {
        host: u8,
        stage: Stage,
    },
    /// About to load the stamp at its position.
    Look,
    /// Has found nothing there. It may look again, or check whether the channel has ended.
    Idle,
    /// Has copied the first word.
    Copy {
        word: u8,
    },
    /// Has copied both words, and is about to check whether the copy is valid.
    Confirm {
        words: [u8; 2],
    },
    /// Has found `stamp`, and is about to load the row of the sender that claimed that slot.
    Judge {
        stamp: Stamp,
        owner: u8,
    },
    /// Knows that the owner is dead, and is about to load the stamp again.
    Reread {
        stamp: Stamp,
    },
    /// Looks for a sender that may be alive: scans the rows twice, and both scans must agree.
    Scan {
        again: bool,
        row: u8,
        generations: [u8; PARTIES_MAX],
        quiet: bool,
    },
    /// Found no sender, and is about to load the stamp for the last time.
    LastLook {
        quiet: bool,
    },
    /// Has found a later sequence than its position.
    Lapped,
    Leave,
}

/// A run that a receiver is in: its first slot, the slot after its last, and its owner's row.
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
    /// The cursor that it has stored, if cursors are stored late.
    pub(crate) stored: u8,
    /// The run that it is in; cleared when the receiver has passed it.
    pub(crate) run: Option<Run>,
    pub(crate) at: ReceiverAt,
}

/// The whole state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) slots: [Slot; SLOTS_MAX],
    /// The shared tail.
    pub(crate) tail: u8,
    /// Where the next claim begins. No party reads it; only the checks of rules do.
    pub(crate) head: u8,
    /// The sender that has the channel's name.
    pub(crate) host: u8,
    pub(crate) sender_rows: [SenderRow; PARTIES_MAX],
    pub(crate) receiver_rows: [ReceiverRow; PARTIES_MAX],
    pub(crate) epoch: u8,
    pub(crate) senders: [Sender; PARTIES_MAX],
    pub(crate) receivers: [Receiver; PARTIES_MAX],
    pub(crate) kills_count: u8,
}

/// The bit for a dead sender in `Known::bits`.
pub(crate) fn sender_bit(index: u8) -> u8 {
    1 << index
}

/// The bit for a dead receiver in `Known::bits`.
pub(crate) fn receiver_bit(index: u8) -> u8 {
    1 << (4 + index)
}

impl Sender {
    /// Whether it is alive and holds a row.
    pub(crate) fn is_present(&self) -> bool {
        let is_entering = matches!(self.at, SenderAt::Enter | SenderAt::Let { .. });
        self.life == Life::Live && !is_entering
    }
}
