//! Draws rows of two dots each: what each of two sides spends, for each mechanism.

use plotters::prelude::*;

use super::chart::{Dots, Row, is_positive};
use super::error::Error;
use super::labels;
use super::look::{Look, Marker, clip};
use super::plot::{Margins, Rows, builder};
use super::scale::padded;
use super::svg::{Anchor, Format, INK, Overlay, Place, join};
use super::units::log_ticks;

/// The plot as SVG.
pub(crate) fn draw(
    dots: &Dots,
    title: &str,
    format: Format,
    place: Place,
) -> Result<String, Error> {
    let mut drawn = String::new();
    let mut overlay = Overlay::default();
    let names = dots.rows.iter().map(|row| format.width_of(&name(row, format)));
    let left = names.fold(20.0, f64::max) + 14.0;
    let margins = Margins { left, right: 30.0, top: 44.0, bottom: 58.0 };
    {
        let root = SVGBackend::with_string(&mut drawn, format.size()).into_drawing_area();
        let figures = dots.rows.iter().flat_map(|row| row.dots).flatten();
        let (low, high) = padded(figures);
        let rows = f64::from(u32::try_from(dots.rows.len()).unwrap_or(u32::MAX));
        let mut builder = builder(&root, margins);
        let mut plane = builder.build_cartesian_2d((low..high).log_scale(), rows..0.0)?;
        let ticks = log_ticks(low, high);
        let faint = RGBColor(228, 228, 228);
        plane.draw_series(ticks.iter().map(|&x| PathElement::new([(x, 0.0), (x, rows)], faint)))?;
        let axis = RGBColor(120, 120, 120);
        plane.draw_series([PathElement::new([(low, rows), (high, rows)], axis)])?;
        for (row, at) in dots.rows.iter().zip(0_u32..) {
            draw_row(&mut overlay, row, (format, margins), |x| place_of(&plane, x, at));
        }
        axis_text(&mut overlay, dots, &ticks, (format, margins), |x| place_of(&plane, x, 0));
        root.present()?;
    }
    Ok(join(&drawn, &overlay, title, (format, place)))
}

fn place_of(plane: &Rows<'_, '_>, x: f64, row: u32) -> (f64, f64) {
    let (x, y) = plane.backend_coord(&(x, f64::from(row) + 0.5));
    (f64::from(x), f64::from(y))
}

fn name(row: &Row, format: Format) -> String {
    match format {
        Format::Wide => clip(&row.name, format.letters()),
        Format::Narrow => clip(&row.short, format.letters()),
    }
}

fn draw_row(
    overlay: &mut Overlay,
    row: &Row,
    (format, margins): (Format, Margins),
    at: impl Fn(f64) -> (f64, f64),
) {
    let is_bold = row.look.width > 3.0;
    let height = at(1.0).1;
    let name = name(row, format);
    overlay.text((margins.left - 8.0, height), Anchor::End, (row.look.colour, is_bold), &name);
    let shown = row.dots.map(|dot| dot.filter(|figure| is_positive(*figure)));
    if let [Some(first), Some(second)] = shown {
        let thin = Look { width: 1.2, dash: "", ..row.look };
        overlay.line(&[at(first), at(second)], &thin);
    }
    for (dot, is_hollow) in shown.into_iter().zip([false, true]) {
        if let Some(figure) = dot {
            overlay.marker(at(figure), &dot_look(row.look.colour, is_hollow), is_hollow);
        }
    }
}

fn dot_look(colour: &'static str, is_hollow: bool) -> Look {
    let marker = if is_hollow { Marker::Diamond } else { Marker::Circle };
    Look { colour, width: 4.0, dash: "", marker }
}

fn axis_text(
    overlay: &mut Overlay,
    dots: &Dots,
    ticks: &[f64],
    (format, margins): (Format, Margins),
    at: impl Fn(f64) -> (f64, f64),
) {
    let (left, _, right, bottom) = margins.edges(format);
    let texts: Vec<String> = ticks.iter().map(|&tick| dots.axis.quantity.tick(tick)).collect();
    let candidates: Vec<(f64, f64)> =
        ticks.iter().zip(&texts).map(|(&tick, text)| (at(tick).0, format.width_of(text))).collect();
    for kept in labels::fitting(&candidates, 6.0) {
        let x = candidates[kept].0;
        overlay.text((x, bottom + 15.0), Anchor::Middle, (INK, false), &texts[kept]);
    }
    let middle = f64::midpoint(left, right);
    overlay.text((middle, bottom + 40.0), Anchor::Middle, (INK, true), &dots.axis.name);
    let mut x = left;
    for (name, is_hollow) in dots.names.iter().zip([false, true]) {
        overlay.marker((x + 6.0, 18.0), &dot_look(INK, is_hollow), is_hollow);
        overlay.text((x + 16.0, 18.0), Anchor::Start, (INK, true), name);
        x += format.width_of(name) * 1.1 + 44.0;
    }
}
