//! What the study of MPIs writes.

use std::fs;
use std::path::Path;

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

/// The pairs of MPI and way that are possible here.
fn possible(results: &Value) -> Vec<(&str, &str)> {
    let all = array(results, "systems").iter().filter(|it| it["impossible"].is_null());
    all.map(|it| (it["mpi"].as_str().expect("an MPI"), it["way"].as_str().expect("a way")))
        .collect()
}

fn points<'a>(results: &'a Value, mpi: &str, way: &str) -> Vec<&'a Value> {
    let own = array(results, "points").iter();
    own.filter(|point| point["mpi"] == mpi && point["way"] == way).collect()
}

/// Says what is not here, and so was not tried.
fn tell_gaps(results: &Value) {
    for system in array(results, "systems") {
        if let Some(why) = system["impossible"].as_str() {
            eprintln!("without {} over {}: {why}", system["mpi"], system["way"]);
        }
        // An MPI may fail, but it is said why.
        let failures = array(system, "failures");
        assert!(failures.iter().all(|why| why.as_str().is_some_and(|why| !why.is_empty())));
    }
}

// Runs with whatever is here: without an MPI, with libfabric alone, or with neither.
#[test]
fn a_study_of_mpis_leaves_a_page_results_and_tables() {
    let out = Scratch::new("mpi");
    let few = ["--mpis", "direct,open_mpi4", "--sizes", "0,8,300000"];
    let output = study(&[&["mpi", "--quick", "--out", out.text()], &few[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("it will take about"), "the time is said first");
    let results = results(&out);
    let possible = possible(&results);
    tell_gaps(&results);
    for (mpi, way) in &possible {
        let (points, is_floor) = (points(&results, mpi, way), *way == "floor");
        for point in &points {
            let blocks = array(point, "blocks");
            assert!(!blocks.is_empty() && blocks.len() <= 22, "{point}");
            for block in blocks {
                assert!(block["each_ns"].as_f64() > Some(0.0), "{point}");
                assert_eq!(block["line_ns"].is_null(), point["oversubscribed"] == true, "{point}");
            }
        }
        let of = |measure: &str| points.iter().filter(|point| point["measure"] == measure).count();
        // What is called directly must work; a foreign MPI may not.
        if *mpi == "direct" && is_floor {
            assert_eq!((of("latency"), of("touched"), of("stream")), (3, 1, 2));
        }
    }
    // A point over corewire is compared with all others of its MPI.
    for ratio in array(&results, "ratios") {
        assert!(ratio["median"].as_f64() > Some(0.0) && ratio["over"] != "corewire", "{ratio}");
    }
    let counted = array(&results, "instructions");
    let absent = array(&results, "instructions_absent");
    if possible.contains(&("direct", "floor")) && absent.is_empty() {
        let floor: Vec<_> = counted.iter().filter(|it| it["way"] == "floor").collect();
        assert_eq!(floor.len(), 14, "seven calls with two sizes");
        for it in floor {
            assert!(it["instructions"].as_f64() > Some(10.0), "{it}");
            assert_eq!((&it["system_calls"], &it["allocations"]), (&0.into(), &0.into()), "{it}");
        }
    }
    let page = fs::read_to_string(out.path().join("report.html")).expect("a page");
    assert!(page.contains("Where corewire falls short") && page.contains("could not be measured"));
    let table = fs::read_to_string(out.path().join("points.csv")).expect("a table");
    assert!(table.starts_with("line_ns,mpi,way,measure,bytes,ranks"), "{table}");

    // The page is drawn again, with each plot as a file. There are none of sizes that were at different distances.
    let again = study(&["report", out.text(), "--plots"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    let files = fs::read_dir(out.path()).expect("the study's directory").flatten();
    let plots = files.filter(|file| file.path().extension().is_some_and(|it| it == "svg")).count();
    assert_eq!(plots, page.matches("<figure").count());
}

#[test]
fn an_mpich_is_measured_over_its_own_shared_memory_and_the_floor() {
    let out = Scratch::new("mpi-mpich");
    let few = ["--mpis", "mpich5,mpich4", "--experiments", "two_sided", "--sizes", "8"];
    let few = [&few[..], &["--ways", "own,floor"]].concat();
    let output = study(&[&["mpi", "--quick", "--out", out.text()], &few[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results = results(&out);
    tell_gaps(&results);
    for (mpi, way) in possible(&results) {
        let failures: Vec<_> = array(&results, "systems")
            .iter()
            .filter(|it| it["mpi"] == mpi && it["way"] == way)
            .flat_map(|it| array(it, "failures"))
            .collect();
        // A message of 8 bytes one way, among others, and before its receive.
        assert!(points(&results, mpi, way).len() == 3 || !failures.is_empty(), "{mpi} {way}");
    }
}

#[test]
fn a_study_of_mpis_without_a_compiler_says_what_to_install() {
    let out = Scratch::new("mpi-without-a-compiler");
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let arguments = ["mpi", "--quick", "--mpis", "direct,open_mpi4", "--out", out.text()];
    let output = command(&arguments).env("PATH", "/nonexistent").output().expect("the program");
    drop(turn);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("libfabric-dev"), "{said}");
    assert!(array(&results(&out), "points").is_empty());
}

#[test]
fn a_study_of_mpis_refuses_what_is_not() {
    for (arguments, word) in [
        (["--mpis", "carrier_pigeon"], "carrier_pigeon"),
        (["--sizes", "99999999999"], "99999999999"),
        (["--mpi-dirs", "/nonexistent"], "/nonexistent holds no bin/mpiexec"),
        (["--provider", "/nonexistent"], "there is no provider /nonexistent"),
    ] {
        let out = Scratch::new("mpi-refused");
        let output = study(&[&["mpi", "--out", out.text()], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
        assert!(!Path::new(out.text()).exists(), "nothing was begun");
    }
}
