//! Where an operation begins: in a channel of some policy, in some state.

use std::fmt::Debug;

use corewire_layout::segment::Policy;

/// Under `Evict`: how long a receiver may hold a sender back, in the time that worlds tell.
pub const EVICT_AFTER_NS: u64 = 1000;

/// What has gone before an operation. Made by [`states!`](crate::states).
pub trait State: Copy + PartialEq + Debug + Send + 'static {
    /// Every state.
    const ALL: &'static [Self];

    /// Its name.
    fn name(self) -> &'static str;
    /// Is there such a state under this policy?
    fn is_under(self, policy: Policy) -> bool;
}

/// A policy and a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start<S> {
    /// What becomes of slow receivers.
    pub policy: Policy,
    /// What has gone before.
    pub state: S,
}

impl<S: State> Start<S> {
    /// Every state under each of these policies.
    #[must_use]
    pub fn all(policies: &[Policy]) -> Vec<Self> {
        let states = |&policy| S::ALL.iter().map(move |&state| Self { policy, state });
        policies
            .iter()
            .flat_map(states)
            .filter(|start| start.state.is_under(start.policy))
            .collect()
    }

    /// Does the channel evict?
    #[must_use]
    pub fn is_evicting(self) -> bool {
        is_evicting(self.policy)
    }

    /// Policy and state, in a word each.
    #[must_use]
    pub fn names(self) -> (&'static str, &'static str) {
        let policy = match self.policy {
            Policy::Block => "block",
            Policy::Overwrite => "overwrite",
            Policy::Evict { .. } => "evict",
        };
        (policy, self.state.name())
    }
}

/// Does the policy evict?
#[must_use]
pub fn is_evicting(policy: Policy) -> bool {
    matches!(policy, Policy::Evict { .. })
}

/// Makes the enumeration of a channel's [`State`]s: what has gone before, its name, its word, and, if
/// it is not of every policy, of which.
#[macro_export]
macro_rules! states {
    ($($(#[$doc:meta])+ $name:ident = $word:literal $(if $is_under:expr)?;)+) => {
        /// What has gone before an operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum State {
            $($(#[$doc])+ $name,)+
        }

        impl $crate::start::State for State {
            const ALL: &'static [Self] = &[$(Self::$name),+];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }

            fn is_under(self, policy: corewire_layout::segment::Policy) -> bool {
                let _ = policy;
                match self {
                    $(Self::$name => true $(&& $is_under(policy))?,)+
                }
            }
        }
    };
}
