//! `corewire ls`: the channels that exist.

use corewire::{ChannelView, JoinError};
use serde::Serialize;

use crate::failure::Failure;
use crate::{access, output, table, units};

const EXAMPLES: &str = "\
Example:
  corewire ls

Columns: the sender's process; receivers that have joined, and the most there may
be; messages sent; how many messages the slowest receiver is behind, as last
published; the longest message; the memory of ring and payload. Looking costs
the channel nothing. With --owner the receivers are not shown.

--json prints an array of objects with the keys name, pid, receivers,
receivers_max, sent, lag_max, largest_message_bytes, memory_bytes. With --owner,
receivers and lag_max are null.";

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
    receivers: Option<usize>,
    receivers_max: u64,
    sent: u64,
    lag_max: Option<u64>,
    largest_message_bytes: u64,
    memory_bytes: u64,
}

impl Row {
    /// What is known of a channel. Guests are not shown its receivers.
    fn new(view: ChannelView, is_guest: bool) -> Self {
        let lag_max = view.receivers.iter().map(|receiver| receiver.lag).max().unwrap_or(0);
        Self {
            pid: view.pid,
            receivers: (!is_guest).then_some(view.receivers.len()),
            receivers_max: view.receivers_max,
            sent: view.sent,
            lag_max: (!is_guest).then_some(lag_max),
            largest_message_bytes: view.largest_message,
            memory_bytes: view.segment_bytes,
            name: view.name,
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let domain = access::open_domain()?;
    let mut rows = Vec::new();
    for name in domain.channels()? {
        match domain.observe(name.as_str()) {
            Ok(observer) => rows.push(Row::new(observer.look(), domain.is_guest())),
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
    let known = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), units::grouped);
    let cells = |row: &Row| {
        let receivers = row.receivers.map_or_else(|| "-".to_owned(), |count| count.to_string());
        vec![
            row.name.clone(),
            row.pid.to_string(),
            format!("{receivers}/{}", row.receivers_max),
            units::grouped(row.sent),
            known(row.lag_max),
            units::size(row.largest_message_bytes),
            units::size(row.memory_bytes),
        ]
    };
    table::render(&columns, &rows.iter().map(cells).collect::<Vec<_>>())
}
