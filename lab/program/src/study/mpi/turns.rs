//! Lets the ways of one MPI take turns, block by block, so that compared figures are measured within a tenth of a second.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::session::Session;
use super::shapes::Shape;
use super::ways::Way;
use crate::study::distances::Lines;
use crate::study::failure::Failure;
use crate::study::interrupt;

/// Calls of a shape in a block at most.
const CALLS_MAX: u32 = 50_000;
/// Calls from which the number of those in a block follows.
const TRIED: u32 = 4;

/// A block of one way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Block {
    /// Number of the run, which started all processes again, and of the round in it.
    pub(crate) run: u32,
    pub(crate) round: u32,
    /// Mean time of an operation.
    pub(crate) each_ns: f64,
    /// Time of a bare line one way, before and after the block; `None` where ranks share processors.
    pub(crate) line_ns: Lines,
}

/// The blocks of a way for a shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(super) way: Way,
    #[serde(flatten)]
    pub(super) shape: Shape,
    pub(super) blocks: Vec<Block>,
}

/// What a run found: blocks, and why those of a way are missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(super) measured: Vec<Measured>,
    pub(super) failures: Vec<(Way, String)>,
}

/// How long to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) run: u32,
    pub(super) rounds: u32,
    pub(super) block: Duration,
}

/// A way whose processes run.
struct Seat {
    way: Way,
    session: Session,
    /// Calls in a block of the present shape.
    calls: u32,
}

/// Measures all shapes over all ways whose processes started. A way that fails is left out from there on.
pub(super) fn take(
    starts: impl IntoIterator<Item = (Way, Result<Session, Failure>)>,
    shapes: &[Shape],
    pace: Pace,
) -> Result<Found, Failure> {
    let mut found = Found::default();
    let mut seats = Vec::new();
    for (way, start) in starts {
        interrupt::check()?;
        match start {
            Ok(session) => seats.push(Seat { way, session, calls: 0 }),
            Err(failure) => found.failures.push((way, failure.message)),
        }
    }
    for &shape in shapes {
        measure(&mut seats, shape, pace, &mut found)?;
    }
    for Seat { way, session, .. } in seats {
        if let Err(failure) = session.finish() {
            found.failures.push((way, format!("at its end: {}", failure.message)));
        }
    }
    interrupt::check()?;
    Ok(found)
}

fn measure(
    seats: &mut Vec<Seat>,
    shape: Shape,
    pace: Pace,
    found: &mut Found,
) -> Result<(), Failure> {
    each(seats, shape, &mut found.failures, |seat| {
        // The first calls meet memory and peers for the first time.
        seat.session.block(shape, TRIED, TRIED)?;
        let tried = seat.session.block(shape, TRIED, 1)?;
        let each_ns = tried.took_ns / f64::from(TRIED);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to small numbers"
        )]
        let calls =
            (pace.block.as_secs_f64() * 1e9 / each_ns).clamp(1.0, f64::from(CALLS_MAX)) as u32;
        seat.calls = calls;
        Ok(())
    })?;
    let of = |seat: &Seat| Measured { way: seat.way, shape, blocks: Vec::new() };
    let mut measured: Vec<Measured> = seats.iter().map(of).collect();
    for round in 0..pace.rounds {
        each(seats, shape, &mut found.failures, |seat| {
            let took = seat.session.block(shape, seat.calls, seat.calls.div_ceil(8).min(200))?;
            let operations = f64::from(seat.calls) * f64::from(shape.operations());
            let block = Block {
                run: pace.run,
                round,
                each_ns: took.took_ns / operations,
                line_ns: took.line_ns,
            };
            let own = measured.iter_mut().find(|it| it.way == seat.way);
            own.into_iter().for_each(|own| own.blocks.push(block));
            Ok(())
        })?;
        seats.reverse();
    }
    found.measured.extend(measured.into_iter().filter(|it| !it.blocks.is_empty()));
    Ok(())
}

/// Does this for each way, and leaves out those that fail.
fn each(
    seats: &mut Vec<Seat>,
    shape: Shape,
    failures: &mut Vec<(Way, String)>,
    mut job: impl FnMut(&mut Seat) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut index = 0;
    while let Some(seat) = seats.get_mut(index) {
        match job(seat) {
            Ok(()) => index += 1,
            Err(failure) => {
                interrupt::check()?;
                let Shape { measure, bytes } = shape;
                let why = format!("{} of {bytes} B: {}", measure.name(), failure.message);
                failures.push((seat.way, why));
                seats.remove(index);
            }
        }
    }
    Ok(())
}
