//! A node: what a monitor is, without input and output. Its neighbours, and what it decides of links and names.
//!
//! More than 600 lines, because the table of circuits, its neighbours and the memory that is lent to them change together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use corewire_layout::name::ChannelName;

use super::circuit::{At, CLIENT, Circuits, LinkId, Phase, SERVICE, state};
use super::config::Config;
use super::names::Names;
use super::neighbour::{Down, Need, Neighbour, NeighbourLink, Violation};
use super::policy::{Act, Policy};
use super::store::Store;
use super::table;
use crate::wire::packet::{End, Origin, Packet, Table};
use crate::wire::{Hop, Label, NodeId};

/// What carries a node's frames and packets to its neighbours. The node never waits for it.
pub trait Wires {
    /// What travels in a packet beside its bytes: descriptors. Dropping it closes them.
    type Rights: Default;

    /// Sends a frame in the data lane. False if there is no room now, and the frame was not sent.
    fn frame(&mut self, link: LinkId, label: Label, hop: Hop, payload: &[u8]) -> bool;

    /// Sends a packet in the control lane, or keeps it until there is room.
    fn packet(&mut self, link: LinkId, packet: Packet, rights: Self::Rights);

    /// Neither side needs this link any more: ends it, once what was sent has gone.
    fn close(&mut self, link: LinkId);

    /// A frame has come, with which so many lines of its circuit have.
    fn received(&mut self, _label: Label, _lines: u32) {}

    /// A frame has gone, with which so many lines of its circuit have.
    fn sent(&mut self, _label: Label, _lines: u32, _ordinal: u16, _bytes: usize) {}

    /// Bytes of packets that wait for the neighbour to read.
    fn waiting_bytes(&self, _link: LinkId) -> usize {
        0
    }

    /// Random bits that nobody can guess.
    fn random(&mut self) -> u64;
}

/// Names that one program can serve, and all programs of one user other than the monitor's.
const NAMES_OF_PROGRAM_MAX: usize = 1024;
/// Frames of unknown circuits, beyond those that may be late, for which a neighbour is cut.
pub(crate) const UNKNOWN_MAX: u32 = 16;
/// Frames without lines that may be on their way when a circuit ends.
pub(crate) const LATE_WORDS: u64 = 8;

/// What a node has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Frames that were forwarded at once.
    pub forwarded: u64,
    /// Frames that waited in memory.
    pub stored: u64,
    /// Frames of unknown circuits that were ignored.
    pub unknown: u64,
    /// Circuits that were set up.
    pub opened: u64,
    /// Circuits that were refused here.
    pub refused: u64,
    /// Circuits that ended because a link did.
    pub lost: u64,
    /// Recalls of lent lines.
    pub recalls: u64,
}

/// What a user has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OfUser {
    pub(crate) circuit_count: usize,
    /// Bytes of requests that have not been answered.
    pub(crate) offer_bytes: usize,
}

/// A monitor's table of circuits, and everything that it decides.
#[derive(Debug, Clone)]
pub struct Node {
    pub(crate) config: Config,
    pub(crate) links: Vec<Option<NeighbourLink>>,
    pub(crate) monitors: BTreeMap<NodeId, LinkId>,
    pub(crate) circuits: Circuits,
    pub(crate) store: Store,
    pub(crate) names: Names,
    pub(crate) table: Table,
    /// Links with something to send.
    pub(crate) ready: VecDeque<LinkId>,
    /// Lines that are lent.
    pub(crate) lent_lines: usize,
    /// Sides that have borrowed, the first to be asked first; and some of circuits that are gone.
    pub(crate) borrowers: VecDeque<At>,
    /// Sides that would borrow, and how many of them have not been looked at since lines were given back.
    pub(crate) wanting: VecDeque<At>,
    pub(crate) wanting_due: usize,
    /// Lines that are lent to programs of other users.
    pub(crate) foreign_loan_lines: usize,
    /// What each user has.
    pub(crate) users: BTreeMap<u32, OfUser>,
    pub(crate) counts: Counts,
    epoch: u64,
    /// The monitors that run, as the caller has said.
    running: BTreeSet<NodeId>,
    /// A link that the table does not need has no circuit any more.
    is_unused: bool,
}

impl Node {
    /// A node without neighbours.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let (epoch, id) = (config.epoch, config.id);
        let mut names = Names::default();
        names.apply("", id, epoch, false);
        Self {
            config,
            links: Vec::new(),
            monitors: BTreeMap::new(),
            circuits: Circuits::default(),
            store: Store::new(),
            names,
            table: Table::default(),
            ready: VecDeque::new(),
            lent_lines: 0,
            borrowers: VecDeque::new(),
            wanting: VecDeque::new(),
            wanting_due: 0,
            foreign_loan_lines: 0,
            users: BTreeMap::new(),
            counts: Counts::default(),
            epoch,
            running: BTreeSet::new(),
            is_unused: false,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> NodeId {
        self.config.id
    }

    /// Sets who may do what from now on. What is open, or served, stays.
    pub fn set_policy(&mut self, policy: Policy) {
        self.config.policy = policy;
    }

    /// What it has done so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// How many circuits there are.
    #[must_use]
    pub fn circuit_count(&self) -> usize {
        self.circuits.len()
    }

    /// Frees what its lists have room for and do not hold. For when many circuits have gone.
    pub fn give_back_memory(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.active.shrink_to_fit();
            link.due.shrink_to_fit();
        }
        for list in [&mut self.borrowers, &mut self.wanting] {
            list.shrink_to_fit();
        }
        self.ready.shrink_to_fit();
    }

    /// Lines that hold frames now.
    #[must_use]
    pub fn stored_lines(&self) -> usize {
        self.store.used_lines()
    }

    /// The routing table.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// A neighbour has come. Once the caller knows the link, [`introduce`](Self::introduce) it.
    pub fn link_up(&mut self, neighbour: Neighbour) -> LinkId {
        let place = self.links.iter().position(Option::is_none).unwrap_or(self.links.len());
        if place == self.links.len() {
            self.links.push(None);
        }
        let link = LinkId::new(place);
        self.links[place] = Some(NeighbourLink {
            neighbour,
            first: At::NONE,
            circuit_count: 0,
            active: VecDeque::new(),
            due: VecDeque::new(),
            is_ready: false,
            setups: BTreeMap::new(),
            late_count: 0,
            unknown_count: 0,
            loan_lines: 0,
            is_leaving: false,
            need: Need::Open,
        });
        if let Neighbour::Monitor(node) = neighbour {
            self.monitors.entry(node).or_insert(link);
        }
        link
    }

    /// Tells a new neighbour, if it is a monitor, what this one knows.
    pub fn introduce(&self, link: LinkId, wires: &mut impl Wires) {
        let neighbour = self.link(link).map(|link| link.neighbour);
        if let Some(Neighbour::Monitor(_)) = neighbour {
            wires.packet(link, Packet::Table(self.table.clone()), Default::default());
            for packet in self.names.packets() {
                wires.packet(link, packet, Default::default());
            }
        }
    }

    /// A neighbour has gone, and everything that it had sent has been given to the node.
    pub fn link_down(&mut self, link: LinkId, how: &Down, wires: &mut impl Wires) {
        let Some(gone) = self.link(link) else { return };
        let who = match gone.neighbour {
            Neighbour::Program(origin) => format!("process {}", origin.pid),
            Neighbour::Monitor(node) => format!("monitor {node}"),
        };
        let reason = match how {
            Down::CutOff(why) => format!("{who} was cut off: {why}"),
            Down::Failed(why) => format!("the link to {who} has failed: {why}"),
            _ if gone.is_leaving => format!("{who} has closed it"),
            Down::Died => format!("{who} has ended"),
            Down::Closed => format!("{who} has closed its connection"),
        };
        let end = match (gone.neighbour, how) {
            (Neighbour::Monitor(_), _) | (_, Down::Failed(_)) => End::Lost,
            (_, Down::CutOff(_)) => End::Violation,
            (_, Down::Died) if !gone.is_leaving => End::Died,
            (_, Down::Died | Down::Closed) => End::Closed,
        };
        if let Neighbour::Monitor(node) = gone.neighbour
            && self.monitors.get(&node) == Some(&link)
        {
            self.monitors.remove(&node);
            // There may be another link to it.
            let is_other = |(_, other): &(usize, &Option<NeighbourLink>)| {
                other.as_ref().is_some_and(|other| other.neighbour == Neighbour::Monitor(node))
            };
            let others = self.links.iter().enumerate().filter(is_other);
            let other = others.map(|(index, _)| LinkId::new(index)).find(|other| *other != link);
            if let Some(other) = other {
                self.monitors.insert(node, other);
            }
        }
        let names = self.names.locals().filter(|(_, served_by)| *served_by == link);
        for name in names.map(|(name, _)| name.to_string()).collect::<Vec<_>>() {
            self.withdraw(&name, wires);
        }
        let mut at = self.link(link).map_or(At::NONE, |gone| gone.first);
        while at != At::NONE {
            self.counts.lost += 1;
            self.side_gone(at, end, &reason, wires);
            at = self.link(link).map_or(At::NONE, |gone| gone.first);
        }
        if let Some(place) = self.links.get_mut(link.index()) {
            *place = None;
        }
        self.ready.retain(|ready| *ready != link);
    }

    /// A packet has come in a control lane.
    ///
    /// # Errors
    /// The neighbour did what it must not: end the link.
    pub fn packet<W: Wires>(
        &mut self,
        from: LinkId,
        packet: Packet,
        rights: W::Rights,
        wires: &mut W,
    ) -> Result<(), Violation> {
        let Some(link) = self.link(from) else { return Ok(()) };
        let neighbour = link.neighbour;
        match (packet, neighbour) {
            (Packet::Setup(setup), _) => self.setup(from, *setup, wires),
            (Packet::Accept { to, label, credit, mut origin, answer }, _) => {
                if let Neighbour::Program(program) = neighbour {
                    origin = program;
                }
                self.accept(from, [to, label], credit, (origin, answer), wires)
            }
            (Packet::Reset(reset), _) => {
                self.reset(from, *reset, wires);
                Ok(())
            }
            (Packet::Capabilities { to, is_lost, notes }, _) => {
                self.capabilities(from, to, (is_lost, notes), rights, wires)
            }
            (Packet::Leave, Neighbour::Program(_)) => {
                if let Some(link) = self.link_mut(from) {
                    link.is_leaving = true;
                }
                Ok(())
            }
            (Packet::Export { name }, Neighbour::Program(origin)) => {
                let reason = self.export(&name, from, origin, wires).err().unwrap_or_default();
                wires.packet(from, Packet::Exported { name, reason }, Default::default());
                Ok(())
            }
            (Packet::Name { name, node, epoch, is_served }, Neighbour::Monitor(_)) => {
                if ChannelName::new(&name).is_err() && !name.is_empty() {
                    return Err(Violation::packet("a name that is none"));
                }
                if node != self.id() && self.names.apply(&name, node, epoch, is_served) {
                    self.send_to_monitors(
                        &Packet::Name { name, node, epoch, is_served },
                        Some(from),
                        wires,
                    );
                }
                Ok(())
            }
            (Packet::Unneeded, Neighbour::Monitor(node)) if node > self.id() => {
                let ends = self.is_settled() && self.is_unneeded(from, node);
                if let Some(link) = self.link_mut(from) {
                    link.need = if ends { Need::Offered } else { Need::Refused };
                }
                match ends {
                    true => wires.close(from),
                    false => wires.packet(from, Packet::Needed, Default::default()),
                }
                Ok(())
            }
            (Packet::Unneeded, Neighbour::Monitor(_)) => {
                if let Some(link) = self.link_mut(from).filter(|link| link.need == Need::Kept) {
                    link.need = Need::Open;
                    self.is_unused = true;
                }
                Ok(())
            }
            (Packet::Needed, Neighbour::Monitor(_)) => {
                if let Some(link) = self.link_mut(from).filter(|link| link.need == Need::Offered) {
                    link.need = Need::Kept;
                }
                Ok(())
            }
            (Packet::Table(table), Neighbour::Monitor(_)) => {
                table::check(&table).map_err(|_| Violation::packet("a table that is none"))?;
                if table::is_newer(&table, &self.table) {
                    self.adopt(table, Some(from), wires);
                }
                Ok(())
            }
            _ => Err(Violation::packet("a packet that it may not send")),
        }
    }

    /// Adopts a routing table from here on, as the newest. Circuits that are open keep their way.
    ///
    /// # Errors
    /// It is none.
    pub fn set_table(
        &mut self,
        mut table: Table,
        wires: &mut impl Wires,
    ) -> Result<(), table::TableError> {
        table::check(&table)?;
        table.version = self.table.version.saturating_add(1);
        self.adopt(table, None, wires);
        Ok(())
    }

    fn adopt(&mut self, table: Table, from: Option<LinkId>, wires: &mut impl Wires) {
        self.table = table;
        for link in self.links.iter_mut().flatten().filter(|link| link.need == Need::Kept) {
            link.need = Need::Open;
        }
        self.send_to_monitors(&Packet::Table(self.table.clone()), from, wires);
    }

    fn send_to_monitors(&self, packet: &Packet, except: Option<LinkId>, wires: &mut impl Wires) {
        for (index, link) in self.links.iter().enumerate() {
            let id = LinkId::new(index);
            let is_monitor = |link: &NeighbourLink| matches!(link.neighbour, Neighbour::Monitor(_));
            if link.as_ref().is_some_and(is_monitor) && Some(id) != except {
                wires.packet(id, packet.clone(), Default::default());
            }
        }
    }

    fn export(
        &mut self,
        name: &str,
        link: LinkId,
        origin: Origin,
        wires: &mut impl Wires,
    ) -> Result<(), String> {
        ChannelName::new(name).map_err(|error| error.to_string())?;
        self.config.policy.check(Act::Export, name, origin)?;
        match self.names.local(name) {
            Some(other) if other == link => return Ok(()),
            Some(other) => {
                let pid = self.link(other).map(|other| match other.neighbour {
                    Neighbour::Program(origin) => origin.pid,
                    Neighbour::Monitor(_) => 0,
                });
                return Err(format!("process {} serves {name} already", pid.unwrap_or(0)));
            }
            None => {}
        }
        let count = self.names.locals().filter(|(_, served_by)| *served_by == link).count();
        if count >= NAMES_OF_PROGRAM_MAX {
            return Err(format!("a program can serve {NAMES_OF_PROGRAM_MAX} names"));
        }
        // All names that there can be are for all users of all monitors.
        let is_of_user = |link| {
            let neighbour = self.link(link).map(|link| link.neighbour);
            matches!(neighbour, Some(Neighbour::Program(other)) if other.uid == origin.uid)
        };
        if self.is_foreign(Neighbour::Program(origin))
            && self.names.locals().filter(|(_, link)| is_of_user(*link)).count()
                >= NAMES_OF_PROGRAM_MAX
        {
            let uid = origin.uid;
            return Err(format!("user {uid} can serve {NAMES_OF_PROGRAM_MAX} names"));
        }
        self.names.serve(name, link);
        self.announce_name(name, true, wires);
        Ok(())
    }

    fn withdraw(&mut self, name: &str, wires: &mut impl Wires) {
        self.names.withdraw(name);
        self.announce_name(name, false, wires);
    }

    fn announce_name(&mut self, name: &str, is_served: bool, wires: &mut impl Wires) {
        self.epoch += 1;
        let (node, epoch) = (self.id(), self.epoch);
        self.names.apply(name, node, epoch, is_served);
        let packet = Packet::Name { name: name.to_owned(), node, epoch, is_served };
        self.send_to_monitors(&packet, None, wires);
    }

    /// Offers the end of links that the routing table does not need, and on which no circuit is, to their other sides.
    /// These monitors run: as long as there is no link to one of them that the table needs, the others stay, since
    /// tables and names travel on them.
    pub fn close_unneeded(&mut self, running: BTreeSet<NodeId>, wires: &mut impl Wires) {
        self.running = running;
        if !self.is_settled() {
            return;
        }
        for index in 0..self.links.len() {
            let id = LinkId::new(index);
            let Some(link) = self.link(id) else { continue };
            let Neighbour::Monitor(node) = link.neighbour else { continue };
            let next = match link.need {
                Need::Open if node < self.id() => Need::Offered,
                Need::Refused => Need::Open,
                _ => continue,
            };
            if self.is_unneeded(id, node) {
                if let Some(link) = self.link_mut(id) {
                    link.need = next;
                }
                wires.packet(id, Packet::Unneeded, Default::default());
            }
        }
    }

    /// Whether since the last call a link has lost its last circuit that the table does not need:
    /// [`close_unneeded`](Self::close_unneeded) has something to do.
    pub const fn take_unused(&mut self) -> bool {
        std::mem::replace(&mut self.is_unused, false)
    }

    /// Whether there is a link to each monitor that runs and that the table joins with this one.
    fn is_settled(&self) -> bool {
        self.missing().next().is_none()
    }

    /// The monitors that run and that the table joins with this one, and to which there is no link.
    pub fn missing(&self) -> impl Iterator<Item = NodeId> {
        let running = self.running.iter().copied();
        running.filter(|node| self.is_neighbour(*node) && self.link_of(*node).is_none())
    }

    /// Whether this side needs a link no more. A monitor that has no place in the table keeps one, by which tables come.
    fn is_unneeded(&self, link: LinkId, node: NodeId) -> bool {
        let is_used = self.link(link).is_none_or(|link| link.circuit_count > 0);
        if is_used && !self.ends_used_links() || self.is_neighbour(node) {
            return false;
        }
        // Those whose end was offered may end.
        let stays = |id: LinkId| self.link(id).is_some_and(|link| link.need != Need::Offered);
        let linked = || {
            let stay = self.monitors.iter().filter(|(_, id)| **id == link || stays(**id));
            stay.map(|(node, _)| *node)
        };
        let kept = linked().find(|node| !self.is_outside(*node)).or_else(|| linked().next());
        !self.is_outside(self.id()) || kept != Some(node)
    }

    /// The link of a neighbouring monitor.
    #[must_use]
    pub fn link_of(&self, node: NodeId) -> Option<LinkId> {
        self.monitors.get(&node).copied()
    }

    /// Whether the routing table joins this monitor with another one.
    #[must_use]
    pub fn is_neighbour(&self, node: NodeId) -> bool {
        table::are_neighbours(&self.table, self.id(), node)
    }

    /// Whether a monitor has no place in the routing table: it came later.
    #[must_use]
    pub fn is_outside(&self, node: NodeId) -> bool {
        !table::has_place(&self.table, node)
    }

    pub(crate) fn link(&self, link: LinkId) -> Option<&NeighbourLink> {
        self.links.get(link.index())?.as_ref()
    }

    pub(crate) fn link_mut(&mut self, link: LinkId) -> Option<&mut NeighbourLink> {
        self.links.get_mut(link.index())?.as_mut()
    }

    /// Puts a side into the list of its link's circuits.
    pub(crate) fn attach(&mut self, at: At) {
        let Some(side) = self.circuits.side(at) else { return };
        let (link, lent) = (side.link, side.intake.lent_lines() as usize);
        self.add_loan(link, lent);
        let Some(of_link) = self.link_mut(link) else { return };
        let next = std::mem::replace(&mut of_link.first, at);
        of_link.circuit_count += 1;
        if let Some(side) = self.circuits.side_mut(at) {
            (side.previous, side.next) = (At::NONE, next);
        }
        if let Some(next) = self.circuits.side_mut(next) {
            next.previous = at;
        }
    }

    /// Takes it out. From here on the side has no link, and nothing more comes from it: of what it has borrowed it keeps
    /// what is stored.
    pub(crate) fn detach(&mut self, at: At) {
        let Some(side) = self.circuits.side_mut(at) else { return };
        let link = std::mem::replace(&mut side.link, LinkId::NONE);
        side.set(state::GONE);
        let (previous, next, late) = (side.previous, side.next, side.intake.outstanding_lines());
        let lent = side.intake.lent_lines() as usize;
        let (label, free) = (side.label_out, side.intake.close() as usize);
        self.free_lent(free);
        self.reduce_loan(link, lent);
        let Some(of_link) = self.link_mut(link) else { return };
        of_link.circuit_count -= 1;
        let (is_last, neighbour) = (of_link.circuit_count == 0, of_link.neighbour);
        if at.side() == CLIENT {
            of_link.setups.remove(&label);
        }
        of_link.late_count += u64::from(late) + LATE_WORDS;
        if of_link.first == at {
            of_link.first = next;
        }
        if let Some(previous) = self.circuits.side_mut(previous) {
            previous.next = next;
        }
        if let Some(next) = self.circuits.side_mut(next) {
            next.previous = previous;
        }
        if let (true, Neighbour::Monitor(node)) = (is_last, neighbour) {
            self.is_unused |= !self.is_neighbour(node);
        }
    }

    /// Removes a circuit with everything that it has.
    pub(crate) fn remove(&mut self, index: usize) {
        for at in [At::of(index, CLIENT), At::of(index, SERVICE)] {
            let Some(side) = self.circuits.side(at) else { return };
            let mut queue = side.queue;
            while self.store.pop(&mut queue).is_some() {}
            self.detach(at);
            let kept = self.circuits.side(at).map_or(0, |side| side.intake.lent_lines());
            self.free_lent(kept as usize);
        }
        if let Some(circuit) = self.circuits.remove(index) {
            if let Phase::Opening(setup) = &circuit.phase {
                self.forget_offer(circuit.parties.origin.uid, setup.offer.len());
            }
            let uid = circuit.parties.origin.uid;
            if let Some(user) = self.users.get_mut(&uid) {
                user.circuit_count -= 1;
                if user.circuit_count == 0 {
                    self.users.remove(&uid);
                }
            }
        }
        if self.circuits.len() == 0 {
            self.borrowers = VecDeque::new();
            self.wanting = VecDeque::new();
            self.wanting_due = 0;
        }
    }

    /// A request is not kept any more.
    pub(crate) fn forget_offer(&mut self, uid: u32, bytes: usize) {
        if let Some(user) = self.users.get_mut(&uid) {
            user.offer_bytes -= bytes;
        }
    }

    /// Whether a neighbour is a program of another user than the monitor's.
    pub(crate) const fn is_foreign(&self, neighbour: Neighbour) -> bool {
        matches!(neighbour, Neighbour::Program(origin) if origin.uid != self.config.policy.owner)
    }

    /// Lines are lent to a link.
    pub(crate) fn add_loan(&mut self, link: LinkId, lines: usize) {
        let Some(of_link) = self.link_mut(link) else { return };
        of_link.loan_lines += lines;
        let neighbour = of_link.neighbour;
        self.foreign_loan_lines += if self.is_foreign(neighbour) { lines } else { 0 };
    }

    /// A link has given lines back.
    pub(crate) fn reduce_loan(&mut self, link: LinkId, lines: usize) {
        let Some(of_link) = self.link_mut(link) else { return };
        of_link.loan_lines -= lines;
        let neighbour = of_link.neighbour;
        self.foreign_loan_lines -= if self.is_foreign(neighbour) { lines } else { 0 };
        self.wanting_due = self.wanting.len();
    }

    /// Lines are not lent any more.
    pub(crate) fn free_lent(&mut self, lines: usize) {
        self.lent_lines -= lines;
        self.wanting_due = self.wanting.len();
    }

    /// A link has something to send.
    pub(crate) fn make_ready(&mut self, link: LinkId) {
        if let Some(of_link) = self.link_mut(link)
            && !std::mem::replace(&mut of_link.is_ready, true)
        {
            self.ready.push_back(link);
        }
    }
}
