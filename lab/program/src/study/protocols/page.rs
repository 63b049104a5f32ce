//! The pages of the agreement protocol and of the checkpointing protocol: Figures 7 to 9 and 46 to 74 of ZIMP.

use corewire_harness::statistics::Spread;

use crate::study::mechanisms::About;
use crate::study::page::units::{Quantity, bytes, gain, nanoseconds, plural, round};
use crate::study::page::{Axis, Chart, Figure, Mark, Page, Series, Table, whereabouts};
use crate::study::results::{Results, sorted};

use super::Protocol;
use super::results::{PointOf, Protocols};

const OURS: &str = "corewire_in_place";
const BARRELFISH: &str = "barrelfish_mp";
const LIBRARY: &str = "library";

/// By how many percent ZIMP is better than Barrelfish MP, as the paper says, with messages of so many bytes and so many
/// nodes: of the throughput of agreement, of the time of a snapshot.
const PAXOS: &[(u64, u32, f64)] = &[(1, 3, 13.0), (10 << 10, 3, 473.0), (1 << 20, 3, 83.0)];
const CHECKPOINT: &[(u64, u32, f64)] =
    &[(128, 24, 11.7), (4 << 10, 24, 55.6), (1 << 20, 24, 40.5), (4 << 10, 2, 48.0)];

/// The length of checkpoints for which there is a figure by number of nodes.
const BY_NODES: u64 = 4 << 10;

impl Results<Protocols> {
    /// What fits the protocol of these results.
    fn pick<T>(&self, paxos: T, checkpoint: T) -> T {
        if self.study == Protocol::Paxos.name() { paxos } else { checkpoint }
    }

    /// So many learners, or nodes.
    fn many(&self, nodes: u32) -> String {
        plural(nodes, self.pick("learner", "node"))
    }
}

/// The page for one machine, at the most frequent distance of its cores.
pub(super) fn of(results: &Results<Protocols>) -> Page {
    let here = &results.at_most_frequent();
    let found = &here.body;
    let template = here.pick(
        concat!(include_str!("paxos.md"), include_str!("page.md")),
        concat!(include_str!("checkpoint.md"), include_str!("page.md")),
    );
    let effort =
        format!("{}: {} of {} s", here.effort, plural(found.runs, "run"), round(found.run_s));
    let processors = match &found.placed {
        None => "one for each process, where there are enough".to_owned(),
        Some(cpus) => {
            let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
            format!("given, in the order of the processes: {}", cpus.join(", "))
        }
    };
    let model = Table::of_columns(
        &found.model,
        &[
            ("Ring", &|row| ring(found, &row.ring)),
            ("", &|row| here.many(row.nodes)),
            ("Time", &|row| nanoseconds(row.each_ns)),
            ("Lines", &|row| round(row.transfers)),
            ("Read-modify-writes", &|row| round(row.read_modify_writes)),
        ],
    );
    let why = |point: &PointOf| {
        let (size, many) = (bytes(point.bytes), here.many(point.nodes));
        Some(format!("{}, {size}, {many}: {}", point.mechanism, point.reason()?))
    };
    let mechanisms = Table::of_columns(
        &found.mechanisms,
        &[("Mechanism", &|it| it.name.clone()), ("Settings", &|it| it.settings.clone())],
    );
    Page::of(template, here, &[("Effort", effort), ("Processors", processors)])
        .value("whereabouts", whereabouts(&results.distances(), "run"))
        .short(in_short(here))
        .block("figures", figures(here))
        .block("model", model.captioned(here.pick("A decision", "A snapshot")))
        .block("claims", claims(here))
        .block("numbers", numbers(here))
        .block("absent", found.points.iter().filter_map(why).collect::<Vec<_>>())
        .block("mechanisms", mechanisms.prose())
}

/// How many times as many decisions or snapshots as Barrelfish MP each mechanism makes.
pub(super) fn factors(here: &Results<Protocols>) -> Table {
    let found = &here.body;
    let others: Vec<_> = found.mechanisms.iter().filter(|it| it.id != BARRELFISH).collect();
    let name = |(nodes, size): &(u32, u64)| format!("{}, {}", bytes(*size), here.many(*nodes));
    let cell = |(nodes, size): &(u32, u64), mechanism: &&About| {
        Some(format!("{:.2}", found.factor(&mechanism.id, BARRELFISH, *size, *nodes)?))
    };
    let names = (name, |mechanism: &&About| mechanism.name.clone());
    let what = here.pick("decisions", "snapshots");
    Table::matrix("", &found.shapes(), &others, names, cell)
        .captioned(format!("times as many {what} as Barrelfish MP, as published"))
}

fn in_short(here: &Results<Protocols>) -> Vec<String> {
    let (found, does) = (&here.body, here.pick("decides", "gathers"));
    let sentence = |under: &str| {
        let name = &found.mechanisms.iter().find(|it| it.id == under)?.name;
        let factor = |(nodes, size)| found.factor(OURS, under, size, nodes);
        let Spread { min, max, .. } = Spread::of(found.shapes().into_iter().filter_map(factor))?;
        Some(format!(
            "corewire, read in place, {does} {min:.2} to {max:.2} times as many per second as {name}."
        ))
    };
    // The page shows the first ones.
    let mut sentences: Vec<String> =
        ["zimp", BARRELFISH].into_iter().filter_map(sentence).collect();
    let factor = |(nodes, size)| found.factor(OURS, LIBRARY, size, nodes);
    if let Some(Spread { min, max, .. }) = Spread::of(found.shapes().into_iter().filter_map(factor))
    {
        let what = here.pick("a decision of a group", "a gathering of a computation");
        sentences.push(format!(
            "As the library does it, {what} takes {min:.2} to {max:.2} times as long as these roles over corewire, read in \
             place."
        ));
    }
    let measured = || found.points.iter().filter(|it| !it.each_ns.is_empty());
    let crowded = measured().filter(|it| it.oversubscribed).count();
    if crowded > 0 {
        sentences.push(format!(
            "{crowded} of {} points have more processes than cores: their figures say how the processes take turns more \
             than what messages cost.",
            measured().count()
        ));
    }
    sentences.extend(["barrelfish_ump", "unix_datagram"].into_iter().filter_map(sentence));
    sentences
}

#[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
fn figures(here: &Results<Protocols>) -> Vec<Figure> {
    let points = &here.body.points;
    let count = |nodes: &u32| points.iter().filter(|point| point.nodes == *nodes).count();
    let all = sorted(points.iter().map(|point| point.nodes));
    let Some(nodes) = all.into_iter().max_by_key(count) else { return Vec::new() };
    let many = here.many(nodes);
    let by_size = |is_over, stem, heading: &str| {
        let x = Axis::new(here.pick("Request size", "Checkpoint size"), Quantity::Bytes);
        let place = |point: &PointOf| (point.nodes == nodes).then_some(point.bytes as f64);
        figure(here, is_over, (stem, heading), x, place)
    };
    let over = format!("Figures 8 and 46\u{2013}74: snapshots over Barrelfish MP, {many}");
    let over =
        here.pick(("figure-7", "Figure 7: throughput over Barrelfish MP"), ("figure-8", &over));
    let itself = format!("Time of a snapshot, {many}");
    let itself =
        here.pick(("decisions", "Decisions per second by request size"), ("snapshots", &itself));
    let by_nodes = || {
        let x = Axis::new("Nodes", Quantity::Count);
        let place = |point: &PointOf| (point.bytes == BY_NODES).then_some(f64::from(point.nodes));
        let heading = "Figure 9: snapshots over Barrelfish MP by number of nodes";
        let heading = format!("{heading}, {}", bytes(BY_NODES));
        figure(here, true, ("figure-9", &heading), x, place)
    };
    let figures = [
        by_size(false, itself.0, itself.1),
        by_size(true, over.0, over.1),
        here.pick(None, by_nodes()),
    ];
    figures.into_iter().flatten().collect()
}

/// A figure of those points for which there is a `place` on its horizontal axis: decisions per second or the time of a
/// snapshot; or how many times as many they are as those of Barrelfish MP.
fn figure(
    here: &Results<Protocols>,
    is_over: bool,
    about: (&str, &str),
    x: Axis,
    place: impl Fn(&PointOf) -> Option<f64>,
) -> Option<Figure> {
    let y = match is_over {
        true => Axis::new("As a multiple of Barrelfish MP", Quantity::Factor),
        false => here.pick(
            Axis::new("Decisions per second", Quantity::Rate),
            Axis::new("Time of a snapshot", Quantity::Nanoseconds),
        ),
    };
    let mark = |point: &PointOf| {
        let PointOf { mechanism, bytes, nodes, .. } = point;
        let Spread { median, min, max } = point.spread()?;
        let (y, span) = match is_over {
            true => (here.body.factor(mechanism, BARRELFISH, *bytes, *nodes)?, None),
            false => {
                here.pick((1e9 / median, Some((1e9 / max, 1e9 / min))), (median, Some((min, max))))
            }
        };
        Some(Mark { x: place(point)?, y, span, hollow: point.oversubscribed })
    };
    let line = |mechanism: &About| {
        let own = here.body.points.iter().filter(|point| point.mechanism == mechanism.id);
        let mut own: Vec<_> = own.filter(|point| place(point).is_some()).collect();
        own.sort_by_key(|point| (point.nodes, point.bytes));
        Series::of(&mechanism.id, &mechanism.name, own.into_iter().map(mark).collect())
    };
    let series = here.body.mechanisms.iter().map(line).collect();
    let reference = is_over.then(|| (1.0, "equally fast".to_owned()));
    let caption = "Medians of the runs; thin bars reach from the slowest to the fastest. Both axes are logarithmic.";
    Chart { x, y, series, reference }.figure(about, caption)
}

/// The paper's figures beside those of this machine.
fn claims(here: &Results<Protocols>) -> Table {
    let found = |over: &str, under: &str, (size, nodes, _): &(u64, u32, f64)| {
        let factor = here.body.factor(over, under, *size, *nodes);
        // Of a snapshot the paper gives the part of the time that is saved.
        let saved = |factor: f64| format!("{:+.1} %", 100.0 * (1.0 - 1.0 / factor));
        factor.map_or("not measured".to_owned(), |factor| here.pick(gain(factor), saved(factor)))
    };
    let what = here.pick("Throughput", "The part of the time of a snapshot that is saved");
    let table = Table::of_columns(
        here.pick(PAXOS, CHECKPOINT),
        &[
            ("", &|(size, nodes, _)| format!("{}, {}", bytes(*size), here.many(*nodes))),
            ("ZIMP over Barrelfish MP, in the paper", &|(_, _, percent)| format!("+{percent} %")),
            ("here", &|claim| found("zimp", BARRELFISH, claim)),
            ("ZIMP over Barrelfish MP as Barrelfish has it", &|claim| {
                found("zimp", "barrelfish_ump", claim)
            }),
            ("corewire over Barrelfish MP", &|claim| found(OURS, BARRELFISH, claim)),
            ("corewire over ZIMP", &|claim| found(OURS, "zimp", claim)),
        ],
    );
    let whose = "the paper\u{2019}s figures are those of its machine of 24 cores.";
    table.captioned(format!("{what}; {whose}"))
}

/// The time of one decision or snapshot: a table for each number of nodes.
fn numbers(here: &Results<Protocols>) -> Vec<Table> {
    let found = &here.body;
    let table = |nodes: u32| {
        let shapes = found.shapes().into_iter().filter(|shape| shape.0 == nodes);
        let sizes: Vec<u64> = shapes.map(|(_, size)| size).collect();
        let names = (|mechanism: &About| mechanism.name.clone(), |size: &u64| bytes(*size));
        let time = |mechanism: &About, size: &u64| {
            Some(nanoseconds(found.point(&mechanism.id, *size, nodes)?.spread()?.median))
        };
        let table = Table::matrix("Time of one", &found.mechanisms, &sizes, names, time);
        table.captioned(here.many(nodes))
    };
    sorted(found.points.iter().map(|point| point.nodes)).into_iter().map(table).collect()
}

/// The name to display of a ring of the model.
fn ring(found: &Protocols, ring: &str) -> String {
    let id = if ring == "corewire" { OURS } else { ring };
    let mechanism = found.mechanisms.iter().find(|it| it.id == id);
    mechanism.map_or(ring, |mechanism| &mechanism.name).to_owned()
}
