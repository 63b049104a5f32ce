//! What the Nemesis study writes.

use std::fs;

use serde_json::Value;

use super::{study, text};
use crate::Scratch;

#[test]
fn a_study_of_nemesis_leaves_a_page_results_and_a_table() {
    let out = Scratch::new("nemesis");
    let output = study(&["nemesis", "--quick", "--out", out.text(), "--sizes", "0,8,100,70000"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("it will take about"), "the time is said first");
    let json = fs::read_to_string(out.path().join("results.json")).expect("results");
    let results: Value = serde_json::from_str(&json).expect("JSON");
    let wires = results["wires"].as_array().expect("wires");
    assert_eq!(wires.len(), 8);
    let runs_of = |id: &Value| {
        let wire = wires.iter().find(|wire| wire["id"] == *id).expect("a wire of its own");
        // Foreign wires may fail if their libraries fail.
        let failures = wire["failures"].as_array().expect("failures").len();
        if wire["impossible"].is_string() { 0 } else { 3 - failures }
    };
    let points = results["points"].as_array().expect("points");
    assert_eq!(points.len(), 8 * 4 * 4, "each wire with each size, warm and cold, touched and not");
    for point in points {
        let runs = point["runs"].as_array().expect("runs");
        // There are more runs where the cores were moved.
        assert!(runs.len() >= runs_of(&point["wire"]), "{point}");
        assert!(runs.iter().all(|run| run["p50_ns"].as_f64().expect("a time") > 0.0), "{point}");
    }
    // corewire and Nemesis are always there.
    for wire in wires.iter().map(|wire| &wire["id"]) {
        let is_foreign = *wire == "libfabric_shm" || *wire == "open_mpi";
        assert!(is_foreign || runs_of(wire) == 3, "{wire}");
    }
    let instructions = results["instructions"].as_array().expect("instructions");
    assert!(instructions.len() == 6 || results["instructions_absent"].is_string());
    assert_eq!(results["polling"].as_array().expect("the model").len(), 3 * 2 * 9);
    let page = fs::read_to_string(out.path().join("report.html")).expect("a page");
    assert!(page.contains("Figure 4") && page.contains("Figure 5"));
    let table = fs::read_to_string(out.path().join("points.csv")).expect("a table");
    assert!(table.lines().count() > 6 * 4 * 4, "{table}");

    // The page is drawn again, with each plot as a file.
    let again = study(&["report", out.text(), "--plots"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    let plot = fs::read_to_string(out.path().join("figure-4-warm.svg")).expect("a plot");
    assert!(plot.contains("</svg>"));
}

#[test]
fn a_study_of_nemesis_refuses_what_is_not() {
    for (arguments, word) in [
        (["--wires", "carrier_pigeon"], "carrier_pigeon"),
        (["--sizes", "99999999999"], "99999999999"),
    ] {
        let out = Scratch::new("nemesis-refused");
        let output = study(&[&["nemesis", "--out", out.text()], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
}
