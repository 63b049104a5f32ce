//! The clients of a service.

use std::sync::Arc;

use corewire::Peer;

use super::guest::Guest;
use super::sending::Kept;
use crate::bind::Driver;
use crate::exchange::Forms;
use crate::identity::Identity;

/// A client of a service. Never means another one, even after the client has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    index: u32,
    generation: u64,
}

impl ClientId {
    /// The number in the tags of its messages. That of a client with a circuit means nothing.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "other clients have small ones")]
    pub(crate) const fn binding(self) -> u16 {
        self.index.wrapping_add(1) as u16
    }

    /// As one number. There are at most 2^24 indexes, and generations are counted one by one and do not reach 2^40.
    pub(super) const fn to_bits(self) -> u64 {
        self.generation << INDEX_BITS | self.index as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower bits")]
    pub(super) const fn of_bits(bits: u64) -> Self {
        Self { index: bits as u32 & INDEX_MAX, generation: bits >> INDEX_BITS }
    }
}

const INDEX_BITS: u32 = 24;
const INDEX_MAX: u32 = (1 << INDEX_BITS) - 1;
/// Indexes of clients whose number is in the tags of their messages.
const NUMBERED_MAX: u32 = u16::MAX as u32 - 1;

/// How a client is reached.
pub(super) enum Way {
    Ring {
        peer: Peer,
        guest: Arc<Guest>,
    },
    Socket(Arc<Guest>),
    Circuit {
        index: u32,
    },
    /// It has been accepted, and has not said how. The secret is what it says in the ring.
    Accepted {
        guest: Arc<Guest>,
        secret: u64,
    },
    /// It is cut off. Nothing of it is handled and nothing is sent, until its end is reported.
    CutOff {
        peer: Peer,
        guest: Arc<Guest>,
    },
}

/// What a service knows of a client.
pub(super) struct Row {
    pub(super) id: ClientId,
    pub(super) way: Way,
    pub(super) identity: Identity,
    pub(super) forms: Forms,
    pub(super) driver: Driver,
    /// What waits for room in its ring.
    pub(super) kept: Kept,
    /// Events that were left out behind those.
    pub(super) lost_count: u64,
    /// What it sent and was no message of the interface.
    pub(super) refused_count: u32,
}

impl Row {
    /// Whether messages of it are handled.
    pub(super) const fn is_bound(&self) -> bool {
        !matches!(self.way, Way::Accepted { .. } | Way::CutOff { .. })
    }
}

/// Clients by the number of their binding, less one.
#[derive(Default)]
pub(super) struct Clients {
    rows: Vec<Option<Row>>,
    free: Vec<u32>,
    generation: u64,
    /// How many have another version of the interface.
    other_version_count: usize,
}

impl Clients {
    /// `None` if `count_max` are bound already.
    pub(super) fn add(
        &mut self,
        count_max: usize,
        way: Way,
        identity: Identity,
        forms: Forms,
    ) -> Option<ClientId> {
        let max = if matches!(way, Way::Circuit { .. }) { INDEX_MAX } else { NUMBERED_MAX };
        let is_fit = |index: &u32| *index < max;
        let index = match self.free.iter().rposition(is_fit) {
            Some(place) => self.free.swap_remove(place),
            None if self.rows.len() - self.free.len() >= count_max => return None,
            None => {
                let index = u32::try_from(self.rows.len()).ok().filter(is_fit)?;
                self.rows.push(None);
                index
            }
        };
        self.generation += 1;
        self.other_version_count += usize::from(!forms.is_exact());
        let id = ClientId { index, generation: self.generation };
        let row = Row {
            id,
            way,
            identity,
            forms,
            driver: Driver::Sock,
            kept: Kept::default(),
            lost_count: 0,
            refused_count: 0,
        };
        *self.rows.get_mut(index as usize)? = Some(row);
        Some(id)
    }

    /// The bound client with this number, if the message came from it.
    #[inline]
    pub(super) fn of_number(&self, binding: u16, source: Peer) -> Option<ClientId> {
        let row = self.rows.get(usize::from(binding.checked_sub(1)?))?;
        match row {
            Some(Row { id, way: Way::Ring { peer, .. }, .. }) if *peer == source => Some(*id),
            _ => None,
        }
    }

    /// The row with this number, of any client.
    pub(super) fn at_number(&mut self, binding: u16) -> Option<&mut Row> {
        self.rows.get_mut(usize::from(binding.checked_sub(1)?))?.as_mut()
    }

    #[inline]
    pub(super) fn row(&mut self, client: ClientId) -> Option<&mut Row> {
        self.rows.get_mut(client.index as usize)?.as_mut().filter(|row| row.id == client)
    }

    /// The versions that a client knows.
    #[inline]
    pub(super) fn forms_of(&self, client: ClientId) -> Forms {
        match self.other_version_count {
            0 => Forms::default(),
            _ => self.get(client).map(|row| row.forms.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn get(&self, client: ClientId) -> Option<&Row> {
        self.rows.get(client.index as usize)?.as_ref().filter(|row| row.id == client)
    }

    /// The client with this endpoint, cut off or not.
    pub(super) fn of_peer(&self, source: Peer) -> Option<ClientId> {
        let is_it = |row: &&Row| match &row.way {
            Way::Ring { peer, .. } | Way::CutOff { peer, .. } => *peer == source,
            _ => false,
        };
        self.rows.iter().flatten().find(is_it).map(|row| row.id)
    }

    pub(super) fn remove(&mut self, client: ClientId) -> Option<Row> {
        let place = self.rows.get_mut(client.index as usize)?;
        let row = place.take_if(|row| row.id == client)?;
        self.free.push(client.index);
        self.other_version_count -= usize::from(!row.forms.is_exact());
        Some(row)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The bound client in this place.
    pub(super) fn at(&self, index: usize) -> Option<ClientId> {
        self.rows.get(index)?.as_ref().filter(|row| row.is_bound()).map(|row| row.id)
    }

    /// Those that are bound.
    pub(super) fn bound(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().flatten().filter(|row| row.is_bound())
    }
}
