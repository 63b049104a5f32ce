//! The page of the study. Every sentence with a figure is computed, and can be unfavourable to corewire.
//!
//! More than 600 lines, because its sentences follow the order of the page, one function each.

use std::collections::BTreeSet;

use corewire_harness::statistics::Spread;

use super::model::RINGS;
use super::results::{Count, Latency, Model, Point, Run, Standing, Zimp, median};
use crate::study::mechanisms::{About, Kind};
use crate::study::page::look::short_name;
use crate::study::page::units::{Quantity, and, bytes, gain, nanoseconds, plural, rate, round};
use crate::study::page::{
    Axis, Block, Chart, Figure, Mark, NONE, Page, Series, Table, whereabouts,
};
use crate::study::results::{Results, sorted};

/// The kernel's mechanisms that the paper measured.
const KERNEL: [&str; 6] = ["unix_datagram", "tcp", "udp", "pipe", "system_v_queue", "posix_queue"];
/// corewire's mechanisms: the one that copies out, and the one that reads in place.
const COPYING: &str = "corewire_copy";
const IN_PLACE: &str = "corewire_in_place";
/// The paper's 1 MB, which is 1 MiB here.
const MEGABYTE: u64 = 1 << 20;
/// The sizes that conclusions are about.
const SHORT: [u64; 2] = [64, 4096];
/// The sizes in the paper's figures of ZIMP over the others, and the numbers of the figures.
const FIGURES: [(u64, u32); 9] = [
    (1, 4),
    (64, 31),
    (128, 32),
    (512, 33),
    (1024, 34),
    (4096, 35),
    (10_240, 36),
    (102_400, 37),
    (MEGABYTE, 5),
];
/// The largest datagram that UDP carries, according to the paper.
const DATAGRAM: u64 = 65_507;

/// The page for one machine: the results at the most frequent distance of its cores.
pub(super) fn of(results: &Results<Zimp>) -> Page {
    let here = &results.at_most_frequent();
    let found = &here.body;
    let effort = plural(found.runs, "run");
    let effort = format!("{}: {effort} of {} s for each point", here.effort, round(found.run_s));
    let queues = here.machine.queue_limits.clone();
    let facts = [("Message queues", queues), ("Effort", effort)];
    let crowd = match found.all_receivers().iter().any(|count| found.is_oversubscribed(*count)) {
        true => {
            "Some points had more processes than cores (oversubscribed). Their markers are hollow, and \
             they show how well processes take turns, not how fast messages are."
        }
        false => "No point had more processes than cores.",
    };
    let counters = counters(found);
    let why = here.machine.counters_absent.as_deref().unwrap_or("no run counted them");
    let no_counters = format!(
        "The paper explains its figures by instructions and cache misses per byte. They could not be \
         counted here: {}.",
        why.trim_end_matches('.')
    );
    let no_counters = if counters.rows.is_empty() { no_counters } else { String::new() };
    let one_receiver = [
        throughput(found, 1, false, ("figure-2", "Figure 2")),
        throughput(found, 1, true, ("figure-2-bytes", "Figure 2 in bytes")),
    ];
    let page = Page::of(include_str!("page.md"), here, &facts)
        .value("mechanisms", plural(found.mechanisms.len(), "mechanism"))
        .value("leaders", leaders(found))
        .value("runs", runs(found))
        .value("crowd", crowd)
        .value("whereabouts", whereabouts(&results.distances(), "run"))
        .value("no_counters", no_counters)
        .value("system_call", system_call(found))
        .short(in_short(found))
        .block("one_receiver", one_receiver.into_iter().flatten().collect::<Vec<_>>())
        .block("numbers", Block::Folded("The medians as a table".to_owned(), numbers(found)))
        .block("more_receivers", more_receivers(found))
        .block("by_receivers", over_others(found))
        .block("hardware", over_barrelfish(found))
        .block("senders", senders(found))
        .block("latency", latency(found))
        .block("processor_time", processor_time(found))
        .block("counters", counters)
        .block("losses", losses(found))
        .block("table_one", table_one(found))
        .block("model_figure", model_figure(found))
        .block("model_tables", RINGS.map(|ring| model_table(found, ring)).to_vec())
        .block("absent", absent(&results.body, found))
        .block("conclusion", conclusion(found))
        .block("settings", settings(found));
    let with_claim = |page: Page, (name, here): (&'static str, Option<String>)| {
        page.value(name, here.unwrap_or_default())
    };
    claims(found).into_iter().fold(page, with_claim)
}

/// A sentence around its parts; `None` without any.
pub(super) fn around(
    parts: impl IntoIterator<Item = String>,
    sentence: impl FnOnce(&[String]) -> String,
) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().collect();
    (!parts.is_empty()).then(|| sentence(&parts))
}

/// The number of runs of the points.
fn runs(found: &Zimp) -> String {
    let counts = || found.points.iter().map(|point| point.runs.len()).filter(|count| *count > 0);
    match (counts().min(), counts().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {}", plural(most, "run")),
        (_, most) => plural(most.unwrap_or(found.runs as usize), "run"),
    }
}

/// The fastest mechanism of each kind.
fn leaders(found: &Zimp) -> String {
    let size = SHORT.into_iter().find(|size| found.sizes(1).contains(size));
    let leaders = size.and_then(|size| {
        let kinds = [
            (Kind::InPlace, "in place"),
            (Kind::Copying, "copying out"),
            (Kind::Kernel, "through the kernel"),
        ];
        let leaders = kinds.into_iter().filter_map(|(kind, words)| {
            let (mechanism, figure) = found.fastest(|it| it.kind == kind, size, 1)?;
            Some(format!("{} {words} ({})", rate(figure), found.name(&mechanism.id)))
        });
        around(leaders, |leaders| {
            let (size, leaders) = (bytes(size), and(leaders));
            format!("With {size} messages and 1 receiver, the fastest mechanisms carry {leaders}.")
        })
    });
    leaders.unwrap_or_default()
}

// What the paper claims.

/// What was found for each claim.
fn claims(found: &Zimp) -> [(&'static str, Option<String>); 11] {
    let most = found.all_receivers().last().copied().filter(|count| *count > 1);
    let over_tcp = |sizes: &[u64]| sizes.iter().find_map(|size| over_tcp(found, *size));
    let at = |over, under, receivers, sizes: &[u64]| at_sizes(found, over, under, receivers, sizes);
    let zimp_with_most =
        most.and_then(|most| at("zimp", "barrelfish_mp", most, &[64, 4096, MEGABYTE]));
    [
        ("rings_with_one", over_kernel(found, 1)),
        ("zimp_by_size", zimp_by_size(found)),
        ("barrelfish_and_tcp", at("barrelfish_mp", "tcp", 1, &[1, MEGABYTE])),
        ("tcp_and_udp", tcp_and_udp(found)),
        ("system_v_and_posix", system_v_and_posix(found)),
        ("zimp_with_most", zimp_with_most),
        ("queues", queues(found)),
        ("rings_with_most", most.and_then(|most| over_kernel(found, most))),
        ("small_over_tcp", over_tcp(&[1, 64])),
        ("large_over_tcp", over_tcp(&[MEGABYTE, 102_400, 4096])),
        ("over_barrelfish", by_receivers(found)),
    ]
}

/// A number of receivers, and whether there were too few cores for them.
fn to(found: &Zimp, receivers: u32) -> String {
    let crowd = if found.is_oversubscribed(receivers) { " (oversubscribed)" } else { "" };
    format!("{}{crowd}", plural(receivers, "receiver"))
}

fn over_kernel(found: &Zimp, receivers: u32) -> Option<String> {
    let of = |ring: &str| {
        let (mut measured, mut behind) = (0, Vec::new());
        for size in found.sizes(receivers) {
            let kernel = found.fastest(|it| KERNEL.contains(&&it.id[..]), size, receivers);
            let Some((rate, (_, kernel))) = found.rate(ring, size, receivers).zip(kernel) else {
                continue;
            };
            measured += 1;
            behind.extend((kernel > rate).then(|| bytes(size)));
        }
        let except = around(behind, |behind| format!("except at {}", and(behind)));
        let at = except.unwrap_or_else(|| "at every size".to_owned());
        (measured > 0).then(|| format!("{} outperforms all of them {at}", found.name(ring)))
    };
    around(["zimp", "barrelfish_mp"].into_iter().filter_map(of), |rings| {
        format!("with {}, {}.", to(found, receivers), rings.join("; "))
    })
}

/// The ratios with one receiver at the sizes that satisfy `wanted`.
fn ratios(found: &Zimp, over: &str, under: &str, wanted: impl Fn(u64) -> bool) -> Vec<f64> {
    let sizes = found.sizes(1).into_iter().filter(|size| wanted(*size));
    sizes.filter_map(|size| found.ratio(over, under, size, 1)).collect()
}

fn mean(figures: &[f64]) -> Option<f64> {
    let count = u32::try_from(figures.len()).ok().filter(|count| *count > 0)?;
    Some(figures.iter().sum::<f64>() / f64::from(count))
}

fn zimp_by_size(found: &Zimp) -> Option<String> {
    let small = mean(&ratios(found, "barrelfish_mp", "zimp", |size| size < 1000));
    let small = small
        .map(|ratio| format!("Barrelfish MP against ZIMP {} on average below 1 kB", gain(ratio)));
    let large = [4096, MEGABYTE].into_iter().filter_map(|size| {
        let ratio = found.ratio("zimp", "barrelfish_mp", size, 1)?;
        Some(format!("ZIMP against Barrelfish MP {} with {}", gain(ratio), bytes(size)))
    });
    around(small.into_iter().chain(large), |parts| format!("{}.", parts.join("; ")))
}

fn at_sizes(
    found: &Zimp,
    over: &str,
    under: &str,
    receivers: u32,
    sizes: &[u64],
) -> Option<String> {
    let gains = sizes.iter().filter_map(|&size| {
        let ratio = found.ratio(over, under, size, receivers)?;
        Some(format!("{} with {}", gain(ratio), bytes(size)))
    });
    let [over, under] = [over, under].map(|id| found.name(id));
    around(gains, |gains| {
        format!("with {}, {over} against {under}: {}.", to(found, receivers), and(gains))
    })
}

/// The least and the most of some ratios.
fn between(ratios: Vec<f64>) -> Option<String> {
    let Spread { min, max, .. } = Spread::of(ratios)?;
    let (low, high) = (gain(min), gain(max));
    Some(if low == high { low } else { format!("{low} to {high}") })
}

fn tcp_and_udp(found: &Zimp) -> Option<String> {
    let small = between(ratios(found, "tcp", "udp", |size| size < 1000));
    let large = between(ratios(found, "tcp", "udp", |size| size > DATAGRAM));
    let small = small.map(|it| format!("{it} below 1 kB"));
    let large = large.map(|it| format!("{it} above 65 kB"));
    around(small.into_iter().chain(large), |parts| {
        format!("TCP against UDP, 1 receiver: {}.", and(parts))
    })
}

fn system_v_and_posix(found: &Zimp) -> Option<String> {
    let between = between(ratios(found, "system_v_queue", "posix_queue", |_| true))?;
    Some(format!("System V against POSIX queues, 1 receiver: {between}."))
}

fn queues(found: &Zimp) -> Option<String> {
    let mut apart = Vec::new();
    for receivers in found.all_receivers().into_iter().filter(|count| *count > 2) {
        for size in found.sizes(receivers).into_iter().filter(|size| *size < MEGABYTE) {
            let ids = ["pipe", "system_v_queue", "posix_queue"];
            let rates = ids.map(|id| found.rate(id, size, receivers)).into_iter().flatten();
            let rates = Spread::of(rates).filter(|rates| rates.min > 0.0 && rates.max > rates.min);
            apart.extend(rates.map(|rates| (rates.max / rates.min - 1.0) * 100.0));
        }
    }
    let mean = mean(&apart)?;
    let Spread { min, max, .. } = Spread::of(apart)?;
    Some(format!(
        "the fastest of the three is {min:.0} to {max:.0} % ahead of the slowest, {mean:.0} % on average."
    ))
}

/// The gains at some numbers of receivers.
fn gains<'a>(
    found: &'a Zimp,
    (over, under): (&'a str, &'a str),
    size: u64,
    counts: impl IntoIterator<Item = u32> + 'a,
) -> impl Iterator<Item = String> + 'a {
    counts.into_iter().filter_map(move |count| {
        let ratio = found.ratio(over, under, size, count)?;
        Some(format!("{} with {}", gain(ratio), to(found, count)))
    })
}

fn over_tcp(found: &Zimp, size: u64) -> Option<String> {
    let counts = found.receivers(size);
    let (first, last) = (*counts.first()?, *counts.last()?);
    let gains: Vec<String> = gains(found, ("zimp", "tcp"), size, sorted([first, last])).collect();
    (gains.len() > 1).then(|| format!("with {} messages, {}.", bytes(size), gains.join(", ")))
}

fn by_receivers(found: &Zimp) -> Option<String> {
    let counts = |size: &u64| found.receivers(*size).len();
    let size = [64, 128].into_iter().filter(|size| counts(size) > 0).max_by_key(counts)?;
    around(gains(found, ("zimp", "barrelfish_mp"), size, found.receivers(size)), |gains| {
        format!("{} messages: {}.", bytes(size), and(gains))
    })
}

// Figures.

/// A line for each of these mechanisms.
fn lines<'a>(
    mechanisms: impl IntoIterator<Item = &'a About>,
    marks: impl Fn(&str) -> Vec<Option<Mark>>,
) -> Vec<Series> {
    let line = |it: &About| Series::of(&it.id, &it.name, marks(&it.id));
    mechanisms.into_iter().map(line).collect()
}

/// The throughput of a point, times `factor`, if it has runs.
fn mark(point: &Point, x: f64, factor: f64) -> Option<Mark> {
    let spread = point.messages_per_s()?;
    let span = (point.runs.len() > 1).then_some((spread.min * factor, spread.max * factor));
    Some(Mark { x, y: spread.median * factor, span, hollow: point.oversubscribed })
}

fn rates() -> Axis {
    Axis::new("Messages per second and receiver", Quantity::Rate)
}

/// Throughput by message size, in messages or in bytes.
#[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
fn throughput(
    found: &Zimp,
    receivers: u32,
    in_bytes: bool,
    (stem, place): (&str, &str),
) -> Option<Figure> {
    let marks = |id: &str| {
        let sizes = found.sizes(receivers).into_iter();
        let points = sizes.filter_map(|size| found.point(id, size, receivers, 1));
        let mark = |point: &Point| {
            let size = point.bytes as f64;
            mark(point, size, if in_bytes { size } else { 1.0 })
        };
        points.map(mark).collect()
    };
    let y = Axis::new("Bytes per second and receiver", Quantity::ByteRate);
    let chart = Chart {
        x: Axis::new("Message size", Quantity::Bytes),
        y: if in_bytes { y } else { rates() },
        series: lines(&found.mechanisms, marks),
        reference: None,
    };
    let heading = format!("{place}: throughput by message size, {}", plural(receivers, "receiver"));
    let caption = format!(
        "Median of {} of {} s. Thin bars reach from the slowest run to the fastest, where they are longer \
         than the marker. Both axes are logarithmic; higher is better.",
        runs(found),
        round(found.run_s),
    );
    chart.figure((stem, heading), caption)
}

/// Figure 3, for the largest number of receivers, then Appendix A, for the others.
fn more_receivers(found: &Zimp) -> Vec<Figure> {
    let mut counts = found.all_receivers();
    counts.retain(|count| *count > 1 && found.sizes(*count).len() > 1);
    let most = counts.pop();
    let rest = counts.into_iter().map(|count| {
        let place = match count {
            2..=22 => format!("Figure {}", count + 8),
            _ => "As Figure 3".to_owned(),
        };
        (count, format!("appendix-a-{count}-receivers"), place)
    });
    let first = most.map(|count| (count, "figure-3".to_owned(), "Figure 3".to_owned()));
    let all = first.into_iter().chain(rest);
    all.filter_map(|(count, stem, place)| throughput(found, count, false, (&stem, &place)))
        .collect()
}

/// The medians of Figure 2.
fn numbers(found: &Zimp) -> Table {
    let names = (|it: &About| it.name.clone(), |size: &u64| bytes(*size));
    Table::matrix("Messages per second", &found.mechanisms, &found.sizes(1), names, |it, size| {
        Some(Quantity::Rate.tick(found.rate(&it.id, *size, 1)?))
    })
}

/// A figure of ratios by number of receivers, with a line where both are equally fast.
pub(super) fn of_ratios(
    series: Vec<Series>,
    name: &str,
    about: (String, String),
    caption: impl Into<String>,
) -> Option<Figure> {
    let (x, y) = (Axis::new("Receivers", Quantity::Count), Axis::new(name, Quantity::Factor));
    let reference = Some((1.0, "equally fast".to_owned()));
    Chart { x, y, series, reference }.figure(about, caption)
}

/// The throughput of `over` divided by that of `under`, by number of receivers.
pub(super) fn factors(found: &Zimp, over: &str, under: &str, size: u64) -> Vec<Option<Mark>> {
    let counts = found.receivers(size).into_iter();
    let asked = counts.filter(|count| found.point(under, size, *count, 1).is_some());
    let mark = |count| {
        let y = found.ratio(over, under, size, count)?;
        let hollow = found.point(over, size, count, 1)?.oversubscribed;
        Some(Mark { hollow, ..Mark::at(f64::from(count), y) })
    };
    asked.map(mark).collect()
}

/// A size as part of a file name.
pub(super) fn stem_of(size: u64) -> String {
    bytes(size).to_lowercase().replace(' ', "-")
}

/// The sizes for which several numbers of receivers were measured.
fn sizes_by_receivers(found: &Zimp) -> Vec<u64> {
    let sizes = found.all_sizes().into_iter();
    sizes.filter(|size| found.receivers(*size).len() > 1).collect()
}

/// ZIMP over all others, and corewire over all others.
fn over_others(found: &Zimp) -> Vec<Figure> {
    let sizes = sizes_by_receivers(found).into_iter();
    let cases = sizes.flat_map(|size| ["zimp", COPYING].map(|over| (over, size)));
    cases.filter_map(|(over, size)| over_each(found, over, size)).collect()
}

fn over_each(found: &Zimp, over: &str, size: u64) -> Option<Figure> {
    let others = found.mechanisms.iter().filter(|other| other.id != over);
    let series = lines(others, |under| factors(found, over, under, size));
    let number = FIGURES.iter().find(|(known, _)| *known == size);
    let place = number.map_or("As Figure 4".to_owned(), |(_, number)| format!("Figure {number}"));
    let beside = if over == "zimp" { "" } else { ", beside it" };
    let (name, size_text) = (found.name(over), bytes(size));
    let stem = format!("{}-over-others-{}", over.replace('_', "-"), stem_of(size));
    let heading = format!("{place}{beside}: {name} over each mechanism, {size_text} messages");
    let caption = format!(
        "Throughput of {name} divided by that of each other mechanism, by number of receivers. Above the \
         line at 1\u{d7}, {name} is faster; 2\u{d7} is the paper\u{2019}s +100 %."
    );
    of_ratios(series, "Factor over each mechanism", (stem, heading), caption)
}

/// ZIMP over Barrelfish MP, one line for each size.
fn over_barrelfish(found: &Zimp) -> Option<Figure> {
    let line = |(at, size): (usize, u64)| {
        Series::nth(at, bytes(size), factors(found, "zimp", "barrelfish_mp", size))
    };
    let series = sizes_by_receivers(found).into_iter().enumerate().map(line).collect();
    let heading = "Figures 6 and 38\u{2013}45: ZIMP over Barrelfish MP on this machine".to_owned();
    let caption = "Throughput of ZIMP divided by that of Barrelfish MP, by number of receivers, one line for \
                   each message size. 2\u{d7} is the paper\u{2019}s +100 %.";
    let about = ("figure-6".to_owned(), heading);
    of_ratios(series, "ZIMP as a multiple of Barrelfish MP", about, caption)
}

/// Throughput by number of senders: a figure for each size and number of receivers.
fn senders(found: &Zimp) -> Vec<Figure> {
    let crowded = found.points.iter().filter(|point| point.senders > 1 && !point.runs.is_empty());
    let cases = sorted(crowded.map(|point| (point.bytes, point.receivers)));
    let figure = |(size, receivers)| {
        let here = |point: &&Point| (point.bytes, point.receivers) == (size, receivers);
        let counts = sorted(found.points.iter().filter(here).map(|point| point.senders));
        let marks = |id: &str| {
            let points = counts.iter().filter_map(|count| found.point(id, size, receivers, *count));
            points.map(|point| mark(point, f64::from(point.senders), 1.0)).collect()
        };
        let many = found.mechanisms.iter().filter(|mechanism| mechanism.has_many_senders);
        let (x, series) = (Axis::new("Senders", Quantity::Count), lines(many, marks));
        let stem = format!("senders-{}-{receivers}-receivers", stem_of(size));
        let (size, receivers) = (bytes(size), plural(receivers, "receiver"));
        let heading = format!("Several senders: {size} messages to {receivers}");
        let caption = "Messages that a receiver receives from all senders together. The plot shows the \
                       mechanisms that let several senders send to the same receivers.";
        Chart { x, y: rates(), series, reference: None }.figure((stem, heading), caption)
    };
    cases.into_iter().filter_map(figure).collect()
}

/// One-way latency by size.
#[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
fn latency(found: &Zimp) -> Option<Figure> {
    let mark = |latency: &&Latency| {
        let y = median(latency.p50_ns.iter().copied())?;
        let high = median(latency.p99_ns.iter().copied());
        let span = high.map(|high| (y, high.max(y)));
        Some(Mark { x: latency.bytes as f64, y, span, hollow: latency.oversubscribed })
    };
    let marks = |id: &str| {
        let own = found.latencies.iter().filter(|latency| latency.mechanism == id);
        let mut own: Vec<&Latency> = own.collect();
        own.sort_by_key(|latency| latency.bytes);
        own.iter().map(mark).collect()
    };
    let (x, series) = (Axis::new("Message size", Quantity::Bytes), lines(&found.mechanisms, marks));
    let y = Axis::new("One-way latency", Quantity::Nanoseconds);
    let caption = "Half of the round-trip time between two processes; lower is better. Markers show the \
                   median; thin bars reach up to the 99th percentile.";
    let about = ("latency", "One-way latency by message size");
    Chart { x, y, series, reference: None }.figure(about, caption)
}

// Tables.

/// Processor time on both sides, with 1 receiver.
fn processor_time(found: &Zimp) -> Vec<Table> {
    type Side = (&'static str, fn(&Run) -> f64);
    let sides: [Side; 2] =
        [("Sender", |run| run.sender_cpu_ns), ("Receiver", |run| run.receiver_cpu_ns)];
    let table = |size: u64| {
        let corner = "Processor time per message";
        let names = (|it: &About| it.name.clone(), |(side, _): &Side| (*side).to_owned());
        let table = Table::matrix(corner, &found.mechanisms, &sides, names, |it, (_, of)| {
            let point = found.point(&it.id, size, 1, 1)?;
            Some(nanoseconds(point.median(|run| Some(of(run)))?))
        });
        table.captioned(format!("{} messages, 1 receiver", bytes(size)))
    };
    let sizes = SHORT.into_iter().filter(|size| found.sizes(1).contains(size));
    sizes.map(table).collect()
}

/// Instructions and cache misses per byte, where they were counted.
fn counters(found: &Zimp) -> Table {
    let cases = found
        .mechanisms
        .iter()
        .flat_map(|it| found.sizes(1).into_iter().map(move |size| (it, size)));
    let rows = cases.filter_map(|(mechanism, size)| {
        let point = found.point(&mechanism.id, size, 1, 1)?;
        let counts = [
            point.median(|run| run.instructions_per_byte),
            point.median(|run| run.cache_misses_per_byte),
        ];
        counts.iter().any(Option::is_some).then_some((mechanism, size, counts))
    });
    let small = |figure: Option<f64>| match figure {
        None => NONE.to_owned(),
        Some(figure) if figure > 0.0 && figure < 0.0005 => format!("{figure:.1e}"),
        Some(figure) => round(figure),
    };
    let table = Table::of_columns(
        rows,
        &[
            ("Mechanism", &|(mechanism, ..)| mechanism.name.clone()),
            ("Size", &|(_, size, _)| bytes(*size)),
            ("Instructions per byte", &|(.., counts)| small(counts[0])),
            ("Cache misses per byte", &|(.., counts)| small(counts[1])),
        ],
    );
    table.captioned("All processes together, for each byte received, 1 receiver (medians)")
}

/// The share of messages that were lost.
fn losses(found: &Zimp) -> Table {
    let to = |point: &&Point| {
        let senders = plural(point.senders, "sender");
        let senders = if point.senders > 1 { format!(", {senders}") } else { String::new() };
        let crowd = if point.oversubscribed { "\noversubscribed" } else { "" };
        format!("{}{senders}{crowd}", plural(point.receivers, "receiver"))
    };
    let lost = |point: &&Point| match point.lost_share() * 100.0 {
        ..0.05 => "below 0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    };
    let table = Table::of_columns(
        found.points.iter().filter(|point| point.lost_share() > 0.0),
        &[
            ("Mechanism", &|point| found.name(&point.mechanism)),
            ("Size", &|point| bytes(point.bytes)),
            ("To", &to),
            ("Lost", &lost),
        ],
    );
    table.captioned(
        "Share of the messages sent that did not arrive. Only messages that arrived count as throughput. \
         All other mechanisms lost no message.",
    )
}

/// The rows of Table I, and yields, which the paper does not have.
const LINES: [&str; 5] = [
    "Copies for sending",
    "Copies for receiving",
    "System calls for sending",
    "System calls for receiving",
    "Yields of the processor",
];

/// The paper's value in one of [`LINES`], if it has the mechanism.
fn in_paper(line: usize, count: &Count) -> Option<u64> {
    let datagrams = count.bytes.div_ceil(DATAGRAM);
    let to_each = match &count.mechanism[..] {
        "zimp" => [0, 1, 0, 0],
        "barrelfish_mp" => [1, 1, 0, 0],
        "udp" => [1, 1, datagrams, datagrams],
        other if KERNEL.contains(&other) => [1; 4],
        _ => return None,
    };
    Some(to_each.get(line)? * u64::from(count.receivers))
}

/// Table I for each size and number of receivers that was counted.
fn table_one(found: &Zimp) -> Vec<Table> {
    let cases = sorted(found.counts.iter().map(|count| (count.bytes, count.receivers)));
    let cell = |line: &usize, count: &&Count| {
        let figures = [
            count.send_copies,
            count.receive_copies,
            count.send_calls,
            count.receive_calls,
            count.yields,
        ];
        let measured = match count.impossible {
            Some(_) => NONE.to_owned(),
            None => round((figures[*line] * 100.0).round() / 100.0),
        };
        Some(match in_paper(*line, count) {
            Some(paper) => format!("{measured}\npaper: {paper}"),
            None => measured,
        })
    };
    let table = |(size, receivers): (u64, u32)| {
        let is_here = |count: &&Count| (count.bytes, count.receivers) == (size, receivers);
        let counts: Vec<&Count> = found.counts.iter().filter(is_here).collect();
        let did_yield = counts.iter().any(|count| count.impossible.is_none() && count.yields > 0.0);
        let lines: Vec<usize> = (0..if did_yield { 5 } else { 4 }).collect();
        let short = |count: &&Count| short_name(&count.mechanism, &found.name(&count.mechanism));
        let names = (|line: &usize| LINES[*line].to_owned(), short);
        let table = Table::matrix(&format!("N = {receivers}"), &lines, &counts, names, cell);
        table.captioned(format!("{} messages to {}", bytes(size), plural(receivers, "receiver")))
    };
    cases.into_iter().map(table).collect()
}

fn system_call(found: &Zimp) -> String {
    let Some(call) = &found.system_call else {
        return "The cost of a system call was not measured in this run.".to_owned();
    };
    let ratio = call.system_call_ns / call.function_ns;
    let times = match ratio.is_finite() && ratio > 0.0 {
        true => format!("{} times as much", round(ratio)),
        false => "an unknown factor".to_owned(),
    };
    let [call, function] = [call.system_call_ns, call.function_ns].map(round);
    format!(
        "A system call that does nothing takes {call} ns here, a function call that does nothing {function} ns: \
         {times}. The paper: 14 times as many cycles."
    )
}

/// The model's rows for a ring, by number of receivers.
fn modelled<'a>(found: &'a Zimp, ring: &str) -> Vec<&'a Model> {
    let mut rows: Vec<&Model> = found.model.iter().filter(|row| row.ring == ring).collect();
    rows.sort_by_key(|row| row.receivers);
    rows
}

/// The time from one message to the next on the model.
fn model_figure(found: &Zimp) -> Option<Figure> {
    let series = RINGS.map(|ring| {
        let mark = |row: &Model| Some(Mark::at(f64::from(row.receivers), row.stream_ns));
        Series::of(ring, &found.name(ring), modelled(found, ring).into_iter().map(mark).collect())
    });
    let x = Axis::new("Receivers", Quantity::Count);
    let y = Axis::new("Time per message (model)", Quantity::Nanoseconds);
    let caption = "Time from one send to the next in a stream of 48-byte messages, on the model\u{2019}s \
                   clocks. Lower is better.";
    let about = ("coherence-model", "Coherence model: time per message by receivers");
    Chart { x, y, series: series.into(), reference: None }.figure(about, caption)
}

fn model_table(found: &Zimp, ring: &str) -> Table {
    let table = Table::of_columns(
        modelled(found, ring),
        &[
            ("Receivers", &|row| row.receivers.to_string()),
            ("Lines to sender", &|row| round(row.sender_transfers)),
            ("Lines to receiver", &|row| round(row.receiver_transfers)),
            ("Invalida\u{ad}tions", &|row| round(row.invalidations)),
            ("Read-modify-writes", &|row| round(row.read_modify_writes)),
            ("Time", &|row| nanoseconds(row.stream_ns)),
        ],
    );
    table.captioned(format!("{}, per message", found.name(ring)))
}

/// The settings of each mechanism.
fn settings(found: &Zimp) -> Table {
    let kind = |it: &&About| match it.kind {
        Kind::Kernel => "Through the kernel",
        Kind::Copying => "Copying out",
        Kind::InPlace => "In place",
    };
    let settings = |it: &&About| format!("{}. {}", kind(it), it.settings);
    Table::of_columns(
        &found.mechanisms,
        &[("Mechanism", &|it| it.name.clone()), ("Kind and settings", &settings)],
    )
    .prose()
}

// What is missing.

/// What is missing of a mechanism, and why; at which sizes, numbers of receivers, and numbers of senders.
type Gap<'a> = ((&'a String, &'static str, String), [BTreeSet<u64>; 3]);

/// One sentence for each mechanism and reason. `here` has the runs at one distance of the cores, of those in `all`.
fn absent(all: &Zimp, here: &Zimp) -> Vec<String> {
    let elsewhere = |all: usize, here: usize| {
        (all > 0 && here == 0).then(|| "only at other distances of the cores".to_owned())
    };
    let mut missing = Vec::new();
    for (point, here) in all.points.iter().zip(&here.points) {
        let senders = Some(point.senders).filter(|senders| *senders > 1);
        let place = (point.bytes, Some(point.receivers), senders);
        let whys = point.impossible.clone().or(elsewhere(point.runs.len(), here.runs.len()));
        missing.extend(whys.map(|why| (&point.mechanism, "throughput", why, place)));
        let failed = point.failures.iter().cloned();
        let what = "runs of throughput that failed";
        missing.extend(failed.map(|why| (&point.mechanism, what, why, place)));
    }
    for (latency, here) in all.latencies.iter().zip(&here.latencies) {
        let elsewhere = elsewhere(latency.p50_ns.len(), here.p50_ns.len());
        let why = latency.impossible.clone().or(elsewhere);
        let place = (latency.bytes, None, None);
        missing.extend(why.map(|why| (&latency.mechanism, "latency", why, place)));
    }
    for count in &all.counts {
        let place = (count.bytes, Some(count.receivers), None);
        let why = count.impossible.clone();
        missing.extend(why.map(|why| (&count.mechanism, "counts of Table I", why, place)));
    }
    let mut gaps: Vec<Gap<'_>> = Vec::new();
    for (mechanism, what, why, (size, receivers, senders)) in missing {
        let gap = (mechanism, what, why);
        let at = gaps.iter().position(|(known, _)| *known == gap).unwrap_or_else(|| {
            gaps.push((gap, Default::default()));
            gaps.len() - 1
        });
        let [sizes, all_receivers, all_senders] = &mut gaps[at].1;
        sizes.insert(size);
        all_receivers.extend(receivers.map(u64::from));
        all_senders.extend(senders.map(u64::from));
    }
    let order = |id: &String| all.mechanisms.iter().position(|mechanism| mechanism.id == *id);
    gaps.sort_by_key(|((mechanism, ..), _)| order(mechanism));
    let sentence = |((mechanism, what, why), [sizes, receivers, senders]): &Gap<'_>| {
        let counted = |counts: &BTreeSet<u64>, one: &str| match counts.len() {
            0 => String::new(),
            1 => format!("; {}", listed(counts, |count| plural(count, one))),
            _ => format!("; {} {one}s", listed(counts, |count| count.to_string())),
        };
        let (receivers, senders) = (counted(receivers, "receiver"), counted(senders, "sender"));
        let (name, sizes) = (here.name(mechanism), listed(sizes, bytes));
        format!("{name}, {what} ({sizes}{receivers}{senders}): {}.", why.trim_end_matches('.'))
    };
    gaps.iter().map(sentence).collect()
}

fn listed(counts: &BTreeSet<u64>, word: impl Fn(u64) -> String) -> String {
    counts.iter().map(|count| word(*count)).collect::<Vec<_>>().join(", ")
}

// What to conclude.

/// A few sentences for the top of the page.
fn in_short(found: &Zimp) -> Vec<String> {
    let zimp = SHORT.into_iter().find_map(|size| over_zimp(found, size));
    let own = [COPYING, IN_PLACE].into_iter().flat_map(|id| among_kind(found, id, &[1]));
    zimp.into_iter().chain(own).chain(kernel_cost(found)).collect()
}

/// All conclusions.
fn conclusion(found: &Zimp) -> Vec<String> {
    let counts = found.all_receivers();
    let own = [COPYING, IN_PLACE].into_iter().flat_map(|id| among_kind(found, id, &counts));
    own.chain(SHORT.into_iter().filter_map(|size| over_zimp(found, size)))
        .chain(fan_out(found))
        .chain(on_model(found))
        .chain(kernel_cost(found))
        .chain(one_way(found))
        .collect()
}

/// Compares a mechanism of corewire with those of its kind: one sentence for all numbers of receivers with the same
/// outcome. Oversubscribed points are left out: there the result depends on how many messages fit into one turn on the
/// core.
fn among_kind(found: &Zimp, id: &str, counts: &[u32]) -> Vec<String> {
    let mut outcomes: Vec<(String, Vec<String>)> = Vec::new();
    for &receivers in counts.iter().filter(|count| !found.is_oversubscribed(**count)) {
        let Some(outcome) = outcome(found, id, receivers) else { continue };
        match outcomes.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, counts)) => counts.push(receivers.to_string()),
            None => outcomes.push((outcome, vec![receivers.to_string()])),
        }
    }
    let among = match id {
        COPYING => "that copy messages out",
        _ => "that read messages in place",
    };
    let name = found.name(id);
    let sentence = |(outcome, counts): (String, Vec<String>)| {
        let ending = if counts == ["1"] { "" } else { "s" };
        let counts = and(&counts);
        format!("Among the mechanisms {among}, {name} {outcome}, with {counts} receiver{ending}.")
    };
    outcomes.into_iter().map(sentence).collect()
}

/// Compares corewire with its best rival, size by size.
fn outcome(found: &Zimp, id: &str, receivers: u32) -> Option<String> {
    let kind = found.mechanisms.iter().find(|it| it.id == id)?.kind;
    let (mut ahead, mut level, mut behind) = (Vec::new(), Vec::new(), Vec::new());
    let mut missing = Vec::new();
    for size in found.sizes(receivers) {
        let Some(own) = found.point(id, size, receivers, 1) else { continue };
        let is_rival = |it: &About| it.kind == kind && it.id != id;
        let Some((best, _)) = found.fastest(is_rival, size, receivers) else { continue };
        match own.beside(found.point(&best.id, size, receivers, 1)?) {
            Some(Standing::Ahead) => ahead.push(bytes(size)),
            Some(Standing::Level) => level.push(format!("{} ({})", bytes(size), best.name)),
            Some(Standing::Behind) => {
                let lag = gain(found.ratio(id, &best.id, size, receivers)?);
                behind.push(format!("{} ({}, {lag})", bytes(size), best.name));
            }
            None => missing.push(bytes(size)),
        }
    }
    let leads_always = level.is_empty() && behind.is_empty();
    let parts = [
        around(ahead, |sizes| match leads_always {
            true => "leads at every size measured".to_owned(),
            false => format!("leads at {}", and(sizes)),
        }),
        around(level, |sizes| format!("is level with the best rival at {}", and(sizes))),
        around(behind, |sizes| format!("is behind at {}", and(sizes))),
    ];
    let missing = around(missing, |sizes| format!("; it was not measured at {}", and(sizes)));
    around(parts.into_iter().flatten(), |parts| {
        format!("{}{}", parts.join("; it "), missing.unwrap_or_default())
    })
}

/// Compares corewire, copying out, with ZIMP, with one receiver.
fn over_zimp(found: &Zimp, size: u64) -> Option<String> {
    let [own, zimp] = [COPYING, "zimp"]
        .map(|id| found.point(id, size, 1, 1).filter(|point| !point.oversubscribed));
    let (own, zimp) = (own?, zimp?);
    let words = match own.beside(zimp)? {
        Standing::Ahead => "ahead of",
        Standing::Level => "level with",
        Standing::Behind => "behind",
    };
    let [fast, slow] = [own, zimp].map(|it| it.messages_per_s().map(|spread| rate(spread.median)));
    Some(format!(
        "With {} messages and 1 receiver, {} is {words} {}: {} against {}, {}.",
        bytes(size),
        found.name(COPYING),
        found.name("zimp"),
        fast?,
        slow?,
        gain(found.ratio(COPYING, "zimp", size, 1)?),
    ))
}

/// The cost of more receivers: for the largest number of receivers that each had a core, or for the largest number if
/// there is none.
fn fan_out(found: &Zimp) -> Vec<String> {
    let counts = found.all_receivers();
    let several = || counts.iter().rev().copied().filter(|count| *count > 1);
    let fitting = several().find(|count| !found.is_oversubscribed(*count));
    let Some(most) = fitting.or(several().next()) else { return Vec::new() };
    let crowd = match found.is_oversubscribed(most) {
        true => {
            " There were fewer cores than processes, so most of the loss is due to processes taking turns."
        }
        false => "",
    };
    let sentence = |size: u64| {
        let ids = [COPYING, IN_PLACE, "zimp", "barrelfish_mp", "unix_datagram"].into_iter();
        let kept = ids.filter_map(|id| {
            let percent = found.rate(id, size, most)? / found.rate(id, size, 1)? * 100.0;
            percent.is_finite().then(|| format!("{} {} %", found.name(id), round(percent)))
        });
        around(kept, |kept| {
            format!(
                "With {} messages and {}, each receiver still gets this share of the throughput with 1 \
                 receiver: {}.{crowd}",
                bytes(size),
                plural(most, "receiver"),
                and(kept)
            )
        })
    };
    SHORT.into_iter().filter_map(sentence).collect()
}

fn on_model(found: &Zimp) -> Option<String> {
    let most = found.model.iter().map(|row| row.receivers).max()?;
    let costs = RINGS.into_iter().rev().filter_map(|ring| {
        let row = modelled(found, ring).into_iter().find(|row| row.receivers == most)?;
        Some(format!("{} takes {}", found.name(ring), nanoseconds(row.stream_ns)))
    });
    around(costs, |costs| {
        format!(
            "In the coherence model, for a 48-byte message to {}, each on its own core, {}.",
            plural(most, "receiver"),
            and(costs)
        )
    })
}

fn kernel_cost(found: &Zimp) -> Option<String> {
    let parts = SHORT.into_iter().filter_map(|size| {
        let (kernel, slow) = found.fastest(|it| it.kind == Kind::Kernel, size, 1)?;
        let times = round(found.ratio(COPYING, &kernel.id, size, 1)?);
        Some(format!("{times} with {} messages ({}, {})", bytes(size), kernel.name, rate(slow)))
    });
    let call = found.system_call.as_ref().map_or(String::new(), |call| {
        let (entry, function) = (nanoseconds(call.system_call_ns), nanoseconds(call.function_ns));
        format!(" A system call that does nothing takes {entry} here, a function call {function}.")
    });
    around(parts, |parts| {
        format!(
            "The cost of the kernel, with 1 receiver: the throughput of {}, divided by that of the fastest \
             mechanism of the kernel, is {}.{call}",
            found.name(COPYING),
            and(parts),
        )
    })
}

fn one_way(found: &Zimp) -> Option<String> {
    let ids = [IN_PLACE, COPYING, "zimp", "unix_datagram", "pipe"].into_iter();
    let times = ids.filter_map(|id| {
        let is_it = |it: &&Latency| (&it.mechanism[..], it.bytes) == (id, 64);
        let time = median(found.latencies.iter().find(is_it)?.p50_ns.iter().copied())?;
        time.is_finite().then(|| format!("{} {}", found.name(id), nanoseconds(time)))
    });
    around(times, |times| format!("One way, a 64 B message takes: {}.", and(times)))
}
