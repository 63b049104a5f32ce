//! Channels on two levels, for machines with several last-level caches.
//!
//! Receivers at the sender's own cache read its ring. Those at each other cache are a *group*: one of
//! their processes has a *relay*, a thread that reads the sender's ring and sends on what it reads, in a
//! channel of its own, `<name>@<group>`; the receivers of the group, its *followers*, read that. So a
//! message crosses to each other cache once, a large one is copied once for each, and the sender reads one
//! cursor for each. (Barrelfish's multicast, with one aggregator a package; `corewire model two_level`
//! counts what it saves.)
//!
//! The relay's ring goes on in the sender's numbers, so all know where they are. What makes it safe:
//!
//! - A relay is done with a message when it has sent it on, so its cursor is never beyond what its ring
//!   holds. A dead relay's ring can be read to its end.
//! - While a group has followers, the sender keeps a dead relay's row, and with it all messages from its
//!   cursor on, for the next relay, which begins there (`owner/groups.rs`).
//! - Who has `<name>@<group>` is the relay: names have one owner, exactly, for as long as it lives.
//! - Each follower's note that it waits for that name lies in the runtime directory all the time. So
//!   whoever is the next relay invites all that are left, and its first message waits for them
//!   (`follower.rs`). Each begins at the end of the dead relay's ring.
//! - If the sender is gone as well, a follower reads the rest in the sender's own ring, where nobody
//!   writes any more.
//!
//! A follower costs the sender nothing but two descriptors: its socket, and its process.

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
    /// Two levels where that is sooner for the last receiver: as
    /// [`Topology::two_levels_pay`](crate::Topology::two_levels_pay) has it for the number of receivers
    /// that the channel is made for, from the file that `$COREWIRE_TOPOLOGY` names. Without one, or for a
    /// policy other than *Block*: one level.
    #[default]
    Auto,
    /// All read the sender's ring.
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

/// The incarnation of a new relay's channel: in its lower half it says which channel it relays.
fn incarnation_of_relay(channel: u128) -> Result<u128, OsError> {
    Ok(random_u128()? & UPPER_HALF | channel & !UPPER_HALF)
}

fn is_relay_of(incarnation: u128, channel: u128) -> bool {
    (incarnation ^ channel) & !UPPER_HALF == 0
}

const UPPER_HALF: u128 = !0 << 64;

/// The group of whoever runs on this processor: the first of those that share its last-level cache.
pub(crate) fn own_group() -> u32 {
    /// As the kernel described them, once for each processor.
    static KNOWN: PerProcess<Mutex<BTreeMap<u32, u32>>> = PerProcess::new();
    let processor = Linux::get().cpu();
    *lock(KNOWN.get()).entry(processor).or_insert_with(|| {
        let shared_by = processor::last_level(processor as usize).unwrap_or_default();
        let first = shared_by.split(|c: char| !c.is_ascii_digit()).next();
        first.and_then(|first| first.parse().ok()).unwrap_or(0)
    })
}
