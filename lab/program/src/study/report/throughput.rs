//! Throughput by message size: Figures 2, 3 and Appendix A of the paper.

use crate::study::results::{Mechanism, Point, Results};

use super::chart::{Axis, Chart, Figure, Mark, Picture, Series};
use super::facts;
use super::look;
use super::page::Table;
use super::units::{Quantity, bytes, plural, round};

/// The quantity that [`figure`] shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    Messages,
    Bytes,
}

impl View {
    #[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
    fn factor(self, size: u64) -> f64 {
        match self {
            Self::Messages => 1.0,
            Self::Bytes => size as f64,
        }
    }

    fn axis(self) -> Axis {
        match self {
            Self::Messages => Axis::new("Messages per second and receiver", Quantity::Rate),
            Self::Bytes => Axis::new("Bytes per second and receiver", Quantity::ByteRate),
        }
    }
}

/// Figure 2, and the same in bytes.
pub(crate) fn with_one_receiver(results: &Results) -> Vec<Figure> {
    let heading = "Figure 2: throughput by message size, 1 receiver";
    let messages = figure(results, 1, View::Messages, ("figure-2", heading));
    let heading = "Figure 2 in bytes: throughput by message size, 1 receiver";
    let in_bytes = figure(results, 1, View::Bytes, ("figure-2-bytes", heading));
    messages.into_iter().chain(in_bytes).collect()
}

/// Figure 3, for the largest number of receivers, then Appendix A, for the others.
pub(crate) fn with_more_receivers(results: &Results) -> Vec<Figure> {
    let counts = facts::receiver_counts(results);
    let has_line = |count: &u32| *count > 1 && facts::sizes(results, *count).len() > 1;
    let mut counts: Vec<u32> = counts.into_iter().filter(has_line).collect();
    let most = counts.pop();
    let rest = counts.into_iter().map(|count| {
        let place = match count {
            2..=22 => format!("Figure {}", count + 8),
            _ => "As Figure 3".to_owned(),
        };
        let heading = format!("{place}: throughput by message size, {count} receivers");
        (count, format!("appendix-a-{count}-receivers"), heading)
    });
    let first = most.map(|count| {
        let heading = format!("Figure 3: throughput by message size, {count} receivers");
        (count, "figure-3".to_owned(), heading)
    });
    let all = first.into_iter().chain(rest);
    all.filter_map(|(count, stem, heading)| {
        figure(results, count, View::Messages, (&stem, &heading))
    })
    .collect()
}

/// The medians that [`figure`] draws, as a table.
pub(crate) fn numbers(results: &Results, receivers: u32) -> Table {
    let sizes = facts::sizes(results, receivers);
    let head = ["Messages per second".to_owned()];
    let head = head.into_iter().chain(sizes.iter().map(|size| bytes(*size))).collect();
    let row = |mechanism: &Mechanism| {
        let rates = sizes.iter().map(|size| results.rate(&mechanism.id, *size, receivers));
        let cells =
            rates.map(|rate| rate.map_or("\u{2013}".to_owned(), |r| Quantity::Rate.tick(r)));
        std::iter::once(mechanism.name.clone()).chain(cells).collect()
    };
    Table { head, rows: results.mechanisms.iter().map(row).collect(), is_prose: false }
}

/// A point as a mark, if it has runs.
pub(crate) fn mark(point: &Point, x: f64, factor: f64) -> Option<Mark> {
    let spread = point.messages_per_s()?;
    let span = (point.runs.len() > 1).then_some((spread.min * factor, spread.max * factor));
    Some(Mark { x, y: spread.median * factor, span, hollow: point.oversubscribed })
}

/// The line of a mechanism.
pub(crate) fn line(mechanism: &Mechanism, marks: Vec<Option<Mark>>) -> Series {
    Series {
        name: mechanism.name.clone(),
        short: look::short_name(&mechanism.id, &mechanism.name),
        look: look::of_mechanism(&mechanism.id),
        marks,
    }
}

/// The part of a caption that explains points with too few cores.
pub(crate) fn oversubscribed_note(is_oversubscribed: bool) -> &'static str {
    if is_oversubscribed {
        " Hollow markers: oversubscribed (more processes than cores, so they took turns)."
    } else {
        ""
    }
}

#[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
fn figure(
    results: &Results,
    receivers: u32,
    view: View,
    (stem, heading): (&str, &str),
) -> Option<Figure> {
    let sizes = facts::sizes(results, receivers);
    let series = results.mechanisms.iter().map(|mechanism| {
        let asked = sizes.iter().filter_map(|size| {
            let point = results.point(&mechanism.id, *size, receivers, 1)?;
            Some(mark(point, *size as f64, view.factor(*size)))
        });
        line(mechanism, asked.collect())
    });
    let x = Axis::new("Message size", Quantity::Bytes);
    let chart = Chart { x, y: view.axis(), series: series.collect(), reference: None }.shown()?;
    let crowd = oversubscribed_note(chart.marks().any(|mark| mark.hollow));
    let caption = format!(
        "Median of {} of {} s. Thin bars reach from the slowest run to the fastest, where they are longer \
         than the marker. Both axes are logarithmic; higher is better.{crowd}",
        plural(results.runs, "run"),
        round(results.run_s),
    );
    let (stem, heading) = (stem.to_owned(), heading.to_owned());
    Some(Figure { stem, heading, caption, picture: Picture::Lines(chart) })
}
