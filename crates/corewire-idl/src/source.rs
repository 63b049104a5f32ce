//! The text of one file, and places in it.

use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

/// The largest interface file in bytes. Larger files are an error: the limit bounds the memory of every later step.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// A range of bytes in the text of one [`Source`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
}

impl Span {
    /// The range from `start` to `end`, which it does not contain.
    #[must_use]
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// The smallest range that contains both.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        Self::new(self.start.min(other.start), self.end.max(other.end))
    }

    /// The empty range behind this one, where something is missing.
    #[must_use]
    pub const fn after(self) -> Self {
        Self::new(self.end, self.end)
    }

    /// As a range, for indexing.
    #[must_use]
    pub const fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// A line and a column, both counted from 1. Columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

/// An interface file: its name, as shown in messages, and its text.
///
/// ```
/// use corewire_idl::Source;
///
/// let source = Source::new("calc.if", "interface calc \"A calculator\" {\n};\n");
/// assert_eq!(source.position(32).line, 2);
/// assert_eq!(source.stem(), "calc");
/// ```
#[derive(Clone)]
pub struct Source {
    name: String,
    text: String,
    line_starts: Vec<usize>,
    invalid_at: Option<usize>,
    cut: bool,
}

/// The text itself may have a megabyte.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({:?}, {} bytes)", self.name, self.text.len())
    }
}

impl Source {
    /// A source with this name and text, without a byte order mark at its beginning. Checking reports a text that is larger
    /// than [`SOURCE_BYTES_MAX`].
    #[must_use]
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::build(name.into(), text.into(), None)
    }

    /// A source from bytes of unknown origin. Checking reports bytes that are not UTF-8.
    #[must_use]
    pub fn from_bytes(name: impl Into<String>, bytes: &[u8]) -> Self {
        // One byte more than allowed is enough to report the excess.
        let bytes = &bytes[..bytes.len().min(SOURCE_BYTES_MAX + 1)];
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::build(name.into(), text.to_owned(), None),
            Err(error) => {
                let text = String::from_utf8_lossy(bytes).into_owned();
                Self::build(name.into(), text, Some(error.valid_up_to()))
            }
        }
    }

    /// Reads the regular file at `path`. Its name is the path as given.
    ///
    /// # Errors
    ///
    /// Those of reading the file; `InvalidInput` if it is a pipe or something else that could be waited for, or has no end.
    pub fn read(path: &Path) -> io::Result<Self> {
        use io::Read as _;
        let mut bytes = Vec::new();
        let limit = u64::try_from(SOURCE_BYTES_MAX + 1).unwrap_or(u64::MAX);
        // The kernel says what is wrong with a directory.
        let check = |found: fs::Metadata| match found.is_file() || found.is_dir() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
        };
        // Opening a pipe waits.
        check(path.metadata()?)?;
        let file = fs::File::open(path)?;
        check(file.metadata()?)?;
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(Self::from_bytes(path.display().to_string(), &bytes))
    }

    fn build(name: String, mut text: String, mut invalid_at: Option<usize>) -> Self {
        // Some editors put a byte order mark in front of every text.
        if text.starts_with(BYTE_ORDER_MARK) {
            text.drain(..BYTE_ORDER_MARK.len_utf8());
            invalid_at = invalid_at.map(|at| at.saturating_sub(BYTE_ORDER_MARK.len_utf8()));
        }
        let cut = text.len() > SOURCE_BYTES_MAX;
        if cut {
            let mut end = SOURCE_BYTES_MAX;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
        let starts = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(starts).collect();
        Self { name, text, line_starts, invalid_at, cut }
    }

    /// The same text under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The name shown in messages: usually the path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text, with U+FFFD for bytes that are not UTF-8, and without what exceeds [`SOURCE_BYTES_MAX`].
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The part of the text in `span`, or nothing if the span is not inside the text.
    #[must_use]
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.range()).unwrap_or_default()
    }

    /// The name of the file without folders and ending: `calc` for `if/calc.if`.
    #[must_use]
    pub fn stem(&self) -> &str {
        let file = self.name.rsplit('/').next().unwrap_or_default();
        file.strip_suffix(".if").unwrap_or(file)
    }

    /// The folder of the file, as written in its name: `if` for `if/calc.if`, empty for `calc.if`.
    #[must_use]
    pub fn folder(&self) -> &str {
        self.name.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// The line and column of the byte at `offset`. An offset beyond the text is its end.
    #[must_use]
    pub fn position(&self, offset: usize) -> Position {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.line(offset);
        let start = self.line_starts[line - 1];
        Position { line, column: self.text[start..offset].chars().count() + 1 }
    }

    /// The line of the byte at `offset`, from 1. Unlike [`Source::position`] it does not read the line.
    #[must_use]
    pub fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// The bytes of the whole lines that `span` touches, without the last line feed.
    #[must_use]
    pub fn lines_of(&self, span: Span) -> Span {
        let first = self.line(span.start);
        let last = self.line(span.end.max(span.start));
        let end = self.line_starts.get(last).map_or(self.text.len(), |next| next - 1);
        Span::new(self.line_starts[first - 1], end)
    }

    pub(crate) const fn invalid_at(&self) -> Option<usize> {
        self.invalid_at
    }

    pub(crate) const fn is_cut(&self) -> bool {
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters() {
        let source = Source::new("a/b.if", "é\nxyz");
        assert_eq!(source.position(0), Position { line: 1, column: 1 });
        assert_eq!(source.position(2), Position { line: 1, column: 2 });
        assert_eq!(source.position(4), Position { line: 2, column: 2 });
        assert_eq!(source.position(99), Position { line: 2, column: 4 });
        assert_eq!(source.lines_of(Span::new(3, 4)), Span::new(3, 6));
        assert_eq!((source.stem(), source.folder()), ("b", "a"));
    }

    #[test]
    fn bytes_that_are_not_text_are_remembered() {
        let source = Source::from_bytes("x", b"ab\xffc");
        assert_eq!(source.invalid_at(), Some(2));
        assert!(Source::new("x", " ".repeat(SOURCE_BYTES_MAX + 1)).is_cut());
    }
}
