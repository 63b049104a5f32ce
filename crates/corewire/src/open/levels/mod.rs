//! Channels on two levels, for machines with several last-level caches.
//!
//! Receivers at the sender's own cache read its ring. The receivers at each other cache form a *group*. One process of
//! the group runs a *relay*: a thread that reads the sender's ring and forwards the messages in a channel of its own,
//! `<name>@<group>`. The other receivers of the group, its *followers*, read that channel. Each message is therefore
//! transferred once to each other cache, a large message is copied once for each of them, and the sender reads one
//! cursor for each of them. (This is Barrelfish's multicast with one aggregator for each package. `corewire model
//! two_level` computes the gain.)
//!
//! A relay's ring continues the sender's sequence numbers, so all receivers know their position. The following rules
//! make this safe:
//!
//! - A relay has finished a message when it has forwarded it, so its cursor is never beyond the contents of its ring. A
//!   dead relay's ring can be read to its end.
//! - While a group has followers, the sender keeps a dead relay's row, and with it all messages from that row's cursor
//!   on. The next relay begins there (`owner/groups.rs`).
//! - The process that holds the name `<name>@<group>` is the relay. A name has at most one owner, for as long as the
//!   owner lives.
//! - A follower's note that it waits for that name stays in the runtime directory. The next relay therefore invites all
//!   remaining followers, and its first message waits for them (`follower.rs`). Each follower begins where the dead
//!   relay's ring ended.
//! - If the sender is gone too, a follower reads the rest in the sender's own ring, which no process writes any more.
//!
//! A follower costs the sender only two descriptors: its socket and its process.

mod follower;
mod relay;
mod sender_link;

pub(crate) use follower::join;

use std::collections::BTreeMap;
use std::sync::Mutex;

use corewire_layout::segment::Policy;
use corewire_os::fork::PerProcess;
use corewire_os::sleep::Linux;
use corewire_os::{OsError, processor, random_u128};
use corewire_ring::Kernel;

use crate::error::CreateError;
use crate::guard::lock;
use crate::topology::Topology;

/// Whether receivers at other last-level caches than the sender's get its messages from a relay there
/// ([`SenderBuilder::levels`](crate::SenderBuilder::levels)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Levels {
    /// Two levels if the last receiver then gets a message sooner, according to
    /// [`Topology::two_levels_pay`](crate::Topology::two_levels_pay) for the channel's maximum number of receivers and
    /// the file that `$COREWIRE_TOPOLOGY` names. One level without such a file, or for a policy other than *Block*.
    #[default]
    Auto,
    /// One level: all receivers read the sender's ring.
    One,
    /// Two levels.
    Two,
}

impl Levels {
    pub(crate) fn are_two(self, policy: Policy, receivers_max: u64) -> Result<bool, CreateError> {
        match self {
            Self::One => Ok(false),
            Self::Two if policy != Policy::Block => Err(CreateError::Levels { policy }),
            Self::Two => Ok(true),
            Self::Auto if policy != Policy::Block => Ok(false),
            Self::Auto => {
                let machine = Topology::of_this_machine()?;
                Ok(machine.is_some_and(|machine| machine.two_levels_pay(receivers_max)))
            }
        }
    }
}

/// The incarnation of a new relay's channel. Its lower half identifies the channel that it relays.
fn incarnation_of_relay(channel: u128) -> Result<u128, OsError> {
    Ok(random_u128()? & UPPER_HALF | channel & !UPPER_HALF)
}

fn is_relay_of(incarnation: u128, channel: u128) -> bool {
    (incarnation ^ channel) & !UPPER_HALF == 0
}

const UPPER_HALF: u128 = !0 << 64;

/// The group of this thread's processor: the number of the first processor that shares its last-level cache.
pub(crate) fn own_group() -> u32 {
    /// The kernel's description of the caches, read once for each processor.
    static KNOWN: PerProcess<Mutex<BTreeMap<u32, u32>>> = PerProcess::new();
    let processor = Linux::get().cpu();
    *lock(KNOWN.get()).entry(processor).or_insert_with(|| {
        let shared_by = processor::last_level(processor as usize).unwrap_or_default();
        let first = shared_by.split(|c: char| !c.is_ascii_digit()).next();
        first.and_then(|first| first.parse().ok()).unwrap_or(0)
    })
}
