//! `corewire log`: a member of a group, whose log is written to standard output.

mod client;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use corewire::{ChannelName, Domain};
use corewire_group::{Decided, DecidedEntry, Decision, Group, GroupError, Salvaged, salvage_log};
use corewire_os::event::wait_readable;
use serde::Serialize;

use crate::failure::Failure;
use crate::input::Input;
use crate::records::{Records, Splitter};
use crate::signals::Signals;
use crate::{access, output, units};

/// Bytes asked of the input at a time.
const READ_BYTES: usize = 64 << 10;
/// Lines that may be undecided before the next one waits.
const UNDECIDED_MAX: u64 = 1024;
/// How often a call that waits looks whether a signal was caught.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long becoming a member may take.
const JOIN_WITHIN: Duration = Duration::from_secs(60);
/// How long the others may take to take this member's roles over.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
/// The same, once the command has failed.
const LEAVE_WITHIN_AFTER_FAILURE: Duration = Duration::from_millis(500);
/// How long a command that is over waits for the reader of its output.
const PRINTS_WITHIN: Duration = Duration::from_secs(1);
/// How long a wait for lines says nothing.
const SAYS_AFTER: Duration = Duration::from_secs(1);
/// How long members that run may take to say that they do.
const ANSWER_WITHIN: Duration = Duration::from_millis(300);

const EXAMPLES: &str = "\
Examples:
  corewire log orders --stay < /dev/null         # in three terminals: three members
  echo 'one more' | corewire log orders
  echo 'one more' | corewire log orders --append
  corewire log orders --follow --json | jq .index
  echo 'one more' | corewire log orders --file orders.log
  corewire log orders --file damaged.log --salvage readable.log\n\
\n\
Each process that runs this command is a member of the group NAME, which the first one \
founds. Every line of the input becomes an entry of the log, at the same index for all \
members, and every entry is written to standard output, from the first one on: a member \
that comes late gets the whole log.\n\
\n\
With --append or --follow this process is no member, but a client: the members that run \
decide its lines, or send it the entries. So any number of such processes may come and go, \
and cost a group nothing that they do not ask for. --append ends when its lines are \
decided, each of them once, whatever members are killed meanwhile.\n\
\n\
At the end of the input the command waits until its lines are decided, leaves the group \
and ends; with --stay it stays a member until a signal ends it.\n\
\n\
Members may be killed at any time. As long as fewer than half are killed at once, the \
others go on, and no entry is lost: two of three go on, one of two does not. The log is in \
memory and ends with its last member, unless all members are given the same --file: then \
each entry is on the disk before any member writes it, and those that come after the last \
member has ended, or the machine has, begin with the log that was. What was never decided is \
cut off the file, which standard error says, and kept in PATH.cut-N. A damaged file is an \
error and is left as it is.\n\
\n\
--json writes an object on a line for each entry, with the keys index (from 0), member \
(its place in the group; of a client: client, its number in hexadecimal), number (which of \
its lines it is, from 1) and bytes \
(the line in base64).\n\
\n\
Exit codes: 0 done, 1 the group has lost its majority, or another failure.";

/// A replicated log among as many of these as run: lines in, decided lines out
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The group: letters, digits, '_', '-' and '.'
    #[arg(value_parser = units::channel_name)]
    name: ChannelName,
    /// The file to read [default: standard input, as for '-']
    input: Option<PathBuf>,
    /// Stay a member at the end of the input, until a signal
    #[arg(long)]
    stay: bool,
    /// Become no member: let the members decide the lines of the input, and write none
    #[arg(long, conflicts_with_all = ["stay", "from", "json", "largest", "file"])]
    append: bool,
    /// Become no member: read no input, and write what is decided until a signal
    #[arg(long, conflicts_with_all = ["append", "input", "stay", "largest", "file"])]
    follow: bool,
    /// Begin with the entry of this index
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    from: u64,
    /// Maximum bytes of a line; the member that founds the group decides
    #[arg(long, value_name = "BYTES", default_value = "64K", value_parser = units::message_bytes)]
    largest: usize,
    /// Keep the log in this file, too, the same one for all members, so that it outlives them
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Become no member: copy what can be read of the damaged --file to this new file, which begins a log
    #[arg(long, value_name = "NEW", requires = "file", conflicts_with_all = ["input", "stay", "append", "follow"])]
    salvage: Option<PathBuf>,
    /// Write each entry as a JSON object on a line of its own
    #[arg(long)]
    json: bool,
    /// Fail if this process is no member or client after so many seconds, or if none of its lines is decided for so long [default:
    /// 60 to become one, and no limit for lines]
    #[arg(long, value_name = "S")]
    timeout: Option<u64>,
}

#[derive(Serialize)]
struct Entry {
    index: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    number: u64,
    bytes: String,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let (Some(file), Some(new)) = (&args.file, &args.salvage) {
        return salvage(file, new);
    }
    if args.append || args.follow {
        return client::run(args);
    }
    let mut input = Input::open(args.input.as_deref())?;
    let domain = access::open_domain()?;
    let group = Group::builder(&domain, args.name.as_str()).largest_command(args.largest);
    let name = args.name.clone();
    let mut group = group.report(move |text| output::note(format_args!("group {name}: {text}")));
    if let Some(file) = &args.file {
        group = group.file(file);
    }
    let group = group.join_timeout(args.timeout.map_or(JOIN_WITHIN, Duration::from_secs))?;
    let signals = Arc::new(Signals::catch()?);
    signals.begin();
    let printer = print(group.decided(args.from), args.json, Arc::clone(&signals))?;
    let mut waits = Waits::new(&domain, args, &signals);
    let outcome = propose(&group, &mut waits, &mut input);
    let commands = group.own_commands();
    // What is lost is the majority, and no call can mend that.
    let leave_within = match &outcome {
        Ok(()) => args.timeout.map_or(LEAVE_WITHIN, Duration::from_secs).min(LEAVE_WITHIN),
        // It has waited already.
        Err(_) => LEAVE_WITHIN_AFTER_FAILURE,
    };
    let left = group.leave(leave_within);
    let is_over = outcome.is_err() || left.is_err() || signals.caught().is_some();
    let printed = finish(printer, is_over);
    if printed.is_err() || outcome.is_err() {
        say_what_is_decided(&commands);
    }
    printed?;
    outcome?;
    match left {
        Err(GroupError::Timeout(_)) if signals.caught().is_none() => {
            return Err(Failure::other(format!(
                "the others have not taken this member's part over within {leave_within:?}{}",
                waits.who_is_silent()
            )));
        }
        left if signals.caught().is_none() => left?,
        _ => {}
    }
    signals.end()
}

/// What a wait for the group needs, and looks at.
struct Waits<'a> {
    domain: &'a Domain,
    args: &'a Args,
    signals: &'a Signals,
    /// How many lines were decided at the last look, and since when some were not and no other one was.
    decided: u64,
    since: Instant,
    has_undecided: bool,
    has_said: bool,
}

impl<'a> Waits<'a> {
    fn new(domain: &'a Domain, args: &'a Args, signals: &'a Signals) -> Self {
        let (decided, since) = (0, Instant::now());
        Self { domain, args, signals, decided, since, has_undecided: false, has_said: false }
    }

    /// Waits until all lines are decided, or the command is to end.
    fn flush(&mut self, group: &Group) -> Result<(), Failure> {
        while !self.signals.is_over() {
            match group.flush(LOOK_EVERY) {
                Err(GroupError::Timeout(_)) => _ = self.look(group)?,
                other => return Ok(other?),
            }
        }
        Ok(())
    }

    /// Says once that lines are not decided, and fails if that lasts too long. Whether some are not.
    fn look(&mut self, group: &Group) -> Result<bool, Failure> {
        let (proposed, decided) = group.own_commands()?;
        let had_undecided = std::mem::replace(&mut self.has_undecided, proposed != decided);
        if !had_undecided || decided > self.decided {
            (self.decided, self.since) = (decided, Instant::now());
            self.has_said &= had_undecided;
        }
        let name = &self.args.name;
        if !self.has_said && self.since.elapsed() >= SAYS_AFTER {
            self.has_said = true;
            let silent = self.who_is_silent();
            output::note(format_args!("group {name}: waiting: lines are not decided{silent}"));
        }
        let limit = self.args.timeout.map(Duration::from_secs);
        if let Some(limit) = limit.filter(|limit| self.since.elapsed() >= *limit) {
            let silent = self.who_is_silent();
            return Err(Failure::other(format!(
                "group {name}: no line was decided within {limit:?}{silent}"
            )));
        }
        Ok(self.has_undecided)
    }

    /// Which members do not answer, behind a colon; nothing if all do. Asks them.
    fn who_is_silent(&self) -> String {
        let groups = corewire_group::look(self.domain, ANSWER_WITHIN).unwrap_or_default();
        let own = groups.into_iter().find(|group| group.name == self.args.name.as_str());
        let silent = own.map(|group| group.silent).unwrap_or_default();
        let places: Vec<_> = silent.iter().map(u8::to_string).collect();
        match places.is_empty() {
            true => String::new(),
            false => format!(": the members at these places do not answer: {}", places.join(", ")),
        }
    }
}

/// Waits until what is decided is written; when the command is over for another reason, not for a reader that is slow.
fn finish(printer: JoinHandle<Result<(), Failure>>, is_over: bool) -> Result<(), Failure> {
    let until = Instant::now() + PRINTS_WITHIN;
    while is_over && !printer.is_finished() {
        if Instant::now() >= until {
            output::note(format_args!(
                "what was decided last is not all written: standard output has not taken it within {PRINTS_WITHIN:?}"
            ));
            return Ok(());
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    printer.join().unwrap_or_else(|_| Err(Failure::quiet(1)))
}

/// After a failure: which lines of the input are in the log.
fn say_what_is_decided(commands: &Result<(u64, u64), GroupError>) {
    if let Ok((proposed, decided)) = commands
        && *proposed > 0
    {
        output::note(format_args!(
            "{decided} of {proposed} lines that were read are known to be decided, from the first one on"
        ));
    }
}

/// Copies what can be read of a damaged file.
fn salvage(file: &Path, new: &Path) -> Result<(), Failure> {
    let salvaged = salvage_log(file, new).map_err(Failure::other)?;
    if let Some(before) = salvaged.snapshot_before {
        output::note(format_args!("a snapshot stands for the entries before index {before}"));
    }
    for missing in &salvaged.missing {
        output::note(format_args!(
            "missing: the entries of index {} to {}",
            missing.start,
            missing.end - 1
        ));
    }
    let Salvaged { entries, skipped_bytes, .. } = salvaged;
    output::note(format_args!(
        "{entries} entries copied to {}; {skipped_bytes} bytes could not be read",
        new.display()
    ));
    Ok(())
}

/// Proposes the lines of the input, and stays as long as it is asked to.
fn propose(group: &Group, waits: &mut Waits<'_>, input: &mut Input) -> Result<(), Failure> {
    let signals = waits.signals;
    let mut buffer = vec![0; READ_BYTES];
    let mut splitter = Splitter::new(Records::Separated(b'\n'), group.largest_command());
    let mut count = 0;
    let mut submit = |waits: &mut Waits<'_>, line: &[u8]| -> Result<(), Failure> {
        group.submit(line)?;
        count += 1;
        match count % UNDECIDED_MAX {
            0 => waits.flush(group),
            _ => Ok(()),
        }
    };
    loop {
        // Lines that are not decided are looked after while no other ones come.
        let every = waits.look(group)?.then_some(LOOK_EVERY);
        if !input.is_ready(signals, every)? {
            continue;
        }
        match input.read(&mut buffer, signals)? {
            Some(0) => break,
            Some(bytes) => splitter.split(&buffer[..bytes], |line| submit(waits, line))?,
            None => return Ok(()),
        }
    }
    splitter.finish(|line| submit(waits, line))?;
    waits.flush(group)?;
    if waits.args.stay {
        wait_readable(&[signals.descriptor()], None)?;
    }
    Ok(())
}

/// Writes what is decided, in a thread, until the group ends. If that fails, the command leaves the group and ends.
fn print(
    mut decided: Decided,
    is_json: bool,
    signals: Arc<Signals>,
) -> Result<JoinHandle<Result<(), Failure>>, Failure> {
    let print = move || {
        let printed = print_all(&mut decided, is_json);
        signals.stop();
        printed
    };
    let thread = std::thread::Builder::new().name("corewire-print".to_owned());
    thread.spawn(print).map_err(|error| Failure::other(format!("cannot start a thread: {error}")))
}

fn print_all(decided: &mut Decided, is_json: bool) -> Result<(), Failure> {
    let mut output = BufWriter::new(io::stdout().lock());
    loop {
        let decision = match decided.try_next() {
            Ok(Some(decision)) => decision,
            // Nothing is there now: what was gathered is written.
            Ok(None) => {
                output.flush().map_err(|error| output::failed(&error))?;
                match decided.next_timeout(Duration::MAX) {
                    Ok(Some(decision)) => decision,
                    Ok(None) => continue,
                    Err(end) => return ended(end),
                }
            }
            Err(end) => {
                output.flush().map_err(|error| output::failed(&error))?;
                return ended(end);
            }
        };
        write(&mut output, &entry_of(decision)?, is_json)
            .map_err(|error| output::failed(&error))?;
    }
}

/// Only a program that uses the library puts snapshots in the place of entries.
fn entry_of(decision: Decision) -> Result<DecidedEntry, Failure> {
    match decision {
        Decision::Entry(entry) => Ok(entry),
        Decision::Snapshot { next, .. } => Err(Failure::other(format!(
            "a snapshot stands for the entries before index {next}: begin with --from {next}"
        ))),
    }
}

fn ended(end: GroupError) -> Result<(), Failure> {
    match end {
        GroupError::Left(_) => Ok(()),
        end => Err(end.into()),
    }
}

fn write(output: &mut impl Write, entry: &DecidedEntry, is_json: bool) -> io::Result<()> {
    if !is_json {
        output.write_all(&entry.command)?;
        return output.write_all(b"\n");
    }
    let bytes = STANDARD.encode(&entry.command);
    let (from, is_client) = (entry.from, entry.from.is_client());
    let entry = Entry {
        index: entry.index,
        member: (!is_client).then_some(from.place),
        client: is_client.then(|| format!("{:016x}", from.life)),
        number: entry.number,
        bytes,
    };
    serde_json::to_writer(&mut *output, &entry)?;
    output.write_all(b"\n")
}
