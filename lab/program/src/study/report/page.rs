//! The page around the figures: HTML that needs no other files.

use super::chart::{Figure, Picture};
use super::error::Error;
use super::escape::escape;
use super::svg::{Format, Place};
use super::{dots, plot};

/// A section of the page.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    /// The anchor of the section.
    pub(crate) id: &'static str,
    pub(crate) heading: String,
    /// HTML.
    pub(crate) body: String,
}

impl Section {
    /// A section with a heading.
    pub(crate) fn new(id: &'static str, heading: impl Into<String>, body: String) -> Self {
        Self { id, heading: heading.into(), body }
    }
}

/// Rows under a head. The first column names the row. All cells are plain text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Whether the cells hold words rather than figures.
    pub(crate) is_prose: bool,
}

impl Table {
    /// The table in a box that scrolls where the table is wider than the page.
    pub(crate) fn html(&self, caption: &str) -> String {
        let head: String = self
            .head
            .iter()
            .map(|cell| format!("<th scope=\"col\">{}</th>", escape(cell)))
            .collect();
        let rows: String = self.rows.iter().map(|row| table_row(row)).collect();
        let class = match self.is_prose {
            true => "prose",
            false if self.head.len() > 10 => "figures many",
            false => "figures",
        };
        let head = if head.is_empty() { head } else { format!("<thead><tr>{head}</tr></thead>") };
        let caption = match caption {
            "" => String::new(),
            text => format!("<p class=\"caption\">{}</p>\n", escape(text)),
        };
        format!(
            "{caption}<div class=\"scroll\" tabindex=\"0\"><table class=\"{class}\">{head}\
             <tbody>\n{rows}</tbody></table></div>\n"
        )
    }
}

fn table_row(row: &[String]) -> String {
    let mut cells = row.iter();
    let first = cells.next().map_or("", String::as_str);
    // The second line of a cell is a note.
    let cell = |text: &String| match text.split_once('\n') {
        None => format!("<td>{}</td>", escape(text)),
        Some((figure, aside)) => {
            format!("<td>{}<small>{}</small></td>", escape(figure), escape(aside))
        }
    };
    let rest: String = cells.map(cell).collect();
    format!("<tr><th scope=\"row\">{}</th>{rest}</tr>\n", escape(first))
}

/// A paragraph of plain text.
pub(crate) fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escape(text))
}

/// A list of plain sentences.
pub(crate) fn list(items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
    format!("<ul>\n{items}</ul>\n")
}

/// Text that the reader can open; it is not printed.
pub(crate) fn folded(summary: &str, body: &str) -> String {
    format!("<details><summary>{}</summary>{body}</details>\n", escape(summary))
}

/// A figure with both of its pictures, wide and narrow.
pub(crate) fn figure(figure: &Figure) -> Result<String, Error> {
    let wide = picture(figure, Format::Wide, Place::Page)?;
    let narrow = picture(figure, Format::Narrow, Place::Page)?;
    Ok(format!(
        "<figure id=\"{}\">\n<h3>{}</h3>\n<div class=\"plot\">{wide}{narrow}</div>\n\
         <figcaption>{}</figcaption>\n</figure>\n",
        escape(&figure.stem),
        escape(&figure.heading),
        escape(&figure.caption),
    ))
}

/// One picture of a figure.
pub(crate) fn picture(figure: &Figure, format: Format, place: Place) -> Result<String, Error> {
    match &figure.picture {
        Picture::Lines(chart) => plot::draw(chart, &figure.heading, format, place),
        Picture::Dots(rows) => dots::draw(rows, &figure.heading, format, place),
    }
}

/// Figures one below the other.
pub(crate) fn figures(all: &[Figure]) -> Result<String, Error> {
    all.iter().map(figure).collect()
}

/// The whole page.
pub(crate) fn page(title: &str, lead: &str, sections: &[Section]) -> String {
    let title = escape(title);
    let links: String = sections
        .iter()
        .map(|section| format!("<a href=\"#{}\">{}</a>\n", section.id, escape(&section.heading)))
        .collect();
    let body: String = sections
        .iter()
        .map(|section| {
            let (id, heading) = (section.id, escape(&section.heading));
            format!("<section id=\"{id}\">\n<h2>{heading}</h2>\n{}</section>\n", section.body)
        })
        .collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n\
         {lead}<nav aria-label=\"Contents\">\n{links}</nav>\n{body}</main>\n</body>\n</html>\n",
        include_str!("page.css")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_html() {
        assert!(list(&["<b>".to_owned()]).contains("&lt;b&gt;"));
    }
}
