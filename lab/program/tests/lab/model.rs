//! `corewire model`.

use std::fs::{create_dir, write};

use crate::{Scratch, json, printed, refused};

#[test]
fn a_row_for_each_number_of_receivers_with_the_keys_that_help_lists() {
    let report = json("model broadcast --receivers 1,3 --slots 64 --json");
    assert_eq!((&report["ring"], &report["slots"]), (&"broadcast".into(), &64.into()));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(
        rows.iter().map(|row| row["receivers"].as_u64()).collect::<Vec<_>>(),
        [Some(1), Some(3)]
    );
    let help = printed("model --help");
    let keys = rows[0].as_object().unwrap().keys().chain(report.as_object().unwrap().keys());
    for key in keys.chain(report["topology"].as_object().unwrap().keys()) {
        assert!(help.contains(key.as_str()), "{key} is not in the help");
    }
    assert_eq!(rows[1]["sender_upgrades"], 1.0);
    assert_eq!(rows[1]["receiver_transfers"], 1.0);
    assert_eq!(rows[1]["read_modify_writes"], 0.0);
}

#[test]
fn a_topology_is_read_and_one_that_cannot_be_is_named() {
    let scratch = Scratch::new("model-topology");
    create_dir(scratch.path()).unwrap();
    let file = scratch.path().join("topology");
    let times = |text: &str| {
        write(&file, text).unwrap();
        let topology = file.display();
        let found =
            json(&format!("model broadcast --receivers 2 --slots 64 --json --topology {topology}"));
        found["rows"][0]["one_by_one_ns"].as_f64().unwrap()
    };
    let near = times(r#"{"near_ns": 40, "far_ns": 400}"#);
    let far = times(r#"{"near_ns": 40, "far_ns": 400, "domain_cores": 1}"#);
    assert!(far > near, "{near} and {far} ns");
    for (text, word) in [
        ("{", "not a topology"),
        (r#"{"cores": 3}"#, "cores"),
        (r#"{"domain_cores": 0}"#, "at least 1"),
        (r#"{"far_ns": 99999999999}"#, "1000000000"),
    ] {
        write(&file, text).unwrap();
        refused(&format!("model broadcast --topology {}", file.display()), 2, word);
    }
    for (file, word) in [
        ("/no/such/file", "/no/such/file: "),
        ("/dev/zero", "/dev/zero: it is a device, not a regular file"),
        ("/", "directory"),
    ] {
        refused(&format!("model broadcast --topology {file}"), 2, word);
    }
}
