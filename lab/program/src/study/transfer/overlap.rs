//! How much of a computation a transfer hides (IV-A). A side that computes begins its part before, as far as it can do that at
//! once (a non-blocking call of MPI, when both sides have met), and does what is left of it afterwards. Hidden is what
//! computation and transfer take less together than one after the other, as a share of the shorter one.

use std::hint::black_box;

use corewire_harness::rounds::nanoseconds;
use corewire_harness::statistics::median;
use corewire_transfer::mechanisms::Role;

use super::clock::clock;
use super::operations::Operations;
use super::pair::Pair;
use super::plan::{LINE_ROUNDS, MIDDLE_BYTES, Plan, Report};
use super::results::{Key, Measure, State};
use super::transfers::{in_turn, open_all};
use super::ways::Id;
use crate::study::failure::Failure;

/// Steps of a computation whose time is measured.
const STEPS: u64 = 200_000;
/// Transfers of a block.
const TIMES: u64 = 5;

/// Computes, without memory.
fn compute(steps: u64) {
    let mut state = black_box(1_u64);
    for _ in 0..steps {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    }
    black_box(state);
}

/// Steps of a nanosecond on this core.
fn steps_per_ns() -> f64 {
    compute(STEPS);
    let start = clock();
    compute(STEPS);
    #[expect(clippy::cast_precision_loss, reason = "few steps")]
    let steps = STEPS as f64;
    steps / nanoseconds(clock() - start).max(1.0)
}

/// The share of the shorter one that was hidden.
fn hidden(transfer_ns: f64, compute_ns: f64, both_ns: f64) -> f64 {
    ((transfer_ns + compute_ns - both_ns) / transfer_ns.min(compute_ns)).clamp(0.0, 1.0)
}

pub(super) fn run(pair: &mut Pair<'_>, plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::default();
    let mut ways = open_all(pair, Id::all(), &mut report)?;
    let mut nothing = open_all(pair, [Id::Nothing], &mut report)?;
    let Some((_, nothing)) = nothing.first_mut() else { return Ok(report) };
    let mut lines = pair.worker().line_around(LINE_ROUNDS)?;
    for (_, way) in &mut ways {
        way.prepare(pair, MIDDLE_BYTES)?;
    }
    for round in 0..=plan.rounds {
        for (id, way) in in_turn(&mut ways, round) {
            let transfer_ns = block(way.as_mut(), pair, None, 0)?;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "steps of some milliseconds"
            )]
            let steps = (steps_per_ns() * transfer_ns) as u64;
            let local = way.local();
            for (computer, measure) in
                [(local.other(), Measure::RemoteOverlap), (local, Measure::LocalOverlap)]
            {
                let compute_ns = block(nothing.as_mut(), pair, Some(computer), steps)?;
                let both_ns = block(way.as_mut(), pair, Some(computer), steps)?;
                if round > 0 {
                    let key = Key::new(measure, id.text(), MIDDLE_BYTES as u64, State::Cold);
                    report.add(&key, hidden(transfer_ns, compute_ns, both_ns));
                }
            }
        }
    }
    report.close(0, lines());
    Ok(report)
}

/// The time of transfers, during which one side computes so many steps, until both sides are done. Both return the same.
fn block(
    way: &mut dyn Operations,
    pair: &mut Pair<'_>,
    computer: Option<Role>,
    steps: u64,
) -> Result<f64, Failure> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let place = pair.next(way.home(), MIDDLE_BYTES);
        way.register(pair, place)?;
        pair.barrier()?;
        let start = clock();
        if computer == Some(pair.role) {
            way.begin(pair)?;
            compute(steps);
        }
        way.copy(pair)?;
        let own = clock() - start;
        times.push(nanoseconds(pair.swap_numbers(own)?.max(own)));
        way.deregister(pair)?;
    }
    Ok(median(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_is_what_both_take_less_than_one_after_the_other() {
        assert_eq!(hidden(100.0, 100.0, 200.0), 0.0);
        assert_eq!(hidden(100.0, 100.0, 100.0), 1.0);
        assert_eq!(hidden(100.0, 50.0, 125.0), 0.5);
        assert_eq!(hidden(100.0, 100.0, 260.0), 0.0);
    }
}
