//! What a study writes, how it continues, and what it refuses.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{command, study, text};
use crate::{Scratch, TURN};

/// A short study: two mechanisms, two sizes.
const FEW: [&str; 6] =
    ["--quick", "--mechanisms", "zimp,corewire_in_place", "--sizes", "64,4096", "--receivers"];

fn zimp(out: &Scratch, receivers: &str) -> std::process::Output {
    study(&[&["zimp", "--out", out.text()], &FEW[..], &[receivers]].concat())
}

fn results(out: &Scratch) -> Value {
    let text = fs::read_to_string(out.path().join("results.json")).expect("results");
    serde_json::from_str(&text).expect("JSON")
}

// Keeps P64.
#[test]
fn a_study_leaves_a_page_results_and_tables() {
    let out = Scratch::new("all");
    let output = zimp(&out, "1,3");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("it will take about"), "the time is said first");
    let results = results(&out);
    let points = results["points"].as_array().expect("points");
    // Two sizes to one receiver, to three receivers, and from two senders, each with both mechanisms.
    assert_eq!(points.len(), 12);
    for point in points {
        let runs = point["runs"].as_array().expect("runs");
        assert!((3..=6).contains(&runs.len()), "{point}");
        for run in runs {
            assert!(run["messages_per_s"].as_f64().expect("a rate") > 0.0, "{point}");
            assert_eq!(run["lost"], 0);
        }
    }
    let cores = results["machine"]["cores"].as_u64().expect("cores");
    for point in points {
        let processes = point["receivers"].as_u64().unwrap() + point["senders"].as_u64().unwrap();
        assert_eq!(point["oversubscribed"], processes > cores);
    }
    for count in results["counts"].as_array().expect("counts") {
        let receivers = count["receivers"].as_f64().unwrap();
        let in_place = count["mechanism"] == "corewire_in_place";
        assert_eq!(count["send_copies"], 0.0, "{count}");
        assert_eq!(count["receive_copies"], if in_place { 0.0 } else { receivers }, "{count}");
        assert!(count["send_calls"].as_f64().unwrap() < 0.001, "{count}");
        assert!(count["receive_calls"].as_f64().unwrap() < 0.001, "{count}");
    }
    assert_eq!(results["model"].as_array().expect("the model").len(), 27);
    let page = fs::read_to_string(out.path().join("report.html")).expect("a page");
    assert!(page.contains("Figure 2") && page.contains("Table I"));
    let table = fs::read_to_string(out.path().join("points.csv")).expect("a table");
    assert_eq!(table.lines().count(), 13);
    assert!(!out.path().join("progress.jsonl").exists(), "nothing is unfinished");
}

// Keeps P64.
#[test]
fn system_calls_of_the_kernels_mechanisms_are_counted() {
    let out = Scratch::new("calls");
    let arguments =
        ["--quick", "--mechanisms", "pipe,udp", "--sizes", "64,102400", "--receivers", "1"];
    let output = study(&[&["zimp", "--out", out.text()], &arguments[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    for count in results(&out)["counts"].as_array().expect("counts") {
        let receivers = count["receivers"].as_f64().unwrap();
        // A datagram holds at most 65,507 bytes.
        let datagrams = if count["bytes"] == 102_400 { 2.0 } else { 1.0 };
        let calls = if count["mechanism"] == "udp" { receivers * datagrams } else { receivers };
        assert_eq!(count["send_calls"].as_f64(), Some(calls), "{count}");
        let received = count["receive_calls"].as_f64().unwrap();
        assert!(received >= calls, "{count}");
        // Fragments have headers. Where a fragment is lost, the rest of its message is copied in vain.
        for copies in ["send_copies", "receive_copies"] {
            let copies = count[copies].as_f64().unwrap();
            let is_exact = (copies - receivers).abs() < 0.01 * receivers;
            assert!(is_exact || (datagrams > 1.0 && copies > receivers), "{count}");
        }
    }
}

// Keeps P65.
#[test]
fn an_interrupted_study_goes_on_where_it_was() {
    let out = Scratch::new("resume");
    let arguments = [&["zimp", "--out", out.text()], &FEW[..], &["1"]].concat();
    let journal = out.path().join("progress.jsonl");
    let lines = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    {
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Also where the tests run in the background of a script, which ignores the signal.
        let mut running = Command::new("env")
            .arg("--default-signal=INT")
            .arg(command(&arguments).get_program())
            .args(command(&arguments).get_args())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program is there");
        while lines() < 5 {
            std::thread::yield_now();
            assert!(running.try_wait().expect("a child").is_none(), "it ended by itself");
        }
        let pid = nix::unistd::Pid::from_raw(running.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("it runs");
        let mut said = String::new();
        let _ = running.stderr.take().expect("a pipe").read_to_string(&mut said);
        assert_eq!(running.wait().expect("a child").code(), Some(130), "{said}");
        assert!(said.contains("goes on where this one was"), "{said}");
    }
    let done = lines() - 1;
    assert!(done >= 4);
    // An unfinished study can be drawn.
    let output = study(&["report", out.text()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(out.path().join("report.html").exists());
    // Other settings are another study.
    let output = zimp(&out, "2");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("unfinished run of other settings"));
    let output = study(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(&format!("{done} runs of it are done")));
    for point in results(&out)["points"].as_array().expect("points") {
        // A host that moves the cores has up to as many again.
        assert!((3..=6).contains(&point["runs"].as_array().expect("runs").len()), "{point}");
    }
}

#[test]
fn machines_are_put_side_by_side() {
    let [one, other] = ["laptop", "server"].map(Scratch::new);
    let output = zimp(&one, "1,3");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files = [&one, &other].map(|out| out.path().join("results.json").display().to_string());
    fs::create_dir(other.path()).expect("a place");
    fs::copy(&files[0], &files[1]).expect("results");
    let page = one.path().join("compare.html").display().to_string();
    let output = study(&["compare", &files[0], &files[1], "--out", &page]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = fs::read_to_string(page).expect("a page");
    for out in [&one, &other] {
        let name = out.path().file_name().unwrap().to_string_lossy().into_owned();
        assert!(page.contains(&name), "{name}");
    }
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let out = Scratch::new("refusals");
    fs::create_dir_all(out.path()).expect("a directory");
    let odd = out.path().join("odd.json");
    fs::write(&odd, "{}").expect("a file");
    let odd = odd.display().to_string();
    for (arguments, word) in [
        (vec!["compare", &odd, &odd], "no results of a study"),
        (vec!["compare", "/no/such/file", &odd], "/no/such/file"),
        (vec!["report", "/no/such/directory"], "/no/such/directory"),
        (vec!["check", "zimp", "--receivers", "9999"], "9999"),
        (vec!["zimp", "--sizes", "0"], "0"),
        (vec!["zimp", "--mechanisms", "pigeons"], "pigeons"),
        (vec!["zimp", "--out", "/proc/no"], "/proc/no"),
    ] {
        let output = study(&arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text(&output.stderr).contains(word), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn wrong_usage_is_one_line() {
    for (words, said) in [
        (&["list"][..], "unrecognized subcommand 'list' (see 'corewire study --help')"),
        (&["zimp", "--frob"], "'--frob' found (see 'corewire study zimp --help')"),
        (&["zimp", "--receivers", "-1"], "invalid value '-1' for '--receivers"),
    ] {
        let done = study(words);
        let errors = text(&done.stderr);
        assert_eq!((done.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.starts_with("corewire study: ") && errors.contains(said), "{errors}");
    }
}

#[test]
fn what_is_read_and_written_is_a_regular_file() {
    let out = Scratch::new("files");
    fs::create_dir(out.path()).unwrap();
    let path = |name: &str| out.path().join(name);
    let pipe = |name: &str| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path(name), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
    };
    let refused = |words: &[&str], said: &[&str]| {
        let done = study(words);
        let errors = text(&done.stderr);
        assert!(!done.status.success() && errors.lines().count() == 1, "{words:?}: {errors}");
        assert!(said.iter().all(|part| errors.contains(part)), "{words:?}: {errors}");
    };
    pipe("results.json");
    let results = path("results.json");
    let results = results.to_str().unwrap();
    refused(&["report", out.text()], &[results, "it is a pipe"]);
    refused(&["compare", results, "/dev/zero"], &[results, "it is a pipe"]);
    refused(&["compare", "/dev/zero", results], &["/dev/zero", "it is a device"]);
    fs::remove_file(results).unwrap();
    pipe("progress.jsonl");
    let zimp = ["zimp", "--quick", "--out", out.text()];
    refused(&zimp, &["progress.jsonl", "it is a pipe"]);
    fs::remove_file(path("progress.jsonl")).unwrap();
    fs::write(path("progress.jsonl"), "notes of mine").unwrap();
    refused(&zimp, &["progress.jsonl", "holds no journal", "another --out"]);
    assert_eq!(fs::read_to_string(path("progress.jsonl")).unwrap(), "notes of mine");
    fs::remove_file(path("progress.jsonl")).unwrap();
    // Before anything is measured.
    fs::create_dir(path("report.html")).unwrap();
    for name in ["zimp", "nemesis", "active", "interfaces", "routing", "collectives", "transfer"] {
        refused(&[name, "--quick", "--out", out.text()], &["report.html", "directory"]);
    }
}
