//! The lines of the table, and their cells.

use super::peers::{FarPeer, Flow, Peer};
use super::rates::{Endpoint, Member, MonitorLink, Participant, Rates, Receiver, Window};
use super::services::{Calls, Method};
use crate::units;

/// Titles of the columns, and whether they hold numbers.
pub(super) const COLUMNS: [(&str, bool); 9] = [
    ("name", false),
    ("pid", true),
    ("msg/s", true),
    ("bytes/s", true),
    ("lag", true),
    ("waits/s", true),
    ("wakes/s", true),
    ("drops", true),
    ("deaths", true),
];

/// Places of some of them.
pub(super) const PID: usize = 1;
pub(super) const MESSAGES: usize = 2;
pub(super) const BYTES: usize = 3;
pub(super) const LAG: usize = 4;
pub(super) const WAITS: usize = 5;
pub(super) const WAKES: usize = 6;
pub(super) const DROPS: usize = 7;
pub(super) const DEATHS: usize = 8;

/// A line of the table.
pub(super) struct Line {
    pub(super) cells: Vec<String>,
    /// A receiver of the channel above, a peer of the endpoint above, a rank of the job above, a link of the monitor above, a member of the group above, or a participant of the window above.
    pub(super) is_part: bool,
    /// Its name is followed by what matters as much as numbers.
    pub(super) says_more: bool,
    /// Messages, receivers or peers were dropped, or one of these died.
    pub(super) is_bad: bool,
}

pub(super) fn rates_of(served: &Calls) -> Rates {
    let Calls { requests_per_s, bytes_per_s, .. } = *served;
    Rates { messages_per_s: requests_per_s, bytes_per_s, ..Rates::default() }
}

/// `, p99 40 us`.
pub(super) fn p99(served: &Calls) -> String {
    served.p99_ns.map_or_else(String::new, |time| format!(", p99 {}", units::time(time)))
}

/// A service counts neither waits nor wakes, nor what it has not read.
pub(super) fn clear_uncounted(cells: &mut [String]) {
    for column in [LAG, WAITS, WAKES, DEATHS] {
        cells[column].clear();
    }
}

pub(super) fn of_method(method: &Method) -> Line {
    let Method { method, served } = method;
    let name = format!("  {method}{}", p99(served));
    let mut cells = cells(name, 0, &rates_of(served), [0, served.errors, 0]);
    clear_uncounted(&mut cells);
    cells[PID].clear();
    Line { cells, is_part: true, says_more: false, is_bad: false }
}

pub(super) fn of_receiver(receiver: &Receiver) -> Line {
    let Receiver { row, pid, rates, lag, drops, is_asleep } = receiver;
    let mut cells =
        cells(format!("  row {row}{}", asleep(*is_asleep)), *pid, rates, [*lag, *drops, 0]);
    // Deaths are counted for the channel.
    cells.pop();
    Line { cells, is_part: true, says_more: false, is_bad: *drops > 0 }
}

/// One line for each direction.
pub(super) fn of_peer(peer: &Peer) -> [Line; 2] {
    let line = |word: &str, flow: Flow, kept: Option<u64>| {
        let Flow { messages_per_s, bytes_per_s } = flow;
        let rates = Rates { messages_per_s, bytes_per_s, ..Rates::default() };
        let counts = [kept.unwrap_or(0), 0, 0];
        let mut cells = cells(format!("  {word} {}", peer.name), peer.pid, &rates, counts);
        // The rest is counted for the endpoint.
        cells.truncate(if kept.is_some() { LAG + 1 } else { LAG });
        Line { cells, is_part: true, says_more: false, is_bad: false }
    };
    [line("from", peer.received, Some(peer.kept)), line("to", peer.sent, None)]
}

/// One line for each direction. The one to it says how far away it is, and how much waits.
pub(super) fn of_far_peer(peer: &FarPeer) -> [Line; 2] {
    let line = |name: String, flow: Flow| {
        let Flow { messages_per_s, bytes_per_s } = flow;
        let rates = Rates { messages_per_s, bytes_per_s, ..Rates::default() };
        let mut cells = cells(name, 0, &rates, [0; 3]);
        cells.truncate(LAG);
        Line { cells, is_part: true, says_more: false, is_bad: false }
    };
    let FarPeer { name, way, round_trip_us, unsent_bytes, reconnects, .. } = peer;
    let mut how = format!(", {way}, {}", units::time(round_trip_us.saturating_mul(1000)));
    if *unsent_bytes > 0 {
        how += &format!(", {} unsent", units::size(*unsent_bytes));
    }
    if *reconnects > 0 {
        how += &format!(
            ", {reconnects} {}",
            if *reconnects == 1 { "reconnect" } else { "reconnects" }
        );
    }
    [line(format!("  from {name}"), peer.received), line(format!("  to {name}{how}"), peer.sent)]
}

pub(super) fn of_rank(endpoint: &Endpoint) -> Line {
    let Endpoint { pid, rates, kept, drops, deaths, place, .. } = endpoint;
    let rank = place.rank.unwrap_or_default();
    let name = format!("  rank {rank}{}", asleep(endpoint.is_asleep));
    let is_bad = *drops > 0 || *deaths > 0;
    Line {
        cells: cells(name, *pid, rates, [*kept, *drops, *deaths]),
        is_part: true,
        says_more: false,
        is_bad,
    }
}

pub(super) fn of_link(link: &MonitorLink) -> Line {
    let cells = vec![format!("  {}, {}", units::printable(&link.to), circuits(link.circuits))];
    Line { cells, is_part: true, says_more: false, is_bad: false }
}

pub(super) fn of_member(member: &Member) -> Line {
    let Member { place, pid, leads, accepts, behind, undecided } = member;
    let roles = match (leads, accepts) {
        (true, true) => ", leads and accepts",
        (true, false) => ", leads",
        (false, true) => ", accepts",
        (false, false) => "",
    };
    let own = match undecided {
        0 => String::new(),
        count => format!(", {count} undecided"),
    };
    let name = format!("  member {place}{roles}{own}");
    let mut cells = cells(name, *pid, &Rates::default(), [*behind, 0, 0]);
    cells[MESSAGES].clear();
    cells[BYTES].clear();
    cells.truncate(LAG + 1);
    Line { cells, is_part: true, says_more: false, is_bad: false }
}

pub(super) fn of_participant(one: &Participant) -> Line {
    let name = match one.row {
        0 => "  owner".to_owned(),
        row => format!("  participant {row}"),
    };
    let mut cells = cells(name, one.pid, &Rates::default(), [0; 3]);
    cells.truncate(MESSAGES);
    Line { cells, is_part: true, says_more: false, is_bad: false }
}

/// Who holds a window's lock.
pub(super) fn lock(window: &Window) -> String {
    match (window.locked_by, window.readers) {
        (Some(0), _) => ", locked by its owner".to_owned(),
        (Some(row), _) => format!(", locked by participant {row}"),
        (None, 0) => String::new(),
        (None, count) => format!(", locked by {}", units::counted(count, "reader", "readers")),
    }
}

pub(super) fn circuits(count: usize) -> String {
    units::counted(count, "circuit", "circuits")
}

pub(super) fn asleep(is_asleep: bool) -> &'static str {
    if is_asleep { ", asleep" } else { "" }
}

pub(super) fn cells(name: String, pid: u32, rates: &Rates, counts: [u64; 3]) -> Vec<String> {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let [lag, drops, deaths] = counts.map(|count| short(count as f64));
    let is_estimated = rates.estimated_bytes_per_s > 0.0;
    let bytes = format!("{}{}", if is_estimated { "~" } else { "" }, short(rates.bytes_per_s));
    vec![
        name,
        if pid == 0 { "-".to_owned() } else { pid.to_string() },
        short(rates.messages_per_s),
        bytes,
        lag,
        short(rates.waits_per_s),
        short(rates.wakes_per_s),
        drops,
        deaths,
    ]
}

/// Formats a number in at most six characters: `123`, `12.3k`, `4.56M`.
pub(super) fn short(number: f64) -> String {
    let (scaled, unit) = match number {
        ..9999.5 => return format!("{number:.0}"),
        ..999_950.0 => (number / 1e3, "k"),
        ..999_950_000.0 => (number / 1e6, "M"),
        ..999_950_000_000.0 => (number / 1e9, "G"),
        _ => (number / 1e12, "T"),
    };
    let decimals = match scaled {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$}{unit}")
}
