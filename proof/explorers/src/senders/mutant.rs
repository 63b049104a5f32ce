//! Deliberate mistakes: each leaves one rule of the protocol out.

/// One mistake. Its documentation says which rule is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A receiver passes a claim without checking whether its owner is alive.
    SkipLiveClaim,
    /// A receiver passes a claim of a dead sender without loading the stamp again.
    SkipWithoutReread,
    /// A receiver passes a slot of a dead sender's run without loading the stamp again.
    SkipRunWithoutReread,
    /// A receiver that passes an older stamp inside a run treats it as the first of another run.
    NoteOlderStamp,
    /// A sender claims a slot whose claim of the lap before is neither published nor of a dead
    /// sender.
    ClaimOverLiveClaim,
    /// A sender claims a slot that is the published first slot of an unfinished run of the lap before.
    ClaimOverLiveRun,
    /// A sender claims a run after it checks only that the previous life of the first slot is over.
    SurveyFirstSlotAlone,
    /// A sender claims a run after it checks only that the first slot is below the limit.
    LimitFirstSlotAlone,
    /// Without receivers, a sender's limit leaves room for less than the longest run.
    LimitBelowOneRun,
    /// A sender does not load the epoch again after the cursors.
    RefreshWithoutEpoch,
    /// The host looks for a joining receiver's head before the row counts.
    HeadBeforeJoined,
    /// A new sender takes a dead sender's row while a claim of that row is in the ring.
    ReuseRowWithClaim,
    /// A new sender takes a dead sender's row while the published first slot of an unfinished run of
    /// that row is in the ring.
    ReuseRowWithRun,
    /// A death is known by the row alone, without the generation.
    DeathByRow,
    /// A party that learns of the death of an earlier holder of a row forgets that the next holder
    /// is dead.
    ForgetLaterDeath,
    /// A receiver delivers a copy without checking whether it was evicted meanwhile.
    DeliverWithoutRecheck,
    /// A sender stores its claim instead of swapping it in.
    ClaimByStore,
    /// A walk that finds a run goes on by one slot instead of the run's length.
    WalkIntoRun,
    /// A walk that was lapped does not look back for a run.
    LapIntoRun,
    /// A walk that looks back does not start again where another lap has begun meanwhile.
    LapWithoutRestart,
    /// The shared tail is stored as the slot after the first of a run.
    HintInsideRun,
    /// A receiver stores its cursor in the middle of a run.
    CursorInsideRun,
    /// A receiver scans the senders' rows only once before it ends.
    EndAfterOneScan,
    /// A receiver does not load the stamp again before it ends.
    EndWithoutLastLook,
    /// A receiver ends in the middle of a run whose owner it has just learned is dead.
    EndInsideRun,
    /// There is a new host before the old one is dead.
    TwoHosts,
    /// A receiver whose host died does not undo what the host did for it.
    JoinLeftBehind,
    /// A row gets its next generation only when it counts. A host that dies before that has told
    /// one receiver the generation that the next host tells another.
    GenerationToldTwice,
    /// A row whose receiver was evicted and died is never taken again.
    EvictedForEver,
    /// The row of an evicted receiver is taken while that receiver is alive.
    EvictedRowTaken,
    /// Senders wait for dead receivers.
    DeadReceiverCounts,
    /// A receiver that waits does not check whether it was evicted.
    WaitWithoutRecheck,
    /// Breaks nothing, since the rule is not needed: a row counts before its cursor is stored, with
    /// the cursor that the last holder left.
    JoinedWithoutCursor,
}
