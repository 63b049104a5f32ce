//! `corewire receive`: the messages of a channel to standard output.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use corewire::{ChannelName, ReceiveError, SnapshotReceiver};

use crate::failure::Failure;
use crate::{access, output, units};

/// Bytes gathered before they are written, as long as more messages are there.
const BUFFER_BYTES: usize = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  corewire receive log --lines | grep error
  corewire receive image > copy.img

Waits for the channel if it does not exist yet, and then gets its first message
(with --owner it may miss what was sent before it joined).
Messages are written as soon as they are there. Exit codes: 0 at the end of the
stream (or after --count, or when nobody reads the output any more), 3 if the
sender died, 1 for anything else. If the channel overwrites, standard error says at
the end how many messages were missed.";

/// Write the messages of a channel to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The channel to join: letters, digits, '_', '-' and '.'
    #[arg(value_parser = units::channel_name)]
    channel: ChannelName,
    /// End each message with a line end
    #[arg(long)]
    lines: bool,
    /// Begin with the oldest message still there, not the next one sent
    #[arg(long)]
    oldest: bool,
    /// Fail if the channel does not exist, instead of waiting for it
    #[arg(long)]
    no_wait: bool,
    /// Be at the last-level cache of processor N, whose receivers may have a relay; if not said,
    /// at this process's
    #[arg(long, value_name = "N")]
    cache_domain: Option<u32>,
    /// End after N messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let domain = access::open_domain()?;
    // What is written is copied anyway, and so this reads channels of every policy.
    let mut builder = domain.receiver(args.channel.as_str()).snapshots();
    if args.oldest {
        builder = builder.from_oldest();
    }
    if let Some(number) = args.cache_domain {
        builder = builder.cache_domain(number);
    }
    let mut receiver = if args.no_wait { builder.join() } else { builder.join_when_created() }?;
    let mut sink = Sink::open(args.lines)?;
    let outcome = copy(&mut receiver, &mut sink, args.count.unwrap_or(u64::MAX));
    sink.flush()?;
    if receiver.missed() > 0 {
        eprintln!(
            "corewire: {} messages were overwritten before they could be read",
            receiver.missed()
        );
    }
    outcome
}

fn copy(receiver: &mut SnapshotReceiver, sink: &mut Sink, count: u64) -> Result<(), Failure> {
    for _ in 0..count {
        match next(receiver, sink) {
            Ok(()) => {}
            Err(End::Receive(ReceiveError::EndOfStream)) => return Ok(()),
            Err(End::Receive(error)) => return Err(error.into()),
            Err(End::Output(failure)) => return Err(failure),
        }
    }
    Ok(())
}

enum End {
    Receive(ReceiveError),
    Output(Failure),
}

impl From<ReceiveError> for End {
    fn from(error: ReceiveError) -> Self {
        Self::Receive(error)
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Output(failure)
    }
}

/// Writes the next message, and all before it if there is none yet.
fn next(receiver: &mut SnapshotReceiver, sink: &mut Sink) -> Result<(), End> {
    loop {
        if let Some(mut snapshot) = receiver.try_receive()? {
            if snapshot.copy_into(&mut sink.message).is_ok() {
                return Ok(sink.write()?);
            }
            continue;
        }
        sink.flush()?;
        if receiver.receive()?.copy_into(&mut sink.message).is_ok() {
            return Ok(sink.write()?);
        }
    }
}

/// Standard output, with a buffer of its own: the standard library's would flush at every line.
struct Sink {
    output: BufWriter<File>,
    lines: bool,
    /// The message to be written.
    message: Vec<u8>,
}

impl Sink {
    fn open(lines: bool) -> Result<Self, Failure> {
        let own = rustix::io::dup(io::stdout());
        let own = own.map_err(|error| output::failed(&error.into()))?;
        let output = BufWriter::with_capacity(BUFFER_BYTES, File::from(own));
        Ok(Self { output, lines, message: Vec::new() })
    }

    fn write(&mut self) -> Result<(), Failure> {
        let end: &[u8] = if self.lines { b"\n" } else { b"" };
        let Self { output, message, .. } = self;
        let written = output.write_all(message).and_then(|()| output.write_all(end));
        written.map_err(|error| output::failed(&error))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.output.flush().map_err(|error| output::failed(&error))
    }
}
