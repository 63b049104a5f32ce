//! Draws a chart. plotters computes all positions and draws grid and spreads. Lines, markers and text
//! are added afterwards, because plotters does not support dashed lines, hollow markers and labels that
//! do not overlap.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::chart::{Chart, Mark, Series};
use super::error::Error;
use super::labels;
use super::look::clip;
use super::scale::{Scale, y_ticks};
use super::svg::{Anchor, Format, INK, Overlay, Place, join};

/// A span of at most this many pixels is hidden by its marker.
const HIDDEN: i32 = 7;

/// Converts points of the axes to pixels.
type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>;
/// The same for a plot of rows.
pub(crate) type Rows<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, RangedCoordf64>>;

/// The space around the plot in a picture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Margins {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Margins {
    /// Left edge, top edge, right edge and bottom edge of the plot.
    pub(crate) fn edges(self, format: Format) -> (f64, f64, f64, f64) {
        let (width, height) = format.size();
        (self.left, self.top, f64::from(width) - self.right, f64::from(height) - self.bottom)
    }
}

/// The plot as SVG.
pub(crate) fn draw(
    chart: &Chart,
    title: &str,
    format: Format,
    place: Place,
) -> Result<String, Error> {
    let mut drawn = String::new();
    let mut overlay = Overlay::default();
    let margins = margins(chart, format);
    {
        let root = SVGBackend::with_string(&mut drawn, format.size()).into_drawing_area();
        let scale = Scale::of(chart);
        let mut builder = builder(&root, margins);
        let mut plane = builder.build_cartesian_2d(
            (scale.x.0..scale.x.1).log_scale(),
            (scale.y.0..scale.y.1).log_scale(),
        )?;
        let at = |plane: &Plane<'_, '_>, x: f64, y: f64| {
            let (x, y) = plane.backend_coord(&(x, y));
            (f64::from(x), f64::from(y))
        };
        grid(&mut plane, chart, &scale)?;
        spans(&mut plane, chart)?;
        axes(&mut overlay, chart, &scale, (format, margins), |x, y| at(&plane, x, y));
        for series in &chart.series {
            lines(&mut overlay, series, |mark| at(&plane, mark.x, mark.y));
        }
        names(&mut overlay, chart, (format, margins), |mark| at(&plane, mark.x, mark.y));
        reference(&mut overlay, chart, (format, margins), |x, y| at(&plane, x, y));
        root.present()?;
    }
    Ok(join(&drawn, &overlay, title, (format, place)))
}

/// A builder for a plot with these margins.
pub(crate) fn builder<'a, 'b>(
    root: &'a DrawingArea<SVGBackend<'b>, plotters::coord::Shift>,
    margins: Margins,
) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(root);
    builder
        .margin_left(pixels(margins.left))
        .margin_right(pixels(margins.right))
        .margin_top(pixels(margins.top))
        .margin_bottom(pixels(margins.bottom));
    builder
}

fn margins(chart: &Chart, format: Format) -> Margins {
    let names = chart.series.iter().map(|series| format.width_of(&label(series, format)));
    let right = names.fold(20.0, f64::max) + 26.0;
    let ticks = y_ticks(chart).map(|(_, text)| format.width_of(&text));
    let left = ticks.fold(20.0, f64::max) + 12.0;
    Margins { left, right, top: 36.0, bottom: 58.0 }
}

fn label(series: &Series, format: Format) -> String {
    let name = match format {
        Format::Wide => &series.name,
        Format::Narrow => &series.short,
    };
    clip(name, format.letters())
}

fn grid(plane: &mut Plane<'_, '_>, chart: &Chart, scale: &Scale) -> Result<(), Error> {
    let ((left, right), (low, high)) = (scale.x, scale.y);
    let faint = RGBColor(228, 228, 228);
    let rows = scale.y_ticks.iter().map(|&(y, _)| PathElement::new([(left, y), (right, y)], faint));
    plane.draw_series(rows)?;
    let columns =
        scale.x_ticks.iter().map(|&(x, _)| PathElement::new([(x, low), (x, high)], faint));
    plane.draw_series(columns)?;
    let axis = RGBColor(120, 120, 120);
    plane.draw_series([PathElement::new([(left, high), (left, low), (right, low)], axis)])?;
    if let Some((y, _)) = chart.reference {
        let strong = RGBColor(90, 90, 90);
        plane.draw_series([PathElement::new([(left, y), (right, y)], strong)])?;
    }
    Ok(())
}

fn spans(plane: &mut Plane<'_, '_>, chart: &Chart) -> Result<(), Error> {
    for series in &chart.series {
        let colour = colour(series.look.colour).mix(0.55);
        let spans: Vec<(f64, (f64, f64))> =
            series.present().filter_map(|mark| Some((mark.x, mark.span?))).collect();
        let is_seen = |&(x, (low, high)): &(f64, (f64, f64))| {
            let height = |y: f64| plane.backend_coord(&(x, y)).1;
            height(low) - height(high) > HIDDEN
        };
        let spans: Vec<_> = spans.into_iter().filter(is_seen).collect();
        let bar =
            |&(x, (low, high)): &(f64, (f64, f64))| PathElement::new([(x, low), (x, high)], colour);
        plane.draw_series(spans.iter().map(bar))?;
        let ends = spans.iter().flat_map(|&(x, (low, high))| [(x, low), (x, high)]);
        plane.draw_series(
            ends.map(|end| EmptyElement::at(end) + PathElement::new([(-3, 0), (3, 0)], colour)),
        )?;
    }
    Ok(())
}

/// The colour for `#rrggbb`; invalid parts count as 0.
fn colour(hex: &str) -> RGBColor {
    let channel = |from: usize| {
        hex.get(from..from + 2).and_then(|text| u8::from_str_radix(text, 16).ok()).unwrap_or(0)
    };
    RGBColor(channel(1), channel(3), channel(5))
}

fn axes(
    overlay: &mut Overlay,
    chart: &Chart,
    scale: &Scale,
    (format, margins): (Format, Margins),
    at: impl Fn(f64, f64) -> (f64, f64),
) {
    let (left, _, right, bottom) = margins.edges(format);
    for (y, text) in &scale.y_ticks {
        overlay.text((left - 7.0, at(scale.x.0, *y).1), Anchor::End, (INK, false), text);
    }
    let centre = |x: f64| at(x, scale.y.0).0;
    let candidates: Vec<(f64, f64)> =
        scale.x_ticks.iter().map(|(x, text)| (centre(*x), format.width_of(text))).collect();
    for kept in labels::fitting(&candidates, 6.0) {
        let (x, text) = &scale.x_ticks[kept];
        overlay.text((centre(*x), bottom + 15.0), Anchor::Middle, (INK, false), text);
    }
    overlay.text((8.0, 16.0), Anchor::Start, (INK, true), &chart.y.name);
    let middle = f64::midpoint(left, right);
    overlay.text((middle, bottom + 40.0), Anchor::Middle, (INK, true), &chart.x.name);
}

fn lines(overlay: &mut Overlay, series: &Series, at: impl Fn(&Mark) -> (f64, f64)) {
    for stretch in series.marks.split(Option::is_none) {
        let points: Vec<(f64, f64)> = stretch.iter().flatten().map(&at).collect();
        if points.len() > 1 {
            overlay.line(&points, &series.look);
        }
    }
    for mark in series.present() {
        overlay.marker(at(mark), &series.look, mark.hollow);
    }
}

/// Writes the label of the reference line where the fewest lines pass.
fn reference(
    overlay: &mut Overlay,
    chart: &Chart,
    (format, margins): (Format, Margins),
    at: impl Fn(f64, f64) -> (f64, f64),
) {
    let Some((y, text)) = &chart.reference else { return };
    let (left, _, right, _) = margins.edges(format);
    let height = at(1.0, *y).1;
    let width = format.width_of(text);
    let room = (right - left - width - 12.0).max(0.0);
    let shares = [0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0];
    let places = [-10.0, 11.0]
        .into_iter()
        .flat_map(|rise| shares.map(|share| (left + 6.0 + room * share, height + rise)));
    let obstacles = chart.series.iter().flat_map(|series| {
        let ends: Vec<(f64, f64)> = series.present().map(|mark| at(mark.x, mark.y)).collect();
        labels::along(&ends)
    });
    let place = labels::clearest(places, width, &obstacles.collect::<Vec<_>>());
    if let Some(place) = place {
        overlay.text_over(place, text);
    }
}

fn names(
    overlay: &mut Overlay,
    chart: &Chart,
    (format, margins): (Format, Margins),
    at: impl Fn(&Mark) -> (f64, f64),
) {
    let (_, top, right, bottom) = margins.edges(format);
    let ends: Vec<(&Series, (f64, f64))> = chart
        .series
        .iter()
        .filter_map(|series| Some((series, at(series.present().next_back()?))))
        .collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, (_, y))| *y).collect();
    let places = labels::spread(&wanted, format.font() + 3.0, top, bottom);
    for ((series, end), place) in ends.into_iter().zip(places) {
        let (colour, is_bold) = (series.look.colour, series.look.width > 3.0);
        overlay.leader(&[end, (right + 4.0, end.1), (right + 18.0, place)], colour);
        overlay.text(
            (right + 21.0, place),
            Anchor::Start,
            (colour, is_bold),
            &label(series, format),
        );
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a margin is smaller than its picture")]
fn pixels(length: f64) -> i32 {
    length.round() as i32
}
