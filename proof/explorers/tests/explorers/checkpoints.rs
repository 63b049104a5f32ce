//! The model checker over the source of checkpoints.
//!
//! Every test here keeps P210.

use corewire_explorers::groups::checkpoints::{Computations, Step};
use corewire_group::{BrokenPart, PartRules};
use stateright::{Checker, Model, UniformChooser};

/// Two ranks, three messages, three checkpoints, one end.
fn two() -> Computations {
    let rules = PartRules::default();
    Computations { ranks: 2, messages: 3, checkpoints: 3, ends: 1, rules }
}

/// How many states are walked through at most, those that are met again included: `COREWIRE_GROUP_STATES`.
fn states_max() -> usize {
    let states = std::env::var("COREWIRE_GROUP_STATES").ok();
    states.map_or(1_000_000, |states| states.parse().unwrap())
}

#[track_caller]
fn holds(world: Computations) {
    let max = states_max();
    let checker = world.checker().threads(2).target_state_count(max).spawn_bfs().join();
    let is_all = checker.state_count() < max;
    println!("{} states{}", checker.unique_state_count(), if is_all { "" } else { ", and more" });
    if let Some((name, path)) = checker.discoveries().into_iter().next() {
        panic!("{name}: {:?}\n{:?}", path.last_state(), path.clone().into_actions());
    }
}

#[test]
fn a_state_that_is_restored_belongs_together() {
    holds(two());
    holds(Computations { messages: 2, checkpoints: 2, ends: 2, ..two() });
    holds(Computations { ranks: 3, checkpoints: 2, ..two() });
}

#[test]
fn large_worlds_at_random() {
    for world in [
        Computations { messages: 12, checkpoints: 8, ends: 3, ..two() },
        Computations { ranks: 4, messages: 16, checkpoints: 8, ends: 2, ..two() },
    ] {
        let checker = world.checker().threads(2).target_state_count(2 * states_max());
        let checker = checker.spawn_simulation(1, UniformChooser).join();
        if let Some((name, path)) = checker.discoveries().into_iter().next() {
            panic!("{name}: {:?}\n{:?}", path.last_state(), path.clone().into_actions());
        }
    }
}

#[test]
fn rules_that_are_broken_are_found() {
    for broken in [
        BrokenPart::CheckpointsFirst,
        BrokenPart::SettlesByEarlierOnes,
        BrokenPart::KeepsUnsettled,
        BrokenPart::ForgetsRepeated,
        BrokenPart::StandsForItsEqual,
    ] {
        let world = Computations { rules: PartRules::without(broken), ..two() };
        let checker = world.checker().threads(2).target_state_count(3_000_000).spawn_bfs().join();
        assert!(!checker.discoveries().is_empty(), "{broken:?}");
    }
}

/// A path that is too long for a search: what rank 1 has not processed in the state that it is restored with is settled
/// between two checkpoints of rank 0, and the second one stands for the first.
#[test]
fn a_checkpoint_that_stands_for_another_one_holds_what_may_be_missing_there() {
    let path = [
        Step::Send(0, 1),
        Step::Checkpoint(1, 1),
        Step::Write(1),
        Step::Receive(0, 1),
        Step::Checkpoint(1, 1),
        Step::Write(1),
        Step::Checkpoint(2, 1),
        Step::Write(2),
        Step::Checkpoint(0, 2),
        Step::Look(0, 1),
        Step::Checkpoint(0, 1),
        Step::Join(0),
        Step::Write(0),
        Step::End,
    ];
    let keeps = |rules| {
        let world = Computations { ranks: 3, messages: 1, checkpoints: 5, ends: 1, rules };
        let mut state = world.init_states().remove(0);
        for step in path {
            let mut actions = Vec::new();
            world.actions(&state, &mut actions);
            assert!(actions.contains(&step), "{step:?} is none of {actions:?}");
            state = world.next_state(&state, step).unwrap();
        }
        world.properties().iter().all(|property| (property.condition)(&world, &state))
    };
    assert!(keeps(PartRules::default()));
    assert!(!keeps(PartRules::without(BrokenPart::KeepsWhatEarlierOnesKept)));
}
