//! The model checker over the source of the log.
//!
//! Every test here keeps P204.

use corewire_explorers::groups::{Action, Limits, World};
use corewire_group::{Broken, Member, Message, Rules};
use stateright::{Checker, HasDiscoveries, Model, UniformChooser};

/// Three replicas, one command, one death.
fn three() -> Limits {
    Limits {
        members: 3,
        late: 0,
        commands: 1,
        at_once: 1,
        deaths: 1,
        leaves: 0,
        takes: 0,
        misses: 0,
        snapshots: 0,
        stops: 0,
        lates: 0,
        cuts: 0,
        asks: 0,
        moves: 0,
        ends: false,
        rules: Rules::default(),
    }
}

/// How many states are walked through at most, those that are met again included: `COREWIRE_GROUP_STATES`.
fn states_max() -> usize {
    let states = std::env::var("COREWIRE_GROUP_STATES").ok();
    states.map_or(200_000, |states| states.parse().unwrap())
}

#[track_caller]
fn holds(limits: Limits) {
    let max = states_max();
    let checker = limits.checker().threads(2).target_state_count(max).spawn_bfs().join();
    let is_all = checker.state_count() < max;
    println!("{} states{}", checker.unique_state_count(), if is_all { "" } else { ", and more" });
    if let Some((name, path)) = checker.discoveries().into_iter().next() {
        panic!("{name}: {:?}\n{:?}", path.last_state(), path.clone().into_actions());
    }
}

#[test]
fn three_replicas_agree_and_go_on_when_one_dies() {
    holds(three());
}

#[test]
fn three_replicas_agree_on_two_commands() {
    holds(Limits { commands: 2, deaths: 1, ..three() });
}

#[test]
fn commands_that_go_together_are_decided_once_each() {
    let two = Limits { commands: 4, at_once: 2, ..three() };
    holds(two.clone());
    holds(Limits { commands: 3, takes: 1, deaths: 0, ..two.clone() });
    holds(Limits { members: 2, deaths: 0, misses: 1, snapshots: 1, ..two.clone() });
    holds(Limits { members: 2, late: 1, deaths: 1, ..two.clone() });
    holds(Limits { cuts: 1, deaths: 0, ..two.clone() });
    holds(Limits { stops: 1, lates: 1, deaths: 0, ..two });
}

#[test]
fn a_leader_is_replaced_while_it_lives() {
    holds(Limits { commands: 1, deaths: 0, takes: 1, ..three() });
    holds(Limits { commands: 1, deaths: 1, takes: 1, ..three() });
}

#[test]
fn members_come_and_go() {
    holds(Limits { members: 2, late: 1, deaths: 0, leaves: 1, ..three() });
    holds(Limits { members: 3, deaths: 1, leaves: 1, ..three() });
    holds(Limits { members: 2, late: 1, deaths: 1, ..three() });
}

#[test]
fn a_member_that_has_missed_entries_gets_them() {
    holds(Limits { members: 2, deaths: 0, misses: 2, commands: 2, ..three() });
    holds(Limits { misses: 1, commands: 2, ..three() });
    holds(Limits { members: 2, late: 1, deaths: 0, misses: 1, ..three() });
    holds(Limits { members: 2, late: 1, deaths: 0, misses: 1, snapshots: 1, ..three() });
}

#[test]
fn a_member_that_is_stopped_holds_nobody_up_but_as_the_acceptor() {
    holds(Limits { stops: 1, deaths: 0, ..three() });
    holds(Limits { stops: 1, lates: 1, deaths: 0, ..three() });
    holds(Limits { stops: 1, commands: 0, deaths: 1, members: 5, ..three() });
    holds(Limits { stops: 1, takes: 1, deaths: 0, ..three() });
    holds(Limits { members: 2, late: 1, stops: 1, deaths: 0, ..three() });
    holds(Limits { lates: 2, takes: 1, ..three() });
}

// Keeps P222.
#[test]
fn links_that_end_hold_nobody_up() {
    holds(Limits { cuts: 1, deaths: 0, commands: 2, ..three() });
    holds(Limits { cuts: 1, ..three() });
    holds(Limits { cuts: 2, deaths: 0, members: 2, ..three() });
    holds(Limits { cuts: 1, deaths: 0, takes: 1, ..three() });
    holds(Limits { cuts: 1, members: 2, late: 1, deaths: 0, leaves: 1, ..three() });
    holds(Limits { cuts: 1, misses: 1, deaths: 0, ..three() });
    holds(Limits { cuts: 1, stops: 1, deaths: 0, ..three() });
}

// Keeps P245.
#[test]
fn commands_of_a_client_are_decided_once_by_any_member() {
    let client = Limits { commands: 0, deaths: 0, asks: 1, moves: 1, ends: true, ..three() };
    holds(client.clone());
    holds(Limits { asks: 2, moves: 2, ..client.clone() });
    holds(Limits { deaths: 1, moves: 2, ..client.clone() });
    holds(Limits { takes: 1, moves: 2, ..client.clone() });
    holds(Limits { members: 2, late: 1, moves: 2, leaves: 1, ..client.clone() });
    holds(Limits { cuts: 1, moves: 2, ..client.clone() });
    holds(Limits { misses: 1, snapshots: 1, moves: 2, ..client.clone() });
    holds(Limits { stops: 1, moves: 2, ..client });
}

#[test]
fn large_worlds_at_random() {
    let all = Limits {
        late: 1,
        commands: 4,
        at_once: 2,
        deaths: 1,
        leaves: 1,
        takes: 1,
        misses: 1,
        snapshots: 2,
        ..three()
    };
    for limits in [
        all.clone(),
        Limits { members: 5, deaths: 2, ..all.clone() },
        Limits { members: 4, late: 0, misses: 2, ..all.clone() },
        Limits { members: 1, late: 3, deaths: 2, misses: 0, ..all.clone() },
        Limits { members: 5, deaths: 2, stops: 2, lates: 2, ..all.clone() },
        Limits { members: 4, late: 0, misses: 0, stops: 3, lates: 4, ..all.clone() },
        Limits { members: 2, late: 2, stops: 2, lates: 2, ..all.clone() },
        Limits { members: 3, late: 0, leaves: 2, misses: 1, deaths: 0, ..all.clone() },
        Limits { cuts: 3, stops: 1, lates: 1, ..all.clone() },
        Limits { members: 4, late: 0, misses: 0, cuts: 4, ..all.clone() },
        Limits { asks: 3, moves: 4, ends: true, ..all.clone() },
        Limits { members: 5, deaths: 2, stops: 2, lates: 2, asks: 3, moves: 4, ends: true, ..all },
    ] {
        let checker = limits.checker().threads(2).target_state_count(5 * states_max());
        let checker = checker.spawn_simulation(1, UniformChooser).join();
        if let Some((name, path)) = checker.discoveries().into_iter().next() {
            panic!("{name}: {:?}\n{:?}", path.last_state(), path.clone().into_actions());
        }
    }
}

/// Lets happen what may happen by itself, except what is held back, until nothing is left.
fn settle(
    limits: &Limits,
    mut world: World,
    holds_back: impl Fn(&World, &Action) -> bool,
) -> World {
    loop {
        let mut actions = Vec::new();
        limits.actions(&world, &mut actions);
        let happens =
            actions.into_iter().find(|action| action.is_by_itself() && !holds_back(&world, action));
        match happens.and_then(|action| limits.next_state(&world, action)) {
            Some(next) => world = next,
            None => return world,
        }
    }
}

/// Whether a world in which nothing more happens is as it must be.
fn is_right(limits: &Limits, world: &World) -> bool {
    limits.properties().iter().all(|property| (property.condition)(limits, world))
}

/// What the acceptor of the past says to one that has missed what its successor has published; too deep down for the
/// checker.
fn an_acceptor_of_the_past_answers(rules: Rules) -> bool {
    let limits =
        Limits { members: 4, commands: 2, deaths: 1, leaves: 1, misses: 1, rules, ..three() };
    let [leader, past, present, missing] = [0, 1, 2, 3].map(|place| Member { place, life: 0 });
    let is_view =
        |world: &World, from, to| matches!(world.front(from, to), Some(Message::Decided(_)));
    let go = |world: &World, action| limits.next_state(world, action).unwrap();
    let world = limits.init_states().remove(0);
    let world = settle(&limits, world, |_, _| false);
    let world = settle(&limits, go(&world, Action::Propose(leader)), |_, _| false);
    // The acceptor leaves. Two do not hear of the next view.
    let holds = |world: &World, action: &Action| match action {
        Action::Deliver(from, to) => [past, missing].contains(to) && is_view(world, *from, *to),
        Action::Read(reader) => [past, missing].contains(reader),
        _ => false,
    };
    let world = settle(&limits, go(&world, Action::Leave(past)), holds);
    let world = settle(&limits, go(&world, Action::Propose(leader)), holds);
    // One of them hears of it, and has missed what was published; the present acceptor dies.
    let mut world = world;
    while world.front(leader, missing).is_some() {
        world = go(&world, Action::Deliver(leader, missing));
    }
    let mut world = go(&go(&world, Action::Miss(missing)), Action::Die(present));
    while world.front(missing, past).is_some() {
        world = go(&world, Action::Deliver(missing, past));
    }
    let world = settle(&limits, world, |_, _| false);
    is_right(&limits, &world)
}

// Keeps P205.
#[test]
fn only_the_present_acceptor_knows_what_one_has_missed() {
    assert!(an_acceptor_of_the_past_answers(Rules::default()));
    assert!(!an_acceptor_of_the_past_answers(Rules::without(Broken::AsksThePresentAcceptor)));
}

/// Whether the checker finds what a broken rule does: some deep down, some beside many states, some at random.
fn is_found(limits: Limits, broken: Broken) -> bool {
    let limits = Limits { rules: Rules::without(broken), ..limits };
    let checker = |most| {
        let checker = limits.clone().checker().threads(2).finish_when(HasDiscoveries::Any);
        checker.target_state_count(most)
    };
    let at_random = |most| checker(most).spawn_simulation(1, UniformChooser).join();
    !at_random(100_000).discoveries().is_empty()
        || !checker(300_000).spawn_dfs().join().discoveries().is_empty()
        || !at_random(20_000_000).discoveries().is_empty()
}

// Keeps P205.
#[test]
fn rules_that_are_broken_are_found() {
    let two = Limits { commands: 2, ..three() };
    // Neither the leader nor the acceptor takes the lead.
    let takes = Limits { members: 4, commands: 0, deaths: 0, takes: 2, ..three() };
    let stops = Limits { deaths: 0, stops: 1, ..three() };
    for (broken, limits) in [
        (Broken::DecidesOnce, three()),
        (Broken::BeginsAfterTheLast, two.clone()),
        (Broken::LeaderLearnsFirst, two.clone()),
        (Broken::KnowsTheEndOfTheAcceptor, Limits { misses: 1, ..two.clone() }),
        (Broken::RestsBeforeItLeaves, Limits { members: 2, deaths: 0, leaves: 1, ..two }),
        (Broken::NeedsMajority, takes.clone()),
        (Broken::AdoptsWhatWasAccepted, takes),
        (Broken::KeepsRolesApart, Limits { members: 1, late: 1, deaths: 0, ..three() }),
        (Broken::ProposesLate, stops.clone()),
        (Broken::LeaderHasPromised, stops.clone()),
        (Broken::AcceptorHasPromised, Limits { members: 5, deaths: 1, ..stops.clone() }),
        (Broken::KeepsALivingAcceptor, Limits { commands: 2, deaths: 0, takes: 1, ..three() }),
        (Broken::TellsTheLaterView, Limits { takes: 1, ..stops }),
        (Broken::SaysAgain, Limits { cuts: 1, deaths: 0, ..three() }),
        (Broken::LeaderBeginsAgain, Limits { cuts: 1, deaths: 0, ..three() }),
    ] {
        assert!(is_found(limits, broken), "{broken:?}");
    }
}
