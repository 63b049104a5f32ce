//! The cost of a system call beside that of a function call (ZIMP, II-B: 14 times as much).

use std::hint::black_box;
use std::time::Instant;

use corewire_harness::rounds::alternate;

use super::results::SystemCall;
use crate::study::failure::Failure;

const CALLS: u32 = 1_000_000;
const ROUNDS: u64 = 7;

/// Measures both, in alternating rounds.
pub(super) fn measure() -> Result<SystemCall, Failure> {
    let blocks = alternate(ROUNDS, |_| {
        let function_ns = time(|| {
            black_box(nothing(black_box(1)));
        });
        let system_call_ns = time(|| {
            black_box(rustix::process::getppid());
        });
        Ok::<_, Failure>([function_ns, system_call_ns])
    })?;
    Ok(SystemCall { function_ns: blocks.median(0), system_call_ns: blocks.median(1) })
}

#[inline(never)]
fn nothing(value: u64) -> u64 {
    black_box(value)
}

/// Time of one call, in nanoseconds.
fn time(mut call: impl FnMut()) -> f64 {
    let started = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    started.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}
