//! Peers that come and go, as events between messages.

use crate::caller::{Caller, CallerState};
use crate::engine::Engine;
use crate::error::MessageError;
use crate::peers::PeerEvent;
use crate::selector::{Peer, Selector};
use crate::transport::Transport;

impl<T: Transport> Engine<T> {
    /// From now on keeps an event for each peer that comes or goes. Reports the peers that are linked now first, including
    /// peers that have gone but whose messages have not all arrived.
    pub fn watch_peers(&mut self) {
        if !self.peer_events.is_watching {
            self.peer_events.is_watching = true;
            let rows = (0u32..).zip(&self.rows);
            let here = rows.filter(|(_, entry)| entry.name.is_some() && !entry.is_over);
            let here = here.map(|(row, entry)| Peer::new(row, entry.generation));
            let here: Vec<_> = here.map(PeerEvent::Came).collect();
            self.peer_events.queue.extend(here);
        }
    }

    /// Whether events are kept, and there is none.
    #[inline(always)]
    pub fn has_no_peer_event(&self) -> bool {
        self.peer_events.is_watching && self.peer_events.queue.is_empty()
    }

    /// The oldest event, except that of a peer that has gone and of which a message is kept that `selector` asks for.
    pub fn next_peer_event(&mut self, selector: &Selector) -> Option<PeerEvent> {
        if self.peer_events.is_empty() {
            return None;
        }
        let is_due = |event: &PeerEvent| match event {
            PeerEvent::Came(_) => true,
            PeerEvent::Gone { peer, .. } => {
                let is_other = selector.source().is_some_and(|source| source != *peer);
                is_other || self.matching.find(&selector.from(*peer)).is_none()
            }
        };
        let index = self.peer_events.queue.iter().position(is_due)?;
        let event = self.peer_events.queue.remove(index)?;
        if let PeerEvent::Gone { peer, .. } = event {
            self.transport.remove(peer.row());
        }
        Some(event)
    }

    /// The same, for a receive that is being called and whose message has not begun to arrive.
    pub fn next_peer_event_for(&mut self, caller: &Caller<'_>) -> Option<PeerEvent> {
        match caller.state {
            CallerState::Waiting | CallerState::Ended(Err(_)) => {
                self.next_peer_event(&caller.selector)
            }
            CallerState::Filling(_) | CallerState::Ended(Ok(_)) => None,
        }
    }

    pub(crate) fn note_arrival_of(&mut self, peer: Peer) {
        if self.peer_events.is_watching {
            self.has_news = true;
            self.peer_events.queue.push_back(PeerEvent::Came(peer));
        }
    }

    /// Nothing of this peer is left in the transport. Its row is free now, or when its event has been taken.
    pub(crate) fn free_row_of(&mut self, peer: Peer, why: MessageError) {
        if self.peer_events.is_watching {
            self.peer_events.queue.push_back(PeerEvent::Gone { peer, why });
        } else {
            self.transport.remove(peer.row());
        }
    }
}
