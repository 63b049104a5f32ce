//! Rings put together into the message flows of ZIMP's macro-benchmarks (section IV-C).

use super::{Ring, Role, Step, Turns};

/// Agreement without failures, each role on a core of its own: the proposer, which is the client, too; the acceptor; and
/// the learners. `make` makes a ring for so many receivers.
///
/// ```text
///  proposer ──▶ acceptor ══▶ learners ──▶ proposer
/// ```
///
/// A message is a decision: the proposer sends it as soon as there is room, and it is done when all learners have answered.
///
/// # Errors
/// Those of `make`.
///
/// # Panics
/// If there are no learners.
pub fn agreement<E>(
    learners: u32,
    mut make: impl FnMut(u32) -> Result<Ring, E>,
) -> Result<Ring, E> {
    let mut whole = make(1)?;
    let (ask, mut acceptor) = ends(&mut whole);
    let (tell, told) = add(&mut whole, make(learners)?);
    acceptor.push(tell);
    let (mut proposer, mut others) = (vec![ask], vec![in_turn(acceptor)]);
    for learn in told {
        let (answer, answered) = add(&mut whole, make(1)?);
        proposer.extend(answered);
        others.push(in_turn(vec![learn, answer]));
    }
    whole.roles.push(Box::new(Any(proposer)));
    whole.roles.extend(others);
    Ok(whole)
}

/// Gathering snapshots, each of so many nodes on a core of its own: node 0 asks all others, and waits for their answers
/// before it asks again. `make` makes a ring for so many receivers.
///
/// # Errors
/// Those of `make`.
///
/// # Panics
/// If there are fewer than two nodes.
pub fn gathering<E>(nodes: u32, mut make: impl FnMut(u32) -> Result<Ring, E>) -> Result<Ring, E> {
    let mut whole = make(nodes - 1)?;
    let (ask, asked) = ends(&mut whole);
    let (mut initiator, mut others) = (vec![ask], Vec::new());
    for asked in asked {
        let (answer, answered) = add(&mut whole, make(1)?);
        initiator.extend(answered);
        others.push(in_turn(vec![asked, answer]));
    }
    whole.roles.push(in_turn(initiator));
    whole.roles.extend(others);
    Ok(whole)
}

/// Takes the ends of a ring: its sender and its receivers.
fn ends(ring: &mut Ring) -> (Box<dyn Role>, Vec<Box<dyn Role>>) {
    let mut roles = std::mem::take(&mut ring.roles).into_iter();
    (roles.next().expect("a ring has a sender"), roles.collect())
}

/// Adds the memory of another ring. Returns the ends of that.
fn add(whole: &mut Ring, mut ring: Ring) -> (Box<dyn Role>, Vec<Box<dyn Role>>) {
    let ends = ends(&mut ring);
    whole.parts.extend(ring.parts);
    whole.goals.extend(ring.goals);
    ends
}

fn in_turn(turns: Vec<Box<dyn Role>>) -> Box<dyn Role> {
    Box::new(Turns { turns, next: 0 })
}

/// Several roles on one core, of which any may go on.
struct Any(Vec<Box<dyn Role>>);

impl Role for Any {
    fn step(&mut self) -> Step {
        let mut is_done = true;
        for role in &mut self.0 {
            match role.step() {
                Step::Did => return Step::Did,
                Step::Waits => is_done = false,
                Step::Done => {}
            }
        }
        if is_done { Step::Done } else { Step::Waits }
    }
}
