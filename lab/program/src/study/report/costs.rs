//! The cost of a message: latency, processor time on both sides, instructions, losses.

use corewire_harness::statistics::Spread;

use crate::study::results::{Latency, Mechanism, Results, Run};

use super::chart::{Axis, Chart, Dots, Figure, Mark, Picture, Row};
use super::improvement::stem_of;
use super::page::{Table, paragraph};
use super::throughput::{line, oversubscribed_note};
use super::units::{Quantity, bytes, plural, round};
use super::{facts, look};

/// The sizes for which processor time is shown.
const SHOWN: [u64; 2] = [64, 4096];

/// One-way latency by size.
pub(crate) fn latency(results: &Results) -> Option<Figure> {
    let series = results.mechanisms.iter().map(|mechanism| {
        let mut own: Vec<&Latency> =
            results.latencies.iter().filter(|latency| latency.mechanism == mechanism.id).collect();
        own.sort_by_key(|latency| latency.bytes);
        line(mechanism, own.into_iter().map(latency_mark).collect())
    });
    let x = Axis::new("Message size", Quantity::Bytes);
    let y = Axis::new("One-way latency", Quantity::Nanoseconds);
    let chart = Chart { x, y, series: series.collect(), reference: None }.shown()?;
    let crowd = oversubscribed_note(chart.marks().any(|mark| mark.hollow));
    Some(Figure {
        stem: "latency".to_owned(),
        heading: "One-way latency by message size".to_owned(),
        caption: format!(
            "Half of the round-trip time between two processes; lower is better. Markers show the median; \
             thin bars reach up to the 99th percentile.{crowd}"
        ),
        picture: Picture::Lines(chart),
    })
}

#[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
fn latency_mark(latency: &Latency) -> Option<Mark> {
    let middle = Spread::of(latency.p50_ns.iter().copied())?.median;
    let high = Spread::of(latency.p99_ns.iter().copied()).map(|high| high.median.max(middle));
    Some(Mark {
        x: latency.bytes as f64,
        y: middle,
        span: high.map(|high| (middle, high)),
        hollow: latency.oversubscribed,
    })
}

/// Processor time per message on both sides, with 1 receiver.
pub(crate) fn processor_time(results: &Results) -> Vec<Figure> {
    SHOWN.iter().filter_map(|size| processor_time_at(results, *size)).collect()
}

fn processor_time_at(results: &Results, size: u64) -> Option<Figure> {
    let row = |mechanism: &Mechanism| {
        let runs = &results.point(&mechanism.id, size, 1, 1)?.runs;
        let median =
            |of: fn(&Run) -> f64| Spread::of(runs.iter().map(of)).map(|spread| spread.median);
        Some(Row {
            name: mechanism.name.clone(),
            short: look::short_name(&mechanism.id, &mechanism.name),
            look: look::of_mechanism(&mechanism.id),
            dots: [median(|run| run.sender_cpu_ns)?, median(|run| run.receiver_cpu_ns)?].map(Some),
        })
    };
    let rows: Vec<Row> = results.mechanisms.iter().filter_map(row).collect();
    let size_text = bytes(size);
    (!rows.is_empty()).then(|| Figure {
        stem: format!("processor-time-{}", stem_of(size)),
        heading: format!("Processor time per message, {size_text}, 1 receiver"),
        caption:
            "Processor time that the sender and the receiver used for each message; lower is better. A \
                  side that polls also uses processor time while it waits for the other side."
                .to_owned(),
        picture: Picture::Dots(Dots {
            axis: Axis::new("Processor time per message", Quantity::Nanoseconds),
            names: ["Sender".to_owned(), "Receiver".to_owned()],
            rows,
        }),
    })
}

/// Instructions and cache misses per byte, or why they are missing.
pub(crate) fn counters(results: &Results) -> String {
    let table = counters_table(results);
    if !table.rows.is_empty() {
        return table.html("All processes together, for each byte received, 1 receiver (medians)");
    }
    let why = results.machine.counters_absent.as_deref().unwrap_or("no run counted them");
    paragraph(&format!(
        "The paper explains its figures by instructions and cache misses per byte. They could not be \
         counted here: {}.",
        why.trim_end_matches('.')
    ))
}

fn counters_table(results: &Results) -> Table {
    let head =
        ["Mechanism", "Size", "Instructions per byte", "Cache misses per byte"].map(str::to_owned);
    let mut rows = Vec::new();
    for mechanism in &results.mechanisms {
        for size in facts::sizes(results, 1) {
            let Some(point) = results.point(&mechanism.id, size, 1, 1) else { continue };
            let median = |of: fn(&Run) -> Option<f64>| {
                Spread::of(point.runs.iter().filter_map(of)).map(|spread| spread.median)
            };
            let found =
                [median(|run| run.instructions_per_byte), median(|run| run.cache_misses_per_byte)];
            if found.iter().any(Option::is_some) {
                let text = |figure: Option<f64>| figure.map_or("\u{2013}".to_owned(), small);
                let [first, second] = found.map(text);
                rows.push(vec![mechanism.name.clone(), bytes(size), first, second]);
            }
        }
    }
    Table { head: head.into(), rows, is_prose: false }
}

fn small(figure: f64) -> String {
    if figure > 0.0 && figure < 0.0005 { format!("{figure:.1e}") } else { round(figure) }
}

/// The share of messages that were lost, or the statement that none was.
pub(crate) fn losses(results: &Results) -> String {
    let points = results.points.iter().filter(|point| point.lost_share() > 0.0);
    let rows: Vec<Vec<String>> = points
        .map(|point| {
            let mut to = plural(point.receivers, "receiver");
            if point.senders > 1 {
                to = format!("{to}, {}", plural(point.senders, "sender"));
            }
            if point.oversubscribed {
                to.push_str("\noversubscribed");
            }
            let share = percent(point.lost_share());
            let name = facts::name(results, &point.mechanism);
            vec![name, bytes(point.bytes), to, share]
        })
        .collect();
    if rows.is_empty() {
        return paragraph("No mechanism lost a message.");
    }
    let head = ["Mechanism", "Size", "To", "Lost"].map(str::to_owned).into();
    let table = Table { head, rows, is_prose: false };
    paragraph(
        "Only messages that arrived count as throughput. All other mechanisms lost no message.",
    ) + &table.html("Share of the messages sent that did not arrive")
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 0.05 { "below 0.1 %".to_owned() } else { format!("{percent:.1} %") }
}
