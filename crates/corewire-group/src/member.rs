//! Who is in a group, and in which role.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Members that a group has at most.
pub const MEMBERS_MAX: usize = 64;
/// The longest command that a group can have, in bytes.
pub const COMMAND_BYTES_MAX: usize = 256 << 20;

/// A member: a place in the group, and which process it was that took it. A process that has ended, and its successor at
/// the same place, are two members.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Its place, below [`MEMBERS_MAX`].
    pub place: u8,
    /// Which of the processes that have had the place: a random number.
    pub life: u64,
}

/// The place of all clients: they are no members, and have no place among these.
const CLIENTS_PLACE: u8 = u8::MAX;

impl Member {
    /// The client with this number, which it has drawn at random.
    #[must_use]
    pub const fn client_of_life(life: u64) -> Self {
        Self { place: CLIENTS_PLACE, life }
    }

    /// Whether it is a client, which proposes and is no member.
    #[must_use]
    pub const fn is_client(&self) -> bool {
        self.place == CLIENTS_PLACE
    }

    /// The one at a place whose endpoint has this incarnation.
    pub(crate) fn at(place: u8, incarnation: u128) -> Self {
        let life = u64::try_from(incarnation & u128::from(u64::MAX)).unwrap_or_default();
        Self { place, life }
    }
}

/// Its place; of a client its number.
impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_client() {
            true => write!(f, "client {:016x}", self.life),
            false => self.place.fmt(f),
        }
    }
}

/// A view: the members of a group, as agreed, and what they do. There is one view of each number.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct View {
    /// Who has founded the group. A group of the same name that is founded when nobody is left is another one.
    pub founder: Member,
    /// Views are numbered from 1.
    pub number: u64,
    /// The members, in their order, each once.
    pub members: Vec<Member>,
    /// The only one that asks the acceptor to accept.
    pub leader: Member,
    /// The only one that decides entries: what it publishes is decided.
    pub acceptor: Member,
    /// The first entry that this acceptor may decide. Those before it are decided.
    pub start: u64,
    /// Everything that this acceptor publishes comes at this position of the channel or behind it.
    pub since: u64,
}

impl View {
    /// The first view of a group, which one process makes alone.
    #[must_use]
    pub fn first(founder: Member) -> Self {
        let members = vec![founder];
        let (leader, acceptor) = (founder, founder);
        Self { founder, number: 1, members, leader, acceptor, start: 0, since: 0 }
    }

    /// Whether somebody is a member.
    #[must_use]
    pub fn has(&self, member: Member) -> bool {
        self.members.contains(&member)
    }

    /// How many members must agree on the next view: a majority, so that any two such sets have a member in common.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.members.len() / 2 + 1
    }
}
