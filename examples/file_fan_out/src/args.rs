//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::{Arg, Parser, ValueExt};

use crate::failure::Failure;

pub(crate) const HELP: &str = "\
Send a file to several processes, check every byte, show the speed

Usage: file_fan_out [OPTIONS] --receivers <N> <FILE>

Arguments:
  <FILE>           The file to send

Options:
      --receivers <N>    Receiver processes, 1 to 1024
      --chunk <BYTES>    Bytes of each message, 1 to 256M; K and M are powers of 1024 [default: 64K]
      --json             Print JSON
  -h, --help             Print help

Example:
  file_fan_out disk.img --receivers 3

Each receiver is a process; with a core for each process, each is pinned to
one. The file is read into memory first, so the disk is not measured. The sender
copies it into the channel once, and every receiver reads every byte in place.
Of several rounds the middle one is shown, timed from the first byte sent to the
last one read. SHA-256 is checked in a pass of its own. Max lag is in messages,
over all passes; p50 and p99 are the one-way latency of 48-byte messages that
are sent at a steady pace. GB/s are 10^9 bytes per second.

Below stand two baselines of the same run: one cache line from core to core, one
way; and the plain copy of one core, the best over 2 to 256 buffers.

--json prints one object with the keys file, bytes, chunk_bytes, sha256,
processes, cores, is_oversubscribed, rounds, elapsed_s, delivered_gb_per_s,
latency_bytes, latency_pace_ns, baselines (raw_line_one_way_ns, copy_gb_per_s)
and receivers, an array of objects with the keys receiver, pid, bytes, gb_per_s,
messages_per_s, lag_max, latency_p50_ns, latency_p99_ns, sha256_is_right.
";

/// What this process is to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Send(Sending),
    /// One receiver of a sender, which has started it.
    Receive(Receiving),
    Help,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) file: PathBuf,
    pub(crate) receivers: usize,
    pub(crate) chunk_bytes: usize,
    pub(crate) is_json: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Receiving {
    /// The runtime directory.
    pub(crate) directory: PathBuf,
    /// The processor to stay on.
    pub(crate) cpu: Option<usize>,
}

/// Reads the command line: `RECEIVE DIRECTORY [CPU]`, as [`Receivers`](crate::children::Receivers) starts it, or what
/// [`HELP`] describes.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Task, Failure> {
    let mut arguments = arguments.into_iter().peekable();
    if arguments.next_if(|first| first == RECEIVE).is_some() {
        return receiving(arguments);
    }
    sending(Parser::from_args(arguments))
        .map_err(|what| Failure::usage(format!("{what} (see file_fan_out --help)")))
}

/// The first argument of a receiver.
pub(crate) const RECEIVE: &str = "receive-of-fan-out";

fn receiving(mut arguments: impl Iterator<Item = OsString>) -> Result<Task, Failure> {
    let directory =
        arguments.next().ok_or_else(|| Failure::usage("a receiver needs a directory"))?;
    let cpu = arguments.next().map(|cpu| cpu.parse()).transpose().map_err(Failure::usage)?;
    Ok(Task::Receive(Receiving { directory: directory.into(), cpu }))
}

fn sending(mut parser: Parser) -> Result<Task, lexopt::Error> {
    let (mut file, mut receivers, mut chunk_bytes, mut is_json) = (None, None, 64 << 10, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("receivers") => {
                receivers =
                    Some(parser.value()?.parse_with(|text| within(text, 1024, "receivers"))?);
            }
            Arg::Long("chunk") => chunk_bytes = parser.value()?.parse_with(bytes)?,
            Arg::Long("json") => is_json = true,
            Arg::Short('h') | Arg::Long("help") => return Ok(Task::Help),
            Arg::Value(path) if file.is_none() => file = Some(PathBuf::from(path)),
            other => return Err(other.unexpected()),
        }
    }
    let file = file.ok_or("the file to send is missing")?;
    let receivers = receivers.ok_or("--receivers <N> is missing")?;
    Ok(Task::Send(Sending { file, receivers, chunk_bytes, is_json }))
}

/// A number from 1 to `max`.
fn within(text: &str, max: usize, of: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("1 to {max} {of} are possible"))
}

/// A number of bytes: 1 to 256 MiB, such as `65536`, `64K` or `1M`.
fn bytes(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    Ok(unit
        * within(
            digits,
            (256 << 20) / unit,
            match unit {
                1 => "bytes",
                1024 => "KiB",
                _ => "MiB",
            },
        )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Task, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|failure| failure.message)
    }

    #[test]
    fn a_command_line_is_read_or_told_what_is_wrong() {
        let file = PathBuf::from("a");
        let sending = Sending { file, receivers: 3, chunk_bytes: 64 << 10, is_json: false };
        assert_eq!(parsed("a --receivers 3"), Ok(Task::Send(sending)));
        let file = PathBuf::from("a");
        let sending = Sending { file, receivers: 1024, chunk_bytes: 256 << 20, is_json: true };
        assert_eq!(parsed("--json --chunk=256M --receivers 1024 a"), Ok(Task::Send(sending)));
        assert_eq!(parsed("--help"), Ok(Task::Help));
        for (line, word) in [
            ("", "file to send"),
            ("a", "--receivers <N>"),
            ("a --receivers 0", "1 to 1024 receivers"),
            ("a --receivers 1025", "1 to 1024 receivers"),
            ("a --receivers three", "three"),
            ("a --receivers 3 --chunk 0", "1 to 268435456 bytes"),
            ("a --receivers 3 --chunk 257M", "1 to 256 MiB"),
            ("a --receivers 3 --chunk 1T", "1T"),
            ("a b --receivers 3", "\"b\""),
            ("a --receiver 3", "--receiver"),
        ] {
            let said = parsed(line).unwrap_err();
            assert!(said.contains(word) && said.contains("--help"), "{line:?}: {said}");
        }
    }
}
