//! `corewire top`: rates on the services, channels, endpoints, monitors, groups and windows of this user.

pub(crate) mod counting;
mod jobs;
mod lines;
mod peers;
mod rates;
mod screen;
mod services;
mod view;

use std::time::{Duration, Instant};

use corewire_os::event::wait_readable;
use serde::Serialize;

use self::lines::COLUMNS;
use self::rates::{Channel, Endpoint, Group, Look, Monitor, Watcher, Window};
use self::screen::Screen;
use self::services::Service;
use self::view::{Sort, View};
use crate::failure::Failure;
use crate::{access, output, table};

const EXAMPLES: &str = "\
Examples:
  corewire top
  corewire top --json\n\
\n\
Columns: the service, with its clients and the time in it that 99 of 100 calls did not exceed (one call in 16 is timed), \
or the channel, endpoint, monitor or group; a method of the service; a receiver's row in the channel; a peer of the \
endpoint, with a line for what comes from it and one for what goes to it; a link of the \
monitor, with its circuits; a member of the group, with its roles; the window, with its length and who holds its lock, or \
a participant of it; or an MPI job and its \
ranks; the process; messages \
per second, of a service the requests, of a monitor the frames that it forwards, of a group the entries that are decided, of a window what its counters count (puts and gets are not counted); payload bytes per second; lag: how many messages a receiver is \
behind, of a channel its slowest receiver, of an endpoint the messages that it keeps \
until a receive asks for them, of a monitor the lines of 64 bytes that wait there, of a \
member the entries that others know and it does not; waits and \
wakes: how often per second it waited, and woke \
others; drops: calls of a service that failed, messages missed or discarded, and receivers that were evicted, or \
removed because their memory held impossible values, as peers are; deaths: receivers \
or peers that died, or members of the present view. Drops and deaths count from the creation of the service, channel or \
endpoint. Calls that fail are no alarm: they do not colour the line. A narrow terminal shows fewer columns.\n\
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
/ filters by name, enter shows or hides methods, receivers, peers, ranks, links and members, a shows or hides what is a \
part of another, such as the rings of a service, j and k or the arrows scroll.\n\
\n\
--once looks twice, an interval apart, prints the rates, and ends. --json does so, too, and prints an \
object with the keys interval_s, unseen (why something cannot be seen), services, channels, \
endpoints, monitors, groups and windows, with all parts. services holds objects with the keys name, pid, interface, clients, \
requests and errors (since the service began), requests_per_s, errors_per_s, bytes_per_s (arguments and results), p50_ns \
and p99_ns (null before a call was timed), and methods: objects with the key method and those from requests on. channels holds objects with the keys name, pid, senders, sent, messages_per_s, bytes_per_s, \
estimated_bytes_per_s (the part of bytes_per_s that is an estimate), waits_per_s, \
wakes_per_s, lag, drops, deaths, receivers_max and receivers: objects with the keys \
row, pid, messages_per_s, bytes_per_s, estimated_bytes_per_s, waits_per_s, \
wakes_per_s, lag, drops and is_asleep. endpoints holds objects with the keys name, pid, \
messages_per_s, bytes_per_s, estimated_bytes_per_s, waits_per_s, wakes_per_s, kept, \
kept_bytes, budget_bytes, drops, deaths, is_asleep, job and rank (of an MPI rank; else null), and peers: objects with the keys name, \
pid, sent and received (objects with the keys messages_per_s and bytes_per_s), kept and \
kept_bytes; and far_peers, those on other hosts: objects with the keys name, way (tcp or tls), sent, received, \
round_trip_us, unsent_bytes and reconnects. monitors holds objects with the keys monitor (its number), pid, circuits, \
frames_per_s, stored_lines and links: objects with the keys to and circuits. groups \
holds objects with the keys group, view, decided, decided_per_s, behind, ended (members of \
the view that have), members (objects with the keys place, pid, leads, accepts, behind and \
undecided) and silent (places of members that do not answer). windows holds objects with \
the keys name, pid, bytes, participants_max, participants (objects with the keys row and \
pid), locked_by (a row, or null), readers and counts_per_s.";

/// Watch services, channels, endpoints, monitors, groups and windows: rates, lag, waits, drops, deaths
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
    /// Show also what is a part of a service, a group, a monitor or a channel
    #[arg(long)]
    all: bool,
    /// Print the rates of one interval as JSON, and end
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    interval_s: f64,
    unseen: Vec<String>,
    services: Vec<Service>,
    channels: Vec<Channel>,
    endpoints: Vec<Endpoint>,
    monitors: Vec<Monitor>,
    groups: Vec<Group>,
    windows: Vec<Window>,
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
    let view = View {
        sort: args.sort,
        is_reversed: false,
        filter,
        shows_parts: true,
        shows_all: args.all,
    };
    if !args.once && !args.json {
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
        let Look {
            mut services,
            mut channels,
            mut endpoints,
            mut monitors,
            mut groups,
            mut windows,
            ..
        } = look;
        services.retain(|service| service.name.contains(&view.filter));
        channels.retain(|channel| channel.name.contains(&view.filter));
        endpoints.retain(|endpoint| endpoint.name.contains(&view.filter));
        monitors.retain(|one| format!("monitor {}", one.monitor).contains(&view.filter));
        groups.retain(|one| format!("group {}", one.group).contains(&view.filter));
        windows.retain(|window| window.name.contains(&view.filter));
        let interval_s = args.interval;
        let unseen = look.unseen;
        let report =
            Report { interval_s, unseen, services, channels, endpoints, monitors, groups, windows };
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
