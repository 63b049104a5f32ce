//! How circuits begin and end.
//!
//! ```text
//!  -  --setup--> opening --accept--> open --the last frames of both directions--> -
//!                   |                  |
//!                   +------ reset, or the end of a link: ending, until what was sent before has gone on ------> -
//! ```
//!
//! A request travels from monitor to monitor in the control lane, by the routing table, and carries a label for the way
//! back. The acceptance carries one for the way there. If the next monitor has ended, or has no way, the request tries
//! the next neighbour that it has not tried, unless the service has sent something already. An end that closes or dies:
//! what it had sent goes on first; then a reset goes to the other end, and says how many lines come before it.
//!
//! Neither end of a circuit is acknowledged. Who forgets a circuit tells its other side, once; what still comes for a
//! label that is gone is ignored.

use crate::wire::credit::{Intake, RESERVE_LINES, is_after};
use crate::wire::packet::{End, Origin, Packet, Reset, Setup};
use crate::wire::{Label, NodeId, NodeSet, PATH_MAX};

use super::circuit::{At, CLIENT, Circuit, Ending, LinkId, Parties, Phase, SERVICE, Side, state};
use super::forward::{KEPT_FOR_NEW, RESERVED_LINES};
use super::machine::{Node, Wires};
use super::neighbour::{Need, Neighbour, Violation};
use super::policy::Act;
use super::table;

/// Why a circuit is not set up.
struct Refusal {
    end: End,
    reason: String,
}

impl Refusal {
    fn new(end: End, reason: String) -> Self {
        Self { end, reason }
    }
}

impl Node {
    /// A neighbour asks for a circuit.
    pub(crate) fn setup(
        &mut self,
        from: LinkId,
        mut setup: Setup,
        wires: &mut impl Wires,
    ) -> Result<(), Violation> {
        let Some(link) = self.link(from) else { return Ok(()) };
        if setup.label.is_none() || link.setups.contains_key(&setup.label) {
            return Err(Violation::packet("a circuit with the label of another one"));
        }
        let (own_id, label) = (self.id(), setup.label);
        match link.neighbour {
            Neighbour::Program(origin) => {
                // Whatever it says of itself: this is where the circuit begins, and the kernel knows who asks.
                setup.origin = origin;
                setup.path.clear();
                setup.visited = NodeSet::default();
            }
            Neighbour::Monitor(_) if setup.path.is_empty() => {
                return Err(Violation::packet("a circuit that begins nowhere"));
            }
            Neighbour::Monitor(_) => setup.path.iter().for_each(|node| setup.visited.insert(*node)),
        }
        setup.visited.insert(own_id);
        let visited = setup.visited;
        let refusal = match self.admit(from, &mut setup) {
            Ok(()) => self.open(from, setup, wires).err(),
            Err(refusal) => Some(refusal),
        };
        if let Some(Refusal { end, reason }) = refusal {
            self.counts.refused += 1;
            let reset = Reset { to: label, from: Label::NONE, after: None, end, visited, reason };
            wires.packet(from, Packet::Reset(Box::new(reset)), Default::default());
        }
        Ok(())
    }

    /// Whether there is room for a circuit, and a rule that allows it.
    fn admit(&self, from: LinkId, setup: &mut Setup) -> Result<(), Refusal> {
        let origin = setup.origin;
        let is_edge =
            matches!(self.link(from).map(|link| link.neighbour), Some(Neighbour::Program(_)))
                || self.names.local(&setup.service).is_some();
        if is_edge {
            let checked = self.config.policy.check(Act::Bind, &setup.service, origin);
            checked.map_err(|reason| Refusal::new(End::NotPermitted, reason))?;
        }
        let full = |reason| Refusal::new(End::Full, reason);
        let (count, max) = (self.circuits.len(), self.config.circuits_max);
        if count >= max {
            return Err(full(format!(
                "monitor {} has {max} circuits, as many as it can have",
                self.id()
            )));
        }
        let (uid, of_user) = (origin.uid, self.users.get(&origin.uid).copied().unwrap_or_default());
        let is_foreign = uid != self.config.policy.owner;
        let max = self.config.circuits_of_user_max;
        if is_foreign && of_user.circuit_count >= max {
            return Err(full(format!("user {uid} has {max} circuits, as many as it can have")));
        }
        let max = self.config.offer_bytes_of_user_max;
        if is_foreign && of_user.offer_bytes + setup.offer.len() > max {
            let bytes = of_user.offer_bytes;
            return Err(full(format!(
                "{bytes} bytes of requests of user {uid} wait for an answer: at most {max} can"
            )));
        }
        if self.has_no_line_for_one_more() {
            let lines = self.config.lines_max;
            return Err(full(format!("monitor {} has lent all of its {lines} lines", self.id())));
        }
        // Not the neighbour's fault: another one before it may have said so.
        if setup.path.contains(&self.id()) {
            let reason = format!("the way goes through monitor {} already", self.id());
            return Err(Refusal::new(End::Unreachable, reason));
        }
        if setup.path.len() >= PATH_MAX {
            let reason = format!("the way has more than {PATH_MAX} monitors");
            return Err(Refusal::new(End::Unreachable, reason));
        }
        setup.path.push(self.id());
        Ok(())
    }

    fn has_no_line_for_one_more(&self) -> bool {
        let lines = (self.circuits.len() + 1) * RESERVED_LINES + self.lent_lines;
        lines > self.config.lines_max && !self.reserves_nothing()
    }

    /// Opens a circuit that has been admitted, and asks the next neighbour on its way.
    fn open(&mut self, from: LinkId, setup: Setup, wires: &mut impl Wires) -> Result<(), Refusal> {
        let next = self.next(&setup, from)?;
        let bytes = wires.waiting_bytes(next);
        if bytes > self.waiting_bytes_max(next) {
            let reason =
                format!("{bytes} bytes wait for the next process on the way to {}", setup.service);
            return Err(Refusal::new(End::Full, reason));
        }
        // Before the lines that are kept for new circuits have been used up.
        if self.free_lines() < self.config.lines_max / KEPT_FOR_NEW {
            self.recall();
        }
        let mut client = Side::new(from);
        client.label_out = setup.label;
        client.outflow.raise(setup.credit);
        client.intake = self.first_intake();
        let intake = self.first_intake();
        let service_side = Side { intake, ..Side::new(next) };
        let home = setup.path.first().copied().unwrap_or(self.id());
        let service = self.names.shared(&setup.service);
        let parties = Parties { service, origin: setup.origin, home };
        let (label, offer_bytes) = (setup.label, setup.offer.len());
        let circuit = Circuit {
            sides: [client, service_side],
            phase: Phase::Opening(Box::new(setup)),
            parties,
        };
        let uid = circuit.parties.origin.uid;
        let index = self.circuits.add(circuit);
        let index =
            index.ok_or_else(|| Refusal::new(End::Full, "there is no label left".to_owned()))?;
        let user = self.users.entry(uid).or_default();
        user.circuit_count += 1;
        user.offer_bytes += offer_bytes;
        self.attach(At::of(index, CLIENT));
        self.attach(At::of(index, SERVICE));
        if let Some(link) = self.link_mut(from) {
            link.setups.insert(label, u32::try_from(index).unwrap_or(u32::MAX));
        }
        self.ask(index, wires);
        Ok(())
    }

    fn first_intake(&mut self) -> Intake {
        if !self.reserves_nothing() {
            return Intake::new(RESERVE_LINES);
        }
        // The first circuit has all there is.
        let taken = self.lent_lines / 14 * 16;
        let window = if taken + 16 <= self.config.lines_max { 16 } else { 0 };
        self.lent_lines += if window == 16 { 14 } else { 0 };
        Intake::new(window)
    }

    /// Sends the request on to the neighbour that was chosen.
    fn ask(&mut self, index: usize, wires: &mut impl Wires) {
        let at = At::of(index, SERVICE);
        let label = self.new_label(at, wires);
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Phase::Opening(setup) = &circuit.phase else { return };
        let side = &mut circuit.sides[SERVICE];
        side.label_in = label;
        let credit = side.intake.latest();
        let setup = Setup { label, credit, ..(**setup).clone() };
        wires.packet(side.link, Packet::Setup(Box::new(setup)), Default::default());
    }

    fn new_label(&self, at: At, wires: &mut impl Wires) -> Label {
        Label::new(wires.random(), at.0)
    }

    /// The neighbour to ask: the program that serves the name here, or the monitor that comes next on the way, or
    /// another one that has not been tried.
    fn next(&self, setup: &Setup, from: LinkId) -> Result<LinkId, Refusal> {
        let is_here = setup.node.is_none_or(|node| node == self.id());
        if let Some(link) = self.names.local(&setup.service).filter(|_| is_here) {
            return Ok(link);
        }
        let wanted = |node: &NodeId| setup.node.is_none_or(|wanted| wanted == *node);
        let nodes =
            || self.names.nodes_of(&setup.service).filter(wanted).filter(|node| *node != self.id());
        if nodes().next().is_none() {
            let reason = match setup.node {
                Some(node) => format!("nobody serves {} at monitor {node}", setup.service),
                None => format!("nobody serves {}", setup.service),
            };
            return Err(Refusal::new(End::NotFound, reason));
        }
        let usable = |node: NodeId| {
            let link = self.link_of(node).filter(|link| *link != from);
            let is_closing = |link: LinkId| {
                self.link(link)
                    .is_some_and(|it| it.need == Need::Offered && !self.uses_offered_links())
            };
            link.filter(|link| !setup.visited.contains(node) && !is_closing(*link))
        };
        let next = |to| table::next_hop(&self.table, self.id(), to);
        if let Some(link) = nodes().find_map(|to| next(to).and_then(usable)) {
            return Ok(link);
        }
        let others = self.monitors.keys().filter(|node| self.is_neighbour(**node));
        others.copied().find_map(usable).ok_or_else(|| {
            let reason = format!("monitor {} has no way to {} left", self.id(), setup.service);
            Refusal::new(End::Unreachable, reason)
        })
    }

    /// The circuit is open from the service to here.
    pub(crate) fn accept(
        &mut self,
        from: LinkId,
        [to, label]: [Label; 2],
        credit: u32,
        (origin, answer): (Origin, Vec<u8>),
        wires: &mut impl Wires,
    ) -> Result<(), Violation> {
        let Some(at) = self.find(from, to) else { return Ok(()) };
        let own_label = self.new_label(At::of(at.circuit(), CLIENT), wires);
        let Some(circuit) = self.circuits.get_mut(at.circuit()) else { return Ok(()) };
        let not_asked = Violation::packet("it accepted what it was not asked for");
        let Phase::Opening(setup) = &circuit.phase else { return Err(not_asked) };
        if at.side() != SERVICE || label.is_none() {
            return Err(not_asked);
        }
        let (uid, offer_bytes) = (circuit.parties.origin.uid, setup.offer.len());
        circuit.phase = Phase::Open;
        let [client, service] = &mut circuit.sides;
        service.label_out = label;
        service.outflow.raise(credit);
        client.label_in = own_label;
        let credit = client.intake.latest();
        let packet =
            Packet::Accept { to: client.label_out, label: own_label, credit, origin, answer };
        wires.packet(client.link, packet, Default::default());
        self.counts.opened += 1;
        self.forget_offer(uid, offer_bytes);
        // Words that could not be sent before.
        for side in [at, at.other()] {
            if self.circuits.side(side).is_some_and(|side| side.intake.is_due()) {
                self.make_due(side, 0);
            }
        }
        self.end_if_finished(at.circuit());
        Ok(())
    }

    /// A neighbour has ended a circuit.
    pub(crate) fn reset(&mut self, from: LinkId, reset: Reset, wires: &mut impl Wires) {
        let at = match reset.to.is_none() {
            false => self.find(from, reset.to),
            // It does not know the label yet: it has asked for the circuit.
            true => {
                let index = self.link(from).and_then(|link| link.setups.get(&reset.from));
                index.map(|index| At::of(*index as usize, CLIENT))
            }
        };
        let Some(at) = at else { return };
        let Some(circuit) = self.circuits.get_mut(at.circuit()) else { return };
        match &mut circuit.phase {
            Phase::Opening(setup) if at.side() == SERVICE => {
                setup.visited.extend(&reset.visited);
                self.refused(at.circuit(), reset.end, reset.reason, wires);
            }
            Phase::Ending(ending) if ending.from == at => {}
            // Now both ends have.
            Phase::Ending(_) => self.remove(at.circuit()),
            _ => self.end(at, reset, wires),
        }
    }

    /// The neighbour that was asked does not open the circuit. Another one may.
    fn refused(&mut self, index: usize, end: End, reason: String, wires: &mut impl Wires) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Phase::Opening(setup) = &circuit.phase else { return };
        // What the service has sent already went to the client: it must not come twice.
        let is_untouched = circuit.sides[SERVICE].intake.taken_lines() == 0;
        let (setup, from) = (setup.clone(), circuit.sides[CLIENT].link);
        // A program's refusal is final: it would be asked again and again.
        let asked = circuit.sides[SERVICE].link;
        let is_monitor = matches!(
            self.link(asked).map(|link| link.neighbour),
            Some(Neighbour::Monitor(_)) | None
        );
        if end.may_go_around()
            && is_monitor
            && is_untouched
            && let Ok(link) = self.next(&setup, from)
        {
            self.detach(At::of(index, SERVICE));
            let intake = self.first_intake();
            if let Some(circuit) = self.circuits.get_mut(index) {
                circuit.sides[SERVICE] = Side { intake, ..Side::new(link) };
            }
            self.attach(At::of(index, SERVICE));
            self.ask(index, wires);
            return;
        }
        self.counts.refused += 1;
        self.send_end(At::of(index, CLIENT), None, (end, &reason), setup.visited, wires);
        self.remove(index);
    }

    /// One side has ended an open circuit, or has given up one that is opening.
    fn end(&mut self, at: At, reset: Reset, wires: &mut impl Wires) {
        let Reset { after, end, reason, .. } = reset;
        let index = at.circuit();
        if self.forgets_alone() {
            return self.remove(index);
        }
        let is_abrupt = after.is_none() || self.reset_overtakes();
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        if is_abrupt || matches!(circuit.phase, Phase::Opening(_)) {
            self.send_end(at.other(), None, (end, &reason), NodeSet::default(), wires);
            return self.remove(index);
        }
        circuit.phase = Phase::Ending(Box::new(Ending { from: at, after, end, reason }));
        self.drop_queue(at);
        self.try_finish(index, wires);
    }

    /// The neighbour on one side of a circuit is gone, after everything that it had sent has come.
    pub(crate) fn side_gone(&mut self, at: At, end: End, reason: &str, wires: &mut impl Wires) {
        let index = at.circuit();
        self.drop_queue(at);
        self.detach(at);
        let forgets = self.forgets_alone();
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let reason = reason.to_owned();
        match &mut circuit.phase {
            _ if forgets => self.remove(index),
            Phase::Opening(_) if at.side() == SERVICE => self.refused(index, end, reason, wires),
            Phase::Opening(_) => {
                self.send_end(at.other(), None, (end, &reason), NodeSet::default(), wires);
                self.remove(index);
            }
            Phase::Ending(ending) if ending.from == at => {
                // Nothing more can come, and if something is missing, it has not ended as it said.
                let taken = circuit.sides[at.side()].intake.taken_lines();
                if ending.after.take().is_some_and(|after| is_after(after, taken)) {
                    (ending.end, ending.reason) = (end, reason);
                }
                self.try_finish(index, wires);
            }
            Phase::Ending(_) => self.remove(index),
            Phase::Open => {
                circuit.phase =
                    Phase::Ending(Box::new(Ending { from: at, after: None, end, reason }));
                self.try_finish(index, wires);
            }
        }
    }

    /// Drops what waits to go to a side.
    fn drop_queue(&mut self, at: At) {
        let Some(side) = self.circuits.side_mut(at) else { return };
        side.set(state::GONE);
        let mut queue = std::mem::replace(&mut side.queue, super::store::Queue::EMPTY);
        let mut lines = 0;
        while let Some(popped) = self.store.pop(&mut queue) {
            lines += popped;
        }
        if let Some(far) = self.circuits.side_mut(at.other()) {
            far.intake.release(lines);
        }
    }

    /// Ends a circuit of which one side has gone, once everything that side had sent has gone on.
    pub(crate) fn try_finish(&mut self, index: usize, wires: &mut impl Wires) {
        let Some(circuit) = self.circuits.get(index) else { return };
        let Phase::Ending(ending) = &circuit.phase else { return };
        let (near, far) = (ending.from, ending.from.other());
        let taken = circuit.sides[near.side()].intake.taken_lines();
        if ending.after.is_some_and(|after| is_after(after, taken)) {
            return;
        }
        let far_side = &circuit.sides[far.side()];
        if !far_side.queue.is_empty() && far_side.is_reachable() {
            return;
        }
        let (end, reason) = (ending.end, ending.reason.clone());
        let after = Some(far_side.outflow.sent_lines());
        self.send_end(far, after, (end, &reason), NodeSet::default(), wires);
        self.remove(index);
    }

    /// Ends a circuit from here.
    pub(crate) fn end_both(
        &mut self,
        index: usize,
        end: End,
        reason: &str,
        wires: &mut impl Wires,
    ) {
        for side in [CLIENT, SERVICE] {
            let at = At::of(index, side);
            self.send_end(at, None, (end, reason), NodeSet::default(), wires);
            self.drop_queue(at);
        }
        self.remove(index);
    }

    /// Tells a side that the circuit has ended.
    fn send_end(
        &self,
        at: At,
        after: Option<u32>,
        (end, reason): (End, &str),
        visited: NodeSet,
        wires: &mut impl Wires,
    ) {
        let Some(side) = self.circuits.side(at) else { return };
        if side.has(state::GONE) || side.link == LinkId::NONE {
            return;
        }
        let (to, from, reason) = (side.label_out, side.label_in, reason.to_owned());
        let reset = Reset { to, from, after, end, visited, reason };
        wires.packet(side.link, Packet::Reset(Box::new(reset)), Default::default());
    }
}
