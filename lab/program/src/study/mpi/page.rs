//! The page of the study. Every sentence with a figure is computed.

use corewire_harness::statistics::Spread;

use super::counts::Instructions;
use super::results::{Measurements, Point, Row};
use super::shapes::Measure;
use super::ways::Way;
use crate::study::page::units::{Quantity, and, bytes, nanoseconds, plural, round};
use crate::study::page::{
    Axis, Block, Chart, Figure, Mark, NONE, Page, Series, Table, whereabouts, with_span,
};
use crate::study::results::{About, Results, name_of};

/// The largest size in Figure 4.
const LATENCY_MAX: u64 = 1024;
/// One way, the floor is a measure up to here.
const FLOOR_MAX: u64 = 4096;
/// corewire falls short if it takes so many times as long, and so much longer.
const TIMES_MAX: f64 = 1.1;
const BEHIND_NS: f64 = 50.0;
/// From this size on it is to be ahead by so much, where messages are written and read.
const AHEAD_FROM: u64 = 1 << 20;
const AHEAD: f64 = 1.0 / 1.15;

/// The page for one machine, at the most frequent distance of its cores.
pub(super) fn of(results: &Results<Measurements>) -> Page {
    let distances = results.distances();
    let here = &results.at_most_frequent();
    let found = &here.body;
    let (runs, rounds) = (plural(found.runs, "run"), plural(found.rounds, "round"));
    let elsewhere = distances.iter().skip(1).filter_map(|distance| {
        let (least, most) = distance.line_ns?;
        let mut body = results.at(distance).body;
        body.ratios = body.all_ratios();
        let caption = format!(
            "Where a bare line takes {} to {} one way",
            nanoseconds(least),
            nanoseconds(most)
        );
        Some(eight_bytes(&body).into_iter().map(move |table| table.captioned(caption.clone())))
    });
    let effort = format!("{}: {runs}, {rounds} each", here.effort);
    let named = found.mpis.iter().filter(|mpi| mpi.impossible.is_none());
    let named: Vec<String> = named.map(|mpi| mpi.name.clone()).collect();
    let others = match named.is_empty() {
        true => String::new(),
        false => format!("Here are {}.", and(&named)),
    };
    Page::of(include_str!("page.md"), here, &[("Effort", effort)])
        .value("others", others)
        .value("block", nanoseconds(found.block_s * 1e9))
        .value("rounds", rounds)
        .value("runs", runs)
        .value("whereabouts", whereabouts(&distances, "block"))
        .short(in_short(found))
        .block("shortfalls", shortfalls(found))
        .block("eight", eight_bytes(found))
        .block("elsewhere", elsewhere.flatten().collect::<Vec<_>>())
        .block("latency", Block::Figures(figures(found, &LATENCY)))
        .block("bandwidth", Block::Figures(figures(found, &BANDWIDTH)))
        .block("streams", Block::Figures(figures(found, &STREAMS)))
        .block("numbers", numbers(found))
        .block("crowded", crowded(found))
        .block("instructions", counts(found))
        .block("absent", absent(found))
        .block("mpis", About::settings(&found.mpis, "MPI"))
        .block("systems", systems(found))
}

/// The ways of these rows, in display order.
fn ways_of(found: &Measurements, rows: &[Row<'_>]) -> Vec<Way> {
    let is_measured = |way: &Way| rows.iter().any(|&row| found.each_ns(row, *way).is_some());
    Way::ALL.into_iter().filter(is_measured).collect()
}

/// What the ratios of a row are to be called.
fn over(way: Way) -> String {
    match way {
        Way::Floor => "times the floor".to_owned(),
        Way::Own => "times its own shared memory".to_owned(),
        Way::OwnMessages => "times its own with an allreduce by messages".to_owned(),
        other => format!("times {}", other.name()),
    }
}

/// How often corewire is behind, and what 8 bytes take under each MPI.
fn in_short(found: &Measurements) -> Vec<String> {
    let rows = found.rows();
    let compared = rows.iter().filter(|&&row| found.best_rival(row).is_some());
    let (all, behind) = compared
        .fold((0, 0), |(all, behind), &row| (all + 1, behind + i32::from(is_behind(found, row))));
    let mut sentences = Vec::new();
    if all > 0 {
        let figures = plural(all, "figure");
        sentences.push(format!(
            "Beside the best of its own shared memory, UCX and libfabric shm, corewire is not behind at {} of {figures}.",
            all - behind
        ));
    }
    sentences.extend(found.mpis.iter().filter_map(|mpi| {
        let row = found.row_of(&mpi.id, Measure::Latency, 8)?;
        let time = nanoseconds(found.each_ns(row, Way::Corewire)?.median);
        let ratio =
            |way: Way| Some(format!("{} {}", round(found.ratio(row, way)?.median), over(way)));
        let ratios: Vec<String> = Way::ALL.into_iter().filter_map(ratio).collect();
        let beside = if ratios.is_empty() { String::new() } else { format!(": {}", and(&ratios)) };
        Some(format!("{}: a message of 8 B takes {time} one way over corewire{beside}.", mpi.name))
    }));
    sentences
}

/// Whether corewire takes longer than over `way` by more than is allowed.
fn is_longer(found: &Measurements, row: Row<'_>, way: Way) -> bool {
    let of = |way| found.each_ns(row, way).map(|it| it.median);
    let (Some(own), Some(other)) = (of(Way::Corewire), of(way)) else { return false };
    found.ratio(row, way).is_some_and(|it| it.median > TIMES_MAX) && own - other > BEHIND_NS
}

fn is_behind(found: &Measurements, row: Row<'_>) -> bool {
    found.best_rival(row).is_some_and(|(way, ratio)| {
        let must_lead = row.shape.measure == Measure::Touched && row.shape.bytes >= AHEAD_FROM;
        is_longer(found, row, way) || (must_lead && ratio > AHEAD)
    })
}

/// Where corewire falls short: one sentence for each operation of each MPI.
pub(super) fn shortfalls(found: &Measurements) -> Vec<String> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for row in found.rows() {
        let is_of_floor = row.shape.measure == Measure::Latency && row.shape.bytes <= FLOOR_MAX;
        let floor = Some(Way::Floor).filter(|&way| is_of_floor && is_longer(found, row, way));
        let rival = found.best_rival(row).filter(|_| is_behind(found, row)).map(|(way, _)| way);
        let words =
            |way: Way| Some(format!("{} {}", round(found.ratio(row, way)?.median), over(way)));
        let words: Vec<String> = floor.into_iter().chain(rival).filter_map(words).collect();
        if words.is_empty() {
            continue;
        }
        let ranks = if row.ranks == 2 { String::new() } else { format!(" of {} ranks", row.ranks) };
        let head =
            format!("{}, {}{ranks}", name_of(&found.mpis, row.mpi), row.shape.measure.name());
        let words = format!("{} ({})", bytes(row.shape.bytes), and(&words));
        match all.iter_mut().find(|(known, _)| *known == head) {
            Some((_, sizes)) => sizes.push(words),
            None => all.push((head, vec![words])),
        }
    }
    all.into_iter().map(|(head, sizes)| format!("{head}: {}.", and(&sizes))).collect()
}

fn time(found: &Measurements, row: Row<'_>, way: Way) -> String {
    found.each_ns(row, way).map_or(NONE.to_owned(), |it| nanoseconds(it.median))
}

fn ratio(found: &Measurements, row: Row<'_>, way: Way) -> String {
    with_span(found.ratio(row, way), |ratio| format!("{ratio:.2}"))
}

/// The times of rows over each way, and corewire's ratios to the others.
fn table_of(
    found: &Measurements,
    head: &str,
    rows: &[Row<'_>],
    name: impl Fn(&Row<'_>) -> String,
) -> Table {
    let ways = ways_of(found, rows);
    let others: Vec<Way> = ways.iter().copied().filter(|way| *way != Way::Corewire).collect();
    let heads = ways.iter().map(|way| way.name().to_owned());
    let ratios = others.iter().map(|way| format!("corewire / {}", way.name()));
    let cells = |row: &Row<'_>| {
        let times = ways.iter().map(|&way| time(found, *row, way));
        let ratios = others.iter().map(|&way| ratio(found, *row, way));
        std::iter::once(name(row)).chain(times).chain(ratios).collect()
    };
    Table {
        head: std::iter::once(head.to_owned()).chain(heads).chain(ratios).collect(),
        rows: rows.iter().map(cells).collect(),
        ..Table::default()
    }
}

/// A message of 8 bytes under each MPI, one way.
pub(super) fn eight_bytes(found: &Measurements) -> Vec<Table> {
    let of = |mpi: &About| found.row_of(&mpi.id, Measure::Latency, 8);
    let rows: Vec<Row<'_>> = found.mpis.iter().filter_map(of).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let name = |row: &Row<'_>| name_of(&found.mpis, row.mpi).to_owned();
    vec![table_of(found, "8 B one way", &rows, name)]
}

/// All figures between two ranks, a table for each MPI.
fn numbers(found: &Measurements) -> Vec<Table> {
    let rows = found.rows();
    let of = |mpi: &About| {
        let own = rows.iter().copied().filter(|row| row.mpi == mpi.id && !row.oversubscribed);
        let own: Vec<Row<'_>> = own.collect();
        let name =
            |row: &Row<'_>| format!("{} {}", row.shape.measure.name(), bytes(row.shape.bytes));
        table_of(found, "", &own, name).captioned(mpi.name.clone())
    };
    found.mpis.iter().map(of).filter(|table| !table.rows.is_empty()).collect()
}

fn crowded(found: &Measurements) -> Table {
    let rows = found.rows();
    let own: Vec<Row<'_>> = rows.into_iter().filter(|row| row.oversubscribed).collect();
    let name = |row: &Row<'_>| {
        let (mpi, measure) = (name_of(&found.mpis, row.mpi), row.shape.measure.name());
        format!("{mpi}, {measure}, {} ranks", row.ranks)
    };
    table_of(found, "8 B", &own, name)
}

/// Figures of one kind.
struct Drawn {
    stem: &'static str,
    heading: &'static str,
    axis: &'static str,
    quantity: Quantity,
    /// The measures that it shows, each in a figure of its own, and words for them.
    of: &'static [(Measure, &'static str)],
    /// Sizes up to this one.
    most: u64,
    caption: &'static str,
}

const LATENCY: Drawn = Drawn {
    stem: "latency",
    heading: "latency of small messages",
    axis: "One-way latency",
    quantity: Quantity::Nanoseconds,
    of: &[(Measure::Latency, "")],
    most: LATENCY_MAX,
    caption: "Median; thin bars reach from the fastest block to the slowest. Both axes are logarithmic; less is better.",
};

const BANDWIDTH: Drawn = Drawn {
    stem: "bandwidth",
    heading: "bandwidth, a message at a time",
    axis: "Bytes per second, one way",
    quantity: Quantity::ByteRate,
    of: &[(Measure::Latency, "carried only"), (Measure::Touched, "written and read")],
    most: u64::MAX,
    caption: "Size divided by the time of a message one way. Both axes are logarithmic; more is better.",
};

const STREAMS: Drawn = Drawn {
    stem: "stream",
    heading: "messages that follow each other",
    axis: "Messages per second",
    quantity: Quantity::Rate,
    of: &[(Measure::Stream, "")],
    most: u64::MAX,
    caption: "Up to 64 messages on their way together. Both axes are logarithmic; more is better.",
};

/// Figures for each MPI.
fn figures(found: &Measurements, drawn: &Drawn) -> Vec<Figure> {
    let of = |mpi| drawn.of.iter().filter_map(move |it| figure(found, drawn, mpi, *it));
    found.mpis.iter().flat_map(of).collect()
}

/// A figure with a line for each way of an MPI.
fn figure(
    found: &Measurements,
    drawn: &Drawn,
    mpi: &About,
    (measure, words): (Measure, &str),
) -> Option<Figure> {
    let series = Way::ALL.map(|way| {
        let own = found.points.iter().filter(|point| {
            (&point.mpi, point.way, point.shape.measure) == (&mpi.id, way, measure)
                && (1..=drawn.most).contains(&point.shape.bytes)
        });
        let marks = own.map(|point| mark(point, drawn.quantity)).collect();
        Series::of(&way.text(), way.name(), marks)
    });
    let has_marks = |it: &Series| it.marks.iter().any(Option::is_some);
    let series = series.into_iter().filter(has_marks).collect();
    let mut stem = format!("{}-{}", drawn.stem, mpi.id);
    let mut heading = format!("{}: {}", mpi.name, drawn.heading);
    if !words.is_empty() {
        stem += &format!("-{}", measure.id());
        heading += &format!(", {words}");
    }
    let x = Axis::new("Message size", Quantity::Bytes);
    let y = Axis::new(drawn.axis, drawn.quantity);
    Chart { x, y, series, reference: None }.figure((stem, heading), drawn.caption)
}

#[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
fn mark(point: &Point, quantity: Quantity) -> Option<Mark> {
    let Spread { median, min, max } = point.each_ns()?;
    let size = point.shape.bytes as f64;
    let of = |time: f64| match quantity {
        Quantity::ByteRate => size / (time / 1e9),
        Quantity::Rate => 1e9 / time,
        _ => time,
    };
    let [y, one, other] = [median, min, max].map(of);
    Some(Mark { span: Some((one.min(other), one.max(other))), ..Mark::at(size, y) })
}

/// The instructions of each call.
pub(super) fn counts(found: &Measurements) -> Table {
    let factor = |ratio: Option<f64>| ratio.map_or(NONE.to_owned(), |it| format!("{it:.2}"));
    let mut rows: Vec<&Instructions> = found.instructions.iter().collect();
    let names = |it: &Instructions| (it.bytes, CALLS.iter().position(|(id, _)| *id == it.call));
    rows.sort_by_key(|it| (names(it), it.way.clone()));
    let table = Table::of_columns(
        rows,
        &[
            ("Call", &|it| call(&it.call).to_owned()),
            ("Message", &|it| bytes(it.bytes)),
            ("Over", &|it| it.way.clone()),
            ("Instructions", &|it| round(it.instructions)),
            ("At most", &|it| round(it.instructions_max)),
            ("To the floor", &|it| factor(it.to_floor)),
            ("System calls", &|it| it.system_calls.to_string()),
            ("Allocations", &|it| it.allocations.to_string()),
        ],
    );
    table.captioned("Instructions of a call of libfabric")
}

/// The calls, in words.
const CALLS: [(&str, &str); 7] = [
    ("tinjectdata", "fi_tinjectdata"),
    ("trecv", "fi_trecv"),
    ("cq_read_full", "fi_cq_read, a message is there"),
    ("cq_read_empty", "fi_cq_read, nothing is there"),
    ("trecv_waiting", "fi_trecv, its message is there"),
    ("tsenddata", "fi_tsenddata"),
    ("cq_read_sent", "fi_cq_read of a send"),
];

fn call(id: &str) -> &str {
    CALLS.iter().find(|(known, _)| *known == id).map_or(id, |(_, words)| words)
}

/// What is missing, and why. What is missing with an MPI is said once.
pub(super) fn absent(found: &Measurements) -> Vec<String> {
    let mut all = About::gaps(&found.mpis);
    for system in &found.systems {
        let mpi = found.mpis.iter().find(|mpi| mpi.id == system.mpi);
        let is_said = mpi.is_some_and(|mpi| mpi.impossible.is_some());
        let gaps = About::gaps(std::slice::from_ref(&system.about));
        let name = name_of(&found.mpis, &system.mpi);
        all.extend(gaps.into_iter().filter(|_| !is_said).map(|gap| format!("{name} over {gap}")));
    }
    all.extend(found.instructions_absent.iter().map(|why| format!("Instructions over {why}.")));
    all
}

fn systems(found: &Measurements) -> Table {
    let table = Table::of_columns(
        &found.systems,
        &[
            ("MPI", &|it| name_of(&found.mpis, &it.mpi).to_owned()),
            ("Over", &|it| it.about.name.clone()),
            ("Settings", &|it| format!("{}.", it.about.settings.trim_end_matches('.'))),
        ],
    );
    table.prose()
}
