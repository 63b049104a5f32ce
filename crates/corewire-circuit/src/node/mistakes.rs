//! Where the node would go wrong on purpose, so that tests can show that they find it. Without the feature `test-hooks`
//! each of these is a constant.

use crate::wire::Label;
use crate::wire::credit::{Intake, Outflow};

use super::config::Config;
use super::machine::Node;

macro_rules! mistakes {
    ($($(#[doc = $doc:literal])* $name:ident => $mistake:ident;)*) => {
        impl Node {
            $(
                $(#[doc = $doc])*
                #[inline(always)]
                pub(crate) fn $name(&self) -> bool {
                    #[cfg(feature = "test-hooks")]
                    return self.config.mistake == Some(super::config::Mistake::$mistake);
                    #[cfg(not(feature = "test-hooks"))]
                    false
                }
            )*
        }
    };
}

mistakes! {
    forgets_alone => ForgetsAlone;
    drops_early => DropsEarly;
    removes_at_first_fin => RemovesAtFirstFin;
    reserves_nothing => NoReserve;
    reset_overtakes => ResetOvertakes;
    loses_dummies => DummyLost;
    uses_offered_links => UsesOffered;
    ends_used_links => EndsUsed;
}

/// Whether a frame has the label that its sender was given. None was given before the circuit is open.
#[inline(always)]
pub(crate) fn is_same(due: Label, found: Label, config: &Config) -> bool {
    #[cfg(feature = "test-hooks")]
    if config.mistake == Some(super::config::Mistake::NoGuard) {
        return due.index() == found.index();
    }
    let _ = config;
    due == found && !found.is_none()
}

/// The neighbour has granted more.
#[inline(always)]
pub(crate) fn raise(outflow: &mut Outflow, credit: u32, config: &Config) {
    #[cfg(feature = "test-hooks")]
    if config.mistake == Some(super::config::Mistake::CreditIsDelta) {
        let limit = outflow.sent_lines().wrapping_add(outflow.room_lines());
        return outflow.raise(limit.wrapping_add(credit));
    }
    let _ = config;
    outflow.raise(credit);
}

/// What a frame to the neighbour says.
#[inline(always)]
pub(crate) fn offer(intake: &mut Intake, config: &Config) -> u32 {
    let credit = intake.offer();
    #[cfg(feature = "test-hooks")]
    if config.mistake == Some(super::config::Mistake::CreditIsDelta) {
        // Granted now, whether or not the frame that says so finds room.
        let more = credit.wrapping_sub(intake.latest());
        intake.granted(credit);
        return more;
    }
    let _ = config;
    credit
}
