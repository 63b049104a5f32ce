//! Every state that a small world can reach.

use std::collections::{HashSet, VecDeque};

use corewire_circuit::node::Mistake;

use crate::circuits::world::{Party, World};

/// What may happen in the worlds that are explored.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Circuits that are opened, by program 0 and, if there are two, by program 1.
    pub circuits: usize,
    /// Messages from each client, and from each service.
    pub messages: [u32; 2],
    /// Bytes of each message, besides its number.
    pub bytes: usize,
    /// Whether ends may close at any time.
    pub may_close: bool,
    /// Whether ends may say that they send nothing more.
    pub may_finish: bool,
    /// Whether a service may refuse.
    pub may_refuse: bool,
    /// Links that may break.
    pub breaks: usize,
    /// Lines of memory at each monitor.
    pub lines_max: usize,
    /// Frames that a data lane holds.
    pub frames_max: usize,
    /// Monitors between client and service.
    pub monitors: usize,
    /// A mistake that the monitors make.
    pub mistake: Option<Mistake>,
}

impl Limits {
    /// One circuit through two monitors.
    #[must_use]
    pub const fn one_circuit() -> Self {
        Self {
            circuits: 1,
            messages: [2, 1],
            bytes: 0,
            may_close: true,
            may_finish: true,
            may_refuse: true,
            breaks: 1,
            lines_max: 64,
            frames_max: 2,
            monitors: 2,
            mistake: None,
        }
    }
}

/// What may happen next.
#[derive(Debug, Clone, Copy)]
enum Step {
    Open(usize),
    Answer(usize, bool),
    Send(usize, usize),
    Take(usize, usize),
    Finish(usize, usize),
    Close(usize, usize),
    Deliver(usize, usize, usize),
    Flush(Party),
    Break(usize),
    See(usize, usize),
}

fn start(limits: &Limits) -> World {
    let mut world = World::new(limits.monitors, limits.lines_max, 1, limits.mistake);
    for monitor in 1..limits.monitors {
        world.join(monitor - 1, monitor, limits.frames_max);
    }
    for _ in 0..limits.circuits {
        world.start_program(0, limits.frames_max);
    }
    let service = world.start_program(limits.monitors - 1, limits.frames_max);
    world.export(service, "s");
    world.settle();
    world
}

fn steps(world: &World, limits: &Limits) -> Vec<Step> {
    let mut steps = Vec::new();
    if world.circuits() < limits.circuits && world.is_program_running(world.circuits()) {
        steps.push(Step::Open(world.circuits()));
    }
    let service = limits.circuits;
    if world.has_waiting(service) {
        steps.push(Step::Answer(service, true));
        if limits.may_refuse {
            steps.push(Step::Answer(service, false));
        }
    }
    for circuit in 0..world.circuits() {
        for side in 0..2 {
            if world.can_send(circuit, side) {
                if world.sent(circuit, side) < limits.messages[side] {
                    steps.push(Step::Send(circuit, side));
                }
                if limits.may_finish {
                    steps.push(Step::Finish(circuit, side));
                }
            }
            if world.has_untaken(circuit, side) {
                steps.push(Step::Take(circuit, side));
            }
            if limits.may_close && world.has_end(circuit, side) {
                steps.push(Step::Close(circuit, side));
            }
        }
    }
    let mut breaks = 0;
    for edge in 0..world.edges() {
        breaks += usize::from(!world.is_alive(edge));
        for side in 0..2 {
            for lane in 0..2 {
                if world.has_on_way(edge, side, lane) {
                    steps.push(Step::Deliver(edge, side, lane));
                }
            }
            if world.can_see_break(edge, side) {
                steps.push(Step::See(edge, side));
            }
        }
    }
    if breaks < limits.breaks {
        steps.extend((0..world.edges()).filter(|edge| world.is_alive(*edge)).map(Step::Break));
    }
    let monitors = (0..limits.monitors).map(Party::Monitor);
    let parties = monitors.chain((0..=limits.circuits).map(Party::Program));
    steps.extend(parties.filter(|party| world.can_flush(*party)).map(Step::Flush));
    steps
}

fn take(world: &mut World, step: Step, limits: &Limits) {
    match step {
        Step::Open(program) => _ = world.open(program, "s"),
        Step::Answer(program, accepts) => world.answer(program, accepts),
        Step::Send(circuit, side) => world.send(circuit, side, limits.bytes),
        Step::Take(circuit, side) => world.take(circuit, side),
        Step::Finish(circuit, side) => world.finish(circuit, side),
        Step::Close(circuit, side) => world.close(circuit, side),
        Step::Deliver(edge, side, lane) => world.deliver(edge, side, lane),
        Step::Flush(party) => world.flush(party),
        Step::Break(edge) => world.break_link(edge),
        Step::See(edge, side) => world.see_break(edge, side),
    }
}

/// Walks through all states, at most `states_max`, and ends each run in which nothing more happens by itself. Returns
/// how many states there are, and whether those were all.
///
/// # Panics
/// A promise is broken; the message tells the steps that lead there.
#[must_use]
pub fn explore(limits: &Limits, states_max: usize) -> (usize, bool) {
    let first = start(limits);
    let mut seen = HashSet::from([first.fingerprint()]);
    let mut waiting = VecDeque::from([(first, Vec::<Step>::new())]);
    while let Some((world, path)) = waiting.pop_front() {
        let told = Told(&path);
        world.check_books();
        // What happens without the programs must always end well.
        let mut rest = world.clone();
        rest.settle();
        rest.check_settled();
        rest.end_all();
        for step in steps(&world, limits) {
            let mut next = world.clone();
            let mut longer = path.clone();
            longer.push(step);
            let told = Told(&longer);
            take(&mut next, step, limits);
            drop(told);
            if seen.insert(next.fingerprint()) {
                waiting.push_back((next, longer));
            }
        }
        drop(told);
        if seen.len() >= states_max {
            return (seen.len(), false);
        }
    }
    (seen.len(), true)
}

/// Tells the steps if a check fails.
struct Told<'a>(&'a [Step]);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:?}", self.0);
        }
    }
}
