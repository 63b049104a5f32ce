//! Frames that wait at a node, and the order in which they are sent.
//!
//! Each link has a list of sides that owe its neighbour a word, which go first, and one of sides with frames that wait
//! and credit for them. These take turns: in each turn a side may send as many lines as the longest frame has, and what
//! it does not use up counts for its next turn (deficit round robin). So circuits share a link by bytes, whatever the
//! length of their messages.

use crate::wire::{Hop, Kind, PAYLOAD_BYTES_MAX, flags, lines_of};

use super::circuit::{At, CLIENT, LinkId, Phase, Side, state};
use super::machine::{Node, Wires};
use super::mistakes::offer;

/// Lines of one turn.
const TURN_LINES: u32 = lines_of(PAYLOAD_BYTES_MAX);

/// How sending what waits has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// Nothing waits any more.
    All,
    /// The rest has no credit.
    Credit,
    /// The rest is for the next turn.
    Turn,
    /// The link has no room.
    Full,
}

impl Node {
    /// Sends what waits as far as there is room. To be called after all that has come has been given to the node, and
    /// again when there is room on a link that had none. True if it must be called again before the caller waits.
    #[inline]
    pub fn flush(&mut self, wires: &mut impl Wires) -> bool {
        if self.wanting_due > 0 {
            self.serve_wanting();
        }
        for _ in 0..self.ready.len() {
            let Some(link) = self.ready.pop_front() else { break };
            if !self.flush_link(link, wires) {
                self.ready.push_back(link);
            }
        }
        self.wanting_due > 0
    }

    /// Whether something waits for room on a link.
    #[inline]
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        !self.ready.is_empty()
    }

    /// True if nothing more can be sent before something comes.
    fn flush_link(&mut self, id: LinkId, wires: &mut impl Wires) -> bool {
        for _ in 0..self.link(id).map_or(0, |link| link.due.len()) {
            let Some(at) = self.link_mut(id).and_then(|link| link.due.pop_front()) else { break };
            if !self.is_at(at, id, state::DUE) {
                continue;
            }
            if !self.send_word(at, wires) {
                let lost = self.loses_dummies();
                if let Some(side) = self.circuits.side_mut(at)
                    && lost
                {
                    side.clear(state::DUE);
                } else if let Some(link) = self.link_mut(id) {
                    link.due.push_front(at);
                }
                return false;
            }
        }
        while let Some(at) = self.link(id).and_then(|link| link.active.front().copied()) {
            let sent = match self.is_at(at, id, state::ACTIVE) {
                true => self.send_turn(at, wires),
                false => Sent::All,
            };
            match sent {
                Sent::Full => return false,
                Sent::Turn => {
                    if let Some(link) = self.link_mut(id) {
                        link.active.rotate_left(1);
                    }
                    continue;
                }
                Sent::All | Sent::Credit => {}
            }
            if let Some(link) = self.link_mut(id) {
                link.active.pop_front();
            }
            if self.is_at(at, id, state::ACTIVE)
                && let Some(side) = self.circuits.side_mut(at)
            {
                side.clear(state::ACTIVE);
                side.deficit_lines = 0;
            }
            self.try_finish(at.circuit(), wires);
            self.end_if_finished(at.circuit());
        }
        if let Some(link) = self.link_mut(id) {
            if !link.due.is_empty() {
                return false;
            }
            link.is_ready = false;
        }
        true
    }

    /// Whether the side is still what was put into a list of the link.
    fn is_at(&self, at: At, link: LinkId, bit: u16) -> bool {
        self.circuits.side(at).is_some_and(|side| side.link == link && side.has(bit))
    }

    /// Sends the word that a side owes. False if there is no room.
    fn send_word(&mut self, at: At, wires: &mut impl Wires) -> bool {
        let Some(side) = self.circuits.side_mut(at) else { return true };
        if !side.is_reachable() {
            return true;
        }
        let (link, label) = (side.link, side.label_out);
        let mut send =
            |kind, credit| wires.frame(link, label, Hop { credit, ..Hop::new(kind) }, &[]);
        if side.state & state::RETURN != 0 {
            let credit = offer(&mut side.intake, &self.config);
            if !send(Kind::Return, credit) {
                return false;
            }
            side.intake.granted(credit);
            side.outflow.returned();
            side.clear(state::RETURN);
        }
        if side.state & state::RECALL != 0 {
            if !send(Kind::Recall, side.intake.latest()) {
                return false;
            }
            side.intake.recalled();
            side.clear(state::RECALL);
        }
        // A frame in the other direction may have carried it meanwhile.
        if side.intake.is_due() {
            let credit = offer(&mut side.intake, &self.config);
            if !send(Kind::Credit, credit) {
                return false;
            }
            side.intake.granted(credit);
        }
        side.clear(state::DUE);
        true
    }

    /// Sends what waits at a side, in one turn.
    fn send_turn(&mut self, at: At, wires: &mut impl Wires) -> Sent {
        let Some(side) = self.circuits.side_mut(at) else { return Sent::All };
        side.deficit_lines = side.deficit_lines.saturating_add(TURN_LINES).min(2 * TURN_LINES);
        loop {
            match self.send_front(at, wires) {
                Ok(true) => {}
                Ok(false) => return Sent::All,
                Err(sent) => return sent,
            }
        }
    }

    /// Sends what waits at a side as far as possible, if nothing else waits on its link.
    pub(crate) fn send_waiting(&mut self, at: At, wires: &mut impl Wires) {
        self.make_active(at);
        let Some(link) = self.circuits.side(at).map(|side| side.link) else { return };
        if self.link(link).is_some_and(|of_link| of_link.active.front() == Some(&at)) {
            // What finds no room, or no credit, stays in the lists, which the next flush looks at.
            let _ = self.send_turn(at, wires);
            self.try_finish(at.circuit(), wires);
            self.end_if_finished(at.circuit());
        }
    }

    /// Sends the oldest frame that waits at a side, or the part of it for which there is credit. Whether there was one.
    fn send_front(&mut self, at: At, wires: &mut impl Wires) -> Result<bool, Sent> {
        let Some(circuit) = self.circuits.get_mut(at.circuit()) else { return Ok(false) };
        let [client, service] = &mut circuit.sides;
        let (side, from) = if at.side() == CLIENT { (client, service) } else { (service, client) };
        let Some(front) = self.store.front(&side.queue) else { return Ok(false) };
        if !side.is_reachable() {
            return Ok(false);
        }
        let room = side.outflow.room_lines();
        let (hop, bytes) = front.part(room).ok_or(Sent::Credit)?;
        let lines = lines_of(bytes);
        if lines > side.deficit_lines {
            return Err(Sent::Turn);
        }
        let credit = offer(&mut side.intake, &self.config);
        let wants = if room == lines { flags::WANTS } else { 0 };
        let sent = Hop { credit, flags: hop.flags | wants, ..hop };
        let payload = self.store.read(&side.queue, bytes);
        if !wires.frame(side.link, side.label_out, sent, payload) {
            return Err(Sent::Full);
        }
        side.intake.granted(credit);
        side.outflow.send(lines);
        wires.sent(side.label_out, side.outflow.sent_lines(), hop.ordinal, bytes);
        side.deficit_lines -= lines;
        side.capabilities_due += i32::from(hop.capabilities != 0);
        if let Some(lines) = self.store.sent(&mut side.queue, bytes) {
            from.intake.release(lines);
        }
        if hop.kind == Kind::Fin {
            side.set(state::FIN_OUT);
        }
        if from.intake.is_due() {
            self.make_due(at.other(), 0);
        }
        Ok(true)
    }

    /// A circuit ends when the last frames of both directions have gone on, and the capabilities that they announced.
    pub(crate) fn end_if_finished(&mut self, index: usize) {
        let Some(circuit) = self.circuits.get(index) else { return };
        let [client, service] = &circuit.sides;
        let is_out = |side: &Side| side.has(state::FIN_OUT) && side.capabilities_due <= 0;
        let is_finished = match self.removes_at_first_fin() {
            true => is_out(client) || is_out(service),
            false => is_out(client) && is_out(service),
        };
        if is_finished && !matches!(circuit.phase, Phase::Opening(_)) {
            self.remove(index);
        }
    }
}
