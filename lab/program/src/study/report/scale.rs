//! The ranges of the axes of a chart, and their ticks.

use super::chart::Chart;
use super::units::{Quantity, log_ticks};

/// Both axes of a chart. The ticks are in the order of their importance, because not all labels may
/// fit.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    pub(crate) x: (f64, f64),
    pub(crate) y: (f64, f64),
    pub(crate) x_ticks: Vec<(f64, String)>,
    pub(crate) y_ticks: Vec<(f64, String)>,
}

/// Sizes that are labelled first.
const LANDMARKS: [f64; 6] = [64.0, 4096.0, 1_048_576.0, 102_400.0, 10_240.0, 1024.0];
/// Numbers of receivers that are labelled first.
const COUNTS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

impl Scale {
    /// The scale that shows all marks of the chart, and its reference line.
    pub(crate) fn of(chart: &Chart) -> Self {
        let x = range(chart.marks().map(|mark| mark.x));
        let room = (x.1 / x.0).powf(0.02).max(1.01);
        Self {
            x: (x.0 / room, x.1 * room),
            y: y_range(chart),
            x_ticks: x_ticks(chart),
            y_ticks: y_ticks(chart).collect(),
        }
    }
}

/// A range around these figures that covers at least a few ticks.
pub(crate) fn padded(figures: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = range(figures);
    let room = (high / low).powf(0.05).max(1.15);
    let (low, high) = (low / room, high * room);
    let widen = (6.0 / (high / low)).max(1.0).sqrt();
    (low / widen, high * widen)
}

/// The ticks of the vertical axis.
pub(crate) fn y_ticks(chart: &Chart) -> impl Iterator<Item = (f64, String)> {
    let (low, high) = y_range(chart);
    let quantity = chart.y.quantity;
    log_ticks(low, high).into_iter().map(move |tick| (tick, quantity.tick(tick)))
}

fn y_range(chart: &Chart) -> (f64, f64) {
    let spans = chart.marks().filter_map(|mark| mark.span);
    let ends = spans.flat_map(|(low, high)| [low, high]);
    let reference = chart.reference.iter().map(|(y, _)| *y);
    padded(chart.marks().map(|mark| mark.y).chain(ends).chain(reference))
}

fn x_ticks(chart: &Chart) -> Vec<(f64, String)> {
    let mut places: Vec<f64> = chart.marks().map(|mark| mark.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let ends = [places.first().copied(), places.last().copied()];
    let wanted = match chart.x.quantity {
        Quantity::Bytes => LANDMARKS.as_slice(),
        _ => COUNTS.as_slice(),
    };
    let wanted = wanted.iter().copied().filter(|tick| places.contains(tick));
    let mut ticks: Vec<f64> = Vec::new();
    for tick in ends.into_iter().flatten().chain(wanted).chain(places.iter().copied()) {
        if !ticks.contains(&tick) {
            ticks.push(tick);
        }
    }
    ticks.into_iter().map(|tick| (tick, chart.x.quantity.tick(tick))).collect()
}

fn range(figures: impl Iterator<Item = f64>) -> (f64, f64) {
    let usable = figures.filter(|figure| figure.is_finite() && *figure > 0.0);
    let (low, high) = usable
        .fold((f64::INFINITY, 0.0_f64), |(low, high), figure| (low.min(figure), high.max(figure)));
    if low <= high { (low, high) } else { (1.0, 10.0) }
}
