//! The results, printed for people and compared with the tables that are checked in.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use crate::engine::Count;

/// Numbers of kill points and of pairs of them.
#[must_use]
pub fn totals(counts: &[Count]) -> (u64, u64) {
    (counts.iter().map(|count| count.points).sum(), counts.iter().map(|count| count.pairs).sum())
}

/// For each operation and policy, the kill points of the state that has most of them; returns the
/// sum.
#[must_use]
pub fn longest(counts: &[Count]) -> u64 {
    let mut longest = BTreeMap::<_, u64>::new();
    for count in counts {
        let most = longest.entry((count.operation, count.policy)).or_default();
        *most = count.points.max(*most);
    }
    longest.values().sum()
}

/// Prints the sums for each operation and for each state.
pub fn print_sums(counts: &[Count]) {
    print_sums_by("operation", counts, |count| [count.operation, count.policy]);
    print_sums_by("state", counts, |count| [count.state, count.policy]);
}

fn print_sums_by(head: &str, counts: &[Count], key: fn(&Count) -> [&str; 2]) {
    let mut sums: BTreeMap<[&str; 2], (u64, u64)> = BTreeMap::new();
    for count in counts {
        let sum = sums.entry(key(count)).or_default();
        sum.0 += count.points;
        sum.1 += count.pairs;
    }
    println!("{head:<32} {:<10} {:>8} {:>9}", "policy", "points", "pairs");
    for ([name, policy], (points, pairs)) in sums {
        println!("{name:<32} {policy:<10} {points:>8} {pairs:>9}");
    }
}

/// One line for each operation and policy: its kill points in each state, as `state=points`.
#[must_use]
pub fn table(counts: &[Count]) -> String {
    let mut lines: Vec<((&str, &str), String)> = Vec::new();
    for &Count { operation, policy, state, points, .. } in counts {
        let place = lines.iter().position(|(key, _)| *key == (operation, policy));
        let place = place.unwrap_or_else(|| {
            lines.push(((operation, policy), String::new()));
            lines.len() - 1
        });
        let _ = write!(lines[place].1, " {state}={points}");
    }
    lines.sort_by_key(|&((operation, _), _)| operation);
    lines
        .iter()
        .map(|((operation, policy), line)| format!("{operation} {policy}{line}\n"))
        .collect()
}

/// Compares the table with the one that is checked in. If `COREWIRE_RENEW_POINTS` is set, renews
/// that one first.
///
/// # Errors
/// The lines that differ.
///
/// # Panics
/// If the table cannot be renewed.
pub fn compare(counts: &[Count], checked_in: &Path) -> Result<(), String> {
    let found = table(counts);
    if env::var_os("COREWIRE_RENEW_POINTS").is_some() {
        fs::write(checked_in, &found).expect("a directory of the checkout's");
    }
    let expected = fs::read_to_string(checked_in).unwrap_or_default();
    let only_in = |one: &str, other: &str, word: &str| -> String {
        let lines = one.lines().filter(|line| !other.lines().any(|same| same == *line));
        lines.map(|line| format!("  {word} {line}\n")).collect()
    };
    let changed = only_in(&found, &expected, "now") + &only_in(&expected, &found, "was");
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "operations have gained or lost effects (all kill points are fine):\n{changed}if that is \
         meant, renew {}: COREWIRE_RENEW_POINTS=1 make kill",
        checked_in.display()
    ))
}
