//! The contents of a figure, independent of its size; its axes and their ticks.

use super::look::{self, Look};
use super::units::{Quantity, log_ticks};

/// A figure of the page: a heading, a plot, and a caption.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    /// Name of the file without its extension, and the anchor of the figure in the page.
    pub(crate) stem: String,
    pub(crate) heading: String,
    /// Plain text.
    pub(crate) caption: String,
    pub(crate) chart: Chart,
}

/// Lines over two logarithmic axes.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    /// A horizontal line for comparison, and its label.
    pub(crate) reference: Option<(f64, String)>,
}

/// A logarithmic axis.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    pub(crate) name: String,
    pub(crate) quantity: Quantity,
    /// The names of its rows, from the top, if it has rows instead of figures.
    pub(super) rows: Vec<String>,
}

/// One line.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// A shorter name for narrow plots.
    pub(crate) short: String,
    pub(crate) look: Look,
    /// In ascending order of x; `None` is a gap in the line.
    pub(crate) marks: Vec<Option<Mark>>,
}

/// A point of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mark {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The ends of the thin line through the point.
    pub(crate) span: Option<(f64, f64)>,
    /// Marks an oversubscribed point.
    pub(crate) hollow: bool,
}

impl Mark {
    /// A point without a spread.
    pub(crate) const fn at(x: f64, y: f64) -> Self {
        Self { x, y, span: None, hollow: false }
    }
}

impl Axis {
    /// An axis with a label.
    pub(crate) fn new(name: impl Into<String>, quantity: Quantity) -> Self {
        Self { name: name.into(), quantity, rows: Vec::new() }
    }
}

impl Series {
    /// The line of a mechanism, a library or a style.
    pub(crate) fn of(id: &str, name: &str, marks: Vec<Option<Mark>>) -> Self {
        let (short, look) = (look::short_name(id, name), look::of_mechanism(id));
        Self { name: name.to_owned(), short, look, marks }
    }

    /// Line `at` of a plot whose lines are not mechanisms.
    pub(crate) fn nth(at: usize, name: impl Into<String>, marks: Vec<Option<Mark>>) -> Self {
        let name = name.into();
        Self { short: name.clone(), name, look: look::nth(at), marks }
    }

    /// The marks without the gaps.
    pub(super) fn present(&self) -> impl DoubleEndedIterator<Item = &Mark> {
        self.marks.iter().flatten()
    }
}

impl Chart {
    /// A chart with named rows, each with a dot of each of two kinds. Rows without any are left out.
    pub(crate) fn of_rows(
        x: Axis,
        kinds: [&str; 2],
        rows: impl IntoIterator<Item = (String, [Option<f64>; 2])>,
    ) -> Self {
        let rows = rows.into_iter().filter(|(_, dots)| dots.iter().any(Option::is_some));
        let (names, dots): (Vec<_>, Vec<_>) = rows.unzip();
        let series = kinds.iter().enumerate().map(|(kind, name)| {
            let dot = |(row, dots): (u32, &[Option<f64>; 2])| {
                Some(Mark::at(dots[kind]?, height(row.into())))
            };
            Series::nth(kind, *name, (0..).zip(&dots).map(dot).collect())
        });
        let series = series.collect();
        let y = Axis { rows: names, ..Axis::new("", Quantity::Count) };
        Self { x, y, series, reference: None }
    }

    /// The chart without values that a logarithmic axis cannot show, as a figure; `None` if no line has two points left.
    pub(crate) fn figure(
        mut self,
        (stem, heading): (impl Into<String>, impl Into<String>),
        caption: impl Into<String>,
    ) -> Option<Figure> {
        let is_positive = |figure: f64| figure.is_finite() && figure > 0.0;
        for mark in self.series.iter_mut().flat_map(|series| &mut series.marks) {
            *mark = mark.filter(|mark| is_positive(mark.x) && is_positive(mark.y)).map(|mark| {
                let span = mark.span.filter(|(low, high)| is_positive(*low) && is_positive(*high));
                Mark { span, ..mark }
            });
        }
        self.series.retain(|series| series.present().next().is_some());
        if !self.series.iter().any(|series| series.present().count() > 1) {
            return None;
        }
        let mut caption = caption.into();
        if self.marks().any(|mark| mark.hollow) {
            caption +=
                " Hollow markers: oversubscribed (more processes than cores, so they took turns).";
        }
        Some(Figure { stem: stem.into(), heading: heading.into(), caption, chart: self })
    }

    /// Every mark of every line.
    fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.series.iter().flat_map(Series::present)
    }

    /// The ends of the horizontal axis.
    pub(super) fn x_range(&self) -> (f64, f64) {
        let (low, high) = range(self.marks().map(|mark| mark.x));
        let room = (high / low).powf(0.02).max(1.01);
        (low / room, high * room)
    }

    /// The ends of the vertical axis: around all marks and spans, and at least a few ticks apart.
    pub(super) fn y_range(&self) -> (f64, f64) {
        if let Some(below) = (0..).zip(&self.y.rows).map(|(row, _)| f64::from(row) + 0.5).last() {
            return (height(below), height(-0.5));
        }
        let ends = self.marks().filter_map(|mark| mark.span).flat_map(|(low, high)| [low, high]);
        let reference = self.reference.iter().map(|(y, _)| *y);
        let (low, high) = range(self.marks().map(|mark| mark.y).chain(ends).chain(reference));
        let room = (high / low).powf(0.05).max(1.15);
        let (low, high) = (low / room, high * room);
        let widen = (6.0 / (high / low)).max(1.0).sqrt();
        (low / widen, high * widen)
    }

    /// The ticks of the horizontal axis, the most important first, because not all labels may fit.
    pub(super) fn x_ticks(&self) -> Vec<(f64, String)> {
        if !self.y.rows.is_empty() {
            let (low, high) = self.x_range();
            return log_ticks(low, high)
                .into_iter()
                .map(|tick| (tick, self.x.quantity.tick(tick)))
                .collect();
        }
        let mut places: Vec<f64> = self.marks().map(|mark| mark.x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let wanted = match self.x.quantity {
            Quantity::Bytes => LANDMARKS.as_slice(),
            _ => COUNTS.as_slice(),
        };
        let wanted = wanted.iter().filter(|tick| places.contains(tick));
        let mut ticks: Vec<f64> = Vec::new();
        for tick in places.first().into_iter().chain(places.last()).chain(wanted).chain(&places) {
            if !ticks.contains(tick) {
                ticks.push(*tick);
            }
        }
        ticks.into_iter().map(|tick| (tick, self.x.quantity.tick(tick))).collect()
    }

    /// The ticks of the vertical axis, or its rows.
    pub(super) fn y_ticks(&self) -> Vec<(f64, String)> {
        if !self.y.rows.is_empty() {
            let rows = (0..).zip(&self.y.rows);
            return rows.map(|(row, name)| (height(f64::from(row)), name.clone())).collect();
        }
        let (low, high) = self.y_range();
        log_ticks(low, high).into_iter().map(|tick| (tick, self.y.quantity.tick(tick))).collect()
    }
}

/// Sizes that are labelled first.
const LANDMARKS: [f64; 6] = [64.0, 4096.0, 1_048_576.0, 102_400.0, 10_240.0, 1024.0];
/// Numbers of receivers that are labelled first.
const COUNTS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// The place of a row on a logarithmic axis.
fn height(row: f64) -> f64 {
    (-row).exp()
}

fn range(figures: impl Iterator<Item = f64>) -> (f64, f64) {
    let usable = figures.filter(|figure| figure.is_finite() && *figure > 0.0);
    let (low, high) = usable
        .fold((f64::INFINITY, 0.0_f64), |(low, high), figure| (low.min(figure), high.max(figure)));
    if low <= high { (low, high) } else { (1.0, 10.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_their_order_and_those_without_dots_are_left_out() {
        let x = Axis::new("Round trip", Quantity::Nanoseconds);
        let rows = [("a", [Some(300.0), None]), ("b", [None; 2]), ("c", [Some(400.0), Some(7e4)])];
        let rows = rows.map(|(name, dots)| (name.to_owned(), dots));
        let chart = Chart::of_rows(x, ["one", "other"], rows);
        let ticks = chart.y_ticks();
        assert_eq!(ticks.iter().map(|(_, name)| &name[..]).collect::<Vec<_>>(), ["a", "c"]);
        assert!(ticks[0].0 > ticks[1].0, "the first row is at the top");
        assert_eq!(chart.x_ticks()[0].1, "500 ns");
        assert_eq!(chart.series[1].marks[1].map(|mark| mark.y), Some(ticks[1].0));
    }
}
