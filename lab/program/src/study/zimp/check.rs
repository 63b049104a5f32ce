//! `corewire study check`: sends messages through one mechanism, and checks every byte and the order.

use super::worker::{Task, start, summary};
use crate::study::failure::Failure;
use crate::study::interrupt;
use crate::study::mechanisms::{Id, Shape, raise_queue_limits};
use crate::study::runner::Scratch;

/// Send messages through a mechanism, and check every byte and their order.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  corewire study check udp --bytes 4096 --messages 20000 --late")]
pub(crate) struct Args {
    mechanism: Id,
    /// Length of each message
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "64")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    bytes: Vec<u32>,
    /// Number of messages of each length that each sender sends
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    messages: u64,
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=448))]
    receivers: u32,
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16))]
    senders: u32,
    /// Start receiving only after everything is sent; for mechanisms that then lose messages
    #[arg(long)]
    late: bool,
    /// Do not raise the kernel's limits on message queues
    #[arg(long)]
    keep_queue_limits: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Args { mechanism, messages, receivers, senders, late: is_late, .. } = *args;
    let about = mechanism.about();
    if is_late && !about.is_lossy {
        return Err(Failure::usage(format!("--late: {} lose nothing, and would wait", about.name)));
    }
    if !args.keep_queue_limits {
        raise_queue_limits(args.bytes.iter().copied().max().unwrap_or_default().into());
    }
    interrupt::prepare()?;
    let scratch = Scratch::new()?;
    for &bytes in &args.bytes {
        let shape = Shape { bytes: bytes as usize, receivers, senders };
        if let Some(reason) = mechanism.limit(shape) {
            return Err(Failure::usage(format!("{}, {bytes} bytes: {reason}", about.name)));
        }
        let crew = start(mechanism, shape, Task::Count { messages, is_late }, &scratch.0)?;
        let run = summary(&crew.run()?, shape);
        let due = run.sent * u64::from(receivers);
        println!(
            "{}, {bytes} bytes: received {} of {due}, lost {}",
            about.name,
            due - run.lost,
            run.lost
        );
        if run.lost > 0 && !about.is_lossy {
            return Err(Failure::other(format!("{} have lost messages", about.name)));
        }
    }
    Ok(())
}
