//! The clients of a service.

use corewire::Peer;

use super::client_id::{ClientId, INDEX_MAX};
use super::flow::RowStreams;
use super::lane::Lane;
use crate::driver::Driver;
use crate::exchange::Forms;
use crate::identity::Identity;
use crate::lane::backlog::Kept;

/// Indexes of clients whose number is in the tags of their messages.
const NUMBERED_MAX: u32 = u16::MAX as u32 - 1;

/// What a service knows of a client.
pub(super) struct Row {
    pub(super) id: ClientId,
    pub(super) lane: Lane,
    pub(super) identity: Identity,
    pub(super) forms: Forms,
    pub(super) driver: Driver,
    /// What waits for room in its ring.
    pub(super) kept: Kept,
    /// Events that were left out behind those.
    pub(super) lost_count: u64,
    /// What it sent and was no message of the interface.
    pub(super) refused_count: u32,
    /// Streams that it has called for.
    pub(super) streams: Option<Box<RowStreams>>,
}

impl Row {
    /// Whether messages of it are handled.
    pub(super) const fn is_bound(&self) -> bool {
        self.lane.is_bound()
    }

    /// What the parts of its streams cost that it has not given back. They may be among what waits for it.
    pub(super) fn part_bytes(&self) -> usize {
        self.streams.as_ref().map_or(0, |streams| streams.sent_bytes())
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
        lane: Lane,
        identity: Identity,
        forms: Forms,
    ) -> Option<ClientId> {
        let max = if matches!(lane, Lane::Circuit { .. }) { INDEX_MAX } else { NUMBERED_MAX };
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
            lane,
            identity,
            forms,
            driver: Driver::Sock,
            kept: Kept::default(),
            lost_count: 0,
            refused_count: 0,
            streams: None,
        };
        *self.rows.get_mut(index as usize)? = Some(row);
        Some(id)
    }

    /// The bound client with this number, if the message came from it.
    #[inline]
    pub(super) fn of_number(&self, binding: u16, source: Peer) -> Option<ClientId> {
        let row = self.rows.get(usize::from(binding.checked_sub(1)?))?;
        match row {
            Some(Row { id, lane: Lane::Ring { peer, .. }, .. }) if *peer == source => Some(*id),
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

    #[inline]
    pub(super) fn get(&self, client: ClientId) -> Option<&Row> {
        self.rows.get(client.index as usize)?.as_ref().filter(|row| row.id == client)
    }

    /// The client with this endpoint, cut off or not.
    pub(super) fn of_peer(&self, source: Peer) -> Option<ClientId> {
        let is_it = |row: &&Row| row.lane.peer() == Some(source);
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
