//! `corewire idl check --corpus`: a whole tree of Barrelfish's interface files.

use std::path::Path;

use corewire_idl::corpus::{Corpus, check_tree};
use serde::Serialize;

use super::outcome::{self, MessageFormat};
use crate::failure::Failure;
use crate::{output, units};

#[derive(Debug, Serialize)]
struct Summary<'a> {
    files: usize,
    passed: usize,
    architectures: &'a [String],
    interfaces: usize,
    wire_messages: usize,
    warnings: Vec<Warning>,
}

#[derive(Debug, Serialize)]
struct Warning {
    code: &'static str,
    count: usize,
    title: &'static str,
}

impl<'a> Summary<'a> {
    fn new(corpus: &'a Corpus) -> Self {
        let warnings = corpus.warnings.iter().map(|(code, &count)| Warning {
            code: code.as_str(),
            count,
            title: code.title(),
        });
        Self {
            files: corpus.files.len(),
            passed: corpus.passed_count(),
            architectures: &corpus.architectures,
            interfaces: corpus.interface_count(),
            wire_messages: corpus.wire_count(),
            warnings: warnings.collect(),
        }
    }

    fn text(&self) -> String {
        let architectures = self.architectures.join(", ");
        let mut text = format!(
            "{} of {} files\ninterfaces     {}\nwire messages  {}\narchitectures  {}\n",
            self.passed,
            self.files,
            units::grouped(self.interfaces as u64),
            units::grouped(self.wire_messages as u64),
            units::printable(&architectures),
        );
        if !self.warnings.is_empty() {
            text += "\nwarnings:\n";
        }
        let most = self.warnings.iter().map(|warning| warning.count).max().unwrap_or(0);
        let width = most.to_string().len();
        for Warning { code, count, title } in &self.warnings {
            text += &format!("{code} {count:width$}  {title}\n");
        }
        text
    }
}

/// Checks the tree, prints the errors of its files, and then the summary.
pub(super) fn run(
    tree: &Path,
    format: MessageFormat,
    denies_warnings: bool,
) -> Result<(), Failure> {
    let corpus = check_tree(tree).map_err(Failure::usage)?;
    for file in corpus.files.iter().filter(|file| !file.passed()) {
        outcome::print(&file.diagnostics, format)?;
    }
    let summary = Summary::new(&corpus);
    match format {
        MessageFormat::Human => output::print(&summary.text())?,
        MessageFormat::Json => {
            let line = serde_json::to_string(&summary).map_err(Failure::other)?;
            output::print(&format!("{line}\n"))?;
        }
    }
    let has_warnings = !corpus.warnings.is_empty();
    outcome::end(summary.passed < summary.files, has_warnings && denies_warnings)
}
