//! The pages of the agreement protocol and of the checkpointing protocol: Figures 7 to 9 and 46 to 74 of papers/000.

use crate::study::protocols::Protocol;
use crate::study::protocols::results::{PointOf, Results};
use crate::study::results::Mechanism;

use super::chart::{Axis, Chart, Figure, Mark, Picture, Series};
use super::error::Error;
use super::page::{self, Section, Table, paragraph};
use super::svg::{Format, Place};
use super::throughput::oversubscribed_note;
use super::units::{Quantity, bytes, gain, nanoseconds, plural, round};
use super::{escape, look, machine};

/// What the paper says: over Barrelfish MP, on its machine of 24 cores.
struct Claim {
    bytes: u64,
    nodes: u32,
    /// In percent: of the throughput of agreement, of the time of a snapshot.
    percent: f64,
}

const PAXOS: [Claim; 3] = [
    Claim { bytes: 1, nodes: 3, percent: 13.0 },
    Claim { bytes: 10 << 10, nodes: 3, percent: 473.0 },
    Claim { bytes: 1 << 20, nodes: 3, percent: 83.0 },
];
const CHECKPOINT: [Claim; 4] = [
    Claim { bytes: 128, nodes: 24, percent: 11.7 },
    Claim { bytes: 4 << 10, nodes: 24, percent: 55.6 },
    Claim { bytes: 1 << 20, nodes: 24, percent: 40.5 },
    Claim { bytes: 4 << 10, nodes: 2, percent: 48.0 },
];

/// The page.
pub(crate) fn render(results: &Results) -> Result<String, Error> {
    let title = match results.study {
        Protocol::Paxos => "Agreement between cores: ZIMP\u{2019}s PaxosInside on this machine",
        Protocol::Checkpoint => {
            "Snapshots between cores: ZIMP\u{2019}s checkpointing on this machine"
        }
    };
    let short = format!(
        "<div class=\"short\">\n<h2>In short</h2>\n{}</div>\n",
        page::list(&in_short(results))
    );
    let lead = format!("<p class=\"lead\">{}</p>\n{short}", escape::escape(&summary(results)));
    let run = [
        ("corewire", results.version.clone()),
        ("Began", machine::moment(&results.began)),
        (
            "Effort",
            format!(
                "{}: {} of {} s",
                results.effort,
                plural(results.runs, "run"),
                round(results.run_s)
            ),
        ),
        (
            "Processors",
            match &results.placed {
                None => "one for each process, where there are enough".to_owned(),
                Some(cpus) => {
                    let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
                    format!("given, in the order of the processes: {}", cpus.join(", "))
                }
            },
        ),
    ];
    let sections = [
        Section::new("machine", "The machine", machine::table(&results.machine, &run)),
        Section::new("reading", "How to read", how_to_read(results)),
        Section::new("figures", "Figures", page::figures(&figures(results))?),
        Section::new("model", "With a core for each role", model(results)),
        Section::new("claims", "The paper\u{2019}s claims", claims(results)),
        Section::new("numbers", "The medians as tables", numbers(results)),
        Section::new("absent", "What could not be measured here", absent(results)),
        Section::new("mechanisms", "How each mechanism was set up", mechanisms(results)),
    ];
    Ok(page::page(title, &lead, &sections))
}

/// The SVG of every figure, with the stem of its file name.
pub(crate) fn plots(results: &Results) -> Result<Vec<(String, String)>, Error> {
    let picture = |figure: Figure| {
        let picture = page::picture(&figure, Format::Wide, Place::File)?;
        Ok((figure.stem, picture))
    };
    figures(results).into_iter().map(picture).collect()
}

fn summary(results: &Results) -> String {
    let what = match results.study {
        Protocol::Paxos => {
            "A client asks a proposer, which asks an acceptor, which tells all learners, which answer the client: the \
             agreement protocol PaxosInside without failures, as in section IV-C1 of ZIMP"
        }
        Protocol::Checkpoint => {
            "A node asks all others for a snapshot; each takes a checkpoint and sends it back: the part of Manivannan \
             and Singhal\u{2019}s protocol of section IV-C2 of ZIMP"
        }
    };
    format!(
        "{what}, on {} ({}). The code is the same over every mechanism.",
        results.machine.processor,
        plural(results.machine.cores, "core")
    )
}

fn in_short(results: &Results) -> Vec<String> {
    let mut sentences = Vec::new();
    let ours = "corewire_in_place";
    for under in ["zimp", "barrelfish_mp", "barrelfish_ump", "unix_datagram"] {
        let shapes = results.nodes().into_iter().flat_map(|nodes| {
            results
                .sizes()
                .into_iter()
                .filter_map(move |size| results.factor(ours, under, size, nodes))
        });
        let factors: Vec<f64> = shapes.collect();
        let (Some(least), Some(most)) =
            (factors.iter().copied().reduce(f64::min), factors.iter().copied().reduce(f64::max))
        else {
            continue;
        };
        let what = match results.study {
            Protocol::Paxos => "decides",
            Protocol::Checkpoint => "gathers",
        };
        let name = results.mechanisms.iter().find(|it| it.id == under);
        let name = name.map_or(under, |it| it.name.as_str());
        sentences.push(format!(
            "corewire, read in place, {what} {least:.2} to {most:.2} times as many per second as {name}."
        ));
    }
    let crowded = results.points.iter().filter(|point| point.oversubscribed).count();
    if crowded > 0 {
        sentences.push(format!(
            "{crowded} of {} points have more processes than cores: their figures say how the processes take turns more \
             than what messages cost.",
            results.points.len()
        ));
    }
    sentences
}

fn how_to_read(results: &Results) -> String {
    let per = match results.study {
        Protocol::Paxos => {
            "Every message carries the whole request, behind 16 bytes with the instance and the proposal number. An \
             instance counts once, when all learners have answered. The learners\u{2019} sequences are compared, and a \
             difference fails the run."
        }
        Protocol::Checkpoint => {
            "A request has 128 bytes. Every checkpoint carries 16 bytes besides its own: its number and its node. The number \
             advances with each snapshot, so that a checkpoint is really taken (the authors\u{2019} code takes the first one \
             only). All bytes of each checkpoint are checked in the warm-up, its number and node always."
        }
    };
    paragraph(per)
        + &paragraph(
            "For each size all mechanisms run one after the other, three times, in alternating order; a figure is the \
             median. Where there are fewer cores than processes, every process that polls yields after 64 polls, whatever \
             the mechanism.",
        )
}

/// What the charts show of a point.
#[derive(Clone, Copy)]
enum View {
    /// Per second, or the time of one.
    Itself,
    /// How many times as much as Barrelfish MP.
    OverBarrelfish,
}

fn figures(results: &Results) -> Vec<Figure> {
    let most = results
        .nodes()
        .into_iter()
        .max_by_key(|nodes| results.points.iter().filter(|point| point.nodes == *nodes).count());
    let Some(nodes) = most else { return Vec::new() };
    let all = match results.study {
        Protocol::Paxos => vec![
            by_size(
                results,
                nodes,
                View::Itself,
                "decisions",
                "Decisions per second by request size",
            ),
            by_size(
                results,
                nodes,
                View::OverBarrelfish,
                "figure-7",
                "Figure 7: throughput over Barrelfish MP",
            ),
        ],
        Protocol::Checkpoint => vec![
            by_size(
                results,
                nodes,
                View::Itself,
                "snapshots",
                &format!("Time of a snapshot, {nodes} nodes"),
            ),
            by_size(
                results,
                nodes,
                View::OverBarrelfish,
                "figure-8",
                &format!("Figures 8 and 46\u{2013}74: snapshots over Barrelfish MP, {nodes} nodes"),
            ),
            by_nodes(results, 4 << 10),
        ],
    };
    all.into_iter().flatten().collect()
}

fn series(mechanism: &Mechanism, marks: Vec<Option<Mark>>) -> Series {
    Series {
        name: mechanism.name.clone(),
        short: look::short_name(&mechanism.id, &mechanism.name),
        look: look::of_mechanism(&mechanism.id),
        marks,
    }
}

fn mark(results: &Results, point: &PointOf, x: f64, view: View) -> Option<Mark> {
    let spread = point.spread()?;
    let hollow = point.oversubscribed;
    let (y, span) = match (view, results.study) {
        (View::Itself, Protocol::Paxos) => {
            (1e9 / spread.median, Some((1e9 / spread.max, 1e9 / spread.min)))
        }
        (View::Itself, Protocol::Checkpoint) => (spread.median, Some((spread.min, spread.max))),
        (View::OverBarrelfish, _) => {
            (results.factor(&point.mechanism, "barrelfish_mp", point.bytes, point.nodes)?, None)
        }
    };
    Some(Mark { x, y, span, hollow })
}

fn axis(results: &Results, view: View) -> Axis {
    match (view, results.study) {
        (View::OverBarrelfish, _) => Axis::new("As a multiple of Barrelfish MP", Quantity::Factor),
        (_, Protocol::Paxos) => Axis::new("Decisions per second", Quantity::Rate),
        (_, Protocol::Checkpoint) => Axis::new("Time of a snapshot", Quantity::Nanoseconds),
    }
}

fn figure(chart: Chart, stem: &str, heading: &str, view: View) -> Option<Figure> {
    let mut chart = chart;
    if let View::OverBarrelfish = view {
        chart.reference = Some((1.0, "equally fast".to_owned()));
    }
    let chart = chart.shown()?;
    let crowd = oversubscribed_note(chart.marks().any(|mark| mark.hollow));
    let caption = format!(
        "Medians of the runs; thin bars reach from the slowest to the fastest. Both axes are logarithmic.{crowd}"
    );
    let (stem, heading) = (stem.to_owned(), heading.to_owned());
    Some(Figure { stem, heading, caption, picture: Picture::Lines(chart) })
}

#[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
fn by_size(results: &Results, nodes: u32, view: View, stem: &str, heading: &str) -> Option<Figure> {
    let of = |mechanism: &Mechanism| {
        let points = results
            .sizes()
            .into_iter()
            .filter_map(|size| results.point(&mechanism.id, size, nodes));
        series(
            mechanism,
            points.map(|point| mark(results, point, point.bytes as f64, view)).collect(),
        )
    };
    let name = match results.study {
        Protocol::Paxos => "Request size",
        Protocol::Checkpoint => "Checkpoint size",
    };
    let (x, y) = (Axis::new(name, Quantity::Bytes), axis(results, view));
    let series = results.mechanisms.iter().map(of).collect();
    figure(Chart { x, y, series, reference: None }, stem, heading, view)
}

fn by_nodes(results: &Results, size: u64) -> Option<Figure> {
    let view = View::OverBarrelfish;
    let of = |mechanism: &Mechanism| {
        let points = results
            .nodes()
            .into_iter()
            .filter_map(|nodes| results.point(&mechanism.id, size, nodes));
        series(
            mechanism,
            points.map(|point| mark(results, point, f64::from(point.nodes), view)).collect(),
        )
    };
    let (x, y) = (Axis::new("Nodes", Quantity::Count), axis(results, view));
    let series = results.mechanisms.iter().map(of).collect();
    let heading =
        format!("Figure 9: snapshots over Barrelfish MP by number of nodes, {}", bytes(size));
    figure(Chart { x, y, series, reference: None }, "figure-9", &heading, view)
}

/// The paper's figures beside those of this machine.
fn claims(results: &Results) -> String {
    let all: &[Claim] = match results.study {
        Protocol::Paxos => &PAXOS,
        Protocol::Checkpoint => &CHECKPOINT,
    };
    let here = |over: &str, under: &str, claim: &Claim| {
        let Some(factor) = results.factor(over, under, claim.bytes, claim.nodes) else {
            return "not measured".to_owned();
        };
        match results.study {
            Protocol::Paxos => gain(factor),
            // The paper gives the part of the time that is saved.
            Protocol::Checkpoint => format!("{:+.1} %", 100.0 * (1.0 - 1.0 / factor)),
        }
    };
    let rows = all.iter().map(|claim| {
        vec![
            format!("{}, {}", bytes(claim.bytes), many(results, claim.nodes)),
            format!("+{} %", claim.percent),
            here("zimp", "barrelfish_mp", claim),
            here("zimp", "barrelfish_ump", claim),
            here("corewire_in_place", "barrelfish_mp", claim),
            here("corewire_in_place", "zimp", claim),
        ]
    });
    let head = [
        "",
        "ZIMP over Barrelfish MP, in the paper",
        "here",
        "ZIMP over Barrelfish MP as Barrelfish has it",
        "corewire over Barrelfish MP",
        "corewire over ZIMP",
    ];
    let head = head.map(str::to_owned).into();
    let what = match results.study {
        Protocol::Paxos => {
            "Throughput; the paper\u{2019}s figures are those of its machine of 24 cores."
        }
        Protocol::Checkpoint => {
            "The part of the time of a snapshot that is saved; the paper\u{2019}s figures are those of its machine of 24 cores."
        }
    };
    Table { head, rows: rows.collect(), is_prose: false }.html(what)
}

fn numbers(results: &Results) -> String {
    let table = |nodes: u32| {
        let sizes: Vec<u64> = results.sizes();
        let has =
            |size: &u64| results.points.iter().any(|it| (it.bytes, it.nodes) == (*size, nodes));
        let sizes: Vec<u64> = sizes.into_iter().filter(has).collect();
        let head =
            std::iter::once("Time of one".to_owned()).chain(sizes.iter().map(|size| bytes(*size)));
        let rows = results.mechanisms.iter().map(|mechanism| {
            let cell = |size: &u64| {
                let spread = results.point(&mechanism.id, *size, nodes).and_then(PointOf::spread);
                spread.map_or("\u{2013}".to_owned(), |it| nanoseconds(it.median))
            };
            std::iter::once(mechanism.name.clone()).chain(sizes.iter().map(cell)).collect()
        });
        let caption = many(results, nodes);
        Table { head: head.collect(), rows: rows.collect(), is_prose: false }.html(&caption)
    };
    results.nodes().into_iter().map(table).collect()
}

/// What the rings would cost if each role had a core.
fn model(results: &Results) -> String {
    let lead = paragraph(
        "The model of coherent caches runs the rings\u{2019} own code, every role on a core of its own, with messages of 48 \
         bytes. It does not depend on this machine. Client and proposer are one role; lines are those that all cores \
         together fetch; the times are those of the model\u{2019}s clocks, with 50 ns for a line.",
    );
    let name = |ring: &str| {
        let id = if ring == "corewire" { "corewire_in_place" } else { ring };
        let name = results.mechanisms.iter().find(|it| it.id == id).map(|it| it.name.clone());
        name.unwrap_or_else(|| ring.to_owned())
    };
    let rows = results.model.iter().map(|row| {
        vec![
            name(&row.ring),
            many(results, row.nodes),
            nanoseconds(row.each_ns),
            round(row.transfers),
            round(row.read_modify_writes),
        ]
    });
    let what = match results.study {
        Protocol::Paxos => "A decision",
        Protocol::Checkpoint => "A snapshot",
    };
    let head = ["Ring", "", "Time", "Lines", "Read-modify-writes"].map(str::to_owned).into();
    lead + &Table { head, rows: rows.collect(), is_prose: false }.html(what)
}

/// Learners, or all nodes.
fn many(results: &Results, nodes: u32) -> String {
    match results.study {
        Protocol::Paxos => plural(nodes, "learner"),
        Protocol::Checkpoint => plural(nodes, "node"),
    }
}

fn absent(results: &Results) -> String {
    let why = |point: &PointOf| {
        let reason = point.impossible.iter().chain(&point.failures).next()?;
        let many = many(results, point.nodes);
        Some(format!("{}, {}, {many}: {reason}", point.mechanism, bytes(point.bytes)))
    };
    let all: Vec<String> = results.points.iter().filter_map(why).collect();
    if all.is_empty() { paragraph("Everything was measured.") } else { page::list(&all) }
}

fn mechanisms(results: &Results) -> String {
    let rows = results.mechanisms.iter().map(|it| vec![it.name.clone(), it.settings.clone()]);
    let head = ["Mechanism", "Settings"].map(str::to_owned).into();
    Table { head, rows: rows.collect(), is_prose: true }.html("")
}
