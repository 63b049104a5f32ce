//! Diagnostics as lines of JSON, for editors and continuous integration.

use serde::Serialize;

use super::{Diagnostic, Diagnostics, Label};

#[derive(Serialize)]
struct JsonDiagnostic<'a> {
    code: &'static str,
    severity: &'static str,
    message: &'a str,
    spans: Vec<JsonSpan<'a>>,
    notes: &'a [String],
    help: &'a [String],
    rendered: String,
}

#[derive(Serialize)]
struct JsonSpan<'a> {
    file: &'a str,
    primary: bool,
    byte_start: usize,
    byte_end: usize,
    line_start: usize,
    column_start: usize,
    line_end: usize,
    column_end: usize,
    label: &'a str,
}

impl Diagnostics {
    /// One JSON object to a line and diagnostic: `code`, `severity`, `message`, `spans` (the primary one first; lines
    /// and columns count from 1, columns count characters), `notes`, `help`, and `rendered`, the text for people.
    #[must_use]
    pub fn json_lines(&self) -> String {
        let mut lines = String::new();
        for diagnostic in &self.list {
            // Only maps with keys that are no strings, and writers, can fail.
            lines += &serde_json::to_string(&self.json(diagnostic)).unwrap_or_default();
            lines.push('\n');
        }
        lines
    }

    fn json<'a>(&'a self, diagnostic: &'a Diagnostic) -> JsonDiagnostic<'a> {
        let primary = self.json_span(&diagnostic.primary, true);
        let secondary = diagnostic.secondary.iter().map(|label| self.json_span(label, false));
        JsonDiagnostic {
            code: diagnostic.code.as_str(),
            severity: diagnostic.severity().as_str(),
            message: &diagnostic.message,
            spans: std::iter::once(primary).chain(secondary).collect(),
            notes: &diagnostic.notes,
            help: &diagnostic.help,
            rendered: self.render_one(diagnostic, false),
        }
    }

    fn json_span<'a>(&'a self, label: &'a Label, primary: bool) -> JsonSpan<'a> {
        let source = self.source(label.file);
        let (start, end) = (source.position(label.span.start), source.position(label.span.end));
        JsonSpan {
            file: source.name(),
            primary,
            byte_start: label.span.start,
            byte_end: label.span.end,
            line_start: start.line,
            column_start: start.column,
            line_end: end.line,
            column_end: end.column,
            label: &label.text,
        }
    }
}
