//! Which view is next: an ordinary Paxos among the members of the present one (PaxosUtility in ZIMP, reference 17).
//!
//! ```text
//!  proposer                             members of the present view
//!     ├─ Prepare(ballot) ─────────────────▶ promises to take no lower ballot
//!     │◀──── Promise(what it has accepted) ─┤
//!     │  of a majority: the view that was accepted with the highest ballot; if there is none, one
//!     │  whose leader and whose new acceptor have promised
//!     ├─ Accept(ballot, view) ────────────▶ accepts, unless it has promised a higher ballot
//!     │◀──────────────────────── Accepted ──┤
//!     │  of a majority: the view is decided
//!     ├─ Decided(view) ───────────────────▶ everybody
//! ```
//!
//! A proposer that meets a higher ballot leaves it to the other one, and proposes again if that one dies, or if nothing
//! has come of it for a while: the other one may be stopped.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::member::{Member, View};

/// Orders proposals. Those of one member differ in their rounds.
#[derive(
    Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default,
)]
pub struct Ballot {
    /// Counts from 1; 0 is no ballot.
    pub round: u32,
    /// The place of the proposer.
    pub place: u8,
}

/// What members say about the view that follows the present one.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    /// Promise to take no lower ballot.
    Prepare(Ballot),
    /// Promised; this was accepted before.
    Promise(Ballot, Option<(Ballot, View)>),
    /// Accept this view.
    Accept(Ballot, View),
    /// Accepted.
    Accepted(Ballot),
    /// Not done: this higher ballot was promised.
    Higher(Ballot),
}

/// What a member has promised and accepted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Vote {
    pub(crate) promised: Ballot,
    pub(crate) accepted: Option<(Ballot, View)>,
}

impl Vote {
    /// Answers a proposer.
    pub(crate) fn answer(&mut self, word: &Word) -> Option<Word> {
        match word {
            Word::Prepare(ballot) if *ballot >= self.promised => {
                self.promised = *ballot;
                Some(Word::Promise(*ballot, self.accepted.clone()))
            }
            Word::Accept(ballot, view) if *ballot >= self.promised => {
                self.promised = *ballot;
                self.accepted = Some((*ballot, view.clone()));
                Some(Word::Accepted(*ballot))
            }
            Word::Prepare(_) | Word::Accept(..) => Some(Word::Higher(self.promised)),
            _ => None,
        }
    }
}

/// A member's own proposal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Proposal {
    pub(crate) ballot: Ballot,
    promises: BTreeMap<Member, Option<(Ballot, View)>>,
    /// What it asks others to accept.
    chosen: Option<View>,
    accepted_by: BTreeSet<Member>,
}

/// What a proposer does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// A majority has promised: it chooses a view, now or when more have promised.
    Choose,
    Decided(View),
    /// Somebody else has a higher ballot.
    GiveUp(Ballot),
}

impl Proposal {
    pub(crate) fn new(ballot: Ballot) -> Self {
        let (promises, accepted_by) = (BTreeMap::new(), BTreeSet::new());
        Self { ballot, promises, chosen: None, accepted_by }
    }

    /// A member has answered.
    pub(crate) fn on_message(&mut self, from: Member, word: Word, quorum: usize) -> Step {
        match word {
            Word::Promise(ballot, accepted) if ballot == self.ballot && self.chosen.is_none() => {
                self.promises.insert(from, accepted);
                if self.may_choose(quorum) { Step::Choose } else { Step::Nothing }
            }
            Word::Accepted(ballot) if ballot == self.ballot => {
                self.accepted_by.insert(from);
                match &self.chosen {
                    Some(view) if self.accepted_by.len() >= quorum => Step::Decided(view.clone()),
                    _ => Step::Nothing,
                }
            }
            Word::Higher(ballot) if ballot > self.ballot => Step::GiveUp(ballot),
            _ => Step::Nothing,
        }
    }

    /// Whether a majority has promised, and nothing is chosen.
    pub(crate) fn may_choose(&self, quorum: usize) -> bool {
        self.chosen.is_none() && self.promises.len() >= quorum
    }

    /// Who has promised.
    pub(crate) fn promised_by(&self) -> BTreeSet<Member> {
        self.promises.keys().copied().collect()
    }

    /// The view that it must choose, because a member has accepted it before: it may be decided.
    pub(crate) fn accepted_before(&self, rules: Rules) -> Option<View> {
        let accepted = self.promises.values().flatten().max_by_key(|(ballot, _)| *ballot);
        accepted.filter(|_| !rules.ignores_what_was_accepted()).map(|(_, view)| view.clone())
    }

    /// Asks all to accept this view.
    pub(crate) fn choose(&mut self, view: View) -> Word {
        self.chosen = Some(view.clone());
        Word::Accept(self.ballot, view)
    }
}

/// Which rule is broken on purpose, so that the model checker can show that it finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rules {
    #[cfg(feature = "test-hooks")]
    pub(crate) broken: Option<Broken>,
}

/// A rule that can be broken.
#[cfg(feature = "test-hooks")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A proposer of a view takes what others have accepted.
    AdoptsWhatWasAccepted,
    /// A majority decides a view.
    NeedsMajority,
    /// An acceptor that leaves has decided everything that it was asked for before another one begins.
    RestsBeforeItLeaves,
    /// A new acceptor begins behind the entries of the old one.
    BeginsAfterTheLast,
    /// A leader begins where the acceptor says.
    LeaderLearnsFirst,
    /// An entry that was asked for twice is decided once.
    DecidesOnce,
    /// A member that has missed entries replaces no acceptor.
    KnowsTheEndOfTheAcceptor,
    /// Only the present acceptor knows what one has missed that was not there when it began.
    AsksThePresentAcceptor,
    /// A member that has waited for long may propose, whichever member has that task.
    ProposesLate,
    /// A new acceptor has promised, so it is not stopped.
    AcceptorHasPromised,
    /// A leader that has not promised for long is replaced.
    LeaderHasPromised,
    /// An acceptor that lives is not replaced, though it has not promised for long.
    KeepsALivingAcceptor,
    /// Leader and acceptor are two members, if there are two.
    KeepsRolesApart,
    /// A member that knows a later view says so when it is asked.
    TellsTheLaterView,
    /// Who has a new link says again what may be lost with the old one.
    SaysAgain,
    /// A leader with a new link to the acceptor begins again in a view of its own.
    LeaderBeginsAgain,
}

macro_rules! rules {
    ($($name:ident => $broken:ident;)*) => {
        impl Rules {
            $(
                #[inline(always)]
                pub(crate) const fn $name(self) -> bool {
                    #[cfg(feature = "test-hooks")]
                    return matches!(self.broken, Some(Broken::$broken));
                    #[cfg(not(feature = "test-hooks"))]
                    false
                }
            )*
        }
    };
}

rules! {
    ignores_what_was_accepted => AdoptsWhatWasAccepted;
    needs_no_majority => NeedsMajority;
    replaces_at_once => RestsBeforeItLeaves;
    begins_too_early => BeginsAfterTheLast;
    leads_too_early => LeaderLearnsFirst;
    decides_twice => DecidesOnce;
    replaces_incomplete => KnowsTheEndOfTheAcceptor;
    believes_all => AsksThePresentAcceptor;
    never_proposes_late => ProposesLate;
    trusts_silent_acceptors => AcceptorHasPromised;
    trusts_silent_leaders => LeaderHasPromised;
    replaces_silent_acceptors => KeepsALivingAcceptor;
    unites_roles => KeepsRolesApart;
    keeps_views_secret => TellsTheLaterView;
    trusts_new_links => SaysAgain;
    leads_on => LeaderBeginsAgain;
}

#[cfg(feature = "test-hooks")]
impl Rules {
    /// All rules but this one.
    #[must_use]
    pub const fn without(broken: Broken) -> Self {
        Self { broken: Some(broken) }
    }
}
