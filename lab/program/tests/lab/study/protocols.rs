//! What the studies of agreement and of checkpointing write.

use std::fs;

use serde_json::Value;

use super::{study, text};
use crate::Scratch;

const FEW: [&str; 3] = ["--quick", "--mechanisms", "barrelfish_mp,zimp,corewire_in_place"];

/// Runs a study, checks what all have, and returns the points.
fn points(name: &str, more: &[&str]) -> Vec<Value> {
    let out = Scratch::new(name);
    let output = study(&[&[name, "--out", out.text()], &FEW[..], more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("it will take about"), "the time is said first");
    assert!(text(&output.stdout).contains("as Barrelfish MP"), "{}", text(&output.stdout));
    let json = fs::read_to_string(out.path().join("results.json")).expect("results");
    let results: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(results["study"], name);
    let points = results["points"].as_array().expect("points").clone();
    let table = fs::read_to_string(out.path().join("points.csv")).expect("a table");
    assert_eq!(table.lines().count(), points.len() + 1);
    let page = fs::read_to_string(out.path().join("report.html")).expect("a page");
    assert!(page.contains("The paper\u{2019}s claims"));
    assert!(!out.path().join("progress.jsonl").exists(), "nothing is unfinished");
    let cores = results["machine"]["cores"].as_u64().expect("cores");
    for point in &points {
        assert_eq!(point["failures"].as_array().map(Vec::len), Some(0), "{point}");
        let times = point["each_ns"].as_array().expect("times");
        // A host that moves the cores has up to as many again.
        assert!((3..=6).contains(&times.len()), "{point}");
        assert!(times.iter().all(|time| time.as_f64().expect("a time") > 0.0), "{point}");
        assert_eq!(point["oversubscribed"], point["processes"].as_u64().expect("a number") > cores);
    }
    let drawn = study(&["report", out.text(), "--plots"]);
    assert!(drawn.status.success(), "{}", text(&drawn.stderr));
    points
}

#[test]
fn a_study_of_agreement_leaves_a_page_results_and_a_table() {
    // Of one byte to one line, and more than a line.
    let points = points("paxos", &["--sizes", "1,4096"]);
    assert_eq!(points.len(), 2 * 3);
    assert!(points.iter().all(|point| point["nodes"] == 3 && point["processes"] == 7));
}

#[test]
fn a_study_of_checkpointing_leaves_a_page_results_and_a_table() {
    let points = points("checkpoint", &["--sizes", "128,4096", "--nodes", "2,3"]);
    assert_eq!(points.len(), 2 * 2 * 3);
}
