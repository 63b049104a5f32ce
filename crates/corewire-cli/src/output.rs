//! Standard output, whose reader can go at any time, which is not a failure; and standard error.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

use corewire::Domain;
use serde::Serialize;

use crate::failure::Failure;
use crate::units;

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| failed(&error))
}

/// Writes a line for people to standard error, in one piece: other processes may write there, too. What others have said in
/// it does nothing to a terminal.
pub(crate) fn note(text: impl Display) {
    let text = text.to_string();
    let lines = text.split('\n').map(units::printable).collect::<Vec<_>>();
    let line = format!("corewire: {}\n", lines.join("\n"));
    // If nobody can read it, nobody misses it.
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// Writes a report of many lines for people to standard error.
pub(crate) fn report(text: &str) {
    // If nobody can read it, nobody misses it.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes `value` to standard output as indented JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::other)?;
    print(&format!("{text}\n"))
}

/// Writes `value` to standard output as JSON: indented on a terminal, otherwise in one line.
pub(crate) fn print_value(value: &impl Serialize) -> Result<(), Failure> {
    match io::stdout().is_terminal() {
        true => print_json(value),
        false => print_line(value),
    }
}

/// Writes `value` to standard output as one line of JSON.
pub(crate) fn print_line(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(Failure::other)?;
    print(&format!("{text}\n"))
}

/// Says where a command waits for a name that does not exist yet.
pub(crate) fn waiting(name: &str, domain: &Domain) {
    let place = domain.runtime_directory().to_string_lossy();
    note(format!("waiting for {name} in {}", units::printable(&place)));
}

/// The failure for a failed write to standard output. A reader that has gone ends the command without
/// a message.
pub(crate) fn failed(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::quiet(0),
        _ => Failure::other(format!("cannot write to standard output: {error}")),
    }
}
