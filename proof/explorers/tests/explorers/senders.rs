//! The protocol holds in every small world, and fails without any one of its rules.
//!
//! `COREWIRE_EXPLORE=full` adds larger worlds: two or three minutes, and a gigabyte of memory.
//!
//! Every test here keeps P47.

use std::time::Instant;

use corewire_explorers::senders::configuration::Configuration;
use corewire_explorers::senders::engine::{STUCK, explore};
use corewire_explorers::senders::mutant::Mutant::{self, *};
use corewire_explorers::senders::worlds::{full, quick};
use corewire_explorers::senders::{
    CLAIM_MISPLACED, ENDED_EARLY, ENDED_WITHOUT, EVICTED_SILENTLY, LAPPED, LIVE_CLAIM_TAKEN,
    PASSED_COMMITTED, PASSED_MESSAGE, Protocol, ROW_LOST, ROW_TAKEN, WRONG_PAYLOAD,
};

fn check_all(worlds: Vec<Configuration>) {
    for world in worlds {
        let name = world.name;
        let start = Instant::now();
        match explore(&Protocol::new(world)) {
            Ok(report) => println!(
                "{name:<34}{:>10} states{:>8} final{:>10} steps{:>8} ms",
                report.states_count,
                report.final_count,
                report.steps_count,
                start.elapsed().as_millis(),
            ),
            Err(failure) => panic!("{name}: {failure}"),
        }
    }
}

#[test]
fn the_protocol_holds_in_every_small_world() {
    check_all(quick());
}

#[test]
fn the_protocol_holds_in_larger_worlds() {
    if std::env::var("COREWIRE_EXPLORE").is_ok_and(|wanted| wanted == "full") {
        check_all(full());
    }
}

fn world(name: &str) -> Configuration {
    quick().into_iter().find(|world| world.name == name).expect("a world of that name")
}

/// Without the rule that `mutant` leaves out, the search must find that `rule` is broken.
#[track_caller]
fn caught(mutant: Mutant, name: &str, rule: &str) {
    match explore(&Protocol::with_mutant(world(name), mutant)) {
        Ok(_) => panic!("{mutant:?} goes unnoticed in {name}"),
        Err(failure) => {
            println!(
                "{mutant:?}: {} after {} steps, {} states",
                failure.rule,
                failure.trace.len() - 1,
                failure.states_count,
            );
            assert_eq!(failure.rule, rule, "{failure}");
        }
    }
}

macro_rules! mutants {
    ($($test:ident: $mutant:ident in $name:literal breaks $rule:ident,)*) => {
        $(#[test]
        fn $test() {
            caught($mutant, $name, $rule);
        })*
    };
}

mutants! {
    passing_a_live_claim: SkipLiveClaim in "messages, 2 slots" breaks PASSED_MESSAGE,
    passing_without_another_look: SkipWithoutReread in "messages, 2 slots" breaks PASSED_MESSAGE,
    passing_in_a_run_without_another_look:
        SkipRunWithoutReread in "runs of both" breaks PASSED_MESSAGE,
    noting_an_older_stamp:
        NoteOlderStamp in "run over the first of a run" breaks PASSED_COMMITTED,
    noting_an_older_stamp_of_one_that_left:
        NoteOlderStamp in "run over a run of one that left" breaks STUCK,
    claiming_over_a_live_claim: ClaimOverLiveClaim in "no receiver" breaks LIVE_CLAIM_TAKEN,
    claiming_over_a_live_run: ClaimOverLiveRun in "no receiver, runs" breaks LIVE_CLAIM_TAKEN,
    surveying_the_first_slot_alone:
        SurveyFirstSlotAlone in "no receiver, run over messages" breaks LIVE_CLAIM_TAKEN,
    limiting_the_first_slot_alone: LimitFirstSlotAlone in "run over messages" breaks WRONG_PAYLOAD,
    limiting_below_one_run: LimitBelowOneRun in "no receiver, runs" breaks STUCK,
    refreshing_without_the_epoch: RefreshWithoutEpoch in "join beside a receiver" breaks LAPPED,
    looking_for_the_head_too_early: HeadBeforeJoined in "late receiver" breaks LAPPED,
    taking_a_row_with_a_claim: ReuseRowWithClaim in "late sender" breaks STUCK,
    taking_a_row_with_a_run: ReuseRowWithRun in "late sender, runs" breaks STUCK,
    knowing_a_death_by_its_row: DeathByRow in "late sender" breaks PASSED_COMMITTED,
    forgetting_a_later_death: ForgetLaterDeath in "late sender" breaks STUCK,
    delivering_after_an_eviction: DeliverWithoutRecheck in "evict" breaks WRONG_PAYLOAD,
    claiming_by_a_store: ClaimByStore in "messages, 2 slots" breaks LIVE_CLAIM_TAKEN,
    walking_into_a_run: WalkIntoRun in "runs of both" breaks LIVE_CLAIM_TAKEN,
    landing_inside_a_run: LapIntoRun in "no receiver, runs of 3" breaks LIVE_CLAIM_TAKEN,
    looking_back_without_a_restart:
        LapWithoutRestart in "no receiver, runs of 3, 3 senders" breaks CLAIM_MISPLACED,
    hinting_inside_a_run: HintInsideRun in "shared tail" breaks LIVE_CLAIM_TAKEN,
    storing_a_cursor_inside_a_run: CursorInsideRun in "late sender, runs" breaks STUCK,
    ending_after_one_scan: EndAfterOneScan in "late sender" breaks ENDED_EARLY,
    ending_without_a_last_look: EndWithoutLastLook in "messages, 2 slots" breaks ENDED_WITHOUT,
    ending_inside_a_run: EndInsideRun in "run, 1 receiver" breaks ENDED_WITHOUT,
    two_hosts: TwoHosts in "two joins, one row" breaks ROW_TAKEN,
    leaving_a_join_behind: JoinLeftBehind in "late receiver" breaks STUCK,
    telling_a_generation_twice: GenerationToldTwice in "two joins, one row" breaks WRONG_PAYLOAD,
    leaving_a_row_evicted: EvictedForEver in "evict and join" breaks ROW_LOST,
    taking_the_row_of_one_evicted: EvictedRowTaken in "evict and join, late cursors" breaks STUCK,
    waiting_for_a_dead_receiver: DeadReceiverCounts in "messages, 2 slots" breaks STUCK,
    waiting_after_an_eviction: WaitWithoutRecheck in "evict" breaks EVICTED_SILENTLY,
}

/// A mutant that breaks nothing: the rule that it leaves out is not needed, so no argument may rely
/// on it.
#[test]
fn what_is_not_needed() {
    for name in ["late receiver", "join beside a receiver", "leaver and joiner", "evict and join"] {
        if let Err(failure) = explore(&Protocol::with_mutant(world(name), JoinedWithoutCursor)) {
            panic!("JoinedWithoutCursor in {name}: {failure}");
        }
    }
}
