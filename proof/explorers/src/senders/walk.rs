//! The walk to the first slot that no sender has claimed. Senders and hosts use it.

use crate::senders::mutant::Mutant;
use crate::senders::protocol::Protocol;
use crate::senders::state::{Stamp, State};

/// The position in a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Walk {
    /// About to load the stamp at `at`, where a claim begins or will begin.
    Pace { at: u8 },
    /// Was lapped, and is about to load the stamp at `at`, which a sender has claimed.
    Land { at: u8 },
    /// `at` has a stamp with this `run`. About to check whether a run that begins `back` slots
    /// earlier covers it.
    Back { at: u8, run: u8, back: u8 },
}

impl Protocol {
    /// Takes one step. If no sender has claimed the slot that was read, returns its sequence and
    /// its stamp as the error.
    pub(crate) fn walk(&self, state: &State, walk: Walk) -> Result<Walk, (u8, Stamp)> {
        match walk {
            Walk::Pace { at } => {
                let stamp = self.stamp(state, at);
                if stamp.sequence < at {
                    return Err((at, stamp));
                }
                let by = if self.has(Mutant::WalkIntoRun) { 1 } else { stamp.run };
                Ok(if stamp.sequence == at {
                    Walk::Pace { at: at + by }
                } else {
                    Walk::Land { at: stamp.sequence }
                })
            }
            Walk::Land { at } => {
                let stamp = self.stamp(state, at);
                let is_alone = self.configuration.run_max == 1 || self.has(Mutant::LapIntoRun);
                Ok(if stamp.sequence > at {
                    Walk::Land { at: stamp.sequence }
                } else if is_alone {
                    Walk::Pace { at: at + stamp.run }
                } else {
                    Walk::Back { at, run: stamp.run, back: 1 }
                })
            }
            Walk::Back { at, run, back } => {
                let before = at - back;
                let stamp = self.stamp(state, before);
                Ok(if stamp.sequence == before && stamp.run > back {
                    Walk::Pace { at: before + stamp.run }
                } else if stamp.sequence > before && !self.has(Mutant::LapWithoutRestart) {
                    Walk::Land { at: stamp.sequence }
                } else if back + 1 == self.configuration.run_max {
                    Walk::Pace { at: at + run }
                } else {
                    Walk::Back { at, run, back: back + 1 }
                })
            }
        }
    }
}
