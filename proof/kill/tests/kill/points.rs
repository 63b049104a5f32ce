//! Every kill point of every operation of each channel, and every pair of them.

use std::path::Path;

use corewire_kill::broadcast::Broadcast;
use corewire_kill::engine::{Count, Engine, World};
use corewire_kill::pairs::{A, B, C, Pairs};
use corewire_kill::report;
use corewire_kill::shared::Shared;
use corewire_kill::windows::Windows;

fn counts<W: World>(with_pairs: bool) -> Vec<Count> {
    Engine::<W>::new(None).run(with_pairs).unwrap_or_else(|found| panic!("{}", found.0))
}

/// Kills at each point, and compares the table with the one that is checked in as `name`.
fn kill_at_each<W: World>(name: &str) {
    kill_at_least::<W>(name, 200);
}

fn kill_at_least<W: World>(name: &str, least: u64) {
    let counts = counts::<W>(false);
    let ((points, _), most) = (report::totals(&counts), report::longest(&counts));
    print!("{}", report::table(&counts));
    println!("kill points, {name}: {points}; {most} in each operation's longest state");
    assert!(most >= least, "only {most} kill points");
    let checked_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("points").join(name);
    if let Err(changed) = report::compare(&counts, &checked_in.with_extension("txt")) {
        panic!("{changed}");
    }
}

fn kill_at_each_pair<W: World>(name: &str) {
    let counts = counts::<W>(true);
    report::print_sums(&counts);
    let (points, pairs) = report::totals(&counts);
    println!("kill points, {name}: {points}, and pairs of them: {pairs}");
    assert!(pairs >= 10 * points, "only {pairs} pairs");
}

#[test]
fn every_kill_point_leaves_the_others_whole() {
    kill_at_each::<Broadcast>("broadcast");
}

// Keeps P9, P10, P51.
#[test]
#[ignore = "takes a minute or two; `make kill` runs it"]
fn every_pair_of_kill_points_leaves_the_others_whole() {
    kill_at_each_pair::<Broadcast>("broadcast");
}

#[test]
fn every_kill_point_of_a_shared_channel_leaves_the_others_whole() {
    kill_at_each::<Shared>("shared");
}

// Keeps P51.
#[test]
#[ignore = "takes a quarter of an hour; `make kill` runs it"]
fn every_pair_of_kill_points_of_a_shared_channel_leaves_the_others_whole() {
    kill_at_each_pair::<Shared>("shared");
}

#[test]
fn every_kill_point_of_endpoints_leaves_the_others_whole() {
    kill_at_each::<Pairs>("pairs");
}

// Keeps P248, P249.
#[test]
fn every_kill_point_of_a_window_leaves_the_others_whole() {
    kill_at_least::<Windows>("windows", 30);
}

// Keeps P248, P249.
#[test]
fn every_pair_of_kill_points_of_a_window_leaves_the_others_whole() {
    kill_at_each_pair::<Windows>("windows");
}

/// The pairs of kill points need this, and only `make kill` tries those.
#[test]
fn any_two_endpoints_can_be_replaced_at_once() {
    for dead in [[A, B], [B, A], [A, C], [C, A], [B, C], [C, B]] {
        Engine::<Pairs>::new(None).die_between_operations(&dead);
    }
}

// Keeps P51, P70.
#[test]
#[ignore = "takes minutes; `make kill` runs it"]
fn every_pair_of_kill_points_of_endpoints_leaves_the_others_whole() {
    kill_at_each_pair::<Pairs>("pairs");
}
