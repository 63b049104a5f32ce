//! `corewire top`: rates on the channels, endpoints, monitors and groups of this user.

pub(crate) mod rates;
mod screen;
mod view;

use std::time::{Duration, Instant};

use corewire_os::event::wait_readable;
use serde::Serialize;

use self::rates::{Channel, Endpoint, Group, Look, Monitor, Watcher};
use self::screen::Screen;
use self::view::{COLUMNS, Sort, View};
use crate::failure::Failure;
use crate::{access, output, table};

const EXAMPLES: &str = "\
Examples:
  corewire top
  corewire top --once --json\n\
\n\
Columns: the channel, endpoint, monitor or group; a receiver's row in the channel; a peer of the \
endpoint, with a line for what comes from it and one for what goes to it; a link of the \
monitor, with its circuits; a member of the group, with its roles; or an MPI job and its \
ranks; the process; messages \
per second, of a monitor the frames that it forwards, of a group the entries that are decided; payload bytes per second; lag: how many messages a receiver is \
behind, of a channel its slowest receiver, of an endpoint the messages that it keeps \
until a receive asks for them, of a monitor the lines of 64 bytes that wait there, of a \
member the entries that others know and it does not; waits and \
wakes: how often per second it waited, and woke \
others; drops: messages missed or discarded, and receivers that were evicted, or \
removed because their memory held impossible values, as peers are; deaths: receivers \
or peers that died, or members of the present view. Drops and deaths count from the creation of the channel or \
endpoint. A narrow terminal shows fewer columns.\n\
\n\
On a channel, bytes of messages of up to 48 bytes are not counted, since that would slow the sender \
down. top reads the lengths of up to 64 of the latest messages, and estimates the \
others from these. A number with such an estimate in it begins with ~.\n\
\n\
top reads the memory of the processes that take part. Once an interval it asks the \
process of each channel and endpoint for that memory, but not the thread that sends, and \
each member of a group what it knows.\n\
\n\
Keys: q quits, space pauses, s sorts by the next column, r reverses the order, \
/ filters by name, enter shows or hides receivers, peers, ranks, links and members, j and k or the arrows scroll.\n\
\n\
--once looks twice, an interval apart, prints the rates, and ends. --json prints an \
object with the keys interval_s, unseen (why something cannot be seen), channels, \
endpoints, monitors and groups. channels holds objects with the keys name, pid, senders, sent, messages_per_s, bytes_per_s, \
estimated_bytes_per_s (the part of bytes_per_s that is an estimate), waits_per_s, \
wakes_per_s, lag, drops, deaths, receivers_max and receivers: objects with the keys \
row, pid, messages_per_s, bytes_per_s, estimated_bytes_per_s, waits_per_s, \
wakes_per_s, lag, drops and is_asleep. endpoints holds objects with the keys name, pid, \
messages_per_s, bytes_per_s, estimated_bytes_per_s, waits_per_s, wakes_per_s, kept, \
kept_bytes, budget_bytes, drops, deaths, is_asleep, job and rank (of an MPI rank; else null), and peers: objects with the keys name, \
pid, sent and received (objects with the keys messages_per_s and bytes_per_s), kept and \
kept_bytes. monitors holds objects with the keys monitor (its number), pid, circuits, \
frames_per_s, stored_lines and links: objects with the keys to and circuits. groups \
holds objects with the keys group, view, decided, decided_per_s, behind, ended (members of \
the view that have), members (objects with the keys place, pid, leads, accepts, behind and \
undecided) and silent (places of members that do not answer).";

/// Watch channels, endpoints, monitors and groups: rates, lag, waits, drops, deaths
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Sort by this column
    #[arg(long, value_enum, default_value_t = Sort::Messages)]
    sort: Sort,
    /// Show only what has a name that contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Print the rates of one interval, and end
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
    endpoints: Vec<Endpoint>,
    monitors: Vec<Monitor>,
    groups: Vec<Group>,
}

/// Seconds between two looks.
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
    let view = View { sort: args.sort, is_reversed: false, filter, shows_parts: true };
    if !args.once {
        return Screen::new(view, watcher.place(), interval).run(watcher);
    }
    let began = Instant::now();
    watcher.look()?;
    // A look ends late if a process does not answer. The next one will take as long, so the two ends are
    // `interval` apart.
    let took = began.elapsed();
    wait_readable(&[], Some(Instant::now() + interval.saturating_sub(took)))?;
    let look = watcher.look()?;
    if args.json {
        let Look { mut channels, mut endpoints, mut monitors, mut groups, unseen } = look;
        channels.retain(|channel| channel.name.contains(&view.filter));
        endpoints.retain(|endpoint| endpoint.name.contains(&view.filter));
        monitors.retain(|one| format!("monitor {}", one.monitor).contains(&view.filter));
        groups.retain(|one| format!("group {}", one.group).contains(&view.filter));
        let interval_s = args.interval;
        let report = Report { interval_s, unseen, channels, endpoints, monitors, groups };
        return output::print_json(&report);
    }
    let lines = view.lines(&look);
    let mut text = match lines.is_empty() {
        true => view.nothing(&watcher.place()) + "\n",
        false => {
            let rows: Vec<_> = lines.into_iter().map(|line| line.cells).collect();
            table::render(&COLUMNS, &rows)
        }
    };
    for why in &look.unseen {
        text.push_str(&format!("cannot be seen: {why}\n"));
    }
    output::print(&text)
}
