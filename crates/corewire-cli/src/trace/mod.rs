//! `corewire trace`: records what monitors and programs do with frames of circuits, into a file that Perfetto opens.

mod perfetto;
mod timeline;
mod trace_event;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use corewire_circuit::monitor::{Asking, monitors};
use corewire_os::event::wait_readable;
use corewire_os::file::{check_writable, write};
use timeline::Timeline;

use crate::circuits::ANSWER_WITHIN;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::{access, output, units};

const EXAMPLES: &str = "\
Examples:
  corewire trace --for 2
  corewire trace --out call.pftrace
  corewire trace --for 1 --format json --out call.json

Monitors, and the programs of this user that have links with them, record until the time
is over, or until INT or TERM. Each keeps its last 65,536 frames. Open the file in
https://ui.perfetto.dev, or one in JSON in https://www.speedscope.app or chrome://tracing.

Each process is a track, with a line for each thread. What is on it:

  send      a program has sent a frame
  forward   a monitor has passed a frame on at once
  store     a monitor has kept it, because there was no credit or no room
  resume    a monitor has sent what it had kept
  serve     a service has served a request; the reply has gone
  receive   a program has taken a frame

Arrows lead from where a frame was sent to where it came. While nobody traces, a frame
costs one load of a word that stays in the cache.";

/// Record a timeline of circuits, for Perfetto
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Record for so many seconds [default: until a signal]
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    time: Option<Duration>,
    /// The file to write [default: corewire.pftrace or corewire.json]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// What to write
    #[arg(long, value_enum, default_value_t = Format::Perfetto)]
    format: Format,
}

/// A format of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Perfetto's protobuf.
    Perfetto,
    /// Trace Event, in JSON.
    Json,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|time| !time.is_zero()).ok_or_else(|| format!("{text:?} is no time in seconds"))
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let otherwise = match args.format {
        Format::Perfetto => "corewire.pftrace",
        Format::Json => "corewire.json",
    };
    let file = args.out.clone().unwrap_or_else(|| otherwise.into());
    let cannot_write = |error| {
        let shown = units::printable(&file.to_string_lossy());
        Failure::other(format!("cannot write {shown}: {error}"))
    };
    check_writable(&file).map_err(cannot_write)?;
    let signals = Signals::catch()?;
    let domain = access::open_domain()?;
    let mut asked = Vec::new();
    for node in monitors(&domain)? {
        let asking = Asking::connect(&domain, node, ANSWER_WITHIN);
        let begun = asking.and_then(|mut asking| asking.trace(true).map(|()| asking));
        match begun {
            Ok(asking) => asked.push(asking),
            // The others are traced all the same.
            Err(error) => output::note(error),
        }
    }
    if asked.is_empty() {
        return Err(Failure::other("no monitor runs in the domain, or none answers"));
    }
    if args.time.is_none() {
        output::note("recording until INT or TERM");
    }
    let until = args.time.and_then(|time| Instant::now().checked_add(time));
    let _ = wait_readable(&[signals.descriptor()], until);
    let mut memory = Vec::new();
    for mut asking in asked {
        match asking.trace(false).and_then(|()| asking.traces()) {
            Ok(traces) => memory.extend(traces),
            Err(error) => output::note(error),
        }
    }
    let timeline = Timeline::read(memory);
    let bytes = match args.format {
        Format::Perfetto => perfetto::encode(&timeline),
        Format::Json => trace_event::encode(&timeline)?,
    };
    write(&file, &bytes).map_err(cannot_write)?;
    for party in &timeline.parties {
        let lost = match party.lost {
            0 => String::new(),
            lost => format!(", and {lost} before them that it has not kept"),
        };
        output::note(format!(
            "{} ({}): {} events{lost}",
            party.name,
            party.pid,
            party.events.len()
        ));
    }
    output::note(format!("written to {}", file.display()));
    Ok(())
}
