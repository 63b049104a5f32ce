//! `corewire send`: standard input or a file into a channel.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use corewire::{
    Access, ChannelName, Domain, Levels, SendBatch, SendError, Sender, SharedBatch, SharedSender,
};

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

With --shared, more senders may come: the channel ends with the last of them, and
what it is (--receivers, --chunk, --largest, --evict) is what the first one said.

--levels two has one receiver's process at each last-level cache but the sender's
relay messages to the receivers there, so that each crosses once. auto does so if
the file that $COREWIRE_TOPOLOGY names (corewire doctor --measure) says that
--receivers so many get a message sooner.

--access lets other users receive with --owner, from a channel in
$COREWIRE_RUNTIME_DIR, or in /tmp/corewire-UID. It sets the directory's mode, and
for group: its group; from then on this user's own receive, ls and doctor need
--owner with its own number there, and send needs --access.";

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
    /// Do not wait for slow receivers: they miss what is overwritten
    #[arg(long, conflicts_with_all = ["evict", "shared"])]
    overwrite: bool,
    /// Go on without a receiver that holds up the sender for so many milliseconds
    #[arg(long, value_name = "MS")]
    evict: Option<u64>,
    /// Let up to N processes send on the channel, all of which say so: it ends with the last
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=128))]
    shared: Option<u16>,
    /// Whether receivers at another last-level cache read a relay there
    #[arg(long, value_name = "LEVELS", default_value = "auto", conflicts_with = "shared")]
    levels: LevelsName,
    /// Let other users receive: group:NAME or users:UID,UID
    #[arg(long, value_name = "RULE", value_parser = access::rule)]
    access: Option<Access>,
}

/// [`Levels`] on the command line.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LevelsName {
    /// Two where $COREWIRE_TOPOLOGY says that it pays
    Auto,
    /// All read the sender's ring
    One,
    /// Receivers at each other last-level cache read a relay there
    Two,
}

impl From<LevelsName> for Levels {
    fn from(name: LevelsName) -> Self {
        match name {
            LevelsName::Auto => Self::Auto,
            LevelsName::One => Self::One,
            LevelsName::Two => Self::Two,
        }
    }
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
    let mut builder = domain
        .sender(args.channel.as_str())
        .receivers(args.receivers.into())
        .levels(args.levels.into())
        .largest_message(largest_message);
    if args.overwrite {
        builder = builder.overwrite();
    }
    if let Some(after_ms) = args.evict {
        builder = builder.evict(Duration::from_millis(after_ms));
    }
    let mut sender = match args.shared {
        None => Output::One(builder.create()?),
        Some(senders_max) => Output::Shared(builder.open_shared(senders_max.into())?),
    };
    match send_all(args, &mut sender, &mut input) {
        Ok(()) => {
            drop(sender);
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

/// Where messages go.
enum Output {
    One(Sender),
    Shared(SharedSender),
}

impl Output {
    fn wait_for_receivers(&mut self, count: usize) -> Result<usize, SendError> {
        match self {
            Self::One(sender) => sender.wait_for_receivers(count),
            Self::Shared(sender) => sender.wait_for_receivers(count),
        }
    }

    fn largest_message(&self) -> usize {
        match self {
            Self::One(sender) => sender.largest_message(),
            Self::Shared(sender) => sender.largest_message(),
        }
    }

    fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        match self {
            Self::One(sender) => sender.send(message),
            Self::Shared(sender) => sender.send(message),
        }
    }

    fn batch(&mut self) -> Batch<'_> {
        match self {
            Self::One(sender) => Batch::One(sender.batch()),
            Self::Shared(sender) => Batch::Shared(sender.batch()),
        }
    }
}

/// Messages that go together.
enum Batch<'a> {
    One(SendBatch<'a>),
    Shared(SharedBatch<'a>),
}

impl Batch<'_> {
    fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        match self {
            Self::One(batch) => batch.send(message),
            Self::Shared(batch) => batch.send(message),
        }
    }

    fn finish(self) -> Result<(), SendError> {
        match self {
            Self::One(batch) => batch.finish(),
            Self::Shared(batch) => batch.finish(),
        }
    }
}

fn send_all(args: &Args, sender: &mut Output, input: &mut Input) -> Result<(), Failure> {
    sender.wait_for_receivers(args.wait_receivers.into())?;
    if args.lines { send_lines(sender, input) } else { send_chunks(sender, input, args.chunk) }?;
    // Those who waited for the channel are to see its end even if it carried nothing: a place for
    // a message is not lent before they have joined.
    if let Output::One(sender) = sender {
        drop(sender.loan(0)?);
    }
    Ok(())
}

/// Whatever each read gives is a message, at once.
fn send_chunks(sender: &mut Output, input: &mut Input, chunk_bytes: usize) -> Result<(), Failure> {
    // Another may have made the channel, for shorter messages.
    let mut buffer = vec![0; chunk_bytes.min(sender.largest_message())];
    loop {
        match input.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => sender.send(&buffer[..bytes])?,
        }
    }
}

/// Each line is a message; what each read completes is sent at once.
fn send_lines(sender: &mut Output, input: &mut Input) -> Result<(), Failure> {
    let mut buffer = vec![0; LINES_READ_BYTES];
    // The beginning of a line whose end has not been read yet.
    let mut pending: Vec<u8> = Vec::new();
    let mut number = 1u64;
    let largest = sender.largest_message();
    let check = |number: u64, bytes: usize| match bytes <= largest {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "line {number} has more than {largest} bytes: raise --largest where the channel is made"
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
        batch.finish()?;
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
        let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
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
