//! The keys of `--json`: what `--help` lists, and what a run must have.
//!
//! `keys.txt` has a section for each benchmark, which begins with an example. A line of it is a key, and what it is, or `@`
//! and another section that belongs to it. In a key, capitals stand for what differs, such as `types_WAY_TYPE_ns`. `+` at
//! its end: there are such keys with `_min` and `_max`, too. `?`: not every run has it.

use clap::Command;
use corewire_harness::failure::Failure;
use corewire_harness::report::Report;

const TEXT: &str = include_str!("keys.txt");

/// The line with the example of a benchmark, and its keys, each with what it is.
fn section(name: &str) -> (&'static str, Vec<(&'static str, &'static str)>) {
    let is_it = |section: &&str| section.split_whitespace().next() == Some(name);
    let section = TEXT.trim_start_matches("# ").split("\n# ").find(is_it);
    let section = section.expect("each benchmark has a section");
    let (example, lines) = section.split_once('\n').unwrap_or((section, ""));
    let keys = lines.lines().filter_map(|line| line.split_once(' '));
    let keys = keys.flat_map(|(key, words)| match key {
        "@" => self::section(words).1,
        _ => vec![(key, words.trim_start())],
    });
    (example, keys.collect())
}

/// Adds what `--help` says behind the options.
pub(super) fn with_help(bench: Command) -> Command {
    let (example, keys) = section(bench.get_name());
    let mut text = format!("Example:\n  corewire bench {example}\n\n--json prints one object:\n");
    for (key, words) in keys.into_iter().chain(section("all").1) {
        let more = if key.contains('+') { "; also _min, _max" } else { "" };
        let key = key.trim_end_matches(['+', '?']);
        text.push_str(&format!("  {key:<34} {words}{more}\n"));
    }
    bench.after_help(text)
}

/// Compares the keys of a run with those of the benchmark.
///
/// # Errors
/// A key is in one of both only.
pub(super) fn check(report: &Report, bench: &str) -> Result<(), Failure> {
    let mut keys = section(bench).1;
    keys.extend(section("all").1);
    for (key, _) in &keys {
        let pattern = key.trim_end_matches(['+', '?']);
        let is_there = report.keys().any(|found| is_like(pattern, found));
        if !is_there && !key.ends_with('?') {
            return Err(Failure::other(format!("the benchmark has measured no {pattern}")));
        }
    }
    let is_listed = |found: &str| {
        keys.iter().any(|(key, _)| {
            let pattern = key.trim_end_matches(['+', '?']);
            let ends = if key.contains('+') { &["", "_min", "_max"][..] } else { &[""] };
            ends.iter().any(|end| found.strip_suffix(end).is_some_and(|it| is_like(pattern, it)))
        })
    };
    match report.keys().find(|found| !is_listed(found)) {
        Some(key) => Err(Failure::other(format!("{key} is not among the keys of the benchmark"))),
        None => Ok(()),
    }
}

/// Whether a key is one of a pattern, in which capitals stand for letters, digits and `_`.
fn is_like(pattern: &str, key: &str) -> bool {
    let at = pattern.find(|letter: char| letter.is_ascii_uppercase());
    let Some(at) = at else { return pattern == key };
    let (begin, rest) = pattern.split_at(at);
    let Some(key) = key.strip_prefix(begin) else { return false };
    let rest = rest.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
    (1..=key.len()).any(|length| is_like(rest, &key[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capitals_stand_for_what_differs() {
        assert!(is_like("types_WAY_TYPE_ns", "types_ump_same_core_payload32_1_ns"));
        assert!(!is_like("types_WAY_TYPE_ns", "types_ump_ns"));
        assert!(is_like("ratio", "ratio") && !is_like("ratio", "ratio_min"));
        assert!(is_like("CALL_ns", "barrier_ns") && !is_like("CALL_ns", "_ns"));
    }

    #[test]
    fn a_key_too_many_and_one_that_is_missing_are_named() {
        let mut report = Report::default();
        for key in ["line_ns", "distance", "cpu_percent"] {
            report.value(key, 1);
        }
        let missing = check(&report, "idle").unwrap_err();
        assert!(missing.message.contains("measured no receivers"), "{missing:?}");
        report.value("receivers", 3);
        check(&report, "idle").unwrap();
        report.value("ratio_min", 1);
        let other = check(&report, "idle").unwrap_err();
        assert!(other.message.starts_with("ratio_min is not among"), "{other:?}");
    }
}
