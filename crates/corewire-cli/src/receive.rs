//! `corewire receive`: the messages of a channel to standard output.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use corewire::{
    ChannelName, ChannelType, Domain, JoinError, ReceiveError, Snapshot, SnapshotReceiver,
};
use serde::Serialize;

use crate::failure::Failure;
use crate::{access, output, units};

/// Bytes gathered before they are written, as long as more messages are there.
const BUFFER_BYTES: usize = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  corewire receive log --lines | grep error
  corewire receive log --lines --follow
  corewire receive image > copy.img
  corewire receive prices --json | jq .sequence\n\
\n\
If the channel does not exist yet, the command says on standard error where it waits \
for it, and then begins with the oldest message that is still there: nearly always the \
first one. If it is not, standard error says how many messages were lost. (With --owner, \
and in a channel with several senders, a receiver that comes late begins with the next \
message sent.) Messages are written as soon as they are there.\n\
\n\
How messages are written: without an option, one after the other, with nothing \
between them. With --lines, a line end follows each one; with -0, a NUL byte. With \
--framed, each one follows its length: 4 bytes, unsigned, little-endian. With --json, \
each is an object on a line of its own, with the keys sequence (its number in the \
channel, from 0), time_s (when it was received: seconds since 1970, UTC), type (null \
for plain bytes, else an object with the keys name and bytes: the declared type of \
the channel, and the size of a value) and bytes (the message in base64).\n\
\n\
A channel that was created for a type is read as bytes; standard error says which \
type. If the channel overwrites, standard error says at its end how many messages \
this receiver missed.\n\
\n\
--follow does not end with the channel. It waits for the next channel of the same \
name, also when the sender died, and continues with its first message; standard error \
says so. If the next channel exists already by then, it continues with the next \
message sent; with --oldest, or if it has waited for the first channel, with the oldest \
message that is still there. It runs until a signal ends it.\n\
\n\
Exit codes: 0 at the end of the stream (or after --count, or when nobody reads the \
output any more), 3 if the sender died, 1 for any other failure.";

/// Write the messages of a channel to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group(clap::ArgGroup::new("form").args(["lines", "null", "framed", "json"])))]
pub(crate) struct Args {
    /// The channel to join: letters, digits, '_', '-' and '.'
    #[arg(value_parser = units::channel_name)]
    channel: ChannelName,
    /// End each message with a line end
    #[arg(long)]
    lines: bool,
    /// End each message with a NUL byte
    #[arg(short = '0', long)]
    null: bool,
    /// Write the length of each message before it: 4 bytes, little-endian
    #[arg(long)]
    framed: bool,
    /// Write each message as a JSON object on a line of its own
    #[arg(long)]
    json: bool,
    /// Continue with the next channel of this name when this one has ended
    #[arg(long)]
    follow: bool,
    /// Begin with the oldest message that is still there, not with the next one sent
    #[arg(long)]
    oldest: bool,
    /// Fail if the channel does not exist, instead of waiting for it
    #[arg(long)]
    no_wait: bool,
    /// Receive at the last-level cache of processor N, whose receivers can have a relay [default:
    /// the cache of the processor where this process runs]
    #[arg(long, value_name = "N")]
    cache_domain: Option<u32>,
    /// End after N messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl Args {
    fn form(&self) -> Form {
        match (self.lines, self.null, self.framed, self.json) {
            (true, ..) => Form::Ended(b"\n"),
            (_, true, ..) => Form::Ended(b"\0"),
            (_, _, true, _) => Form::Framed,
            (.., true) => Form::Json,
            _ => Form::Ended(b""),
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let domain = access::open_domain()?;
    let mut sink = Sink::open(args.form())?;
    let mut receiver = join(args, &domain)?;
    let mut left = args.count.unwrap_or(u64::MAX);
    loop {
        sink.of_type = receiver.channel_type();
        if let Some(ChannelType { name, bytes, .. }) = &sink.of_type {
            output::note(format!(
                "{} carries values of type {name}, {bytes} bytes each",
                args.channel
            ));
        }
        let outcome = copy(&mut receiver, &mut sink, &mut left);
        sink.flush()?;
        if receiver.missed() > 0 {
            let missed = receiver.missed();
            output::note(format!("{missed} messages were overwritten before they could be read"));
        }
        match outcome {
            Ok(()) => return Ok(()),
            Err(End::Output(failure)) => return Err(failure),
            Err(End::Receive(error)) if args.follow => rejoin(args, &domain, &mut receiver, error)?,
            Err(End::Receive(ReceiveError::EndOfStream)) => return Ok(()),
            Err(End::Receive(error)) => return Err(error.into()),
        }
    }
}

/// Joins the channel, or says where it waits for it.
fn join(args: &Args, domain: &Domain) -> Result<SnapshotReceiver, Failure> {
    // What is written is copied anyway, and so this reads channels of every policy.
    let builder = domain.receiver(args.channel.as_str()).snapshots().any_type();
    let builder = if args.oldest { builder.from_oldest() } else { builder };
    let builder = match args.cache_domain {
        Some(number) => builder.cache_domain(number),
        None => builder,
    };
    match builder.clone().join() {
        Err(JoinError::NotFound(_)) if !args.no_wait => {
            output::note(waiting(args, domain));
            let builder = if args.oldest { builder } else { builder.from_oldest_if_possible() };
            let receiver = builder.join_when_created()?;
            if receiver.late_by() > 0 {
                output::note(late(receiver.late_by()));
            }
            Ok(receiver)
        }
        joined => Ok(joined?),
    }
}

/// What is said of a receiver that waited for the channel, and was late for its first messages.
fn late(messages: u64) -> String {
    let were = if messages == 1 { "message was" } else { "messages were" };
    format!("{messages} {were} lost, sent before this receiver joined")
}

fn waiting(args: &Args, domain: &Domain) -> String {
    let place = domain.runtime_directory().to_string_lossy();
    format!("waiting for {} in {}", args.channel, units::printable(&place))
}

/// Goes on with the next channel of the name, if the one before has only ended.
fn rejoin(
    args: &Args,
    domain: &Domain,
    receiver: &mut SnapshotReceiver,
    error: ReceiveError,
) -> Result<(), Failure> {
    let channel = &args.channel;
    let end = match error {
        ReceiveError::EndOfStream => format!("{channel} was closed"),
        ReceiveError::SenderDied => format!("the sender of {channel} died"),
        ReceiveError::Evicted => error.to_string(),
        error => return Err(error.into()),
    };
    output::note(format!("{end}; {}", waiting(args, domain)));
    receiver.rejoin()?;
    match receiver.next_sequence() {
        0 => output::note(format!("{channel} begins again")),
        sent => output::note(format!(
            "{channel} begins again, with message {sent}: those before it were sent \
             before this receiver joined"
        )),
    }
    Ok(())
}

/// Writes up to `left` messages, and counts them off.
fn copy(receiver: &mut SnapshotReceiver, sink: &mut Sink, left: &mut u64) -> Result<(), End> {
    while *left > 0 {
        next(receiver, sink)?;
        *left -= 1;
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
        if let Some(snapshot) = receiver.try_receive()? {
            if sink.take(snapshot)? {
                return Ok(());
            }
            continue;
        }
        sink.flush()?;
        if sink.take(receiver.receive()?)? {
            return Ok(());
        }
    }
}

/// How messages are written.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// Each is followed by these bytes.
    Ended(&'static [u8]),
    /// Each follows its length.
    Framed,
    /// Each is an object on a line of its own.
    Json,
}

/// A message in JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    sequence: u64,
    time_s: f64,
    r#type: Option<TypeOf<'a>>,
    bytes: String,
}

/// The declared type of a channel, in JSON.
#[derive(Debug, Serialize)]
struct TypeOf<'a> {
    name: &'a str,
    bytes: u64,
}

/// Standard output, with a buffer of its own: the standard library's would flush at every line.
struct Sink {
    output: BufWriter<File>,
    form: Form,
    /// The type of the channel's messages.
    of_type: Option<ChannelType>,
    /// The message to be written.
    message: Vec<u8>,
}

impl Sink {
    fn open(form: Form) -> Result<Self, Failure> {
        let own = rustix::io::dup(io::stdout());
        let own = own.map_err(|error| output::failed(&error.into()))?;
        let output = BufWriter::with_capacity(BUFFER_BYTES, File::from(own));
        Ok(Self { output, form, of_type: None, message: Vec::new() })
    }

    /// Writes a message; false if it was overwritten before it was copied.
    fn take(&mut self, mut snapshot: Snapshot<'_>) -> Result<bool, Failure> {
        if snapshot.copy_into(&mut self.message).is_err() {
            return Ok(false);
        }
        self.write(snapshot.sequence())?;
        Ok(true)
    }

    fn write(&mut self, sequence: u64) -> Result<(), Failure> {
        let Self { output, message, form, .. } = self;
        let written = match *form {
            Form::Ended(end) => output.write_all(message).and_then(|()| output.write_all(end)),
            Form::Framed => {
                let length = u32::try_from(message.len()).map_err(|_| {
                    Failure::other(format!(
                        "message {sequence} has {} bytes: --framed can write at most {}",
                        message.len(),
                        u32::MAX
                    ))
                })?;
                output.write_all(&length.to_le_bytes()).and_then(|()| output.write_all(message))
            }
            Form::Json => return self.write_json(sequence),
        };
        written.map_err(|error| output::failed(&error))
    }

    fn write_json(&mut self, sequence: u64) -> Result<(), Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let of_type = self.of_type.as_ref();
        let of_type = of_type.map(|ChannelType { name, bytes, .. }| TypeOf { name, bytes: *bytes });
        let line = Line {
            sequence,
            // Whole microseconds: more digits would claim more than the clock knows.
            time_s: (now.as_secs_f64() * 1e6).round() / 1e6,
            r#type: of_type,
            bytes: STANDARD.encode(&self.message),
        };
        let mut text = serde_json::to_string(&line).map_err(Failure::other)?;
        text.push('\n');
        self.output.write_all(text.as_bytes()).map_err(|error| output::failed(&error))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.output.flush().map_err(|error| output::failed(&error))
    }
}
