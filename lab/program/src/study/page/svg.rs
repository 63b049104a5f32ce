//! Draws a figure as SVG: grid, lines, markers that can be hollow, spreads, and labels that do not overlap.

use super::chart::{Chart, Figure, Mark, Series};
use super::escape::escape;
use super::labels;
use super::look::{Look, Marker, clip};

/// The colour of axes and their text.
const INK: &str = "#333";
/// The fonts of the text: those of the reader's system.
const FONT: &str =
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif";
/// A span of at most this many pixels is hidden by its marker.
const HIDDEN: f64 = 7.0;
/// Space above and below the plot.
const TOP: f64 = 36.0;
const BOTTOM: f64 = 58.0;

/// The format of a plot. A wide plot would be illegible on a telephone, so there is a narrow one, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Wide,
    Narrow,
}

/// The place of a picture: inside the page, or in a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Page,
    File,
}

impl Format {
    /// Width and height, in pixels.
    const fn size(self) -> (f64, f64) {
        match self {
            Self::Wide => (900.0, 520.0),
            Self::Narrow => (400.0, 480.0),
        }
    }

    /// The font size of all text.
    const fn font(self) -> f64 {
        match self {
            Self::Wide => 14.0,
            Self::Narrow => 13.0,
        }
    }

    /// The width of a text: an estimate that wide fonts do not exceed.
    fn width_of(self, text: &str) -> f64 {
        let width = |letter: char| match letter {
            'm' | 'w' | 'M' | 'W' => 0.96,
            'i' | 'j' | 'l' | 'I' | ' ' | ',' | '.' | '(' | ')' => 0.38,
            letter if letter.is_uppercase() => 0.74,
            _ => 0.63,
        };
        text.chars().map(width).sum::<f64>() * self.font()
    }

    /// The name of a line.
    fn label(self, series: &Series) -> String {
        match self {
            Self::Wide => clip(&series.name, 32),
            Self::Narrow => clip(&series.short, 13),
        }
    }
}

/// The plot of a figure, with its heading for readers who cannot see it.
pub(super) fn draw(figure: &Figure, format: Format, place: Place) -> String {
    let (width, height) = format.size();
    let title = escape(&figure.heading);
    let head = match (place, format) {
        (Place::Page, Format::Wide) => "<svg class=\"wide\"".to_owned(),
        (Place::Page, Format::Narrow) => "<svg class=\"narrow\"".to_owned(),
        (Place::File, _) => {
            format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\""
            )
        }
    };
    let mut canvas = Canvas::new(&figure.chart, format);
    canvas.draw();
    format!(
        "{head} viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\" \
         font-family=\"{FONT}\" font-size=\"{}\">\n<title>{title}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n{}</svg>\n",
        format.font(),
        canvas.svg
    )
}

/// The end of a text that is at its position.
#[derive(Debug, Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

struct Canvas<'a> {
    chart: &'a Chart,
    format: Format,
    left: f64,
    right: f64,
    bottom: f64,
    x: (f64, f64),
    y: (f64, f64),
    svg: String,
}

impl<'a> Canvas<'a> {
    fn new(chart: &'a Chart, format: Format) -> Self {
        let (width, height) = format.size();
        let names = chart.series.iter().map(|series| format.width_of(&format.label(series)));
        let ticks = chart.y_ticks();
        let ticks = ticks.iter().map(|(_, text)| format.width_of(text));
        Self {
            chart,
            format,
            left: ticks.fold(20.0, f64::max) + 12.0,
            right: width - names.fold(20.0, f64::max) - 26.0,
            bottom: height - BOTTOM,
            x: chart.x_range(),
            y: chart.y_range(),
            svg: String::new(),
        }
    }

    /// The place of a point of both axes, in pixels.
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let share = |at: f64, (low, high): (f64, f64)| (at / low).ln() / (high / low).ln();
        let across = share(x, self.x).mul_add(self.right - self.left, self.left);
        (across, share(y, self.y).mul_add(TOP - self.bottom, self.bottom))
    }

    fn draw(&mut self) {
        let chart = self.chart;
        self.axes();
        for series in &chart.series {
            self.spans(series);
        }
        for series in &chart.series {
            for stretch in series.marks.split(Option::is_none) {
                let points: Vec<_> =
                    stretch.iter().flatten().map(|mark| self.place(mark.x, mark.y)).collect();
                if points.len() > 1 && chart.y.rows.is_empty() {
                    self.line(&points, &series.look);
                }
            }
            for mark in series.present() {
                self.marker(mark, &series.look);
            }
        }
        self.names();
        self.reference();
    }

    fn axes(&mut self) {
        let (chart, format, faint) = (self.chart, self.format, "#e4e4e4");
        let (left, right, bottom) = (self.left, self.right, self.bottom);
        for (y, text) in chart.y_ticks() {
            let y = self.place(self.x.0, y).1;
            self.stroke(&[(left, y), (right, y)], faint);
            self.text((left - 7.0, y), Anchor::End, (INK, false), &text);
        }
        let ticks = chart.x_ticks();
        let places: Vec<f64> = ticks.iter().map(|(x, _)| self.place(*x, self.y.0).0).collect();
        for &x in &places {
            self.stroke(&[(x, TOP), (x, bottom)], faint);
        }
        self.stroke(&[(left, TOP), (left, bottom), (right, bottom)], "#787878");
        let widths = ticks.iter().map(|(_, text)| format.width_of(text));
        let candidates: Vec<(f64, f64)> = places.iter().copied().zip(widths).collect();
        for kept in labels::fitting(&candidates, 6.0) {
            self.text((places[kept], bottom + 15.0), Anchor::Middle, (INK, false), &ticks[kept].1);
        }
        self.text((8.0, 16.0), Anchor::Start, (INK, true), &chart.y.name);
        let middle = f64::midpoint(left, right);
        self.text((middle, bottom + 40.0), Anchor::Middle, (INK, true), &chart.x.name);
        if let Some((y, _)) = chart.reference {
            let y = self.place(self.x.0, y).1;
            self.stroke(&[(left, y), (right, y)], "#5a5a5a");
        }
    }

    fn spans(&mut self, series: &Series) {
        for mark in series.present() {
            let Some((low, high)) = mark.span else { continue };
            let ((x, low), (_, high)) = (self.place(mark.x, low), self.place(mark.x, high));
            if low - high > HIDDEN {
                for ends in [
                    [(x, low), (x, high)],
                    [(x - 3.0, low), (x + 3.0, low)],
                    [(x - 3.0, high), (x + 3.0, high)],
                ] {
                    self.stroke(&ends, &format!("{}8c", series.look.colour));
                }
            }
        }
    }

    /// Writes the names of the lines beside their ends.
    fn names(&mut self) {
        let (chart, right) = (self.chart, self.right);
        let end = |series: &'a Series| {
            let mark = series.present().next_back()?;
            Some((series, self.place(mark.x, mark.y)))
        };
        let ends: Vec<(&Series, (f64, f64))> = chart.series.iter().filter_map(end).collect();
        let wanted: Vec<f64> = ends.iter().map(|(_, (_, y))| *y).collect();
        let places = labels::spread(&wanted, self.format.font() + 3.0, TOP, self.bottom);
        for ((series, end), place) in ends.into_iter().zip(places) {
            let (colour, is_bold) = (series.look.colour, series.look.width > 3.0);
            let thin = Look { colour, width: 0.7, dash: "1 2", marker: Marker::Circle };
            self.line(&[end, (right + 4.0, end.1), (right + 18.0, place)], &thin);
            let label = self.format.label(series);
            self.text((right + 21.0, place), Anchor::Start, (colour, is_bold), &label);
        }
    }

    /// Writes the label of the reference line where the fewest lines pass.
    fn reference(&mut self) {
        let Some((y, text)) = &self.chart.reference else { return };
        let height = self.place(self.x.0, *y).1;
        let width = self.format.width_of(text);
        let room = (self.right - self.left - width - 12.0).max(0.0);
        let left = self.left + 6.0;
        let shares = (0..9_u32).map(|eighth| f64::from(eighth) / 8.0);
        let places = shares
            .flat_map(|share| [-10.0, 11.0].map(|rise| (room.mul_add(share, left), height + rise)));
        let obstacles = self.chart.series.iter().flat_map(|series| {
            let ends: Vec<(f64, f64)> =
                series.present().map(|mark| self.place(mark.x, mark.y)).collect();
            labels::along(&ends)
        });
        let obstacles: Vec<(f64, f64)> = obstacles.collect();
        if let Some((x, y)) = labels::clearest(places, width, &obstacles) {
            self.add(&format!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" dy=\".35em\" fill=\"{INK}\" stroke=\"#fff\" \
                 stroke-width=\"4\" paint-order=\"stroke\">{}</text>",
                escape(text)
            ));
        }
    }

    /// Adds a text, vertically centred at `y`.
    fn text(
        &mut self,
        (x, y): (f64, f64),
        anchor: Anchor,
        (colour, is_bold): (&str, bool),
        text: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if is_bold { " font-weight=\"700\"" } else { "" };
        let text = escape(text);
        self.add(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" dy=\".35em\" fill=\"{colour}\"{anchor}{weight}>{text}</text>"
        ));
    }

    /// Adds a thin line.
    fn stroke(&mut self, points: &[(f64, f64)], colour: &str) {
        self.add(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>",
            path(points)
        ));
    }

    /// Adds a line of this look.
    fn line(&mut self, points: &[(f64, f64)], look: &Look) {
        let (colour, width) = (look.colour, look.width);
        let dash = match look.dash {
            "" => String::new(),
            dash => format!(" stroke-dasharray=\"{dash}\""),
        };
        self.add(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{dash}/>",
            path(points)
        ));
    }

    fn marker(&mut self, mark: &Mark, look: &Look) {
        let (x, y) = self.place(mark.x, mark.y);
        let r = if look.width > 3.0 { 4.5 } else { 3.6 };
        let fill = if mark.hollow { "#fff" } else { look.colour };
        let paint = format!("fill=\"{fill}\" stroke=\"{}\" stroke-width=\"1.4\"", look.colour);
        let corners: &[(f64, f64)] = match look.marker {
            Marker::Circle => {
                return self
                    .add(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\" {paint}/>"));
            }
            Marker::Square => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            Marker::Diamond => &[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)],
            Marker::Up => &[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)],
            Marker::Down => &[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)],
        };
        let points: Vec<_> =
            corners.iter().map(|(dx, dy)| (dx.mul_add(r, x), dy.mul_add(r, y))).collect();
        self.add(&format!("<polygon points=\"{}\" {paint}/>", path(&points)));
    }

    fn add(&mut self, element: &str) {
        self.svg.push_str(element);
        self.svg.push('\n');
    }
}

fn path(points: &[(f64, f64)]) -> String {
    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}
