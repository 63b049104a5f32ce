//! Tests of what is measured, and of the pages, with plausible results.

use std::time::Duration;

use clap::Parser;

use super::results::{Count, Latency, Model, Point, Run, SystemCall, Zimp};
use super::runner::{Effort, Group, Study as _};
use super::{Args, FEW_SIZES, Job, SIZES, Study, comparison, receivers};
use crate::study::fixture;
use crate::study::mechanisms::{Id, Shape, mechanism};
use crate::study::page::Page;
use crate::study::results::{Body, Results};

/// Some mechanisms, and the time of a message and of a byte, in nanoseconds.
const MECHANISMS: [(Id, f64, f64); 6] = [
    (Id::Tcp, 1500.0, 0.3),
    (Id::Udp, 1400.0, 0.35),
    (Id::BarrelfishMp, 24.0, 0.14),
    (Id::Zimp, 38.0, 0.1),
    (Id::CorewireCopy, 9.0, 0.08),
    (Id::CorewireInPlace, 6.0, 0.04),
];
const FAR: Option<[f64; 2]> = Some([200.0, 210.0]);
const NEAR: Option<[f64; 2]> = Some([50.0, 50.0]);

/// A point with three runs at one distance of the cores, and a fast one at another distance.
fn point((id, message, byte): (Id, f64, f64), bytes: u32, [receivers, senders]: [u32; 2]) -> Point {
    let rate = 1e9 / ((message + byte * f64::from(bytes)) * f64::from(receivers));
    let run = |(factor, line_ns)| Run {
        messages_per_s: rate * factor,
        sent: 1_000_000,
        lost: if id == Id::Udp { 1000 } else { 0 },
        sender_cpu_ns: 1e9 / rate,
        receiver_cpu_ns: 9e8 / rate,
        instructions_per_byte: None,
        cache_misses_per_byte: None,
        line_ns,
    };
    let is_possible = id != Id::Udp || bytes < 65_536;
    let runs = [(0.93, FAR), (1.0, FAR), (1.08, FAR), (50.0, NEAR)];
    Point {
        mechanism: id.text(),
        bytes: bytes.into(),
        receivers,
        senders,
        oversubscribed: receivers + senders > 4,
        impossible: (!is_possible).then(|| "a message is too long.".to_owned()),
        failures: Vec::new(),
        runs: if is_possible { runs.map(run).to_vec() } else { Vec::new() },
    }
}

fn results() -> Results<Zimp> {
    let sizes = [1, 64, 4096, 102_400, 1 << 20];
    let shapes = [[1, 1], [3, 1], [8, 1], [1, 2], [1, 4]];
    let cases = || MECHANISMS.iter().flat_map(|it| sizes.map(|bytes| (*it, bytes)));
    let points = cases().flat_map(|(it, bytes)| shapes.map(|shape| point(it, bytes, shape)));
    let latency = |((id, message, _), bytes): ((Id, f64, f64), u32)| Latency {
        mechanism: id.text(),
        bytes: bytes.into(),
        oversubscribed: false,
        impossible: None,
        p50_ns: vec![message, 2.0 * message, 1.0],
        p99_ns: vec![3.0 * message, 4.0 * message, 1.0],
        line_ns: vec![FAR, FAR, NEAR],
    };
    let count = |(id, ..): (Id, f64, f64)| Count {
        mechanism: id.text(),
        bytes: 64,
        receivers: 3,
        send_copies: 3.0,
        ..Count::default()
    };
    let model = |receivers: u32| Model {
        ring: "zimp".to_owned(),
        receivers,
        sender_transfers: 2.0,
        receiver_transfers: 1.5,
        invalidations: 1.0,
        read_modify_writes: 2.0,
        stream_ns: f64::from(receivers) * 50.0,
    };
    fixture::results(
        "zimp",
        Zimp {
            run_s: 0.4,
            runs: 3,
            mechanisms: MECHANISMS.iter().map(|(id, ..)| mechanism(*id)).collect(),
            points: points.collect(),
            latencies: cases().map(latency).collect(),
            counts: MECHANISMS.map(count).to_vec(),
            system_call: Some(SystemCall { function_ns: 1.3, system_call_ns: 92.4 }),
            model: [1, 8, 255].map(model).to_vec(),
        },
    )
}

/// The page as HTML, which needs nothing else and has no figure that is none.
fn sound(page: &Page) -> String {
    let html = page.html();
    for wrong in ["NaN", "inf ", ">inf", "-inf", "<script", "http://", "https://", "url("] {
        assert!(!html.contains(wrong), "{wrong} in the page");
    }
    html
}

#[test]
fn the_page_has_every_figure() {
    let page = Zimp::page(&results());
    let html = sound(&page);
    for text in [
        "In short",
        "The host moved the cores during the study",
        "Figure 2: throughput by message size, 1 receiver",
        "Figure 3: throughput by message size, 8 receivers",
        "Figure 11: throughput by message size, 3 receivers",
        "Figure 31: ZIMP over each mechanism, 64\u{a0}B messages",
        "Figure 35, beside it: corewire copying out over each mechanism, 4\u{a0}KiB messages",
        "Several senders: 64\u{a0}B messages to 1 receiver",
        "paper: 3",
        "UDP sockets, throughput (100\u{a0}KiB, 1\u{a0}MiB; 1, 3, 8 receivers; 2, 4 senders): a message is too long.",
    ] {
        assert!(html.contains(text), "no {text}");
    }
    let stems: Vec<String> = page.plots().into_iter().map(|(stem, _)| stem).collect();
    for stem in ["figure-2", "figure-6", "latency", "coherence-model"] {
        assert!(stems.iter().any(|other| other == stem), "no {stem}");
    }
}

#[test]
fn only_runs_at_one_distance_of_the_cores_count() {
    let here = results().at_most_frequent().body;
    assert!(here.points.iter().all(|point| point.runs.len() % 3 == 0));
    assert_eq!(here.latencies[0].p50_ns, [1500.0, 3000.0]);
    assert_eq!(here.latencies[0].p99_ns, [4500.0, 6000.0]);
    assert_eq!(here.latencies[0].line_ns, [FAR, FAR]);
}

#[test]
fn results_of_before_lines_were_timed_are_read_and_count() {
    let text = serde_json::to_string(&results()).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for latency in value["latencies"].as_array_mut().unwrap() {
        latency.as_object_mut().unwrap().remove("line_ns").unwrap();
    }
    for point in value["points"].as_array_mut().unwrap() {
        for run in point["runs"].as_array_mut().unwrap() {
            run.as_object_mut().unwrap().remove("line_ns").unwrap();
        }
    }
    let old: Results<Zimp> = serde_json::from_value(value).unwrap();
    let here = old.at_most_frequent().body;
    assert_eq!(here.points[0].runs.len(), 4);
    assert_eq!(here.latencies[0].p50_ns.len(), 3);
    sound(&Zimp::page(&old));
}

#[test]
fn results_without_figures_have_a_page() {
    let mut results = results();
    for run in results.body.points.iter_mut().flat_map(|point| &mut point.runs) {
        run.messages_per_s = 0.0;
    }
    for latency in &mut results.body.latencies {
        latency.p50_ns.fill(f64::INFINITY);
    }
    sound(&Zimp::page(&results));
    let body = &mut results.body;
    (body.points, body.latencies, body.counts) = (Vec::new(), Vec::new(), Vec::new());
    (body.mechanisms, body.model, body.system_call) = (Vec::new(), Vec::new(), None);
    let page = Zimp::page(&results);
    assert!(sound(&page).contains("Figure 2 needs at least two message sizes"));
    assert!(page.plots().is_empty());
}

#[test]
fn machines_stand_side_by_side() {
    sound(&comparison::page(&[]));
    let all = ["four-cores", "other & more"].map(|name| (name.to_owned(), results()));
    let html = sound(&comparison::page(&all));
    assert!(html.contains("Figure 39: ZIMP over Barrelfish MP, 64\u{a0}B messages"));
    assert!(html.contains("corewire copying out over ZIMP, 4\u{a0}KiB messages"));
    assert!(html.contains("other &amp; more"));
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// The study of a command line, on two cores.
fn study(words: &[&str]) -> Study {
    Study::new(&Line::parse_from([&["zimp"], words].concat()).args, 2)
}

#[test]
fn a_quick_run_has_all_sizes_for_one_receiver_and_two_for_more() {
    let study = study(&["--quick", "--mechanisms", "zimp,pipe"]);
    let sizes = |receivers, senders| {
        let of = |shape: &&Shape| (shape.receivers, shape.senders) == (receivers, senders);
        study.streams.iter().filter(of).map(|shape| shape.bytes).collect::<Vec<_>>()
    };
    assert_eq!(sizes(1, 1), SIZES);
    for receivers in [2, 3, 8] {
        assert_eq!(sizes(receivers, 1), FEW_SIZES);
    }
    assert_eq!(sizes(1, 2), FEW_SIZES);
    let each = |group: &Group<Job>| {
        group.jobs.iter().map(|job| study.time_of(job)).sum::<Duration>() * group.runs
    };
    assert!(study.groups().iter().map(each).sum::<Duration>() < Duration::from_secs(60));
}

#[test]
fn mechanisms_take_turns() {
    let study = study(&["--sizes", "64", "--receivers", "1", "--mechanisms", "zimp,udp"]);
    let shape = Shape { bytes: 64, receivers: 1, senders: 1 };
    let first = &study.groups()[0];
    assert_eq!(first.jobs, [Job::Stream(Id::Zimp, shape), Job::Stream(Id::Udp, shape)]);
    assert_eq!(first.runs, 3);
}

#[test]
fn a_full_run_has_every_number_of_receivers() {
    assert_eq!(receivers(Effort::Full, 5), [1, 2, 3, 4, 8]);
    assert_eq!(receivers(Effort::Default, 24), [1, 2, 3, 4, 6, 8, 12, 16, 23]);
}
