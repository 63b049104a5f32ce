//! `corewire send`: standard input or a file into a channel.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use corewire::{Access, ChannelName, Domain, Sender};

use crate::failure::Failure;
use crate::{access, units};

/// Bytes asked of the input at a time when it is cut into lines.
const LINES_READ_BYTES: usize = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  tail -f log | corewire send log --lines
  corewire send image disk.img --wait-receivers 3
  corewire send log --lines --access group:adm

The channel exists while the command runs. Every receiver gets every message
from where it joined; those that waited for the channel get all. At the end of
the input the channel is closed, and receivers get what is still in it. If the
input fails, the channel is not closed, and receivers end with 3.

--access lets other users receive with --owner. It sets the mode of the runtime
directory, and for group: its group; this user's own commands then need --owner
with its own number.";

/// Send standard input, or a file, into a channel.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The channel to make: letters, digits, '_', '-' and '.'
    #[arg(value_parser = units::channel_name)]
    channel: ChannelName,
    /// What to send; standard input if not given, or '-'
    file: Option<PathBuf>,
    /// Make each line a message, without its line end
    #[arg(long)]
    lines: bool,
    /// The most receivers at one time, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    receivers: u16,
    /// Wait until N receivers have joined before sending
    #[arg(long, value_name = "N", default_value_t = 0)]
    wait_receivers: u16,
    /// The most bytes of a message, without --lines; what is there goes at once
    #[arg(long, value_name = "BYTES", default_value = "64K", conflicts_with = "lines")]
    #[arg(value_parser = units::message_bytes)]
    chunk: usize,
    /// The most bytes of a line, with --lines
    #[arg(long, value_name = "BYTES", default_value = "1M", requires = "lines")]
    #[arg(value_parser = units::message_bytes)]
    largest: usize,
    /// Let other users receive: group:NAME or users:UID,UID
    #[arg(long, value_name = "RULE", value_parser = access::rule)]
    access: Option<Access>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.wait_receivers > args.receivers {
        return Err(Failure::usage(format!(
            "--wait-receivers {} is more than --receivers {} lets in",
            args.wait_receivers, args.receivers
        )));
    }
    let mut input = Input::open(args.file.as_deref())?;
    let builder = Domain::builder();
    let builder = match args.access.clone() {
        Some(rule) => builder.access(rule),
        None => builder,
    };
    let domain = builder.open()?;
    let largest_message = if args.lines { args.largest } else { args.chunk };
    let mut sender = domain
        .sender(args.channel.as_str())
        .receivers(args.receivers.into())
        .largest_message(largest_message)
        .create()?;
    match send_all(args, &mut sender, &mut input) {
        Ok(()) => {
            sender.close();
            Ok(())
        }
        Err(failure) => {
            // Receivers must not take this for the end of the stream: they learn that the sender
            // ended without closing.
            std::mem::forget(sender);
            Err(failure)
        }
    }
}

fn send_all(args: &Args, sender: &mut Sender, input: &mut Input) -> Result<(), Failure> {
    sender.wait_for_receivers(args.wait_receivers.into())?;
    if args.lines { send_lines(sender, input) } else { send_chunks(sender, input, args.chunk) }?;
    // Those who waited for the channel are to see its end even if it carried nothing: a place for
    // a message is not lent before they have joined.
    drop(sender.loan(0)?);
    Ok(())
}

/// Whatever each read gives is a message, at once.
fn send_chunks(sender: &mut Sender, input: &mut Input, chunk_bytes: usize) -> Result<(), Failure> {
    let mut buffer = vec![0; chunk_bytes];
    loop {
        match input.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => sender.send(&buffer[..bytes])?,
        }
    }
}

/// Each line is a message; what each read completes is sent at once.
fn send_lines(sender: &mut Sender, input: &mut Input) -> Result<(), Failure> {
    let mut buffer = vec![0; LINES_READ_BYTES];
    // The beginning of a line whose end has not been read yet.
    let mut pending: Vec<u8> = Vec::new();
    let mut number = 1u64;
    let largest = sender.largest_message();
    let check = |number: u64, bytes: usize| match bytes <= largest {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "line {number} has more than {largest} bytes: raise --largest"
        ))),
    };
    loop {
        let bytes = input.read(&mut buffer)?;
        if bytes == 0 {
            break;
        }
        let mut batch = sender.batch();
        let mut rest = &buffer[..bytes];
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, after) = rest.split_at(end);
            check(number, pending.len() + line.len())?;
            if pending.is_empty() {
                batch.send(line)?;
            } else {
                pending.extend_from_slice(line);
                batch.send(&pending)?;
                pending.clear();
            }
            number += 1;
            rest = &after[1..];
        }
        drop(batch);
        check(number, pending.len() + rest.len())?;
        pending.extend_from_slice(rest);
    }
    if !pending.is_empty() {
        sender.send(&pending)?;
    }
    Ok(())
}

/// What is sent, and what it is called in errors.
struct Input {
    source: Box<dyn Read>,
    name: String,
}

impl Input {
    fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path.filter(|path| *path != "-") else {
            let name = "standard input".to_owned();
            // Read past the standard library's own buffer: ours is as large as a message.
            let own = rustix::io::dup(io::stdin());
            let own =
                own.map_err(|error| Failure::other(format!("cannot read {name}: {error}")))?;
            return Ok(Self { source: Box::new(File::from(own)), name });
        };
        let name = units::printable(&path.to_string_lossy());
        let refuse =
            |error: &dyn std::fmt::Display| Failure::usage(format!("cannot read {name}: {error}"));
        let file = File::open(path).map_err(|error| refuse(&error))?;
        if file.metadata().is_ok_and(|found| found.is_dir()) {
            return Err(refuse(&"it is a directory"));
        }
        Ok(Self { source: Box::new(file), name })
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        loop {
            match self.source.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => {
                    return other.map_err(|error| {
                        Failure::other(format!("cannot read {}: {error}", self.name))
                    });
                }
            }
        }
    }
}
