//! The page of `study active`. As on the other pages, every sentence with a figure is computed.

use std::time::Duration;

use corewire_harness::statistics::{Spread, median};

use crate::study::active::COMPUTES;
use crate::study::active::results::{
    About, PASSIVE, Point, Ratio, Results, Slow, SlowFound, find, sizes,
};
use crate::study::touch::PAGE_BYTES;

use super::chart::{Axis, Chart, Figure, Mark, Picture, Series};
use super::error::Error;
use super::escape::escape;
use super::page::{self, Section, Table, list, paragraph};
use super::svg::{Format, Place};
use super::units::{Quantity, bytes, nanoseconds, plural, rate, round};
use super::{look, machine};

const ACTIVE: &str = "active";
const LOAN: &str = "active_loan";
/// The styles beside the passive one.
const OTHERS: [&str; 3] = [ACTIVE, LOAN, "pre_posted"];
const ARRIVALS: [&str; 5] = [ACTIVE, LOAN, "pooled", "allocated", "scatter"];
/// What curves of untouched data show.
const UNTOUCHED: &str = " Nobody reads or writes a loan here: no data moves, and its curve shows what a message costs, \
                         whatever its size.";
/// Messages of more bytes do not travel in the slots of the ring.
const IN_SLOTS_MAX: u64 = 160;
/// Sizes in the table of Figure 4, if they were measured.
const SHOWN: [u64; 9] = [8, 64, 512, 4096, 32_768, 65_536, 262_144, 1_048_576, 4_194_304];

/// The page for one machine: the results at the most frequent distance of its cores.
pub(crate) fn render(results: &Results) -> Result<String, Error> {
    let here = &results.at_most_frequent();
    let title =
        "Messages without posted buffers: Active Zero-copy\u{2019}s experiments on this machine";
    let short = in_short(here);
    let short = match short.is_empty() {
        true => String::new(),
        false => format!("<div class=\"short\">\n<h2>In short</h2>\n{}</div>\n", list(&short)),
    };
    let lead = format!("<p class=\"lead\">{}</p>\n{short}", escape(&summary(here)));
    let sections = [
        Section::new("machine", "The machine", machine_table(here)),
        Section::new("reading", "How to read", how_to_read(results)),
        Section::new(
            "throughput",
            "Throughput by size (Figure 4)",
            figures(&throughput(here))? + &ratio_tables(here, "trips", &here.trips),
        ),
        Section::new(
            "transactions",
            "Transactions with random sizes (Figure 5)",
            figures(&transactions(here))? + &ratio_tables(here, "transactions", &here.transactions),
        ),
        Section::new("slow", "Slow receivers", slow(here)),
        Section::new("refusals", "NACK and time-out", refusals(here)),
        Section::new(
            "arrivals",
            "Where a message arrives",
            arrival_words() + &figures(&arrivals(here))? + &arrival_tables(here),
        ),
        Section::new("copies", "Copies after arrival", copies(here)),
        Section::new("absent", "What could not be measured here", absent(here)),
        Section::new("styles", "The styles", styles(here)),
    ];
    Ok(page::page(title, &lead, &sections))
}

/// The SVG of every figure, with the stem of its file name.
pub(crate) fn plots(results: &Results) -> Result<Vec<(String, String)>, Error> {
    let here = &results.at_most_frequent();
    let all = throughput(here).into_iter().chain(transactions(here)).chain(arrivals(here));
    all.map(|figure| {
        let picture = page::picture(&figure, Format::Wide, Place::File)?;
        Ok((figure.stem, picture))
    })
    .collect()
}

fn figures(all: &[Figure]) -> Result<String, Error> {
    match all {
        [] => Ok(paragraph("This run has too few sizes to draw.")),
        all => page::figures(all),
    }
}

fn name<'a>(results: &'a Results, id: &'a str) -> &'a str {
    results.styles.iter().find(|style| style.id == id).map_or(id, |style| style.name.as_str())
}

fn summary(results: &Results) -> String {
    format!(
        "This repeats the experiments of the paper \u{201c}Active Zero-copy: A performance study of \
         non-deterministic messaging\u{201d} (Yamagiwa, Aoki and Wada) on {} ({}), and measures what the paper argues. \
         Active: the sender sends data at once, and the receiver has posted no buffer. Passive: the sender asks, the \
         receiver answers when it has a buffer, then the data follows.",
        results.machine.processor,
        plural(results.machine.cores, "core"),
    )
}

fn in_short(results: &Results) -> Vec<String> {
    let mut sentences = Vec::new();
    for touched in [false, true] {
        let of = |style: &str| {
            let ratios = results.ratios.iter().filter(|it| {
                it.figure == "transactions" && it.style == style && it.touched == touched
            });
            let words = ratios.map(|it| format!("{} up to {}", round(it.median), bytes(it.bytes)));
            words.collect::<Vec<_>>().join(", ")
        };
        let (active, loan) = (of(ACTIVE), of(LOAN));
        if !active.is_empty() {
            sentences.push(format!(
                "{}, the active style makes this many times as many transactions as the passive one: {active}. With a \
                 loan: {loan}. (The paper: about 1.5, and less with larger messages.)",
                data(touched),
            ));
        }
    }
    let trips = Spread::of(results.passive_round_trips.iter().copied());
    sentences.extend(trips.map(|trips| {
        format!(
            "A passive transaction of 8 B, which is two round trips of short messages, takes {} round trips of a bare \
             cache line.",
            round(trips.median)
        )
    }));
    let of = |call: &str| {
        let refusal = results.refusals.iter().find(|it| it.call == call);
        Spread::of(refusal?.knows_ns.iter().copied())
    };
    sentences.extend(of("try_send").map(|nack| {
        format!(
            "A sender whose receiver has no room knows it after {}: no message is needed to refuse one.",
            nanoseconds(nack.median)
        )
    }));
    sentences
}

const fn data(touched: bool) -> &'static str {
    if touched { "Written before and read after" } else { "With data untouched" }
}

fn machine_table(results: &Results) -> String {
    let runs = plural(results.runs, "run");
    let time = nanoseconds(results.run_s * 1e9);
    let run = [
        ("corewire", results.version.clone()),
        ("Began", machine::moment(&results.began)),
        ("Effort", format!("{}: {runs} of {time} for each point", results.effort)),
    ];
    machine::table(&results.machine, &run)
}

fn how_to_read(results: &Results) -> String {
    let crowd = match results.oversubscribed {
        true => {
            "Both processes had to share one core, so the figures show how well they take turns."
        }
        false => "Each process has a core of its own.",
    };
    let how = format!(
        "A transaction is a message with its acknowledgement, as in Figure 1 of the paper: passively request, answer, \
         data, acknowledgement; otherwise data, acknowledgement. {crowd} In each run all styles take turns at each size. \
         A figure is the median of the runs; thin bars reach from the slowest to the fastest. Ratios are those of \
         points of the same run. Untouched data is sent from memory that was written once, and nobody reads it after it \
         was received: this is the cost of the transport alone. Otherwise the sender writes every message before it \
         sends it, and the receiver reads all of it before it acknowledges.",
    );
    let place = results.distances().first().and_then(|shown| {
        let (least, most) = shown.line_ns?;
        Some(format!(
            "A bare cache line is timed before and after each point. Of {} points of all runs, the page shows the {} in \
             which the line took between {} and {} one way; figures from other positions of the cores cannot be \
             compared with them.",
            shown.of,
            shown.runs,
            nanoseconds(least),
            nanoseconds(most),
        ))
    });
    paragraph(&how) + &place.map_or_else(String::new, |words| paragraph(&words))
}

/// Figure 4.
fn throughput(results: &Results) -> Vec<Figure> {
    let axis = || Axis::new("Bytes per second, one way", Quantity::ByteRate);
    #[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
    let figure = |bytes: u64, time: f64| 2.0 * bytes as f64 / (time / 1e9);
    let heading = "Figure 4: throughput of a message there and back";
    by_size(results, &results.trips, ("figure-4", heading), ("Message size", axis), figure)
}

/// Figure 5.
fn transactions(results: &Results) -> Vec<Figure> {
    let axis = || Axis::new("Transactions per second", Quantity::Rate);
    let heading = "Figure 5: transactions with random sizes";
    let names = ("figure-5", heading);
    by_size(results, &results.transactions, names, ("Largest message", axis), |_, time| 1e9 / time)
}

fn arrivals(results: &Results) -> Vec<Figure> {
    let axis = || Axis::new("Time of a transaction", Quantity::Nanoseconds);
    let shown: Vec<Point> =
        results.arrivals.iter().filter(|point| point.style != PASSIVE).cloned().collect();
    let heading = "Where a message arrives: in place, in memory of the receiver, in pages";
    by_size(results, &shown, ("arrivals", heading), ("Message size", axis), |_, time| time)
}

/// One figure for untouched data, and one for data that is written and read.
fn by_size(
    results: &Results,
    points: &[Point],
    (stem, heading): (&str, &str),
    (x, y): (&str, impl Fn() -> Axis),
    figure: impl Fn(u64, f64) -> f64,
) -> Vec<Figure> {
    let one = |touched: bool| {
        let series = results.styles.iter().map(|style| {
            let own =
                points.iter().filter(|point| point.style == style.id && point.touched == touched);
            line(style, own.map(|point| mark(point, &figure)).collect())
        });
        let x = Axis::new(x, Quantity::Bytes);
        let chart = Chart { x, y: y(), series: series.collect(), reference: None }.shown()?;
        let (which, words) = match touched {
            false => ("untouched", "data untouched"),
            true => ("touched", "written before, read after"),
        };
        Some(Figure {
            stem: format!("{stem}-{which}"),
            heading: format!("{heading}, {words}"),
            caption: format!(
                "Median of the runs; thin bars reach from the slowest to the fastest. Both axes are logarithmic.{}",
                if touched { "" } else { UNTOUCHED }
            ),
            picture: Picture::Lines(chart),
        })
    };
    [false, true].into_iter().filter_map(one).collect()
}

#[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
fn mark(point: &Point, figure: &impl Fn(u64, f64) -> f64) -> Option<Mark> {
    let Spread { median, min, max } = point.p50_ns()?;
    let [y, one, other] = [median, min, max].map(|time| figure(point.bytes, time));
    let span = (one.min(other), one.max(other));
    Some(Mark { x: point.bytes as f64, y, span: Some(span), hollow: false })
}

fn line(style: &About, marks: Vec<Option<Mark>>) -> Series {
    Series {
        name: style.name.clone(),
        short: look::short_name(&style.id, &style.name),
        look: look::of_mechanism(&style.id),
        marks,
    }
}

/// How many times as fast as the passive style.
fn ratio_tables(results: &Results, figure: &str, points: &[Point]) -> String {
    let sizes = sizes(points).into_iter();
    let sizes: Vec<u64> = sizes.filter(|it| figure != "trips" || SHOWN.contains(it)).collect();
    let one = |touched: bool| {
        let head = std::iter::once(String::new()).chain(sizes.iter().map(|it| bytes(*it)));
        let cell = |ratio: Option<&Ratio>| {
            ratio.map_or("\u{2013}".to_owned(), |it| {
                format!("{}\n{} to {}", round(it.median), round(it.min), round(it.max))
            })
        };
        let row = |style: &str| {
            let cells = sizes.iter().map(|&size| cell(results.ratio(figure, style, size, touched)));
            std::iter::once(name(results, style).to_owned()).chain(cells).collect()
        };
        let rows = OTHERS.into_iter().map(row).collect();
        let table = Table { head: head.collect(), rows, is_prose: false };
        table.html(&format!("Times as fast as the passive style. {}", data(touched)))
    };
    one(false) + &one(true)
}

fn slow(results: &Results) -> String {
    let intro = paragraph(&format!(
        "The sender sends bursts of 128 messages of up to 16 KiB, and the receiver computes for {} after each message. \
         With posted buffers of 16 KiB the sender must wait when it has sent as many messages as there are buffers; with \
         grants, when the messages themselves fill as many bytes. The sender is blocked while it waits for room.",
        nanoseconds(COMPUTES.as_secs_f64() * 1e9),
    ));
    let head = [
        "",
        "Memory",
        "Sent before the first wait",
        "Bytes of them",
        "Waits",
        "Blocked",
        "Messages per second",
    ];
    let row = |slow: &Slow| {
        let of = |of: fn(&SlowFound) -> f64| Spread::of(slow.runs.iter().map(of));
        let cell = |spread: Option<Spread>, words: fn(f64) -> String| {
            spread.map_or("\u{2013}".to_owned(), |it| words(it.median))
        };
        let way = match slow.way.as_str() {
            "grants" => "grants".to_owned(),
            _ => plural(slow.buffers, "posted buffer"),
        };
        let kibibytes = |figure: f64| format!("{} KiB", round(figure / 1024.0));
        #[expect(clippy::cast_precision_loss, reason = "few messages")]
        let speed = of(|it| it.messages as f64 * 1e9 / it.done_ns);
        vec![
            way,
            bytes(slow.memory_bytes),
            cell(of(|it| it.accepted_messages), round),
            cell(of(|it| it.accepted_bytes), kibibytes),
            cell(of(|it| it.waits), round),
            cell(of(|it| it.blocked_ns), nanoseconds),
            cell(speed, rate),
        ]
    };
    let rows = results.slow.iter().map(row).collect();
    let table = Table { head: head.map(str::to_owned).into(), rows, is_prose: false };
    intro + &table.html("")
}

fn refusals(results: &Results) -> String {
    let intro = paragraph(
        "The receiver has granted 64 KiB and keeps messages for all of it. The paper\u{2019}s receiver answers with a \
         NACK, which takes at least a round trip; here the sender knows what it was granted. With a time-out it learns \
         the same when the time is up.",
    );
    let row = |refusal: &crate::study::active::results::Refusals| {
        let limit = refusal.limit_ns.map(|limit| Duration::from_nanos(limit).as_secs_f64() * 1e9);
        let call = match limit {
            None => refusal.call.clone(),
            Some(limit) => format!("{}, {}", refusal.call, nanoseconds(limit)),
        };
        let time = Spread::of(refusal.knows_ns.iter().copied());
        let time = time.map_or("\u{2013}".to_owned(), |it| {
            format!(
                "{} ({} to {})",
                nanoseconds(it.median),
                nanoseconds(it.min),
                nanoseconds(it.max)
            )
        });
        vec![call, time]
    };
    let head = ["Call", "Until the sender knows"].map(str::to_owned).into();
    let rows = results.refusals.iter().map(row).collect();
    intro + &Table { head, rows, is_prose: false }.html("")
}

fn arrival_words() -> String {
    paragraph(&format!(
        "The same message arrives in place (a grant), in memory that the library keeps for this (pooled), in memory that \
         the receiver allocates for it, and in a list of pages of {}.",
        bytes(PAGE_BYTES as u64)
    ))
}

fn arrival_tables(results: &Results) -> String {
    let sizes: Vec<u64> = sizes(&results.arrivals).into_iter().filter(|it| *it > 8).collect();
    let one = |touched: bool| {
        let head = std::iter::once("A transaction".to_owned());
        let head = head.chain(sizes.iter().map(|it| bytes(*it))).collect();
        let row = |style: &str| {
            let cell = |&size: &u64| {
                let time = find(&results.arrivals, style, size, touched)?.p50_ns()?;
                Some(nanoseconds(time.median))
            };
            let cells =
                sizes.iter().map(|size| cell(size).unwrap_or_else(|| "\u{2013}".to_owned()));
            std::iter::once(name(results, style).to_owned()).chain(cells).collect()
        };
        let rows = ARRIVALS.into_iter().map(row).collect();
        Table { head, rows, is_prose: false }.html(data(touched))
    };
    one(false) + &one(true)
}

/// What the receiver copies in the active runs.
fn copies(results: &Results) -> String {
    let intro = paragraph(&format!(
        "Counted message by message: the share that the receiver reads where the sender wrote it, and the bytes of a \
         message, on average, that lie in memory of the receiver instead. Messages of up to {} travel in the slots of \
         the ring and are copied out of them; messages of more than 16 KiB come in place only in a loan.",
        bytes(IN_SLOTS_MAX)
    ));
    let points = results.transactions.iter().map(|point| ("random, up to", point));
    let points = points.chain(results.arrivals.iter().map(|point| ("all", point)));
    let rows = points
        .filter(|(_, point)| [ACTIVE, LOAN].contains(&point.style.as_str()) && point.touched)
        .filter(|(_, point)| !point.runs.is_empty())
        .map(|(sizes, point)| {
            let in_place = median(point.runs.iter().map(|it| it.in_place));
            let copied = median(point.runs.iter().map(|it| it.copied_bytes));
            vec![
                name(results, &point.style).to_owned(),
                format!("{sizes} {}", bytes(point.bytes)),
                format!("{} %", round(100.0 * in_place)),
                format!("{} B", round(copied)),
            ]
        });
    let head = ["", "Sizes", "In place", "Copied after arrival"].map(str::to_owned).into();
    intro + &Table { head, rows: rows.collect(), is_prose: false }.html("")
}

fn absent(results: &Results) -> String {
    if results.failures.is_empty() {
        return paragraph("Everything that was requested was measured.");
    }
    let items: Vec<String> =
        results.failures.iter().map(|why| format!("A run failed: {why}.")).collect();
    list(&items)
}

fn styles(results: &Results) -> String {
    let row = |style: &About| vec![style.name.clone(), format!("{}.", style.settings)];
    let head = ["Style", "A transaction"].map(str::to_owned).into();
    let rows = results.styles.iter().map(row).collect();
    Table { head, rows, is_prose: true }.html("")
}
