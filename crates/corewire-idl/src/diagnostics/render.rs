//! Diagnostics as text for people, in the form of rustc. `annotate-snippets` is the renderer that rustc itself uses.

use std::collections::BTreeMap;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::{Diagnostic, Diagnostics, FileId, Label, Severity};

/// Longer lines are not shown: the renderer prints lines whole, and a file may be one line of a megabyte.
const SHOWN_BYTES_MAX: usize = 2000;

impl Diagnostics {
    /// All diagnostics as text, each with the source lines that it is about, then a summary. `coloured` adds the
    /// terminal's colours.
    #[must_use]
    pub fn render(&self, coloured: bool) -> String {
        let mut text = String::new();
        for diagnostic in &self.list {
            text += &self.render_one(diagnostic, coloured);
            text.push('\n');
        }
        text += &self.summary();
        text
    }

    /// `2 errors, 1 warning` with a line feed, or nothing if nothing was found.
    #[must_use]
    pub fn summary(&self) -> String {
        let shown = |severity| self.list.iter().filter(|one| one.severity() == severity).count();
        let warnings = shown(Severity::Warning);
        let plural = |count, word| match count {
            1 => format!("1 {word}"),
            _ => format!("{count} {word}s"),
        };
        match (self.errors, warnings) {
            (0, 0) => String::new(),
            (0, _) => format!("{}\n", plural(warnings, "warning")),
            (_, 0) => format!("{}\n", plural(self.errors, "error")),
            _ => format!("{}, {}\n", plural(self.errors, "error"), plural(warnings, "warning")),
        }
    }

    pub(super) fn render_one(&self, diagnostic: &Diagnostic, coloured: bool) -> String {
        let level = match diagnostic.severity() {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(&diagnostic.message).id(diagnostic.code.as_str());
        let mut group = Group::with_title(title);
        let mut hidden = Vec::new();
        for (file, labels) in self.by_file(diagnostic) {
            match self.snippet(file, &labels, &diagnostic.primary) {
                Some(snippet) => group = group.element(snippet),
                None => hidden.push(self.place(labels[0])),
            }
        }
        for place in &hidden {
            group = group.element(Level::NOTE.message(place));
        }
        for note in &diagnostic.notes {
            group = group.element(Level::NOTE.message(note));
        }
        for help in &diagnostic.help {
            group = group.element(Level::HELP.message(help));
        }
        let renderer = if coloured { Renderer::styled() } else { Renderer::plain() };
        let mut text = renderer.render(&[group]);
        text.push('\n');
        text
    }

    /// The labels of each file, the file of the primary label first.
    fn by_file<'a>(&self, diagnostic: &'a Diagnostic) -> Vec<(FileId, Vec<&'a Label>)> {
        let first = diagnostic.primary.file;
        let mut files = BTreeMap::from([(first, vec![&diagnostic.primary])]);
        for label in &diagnostic.secondary {
            files.entry(label.file).or_default().push(label);
        }
        let primary = files.remove(&first).unwrap_or_default();
        std::iter::once((first, primary)).chain(files).collect()
    }

    fn snippet<'a>(
        &'a self,
        file: FileId,
        labels: &[&'a Label],
        primary: &Label,
    ) -> Option<Snippet<'a, annotate_snippets::Annotation<'a>>> {
        let source = self.source(file);
        let fits = |label: &&Label| {
            let lines = source.lines_of(label.span);
            lines.end - lines.start <= SHOWN_BYTES_MAX
        };
        if !labels.iter().all(fits) {
            return None;
        }
        let mut snippet = Snippet::source(source.text()).path(source.name());
        for label in labels {
            let kind =
                if *label == primary { AnnotationKind::Primary } else { AnnotationKind::Context };
            let end = label.span.end.min(source.text().len());
            let mut annotation = kind.span(label.span.start.min(end)..end);
            if !label.text.is_empty() {
                annotation = annotation.label(label.text.as_str());
            }
            snippet = snippet.annotation(annotation);
        }
        Some(snippet)
    }

    fn place(&self, label: &Label) -> String {
        let source = self.source(label.file);
        let at = source.position(label.span.start);
        let (name, line, column) = (source.name(), at.line, at.column);
        let text = if label.text.is_empty() { "here" } else { &label.text };
        format!("{name}:{line}:{column}: {text}")
    }
}
