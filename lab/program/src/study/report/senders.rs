//! Throughput by number of senders, which the paper does not measure.

use crate::study::results::{Mechanism, Results};

use super::chart::{Axis, Chart, Figure, Picture};
use super::facts::sorted;
use super::improvement::stem_of;
use super::throughput::{line, mark, oversubscribed_note};
use super::units::{Quantity, bytes, plural};

/// A figure for each size and number of receivers for which several senders were measured.
pub(crate) fn figures(results: &Results) -> Vec<Figure> {
    let crowded = results.points.iter().filter(|point| point.senders > 1 && !point.runs.is_empty());
    let cases = sorted(crowded.map(|point| (point.bytes, point.receivers)));
    cases.into_iter().filter_map(|(size, receivers)| figure(results, size, receivers)).collect()
}

fn figure(results: &Results, size: u64, receivers: u32) -> Option<Figure> {
    let here =
        |point: &&crate::study::results::Point| (point.bytes, point.receivers) == (size, receivers);
    let counts = sorted(results.points.iter().filter(here).map(|point| point.senders));
    let many = results.mechanisms.iter().filter(|mechanism| mechanism.has_many_senders);
    let series = many.map(|mechanism: &Mechanism| {
        let asked = counts.iter().filter_map(|senders| {
            let point = results.point(&mechanism.id, size, receivers, *senders)?;
            Some(mark(point, f64::from(*senders), 1.0))
        });
        line(mechanism, asked.collect())
    });
    let x = Axis::new("Senders", Quantity::Count);
    let y = Axis::new("Messages per second and receiver", Quantity::Rate);
    let chart = Chart { x, y, series: series.collect(), reference: None }.shown()?;
    let crowd = oversubscribed_note(chart.marks().any(|mark| mark.hollow));
    let (size_text, receivers_text) = (bytes(size), plural(receivers, "receiver"));
    Some(Figure {
        stem: format!("senders-{}-{receivers}-receivers", stem_of(size)),
        heading: format!("Several senders: {size_text} messages to {receivers_text}"),
        caption: format!(
            "Messages that a receiver receives from all senders together. The plot shows the mechanisms that \
             let several senders send to the same receivers.{crowd}"
        ),
        picture: Picture::Lines(chart),
    })
}
