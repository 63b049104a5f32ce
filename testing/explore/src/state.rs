//! What memory holds: the ring and the two tables, which are shared, and each party's own.

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
    /// The rest of the block belongs to this claim.
    pub(crate) run: bool,
    /// Settled for a dead sender: over, and no message.
    pub(crate) void: bool,
    /// The row of the sender that claimed it.
    pub(crate) row: u8,
}

impl Stamp {
    /// Sequences begin with the number of slots, so that this is older than all of them.
    pub(crate) const NEVER: Self =
        Self { sequence: 0, claimed: false, run: false, void: false, row: 0 };
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

/// The state word of a row of the receivers' table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Seat {
    Free,
    /// A sender's process prepares it for a receiver. Does not count.
    Reserved {
        host: u8,
        receiver: u8,
    },
    /// Holds senders back.
    Active(u8),
    Evicted(u8),
}

/// A row of the receivers' table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ReceiverRow {
    pub(crate) seat: Seat,
    pub(crate) cursor: u8,
}

/// What has become of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    /// Not started.
    Waiting,
    Live,
    Dead,
    /// Left in order, ended, or evicted.
    Gone,
}

/// Where a sender is. Sequences are named `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SenderAt {
    /// Looks for a row.
    Enter,
    /// Looks for what the dead holder of a row has left in the ring.
    Sweep { row: u8, holder: u8, slot: u8 },
    /// Has found a claim there, and is about to load the row again.
    Doubt { row: u8, holder: u8, slot: u8, stamp: Stamp },
    /// About to swap that claim for a void.
    Settle { row: u8, holder: u8, slot: u8, stamp: Stamp },
    /// About to void what is not published of a run.
    Fill { row: u8, holder: u8, slot: u8, at: u8 },
    /// About to load the stamp at its guess.
    Look,
    /// About to load the stamp of a later slot of the run that it wants.
    Survey { at: u8, expected: Stamp },
    /// About to load the last stamp of an earlier run.
    Finish { at: u8, expected: Stamp, head: Stamp },
    /// About to load the row that an unfinished claim names.
    Judge { at: u8, expected: Stamp, row: u8 },
    /// About to compare and swap.
    Swap { expected: Stamp },
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
    /// Has changed a receiver's row, and is about to say so.
    Announce,
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
    /// Its guess: everything below has been claimed.
    pub(crate) next: u8,
    /// It may claim below this.
    pub(crate) limit: u8,
    /// The dead that it knows: senders from bit 0, receivers from bit 4.
    pub(crate) known: u8,
    pub(crate) at: SenderAt,
}

/// How far a host has come with a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// Looks for a row.
    Reserve,
    /// About to store the first cursor.
    Place,
    Activate,
    Announce,
    /// Looks for the head.
    Walk,
    /// About to store the cursor.
    Settle,
    /// About to tell the receiver.
    Welcome,
}

/// Where a receiver is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ReceiverAt {
    /// Looks for a host.
    Absent,
    /// Waits for its host, whose steps these are.
    Join {
        host: u8,
        stage: Stage,
        position: u8,
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
    /// About to load the row that a claim names.
    Judge {
        row: u8,
    },
    /// Knows that its owner is dead: about to load the stamp again.
    Reread,
    /// Looks for the head of a run.
    Back {
        at: u8,
    },
    /// About to load the row that an unfinished run names.
    JudgeRun {
        row: u8,
    },
    /// Knows that its owner is dead: about to load the stamp again.
    RereadOld,
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
    /// Has freed its row, and is about to say so.
    Announce,
}

/// A receiver's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Receiver {
    pub(crate) life: Life,
    pub(crate) row: u8,
    /// The dead senders that it knows.
    pub(crate) known: u8,
    pub(crate) start: u8,
    pub(crate) next: u8,
    /// Where the run that it is in ends; zero outside.
    pub(crate) run_end: u8,
    pub(crate) at: ReceiverAt,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) slots: [Slot; SLOTS_MAX],
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
        let is_entering = matches!(
            self.at,
            SenderAt::Enter
                | SenderAt::Sweep { .. }
                | SenderAt::Doubt { .. }
                | SenderAt::Settle { .. }
                | SenderAt::Fill { .. }
        );
        self.life == Life::Live && !is_entering
    }
}
