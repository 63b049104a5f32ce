//! The limits of a node.

use super::policy::Policy;
use crate::wire::NodeId;

/// The limits of a node.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its number.
    pub id: NodeId,
    /// Circuits at one time.
    pub circuits_max: usize,
    /// Circuits at one time of one user other than the monitor's.
    pub circuits_of_user_max: usize,
    /// Bytes of such a user's requests that have not been answered.
    pub offer_bytes_of_user_max: usize,
    /// Lines of memory for frames that wait.
    pub lines_max: usize,
    /// Who may do what.
    pub policy: Policy,
    /// The time at which the node starts, or any other number that is greater each time: who has heard of an earlier
    /// start forgets what was said before.
    pub epoch: u64,
    /// A mistake on purpose.
    #[cfg(feature = "test-hooks")]
    pub mistake: Option<Mistake>,
}

impl Config {
    /// A million circuits, and 64 MiB of memory besides their reserves.
    #[must_use]
    pub fn new(id: NodeId, policy: Policy, epoch: u64) -> Self {
        Self {
            id,
            circuits_max: 1 << 20,
            circuits_of_user_max: 4096,
            offer_bytes_of_user_max: 4 << 20,
            lines_max: 5 << 20,
            policy,
            epoch,
            #[cfg(feature = "test-hooks")]
            mistake: None,
        }
    }
}

/// A mistake on purpose, which tests must find.
#[cfg(feature = "test-hooks")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A circuit that is forgotten is not reported to the other side.
    ForgetsAlone,
    /// Frames that overtake the acceptance are dropped.
    DropsEarly,
    /// A circuit is removed at the first `Fin`.
    RemovesAtFirstFin,
    /// Credit is added to what was granted before.
    CreditIsDelta,
    /// Nothing is reserved: all memory is lent.
    NoReserve,
    /// Labels have no guard.
    NoGuard,
    /// An end that has died takes what it had sent with it.
    ResetOvertakes,
    /// A dummy that found no room is not sent again.
    DummyLost,
    /// Circuits are set up on links whose end was offered.
    UsesOffered,
    /// Links end though circuits are on them.
    EndsUsed,
}
