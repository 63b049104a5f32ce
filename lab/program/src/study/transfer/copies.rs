//! Copy routines (III-B): from buffer to buffer within a process, cold as the paper has it, warm, and followed by a reader on
//! another core, which is what becomes of a copy into a shared buffer.

use corewire_harness::rounds::nanoseconds;
use corewire_ring::copying::Routine;

use super::arena::Contents;
use super::clock::clock;
use super::pair::Pair;
use super::plan::{LINE_ROUNDS, Plan, Report};
use super::results::{Key, Measure, State};
use super::transfers::in_turn;
use crate::study::failure::Failure;
use crate::study::touch::Mark;

pub(super) const STATES: [State; 3] = [State::Cold, State::Warm, State::Shared];
/// Copies of a block, if a copy takes a fifth of a microsecond and a quarter of a nanosecond for each byte.
const COPY_NS: u64 = 200;
const COPIES_MAX: u64 = 4000;

/// The routines that this processor has.
pub(super) fn routines() -> Vec<Routine> {
    Routine::ALL.into_iter().filter(|routine| routine.is_possible()).collect()
}

/// Figure 2. The receiver copies, and the sender reads what it has copied.
pub(super) fn run(pair: &mut Pair<'_>, plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::default();
    let mut lines = pair.worker().line_around(LINE_ROUNDS)?;
    let whole = pair.private.whole();
    contents().write(0, pair.private.slice_mut(whole));
    let mut routines = routines();
    for &bytes in &plan.sizes {
        for state in STATES {
            let from = report.measured.len();
            for round in 0..=plan.rounds {
                for routine in in_turn(&mut routines, round) {
                    pair.align_windows()?;
                    let figure = match state {
                        State::Shared => shared(pair, *routine, bytes, plan.iterations(bytes))?,
                        _ if pair.is_source() => 0.0,
                        _ => alone(pair, *routine, (bytes, state), copies(plan, bytes)),
                    };
                    if round > 0 {
                        let key = Key::new(Measure::Copy, routine.name(), bytes as u64, state);
                        report.add(&key, figure);
                    }
                }
            }
            report.close(from, lines());
        }
    }
    Ok(report)
}

/// What lies in all buffers.
fn contents() -> Contents {
    Contents::Marked(Mark::of(5))
}

fn copies(plan: &Plan, bytes: usize) -> u64 {
    let budget = u64::try_from(plan.block.as_nanos()).unwrap_or(u64::MAX);
    (budget / (COPY_NS + bytes as u64 / 4)).clamp(plan.iterations(bytes), COPIES_MAX)
}

/// Copies without a reader. Returns the time of one in nanoseconds.
fn alone(
    pair: &mut Pair<'_>,
    routine: Routine,
    (bytes, state): (usize, State),
    copies: u64,
) -> f64 {
    let start = clock();
    for _ in 0..copies {
        if state == State::Warm {
            pair.rewind();
        }
        let (from, to) = (pair.private.next(bytes), pair.window.next(bytes));
        pair.window.copy_by(routine, to, &pair.private, from);
    }
    #[expect(clippy::cast_precision_loss, reason = "few copies")]
    let count = copies as f64;
    nanoseconds(clock() - start) / count
}

/// Copies that the other process reads at once. Returns the time of one until it has been read.
fn shared(
    pair: &mut Pair<'_>,
    routine: Routine,
    bytes: usize,
    copies: u64,
) -> Result<f64, Failure> {
    let mut took = 0;
    for _ in 0..copies {
        let (from, to) = (pair.private.next(bytes), pair.window.next(bytes));
        let number = pair.count_transfer();
        if pair.is_source() {
            pair.until(|| pair.has_done(number))?;
            contents().read(pair.window.slice(to))?;
            pair.say_done(number);
        } else {
            let start = clock();
            pair.window.copy_by(routine, to, &pair.private, from);
            pair.say_done(number);
            pair.until(|| pair.has_done(number))?;
            took += clock() - start;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "few copies")]
    let count = copies as f64;
    Ok(nanoseconds(took) / count)
}
