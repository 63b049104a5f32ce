//! What workers print: reports, and why they failed.

use std::fmt::Write as _;
use std::io::Read;
use std::process::Child;

use serde::de::DeserializeOwned;

use crate::failure::{Doing, Failure};

/// The reports of a process that has ended and of the processes that it started, one line each.
pub(super) fn reports_of<R: DeserializeOwned>(worker: &mut Child) -> Result<Vec<R>, Failure> {
    let mut text = String::new();
    if let Some(output) = &mut worker.stdout {
        output.read_to_string(&mut text).doing("read a report")?;
    }
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).doing("read a report")).collect()
}

/// The reason that a failed process gave.
pub(super) fn complaint(worker: &mut Child, status: &str) -> Failure {
    let mut text = String::new();
    if let Some(errors) = &mut worker.stderr {
        // If this fails, the exit status is still known.
        let _ = errors.read_to_string(&mut text);
    }
    let mut line = reason(&text).to_owned();
    if line.is_empty() {
        let _ = write!(line, "a process ended: {status}");
    }
    Failure::other(line)
}

/// The line that says why a process failed. Launchers print more than the processes that they start,
/// and draw frames around it.
fn reason(text: &str) -> &str {
    let ours = text.lines().find(|line| line.starts_with("cannot "));
    let says = |line: &&str| line.contains(char::is_alphanumeric);
    let last = || text.lines().map(str::trim).rfind(says);
    ours.or_else(last).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_line_of_ours_or_the_last_one() {
        assert_eq!(reason("frame\ncannot open it: no\n-----\nmore"), "cannot open it: no");
        assert_eq!(reason("first\n  last word\n----\n"), "last word");
        assert_eq!(reason(""), "");
    }
}
