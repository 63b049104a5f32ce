//! What the study of large transfers writes.

use std::fs;

use serde_json::Value;

use super::{study, text};
use crate::Scratch;

fn array<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is an array"))
}

#[test]
fn a_study_of_transfers_leaves_a_page_results_and_tables() {
    let out = Scratch::new("transfer");
    let arguments = ["transfer", "--quick", "--out", out.text(), "--sizes", "1,4096,1048576"];
    let some = ["--experiments", "copies,transfers,set_up,cache"];
    let output = study(&[&arguments[..], &some].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("claims of the paper"), "{}", text(&output.stdout));
    let json = fs::read_to_string(out.path().join("results.json")).expect("results");
    let results: Value = serde_json::from_str(&json).expect("JSON");
    assert!(array(&results, "failures").is_empty(), "{}", results["failures"]);
    assert_eq!(results["iterations"][0], 1008, "as many as the paper, in whole blocks");

    let mechanisms = array(&results, "mechanisms");
    assert_eq!(mechanisms.len(), 13);
    for mechanism in mechanisms {
        // libfabric may be missing, and a container may forbid the others.
        let id = mechanism["id"].as_str().expect("a name");
        let needs_nothing = ["printed_buffer", "shared_buffer", "printed_queue", "message_queue"];
        let is_there = mechanism["impossible"].is_null();
        assert!(is_there || !needs_nothing.contains(&id), "{mechanism}");
        let own = array(&results, "points").iter();
        let own = own.filter(|point| point["way"] == id && point["measure"] == "transfer");
        assert_eq!(own.count(), if is_there { 3 * 3 } else { 0 }, "{id}: sizes and states");
    }
    for point in array(&results, "points") {
        for run in array(point, "runs") {
            let blocks = array(run, "blocks");
            assert_eq!(blocks.len(), 4, "{point}");
            assert!(blocks.iter().all(|block| block.as_f64().expect("a figure") >= 0.0), "{point}");
        }
    }
    let claims = array(&results, "claims");
    assert!(claims.len() > 25);
    for claim in claims {
        assert_eq!(claim["here"].is_null(), claim["holds"].is_null(), "{claim}");
    }
    // Figure 3 was not asked for.
    let of_buffers = claims.iter().filter(|claim| claim["place"] == "III-C, Figure 3");
    assert!(of_buffers.into_iter().all(|claim| claim["holds"].is_null()));

    let page = fs::read_to_string(out.path().join("report.html")).expect("a page");
    for word in
        ["Figure 2", "Figure 4", "Table II", "Table III", "Table IV", "Table V", "estimated"]
    {
        assert!(page.contains(word), "{word}");
    }
    for name in ["points.csv", "claims.csv"] {
        let table = fs::read_to_string(out.path().join(name)).expect("a table");
        assert!(table.lines().count() > 25, "{table}");
    }
    // The page is drawn again, with each plot as a file.
    let again = study(&["report", out.text(), "--plots"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    let plot = fs::read_to_string(out.path().join("figure-4-cold.svg")).expect("a plot");
    assert!(plot.contains("</svg>"));
}

#[test]
fn a_study_of_transfers_refuses_what_is_not() {
    for (arguments, word) in [
        (["--experiments", "teleport"], "teleport"),
        (["--sizes", "0"], "1..=4194304"),
        (["--sizes", "5000000"], "1..=4194304"),
    ] {
        let out = Scratch::new("transfer-refused");
        let output = study(&[&["transfer", "--out", out.text()], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
}
