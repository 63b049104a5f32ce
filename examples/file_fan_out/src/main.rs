//! Sends one file to several processes, and checks every byte.
//!
//! The sender reads the file into memory, starts the receivers as separate processes, and sends the
//! file in passes:
//!
//! 1. *speed*, several rounds: every receiver sums every byte in place;
//! 2. *verification*, without timing: every receiver computes SHA-256;
//! 3. *latency*: small messages that contain their send time, sent at a steady pace.
//!
//! Each pass begins with an [`Order`](protocol::Order) in the channel; each receiver answers with
//! one [`Report`](protocol::Report) on its standard output.

#![forbid(unsafe_code)]

mod args;
mod baseline;
mod children;
mod clock;
mod failure;
mod line;
mod passes;
mod place;
mod protocol;
mod receiver;
mod report;
mod sum;
mod text;

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use corewire::Domain;
use corewire_os::processor;
use serde::Serialize;

use args::{Sending, Task};
use children::Receivers;
use failure::Failure;
use passes::Passes;
use place::PrivateDirectory;
use report::{Baselines, Report};

/// Name of the channel, in a runtime directory of its own.
const CHANNEL: &str = "fan-out";

fn main() -> ExitCode {
    let done = match args::parse(std::env::args_os().skip(1)) {
        Ok(Task::Send(sending)) => send(&sending),
        Ok(Task::Receive(receiving)) => return receiver::run(&receiving),
        Ok(Task::Help) => print(args::HELP),
        Err(failure) => Err(failure),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("file_fan_out: {}", text::printable(&failure.message));
            ExitCode::from(failure.code)
        }
    }
}

/// The number of processes, and of cores that they may use.
#[derive(Debug, Clone, Copy, Serialize)]
struct Cores {
    processes: usize,
    cores: usize,
}

impl Cores {
    const fn is_oversubscribed(self) -> bool {
        self.processes > self.cores
    }
}

fn send(args: &Sending) -> Result<(), Failure> {
    let content = read_file(&args.file)?;
    let receivers_count = args.receivers;
    let allowed = processor::allowed()?;
    let cores = Cores { processes: receivers_count + 1, cores: allowed.len() };
    let raw_line_one_way_ns = match allowed[..] {
        [one, other, ..] => line::one_way_ns([one, other]).ok(),
        _ => None,
    };

    let place = PrivateDirectory::create()?;
    let domain = Domain::open_at(place.path())?;
    let mut sender = domain
        .sender(CHANNEL)
        .receivers(receivers_count)
        .window_bytes(window_bytes(args.chunk_bytes))
        .largest_message(args.chunk_bytes.max(protocol::SMALL_BYTES))
        .prefault(true)
        .create()?;
    let pins = if cores.is_oversubscribed() { &[] } else { &allowed[1..] };
    let mut receivers = Receivers::start(place.path(), receivers_count, pins)?;
    receivers.await_joined(&mut sender)?;
    let observer = domain.observe(CHANNEL)?;
    // All receivers have joined, so the directory is no longer needed, whatever happens.
    drop(place);
    if !cores.is_oversubscribed() {
        processor::pin_to(allowed[0])?;
    }

    let passes = Passes::new(&content, args.chunk_bytes, &mut sender, &mut receivers, &observer);
    let measured = passes.run(cores)?;
    sender.close();
    receivers.finish()?;

    let baselines = Baselines { raw_line_one_way_ns, copy_gb_per_s: measured.copy_gb_per_s };
    let report = Report::new(&args.file, &content, args.chunk_bytes, cores, baselines, measured);
    if args.is_json {
        print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else {
        print(&report.to_text())?;
    }
    report.check()
}

/// Writes to standard output, whose reader may have gone.
fn print(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Reads the whole file into memory.
fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.to_string_lossy();
    let refuse = |what: &str| Failure::usage(format!("cannot read {name}: {what}"));
    let found = fs::metadata(path).map_err(|error| refuse(&error.to_string()))?;
    if !found.is_file() {
        return Err(refuse("it is not a regular file"));
    }
    let content = fs::read(path).map_err(|error| refuse(&error.to_string()))?;
    if content.is_empty() {
        return Err(refuse("it is empty, so there is nothing to send"));
    }
    Ok(content)
}

/// Size of the window: several chunks, unless they are so long that the channel has a large area for
/// them.
fn window_bytes(chunk_bytes: usize) -> usize {
    const DEFAULT: usize = 1 << 20;
    const MAX: usize = 4 << 20;
    (16 * chunk_bytes.min(MAX)).next_power_of_two().clamp(DEFAULT, MAX)
}
