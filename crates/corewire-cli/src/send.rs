//! `corewire send`: standard input or a file into a channel.

use std::path::PathBuf;
use std::time::Duration;

use corewire::{
    Access, ChannelName, Interrupter, Levels, SendBatch, SendError, Sender, SharedBatch,
    SharedSender,
};

use crate::failure::Failure;
use crate::input::Input;
use crate::records::{READ_BYTES, Records, Splitter};
use crate::signals::Signals;
use crate::{access, latest, output, queue, units};

const EXAMPLES: &str = "\
Examples:
  tail -f log | corewire send log --lines
  corewire send image disk.img --wait-receivers 3
  find . -print0 | corewire send files -0
  corewire send log --lines --access group:adm
  corewire send urls --queue --lines urls.txt
  corewire send config --latest config.json\n\
\n\
What is a message? Without an option, what one read of the input returns, up to \
--chunk bytes. With --lines, a line. With -0, what stands before a NUL byte. With \
--framed, the bytes after a length of 4 bytes (unsigned, little-endian), for any \
bytes from any language.\n\
\n\
The channel exists while the command runs. A receiver gets every message from where \
it joined. A receiver that waited for the channel gets all messages: the first one waits \
up to a second until it has joined (with --overwrite it does not wait; --wait-receivers \
waits in any case). If messages were sent while no receiver had joined, \
standard error says at the end how many.\n\
\n\
At the end of the input the channel is closed: receivers get what is still in it, and \
end with 0. If the input fails, the channel is not closed, and receivers end with 3.\n\
\n\
INT, TERM and HUP close the channel in order, too. The command reads no more, sends \
what it has read, for at most a second, and then ends by the signal; a shell shows \
that as 130, 143 or 129. Receivers end with 0. A second signal ends it at once, and \
receivers end with 3.\n\
\n\
With --shared, more processes may send on the channel. It ends with the last of them. \
--receivers, --chunk, --largest and --evict count for the first one, which creates it.\n\
\n\
--levels two lets receivers at another last-level cache than the sender's read a relay \
there, so that each message crosses to that cache once. auto chooses two if the file \
that $COREWIRE_TOPOLOGY names (corewire doctor --measure) says that --receivers so \
many get a message sooner.\n\
\n\
With --queue each message is a job, which one process of receive --queue gets, first in, first out; without --lines, \
-0, --framed and --chunk the input is one job. The first such command owns the queue: it ends when all jobs are done, \
those of others too, and has up to 65,536 of them in its memory. While it runs, later ones add their jobs to it, and \
end when these are accepted. A job whose worker has died goes to another one, before all others: it may be done twice. \
With --at-most-once it is lost instead. Jobs do not survive the owner; after a signal it says how many were not done.\n\
\n\
With --latest each message takes the place of the one before; without --lines, -0, --framed and --chunk the input \
is one message. At the end of the input the last one stays, until a signal.\n\
\n\
--access lets other users receive with --owner, from a channel in \
$COREWIRE_RUNTIME_DIR or in /tmp/corewire-UID. The rule stays with that directory, with its mode, and \
with group: its group: all that this user starts there from then on follows it, until another one is given (owner: \
this user only). If neither variable names the directory, this user's other commands find it with --owner and its own \
number.";

/// Send standard input, or a file, into a channel.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group(clap::ArgGroup::new("records").args(["lines", "null", "framed"])))]
#[command(group(clap::ArgGroup::new("sized").multiple(true).args(["lines", "null", "framed", "queue", "latest"])))]
pub(crate) struct Args {
    /// The channel to create: letters, digits, '_', '-' and '.'
    #[arg(value_parser = units::channel_name)]
    channel: ChannelName,
    /// The file to send [default: standard input, as for '-']
    file: Option<PathBuf>,
    /// Send each line as a message, without its line end
    #[arg(long)]
    lines: bool,
    /// Send what stands before each NUL byte as a message
    #[arg(short = '0', long)]
    null: bool,
    /// Send messages that each follow their length: 4 bytes, little-endian
    #[arg(long)]
    framed: bool,
    /// Maximum number of receivers at one time, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    receivers: u16,
    /// Wait until N receivers have joined before sending
    #[arg(long, value_name = "N", default_value_t = 0)]
    wait_receivers: u16,
    /// Maximum bytes of a message, without --lines, -0 and --framed [default: 64K]
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["records", "largest"])]
    #[arg(value_parser = units::message_bytes)]
    chunk: Option<usize>,
    /// Maximum bytes of a message, with --lines, -0, --framed, --queue or --latest
    #[arg(long, value_name = "BYTES", default_value = "1M", requires = "sized")]
    #[arg(value_parser = units::message_bytes)]
    largest: usize,
    /// Do not wait for slow receivers: they miss what is overwritten
    #[arg(long, conflicts_with_all = ["evict", "shared"])]
    overwrite: bool,
    /// Continue without a receiver that delays the sender for so many milliseconds
    #[arg(long, value_name = "MS")]
    evict: Option<u64>,
    /// Let up to N processes send on the channel; each of them needs this option
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=128))]
    shared: Option<u16>,
    /// Make a work queue of this name, or add to it: each message is a job for one process
    #[arg(long, conflicts_with_all = ["overwrite", "evict", "shared", "receivers", "wait_receivers", "levels", "access"])]
    queue: bool,
    /// With --queue: hand each job out once, so that a worker that is killed may lose one
    #[arg(long, requires = "queue")]
    at_most_once: bool,
    /// Keep only the last message, for those that ask for it, until a signal ends this
    #[arg(long, conflicts_with_all = ["overwrite", "evict", "shared", "wait_receivers", "levels", "queue"])]
    latest: bool,
    /// Whether receivers at another last-level cache read a relay there
    #[arg(long, value_name = "LEVELS", default_value = "auto", conflicts_with = "shared")]
    levels: LevelsName,
    /// Let other users receive: group:NAME or users:UID,UID
    #[arg(long, value_name = "RULE", value_parser = access::rule)]
    access: Option<Access>,
}

impl Args {
    fn records(&self) -> Records {
        match (self.lines, self.null, self.framed) {
            (true, ..) => Records::Separated(b'\n'),
            (_, true, _) => Records::Separated(0),
            (_, _, true) => Records::Framed,
            _ if (self.queue || self.latest) && self.chunk.is_none() => Records::Whole,
            _ => Records::Chunks,
        }
    }

    /// What one read asks for, of an input without marks.
    fn chunk(&self) -> usize {
        self.chunk.unwrap_or(64 << 10)
    }

    /// The longest message that the channel is created for.
    fn largest_message(&self) -> usize {
        if self.records() == Records::Chunks { self.chunk() } else { self.largest }
    }
}

/// [`Levels`] on the command line.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LevelsName {
    /// Two if $COREWIRE_TOPOLOGY says that receivers get messages sooner
    Auto,
    /// All receivers read the sender's ring
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
            "--wait-receivers {} is more than --receivers {} allows",
            args.wait_receivers, args.receivers
        )));
    }
    let mut input = Input::open(args.file.as_deref())?;
    let signals = Signals::catch()?;
    run_until(args, &mut input, &signals)?;
    // Everything is closed by now.
    signals.end()
}

/// Sends until the input ends or a signal is caught; in both cases the channel is closed in order.
fn run_until(args: &Args, input: &mut Input, signals: &Signals) -> Result<(), Failure> {
    let domain = access::open_domain_with(args.access.clone())?;
    let records = (args.records(), args.largest_message());
    let name = args.channel.as_str();
    if args.queue {
        return queue::send(&domain, name, args.at_most_once, records, input, signals);
    }
    if args.latest {
        return latest::send(&domain, name, args.receivers, records, input, signals);
    }
    let mut builder = domain
        .sender(args.channel.as_str())
        .receivers(args.receivers.into())
        .levels(args.levels.into())
        .largest_message(args.largest_message());
    if args.overwrite {
        builder = builder.overwrite();
    }
    if let Some(after_ms) = args.evict {
        builder = builder.evict(Duration::from_millis(after_ms));
    }
    let output = match args.shared {
        None => Output::One(builder.create()?),
        Some(senders_max) => Output::Shared(builder.open_shared(senders_max.into())?),
    };
    let interrupting = signals.interrupt(output.interrupter());
    let mut sending = Sending { output, signals, sent: 0, unheard: 0 };
    let outcome = sending.send_all(args, input);
    drop(interrupting);
    let Sending { output, sent, unheard, .. } = sending;
    if unheard > 0 {
        output::note(format!(
            "{unheard} of {sent} messages were sent while {} had no receiver \
             (--wait-receivers 1 waits for one)",
            args.channel
        ));
    }
    match outcome {
        Ok(()) | Err(Ended::Stopped) => {
            drop(output);
            Ok(())
        }
        Err(Ended::Failed(failure)) => {
            // Receivers must not take this for the end of the stream: they learn that the sender
            // ended without closing.
            std::mem::forget(output);
            Err(failure)
        }
    }
}

/// Why no more is sent.
enum Ended {
    /// A signal was caught.
    Stopped,
    Failed(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<SendError> for Ended {
    fn from(error: SendError) -> Self {
        match error {
            // Only a signal interrupts.
            SendError::Interrupted => Self::Stopped,
            error => Self::Failed(error.into()),
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

    fn receivers(&self) -> usize {
        match self {
            Self::One(sender) => sender.receivers(),
            Self::Shared(sender) => sender.receivers(),
        }
    }

    fn interrupter(&self) -> Interrupter {
        match self {
            Self::One(sender) => sender.interrupter(),
            Self::Shared(sender) => sender.interrupter(),
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

/// A channel that is being sent into.
struct Sending<'a> {
    output: Output,
    signals: &'a Signals,
    /// Messages sent.
    sent: u64,
    /// Those of them that were sent while there was no receiver.
    unheard: u64,
}

impl Sending<'_> {
    fn send_all(&mut self, args: &Args, input: &mut Input) -> Result<(), Ended> {
        self.output.wait_for_receivers(args.wait_receivers.into())?;
        self.signals.begin();
        let records = args.records();
        // Another process may have created the channel, for shorter messages.
        let largest = self.output.largest_message();
        let bytes = if records == Records::Chunks { args.chunk().min(largest) } else { READ_BYTES };
        let mut buffer = vec![0; bytes];
        let mut splitter = Splitter::new(records, largest);
        loop {
            match input.read(&mut buffer, self.signals)? {
                Some(0) => break,
                Some(bytes) => self.send_read(&mut splitter, &buffer[..bytes])?,
                // What is pending has no end.
                None => return self.let_join(),
            }
        }
        splitter.finish(|message| self.send_one(message))?;
        self.let_join()
    }

    /// Receivers that waited for the channel are to see its end even if it carried nothing: a place
    /// for a message is not lent before they have joined.
    fn let_join(&mut self) -> Result<(), Ended> {
        if let Output::One(sender) = &mut self.output {
            drop(sender.loan(0)?);
        }
        Ok(())
    }

    /// Sends what one read of the input completes.
    fn send_read(&mut self, splitter: &mut Splitter, read: &[u8]) -> Result<(), Ended> {
        if self.output.receivers() == 0 {
            // One by one, to see from which of them on there is a receiver. Nobody is to be woken.
            return splitter.split(read, |message| self.send_one(message));
        }
        let mut batch = self.output.batch();
        let split = splitter.split(read, |message| {
            batch.send(message)?;
            self.sent += 1;
            Ok(())
        });
        batch.finish()?;
        split
    }

    fn send_one(&mut self, message: &[u8]) -> Result<(), Ended> {
        self.output.send(message)?;
        self.sent += 1;
        if self.output.receivers() == 0 {
            self.unheard += 1;
        }
        Ok(())
    }
}
