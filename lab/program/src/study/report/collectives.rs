//! The page of `study collectives`. As on the other pages, every sentence with a figure is computed.

use crate::study::collectives::results::{About, OURS, Point, Results};
use crate::study::collectives::shape::{Call, Shape};

use super::chart::{Axis, Chart, Figure, Mark, Picture, Series};
use super::error::Error;
use super::escape::escape;
use super::page::{self, Section, Table, list, paragraph};
use super::svg::{Format, Place};
use super::units::{Quantity, bytes, nanoseconds, plural, round};
use super::{look, machine};

/// The page for one machine.
pub(crate) fn render(results: &Results) -> Result<String, Error> {
    let here = &results.at_most_frequent();
    let title = "Collective calls between cores: corewire\u{2019}s groups on this machine";
    let short = in_short(here);
    let short = match short.is_empty() {
        true => String::new(),
        false => format!("<div class=\"short\">\n<h2>In short</h2>\n{}</div>\n", list(&short)),
    };
    let is_measured = |library: &&About| here.ratios.iter().any(|it| it.library == library.id);
    let others = here.libraries.iter().filter(is_measured).map(|library| {
        format!(" {} makes it in the same run, between processes at the same places.", library.name)
    });
    let summary = format!(
        "All members of a group make the same call, again and again, on {} ({}).{}",
        here.machine.processor,
        plural(here.machine.cores, "core"),
        others.collect::<String>(),
    );
    let lead = format!("<p class=\"lead\">{}</p>\n{short}", escape(&summary));
    let run = [
        ("corewire", here.version.clone()),
        ("Began", machine::moment(&here.began)),
        ("Effort", format!("{}: {}", here.effort, plural(here.runs, "run"))),
    ];
    let tables: String = here.processes().into_iter().map(|among| table(here, among)).collect();
    let sections = [
        Section::new("machine", "The machine", machine::table(&here.machine, &run)),
        Section::new("reading", "How to read", how_to_read(here)),
        Section::new("figures", "By number of processes", page::figures(&figures(here))?),
        Section::new("numbers", "All calls", tables),
        Section::new("absent", "What could not be measured here", absent(here)),
        Section::new("libraries", "The libraries", libraries(here)),
    ];
    Ok(page::page(title, &lead, &sections))
}

/// The SVG of every figure, with the stem of its file name.
pub(crate) fn plots(results: &Results) -> Result<Vec<(String, String)>, Error> {
    let picture = |figure: Figure| {
        let picture = page::picture(&figure, Format::Wide, Place::File)?;
        Ok((figure.stem, picture))
    };
    figures(&results.at_most_frequent()).into_iter().map(picture).collect()
}

/// The calls that programs wait for most.
const BARRIER: Shape = Shape { call: Call::Barrier, bytes: 0 };
const ALLREDUCE: Shape = Shape { call: Call::Allreduce, bytes: 8 };

fn in_short(results: &Results) -> Vec<String> {
    let mut sentences = Vec::new();
    for (processes, is_crowded) in results.processes() {
        let words = |shape: Shape| {
            let each = results.each_ns(OURS, processes, shape)?.median;
            let lines = results.line_ns().filter(|_| !is_crowded).map_or(String::new(), |line| {
                format!(", {} times a bare line one way", round(each / line))
            });
            let others: String = results
                .libraries
                .iter()
                .filter_map(|library| {
                    let ratio = results.ratio(&library.id, processes, shape)?;
                    let (name, median) = (&library.name, round(ratio.median));
                    let (min, max) = (round(ratio.min), round(ratio.max));
                    Some(format!("; {name} takes {median} times as long ({min} to {max})"))
                })
                .collect();
            Some(format!("{} takes {}{lines}{others}", a_call(shape), nanoseconds(each)))
        };
        for shape in [BARRIER, ALLREDUCE] {
            let crowd = if is_crowded { ", more than there are processors" } else { "" };
            sentences.extend(
                words(shape).map(|words| format!("Among {processes} processes{crowd}: {words}.")),
            );
        }
    }
    sentences
}

/// A call as the beginning of a sentence.
fn a_call(shape: Shape) -> String {
    let article = if shape.call == Call::Allreduce { "an" } else { "a" };
    format!("{article} {}", of_bytes(shape))
}

fn of_bytes(shape: Shape) -> String {
    match shape.bytes {
        0 => shape.call.name().to_owned(),
        size => format!("{} of {}", shape.call.name(), bytes(size as u64)),
    }
}

fn how_to_read(results: &Results) -> String {
    let line = results.line_ns().map_or(String::new(), |line| {
        format!(
            " A bare cache line takes {} one way between the first two processes; runs in which the cores were at \
             another distance are left out.",
            nanoseconds(line)
        )
    });
    paragraph(&format!(
        "A figure is the time of a call, when one follows the other: the median of six blocks of calls, and of the runs; \
         thin bars reach from the slowest to the fastest. The bytes are those of each process, and of one part where there \
         is one for each process. Every call is made once before, and each word of what it returns is compared. Processes \
         have a processor of their own where there are enough; hollow marks are those of more processes than \
         processors. Ratios are those of the same run.{line}",
    ))
}

/// One figure for each call with its shortest values, and for an allreduce with longer ones.
fn figures(results: &Results) -> Vec<Figure> {
    let shapes = results.shapes();
    let figure = |shape: &Shape| {
        let series = results.libraries.iter().map(|library| line(results, library, *shape));
        let x = Axis::new("Processes", Quantity::Count);
        let y = Axis::new("Time of a call", Quantity::Nanoseconds);
        let chart = Chart { x, y, series: series.collect(), reference: None }.shown()?;
        Some(Figure {
            stem: format!("{}-{}", shape.call.name(), shape.bytes),
            heading: of_bytes(*shape),
            caption: "Hollow marks: more processes than processors. Both axes are logarithmic."
                .to_owned(),
            picture: Picture::Lines(chart),
        })
    };
    let is_short = |shape: &&Shape| shape.bytes <= 8 || shape.call == Call::Allreduce;
    shapes.iter().filter(is_short).filter_map(figure).collect()
}

#[expect(clippy::cast_precision_loss, reason = "few processes")]
fn line(results: &Results, library: &About, shape: Shape) -> Series {
    let own = |point: &&Point| point.library == library.id && point.shape == shape;
    let mark = |point: &Point| {
        let each = results.each_ns(&library.id, point.processes, shape)?;
        let span = Some((each.min, each.max));
        let (x, y) = (point.processes as f64, each.median);
        Some(Mark { x, y, span, hollow: point.oversubscribed })
    };
    Series {
        name: library.name.clone(),
        short: look::short_name(&library.id, &library.name),
        look: look::of_mechanism(&library.id),
        marks: results.points.iter().filter(own).map(mark).collect(),
    }
}

fn table(results: &Results, (processes, is_crowded): (usize, bool)) -> String {
    let head = std::iter::once("Call".to_owned());
    let head = head.chain(results.libraries.iter().map(|library| library.name.clone()));
    let row = |shape: &Shape| {
        let cell = |library: &About| {
            let Some(each) = results.each_ns(&library.id, processes, *shape) else {
                return "\u{2013}".to_owned();
            };
            let times = match results.ratio(&library.id, processes, *shape) {
                Some(ratio) => format!("{} times corewire\u{2019}s", round(ratio.median)),
                None => format!("{} to {}", nanoseconds(each.min), nanoseconds(each.max)),
            };
            format!("{}\n{times}", nanoseconds(each.median))
        };
        let cells = results.libraries.iter().map(cell);
        std::iter::once(of_bytes(*shape)).chain(cells).collect()
    };
    let rows = results.shapes().iter().map(row).collect();
    let crowd = if is_crowded { ", more than there are processors" } else { "" };
    let caption = format!("Among {processes} processes{crowd}");
    Table { head: head.collect(), rows, is_prose: false }.html(&caption)
}

fn absent(results: &Results) -> String {
    let of = |library: &About| {
        let name = library.name.clone();
        let why: Vec<String> =
            library.impossible.iter().chain(&library.failures).cloned().collect();
        why.into_iter().map(move |why| format!("{name}: {why}"))
    };
    let items: Vec<String> = results.libraries.iter().flat_map(of).collect();
    match items.is_empty() {
        true => paragraph("Everything that was requested was measured."),
        false => list(&items),
    }
}

fn libraries(results: &Results) -> String {
    let row = |it: &About| vec![it.name.clone(), format!("{}.", it.settings)];
    let head = ["Library", "Settings"].map(str::to_owned).into();
    let rows = results.libraries.iter().map(row).collect();
    Table { head, rows, is_prose: true }.html("")
}
