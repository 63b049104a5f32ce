//! Every promise that tests or models keep stands at some of them, and none stands there that is not made.

use std::collections::{BTreeMap, BTreeSet};

use crate::{files, read, root, shown};

/// The promises of PROMISES.md by number, with what keeps each.
fn promises() -> BTreeMap<String, String> {
    let text = read(&root().join("PROMISES.md"));
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| P")) {
        let cells: Vec<_> = line.trim_matches(['|', ' ']).split(" | ").collect();
        let [number, _, kept_by] = cells[..] else { panic!("not three columns: {line}") };
        let former = all.insert(number.to_owned(), kept_by.to_owned());
        assert_eq!(former, None, "{number} is there twice");
    }
    all
}

/// The promises that are named in a line, as `// Keeps P1, P2.` or `//! Every test here keeps P1.`
fn kept(line: &str) -> Vec<String> {
    let is_number = |it: &str| it.strip_prefix('P').is_some_and(|it| it.parse::<u32>().is_ok());
    let line = line.trim();
    let list = line.strip_prefix("// Keeps ").or(line.strip_prefix("//! Every test here keeps "));
    let list = list.and_then(|list| list.strip_suffix('.'));
    let list = list.map(|list| list.split(", ").map(str::to_owned).collect::<Vec<_>>());
    list.filter(|list| list.iter().all(|it| is_number(it))).unwrap_or_default()
}

/// Checks that a test follows behind a line that names promises: only its attributes and documentation are between.
fn check_test(name: &str, lines: &[&str], index: usize) {
    let is_between = |line: &&&str| {
        let line = line.trim();
        line.starts_with("#[") || line.starts_with("//")
    };
    let next = lines[index + 1..].iter().find(|line| !is_between(line));
    let is_function = next.is_some_and(|line| line.contains("fn "));
    assert!(is_function, "{name}:{}: no test follows", index + 1);
}

#[test]
fn every_promise_stands_at_its_tests() {
    let promises = promises();
    let mut at_tests = BTreeSet::new();
    for folder in ["crates", "examples", "lab", "proof"] {
        for path in files(&root().join(folder), "rs") {
            let (name, text) = (shown(&path), read(&path));
            let lines: Vec<_> = text.lines().collect();
            for (index, line) in lines.iter().enumerate() {
                let kept = kept(line);
                if !kept.is_empty() && !line.starts_with("//!") {
                    check_test(&name, &lines, index);
                }
                for number in kept {
                    let by = promises.get(&number);
                    let by = by.unwrap_or_else(|| panic!("{name}:{}: no {number}", index + 1));
                    let is_said = ["tests", "models"].iter().any(|it| by.contains(it));
                    assert!(is_said, "{name}:{}: {number} is kept by {by}", index + 1);
                    at_tests.insert(number);
                }
            }
        }
    }
    for (number, by) in &promises {
        let needs_test = by.starts_with("tests") || by.starts_with("models");
        assert_eq!(needs_test, at_tests.contains(number), "{number} is kept by {by}");
    }
}
