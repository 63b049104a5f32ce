//! The explorer and the simulator.

use std::panic::{AssertUnwindSafe, catch_unwind};

use corewire_circuit::node::{Mistake, table};
use corewire_explorers::circuits::explorer::{Limits, explore};
use corewire_explorers::circuits::simulator::{Plan, run};
use corewire_explorers::circuits::world::World;

/// How many seeds the simulator runs: `COREWIRE_SIM_SEEDS`.
fn seeds() -> u64 {
    std::env::var("COREWIRE_SIM_SEEDS").ok().map_or(1000, |seeds| seeds.parse().unwrap())
}

/// How many states the explorer walks through at most: all of them if `COREWIRE_EXPLORE=full`.
fn states_max() -> usize {
    let is_full = std::env::var("COREWIRE_EXPLORE").is_ok_and(|which| which == "full");
    if is_full { usize::MAX } else { 20_000 }
}

// Keeps P223.
/// Tables change while circuits come and go: links that nobody needs end, and no circuit ends with one.
#[test]
fn links_that_no_table_needs_end_without_a_circuit() {
    let mut closed = 0;
    for seed in 0..seeds() {
        closed += run(&Plan::with_changes(seed), seed).closed;
    }
    assert!(closed > 0);
}

// Keeps P223.
#[test]
fn mistakes_with_links_that_end_are_found() {
    for mistake in [Mistake::UsesOffered, Mistake::EndsUsed] {
        let is_found = (0..2000).any(|seed| {
            let plan = Plan { mistake: Some(mistake), ..Plan::with_changes(seed) };
            catch_unwind(AssertUnwindSafe(|| run(&plan, seed))).is_err()
        });
        assert!(is_found, "{mistake:?}");
    }
}

// Keeps P193.
#[test]
fn random_worlds_keep_the_promises() {
    for seed in 0..seeds() {
        let plan = Plan::of_seed(seed);
        let ran = catch_unwind(AssertUnwindSafe(|| run(&plan, seed)));
        assert!(ran.is_ok(), "seed {seed}: {plan:?}");
    }
}

// Keeps P193.
/// 256 monitors and 100,000 circuits if the simulator runs as many seeds as for a change of the node.
#[test]
fn a_large_world_keeps_the_promises() {
    let (monitors, circuits) = if seeds() >= 10_000 { (256, 100_000) } else { (64, 4000) };
    let seen = run(&Plan::large(monitors, circuits), seeds());
    println!("{monitors} monitors, {circuits} circuits: {seen:?}");
    assert!(seen.accepted > circuits as u64 / 2 && seen.messages > circuits as u64 / 2);
}

#[test]
fn a_circuit_that_has_borrowed_is_as_fast_as_any() {
    let mut world = World::new(1, 1000, 1, None);
    let [client, service] = [0, 1].map(|_| world.start_program(0, 100));
    world.export(service, "s");
    world.settle();
    let circuit = world.open(client, "s").unwrap();
    world.settle();
    // Longer than the reserve.
    world.send(circuit, 0, 1000);
    world.settle();
    let before = world.node(0).unwrap().counts();
    for _ in 0..100 {
        world.send(circuit, 0, 8);
        world.settle();
    }
    let after = world.node(0).unwrap().counts();
    assert_eq!([after.forwarded - before.forwarded, after.stored - before.stored], [100, 0]);
}

// Keeps P201.
#[test]
fn capabilities_without_messages_end_their_circuit_and_no_link() {
    let mut world = World::new(2, 1000, 1, None);
    world.join(0, 1, 100);
    let [client, service] = [0, 1].map(|monitor| world.start_program(monitor, 100));
    world.export(service, "s");
    world.settle();
    let [hostile, other] = [0, 1].map(|_| world.open(client, "s").unwrap());
    world.settle();
    // A violation of a link would be a panic.
    world.send_capabilities_alone(hostile, 0, 10_000);
    world.settle();
    assert!(!world.can_send(hostile, 0) && !world.can_send(hostile, 1));
    world.send(other, 0, 8);
    world.settle();
    world.check_settled();
    world.end_all();
}

// Keeps P193.
#[test]
fn one_circuit_in_every_state() {
    let (states, is_all) = explore(&Limits::one_circuit(), states_max());
    println!("{states} states{}", if is_all { "" } else { ", and more" });
}

// Keeps P193.
#[test]
fn two_circuits_that_share_a_link_in_every_state() {
    let limits = Limits {
        circuits: 2,
        messages: [1, 1],
        may_finish: false,
        may_refuse: false,
        breaks: 0,
        frames_max: 1,
        ..Limits::one_circuit()
    };
    let (states, is_all) = explore(&limits, states_max());
    println!("{states} states{}", if is_all { "" } else { ", and more" });
}

// Keeps P194.
#[test]
fn credit_in_every_state() {
    // Messages of three lines, where the reserve has two, and memory for one small loan.
    let limits = Limits {
        messages: [2, 0],
        bytes: 130,
        may_finish: false,
        may_refuse: false,
        may_close: false,
        breaks: 0,
        lines_max: 20,
        frames_max: 1,
        ..Limits::one_circuit()
    };
    let (states, is_all) = explore(&limits, states_max());
    println!("{states} states{}", if is_all { "" } else { ", and more" });
}

/// Whether a world with this mistake breaks a promise.
fn is_found(mistake: Mistake, limits: Limits) -> bool {
    let limits = Limits { mistake: Some(mistake), ..limits };
    catch_unwind(|| explore(&limits, 20_000)).is_err()
}

// Keeps P195.
#[test]
fn mistakes_in_set_up_and_tear_down_are_found() {
    let one = Limits::one_circuit();
    let mistakes = [
        Mistake::ForgetsAlone,
        Mistake::DropsEarly,
        Mistake::RemovesAtFirstFin,
        Mistake::ResetOvertakes,
    ];
    for mistake in mistakes {
        assert!(is_found(mistake, one), "{mistake:?}");
    }
}

// Keeps P195.
#[test]
fn mistakes_in_credit_are_found() {
    let limits = Limits { messages: [4, 4], bytes: 130, frames_max: 1, ..Limits::one_circuit() };
    for mistake in [Mistake::CreditIsDelta, Mistake::DummyLost] {
        let found = is_found(mistake, Limits { may_close: false, breaks: 0, ..limits })
            || simulator_finds(mistake, 2000);
        assert!(found, "{mistake:?}");
    }
}

/// Whether one of so many random worlds with this mistake breaks a promise.
fn simulator_finds(mistake: Mistake, seeds: u64) -> bool {
    (0..seeds).any(|seed| {
        let plan = Plan { mistake: Some(mistake), ..Plan::of_seed(seed) };
        catch_unwind(AssertUnwindSafe(|| run(&plan, seed))).is_err()
    })
}

// Keeps P195.
#[test]
fn labels_without_a_guard_are_found() {
    assert!(simulator_finds(Mistake::NoGuard, 2000));
}

/// Monitors in a ring, circuits all the way round, and hardly any memory: without a reserve they wait for each other.
fn cyclic(mistake: Option<Mistake>) -> Plan {
    Plan {
        table: table::ring(table::nodes(4)),
        monitors: 4,
        programs: 1,
        circuits: 12,
        messages: 400,
        bytes_max: 300,
        lines_max: 12 * 4 + 16,
        frames_max: 2,
        has_deaths: false,
        changes: 0,
        mistake,
    }
}

// Keeps P194.
#[test]
fn cyclic_traffic_in_starved_monitors_needs_the_reserve() {
    for seed in 0..100 {
        let _ = run(&cyclic(None), seed);
    }
    let plan = cyclic(Some(Mistake::NoReserve));
    let found = (0..100).any(|seed| catch_unwind(AssertUnwindSafe(|| run(&plan, seed))).is_err());
    assert!(found);
}
