//! The way of a frame through a node.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::wire::credit::{LOAN_LINES_MAX, RESERVE_LINES};
use crate::wire::packet::{End, Packet};
use crate::wire::{Hop, Kind, Label, PAYLOAD_BYTES_MAX, flags, lines_of};

use super::circuit::{At, CLIENT, LinkId, Phase, state};
use super::machine::{Node, UNKNOWN_MAX, Wires};
use super::mistakes::{is_same, offer, raise};
use super::neighbour::{Neighbour, Violation};

/// Messages of a circuit whose capabilities may have overtaken them. Each takes a line at least, and the windows of all
/// hops on the longest way have fewer.
const CAPABILITIES_AHEAD_MAX: i32 = 8192;
/// The largest window that a neighbour can grant.
const WINDOW_LINES_MAX: u32 = 1 << 20;

impl Node {
    /// A frame has come in a data lane. It goes on at once if nothing is in its way, and is stored otherwise.
    ///
    /// # Errors
    /// The neighbour did what it must not: end the link.
    #[inline]
    pub fn frame(
        &mut self,
        from: LinkId,
        label: Label,
        hop: Hop,
        payload: &[u8],
        wires: &mut impl Wires,
    ) -> Result<(), Violation> {
        let at = At(label.index());
        let Some(circuit) = self.circuits.get_mut(at.circuit()) else {
            return self.unknown(from);
        };
        let [client, service] = &mut circuit.sides;
        let (near, far) = if at.side() == CLIENT { (client, service) } else { (service, client) };
        if !is_same(near.label_in, label, &self.config) || near.link != from {
            return self.unknown(from);
        }
        if !near.outflow.is_possible(hop.credit, WINDOW_LINES_MAX) {
            return Err(Violation::Grant);
        }
        let had_room = near.outflow.room_lines() > 0;
        raise(&mut near.outflow, hop.credit, &self.config);
        let is_unblocked = !had_room && !near.queue.is_empty();
        if !hop.takes_lines() {
            return self.word(at, hop, wires);
        }
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Violation::Long { found: payload.len() });
        }
        let lines = lines_of(payload.len());
        near.intake
            .take(lines)
            .map_err(|over| Violation::Overdrawn { lines: over.lines, granted: over.granted })?;
        wires.received(label, near.intake.taken_lines());
        let is_usual = hop.kind != Kind::Fin
            && hop.flags & flags::WANTS == 0
            && !is_unblocked
            && (near.state | far.state) & !state::USUAL == 0
            && matches!(circuit.phase, Phase::Open);
        if !is_usual {
            return self.unusual(at, hop, payload, wires);
        }
        // The usual way: nothing waits, there is credit, and there is room.
        let room = far.outflow.room_lines();
        if far.queue.is_empty()
            && room >= lines
            && !far.label_out.is_none()
            && self
                .links
                .get(far.link.index())
                .and_then(Option::as_ref)
                .is_some_and(|link| link.active.is_empty())
        {
            let credit = offer(&mut far.intake, &self.config);
            let wants = if room == lines { flags::WANTS } else { 0 };
            let sent = Hop { credit, flags: hop.flags & !flags::WANTS | wants, ..hop };
            if wires.frame(far.link, far.label_out, sent, payload) {
                far.outflow.send(lines);
                wires.sent(far.label_out, far.outflow.sent_lines(), hop.ordinal, payload.len());
                far.intake.granted(credit);
                far.capabilities_due += i32::from(hop.capabilities != 0);
                self.counts.forwarded += 1;
                if near.intake.is_due() {
                    self.make_due(at, 0);
                }
                return Ok(());
            }
        }
        self.keep(at, hop, payload);
        Ok(())
    }

    /// A frame of a circuit that is opening, closing, or asks for more.
    #[cold]
    fn unusual(
        &mut self,
        at: At,
        hop: Hop,
        payload: &[u8],
        wires: &mut impl Wires,
    ) -> Result<(), Violation> {
        self.make_active(at);
        if hop.flags & flags::WANTS != 0 {
            self.want(at);
        }
        let (far_at, drops_early) = (at.other(), self.drops_early());
        let Some(circuit) = self.circuits.get_mut(at.circuit()) else { return Ok(()) };
        let is_early = matches!(circuit.phase, Phase::Opening(_));
        let [client, service] = &mut circuit.sides;
        let (near, far) = if at.side() == CLIENT { (client, service) } else { (service, client) };
        if near.has(state::FIN_IN) {
            return Err(Violation::AfterLast);
        }
        if hop.kind == Kind::Fin {
            near.set(state::FIN_IN);
        }
        if is_early && drops_early {
            return Ok(());
        }
        if far.has(state::GONE) {
            // Nobody is there to receive it. Its sender goes on until it has been told.
            if near.intake.is_due() {
                self.make_due(at, 0);
            }
            return Ok(());
        }
        self.keep(at, hop, payload);
        // Nothing may wait in front of it.
        self.send_waiting(far_at, wires);
        self.try_finish(at.circuit(), wires);
        Ok(())
    }

    /// Stores a frame until it can go on.
    fn keep(&mut self, at: At, hop: Hop, payload: &[u8]) {
        self.counts.stored += 1;
        let far_at = at.other();
        let Some(circuit) = self.circuits.get_mut(at.circuit()) else { return };
        let hop = Hop { flags: hop.flags & !flags::WANTS, ..hop };
        circuit.sides[at.side()].intake.store(lines_of(payload.len()));
        self.store.push(&mut circuit.sides[far_at.side()].queue, hop, payload);
        self.make_active(far_at);
    }

    /// A frame that carries credit and nothing else.
    #[cold]
    fn word(&mut self, at: At, hop: Hop, wires: &mut impl Wires) -> Result<(), Violation> {
        match hop.kind {
            Kind::Recall => self.make_due(at, state::RETURN),
            Kind::Return => {
                let Some(side) = self.circuits.side_mut(at) else { return Ok(()) };
                if !side.intake.is_recalling() {
                    return Err(Violation::packet("it gave back what nobody asked for"));
                }
                let (free, link) = (side.intake.returned() as usize, side.link);
                let has_more = side.intake.lent_lines() > 0;
                self.free_lent(free);
                if has_more {
                    self.add_borrower(at);
                }
                self.reduce_loan(link, free);
                if self.circuits.side(at).is_some_and(|side| side.intake.is_due()) {
                    self.make_due(at, 0);
                }
            }
            Kind::Hello => return Err(Violation::packet("it said hello twice")),
            _ => {}
        }
        if hop.flags & flags::WANTS != 0 {
            self.want(at);
        }
        self.send_waiting(at, wires);
        Ok(())
    }

    #[cold]
    fn unknown(&mut self, from: LinkId) -> Result<(), Violation> {
        self.counts.unknown += 1;
        let Some(link) = self.link_mut(from) else { return Ok(()) };
        if link.late_count > 0 {
            link.late_count -= 1;
            return Ok(());
        }
        link.unknown_count += 1;
        match (link.unknown_count, link.neighbour) {
            // A monitor's mistakes must not end what thousands share.
            (_, Neighbour::Monitor(_)) | (..=UNKNOWN_MAX, _) => Ok(()),
            (count, _) => Err(Violation::Unknown { count }),
        }
    }

    /// Capabilities of a message that comes in the data lane.
    pub(crate) fn capabilities<W: Wires>(
        &mut self,
        from: LinkId,
        to: Label,
        (is_lost, notes): (bool, Vec<u8>),
        rights: W::Rights,
        wires: &mut W,
    ) -> Result<(), Violation> {
        let Some(at) = self.find(from, to) else { return Ok(()) };
        let Some(far) = self.circuits.side(at.other()) else { return Ok(()) };
        if !far.is_reachable() {
            return Ok(());
        }
        let far_link = far.link;
        if wires.waiting_bytes(far_link) > self.waiting_bytes_max(far_link) {
            let reason = "more capabilities than their receiver reads".to_owned();
            self.end_both(at.circuit(), End::Full, &reason, wires);
            return Ok(());
        }
        let Some(far) = self.circuits.side_mut(at.other()) else { return Ok(()) };
        far.capabilities_due -= 1;
        if far.capabilities_due < -CAPABILITIES_AHEAD_MAX {
            // Not the neighbour's fault: it may have sent the messages on, and only they are late.
            let reason = "capabilities of messages that do not come";
            self.end_both(at.circuit(), End::Violation, reason, wires);
            return Ok(());
        }
        let packet = Packet::Capabilities { to: far.label_out, is_lost, notes };
        wires.packet(far.link, packet, rights);
        self.end_if_finished(at.circuit());
        Ok(())
    }

    /// Who has sent what a neighbour calls by this label.
    #[must_use]
    pub fn sender_of(&self, from: LinkId, to: Label) -> Option<Sender> {
        let at = self.find(from, to)?;
        let parties = &self.circuits.get(at.circuit())?.parties;
        Some(match at.side() {
            CLIENT => Sender::Client(parties.origin.uid),
            _ => Sender::Service(Arc::clone(&parties.service)),
        })
    }

    /// Ends a circuit for which more has come than it may have.
    pub fn end_circuit(&mut self, from: LinkId, to: Label, reason: &str, wires: &mut impl Wires) {
        if let Some(at) = self.find(from, to) {
            self.end_both(at.circuit(), End::Full, reason, wires);
        }
    }

    /// Bytes of packets that may wait for a neighbour before circuits are refused, or ended, that would add to them.
    pub(crate) fn waiting_bytes_max(&self, link: LinkId) -> usize {
        match self.link(link) {
            Some(link) if self.is_foreign(link.neighbour) => WAITING_BYTES_OF_FOREIGN_MAX,
            _ => WAITING_BYTES_MAX,
        }
    }

    /// The side whose neighbour writes this label.
    pub(crate) fn find(&self, from: LinkId, label: Label) -> Option<At> {
        let at = At(label.index());
        let side = self.circuits.side(at)?;
        (is_same(side.label_in, label, &self.config) && side.link == from).then_some(at)
    }

    /// The side owes its neighbour a word: credit, or what `bit` says.
    pub(crate) fn make_due(&mut self, at: At, bit: u16) {
        let Some(side) = self.circuits.side_mut(at) else { return };
        side.set(bit);
        if !side.is_reachable() || side.has(state::DUE) {
            return;
        }
        side.set(state::DUE);
        let link = side.link;
        if let Some(of_link) = self.link_mut(link) {
            of_link.due.push_back(at);
            if has_stale(&of_link.due, of_link.circuit_count) {
                let due = std::mem::take(&mut of_link.due);
                let due = self.without_stale(due, Some(link), state::DUE);
                if let Some(of_link) = self.link_mut(link) {
                    of_link.due = due;
                }
            }
        }
        self.make_ready(link);
    }

    /// The side may have something to send, and credit for it.
    pub(crate) fn make_active(&mut self, at: At) {
        let Some(side) = self.circuits.side_mut(at) else { return };
        if side.queue.is_empty()
            || !side.is_reachable()
            || side.has(state::ACTIVE)
            || side.outflow.room_lines() == 0
        {
            return;
        }
        side.set(state::ACTIVE);
        let link = side.link;
        if let Some(of_link) = self.link_mut(link) {
            of_link.active.push_back(at);
            if has_stale(&of_link.active, of_link.circuit_count) {
                let active = std::mem::take(&mut of_link.active);
                let active = self.without_stale(active, Some(link), state::ACTIVE);
                if let Some(of_link) = self.link_mut(link) {
                    of_link.active = active;
                }
            }
        }
        self.make_ready(link);
    }

    /// The neighbour has used its credit up and could use more: lends it some, or asks others to give back.
    pub(crate) fn want(&mut self, at: At) {
        let Some(side) = self.circuits.side(at) else { return };
        if side.intake.is_recalling() || side.has(state::WANTING) || !side.is_reachable() {
            return;
        }
        let lent = self.lend(at);
        if lent == Lent::Enough {
            return;
        }
        if let Some(side) = self.circuits.side_mut(at) {
            side.set(state::WANTING);
        }
        self.wanting.push_back(at);
        if has_stale(&self.wanting, 2 * self.circuits.len()) {
            let wanting = std::mem::take(&mut self.wanting);
            self.wanting = self.without_stale(wanting, None, state::WANTING);
        }
        self.recall();
    }

    /// Lends the next step: 16 lines, then four times as many.
    pub(crate) fn lend(&mut self, at: At) -> Lent {
        let free_lines = self.free_lines();
        let Some(side) = self.circuits.side(at) else { return Lent::Enough };
        let lent = side.intake.lent_lines();
        let more = lent.saturating_mul(4).clamp(16, LOAN_LINES_MAX).saturating_sub(lent);
        let Some(link) = self.link(side.link) else { return Lent::Enough };
        // One program may have at most a quarter of all, so that it cannot starve the links between monitors; and all
        // programs of other users half of it, since they need not give back.
        let (lines_max, loan_lines) = (self.config.lines_max, link.loan_lines + more as usize);
        let has_all = match link.neighbour {
            Neighbour::Program(_) if self.is_foreign(link.neighbour) => {
                loan_lines > lines_max / 4
                    || self.foreign_loan_lines + more as usize > lines_max / 2
            }
            Neighbour::Program(_) => loan_lines > lines_max / 4,
            Neighbour::Monitor(_) => loan_lines > lines_max,
        };
        if more == 0 {
            return Lent::Enough;
        }
        if has_all {
            return Lent::LinkHasAll;
        }
        // The rest is for new circuits.
        if more as usize + self.config.lines_max / KEPT_FOR_NEW > free_lines {
            return Lent::NoneLeft;
        }
        let link = side.link;
        if let Some(side) = self.circuits.side_mut(at) {
            side.intake.lend(more);
        }
        self.lent_lines += more as usize;
        self.add_loan(link, more as usize);
        self.add_borrower(at);
        self.make_due(at, 0);
        Lent::Enough
    }

    fn add_borrower(&mut self, at: At) {
        let Some(side) = self.circuits.side_mut(at) else { return };
        if side.has(state::BORROWER) {
            return;
        }
        side.set(state::BORROWER);
        self.borrowers.push_back(at);
        if has_stale(&self.borrowers, 2 * self.circuits.len()) {
            let borrowers = std::mem::take(&mut self.borrowers);
            self.borrowers = self.without_stale(borrowers, None, state::BORROWER);
        }
    }

    /// A list with one entry for each side that has the bit, and whose link this is.
    fn without_stale(
        &mut self,
        list: VecDeque<At>,
        link: Option<LinkId>,
        bit: u16,
    ) -> VecDeque<At> {
        let mut kept = list;
        kept.retain(|at| match self.circuits.side_mut(*at) {
            Some(side) if side.has(bit) && link.is_none_or(|link| side.link == link) => {
                side.clear(bit);
                true
            }
            _ => false,
        });
        for at in &kept {
            if let Some(side) = self.circuits.side_mut(*at) {
                side.set(bit);
            }
        }
        kept
    }

    /// Lines that can be lent.
    pub(crate) fn free_lines(&self) -> usize {
        let reserved = self.circuits.len() * RESERVED_LINES;
        self.config.lines_max.saturating_sub(reserved + self.lent_lines)
    }

    /// Asks the first of those that have borrowed to give back.
    pub(crate) fn recall(&mut self) {
        for _ in 0..RECALLS_MAX {
            let Some(at) = self.borrowers.pop_front() else { return };
            let Some(side) = self.circuits.side_mut(at) else { continue };
            if !side.has(state::BORROWER) {
                continue;
            }
            side.clear(state::BORROWER);
            let has_borrowed = side.intake.lent_lines() > 0;
            if has_borrowed && !side.intake.is_recalling() && !side.has(state::RECALL) {
                self.counts.recalls += 1;
                self.make_due(at, state::RECALL);
            }
        }
    }

    /// Lends what has been given back to those that wait for it, to some of them at a time.
    pub(crate) fn serve_wanting(&mut self) {
        for _ in 0..self.wanting_due.min(WANTING_PER_FLUSH) {
            let Some(at) = self.wanting.pop_front() else { break };
            self.wanting_due -= 1;
            let is_wanting = self.circuits.side(at).is_some_and(|side| side.has(state::WANTING));
            if !is_wanting {
                continue;
            }
            match self.lend(at) {
                Lent::Enough => {
                    if let Some(side) = self.circuits.side_mut(at) {
                        side.clear(state::WANTING);
                    }
                }
                // Those of other links must not wait for it.
                Lent::LinkHasAll => self.wanting.push_back(at),
                Lent::NoneLeft => {
                    self.wanting.push_front(at);
                    self.wanting_due = 0;
                    return;
                }
            }
        }
        self.wanting_due = self.wanting_due.min(self.wanting.len());
    }
}

/// Whether most entries of a list may be of circuits that are gone.
fn has_stale(list: &VecDeque<At>, sides: usize) -> bool {
    list.len() > 64 + 2 * sides
}

/// Who has sent something through a circuit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sender {
    /// The client, of this user.
    Client(u32),
    /// The service of this name.
    Service(Arc<str>),
}

/// Lines that are reserved for a circuit, in both directions.
pub(crate) const RESERVED_LINES: usize = 2 * RESERVE_LINES as usize;

/// What became of a wish to borrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lent {
    /// The circuit has what it may have.
    Enough,
    /// Its link has as much as one link may have.
    LinkHasAll,
    /// No line is left.
    NoneLeft,
}

/// This part of all lines is not lent: new circuits can have it while others give back.
pub(crate) const KEPT_FOR_NEW: usize = 16;
/// Bytes of packets that may wait for a neighbour before circuits are refused that would add to them. The link ends
/// beyond eight times as many: nobody else can bring that about.
pub const WAITING_BYTES_MAX: usize = 8 << 20;
/// The same for a program of another user than the monitor's.
pub const WAITING_BYTES_OF_FOREIGN_MAX: usize = 512 << 10;
/// How many of those that would borrow are looked at before other work has its turn.
const WANTING_PER_FLUSH: usize = 32;
/// How many are asked to give back at once.
const RECALLS_MAX: usize = 4;
