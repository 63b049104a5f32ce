//! Waiting for room: the slow half of every send, on channels with one sender and with several.

use std::time::Duration;

use corewire_ring::broadcast::SenderShared;
use corewire_ring::doorbell::notice;

use crate::error::SendError;
use crate::wait::{Patience, Poller, Polls};

/// A sender that has found no room.
pub(super) trait Claimant {
    /// The part that the sender shares with its control thread.
    fn shared(&self) -> &SenderShared;
    /// Reads the cursors.
    fn refresh(&mut self);
    /// True if there was room for a message of `bytes` bytes at the last refresh.
    fn has_room(&self, bytes: usize) -> bool;
    /// Makes room without waiting, as far as the policy permits: evicts receivers, removes dead ones.
    fn make_room(&mut self, bytes: usize);
    /// There is room, so no receiver is charged for the wait any more.
    fn forget_stalls(&mut self);
    /// Why a call that does not wait cannot send; `None` if it can after all.
    fn refusal(&mut self, bytes: usize) -> Option<SendError>;
    /// The error of a call that has waited for `after` without sending.
    fn timeout_error(&self, after: Duration) -> SendError;
    /// Counts a wait, and wakes sleeping receivers, which must learn of messages sent.
    fn begin_wait(&mut self);
    /// True if the slowest receiver last ran on this processor.
    fn is_slowest_here(&self) -> bool;
    /// Sleeps until one of these: there may be room, the next receiver must be evicted, the time for invited receivers
    /// is over, or `limit_ns` has passed.
    fn sleep(&mut self, bytes: usize, limit_ns: u64);
}

/// Returns an error if another thread or a fork ends the wait.
pub(super) fn check_notices(shared: &SenderShared) -> Result<(), SendError> {
    let notices = shared.notices();
    if notices & notice::FORKED != 0 {
        return Err(SendError::Forked);
    }
    if notices & notice::INTERRUPTED != 0 {
        shared.clear(notice::INTERRUPTED);
        return Err(SendError::Interrupted);
    }
    Ok(())
}

/// Reads the cursors. If there is still no room, polls for some time, then sleeps. Returns when there may be room.
#[cold]
#[inline(never)]
pub(super) fn wait_for_room(
    claimant: &mut impl Claimant,
    poller: &mut Poller,
    bytes: usize,
    patience: Patience,
) -> Result<(), SendError> {
    check_notices(claimant.shared())?;
    claimant.refresh();
    if !claimant.has_room(bytes) {
        claimant.make_room(bytes);
    }
    if claimant.has_room(bytes) {
        claimant.forget_stalls();
        return Ok(());
    }
    let Some(limit_ns) = patience.limit_ns() else {
        return match patience {
            Patience::Until(_, after) => Err(claimant.timeout_error(after)),
            _ => claimant.refusal(bytes).map_or(Ok(()), Err),
        };
    };
    claimant.begin_wait();
    let mut polls = Polls::within(limit_ns);
    while poller.may_poll(&mut polls, || claimant.is_slowest_here()) {
        claimant.refresh();
        if claimant.has_room(bytes) {
            poller.found();
            return Ok(());
        }
    }
    if !poller.may_sleep() {
        return Ok(());
    }
    poller.sleeps();
    claimant.sleep(bytes, limit_ns);
    Ok(())
}
