//! One receiver process of a fan-out.

use std::path::PathBuf;

use corewire::{Domain, ReceiveError, Receiver};
use corewire_os::processor;
use hdrhistogram::Histogram;
use sha2::{Digest, Sha256};

use super::checksum::checksum;
use super::clock::now_ns;
use super::protocol::{LATENCY_END, LATENCY_WARM_UP, Order, Report, hex, words};
use crate::failure::Failure;
use crate::output;

/// Longer latencies count as this.
const LATENCY_NS_MAX: u64 = 10_000_000_000;

/// The receiving end of fan-out, which starts it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The runtime directory
    #[arg(long)]
    directory: PathBuf,
    /// The processor to stay on
    #[arg(long)]
    cpu: Option<usize>,
}

/// Runs the receiver: carries out orders until the channel is closed.
fn serve(args: &Args) -> Result<(), Failure> {
    let domain = Domain::open_at(&args.directory)?;
    if let Some(cpu) = args.cpu {
        processor::pin_to(cpu)?;
    }
    let mut receiver = domain.receiver(super::CHANNEL).join()?;
    loop {
        let order = match receiver.receive() {
            Ok(message) => Order::parse(&message),
            Err(ReceiveError::EndOfStream) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let report = match order {
            Some(Order::Sum(messages)) => sum(&mut receiver, messages)?,
            Some(Order::Hash(messages)) => hash(&mut receiver, messages)?,
            Some(Order::Time) => time(&mut receiver)?,
            None => return Err(Failure::other("a message is no order of this version")),
        };
        answer(&report)?;
    }
}

/// Runs [`serve`], and reports a failure to the sender, which tells the user.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    serve(args).map_err(|failure| {
        // If nothing reads the report, the sender is gone, and the user knows about that.
        let _ = answer(&Report::Failed { message: failure.message });
        Failure::quiet(failure.code)
    })
}

fn answer(report: &Report) -> Result<(), Failure> {
    let line = serde_json::to_string(report).map_err(Failure::other)?;
    output::print(&format!("{line}\n"))
}

fn sum(receiver: &mut Receiver, messages: u64) -> Result<Report, Failure> {
    let (mut bytes, mut total) = (0u64, 0u64);
    for _ in 0..messages {
        let message = receiver.receive()?;
        bytes += message.len() as u64;
        total = total.wrapping_add(checksum(&message));
    }
    Ok(Report::Summed { bytes, messages, checksum: total, ended_ns: now_ns() })
}

fn hash(receiver: &mut Receiver, messages: u64) -> Result<Report, Failure> {
    let (mut bytes, mut hash) = (0u64, Sha256::new());
    for _ in 0..messages {
        let message = receiver.receive()?;
        bytes += message.len() as u64;
        hash.update(&message[..]);
    }
    Ok(Report::Hashed { bytes, sha256: hex(&hash.finalize()) })
}

fn time(receiver: &mut Receiver) -> Result<Report, Failure> {
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, LATENCY_NS_MAX, 3).map_err(Failure::other)?;
    for due in 0u64.. {
        let message = receiver.receive()?;
        let now = now_ns();
        let Some([sent_ns, number]) = words(&message) else {
            return Err(Failure::other("a timed message has the wrong length"));
        };
        if number == LATENCY_END {
            break;
        }
        if number != due {
            return Err(Failure::other(format!("message {number} came as {due}")));
        }
        if number >= LATENCY_WARM_UP {
            histogram.saturating_record(now.saturating_sub(sent_ns).max(1));
        }
    }
    let at = |quantile: f64| histogram.value_at_quantile(quantile);
    Ok(Report::Timed { messages: histogram.len(), p50_ns: at(0.5), p99_ns: at(0.99) })
}
