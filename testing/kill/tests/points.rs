//! Every kill point of every operation of the one-sender channel, and every pair of them.

#![cfg(corewire_kill)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use corewire_kill::broadcast::Broadcast;
use corewire_kill::engine::{Count, Engine};

/// What each operation comes to, as checked in.
const POINTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/points.txt");

fn counts(with_pairs: bool) -> Vec<Count> {
    Engine::<Broadcast>::new(None).run(with_pairs).unwrap_or_else(|found| panic!("{}", found.0))
}

fn totals(counts: &[Count]) -> (u64, u64) {
    (counts.iter().map(|count| count.points).sum(), counts.iter().map(|count| count.pairs).sum())
}

/// Adds up what belongs together.
fn print_sums(heads: [&str; 2], counts: &[Count], key: fn(&Count) -> [&str; 2]) {
    let mut sums: BTreeMap<[&str; 2], (u64, u64)> = BTreeMap::new();
    for count in counts {
        let sum = sums.entry(key(count)).or_default();
        sum.0 += count.points;
        sum.1 += count.pairs;
    }
    println!("{:<28} {:<10} {:>8} {:>9}", heads[0], heads[1], "points", "pairs");
    for ([name, policy], (points, pairs)) in sums {
        println!("{name:<28} {policy:<10} {points:>8} {pairs:>9}");
    }
}

/// One line for each operation and policy: its kill points in each state, as `state=points`.
fn table(counts: &[Count]) -> String {
    let mut lines: Vec<((&str, &str), String)> = Vec::new();
    for &Count { operation, policy, state, points, .. } in counts {
        let line = match lines.iter_mut().find(|(key, _)| *key == (operation, policy)) {
            Some((_, line)) => line,
            None => {
                lines.push(((operation, policy), String::new()));
                &mut lines.last_mut().unwrap().1
            }
        };
        write!(line, " {state}={points}").unwrap();
    }
    lines.sort_by_key(|&((operation, _), _)| operation);
    lines
        .iter()
        .map(|((operation, policy), line)| format!("{operation} {policy}{line}\n"))
        .collect()
}

#[test]
fn every_kill_point_leaves_the_others_whole() {
    let counts = counts(false);
    let (points, _) = totals(&counts);
    let mut longest = BTreeMap::<_, u64>::new();
    for count in &counts {
        let most = longest.entry((count.operation, count.policy)).or_default();
        *most = count.points.max(*most);
    }
    let most: u64 = longest.values().sum();
    println!("{}kill points: {points}; {most} in each operation's longest state", table(&counts));
    assert!(most >= 200, "only {most} kill points");

    let found = table(&counts);
    if std::env::var_os("COREWIRE_RENEW_POINTS").is_some() {
        fs::write(POINTS, &found).unwrap();
    }
    let expected = fs::read_to_string(POINTS).unwrap_or_default();
    let changed: Vec<_> = found
        .lines()
        .filter(|line| !expected.lines().any(|other| other == *line))
        .map(|line| format!("  now {line}"))
        .chain(
            expected
                .lines()
                .filter(|line| !found.lines().any(|other| other == *line))
                .map(|line| format!("  was {line}")),
        )
        .collect();
    assert!(
        changed.is_empty(),
        "operations have gained or lost effects (all kill points are fine):\n{}\nif that is meant, \
         renew testing/kill/points.txt: COREWIRE_RENEW_POINTS=1 make kill",
        changed.join("\n")
    );
}

#[test]
#[ignore = "takes a minute or two; `make kill` runs it"]
fn every_pair_of_kill_points_leaves_the_others_whole() {
    let counts = counts(true);
    print_sums(["operation", "policy"], &counts, |count| [count.operation, count.policy]);
    print_sums(["state", "policy"], &counts, |count| [count.state, count.policy]);
    let (points, pairs) = totals(&counts);
    println!("kill points: {points}, and pairs of them: {pairs}");
    assert!(pairs >= 10 * points, "only {pairs} pairs");
}
