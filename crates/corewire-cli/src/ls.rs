//! `corewire ls`: the channels, endpoints, services and groups that exist.

use corewire::{ChannelView, EndpointView};
use corewire_bind::{Bindings, Identity, MethodTotals};
use corewire_circuit::wire::monitor_of_name;
use corewire_group::GroupView;
use serde::Serialize;

use crate::failure::Failure;
use crate::parts::Owners;
use crate::ranks::Place;
use crate::seen::{self, Seen, Silent};
use crate::served::Served;
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
processes that are joining. Columns of endpoints: the PID; peers, and the maximum;
messages sent and received since it was created, also to and from peers that have gone;
bytes of unexpected messages (no receive call matches them yet), and the limit; the peer
that sent most of these; whether a loan waits for a peer that has not released what it
was sent. The endpoints of MPI ranks stand apart, by job and rank; the job is the process
that started its ranks. Of a group each member has a line: its place and process; L if it
leads and A if it accepts; the number of the view; entries that it knows to be decided;
by how many it is behind the one that knows most; its own commands that are not
decided. A PID is - for a process of another PID namespace that cannot be seen from here.
Looking costs a channel or an endpoint nothing, each process of a shared channel a
connection, and a service two answers. With --owner neither receivers nor endpoints nor
interfaces are shown.

Parts of these, such as the rings of a service and of its clients, the channel and the
endpoints of a group, and the endpoints of a monitor, are listed only with --all.

A process that is stopped cannot answer: its names are listed with its PID after at
most a second, and the others are not delayed.

--json prints an array of objects with the key kind. Channels have name, pid,
receivers, receivers_max, sent, lag_max, largest_message_bytes, memory_bytes,
joining (an array of processes); with --owner, receivers and lag_max are null.
Endpoints have name, pid, peers, peers_max, sent_messages, sent_bytes,
received_messages, received_bytes, kept_bytes, budget_bytes, most_kept_of (null if
nothing is kept), loan_waits_for, loan_bytes and unreleased_bytes (the peer for which
a loan of so many bytes waits, and what it had not released then; null), copy_refusal (why it could not copy large messages from a peer's
memory, or null), memory_bytes, job and rank (of an MPI rank; else null). Services have name, pid, interface, hash (16
hexadecimal digits, equal where two sides agree on all messages), bindings,
clients: objects with the keys pid, uid, gid and driver; totals: an object with the keys
requests, replies, errors, request_bytes, reply_bytes, p50_ns and p99_ns (null before a
call was timed); and methods: objects with the key method and those of totals. These are
null if it serves no interface or does not say. Objects of the kind member, one for each member of a group,
have group, place, pid, leads, accepts, view, members, decided, behind and undecided;
pid and what follows are null if it does not answer. Objects of the kind silent have name, is_endpoint, is_service and pid (0 if it is not known).
All have part_of: the name of what it is a part of, or null. Parts are printed also without --all.";

/// List channels, endpoints, services and groups: owner, participants, undelivered messages.
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

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Row {
    Channel(Channel),
    Endpoint(Endpoint),
    Service(Service),
    Member(Member),
    Silent(Silent),
}

/// A row, and what it is a part of.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    row: Row,
    part_of: Option<String>,
}

impl Row {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Channel(channel) => Some(&channel.name),
            Self::Endpoint(endpoint) => Some(&endpoint.name),
            Self::Service(service) => Some(&service.name),
            Self::Silent(silent) => Some(&silent.name),
            Self::Member(_) => None,
        }
    }
}

#[derive(Debug, Serialize)]
struct Channel {
    name: String,
    pid: u32,
    receivers: Option<usize>,
    receivers_max: u64,
    sent: u64,
    lag_max: Option<u64>,
    largest_message_bytes: u64,
    memory_bytes: u64,
    joining: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct Endpoint {
    name: String,
    pid: u32,
    peers: usize,
    peers_max: u64,
    sent_messages: u64,
    sent_bytes: u64,
    received_messages: u64,
    received_bytes: u64,
    kept_bytes: u64,
    budget_bytes: u64,
    most_kept_of: Option<String>,
    loan_waits_for: Option<String>,
    loan_bytes: Option<u64>,
    unreleased_bytes: Option<u64>,
    copy_refusal: Option<String>,
    memory_bytes: u64,
    #[serde(flatten)]
    place: Place,
}

#[derive(Debug, Serialize)]
struct Service {
    name: String,
    pid: u32,
    interface: Option<String>,
    hash: Option<String>,
    bindings: Option<usize>,
    clients: Option<Vec<Client>>,
    totals: Option<Served>,
    methods: Option<Vec<Method>>,
}

#[derive(Debug, Serialize)]
struct Method {
    method: String,
    #[serde(flatten)]
    served: Served,
}

#[derive(Debug, Serialize)]
struct Member {
    group: String,
    place: u8,
    pid: Option<u32>,
    leads: Option<bool>,
    accepts: Option<bool>,
    view: Option<u64>,
    members: Option<usize>,
    decided: Option<u64>,
    behind: Option<u64>,
    undecided: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Client {
    pid: u32,
    uid: u32,
    gid: u32,
    driver: String,
}

impl Channel {
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
            joining: view.joining,
            name: view.name,
        }
    }

    fn cells(&self) -> Vec<String> {
        let receivers = self.receivers.map_or_else(|| "-".to_owned(), |count| count.to_string());
        vec![
            self.name.clone(),
            pid_or_dash(self.pid),
            format!("{receivers}/{}", self.receivers_max),
            units::grouped(self.sent),
            self.lag_max.map_or_else(|| "-".to_owned(), units::grouped),
            units::size(self.largest_message_bytes),
            units::size(self.memory_bytes),
            seen::joining(&self.joining),
        ]
    }
}

impl Endpoint {
    fn new(view: EndpointView) -> Self {
        let most = view.peers.iter().filter(|peer| peer.kept_bytes > 0);
        let most = most.max_by_key(|peer| peer.kept_bytes).map(|peer| peer.name.clone());
        let waits = view.peers.iter().find(|peer| peer.loan_waiting_bytes > 0);
        Self {
            loan_waits_for: waits.map(|peer| peer.name.clone()),
            loan_bytes: waits.map(|peer| peer.loan_waiting_bytes),
            unreleased_bytes: waits.map(|peer| peer.unreleased_bytes),
            pid: view.pid,
            peers: view.peers.len(),
            peers_max: view.peers_max,
            sent_messages: view.sent_messages,
            sent_bytes: view.sent_bytes,
            received_messages: view.received_messages,
            received_bytes: view.received_bytes,
            kept_bytes: view.kept_bytes,
            budget_bytes: view.budget_bytes,
            most_kept_of: most,
            copy_refusal: view.copy_refusal,
            memory_bytes: view.segment_bytes,
            place: Place::of(&view.name),
            name: view.name,
        }
    }

    /// What an MPI rank has before the cells of all endpoints; nothing for other endpoints.
    fn cells_of_place(&self) -> Option<Vec<String>> {
        let Place { job, rank } = self.place;
        Some(vec![job?.to_string(), rank?.to_string()])
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            pid_or_dash(self.pid),
            format!("{}/{}", self.peers, self.peers_max),
            units::grouped(self.sent_messages),
            units::grouped(self.received_messages),
            format!("{}/{}", units::size(self.kept_bytes), units::size(self.budget_bytes)),
            self.most_kept_of.clone().unwrap_or_else(|| "-".to_owned()),
            self.waits().unwrap_or_default(),
        ]
    }

    /// What it waits for.
    fn waits(&self) -> Option<String> {
        let (bytes, kept) = (units::size(self.loan_bytes?), units::size(self.unreleased_bytes?));
        let peer = self.loan_waits_for.as_ref()?;
        Some(format!("a loan of {bytes} waits: {peer} keeps {kept}"))
    }
}

impl Member {
    /// The members of a group; those that do not answer come last.
    fn of(group: GroupView) -> impl Iterator<Item = Self> {
        let most = group.most_decided();
        let name = group.name;
        let answered = group.members.into_iter().map({
            let name = name.clone();
            move |seen| Self {
                group: name.clone(),
                place: seen.member.place,
                pid: Some(seen.pid),
                leads: Some(seen.view.leader == seen.member),
                accepts: Some(seen.view.acceptor == seen.member),
                view: Some(seen.view.number),
                members: Some(seen.view.members.len()),
                decided: Some(seen.decided),
                behind: Some(most - seen.decided),
                undecided: Some(seen.undecided),
            }
        });
        let silent = group.silent.into_iter().map(move |place| Self {
            group: name.clone(),
            place,
            pid: None,
            leads: None,
            accepts: None,
            view: None,
            members: None,
            decided: None,
            behind: None,
            undecided: None,
        });
        answered.chain(silent)
    }

    fn cells(&self) -> Vec<String> {
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), units::grouped);
        let roles = [(self.leads, "L"), (self.accepts, "A")];
        let roles: String =
            roles.iter().filter(|(has, _)| *has == Some(true)).map(|(_, role)| *role).collect();
        vec![
            self.group.clone(),
            self.place.to_string(),
            self.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            roles,
            count(self.view),
            count(self.decided),
            count(self.behind),
            count(self.undecided),
            if self.pid.is_some() { String::new() } else { "does not answer".to_owned() },
        ]
    }
}

impl Service {
    fn new(seen: seen::Service) -> Self {
        let (name, pid) = (seen.view.name, seen.view.pid);
        let Some(Bindings { interface, hash, clients, .. }) = seen.bindings else {
            let (interface, hash, bindings, clients) = (None, None, None, None);
            let (totals, methods) = (None, None);
            return Self { name, pid, interface, hash, bindings, clients, totals, methods };
        };
        let methods = seen.totals.iter().map(|one| {
            let method = one.method.clone();
            Method { method, served: Served::of(one) }
        });
        let clients = clients.iter().map(|client| {
            let Identity { pid, uid, gid } = client.identity;
            Client { pid, uid, gid, driver: client.driver.to_string() }
        });
        let clients = clients.collect::<Vec<_>>();
        Self {
            name,
            pid,
            interface: Some(interface),
            hash: Some(format!("{hash:016x}")),
            bindings: Some(clients.len()),
            clients: Some(clients),
            totals: Some(Served::of(&MethodTotals::sum(&seen.totals))),
            methods: Some(methods.collect()),
        }
    }

    fn cells(&self) -> Vec<String> {
        let unknown = || "-".to_owned();
        let totals = |of: fn(&Served) -> String| self.totals.as_ref().map_or_else(unknown, of);
        let time = |time: Option<u64>| time.map_or_else(unknown, units::time);
        let times = self.totals.as_ref().map_or((None, None), |all| (all.p50_ns, all.p99_ns));
        vec![
            self.name.clone(),
            pid_or_dash(self.pid),
            self.interface.as_deref().map_or_else(unknown, units::printable),
            self.bindings.map_or_else(unknown, |count| count.to_string()),
            totals(|all| units::grouped(all.requests)),
            totals(|all| units::grouped(all.errors)),
            time(times.0),
            time(times.1),
            String::new(),
        ]
    }
}

/// The number of a process, unless it cannot be seen from here.
fn pid_or_dash(pid: u32) -> String {
    if pid == 0 { "-".to_owned() } else { pid.to_string() }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let domain = access::open_domain()?;
    let is_guest = domain.is_guest();
    let seen = seen::look(&domain)?;
    let owners = Owners::of(&seen);
    let Seen { channels, endpoints, services, groups, silent, unseen, .. } = seen;
    for why in unseen {
        eprintln!("corewire: {why}");
    }
    let channels = channels.into_iter().map(|view| Row::Channel(Channel::new(view, is_guest)));
    let endpoints = endpoints.into_iter().map(|view| Row::Endpoint(Endpoint::new(view)));
    let services = services.into_iter().map(|seen| Row::Service(Service::new(seen)));
    let silent = silent.into_iter().map(Row::Silent);
    let members = groups.into_iter().flat_map(Member::of).map(Row::Member);
    let rows = channels.chain(endpoints).chain(services).chain(members).chain(silent);
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
        return output::print(&format!("No channels, endpoints or services in {path}.\n"));
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

/// The names whose processes do not answer stand below those of their kind that do.
fn render(rows: &[Row]) -> String {
    let silent = |is_endpoint, is_service| {
        rows.iter().filter_map(move |row| match row {
            Row::Silent(silent)
                if (silent.is_endpoint, silent.is_service) == (is_endpoint, is_service) =>
            {
                Some(silent)
            }
            _ => None,
        })
    };
    let cells = |of: fn(&Row) -> Option<Vec<String>>| rows.iter().filter_map(of);
    let channels: Vec<_> = cells(|row| match row {
        Row::Channel(channel) => Some(channel.cells()),
        _ => None,
    })
    .chain(silent(false, false).map(|silent| padded(silent, &CHANNELS)))
    .collect();
    let endpoints: Vec<_> = cells(|row| match row {
        Row::Endpoint(endpoint) if endpoint.place.job.is_none() => Some(endpoint.cells()),
        _ => None,
    })
    .chain(silent(true, false).map(|silent| padded(silent, &ENDPOINTS)))
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
        .chain(silent(false, true).map(|silent| padded(silent, &SERVICES)))
        .collect();
    let members: Vec<_> = cells(|row| match row {
        Row::Member(member) => Some(member.cells()),
        _ => None,
    })
    .collect();
    let mut text = String::new();
    let tables: [(&[_], _); 5] = [
        (&SERVICES, services),
        (&CHANNELS, channels),
        (&ENDPOINTS, endpoints),
        (&RANKS, ranks),
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
