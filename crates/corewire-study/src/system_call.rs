//! The cost of a system call beside that of a function call (papers/000, II-B: 14 times as much).

use std::hint::black_box;
use std::time::Instant;

use crate::results::{Spread, SystemCall};

const CALLS: u32 = 1_000_000;
const ROUNDS: usize = 7;

/// Measures both, in alternating rounds.
pub(crate) fn measure() -> SystemCall {
    let (mut functions, mut system_calls) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        functions.push(time(|| {
            black_box(nothing(black_box(1)));
        }));
        system_calls.push(time(|| {
            black_box(rustix::process::getppid());
        }));
    }
    let median = |times: Vec<f64>| Spread::of(times).map_or(0.0, |times| times.median);
    SystemCall { function_ns: median(functions), system_call_ns: median(system_calls) }
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
