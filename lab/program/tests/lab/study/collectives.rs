//! What the study of collective calls writes.

use std::fs;

use serde_json::Value;

use super::{study, text};
use crate::Scratch;

#[test]
fn a_study_of_collective_calls_leaves_a_page_results_and_a_table() {
    let out = Scratch::new("collectives");
    let output = study(&["collectives", "--quick", "--out", out.text(), "--processes", "2,5"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("it will take about"), "the time is said first");
    let json = fs::read_to_string(out.path().join("results.json")).expect("results");
    let results: Value = serde_json::from_str(&json).expect("JSON");
    let libraries = results["libraries"].as_array().expect("libraries");
    assert_eq!(libraries[0]["id"], "corewire");
    assert_eq!(libraries[1]["id"], "open_mpi");
    let points = results["points"].as_array().expect("points");
    assert_eq!(points.len(), 2 * 2 * 16, "each library with each call, among two and five");
    for point in points {
        let runs = point["runs"].as_array().expect("runs");
        // Open MPI may be missing, or fail.
        assert!(runs.len() >= 3 || point["library"] == "open_mpi", "{point} {libraries:?}");
        assert!(runs.iter().all(|run| run["each_ns"].as_f64().expect("a time") > 0.0), "{point}");
    }
    let page = fs::read_to_string(out.path().join("report.html")).expect("a page");
    assert!(page.contains("Among 5 processes"));
    let table = fs::read_to_string(out.path().join("points.csv")).expect("a table");
    assert!(table.lines().count() > 16, "{table}");

    // The page is drawn again, with each plot as a file.
    let again = study(&["report", out.text(), "--plots"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    let plot = fs::read_to_string(out.path().join("barrier-0.svg")).expect("a plot");
    assert!(plot.contains("</svg>"));
}

#[test]
fn a_study_of_collective_calls_refuses_what_is_not() {
    for (arguments, word) in [
        (["--libraries", "smoke_signals"], "smoke_signals"),
        (["--processes", "1"], "2..=64"),
        (["--processes", "65"], "2..=64"),
    ] {
        let out = Scratch::new("collectives-refused");
        let output = study(&[&["collectives", "--out", out.text()], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
}
