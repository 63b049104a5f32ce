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
    /// A sender claims where a claim of the lap before is neither published nor of a dead sender.
    ClaimOverLiveClaim,
    /// The same, where the slot lies in a run of the lap before.
    ClaimOverLiveRun,
    /// A run is claimed when the life of its first slot alone is over.
    SurveyFirstSlotAlone,
    /// A run is claimed when its first slot alone is below the limit.
    LimitFirstSlotAlone,
    /// A sender does not load the epoch again after the cursors.
    RefreshWithoutEpoch,
    /// A joiner looks for the head before its row counts.
    HeadBeforeActive,
    /// A new sender takes a dead sender's row while a claim of it is in the ring.
    ReuseRowWithClaim,
    /// The same, where it is not a claim but the published head of an unfinished run.
    ReuseRowWithRun,
    /// A new sender leaves a dead one's claims to those who lap them, and looks for another row.
    ClaimsOfDeadStay,
    /// A new sender settles a claim without loading the row after it.
    SettleWithoutRow,
    /// A death is known by the row alone.
    DeathByRow,
    /// A receiver delivers a copy without looking whether it was evicted meanwhile.
    DeliverWithoutRecheck,
    /// A sender stores its claim instead of swapping it in.
    ClaimByStore,
    /// Whoever was lapped goes on in the middle of the block.
    LapIntoBlock,
    /// A receiver stores its cursor in the middle of a run.
    CursorInsideRun,
    /// A receiver looks once through the senders' rows before it ends.
    EndAfterOneScan,
    /// A receiver does not load the stamp again before it ends.
    EndWithoutLastLook,
    /// A receiver ends in the middle of a run whose owner it has just learned to be dead.
    EndInsideRun,
    /// A receiver whose host died leaves what the host did for it.
    JoinLeftBehind,
    /// Nobody frees a row that a dead host has reserved.
    ReservedForEver,
    /// Nobody frees the row of a receiver that was evicted and died.
    EvictedForEver,
    /// Senders wait for receivers that are dead.
    DeadReceiverCounts,
    /// A receiver that waits does not look whether it was evicted.
    WaitWithoutRecheck,
    /// Not needed: a change that frees or evicts is not counted by the epoch.
    EpochOfJoinsAlone,
    /// Not needed: a row counts before it has a cursor of its own, with the one left there.
    ActiveWithoutCursor,
}
