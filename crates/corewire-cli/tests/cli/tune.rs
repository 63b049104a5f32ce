//! `tune`.

use std::fs;

use crate::scratch::Scratch;

// Keeps P253.
#[test]
fn what_tune_writes_is_followed() {
    let scratch = Scratch::new("tune");
    let file = scratch.temporary().join("settings/tuning.toml");
    let place = file.to_str().unwrap();
    let done = scratch.run(&format!("tune --rounds 1 --out {place}"));
    if std::thread::available_parallelism().unwrap().get() < 2 {
        done.expect_line(1, "tuning needs two processors");
        return;
    }
    done.expect_code(0);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("offered_above_bytes = "), "{text}");
    assert!(corewire::Tuning::parse(&text).is_ok(), "{text}");
    assert!(done.text().ends_with(" s\n") && done.text().contains(place), "{}", done.text());
    let mut command = scratch.command("tune --explain 64K");
    let done = crate::scratch::Running::start(command.env("COREWIRE_TUNING", place)).finish();
    done.expect_code(0);
    assert!(done.text().contains(place), "{}", done.text());
    assert_eq!(done.errors, "");
}

// Keeps P253.
#[test]
fn tune_says_what_becomes_of_a_message() {
    let scratch = Scratch::new("tune-explain");
    let file = scratch.temporary().join("tuning.toml");
    let text = "format = 1\nprocessor = \"any\"\n\n[messages]\noffered_above_bytes = 8192\nboth_sides_from_bytes = 16384\n";
    fs::write(&file, text).unwrap();
    let explain = |bytes: &str, tuning: &str| {
        let mut command = scratch.command(&format!("tune --explain {bytes}"));
        let done = crate::scratch::Running::start(command.env("COREWIRE_TUNING", tuning)).finish();
        done.expect_code(0);
        done.text().to_owned()
    };
    let tuned = file.to_str().unwrap();
    assert!(explain("100", tuned).contains("is in the ring itself"));
    assert!(explain("8K", tuned).contains("is copied through cells, 64 of 16 KiB"));
    assert!(explain("9000", tuned).contains("is copied by the receiver alone"));
    assert!(explain("16K", tuned).contains("and by the sender while that one is in a call"));
    assert!(explain("16K", tuned).contains(tuned));
    let untuned = explain("16K", "none");
    assert!(untuned.contains("through cells") && untuned.contains("not tuned"), "{untuned}");
    scratch.run("tune --explain much").expect_line(2, "much");
    // Before anything is measured.
    scratch.run("tune --out /").expect_line(1, "cannot write /: Is a directory");
}
