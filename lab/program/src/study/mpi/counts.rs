//! Counts the instructions of the calls of libfabric that a message costs, step by step, over corewire and over the floor.

use std::path::Path;
use std::process::Command;

use corewire_harness::statistics::Spread;
use serde::{Deserialize, Serialize};

use super::mpis::Id;
use super::programs::Programs;
use super::ways::Way;
use crate::study::failure::{Doing, Failure};
use crate::study::stepping::{self, Stretch};

/// The calls in the order of the program, and the sizes that it goes through.
const CALLS: [&str; 7] = [
    "tinjectdata",
    "trecv",
    "cq_read_full",
    "cq_read_empty",
    "trecv_waiting",
    "tsenddata",
    "cq_read_sent",
];
const SIZES: [u64; 2] = [8, 512];

/// A call of libfabric over a way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Instructions {
    /// A [`Way::text`].
    pub(crate) way: String,
    /// `tinjectdata`, `trecv`, `cq_read_full`, `cq_read_empty`, `trecv_waiting` (of a message that is there already),
    /// `tsenddata`, `cq_read_sent` (its completion).
    pub(crate) call: String,
    /// Length of the message.
    pub(crate) bytes: u64,
    /// In the median call.
    pub(crate) instructions: f64,
    /// In the call with the most.
    pub(crate) instructions_max: f64,
    /// In all calls together.
    pub(crate) system_calls: u64,
    pub(crate) allocations: u64,
    /// Divided by those over the floor; `None` for the floor itself, and without it.
    pub(crate) to_floor: Option<f64>,
}

/// Counts all calls over a way, in so many batches of each.
pub(super) fn count(
    way: Way,
    programs: &Programs,
    provider: &Path,
    batches: u32,
    directory: &Path,
) -> Result<Vec<Instructions>, Failure> {
    let mut command = Command::new(programs.steps()?);
    way.choose(&mut command, Id::Direct, provider, false);
    let (floor, run) = (directory.join("floor"), directory.join("run"));
    std::fs::create_dir_all(&run).doing("make a directory")?;
    std::fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .doing("make a directory")?;
    std::fs::write(&floor, "").doing("make a file")?;
    command.env("FLOOR_FILE", &floor).env("COREWIRE_RUNTIME_DIR", &run);
    command.args([way.text(), batches.to_string()]);
    let stretches = stepping::on_one_processor(|| stepping::count(&mut command));
    let _ = std::fs::remove_file(&floor);
    of_stretches(way, &stretches?)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn of_stretches(way: Way, stretches: &[Stretch]) -> Result<Vec<Instructions>, Failure> {
    let of = |call: usize, size: usize| {
        let mark = ((size * CALLS.len() + call) as u64) << 1 | 1;
        stretches.iter().filter(move |stretch| stretch.mark == mark)
    };
    let spread = |call, size| {
        Spread::of(of(call, size).map(|stretch| stretch.instructions as f64))
            .ok_or_else(|| Failure::other(format!("{} was never counted", CALLS[call])))
    };
    let mut all = Vec::new();
    for (size, &bytes) in SIZES.iter().enumerate() {
        for (call, name) in CALLS.iter().enumerate() {
            let counted = spread(call, size)?;
            all.push(Instructions {
                way: way.text(),
                call: (*name).to_owned(),
                bytes,
                instructions: counted.median,
                instructions_max: counted.max,
                system_calls: of(call, size).map(|stretch| stretch.system_calls).sum(),
                allocations: of(call, size).map(|stretch| stretch.calls).sum(),
                to_floor: None,
            });
        }
    }
    Ok(all)
}

/// The counts of all ways, with the ratios to the floor.
pub(super) fn with_ratios(mut all: Vec<Instructions>) -> Vec<Instructions> {
    let floor: Vec<_> = all.iter().filter(|it| it.way == Way::Floor.text()).cloned().collect();
    for it in all.iter_mut().filter(|it| it.way != Way::Floor.text()) {
        let same = floor.iter().find(|floor| (&floor.call, floor.bytes) == (&it.call, it.bytes));
        it.to_floor = same.map(|floor| it.instructions / floor.instructions);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two calls of each, of 10 and of 20 instructions times their number.
    fn stretches(factor: u64) -> Vec<Stretch> {
        let marks = 0..2 * CALLS.len() as u64;
        let of = |number: u64| {
            [10, 20].map(|each| Stretch {
                mark: number << 1 | 1,
                instructions: each * factor,
                system_calls: 0,
                calls: u64::from(number == 0),
            })
        };
        marks.flat_map(of).collect()
    }

    #[test]
    fn a_call_is_compared_with_the_same_call_over_the_floor() {
        let of = |way, factor| of_stretches(way, &stretches(factor)).unwrap();
        let all = with_ratios([of(Way::Floor, 1), of(Way::Corewire, 3)].concat());
        assert_eq!(all.len(), 2 * 14);
        let own = all.iter().filter(|it| it.way == "corewire");
        assert!(own.clone().all(|it| it.to_floor == Some(3.0) && it.instructions_max == 60.0));
        let allocations: Vec<u64> = own.map(|it| it.allocations).collect();
        assert_eq!((allocations[0], allocations[1]), (2, 0), "of tinjectdata with 8 bytes");
        assert!(all.iter().filter(|it| it.way == "floor").all(|it| it.to_floor.is_none()));
    }

    #[test]
    fn a_call_that_was_never_counted_is_an_error() {
        let some: Vec<Stretch> = stretches(1).into_iter().take(8).collect();
        let failure = of_stretches(Way::Floor, &some).unwrap_err();
        assert!(failure.message.contains("trecv_waiting was never"), "{}", failure.message);
    }
}
