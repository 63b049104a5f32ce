//! The improvement of one mechanism over the others, by number of receivers: Figures 4 to 6, 31 to 37
//! and 38 to 45 of the paper.

use crate::study::results::{Mechanism, Results};

use super::chart::{Axis, Chart, Figure, Mark, Picture, Series};
use super::throughput::{line, oversubscribed_note};
use super::units::{Quantity, bytes};
use super::{facts, look};

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
    (1_048_576, 5),
];

/// Figures of ZIMP over all others and of corewire, copying out, over all others, for each size that
/// was measured with several numbers of receivers.
pub(crate) fn over_others(results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for size in sizes_by_receivers(results) {
        for over in ["zimp", "corewire_copy"] {
            figures.extend(over_each(results, over, size));
        }
    }
    figures
}

/// ZIMP over Barrelfish MP, one line for each size.
pub(crate) fn over_barrelfish(results: &Results) -> Option<Figure> {
    let series = sizes_by_receivers(results).into_iter().enumerate().map(|(at, size)| {
        let marks = marks(results, ("zimp", "barrelfish_mp"), size);
        Series { name: bytes(size), short: bytes(size), look: look::nth(at), marks }
    });
    let chart = chart(series.collect(), "ZIMP as a multiple of Barrelfish MP")?;
    let crowd = oversubscribed_note(chart.marks().any(|mark| mark.hollow));
    Some(Figure {
        stem: "figure-6".to_owned(),
        heading: "Figures 6 and 38\u{2013}45: ZIMP over Barrelfish MP on this machine".to_owned(),
        caption: format!(
            "Throughput of ZIMP divided by that of Barrelfish MP, by number of receivers, one line for each \
             message size. 2\u{d7} is the paper's +100 %.{crowd}"
        ),
        picture: Picture::Lines(chart),
    })
}

/// The sizes for which several numbers of receivers were measured.
pub(crate) fn sizes_by_receivers(results: &Results) -> Vec<u64> {
    let sizes = facts::all_sizes(results).into_iter();
    sizes.filter(|size| facts::receivers_of(results, *size).len() > 1).collect()
}

/// The throughput of `over` divided by that of `under`, by number of receivers.
pub(crate) fn marks(
    results: &Results,
    (over, under): (&str, &str),
    size: u64,
) -> Vec<Option<Mark>> {
    let counts = facts::receivers_of(results, size).into_iter();
    let asked = counts.filter(|count| results.point(under, size, *count, 1).is_some());
    asked
        .map(|count| {
            let y = facts::ratio(results, over, under, size, count)?;
            let hollow = results.point(over, size, count, 1)?.oversubscribed;
            Some(Mark { x: f64::from(count), y, span: None, hollow })
        })
        .collect()
}

/// A chart of such ratios, with a line where both are equally fast.
pub(crate) fn chart(series: Vec<Series>, name: &str) -> Option<Chart> {
    let (x, y) = (Axis::new("Receivers", Quantity::Count), Axis::new(name, Quantity::Factor));
    Chart { x, y, series, reference: Some((1.0, "equally fast".to_owned())) }.shown()
}

fn over_each(results: &Results, over: &str, size: u64) -> Option<Figure> {
    let others = results.mechanisms.iter().filter(|other| other.id != over);
    let series =
        others.map(|other: &Mechanism| line(other, marks(results, (over, &other.id), size)));
    let name = facts::name(results, over);
    let chart = chart(series.collect(), "Factor over each mechanism")?;
    let crowd = oversubscribed_note(chart.marks().any(|mark| mark.hollow));
    let place = match papers_figure(&FIGURES, size) {
        Some(number) => format!("Figure {number}"),
        None => "As Figure 4".to_owned(),
    };
    let beside = if over == "zimp" { "" } else { ", beside it" };
    Some(Figure {
        stem: format!("{}-over-others-{}", over.replace('_', "-"), stem_of(size)),
        heading: format!("{place}{beside}: {name} over each mechanism, {} messages", bytes(size)),
        caption: format!(
            "Throughput of {name} divided by that of each other mechanism, by number of receivers. Above \
             the line at 1\u{d7}, {name} is faster; 2\u{d7} is the paper's +100 %.{crowd}"
        ),
        picture: Picture::Lines(chart),
    })
}

/// The number of the figure for a size, if the paper has one.
pub(crate) fn papers_figure(figures: &[(u64, u32)], size: u64) -> Option<u32> {
    figures.iter().find(|(known, _)| *known == size).map(|(_, number)| *number)
}

/// A size as part of a file name.
pub(crate) fn stem_of(size: u64) -> String {
    bytes(size).to_lowercase().replace(' ', "-")
}
