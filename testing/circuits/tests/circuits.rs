//! The explorer and the simulator.

use std::panic::{AssertUnwindSafe, catch_unwind};

use corewire_circuits::explorer::{Limits, explore};
use corewire_circuits::simulator::{Plan, run};
use corewire_route::Mistake;

/// How many seeds the simulator runs: `COREWIRE_SIM_SEEDS`.
fn seeds() -> u64 {
    std::env::var("COREWIRE_SIM_SEEDS").ok().map_or(300, |seeds| seeds.parse().unwrap())
}

#[test]
fn random_worlds_keep_the_promises() {
    for seed in 0..seeds() {
        let plan = Plan::of_seed(seed);
        let ran = catch_unwind(AssertUnwindSafe(|| run(&plan, seed)));
        assert!(ran.is_ok(), "seed {seed}: {plan:?}");
    }
}

#[test]
fn one_circuit_in_every_state() {
    let (states, _) = explore(&Limits::one_circuit(), 20_000);
    assert!(states >= 1000, "{states}");
}
