//! What the study of Active Zero-copy writes.

use std::fs;

use serde_json::Value;

use super::{study, text};
use crate::Scratch;

fn array<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is an array"))
}

#[test]
fn a_study_of_active_zero_copy_leaves_a_page_results_and_a_table() {
    let out = Scratch::new("active");
    let output = study(&["active", "--quick", "--out", out.text()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("it will take about"), "the time is said first");
    assert!(text(&output.stdout).contains("active, loan / passive"), "{}", text(&output.stdout));
    let json = fs::read_to_string(out.path().join("results.json")).expect("results");
    assert!(json.len() < 1_000_000);
    let results: Value = serde_json::from_str(&json).expect("JSON");
    assert!(array(&results, "failures").is_empty(), "{}", results["failures"]);
    // Four styles and seven, each untouched and touched; and the passive trip.
    let counts = [("trips", 8 * 4 * 2), ("transactions", 6 * 4 * 2), ("arrivals", 5 * 5 * 2 + 1)];
    for (figure, count) in counts {
        let points = array(&results, figure);
        assert_eq!(points.len(), count, "{figure}");
        for point in points {
            let runs = array(point, "runs");
            assert!(runs.len() >= 3, "{point}");
            assert!(runs.iter().all(|run| run["p50_ns"].as_f64().expect("a time") > 0.0));
            let bytes = point["bytes"].as_u64().expect("a size");
            // Longer messages are in place only in loans.
            let is_active = point["style"] == "active" && bytes <= 16_384;
            let is_in_place = is_active || point["style"] == "active_loan";
            let has_one_size = figure != "transactions";
            for run in runs {
                let (share, copied) = (&run["in_place"], &run["copied_bytes"]);
                if has_one_size && bytes > 160 && is_in_place {
                    assert_eq!(
                        (share.as_f64(), copied.as_f64()),
                        (Some(1.0), Some(0.0)),
                        "{point}"
                    );
                } else if !is_in_place {
                    let is_random_and_short = point["style"] == "active" && !has_one_size;
                    assert!(is_random_and_short || share.as_f64() == Some(0.0), "{point}");
                }
            }
        }
    }
    for slow in array(&results, "slow") {
        for run in array(slow, "runs") {
            let accepted = run["accepted_messages"].as_f64().expect("a number");
            let buffers = slow["buffers"].as_f64().expect("a number");
            // A credit for each buffer, and whatever comes back meanwhile.
            assert!(accepted >= buffers, "{slow}");
            assert!(run["done_ns"].as_f64() >= run["sent_ns"].as_f64(), "{slow}");
        }
    }
    for refusal in array(&results, "refusals") {
        let times = array(refusal, "knows_ns");
        let limit = refusal["limit_ns"].as_f64().unwrap_or(1.0);
        assert!(times.len() >= 3 && times.iter().all(|time| time.as_f64() >= Some(limit)));
    }
    let page = fs::read_to_string(out.path().join("report.html")).expect("a page");
    for word in ["Figure 4", "Figure 5", "Slow receivers", "NACK", "Copies after arrival"] {
        assert!(page.contains(word), "{word}");
    }
    let table = fs::read_to_string(out.path().join("points.csv")).expect("a table");
    assert!(table.lines().count() > 100, "{table}");

    // The page is drawn again, with each plot as a file.
    let again = study(&["report", out.text(), "--plots"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    let plot = fs::read_to_string(out.path().join("figure-5-touched.svg")).expect("a plot");
    assert!(plot.contains("</svg>"));
}
