//! Peers that come and go, as events between messages.

use std::collections::VecDeque;

use super::Peers;
use super::row::{Link, Row};
use crate::error::MessageError;
use crate::selector::Peer;
use crate::transport::Transport;

/// A peer has come or gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerEvent {
    /// It has come.
    Came(Peer),
    /// It has gone.
    Gone {
        /// The peer.
        peer: Peer,
        /// `PeerDied`, `PeerLeft`, `PeerLost` or `PeerCutOff`.
        why: MessageError,
    },
}

/// The events that have not been taken. A peer that has gone keeps its row until its event is taken, so there are at
/// most two for each row.
#[derive(Debug, Default)]
pub(super) struct PeerEvents {
    is_watching: bool,
    queue: VecDeque<PeerEvent>,
}

impl<T: Transport> Peers<T> {
    pub(crate) fn watch(&mut self) {
        if self.events.is_watching {
            return;
        }
        let rows = (0u32..).zip(&self.rows);
        let is_here = |entry: &Row| entry.name.is_some() && !entry.is_over;
        let here = rows.filter(|(_, entry)| is_here(entry) && entry.link == Link::Linked);
        let here = here.map(|(row, entry)| Peer::new(row, entry.generation));
        let queue = here.map(PeerEvent::Came).collect();
        self.events = PeerEvents { is_watching: true, queue };
    }

    pub(crate) fn has_event(&self) -> bool {
        !self.events.queue.is_empty()
    }

    /// Whether events are kept, and there is none.
    #[inline(always)]
    pub(crate) fn has_no_event(&self) -> bool {
        self.events.is_watching && self.events.queue.is_empty()
    }

    /// The oldest event that `is_due`.
    pub(crate) fn next_event(
        &mut self,
        is_due: impl FnMut(&PeerEvent) -> bool,
    ) -> Option<PeerEvent> {
        let index = self.events.queue.iter().position(is_due)?;
        let event = self.events.queue.remove(index)?;
        if let PeerEvent::Gone { peer, .. } = event {
            self.transport.remove(peer.row());
        }
        Some(event)
    }

    pub(super) fn note_arrival_of(&mut self, peer: Peer) {
        if self.events.is_watching {
            self.has_news = true;
            self.events.queue.push_back(PeerEvent::Came(peer));
        }
    }

    /// Nothing of this peer is left in the transport. Its row is free now, or when its event has been taken.
    pub(super) fn free_row_of(&mut self, peer: Peer, why: MessageError) {
        let has_come = self.rows[peer.row() as usize].link == Link::Linked;
        if self.events.is_watching && has_come {
            self.events.queue.push_back(PeerEvent::Gone { peer, why });
        } else {
            self.transport.remove(peer.row());
        }
    }
}
