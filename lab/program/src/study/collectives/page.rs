//! The page of `study collectives`. Every sentence with a figure is computed.

use corewire_harness::statistics::Spread;

use super::results::{Call, Collectives, OURS, Point, Shape};
use crate::study::page::units::{Quantity, nanoseconds, plural, round};
use crate::study::page::{Axis, Chart, Figure, Mark, Page, Series, Table, whereabouts};
use crate::study::results::{About, Results};

/// The calls that programs wait for most, with their articles.
const SHOWN: [(&str, Shape); 2] =
    [("a", Shape::BARRIER), ("an", Shape { call: Call::Allreduce, bytes: 8 })];

/// The page for one machine, at the most frequent distance of its cores.
pub(super) fn of(results: &Results<Collectives>) -> Page {
    let here = &results.at_most_frequent();
    let found = &here.body;
    let is_measured = |library: &&About| found.ratios.iter().any(|it| it.library == library.id);
    let others = found.libraries.iter().filter(is_measured).map(|library| {
        format!("{} makes it in the same run, between processes at the same places.", library.name)
    });
    let line = line_ns(found).map_or(String::new(), |line| {
        format!("Between the first two processes it took {} in the median.", nanoseconds(line))
    });
    let effort = format!("{}: {}", here.effort, plural(found.runs, "run"));
    Page::of(include_str!("page.md"), here, &[("Effort", effort)])
        .value("others", others.collect::<Vec<_>>().join(" "))
        .value("line", line)
        .value("whereabouts", whereabouts(&results.distances(), "kind of call"))
        .short(in_short(found))
        .block("figures", figures(found))
        .block("numbers", tables(found))
        .block("absent", About::gaps(&found.libraries))
        .block("libraries", About::settings(&found.libraries, "Library"))
}

/// The time of a bare line one way; `None` if all processes share processors.
fn line_ns(found: &Collectives) -> Option<f64> {
    Some(Spread::of(found.lines().flatten())?.median)
}

/// How corewire compares with each other library, and what the calls take that programs wait for most.
fn in_short(found: &Collectives) -> Vec<String> {
    let beside = |library: &About| {
        let own = found.ratios.iter().filter(|ratio| ratio.library == library.id);
        let ratios: Vec<f64> = own.map(|ratio| ratio.times.median).collect();
        let Spread { min, max, .. } = Spread::of(ratios.iter().copied())?;
        let ahead = ratios.iter().filter(|&&ratio| ratio > 1.0).count();
        let (name, all, [min, max]) = (&library.name, ratios.len(), [min, max].map(round));
        Some(format!(
            "corewire is ahead of {name} in {ahead} of {all} figures: {name} takes {min} to {max} times as long."
        ))
    };
    let times = |(processes, is_crowded): (usize, bool)| {
        let words = |(article, shape): (&str, Shape)| {
            let each = found.each_ns(OURS, processes, shape)?.median;
            let line = line_ns(found).filter(|_| !is_crowded).map_or(String::new(), |line| {
                format!(", {} times a bare line one way", round(each / line))
            });
            Some(format!("{article} {} takes {}{line}", shape.text(), nanoseconds(each)))
        };
        let words: Vec<String> = SHOWN.into_iter().filter_map(words).collect();
        (!words.is_empty())
            .then(|| format!("{}: {}.", among(processes, is_crowded), words.join("; ")))
    };
    let beside = found.libraries.iter().filter_map(beside);
    beside.chain(found.processes().into_iter().filter_map(times)).collect()
}

fn among(processes: usize, is_crowded: bool) -> String {
    let crowd = if is_crowded { ", more than there are processors" } else { "" };
    format!("Among {processes} processes{crowd}")
}

/// One figure for each call with its shortest values, and for an allreduce with longer ones.
#[expect(clippy::cast_precision_loss, reason = "few processes")]
fn figures(found: &Collectives) -> Vec<Figure> {
    let figure = |shape: Shape| {
        let mark = |point: &Point| {
            let Spread { median, min, max } = point.each_ns()?;
            let hollow = point.oversubscribed;
            Some(Mark { x: point.processes as f64, y: median, span: Some((min, max)), hollow })
        };
        let line = |library: &About| {
            let own = |it: &&Point| (&it.library, it.shape) == (&library.id, shape);
            let marks = found.points.iter().filter(own).map(mark);
            Series::of(&library.id, &library.name, marks.collect())
        };
        let series = found.libraries.iter().map(line).collect();
        let x = Axis::new("Processes", Quantity::Count);
        let y = Axis::new("Time of a call", Quantity::Nanoseconds);
        let stem = format!("{}-{}", shape.call.name(), shape.bytes);
        let chart = Chart { x, y, series, reference: None };
        chart.figure((stem, shape.text()), "Both axes are logarithmic.")
    };
    let is_short = |shape: &Shape| shape.bytes <= 8 || shape.call == Call::Allreduce;
    Shape::all().into_iter().filter(is_short).filter_map(figure).collect()
}

/// The time of each call, and how it compares with corewire's: a table for each number of processes.
pub(super) fn tables(found: &Collectives) -> Vec<Table> {
    let table = |(processes, is_crowded): (usize, bool)| {
        let names = (|shape: &Shape| shape.text(), |library: &About| library.name.clone());
        let cell = |shape: &Shape, library: &About| {
            let Spread { median, min, max } = found.each_ns(&library.id, processes, *shape)?;
            let note = match found.ratio(&library.id, processes, *shape) {
                Some(times) => {
                    let [median, min, max] = [times.median, times.min, times.max].map(round);
                    format!("{median} times corewire\u{2019}s ({min} to {max})")
                }
                None => format!("{} to {}", nanoseconds(min), nanoseconds(max)),
            };
            Some(format!("{}\n{note}", nanoseconds(median)))
        };
        let table = Table::matrix("Call", &Shape::all(), &found.libraries, names, cell);
        table.captioned(among(processes, is_crowded))
    };
    found.processes().into_iter().map(table).collect()
}
