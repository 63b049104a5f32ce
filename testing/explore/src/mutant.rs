//! Deliberate mistakes: each leaves one rule of the protocol out.

/// One mistake. Its documentation says which rule is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A receiver passes a claim without asking whether its owner lives.
    SkipLiveClaim,
    /// A receiver passes a claim of a dead sender without loading the stamp again.
    SkipWithoutReread,
    /// A receiver passes a slot of a dead sender's run without loading the stamp again.
    SkipRunWithoutReread,
    /// A receiver that passes an older stamp in a run takes it for the first of another.
    NoteOlderStamp,
    /// A sender claims where a claim of the lap before is neither published nor of a dead sender.
    ClaimOverLiveClaim,
    /// The same, where the slot is the published first of a run of the lap before.
    ClaimOverLiveRun,
    /// A run is claimed when the life of its first slot alone is over.
    SurveyFirstSlotAlone,
    /// A run is claimed when its first slot alone is below the limit.
    LimitFirstSlotAlone,
    /// Without receivers a sender may claim less than the longest run.
    LimitBelowOneRun,
    /// A sender does not load the epoch again after the cursors.
    RefreshWithoutEpoch,
    /// A joiner looks for the head before its row counts.
    HeadBeforeJoined,
    /// A new sender takes a dead sender's row while a claim of it is in the ring.
    ReuseRowWithClaim,
    /// The same, where it is not a claim but the published first of an unfinished run.
    ReuseRowWithRun,
    /// A death is known by the row alone.
    DeathByRow,
    /// Who is told of the death of one that had left its row forgets that the next holder is dead.
    ForgetLaterDeath,
    /// A receiver delivers a copy without looking whether it was evicted meanwhile.
    DeliverWithoutRecheck,
    /// A sender stores its claim instead of swapping it in.
    ClaimByStore,
    /// Whoever finds a run goes on by one slot.
    WalkIntoRun,
    /// Whoever was lapped does not look back for a run.
    LapIntoRun,
    /// Whoever looks back does not begin again where another lap has begun meanwhile.
    LapWithoutRestart,
    /// The shared tail is the slot after the first of a run.
    HintInsideRun,
    /// A receiver stores its cursor in the middle of a run.
    CursorInsideRun,
    /// A receiver looks once through the senders' rows before it ends.
    EndAfterOneScan,
    /// A receiver does not load the stamp again before it ends.
    EndWithoutLastLook,
    /// A receiver ends in the middle of a run whose owner it has just learned to be dead.
    EndInsideRun,
    /// There is a new host before the old one is dead.
    TwoHosts,
    /// A receiver whose host died leaves what the host did for it.
    JoinLeftBehind,
    /// A row has its next generation only when it counts: a host that dies before that has told a
    /// receiver the one that the next host tells another.
    GenerationToldTwice,
    /// Nobody takes the row of a receiver that was evicted and died.
    EvictedForEver,
    /// The row of a receiver that was evicted is taken while that one lives.
    EvictedRowTaken,
    /// Senders wait for receivers that are dead.
    DeadReceiverCounts,
    /// A receiver that waits does not look whether it was evicted.
    WaitWithoutRecheck,
    /// Not needed: a row counts before it has a cursor of its own, with the one left there.
    JoinedWithoutCursor,
}
