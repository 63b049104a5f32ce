//! Collectives: calls that all members of a view make together.
//!
//! A [`Communicator`] links the members of one view by endpoints of their own, which only its calls use. Each call is made
//! by the thread that calls, without help of any other one.
//!
//! | call | rounds (messages that wait for each other), for n members | bytes that a member sends |
//! |---|---|---|
//! | barrier | ceil(log2 n) | one short message in each round |
//! | broadcast | ceil(log2 n) | the value, at most ceil(log2 n) times |
//! | reduce | ceil(log2 n) | the value, once |
//! | allreduce | ceil(log2 n), 2 more if n is no power of two; 2(n - 1) for long values | the value in each round; long values twice |
//! | gather | ceil(log2 n) for short parts, otherwise 1 | its part, with short ones of up to n/2 others; long ones once |
//! | scatter | 1 | the root: n - 1 parts |
//! | allgather | ceil(log2 n); n - 1 if all parts are long | n - 1 parts |
//! | reduce-scatter | those of an allreduce; n - 1 for long values | those of an allreduce; long values once |
//! | scan, exscan | ceil(log2 n) | the value in each round |
//! | all-to-all | 1 | n - 1 parts |
//!
//! With fewer processors than members, the first member does the work of short barriers and allreduces, and short parts of
//! an all-to-all are all sent before the first one is received: more work, but each member has to run only once.
//!
//! With [two levels](Tiers::Two), a barrier, broadcast, reduce and allreduce are made in two steps: members of the same host, or of one host at the same last-level cache, first do it
//! among themselves, then one of each with the others, so that each value crosses to a host or a cache once.
//!
//! Calls that are started (`iallreduce` and others) take the trees of short values: an allreduce is a reduce and a broadcast,
//! and a gather and a reduce-scatter are one round in which each sends to all that need its part. They go on while the
//! member is in any call of the communicator. [`Communicator::split`] and [`Communicator::duplicate`] make communicators
//! with endpoints of their own.
//!
//! A message carries the number of its call, so that a member that is ahead does not disturb one that is behind.
//!
//! # Deaths
//!
//! If a process ends, the kernel reports that to every member, and every call that has not ended yet returns
//! [`CollectiveError::Ended`] with the member's name, whether or not it would have needed that member; so do all later
//! calls. A communicator that was dropped in order disturbs only those that still need a message from it. After a failed
//! call a communicator sends nothing more, as if it had been dropped. A member that needs such a communicator first waits up to 250 ms
//! for the kernel to report a death, and names the dead member if it does.
//!
//! Over an endpoint, also of other hosts, the same holds with [`CollectiveError::Gone`]: there a member may be lost that lives.

mod algorithms;
pub(crate) mod connect;
mod link;
mod parts;
mod split;
mod started;

use std::fmt;
use std::time::Duration;

use corewire::{ConnectError, Endpoint, EndpointError, MessageError, OpenError, OsError, Peer};

pub use algorithms::Value;
pub use started::Request;

use crate::member::Member;

/// All members of one view, or [the endpoints of some names](Self::over), for collective calls.
///
/// All members make the same calls in the same order. A call waits for the others as far as it needs them. Those that begin
/// with `i`, such as [`iallreduce`](Self::iallreduce), only start it, and [`wait`](Self::wait) gives its result.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("corewire-doc-collective-{}", std::process::id()));
/// use std::time::Duration;
///
/// use corewire::Domain;
/// use corewire_group::{Communicator, Group};
///
/// let domain = Domain::open_at(&dir)?;
/// # let limit = Duration::from_secs(20);
/// # let other = { let domain = domain.clone(); std::thread::spawn(move || {
/// #     let group = Group::builder(&domain, "sum").join().unwrap();
/// #     let view = group.wait_for_members(2, limit).unwrap();
/// #     let mut all = Communicator::builder(&domain, &group, &view).connect().unwrap();
/// #     let mut values = [all.rank() as u64 + 1];
/// #     all.allreduce(&mut values, |one, other| one + other).unwrap();
/// #     assert_eq!(values, [3]);
/// #     all.barrier().unwrap();
/// # }) };
/// // Each of two processes does this:
/// let group = Group::builder(&domain, "sum").join()?;
/// let view = group.wait_for_members(2, Duration::from_secs(10))?;
/// let mut all = Communicator::builder(&domain, &group, &view).connect()?;
///
/// let mut values = [all.rank() as u64 + 1];
/// all.allreduce(&mut values, |one, other| one + other)?;
/// assert_eq!(values, [3]);
/// all.barrier()?;
/// # other.join().unwrap();
/// # drop((all, group, domain)); std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
pub struct Communicator {
    origin: connect::Origin,
    /// None once the communicator has ended: so others that still need this member hear of it.
    endpoint: Option<Endpoint>,
    members: Vec<Member>,
    rank: usize,
    /// The peer of each rank, except the own one.
    peers: Vec<Option<Peer>>,
    /// The ranks of each host or at each last-level cache; all in one set if there is one level.
    sets: Vec<Vec<usize>>,
    /// Whether there are more members than processors: what counts then is how often each must run.
    is_crowded: bool,
    /// How many calls there were.
    calls: u64,
    /// Whose end ended the communicator.
    ended: Option<CollectiveError>,
    buffer: Vec<u8>,
    /// Calls that were started and have not been waited for.
    under_way: Vec<started::Started>,
}

/// Whether members of the same host, or of one host at the same last-level cache, first do a call among themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Tiers {
    /// Two if there are several hosts, and one with several members, or two caches with at least two members each.
    #[default]
    Auto,
    /// All members are alike.
    One,
    /// Those of each host or cache, and one of each with the others.
    Two,
}

/// Builder of a communicator, returned by [`Communicator::builder`].
#[derive(Debug)]
#[must_use = "nothing is connected before `connect`"]
pub struct CommunicatorBuilder<'a> {
    domain: &'a corewire::Domain,
    whose: Whose<'a>,
    tiers: Tiers,
    wait: corewire::Wait,
    timeout: Duration,
}

/// Who the members are.
#[derive(Debug)]
enum Whose<'a> {
    View { group: &'a crate::group::Group, view: &'a crate::member::View },
    Names { endpoint: Box<Endpoint>, names: Vec<String> },
}

/// Why a collective call failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// The process of this member has ended, or its communicator was dropped before it did its part.
    #[error("member {member} of group {name} has ended")]
    Ended {
        /// The group.
        name: String,
        /// The member.
        member: Member,
    },
    /// A member of a communicator [over](Communicator::over) an endpoint has died, has left before it did its part, or its host
    /// cannot be reached any more.
    #[error("rank {rank} is gone: {why}")]
    Gone {
        /// Its rank.
        rank: usize,
        /// What the endpoint says of it.
        why: MessageError,
    },
    /// The names of members are not possible: one is given twice, none is that of the endpoint, or some say their host and some
    /// do not.
    #[error("the names of members: {0}")]
    Names(String),
    /// There is no such rank. The call was not made: if only this member made the mistake, the communicator cannot be used any
    /// more; drop it, so that the others do not wait.
    #[error("no rank {asked}: the communicator has {size}")]
    NoSuchRank {
        /// What was given.
        asked: usize,
        /// How many members there are.
        size: usize,
    },
    /// A member has given values of another length. The communicator cannot be used any more; drop it, so that the others
    /// do not wait. Not noticed if a length is longer than 32 KiB and the other one is longer by whole pieces of 32 KiB, and
    /// in an allreduce if only one of them is longer than 1 KiB or 32 KiB: the members may then wait for each other.
    #[error("member {member} sent {found} bytes where {expected} are due: all must give the same")]
    Length {
        /// The member.
        member: Member,
        /// What it sent.
        found: u64,
        /// What this member expects.
        expected: usize,
    },
    /// A buffer has the wrong length. The call was not made, as for [`NoSuchRank`](Self::NoSuchRank).
    #[error("a buffer of {given} values where {needed} are needed")]
    Buffer {
        /// What was given.
        given: usize,
        /// What is needed.
        needed: usize,
    },
    /// The request was made by another communicator.
    #[error("a request that another communicator has started cannot be waited for with this one")]
    Foreign,
    /// This process has a communicator with the same members already. Views may differ in roles alone.
    #[error(
        "this process has a communicator of group {0} with the same members: use that, or drop it before"
    )]
    Exists(String),
    /// This process is not a member of the view.
    #[error("this process is not a member of view {0}")]
    NoMember(u64),
    /// The others have not made their communicators in time.
    #[error("member {member} has no communicator for view {view} within {after:?}")]
    Timeout {
        /// The first one that is missing.
        member: Member,
        /// The view.
        view: u64,
        /// The given time.
        after: Duration,
    },
    /// The endpoint cannot be created.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Another member cannot be linked with.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The endpoint failed.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The domain cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

impl Communicator {
    /// This member's number: its index among the members.
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// How many members there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The members, by rank. Of a communicator [over](Self::over) an endpoint, their places are those among the names.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The ranks of each host or at each last-level cache, or all in one set if there is one level.
    #[must_use]
    pub fn sets(&self) -> &[Vec<usize>] {
        &self.sets
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

corewire_layout::debug_is_text!(CollectiveError);
