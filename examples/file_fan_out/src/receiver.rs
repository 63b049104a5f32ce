//! One receiver process of a fan-out.

use std::process::ExitCode;

use corewire::{Domain, ReceiveError, Receiver};
use corewire_os::processor;
use sha2::{Digest, Sha256};

use crate::args::Receiving;
use crate::clock::now_ns;
use crate::failure::Failure;
use crate::protocol::{LATENCY_END, LATENCY_WARM_UP, Order, Report, hex, words};
use crate::sum::checksum;

/// Runs the receiver: carries out orders until the channel is closed.
fn serve(args: &Receiving) -> Result<(), Failure> {
    let domain = Domain::open_at(&args.directory)?;
    if let Some(cpu) = args.cpu {
        processor::pin_to(cpu)?;
    }
    let mut receiver = domain.receiver(crate::CHANNEL).join()?;
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
pub(crate) fn run(args: &Receiving) -> ExitCode {
    let Err(Failure { message, code }) = serve(args) else { return ExitCode::SUCCESS };
    // If nothing reads the report, the sender is gone, and the user knows about that.
    let _ = answer(&Report::Failed { message });
    ExitCode::from(code)
}

fn answer(report: &Report) -> Result<(), Failure> {
    crate::print(&format!("{}\n", serde_json::to_string(report)?))
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
    let mut times_ns = Vec::with_capacity(1 << 16);
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
            times_ns.push(now.saturating_sub(sent_ns).max(1));
        }
    }
    times_ns.sort_unstable();
    let at = |percent: usize| times_ns.get(times_ns.len() * percent / 100).copied().unwrap_or(0);
    Ok(Report::Timed { messages: times_ns.len() as u64, p50_ns: at(50), p99_ns: at(99) })
}
