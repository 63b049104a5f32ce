//! `corewire ls`: the channels that exist.

use corewire::{ChannelView, Domain, JoinError};
use serde::Serialize;

use crate::failure::Failure;
use crate::{output, table, units};

const EXAMPLES: &str = "\
Example:
  corewire ls

Columns: the sender's process; receivers that have joined, and the most there may
be; messages sent; how many messages the slowest receiver is behind, as last
published; the longest message; the memory of ring and payload. Looking costs
the channel nothing.

--json prints an array of objects with the keys name, pid, receivers,
receivers_max, sent, lag_max, largest_message_bytes, memory_bytes.";

/// List channels: who sends, how many receive, how far behind they are.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    pid: u32,
    receivers: usize,
    receivers_max: u64,
    sent: u64,
    lag_max: u64,
    largest_message_bytes: u64,
    memory_bytes: u64,
}

impl From<ChannelView> for Row {
    fn from(view: ChannelView) -> Self {
        Self {
            pid: view.pid,
            receivers: view.receivers.len(),
            receivers_max: view.receivers_max,
            sent: view.sent,
            lag_max: view.receivers.iter().map(|receiver| receiver.lag).max().unwrap_or(0),
            largest_message_bytes: view.largest_message,
            memory_bytes: view.segment_bytes,
            name: view.name,
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let domain = Domain::open()?;
    let mut rows = Vec::new();
    for name in domain.channels()? {
        match domain.observe(name.as_str()) {
            Ok(observer) => rows.push(Row::from(observer.look())),
            // It ended between the two looks.
            Err(JoinError::NotFound(_)) => {}
            Err(error) => eprintln!("corewire: {error}"),
        }
    }
    if args.json {
        return output::print_json(&rows);
    }
    if rows.is_empty() {
        let path = domain.runtime_directory().display();
        return output::print(&format!("No channels in {path}.\n"));
    }
    output::print(&render(&rows))
}

fn render(rows: &[Row]) -> String {
    let columns = [
        ("channel", false),
        ("pid", true),
        ("receivers", true),
        ("sent", true),
        ("max lag", true),
        ("largest", true),
        ("memory", true),
    ];
    let cells = |row: &Row| {
        vec![
            row.name.clone(),
            row.pid.to_string(),
            format!("{}/{}", row.receivers, row.receivers_max),
            units::grouped(row.sent),
            units::grouped(row.lag_max),
            units::size(row.largest_message_bytes),
            units::size(row.memory_bytes),
        ]
    };
    table::render(&columns, &rows.iter().map(cells).collect::<Vec<_>>())
}
