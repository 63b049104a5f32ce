//! `corewire receive`: the messages of a channel to standard output.

use corewire::{ChannelName, ChannelType, Domain, JoinError, ReceiveError, SnapshotReceiver};

use crate::failure::Failure;
use crate::sink::{Form, Sink};
use crate::{access, latest, output, queue, units};

const EXAMPLES: &str = "\
Examples:
  corewire receive log --lines | grep error
  corewire receive log --lines --follow
  corewire receive image > copy.img
  corewire receive prices --json | jq .sequence
  corewire receive urls --queue --lines | xargs -n 1 curl -sO
  corewire receive config --latest --count 1\n\
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
With --queue the command is a worker of a queue of send --queue: it writes a job when it gets one, and says that \
it is done when it has been written. If it is killed before, another worker gets the job. In JSON, sequence is the \
job's number, and type is null. It ends when the queue is finished.\n\
\n\
With --latest it writes the newest value of send --latest, and then newer ones: only the newest that there is when \
it looks. It ends with the value's writer.\n\
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
    /// Take jobs from the work queue of this name, each of which no other process gets
    #[arg(long, conflicts_with_all = ["follow", "oldest", "cache_domain", "latest"])]
    queue: bool,
    /// Write the newest value of this name, and each newer one that is found then
    #[arg(long, conflicts_with_all = ["follow", "oldest", "cache_domain"])]
    latest: bool,
}

impl Args {
    pub(crate) fn form(&self) -> Form {
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
    let (name, count) = (args.channel.as_str(), args.count.unwrap_or(u64::MAX));
    if args.queue {
        return queue::receive(&domain, name, count, !args.no_wait, &mut sink);
    }
    if args.latest {
        return latest::receive(&domain, name, count, !args.no_wait, &mut sink);
    }
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
