//! What the study of interfaces writes.

use std::fs;

use serde_json::Value;

use super::{command, study, text};
use crate::{Scratch, TURN};

fn array<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is an array"))
}

fn results(out: &Scratch) -> Value {
    let json = fs::read_to_string(out.path().join("results.json")).expect("results");
    serde_json::from_str(&json).expect("JSON")
}

/// The ids of what was measured, or is possible here.
fn possible<'a>(results: &'a Value, key: &str) -> Vec<&'a str> {
    let all = array(results, key).iter().filter(|it| it["impossible"].is_null());
    all.map(|it| it["id"].as_str().expect("an id")).collect()
}

#[test]
fn a_study_of_interfaces_leaves_a_page_results_and_a_table() {
    let out = Scratch::new("interfaces");
    let output = study(&["interfaces", "--quick", "--out", out.text()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("it will take about"), "the time is said first");
    let results = results(&out);
    let (rivals, ways) = (possible(&results, "rivals"), possible(&results, "ways"));
    if !rivals.contains(&"dbus") {
        eprintln!("without D-Bus: {}", array(&results, "rivals")[0]["impossible"]);
    }
    // The driver `local` has no second process.
    let calls = array(&results, "calls");
    assert_eq!(calls.len(), rivals.len() * (ways.len() - 1));
    for calls in calls {
        assert!(calls["failure"].is_null(), "{calls}");
        assert!(calls["ratio"]["median"].as_f64() > Some(0.0), "{calls}");
        assert_eq!(calls["call_allocations"].as_f64(), Some(0.0), "{calls}");
        assert!(calls["rival_allocations"].as_f64() >= Some(1.0), "{calls}");
        for key in ["call_ns", "rival_ns"] {
            let times = array(calls, key);
            assert!(times.len() == 11 && times.iter().all(|time| time.as_f64() > Some(0.0)));
        }
    }
    let types = array(&results, "types");
    assert_eq!(types.len(), 11 * ways.len());
    assert!(types.iter().all(|kind| array(kind, "round_trip_ns").len() == 11));
    for it in array(&results, "dynamic") {
        for key in ["hundred_to_fixed", "thousand_to_hundred"] {
            assert!(it[key]["median"].as_f64() > Some(0.0), "{it}");
        }
    }
    let page = fs::read_to_string(out.path().join("report.html")).expect("a page");
    for word in ["gRPC", "Figure 5.1", "buffer1000", "payload32_8"] {
        assert!(page.contains(word), "{word}");
    }
    let table = fs::read_to_string(out.path().join("points.csv")).expect("a table");
    assert_eq!(table.lines().count(), 1 + 2 * calls.len() + types.len(), "{table}");

    // The page is drawn again, with each plot as a file.
    let again = study(&["report", out.text(), "--plots"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    for plot in ["calls.svg", "types.svg"] {
        let plot = fs::read_to_string(out.path().join(plot)).expect("a plot");
        assert!(plot.contains("</svg>"));
    }
}

#[test]
fn a_study_of_interfaces_without_a_bus_says_what_to_install() {
    let out = Scratch::new("interfaces-without-a-bus");
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let arguments = ["interfaces", "--quick", "--rivals", "dbus", "--out", out.text()];
    let output = command(&arguments).env("PATH", "/nonexistent").output().expect("the program");
    drop(turn);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("D-Bus: dbus-daemon is not installed"), "{said}");
    let results = results(&out);
    assert!(array(&results, "calls").is_empty());
    assert!(array(&results, "rivals")[0]["impossible"].as_str().is_some());
}
