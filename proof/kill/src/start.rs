//! Where an operation begins: the policy and the state of a channel.

use std::fmt::Debug;

use corewire_layout::segment::Policy;

/// Under `Evict`: how long a receiver may hold a sender back, in nanoseconds of the simulated time
/// of worlds.
pub const EVICT_AFTER_NS: u64 = 1000;

/// The state before an operation. Defined by [`states!`](crate::states).
pub trait State: Copy + PartialEq + Debug + Send + 'static {
    /// Every state.
    const ALL: &'static [Self];

    /// Its name.
    fn name(self) -> &'static str;
    /// Whether the state exists under this policy.
    fn is_under(self, policy: Policy) -> bool;
}

/// A policy and a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start<S> {
    /// The policy for slow receivers.
    pub policy: Policy,
    /// The state of the channel.
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

    /// Whether the channel evicts.
    #[must_use]
    pub fn is_evicting(self) -> bool {
        is_evicting(self.policy)
    }

    /// The names of the policy and the state, one word each.
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

/// Whether the policy evicts.
#[must_use]
pub fn is_evicting(policy: Policy) -> bool {
    matches!(policy, Policy::Evict { .. })
}

/// Defines the enumeration of a channel's [`State`]s. Each entry has a doc comment, a name, a word
/// and, if the state does not exist under every policy, a condition.
#[macro_export]
macro_rules! states {
    ($($(#[$doc:meta])+ $name:ident = $word:literal $(if $is_under:expr)?;)+) => {
        /// The state before an operation.
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
