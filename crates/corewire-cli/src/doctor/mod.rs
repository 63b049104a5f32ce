//! `corewire doctor`: what this machine offers to channels, and what to do where something is missing.

mod checks;
mod hosts;
mod measure;
mod mpi;
mod walk;

use std::path::PathBuf;

use corewire_os::file::check_writable;
use serde::Serialize;

use crate::failure::Failure;
use crate::{output, units};

const EXAMPLES: &str = "\
Examples:
  corewire doctor
  corewire doctor --measure this-machine.json\n\
\n\
Each line says good, improvable (channels work, but could work better) or bad \
(channels do not work), then what was found and what to do about it. The command ends \
with 1 if anything is bad. To try a channel, it creates one for a moment, named \
doctor- and a random number. Of the other hosts that a file names (docs/hosts.md) it says \
whether they answer, and how long this one's certificate is good. Of each MPI in PATH it says whether `corewire mpi` can run it.\n\
\n\
--json prints an array of objects with the keys check, level (good, improvable or \
bad), found and advice (null if there is nothing to do).\n\
\n\
--measure FILE measures the cost of a cache line from each processor to each other one \
on which this process may run (about 5 ms for each pair), prints it, and writes it to \
FILE, for `corewire model --topology FILE`. With --json it prints what it writes. Keep \
the machine idle meanwhile.";

/// Columns of a line of text.
const WIDTH: usize = 80;
/// Column where the findings begin.
const INDENT: usize = 33;

/// Check what this machine offers to channels, and say what to do
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Measure the cost of cache lines, and write it to FILE
    #[arg(long, value_name = "FILE")]
    measure: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Good,
    Improvable,
    Bad,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Improvable => "improvable",
            Self::Bad => "bad",
        }
    }
}

/// One check, and what it found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    level: Level,
    found: String,
    advice: Option<String>,
}

impl Finding {
    fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, level: Level::Good, found: found.into(), advice: None }
    }

    fn improvable(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let advice = Some(advice.into());
        Self { check, level: Level::Improvable, found: found.into(), advice }
    }

    fn bad(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        let advice = Some(advice.into());
        Self { check, level: Level::Bad, found: found.into(), advice }
    }

    /// As lines of text.
    fn to_text(&self) -> String {
        let head = format!("{:<11} {:<20} ", self.level.word(), self.check);
        let mut text = wrapped(&head, &self.found);
        if let Some(advice) = &self.advice {
            text.push_str(&wrapped(&format!("{:INDENT$}", ""), &format!("-> {advice}")));
        }
        text
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(path) = &args.measure {
        check_writable(path).map_err(|error| {
            let shown = units::printable(&path.to_string_lossy());
            Failure::other(format!("cannot write {shown}: {error}"))
        })?;
        let topology = measure::measure()?;
        topology.write(path).map_err(Failure::other)?;
        return match args.json {
            true => output::print_json(&topology),
            false => output::print(&measure::render(&topology)),
        };
    }
    let findings = checks::all();
    if args.json {
        output::print_json(&findings)?;
    } else {
        output::print(&findings.iter().map(Finding::to_text).collect::<String>())?;
    }
    match findings.iter().filter(|finding| finding.level == Level::Bad).count() {
        0 => Ok(()),
        count => Err(Failure::other(format!("{count} of {} checks are bad", findings.len()))),
    }
}

/// `head`, then `body`, with line breaks between words; further lines are indented.
fn wrapped(head: &str, body: &str) -> String {
    let mut text = head.to_owned();
    let mut column = head.chars().count();
    for (i, word) in body.split(' ').enumerate() {
        let length = word.chars().count();
        if i > 0 && column + 1 + length > WIDTH {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', INDENT));
            column = INDENT;
        } else if i > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_within_the_terminal() {
        let finding = Finding::bad("check", "found ".repeat(30), "do this ".repeat(30));
        let text = finding.to_text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.starts_with("bad         check                found found"), "{text}");
    }
}
