//! Numbers and names as people read them.

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A size of memory: `64 KiB`.
pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        MIB.. if bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        MIB.. => format!("{:.1} MiB", bytes as f64 / MIB as f64),
        KIB.. if bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
        KIB.. => format!("{:.1} KiB", bytes as f64 / KIB as f64),
        _ => format!("{bytes} B"),
    }
}

/// A positive number, rounded, with separators between thousands: `1,234,567`.
pub(crate) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let (head, tail) = digits.split_at((digits.len() - 1) % 3 + 1);
    let thousands = tail.as_bytes().chunks(3).map(|three| format!(",{}", three.escape_ascii()));
    head.chars().map(String::from).chain(thousands).collect()
}

/// A positive number with about three significant digits.
pub(crate) fn decimal(number: f64) -> String {
    match number {
        ..10.0 => format!("{number:.2}"),
        10.0..100.0 => format!("{number:.1}"),
        _ => grouped(number),
    }
}

/// `count` of something: `1 receiver`, `3 receivers`.
pub(crate) fn counted(count: usize, singular: &str) -> String {
    format!("{count} {singular}{}", if count == 1 { "" } else { "s" })
}

/// Text from outside, such as a file name, with control characters made visible.
pub(crate) fn printable(text: &str) -> String {
    let shown =
        |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// `rows` under `titles`, aligned to the right but for the last column, with two spaces between columns.
pub(crate) fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let titles: Vec<_> = titles.iter().map(|&title| title.to_owned()).collect();
    let all: Vec<_> = std::iter::once(&titles).chain(rows).collect();
    let width = |at: usize| all.iter().map(|row| row[at].len()).max().unwrap_or(0);
    let last = titles.len() - 1;
    let line = |row: &&Vec<String>| {
        let cells = row[..last].iter().enumerate().map(|(at, cell)| {
            let width = width(at);
            format!("{cell:>width$}  ")
        });
        cells.collect::<String>() + &row[last] + "\n"
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(
            [0.0, 999.0, 1999.6, 1_234_567.0].map(grouped),
            ["0", "999", "2,000", "1,234,567"]
        );
        assert_eq!([1.234, 12.34, 1234.0].map(decimal), ["1.23", "12.3", "1,234"]);
        assert_eq!([65536, 1000, 1_500_000].map(size), ["64 KiB", "1000 B", "1.4 MiB"]);
        assert_eq!(printable("a\nb\u{1b}"), "a\\nb\\u{1b}");
        let rows = [vec!["10".into(), "ok".into()]];
        assert_eq!(table(&["n", "state"], &rows), " n  state\n10  ok\n");
    }
}
