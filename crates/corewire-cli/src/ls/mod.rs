//! `corewire ls`: the channels, endpoints, services, windows and groups that exist.

mod rows;

use corewire::NameKind;
use corewire_circuit::wire::monitor_of_name;

use self::rows::{Channel, Endpoint, Listed, Member, Row, Service, Window};
use crate::failure::Failure;
use crate::parts::Owners;
use crate::seen::{self, Seen, Silent};
use crate::{access, output, table, units};

const EXAMPLES: &str = "\
Example:
  corewire ls

A service is a name to which processes connect. Its columns: the PID; the interface
that it serves; clients that are bound; requests since it began, and those of them that
failed; how long half of the calls, and 99 of 100, took at most in the service (one call
in 16 is timed); - where it serves no interface or does not say within a second.
Columns of channels: the PID of the sender; receivers that have joined and run, and the
maximum; messages sent; how many messages the slowest receiver is behind, by its last
published cursor; the maximum length of a message; the memory of ring and payload;
processes that are joining. Columns of endpoints: the PID; peers, behind a + those on
other hosts, and the maximum of each;
messages sent and received since it was created, also to and from peers that have gone;
bytes of unexpected messages (no receive call matches them yet), and the limit; the peer
that sent most of these; whether a loan waits for a peer that has not released what it
was sent. Columns of windows: the PID of the owner; participants, and the maximum; the
length; what participants other than the owner may do; who holds the lock: the PID, or
how many share it. The endpoints of MPI ranks stand apart, by job and rank; the job is the process
that started its ranks. Of a group each member has a line: its place and process; L if it
leads and A if it accepts; the number of the view; entries that it knows to be decided;
by how many it is behind the one that knows most; its own commands that are not
decided. A PID is - for a process of another PID namespace that cannot be seen from here.
Looking costs a channel or an endpoint nothing, each process of a shared channel a
connection, and a service two answers. With --owner neither receivers nor endpoints nor
interfaces nor participants of windows are shown.

Parts of these, such as the rings of a service and of its clients, the channel and the
endpoints of a group, and the endpoints of a monitor, are listed only with --all.

A process that is stopped cannot answer: its names are listed with its PID after at
most a second, and the others are not delayed.

--json prints an array of objects with the key kind. Channels have name, pid,
receivers, receivers_max, sent, lag_max, largest_message_bytes, memory_bytes,
joining (an array of processes); with --owner, receivers and lag_max are null.
Endpoints have name, pid, peers, peers_max, far_peers (on other hosts), sent_messages, sent_bytes,
received_messages, received_bytes, kept_bytes, budget_bytes, most_kept_of (null if
nothing is kept), loan_waits_for, loan_bytes and unreleased_bytes (the peer for which
a loan of so many bytes waits, and what it had not released then; null), copy_refusal (why it could not copy large messages from a peer's
memory, or null), memory_bytes, job and rank (of an MPI rank; else null). Services have name, pid, interface, hash (16
hexadecimal digits, equal where two sides agree on all messages), bindings,
clients: objects with the keys pid, uid, gid and driver; totals: an object with the keys
requests, replies, errors, request_bytes, reply_bytes, p50_ns and p99_ns (null before a
call was timed); and methods: objects with the key method and those of totals. These are
null if it serves no interface or does not say. Windows have name, pid, bytes, rights (none, read, write or atomic),
participants (objects with the keys row and pid), participants_max, locked_by (a row, or null), readers and counters
(32 numbers); with --owner, participants, readers and counters are null. Objects of the kind member, one for each member of a group,
have group, place, pid, leads, accepts, view, members, decided, behind and undecided;
pid and what follows are null if it does not answer. Objects of the kind silent have name, is_endpoint, is_service, is_window and pid (0 if it is not known).
All have part_of: the name of what it is a part of, or null. Parts are printed also without --all.";

/// List channels, endpoints, services, windows and groups: owner, participants, undelivered messages.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// List also what is a part of a service, a group, a monitor or a channel: their rings, their members' endpoints
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let domain = access::open_domain()?;
    let is_guest = domain.is_guest();
    let seen = seen::look(&domain)?;
    let owners = Owners::of(&seen);
    let Seen { channels, endpoints, services, windows, groups, silent, unseen, .. } = seen;
    for why in unseen {
        eprintln!("corewire: {why}");
    }
    let channels = channels.into_iter().map(|view| Row::Channel(Channel::new(view, is_guest)));
    let endpoints = endpoints.into_iter().map(|view| Row::Endpoint(Endpoint::new(view)));
    let services = services.into_iter().map(|seen| Row::Service(Service::new(seen)));
    let windows = windows.into_iter().map(|view| Row::Window(Window::new(view, is_guest)));
    let silent = silent.into_iter().map(Row::Silent);
    let members = groups.into_iter().flat_map(Member::of).map(Row::Member);
    let rows = channels.chain(endpoints).chain(services).chain(windows).chain(members);
    let rows = rows.chain(silent);
    let mut lines: Vec<_> = rows
        .map(|row| {
            let part_of = row.name().and_then(|name| owners.of_part(name));
            Listed { row, part_of }
        })
        .collect();
    if args.json {
        return output::print_json(&lines);
    }
    if lines.is_empty() {
        let path = domain.runtime_directory().display();
        return output::print(&format!("No channels, endpoints, services or windows in {path}.\n"));
    }
    let all = lines.len();
    lines.retain(|line| args.all || line.part_of.is_none());
    let hidden = all - lines.len();
    let mut text = render(&lines.into_iter().map(|line| line.row).collect::<Vec<_>>());
    if hidden > 0 {
        let parts = units::counted(hidden, "part of these", "parts of these");
        text += &format!("\n--all lists also {parts}, such as rings\n");
    }
    output::print(&text)
}

const CHANNELS: [(&str, bool); 8] = [
    ("channel", false),
    ("pid", true),
    ("receivers", true),
    ("sent", true),
    ("max lag", true),
    ("largest", true),
    ("memory", true),
    ("", false),
];

const ENDPOINTS: [(&str, bool); 8] = [
    ("endpoint", false),
    ("pid", true),
    ("peers", true),
    ("sent", true),
    ("received", true),
    ("kept", true),
    ("top peer", false),
    ("", false),
];

const RANKS: [(&str, bool); 10] = [
    ("job", true),
    ("rank", true),
    ("endpoint", false),
    ("pid", true),
    ("peers", true),
    ("sent", true),
    ("received", true),
    ("kept", true),
    ("top peer", false),
    ("", false),
];

const MEMBERS: [(&str, bool); 9] = [
    ("group", false),
    ("member", true),
    ("pid", true),
    ("role", false),
    ("view", true),
    ("decided", true),
    ("behind", true),
    ("undecided", true),
    ("", false),
];

const SERVICES: [(&str, bool); 9] = [
    ("service", false),
    ("pid", true),
    ("interface", false),
    ("clients", true),
    ("requests", true),
    ("errors", true),
    ("p50", true),
    ("p99", true),
    ("", false),
];

const WINDOWS: [(&str, bool); 6] = [
    ("window", false),
    ("pid", true),
    ("participants", true),
    ("length", true),
    ("rights", false),
    ("", false),
];

/// The names whose processes do not answer stand below those of their kind that do.
fn render(rows: &[Row]) -> String {
    let silent = |kind: NameKind| {
        rows.iter().filter_map(move |row| match row {
            Row::Silent(silent) if silent.kind == kind.into() => Some(silent),
            _ => None,
        })
    };
    let cells = |of: fn(&Row) -> Option<Vec<String>>| rows.iter().filter_map(of);
    let channels: Vec<_> = cells(|row| match row {
        Row::Channel(channel) => Some(channel.cells()),
        _ => None,
    })
    .chain(silent(NameKind::Channel).map(|silent| padded(silent, &CHANNELS)))
    .collect();
    let endpoints: Vec<_> = cells(|row| match row {
        Row::Endpoint(endpoint) if endpoint.place.job.is_none() => Some(endpoint.cells()),
        _ => None,
    })
    .chain(silent(NameKind::Endpoint).map(|silent| padded(silent, &ENDPOINTS)))
    .collect();
    let mut ranks: Vec<_> = rows
        .iter()
        .filter_map(|row| match row {
            Row::Endpoint(endpoint) => Some((endpoint.place, endpoint)),
            _ => None,
        })
        .collect();
    ranks.sort_by_key(|(place, _)| *place);
    let ranks: Vec<_> = ranks
        .into_iter()
        .filter_map(|(_, endpoint)| Some([endpoint.cells_of_place()?, endpoint.cells()].concat()))
        .collect();
    let is_monitor = |row: &&Row| row.name().is_some_and(|name| monitor_of_name(name).is_some());
    let (monitors, others): (Vec<_>, Vec<_>) = rows.iter().partition(is_monitor);
    let services = others.into_iter().chain(monitors);
    let services: Vec<_> = services
        .filter_map(|row| match row {
            Row::Service(service) => Some(service.cells()),
            _ => None,
        })
        .chain(silent(NameKind::Listener).map(|silent| padded(silent, &SERVICES)))
        .collect();
    let windows: Vec<_> = cells(|row| match row {
        Row::Window(window) => Some(window.cells()),
        _ => None,
    })
    .chain(silent(NameKind::Window).map(|silent| padded(silent, &WINDOWS)))
    .collect();
    let members: Vec<_> = cells(|row| match row {
        Row::Member(member) => Some(member.cells()),
        _ => None,
    })
    .collect();
    let mut text = String::new();
    let tables: [(&[_], _); 6] = [
        (&SERVICES, services),
        (&CHANNELS, channels),
        (&ENDPOINTS, endpoints),
        (&RANKS, ranks),
        (&WINDOWS, windows),
        (&MEMBERS, members),
    ];
    for (columns, lines) in tables.iter().filter(|(_, lines)| !lines.is_empty()) {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &table::render(columns, lines);
    }
    for row in rows {
        if let Row::Endpoint(Endpoint { name, copy_refusal: Some(why), .. }) = row {
            text += &format!("\n{name} gets messages of more than 128 KiB in two copies: {why}\n");
        }
    }
    text
}

/// A line for a name whose process does not answer, which the last cell says.
fn padded(silent: &Silent, columns: &[(&str, bool)]) -> Vec<String> {
    let mut cells = vec!["-".to_owned(); columns.len()];
    cells[0].clone_from(&silent.name);
    if silent.pid != 0 {
        cells[1] = silent.pid.to_string();
    }
    cells[columns.len() - 1] = silent.text();
    cells
}
