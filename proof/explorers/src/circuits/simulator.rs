//! Random runs: monitors in any shape, programs that open circuits, talk, are slow, close and die; links that are slow or
//! break, monitors that die and start again.

use corewire_circuit::node::{Mistake, Node, table};
use corewire_circuit::wire::NodeId;
use corewire_circuit::wire::packet::Table;

use crate::circuits::random::Random;
use crate::circuits::world::{Party, Seen, World};

/// What a run is like.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How monitors are joined.
    pub table: Table,
    /// How many there are.
    pub monitors: usize,
    /// Programs at each monitor; the first one serves a name.
    pub programs: usize,
    /// Circuits that are opened in all.
    pub circuits: usize,
    /// Messages that are sent in all, those included for which there is no end that can.
    pub messages: usize,
    /// The longest message.
    pub bytes_max: usize,
    /// Lines of memory at each monitor.
    pub lines_max: usize,
    /// Frames that a data lane holds.
    pub frames_max: usize,
    /// Whether parties die and links break.
    pub has_deaths: bool,
    /// How often there is another table, for which links come and go. Then nothing dies.
    pub changes: usize,
    /// A mistake that the monitors make.
    pub mistake: Option<Mistake>,
}

impl Plan {
    /// A small world from a seed: every shape, little memory, few places in the lanes.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let monitors = 1 + random.below(6);
        let nodes = table::nodes(monitors);
        let table = match random.below(3) {
            0 => Table::default(),
            1 => table::ring(nodes),
            _ => table::fat_tree(&nodes, 1 + random.below(3)),
        };
        let circuits = 1 + random.below(20);
        // Room for all reserves; what there is besides is seldom enough.
        let lines_max = circuits * 4 + random.below(3) * 40;
        Self {
            table,
            monitors,
            programs: 1 + random.below(3),
            circuits,
            messages: random.below(300),
            bytes_max: [1, 40, 300, 9000][random.below(4)],
            lines_max,
            frames_max: [1, 2, 5, 100][random.below(4)],
            has_deaths: random.one_in(2),
            changes: 0,
            mistake: None,
        }
    }

    /// A small world whose table changes up to 20 times.
    #[must_use]
    pub fn with_changes(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xc4a9);
        let monitors = 2 + random.below(7);
        let changes = 1 + random.below(20);
        Self { has_deaths: false, changes, monitors, ..Self::of_seed(seed) }
    }
}

/// Any table of so many monitors, or of some of them.
fn any_table(monitors: usize, random: &mut Random) -> Table {
    let mut nodes = table::nodes(monitors);
    for at in (1..nodes.len()).rev() {
        nodes.swap(at, random.below(at + 1));
    }
    if random.one_in(4) {
        nodes.truncate(1 + random.below(monitors));
    }
    match random.below(3) {
        0 => Table::default(),
        1 => table::ring(nodes),
        _ => table::fat_tree(&nodes, 1 + random.below(4)),
    }
}

impl Plan {
    /// Many monitors in groups of 16, and circuits between programs at random ones of them.
    #[must_use]
    pub fn large(monitors: usize, circuits: usize) -> Self {
        Self {
            table: table::fat_tree(&table::nodes(monitors), 16),
            monitors,
            programs: 2,
            circuits,
            // Tries: ends that cannot send count.
            messages: 20 * circuits,
            bytes_max: 300,
            // Room for the reserves of half of them at one monitor, and not for many loans.
            lines_max: circuits * 2,
            frames_max: 100,
            has_deaths: true,
            changes: 0,
            mistake: None,
        }
    }
}

/// Joins a monitor with its neighbours, one that is alone with the first one, and ends what it does not need. Usually the
/// one with the higher number joins; the other one does if it waits for `long`.
fn tend_links(world: &mut World, plan: &Plan, monitor: usize, is_long: bool) {
    let is_linked = |node: &Node| {
        (0..plan.monitors).any(|other| node.link_of(NodeId::new(other).unwrap()).is_some())
    };
    for other in 0..plan.monitors {
        let id = NodeId::new(other).unwrap();
        let is_due = |node: &Node| {
            let is_first = other == 0 && !is_linked(node);
            (node.is_neighbour(id) || is_first) && node.link_of(id).is_none()
        };
        let may_join = other < monitor || is_long && other != monitor;
        if may_join && world.is_running(other) && world.node(monitor).is_some_and(is_due) {
            world.join(other, monitor, plan.frames_max);
        }
    }
    if world.is_running(monitor) {
        world.close_unneeded(monitor);
    }
}

/// Runs a plan. Panics if anything is not as it must be.
///
/// # Panics
/// A promise is broken.
#[must_use]
pub fn run(plan: &Plan, seed: u64) -> Seen {
    let mut random = Random::new(seed);
    let mut world = World::new(plan.monitors, plan.lines_max, seed ^ 0xabcd, plan.mistake);
    world.set_table(0, plan.table.clone());
    join(&mut world, plan, 0..plan.monitors, &mut random);
    let mut clients = Vec::new();
    for monitor in 0..plan.monitors {
        start_programs(&mut world, plan, monitor, &mut clients);
    }
    world.settle();

    let (mut opened, mut sent, mut rounds, mut changes) = (0, 0, 0, 0);
    while (opened < plan.circuits || sent < plan.messages || changes < plan.changes)
        && rounds < 50_000
    {
        rounds += 1;
        if changes < plan.changes {
            if random.one_in(10) {
                changes += 1;
                let table = any_table(plan.monitors, &mut random);
                world.set_table(random.below(plan.monitors), table);
            }
            let is_long = random.one_in(20);
            tend_links(&mut world, plan, random.below(plan.monitors), is_long);
        }
        if opened < plan.circuits {
            for _ in 0..=random.below(1 + plan.circuits / 50) {
                let client = clients[random.below(clients.len())];
                let name = format!("s{}", random.below(plan.monitors));
                if opened < plan.circuits && world.open(client, &name).is_some() {
                    opened += 1;
                }
            }
        }
        for _ in 0..=random.below(1 + plan.circuits / 10) {
            act(&mut world, plan, &mut sent, &mut random);
        }
        // In a large world as much happens at once.
        let passes = 1 + plan.monitors / 16;
        for _ in 0..passes {
            deliver_some(&mut world, &mut random);
            for _ in 0..3 * passes {
                let program = random.below(clients.len());
                if world.has_waiting(program) {
                    world.answer(program, !random.one_in(10));
                }
            }
        }
        if plan.has_deaths && random.one_in(40) {
            kill_something(&mut world, plan, &mut clients, &mut random);
        }
        if plan.circuits < 100 {
            world.check_books();
        }
    }
    world.settle();
    world.check_settled();
    world.end_all();
    if plan.changes > 0 {
        world.check_none_lost();
        for _ in 0..4 {
            for monitor in 0..plan.monitors {
                tend_links(&mut world, plan, monitor, true);
                world.settle();
            }
        }
        world.check_links();
    }
    world.seen
}

fn start_programs(world: &mut World, plan: &Plan, monitor: usize, clients: &mut Vec<usize>) {
    for program in 0..plan.programs {
        let number = world.start_program(monitor, plan.frames_max);
        clients.push(number);
        if program == 0 {
            world.export(number, &format!("s{monitor}"));
        }
    }
}

/// Joins these monitors with all of their neighbours that run.
fn join(
    world: &mut World,
    plan: &Plan,
    which: impl Iterator<Item = usize> + Clone,
    random: &mut Random,
) {
    for one in which.clone() {
        for other in 0..plan.monitors {
            let is_both = which.clone().any(|also| also == other);
            if other == one || is_both && other < one || !world.is_running(other) {
                continue;
            }
            let [from, to] = [one, other].map(|number| NodeId::new(number).unwrap());
            if table::are_neighbours(&plan.table, from, to) {
                let frames_max = if random.one_in(4) { 1 } else { plan.frames_max };
                world.join(one, other, frames_max);
            }
        }
    }
}

fn act(world: &mut World, plan: &Plan, sent: &mut usize, random: &mut Random) {
    if world.circuits() == 0 {
        return;
    }
    let (circuit, side) = (random.below(world.circuits()), random.below(2));
    match random.below(20) {
        0 if random.one_in(3) => world.close(circuit, side),
        1 if random.one_in(3) => world.finish(circuit, side),
        2..8 => world.take(circuit, side),
        _ if *sent < plan.messages => {
            let length = random.below(plan.bytes_max + 1);
            if world.can_send(circuit, side) {
                world.send(circuit, side, length);
            }
            *sent += 1;
        }
        _ => {}
    }
}

fn deliver_some(world: &mut World, random: &mut Random) {
    let first = random.below(world.edges().max(1));
    for offset in 0..world.edges() {
        let edge = (first + offset) % world.edges();
        for side in 0..2 {
            // Some links are slow.
            let chance = if edge % 5 == 4 { 8 } else { 2 };
            for lane in 0..2 {
                for _ in 0..random.below(4) {
                    if random.one_in(chance) && world.has_on_way(edge, side, lane) {
                        world.deliver(edge, side, lane);
                    }
                }
            }
            if random.one_in(6) {
                let party = world.parties(edge)[side];
                world.flush(party);
            }
            if world.can_see_break(edge, side) && random.one_in(4) {
                world.see_break(edge, side);
            }
        }
    }
}

fn kill_something(world: &mut World, plan: &Plan, clients: &mut Vec<usize>, random: &mut Random) {
    match random.below(4) {
        0 => {
            let monitor = random.below(plan.monitors);
            if world.is_running(monitor) {
                world.kill(Party::Monitor(monitor));
            } else {
                world.start_monitor(monitor);
                // It learns the table from the first neighbour.
                join(world, plan, monitor..monitor + 1, random);
                start_programs(world, plan, monitor, clients);
            }
        }
        1 => {
            let program = random.below(clients.len());
            world.kill(Party::Program(program));
        }
        2 => {
            let edge = random.below(world.edges());
            let is_trunk = |party| matches!(party, Party::Monitor(_));
            if world.is_alive(edge) && world.parties(edge).into_iter().all(is_trunk) {
                world.break_link(edge);
            }
        }
        _ => {}
    }
}
