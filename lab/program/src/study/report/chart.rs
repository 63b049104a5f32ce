//! The contents of a plot, independent of its size.

use super::look::Look;
use super::units::Quantity;

/// A figure of the page: a heading, a plot, and a caption.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    /// Name of the file without its extension, and the anchor of the figure in the page.
    pub(crate) stem: String,
    pub(crate) heading: String,
    /// Plain text.
    pub(crate) caption: String,
    pub(crate) picture: Picture,
}

/// The kinds of plots.
#[derive(Debug, Clone)]
pub(crate) enum Picture {
    Lines(Chart),
    Dots(Dots),
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

/// Rows of two dots each, over one logarithmic axis.
#[derive(Debug, Clone)]
pub(crate) struct Dots {
    pub(crate) axis: Axis,
    /// What the filled and the hollow dots show.
    pub(crate) names: [String; 2],
    pub(crate) rows: Vec<Row>,
}

/// A row of a [`Dots`].
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// A shorter name for narrow plots.
    pub(crate) short: String,
    pub(crate) look: Look,
    pub(crate) dots: [Option<f64>; 2],
}

impl Axis {
    /// An axis with a label.
    pub(crate) fn new(name: impl Into<String>, quantity: Quantity) -> Self {
        Self { name: name.into(), quantity }
    }
}

impl Series {
    /// The marks without the gaps.
    pub(crate) fn present(&self) -> impl DoubleEndedIterator<Item = &Mark> {
        self.marks.iter().flatten()
    }
}

impl Chart {
    /// The chart without values that a logarithmic axis cannot show; `None` if no line has two points
    /// left.
    pub(crate) fn shown(mut self) -> Option<Self> {
        for series in &mut self.series {
            for mark in &mut series.marks {
                *mark = mark.filter(|mark| is_positive(mark.x) && is_positive(mark.y));
            }
        }
        self.series.retain(|series| series.present().next().is_some());
        let is_line = |series: &Series| series.present().count() > 1;
        self.series.iter().any(is_line).then_some(self)
    }

    /// Every mark of every line.
    pub(crate) fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.series.iter().flat_map(Series::present)
    }
}

/// Whether a logarithmic axis can show the value.
pub(crate) fn is_positive(figure: f64) -> bool {
    figure.is_finite() && figure > 0.0
}
