//! The parts of an SVG that plotters does not write: text, dashes, markers that can be hollow.

use std::fmt::Write as _;

use super::escape::escape;
use super::look::{Look, Marker};

/// The colour of axes and their text.
pub(crate) const INK: &str = "#333";
/// The fonts of the text: those of the reader's system.
const FONT: &str =
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif";

/// The format of a plot. A wide plot would be illegible on a telephone, so there is a narrow one, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Wide,
    Narrow,
}

impl Format {
    /// Width and height, in pixels.
    pub(crate) fn size(self) -> (u32, u32) {
        match self {
            Self::Wide => (900, 520),
            Self::Narrow => (400, 480),
        }
    }

    /// The font size of all text.
    pub(crate) fn font(self) -> f64 {
        match self {
            Self::Wide => 14.0,
            Self::Narrow => 13.0,
        }
    }

    /// Maximum length of a label, in letters.
    pub(crate) fn letters(self) -> usize {
        match self {
            Self::Wide => 32,
            Self::Narrow => 13,
        }
    }

    /// The width of a text: an estimate that wide fonts do not exceed.
    pub(crate) fn width_of(self, text: &str) -> f64 {
        let width = |letter: char| match letter {
            'm' | 'w' | 'M' | 'W' => 0.96,
            'i' | 'j' | 'l' | 'I' | ' ' | ',' | '.' | '(' | ')' => 0.38,
            letter if letter.is_uppercase() => 0.74,
            _ => 0.63,
        };
        text.chars().map(width).sum::<f64>() * self.font()
    }

    fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }
}

/// The end of a text that is at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Elements that are drawn over the picture of plotters.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    svg: String,
}

impl Overlay {
    /// Adds a text, vertically centred at `y`.
    pub(crate) fn text(
        &mut self,
        (x, y): (f64, f64),
        anchor: Anchor,
        look: (&str, bool),
        text: &str,
    ) {
        let (colour, is_bold) = look;
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

    /// Adds a text with a white outline, which keeps it legible over other elements.
    pub(crate) fn text_over(&mut self, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        self.add(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" dy=\".35em\" fill=\"{INK}\" stroke=\"#fff\" \
             stroke-width=\"4\" paint-order=\"stroke\">{text}</text>"
        ));
    }

    /// Adds a line through all points.
    pub(crate) fn line(&mut self, points: &[(f64, f64)], look: &Look) {
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "{x:.0},{y:.0} ");
        }
        let (colour, width) = (look.colour, look.width);
        let dash = match look.dash {
            "" => String::new(),
            dash => format!(" stroke-dasharray=\"{dash}\""),
        };
        self.add(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{dash}/>",
            path.trim_end()
        ));
    }

    /// Adds a thin dotted line through all points.
    pub(crate) fn leader(&mut self, points: &[(f64, f64)], colour: &'static str) {
        let thin = Look { colour, width: 0.7, dash: "1 2", marker: Marker::Circle };
        self.line(points, &thin);
    }

    /// Adds a marker.
    pub(crate) fn marker(&mut self, (x, y): (f64, f64), look: &Look, is_hollow: bool) {
        let r = if look.width > 3.0 { 4.5 } else { 3.6 };
        let fill = if is_hollow { "#fff" } else { look.colour };
        let paint = format!("fill=\"{fill}\" stroke=\"{}\" stroke-width=\"1.4\"", look.colour);
        let polygon = |corners: &[(f64, f64)]| {
            let points: Vec<String> = corners
                .iter()
                .map(|(dx, dy)| format!("{:.1},{:.1}", dx.mul_add(r, x), dy.mul_add(r, y)))
                .collect();
            format!("<polygon points=\"{}\" {paint}/>", points.join(" "))
        };
        let shape = match look.marker {
            Marker::Circle => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\" {paint}/>"),
            Marker::Square => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            Marker::Diamond => polygon(&[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)]),
            Marker::Up => polygon(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
            Marker::Down => polygon(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]),
        };
        self.add(&shape);
    }

    fn add(&mut self, element: &str) {
        self.svg.push_str(element);
        self.svg.push('\n');
    }
}

/// The place of a picture: inside the page, or in a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Page,
    File,
}

/// Joins the picture of plotters and the overlay into one SVG, with a name for readers who cannot see
/// it.
pub(crate) fn join(
    drawn: &str,
    overlay: &Overlay,
    title: &str,
    (format, place): (Format, Place),
) -> String {
    let inner = drawn.split_once('>').map_or("", |(_, rest)| rest);
    let inner = inner.rsplit_once("</svg>").map_or(inner, |(inner, _)| inner).trim();
    let (width, height) = format.size();
    let title = escape(title);
    let font = format.font();
    let head = match place {
        Place::Page => format!("<svg class=\"{}\"", format.class()),
        Place::File => {
            format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\""
            )
        }
    };
    format!(
        "{head} viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\" \
         font-family=\"{FONT}\" font-size=\"{font}\">\n<title>{title}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n{inner}\n{}</svg>\n",
        overlay.svg
    )
}
