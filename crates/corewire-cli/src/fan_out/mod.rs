//! `corewire fan-out`: sends one file to several processes, and checks every byte.
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

mod baseline;
mod checksum;
mod children;
mod clock;
mod passes;
mod place;
mod protocol;
mod receiver;
mod report;

use std::fs;
use std::path::{Path, PathBuf};

use corewire::Domain;
use corewire_os::processor;
use corewire_study::harness::distance;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::{output, units};
use children::Receivers;
use passes::Passes;
use place::PrivateDirectory;
use report::{Baselines, Report};

pub(crate) use receiver::{Args as ReceiverArgs, run as run_receiver};

/// Name of the channel, in a runtime directory of its own.
const CHANNEL: &str = "fan-out";

/// Measurements of the raw line, of a few milliseconds each; the result is their median.
const LINE_ROUNDS: usize = 11;

const EXAMPLES: &str = "\
Example:
  corewire fan-out disk.img --receivers 3

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
messages_per_s, lag_max, latency_p50_ns, latency_p99_ns, sha256_is_right.";

/// Send a file to several processes, check every byte, show the speed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file to send
    file: PathBuf,
    /// Receiver processes, 1 to 1024
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    receivers: u16,
    /// Bytes of each message; K, M and G are powers of 1024
    #[arg(long, value_name = "BYTES", default_value = "64K", value_parser = units::message_bytes)]
    chunk: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The number of processes, and of cores that they may use.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Cores {
    processes: usize,
    cores: usize,
}

impl Cores {
    const fn is_oversubscribed(self) -> bool {
        self.processes > self.cores
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let content = read_file(&args.file)?;
    let receivers_count = usize::from(args.receivers);
    let allowed = processor::allowed()?;
    let cores = Cores { processes: receivers_count + 1, cores: allowed.len() };
    let raw_line_one_way_ns = match allowed[..] {
        [one, other, ..] => distance::median_line_ns([one, other], LINE_ROUNDS).ok(),
        _ => None,
    };

    let place = PrivateDirectory::create()?;
    let domain = Domain::open_at(place.path())?;
    let mut sender = domain
        .sender(CHANNEL)
        .receivers(receivers_count)
        .window_bytes(window_bytes(args.chunk))
        .largest_message(args.chunk.max(protocol::SMALL_BYTES))
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

    let passes = Passes::new(&content, args.chunk, &mut sender, &mut receivers, &observer);
    let measured = passes.run(cores)?;
    sender.close();
    receivers.finish()?;

    let baselines = Baselines { raw_line_one_way_ns, copy_gb_per_s: measured.copy_gb_per_s };
    let report = Report::new(&args.file, &content, args.chunk, cores, baselines, measured);
    if args.json {
        output::print_json(&report)?
    } else {
        output::print(&report.to_text())?
    }
    report.check()
}

/// Reads the whole file into memory.
fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = units::printable(&path.to_string_lossy());
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
