//! Tables: on the page, as a file for programs, and on the terminal.

use corewire_harness::statistics::Spread;

use super::units::nanoseconds;
use crate::study::failure::{Doing, Failure};

use super::escape::escape;

/// Stands for a figure that there is not.
pub(crate) const NONE: &str = "\u{2013}";

/// Rows under a head. The first column names the row. All cells are plain text; the second line of a cell is a note.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub(crate) caption: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Whether the cells hold words rather than figures.
    pub(crate) is_prose: bool,
}

/// A column of a table: its head, and the cell of each row.
pub(crate) type Column<'a, R> = (&'a str, &'a dyn Fn(&R) -> String);

/// A cell with the median of some figures, and the smallest and the largest as a note.
pub(crate) fn with_span(spread: Option<Spread>, words: impl Fn(f64) -> String) -> String {
    let Some(Spread { median, min, max }) = spread else { return NONE.to_owned() };
    format!("{}\n{} to {}", words(median), words(min), words(max))
}

/// The same of times.
pub(crate) fn times(all: &[f64]) -> String {
    with_span(Spread::of(all.iter().copied()), nanoseconds)
}

impl Table {
    /// A table with one row for each of `rows`, whose cells are computed by column.
    pub(crate) fn of_columns<R>(
        rows: impl IntoIterator<Item = R>,
        columns: &[Column<'_, R>],
    ) -> Self {
        let head = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        let row = |row: R| columns.iter().map(|(_, cell)| cell(&row)).collect();
        Self { head, rows: rows.into_iter().map(row).collect(), ..Self::default() }
    }

    /// A file of the medians of round trips, with the names in these columns. What has none is left out.
    pub(crate) fn of_round_trips<'a, const N: usize, S: Into<String>>(
        columns: [&str; N],
        rows: impl IntoIterator<Item = ([S; N], &'a [f64])>,
    ) -> Self {
        let row = |(names, all): ([S; N], &[f64])| {
            let Spread { median, min, max } = Spread::of(all.iter().copied())?;
            let figures = [median, min, max].map(|figure| format!("{figure:.1}"));
            Some(names.map(Into::into).into_iter().chain(figures).collect())
        };
        let rows = rows.into_iter().filter_map(row).collect();
        let head = columns.into_iter().chain(["round_trip_ns", "min", "max"]);
        Self { head: head.map(str::to_owned).collect(), rows, ..Self::default() }
    }

    /// A table of figures by row and column. `corner` is the head of the names of the rows.
    pub(crate) fn matrix<R, C>(
        corner: &str,
        rows: &[R],
        columns: &[C],
        (name, head): (impl Fn(&R) -> String, impl Fn(&C) -> String),
        cell: impl Fn(&R, &C) -> Option<String>,
    ) -> Self {
        let figures = |row: &R| {
            columns
                .iter()
                .map(|column| cell(row, column).unwrap_or(NONE.to_owned()))
                .collect::<Vec<_>>()
        };
        Self {
            head: std::iter::once(corner.to_owned()).chain(columns.iter().map(head)).collect(),
            rows: rows.iter().map(|row| [vec![name(row)], figures(row)].concat()).collect(),
            ..Self::default()
        }
    }

    /// The same with a caption.
    pub(crate) fn captioned(self, caption: impl Into<String>) -> Self {
        Self { caption: caption.into(), ..self }
    }

    /// The same with cells of words.
    pub(crate) fn prose(self) -> Self {
        Self { is_prose: true, ..self }
    }

    /// The table in a box that scrolls where the table is wider than the page.
    pub(crate) fn html(&self) -> String {
        let head: String = self
            .head
            .iter()
            .map(|cell| format!("<th scope=\"col\">{}</th>", escape(cell)))
            .collect();
        let rows: String = self.rows.iter().map(|row| html_row(row)).collect();
        let class = match self.is_prose {
            true => "prose",
            false if self.head.len() > 10 => "figures many",
            false => "figures",
        };
        let head = if head.is_empty() { head } else { format!("<thead><tr>{head}</tr></thead>") };
        let caption = match &self.caption[..] {
            "" => String::new(),
            text => format!("<p class=\"caption\">{}</p>\n", escape(text)),
        };
        format!(
            "{caption}<div class=\"scroll\" tabindex=\"0\"><table class=\"{class}\">{head}\
             <tbody>\n{rows}</tbody></table></div>\n"
        )
    }

    /// The table as comma-separated values.
    pub(crate) fn csv(&self) -> Result<String, Failure> {
        let mut table = csv::Writer::from_writer(Vec::new());
        for row in std::iter::once(&self.head).chain(&self.rows) {
            let cells = row.iter().map(|cell| if cell == NONE { "" } else { cell });
            table.write_record(cells).doing("write a table")?;
        }
        let bytes = table.into_inner().doing("write a table")?;
        String::from_utf8(bytes).doing("write a table")
    }

    /// The table for a terminal, under its caption.
    pub(crate) fn text(&self) -> String {
        let lines =
            || std::iter::once(&self.head).chain(&self.rows).filter(|line| !line.is_empty());
        let shown = |cell: &String| cell.replace('\n', " ").replace(NONE, "-");
        let width = |column: usize| {
            lines()
                .filter_map(|line| line.get(column))
                .map(|cell| shown(cell).chars().count())
                .max()
                .unwrap_or(0)
        };
        let count = lines().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..count).map(width).collect();
        let mut text = String::new();
        if !self.caption.is_empty() {
            text = format!("{}:\n", self.caption);
        }
        for line in lines() {
            let cells = line.iter().zip(&widths).enumerate().map(|(at, (cell, width))| {
                let (cell, width) = (shown(cell), *width);
                if at == 0 || self.is_prose {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }
}

fn html_row(row: &[String]) -> String {
    let mut cells = row.iter();
    let first = cells.next().map_or("", String::as_str);
    let cell = |text: &String| match text.split_once('\n') {
        None => format!("<td>{}</td>", escape(text)),
        Some((figure, aside)) => {
            format!("<td>{}<small>{}</small></td>", escape(figure), escape(aside))
        }
    };
    let rest: String = cells.map(cell).collect();
    format!("<tr><th scope=\"row\">{}</th>{rest}</tr>\n", escape(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_the_same_on_a_page_in_a_file_and_on_a_terminal() {
        let name = |it: &u32| format!("row {it}");
        let table = Table::matrix(
            "",
            &[1, 2],
            &[10, 20],
            (name, |it: &u32| it.to_string()),
            |row, column| (*row < 2 || *column < 20).then(|| (row * column).to_string()),
        );
        let table = table.captioned("Products");
        assert_eq!(table.csv().unwrap(), ",10,20\nrow 1,10,20\nrow 2,20,\n");
        assert_eq!(table.text(), "Products:\n       10  20\nrow 1  10  20\nrow 2  20   -\n");
        assert!(
            table
                .html()
                .contains("<tr><th scope=\"row\">row 2</th><td>20</td><td>\u{2013}</td></tr>")
        );
    }

    #[test]
    fn text_is_no_html() {
        let table = Table { rows: vec![vec!["<b>".to_owned()]], ..Table::default() };
        assert!(table.html().contains("&lt;b&gt;"));
    }
}
