//! `corewire top`: what moves on the channels of this user.

pub(crate) mod rates;
mod screen;
mod view;

use std::time::{Duration, Instant};

use corewire_os::event::wait_readable;
use serde::Serialize;

use self::rates::{Channel, Watcher};
use self::screen::Screen;
use self::view::{COLUMNS, Sort, View};
use crate::failure::Failure;
use crate::{access, output, table};

const EXAMPLES: &str = "\
Examples:
  corewire top
  corewire top --once --json

Columns: the channel, or a receiver's row in it; its process; messages in a
second; bytes in a second of messages of more than 48 bytes (shorter ones are not
counted); how many messages it is behind, of a channel its slowest receiver; how
often in a second it waited, and woke others; messages missed, receivers evicted or
refused for what their memory held; receivers that died. The last two since the
channel was made. What is read is in the memory of those who take part; once an interval the
process of each channel's sender is asked for it, but not the thread that sends.

Keys: q quits, space pauses, s sorts by the next column, r reverses, / filters by
name, enter shows or hides receivers, j and k or the arrows scroll.

--once looks twice, an interval apart, prints what moved, and ends. --json prints
an object with the keys interval_s, unseen (why channels cannot be seen) and
channels: objects with the keys name, pid, senders, sent, messages_per_s,
bytes_per_s, waits_per_s, wakes_per_s, lag, drops, deaths, receivers_max and
receivers: objects with the keys row, pid, messages_per_s, bytes_per_s,
waits_per_s, wakes_per_s, lag, drops and is_asleep.";

/// Watch what moves: rates, lag, waits, drops, deaths, of each channel and receiver.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// What to sort by
    #[arg(long, value_enum, default_value_t = Sort::Messages)]
    sort: Sort,
    /// Only channels whose name holds this
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Print what moved in one interval, and end
    #[arg(long)]
    once: bool,
    /// Print JSON
    #[arg(long, requires = "once")]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    interval_s: f64,
    unseen: Vec<String>,
    channels: Vec<Channel>,
}

/// Seconds that make sense.
fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("0.05 to 3600 seconds are possible".into()),
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut watcher = Watcher::new(access::open_domain()?);
    let interval = Duration::from_secs_f64(args.interval);
    let filter = args.filter.clone();
    let view = View { sort: args.sort, is_reversed: false, filter, shows_receivers: true };
    if !args.once {
        return Screen::new(view, watcher.place(), interval).run(watcher);
    }
    watcher.look()?;
    wait_readable(&[], Some(Instant::now() + interval))?;
    let (mut channels, unseen) = watcher.look()?;
    if args.json {
        channels.retain(|channel| channel.name.contains(&view.filter));
        return output::print_json(&Report { interval_s: args.interval, unseen, channels });
    }
    for why in &unseen {
        eprintln!("corewire: {why}");
    }
    let lines = view.lines(&channels);
    if lines.is_empty() {
        return output::print(&(view.nothing(&watcher.place()) + "\n"));
    }
    let rows: Vec<_> = lines.into_iter().map(|line| line.cells).collect();
    output::print(&table::render(&COLUMNS, &rows))
}
