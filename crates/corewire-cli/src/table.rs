//! Tables with aligned columns.

use crate::units;

/// A column's title, and whether it holds numbers, which are aligned to the right.
pub(crate) type Column<'a> = (&'a str, bool);

/// Formats `rows` under `columns`, with two spaces between columns.
pub(crate) fn render(columns: &[Column<'_>], rows: &[Vec<String>]) -> String {
    // What others have said does nothing to a terminal.
    let printable = |row: &Vec<String>| row.iter().map(|cell| units::printable(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(printable).collect();
    let width = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(columns[index].0.chars().count())
    };
    let widths: Vec<_> = (0..columns.len()).map(width).collect();
    let titles: Vec<_> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&titles).chain(&rows) {
        let cells = row.iter().zip(columns).zip(&widths).map(|((cell, (_, is_number)), &width)| {
            if *is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_the_right_and_words_to_the_left() {
        let rows = vec![vec!["a".into(), "1".into()], vec!["long name".into(), "1,000".into()]];
        let text = render(&[("name", false), ("count", true)], &rows);
        assert_eq!(text, "name       count\na              1\nlong name  1,000\n");
    }

    #[test]
    fn what_others_say_does_nothing_to_a_terminal() {
        let rows = vec![vec!["\u{1b}[2Jcalc".into()]];
        assert_eq!(render(&[("name", false)], &rows), "name\n\\u{1b}[2Jcalc\n");
    }
}
