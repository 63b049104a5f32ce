//! Which lines are shown, and in which order.

use std::borrow::Cow;

use super::jobs::Job;
use super::lines::{
    BYTES, DROPS, LAG, Line, PID, WAITS, WAKES, asleep, cells, circuits, clear_uncounted, lock,
    of_far_peer, of_link, of_member, of_method, of_participant, of_peer, of_rank, of_receiver, p99,
    rates_of,
};
use super::rates::{Channel, Endpoint, Group, Look, Monitor, Rates, Window};
use super::services::Service;
use crate::units;

/// What the lines are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sort {
    Name,
    Messages,
    Bytes,
    Lag,
    Waits,
    Wakes,
    Drops,
    Deaths,
}

impl Sort {
    pub(super) const ALL: [Self; 8] = [
        Self::Name,
        Self::Messages,
        Self::Bytes,
        Self::Lag,
        Self::Waits,
        Self::Wakes,
        Self::Drops,
        Self::Deaths,
    ];

    /// The next one; after the last one, the first.
    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|&sort| sort == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    #[expect(clippy::cast_precision_loss, reason = "an order, not an amount")]
    fn of(self, named: Named<'_>) -> f64 {
        let Rates { messages_per_s, bytes_per_s, waits_per_s, wakes_per_s, .. } = named.rates();
        let [lag, drops, deaths] = named.counts().map(|count| count as f64);
        match self {
            Self::Name => 0.0,
            Self::Messages => messages_per_s,
            Self::Bytes => bytes_per_s,
            Self::Lag => lag,
            Self::Waits => waits_per_s,
            Self::Wakes => wakes_per_s,
            Self::Drops => drops,
            Self::Deaths => deaths,
        }
    }
}

/// What has a name, and so a line of its own.
#[derive(Clone, Copy)]
enum Named<'a> {
    Service(&'a Service),
    Channel(&'a Channel),
    Endpoint(&'a Endpoint),
    Job(&'a Job<'a>),
    Monitor(&'a Monitor),
    Group(&'a Group),
    Window(&'a Window),
}

impl<'a> Named<'a> {
    fn name(self) -> Cow<'a, str> {
        match self {
            Self::Service(service) => (&service.name).into(),
            Self::Channel(channel) => (&channel.name).into(),
            Self::Endpoint(endpoint) => (&endpoint.name).into(),
            Self::Job(job) => format!("job {}", job.number).into(),
            Self::Monitor(monitor) => format!("monitor {}", monitor.monitor).into(),
            Self::Group(group) => format!("group {}", group.group).into(),
            Self::Window(window) => (&window.name).into(),
        }
    }

    fn rates(self) -> Rates {
        match self {
            Self::Service(service) => rates_of(&service.served),
            Self::Channel(channel) => channel.rates,
            Self::Endpoint(endpoint) => endpoint.rates,
            Self::Job(job) => job.rates(),
            Self::Monitor(Monitor { frames_per_s, .. }) => {
                Rates { messages_per_s: *frames_per_s, ..Rates::default() }
            }
            Self::Group(Group { decided_per_s, .. }) => {
                Rates { messages_per_s: *decided_per_s, ..Rates::default() }
            }
            Self::Window(Window { counts_per_s, .. }) => {
                Rates { messages_per_s: *counts_per_s, ..Rates::default() }
            }
        }
    }

    /// Lag, drops, deaths.
    fn counts(self) -> [u64; 3] {
        match self {
            Self::Service(service) => [0, service.served.errors, 0],
            Self::Channel(channel) => [channel.lag, channel.drops, channel.deaths],
            Self::Endpoint(endpoint) => [endpoint.kept, endpoint.drops, endpoint.deaths],
            Self::Job(job) => {
                let sum = |of: fn(&Endpoint) -> u64| job.ranks.iter().map(|rank| of(rank)).sum();
                [sum(|rank| rank.kept), sum(|rank| rank.drops), sum(|rank| rank.deaths)]
            }
            Self::Monitor(monitor) => [monitor.stored_lines as u64, 0, 0],
            Self::Group(group) => [group.behind, 0, group.ended as u64],
            Self::Window(_) => [0; 3],
        }
    }

    fn line(self) -> Line {
        let (pid, state) = match self {
            Self::Service(service) => {
                let clients = units::counted(service.clients, "client", "clients");
                (service.pid, format!(", {clients}{}", p99(&service.served)))
            }
            Self::Channel(channel) => (channel.pid, String::new()),
            Self::Endpoint(endpoint) => (endpoint.pid, asleep(endpoint.is_asleep).to_owned()),
            Self::Job(job) => {
                (0, format!(", {}", units::counted(job.ranks.len(), "endpoint", "endpoints")))
            }
            Self::Monitor(monitor) => (monitor.pid, format!(", {}", circuits(monitor.circuits))),
            Self::Group(group) => (0, format!(", view {}", group.view)),
            Self::Window(window) => {
                (window.pid, format!(", {}{}", units::size(window.bytes), lock(window)))
            }
        };
        let [_, drops, deaths] = self.counts();
        let mut cells = cells(format!("{}{state}", self.name()), pid, &self.rates(), self.counts());
        if let Self::Service(_) = self {
            clear_uncounted(&mut cells);
        }
        if let Self::Monitor(_) = self {
            // The rest is counted for its endpoint.
            cells[BYTES].clear();
            cells.truncate(LAG + 1);
        }
        if let Self::Window(_) = self {
            // What is put and got is not counted, only what counters count.
            cells[BYTES].clear();
            cells.truncate(LAG);
        }
        if let Self::Job(_) = self {
            cells[PID].clear();
        }
        if let Self::Group(_) = self {
            // Its members have processes.
            for column in [PID, BYTES, WAITS, WAKES, DROPS] {
                cells[column].clear();
            }
        }
        // That a call fails may be what it is for.
        let is_bad = (drops > 0 || deaths > 0) && !matches!(self, Self::Service(_));
        let says_more = matches!(self, Self::Service(_));
        Line { cells, is_part: false, says_more, is_bad }
    }

    /// The lines of its receivers or peers.
    fn parts(self) -> Vec<Line> {
        match self {
            Self::Service(service) => service.methods.iter().map(of_method).collect(),
            Self::Channel(channel) => channel.receivers.iter().map(of_receiver).collect(),
            Self::Endpoint(Endpoint { peers, far_peers, .. }) => {
                let near = peers.iter().flat_map(of_peer);
                near.chain(far_peers.iter().flat_map(of_far_peer)).collect()
            }
            Self::Job(job) => job.ranks.iter().map(|rank| of_rank(rank)).collect(),
            Self::Monitor(monitor) => monitor.links.iter().map(of_link).collect(),
            Self::Group(group) => {
                let silent = group.silent.iter().map(|place| Line {
                    cells: vec![format!("  member {place} does not answer")],
                    is_part: true,
                    says_more: false,
                    is_bad: true,
                });
                group.members.iter().map(of_member).chain(silent).collect()
            }
            Self::Window(window) => window.participants.iter().map(of_participant).collect(),
        }
    }
}

/// What is shown.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    /// Only what has a name that contains this is shown.
    pub(super) filter: String,
    /// Whether methods, receivers, peers, ranks and links have lines.
    pub(super) shows_parts: bool,
    /// Whether names that are parts of others are shown: see [`crate::parts`].
    pub(super) shows_all: bool,
}

impl View {
    /// The text that is shown when there are no lines.
    pub(super) fn nothing(&self, place: &str) -> String {
        match self.filter.as_str() {
            "" => format!("No services, channels, endpoints or windows in {place}."),
            filter => format!("Nothing in {place} has a name that contains {filter:?}."),
        }
    }

    /// The lines for what a look has found.
    pub(super) fn lines(&self, look: &Look) -> Vec<Line> {
        let services = look.services.iter().map(Named::Service);
        let channels = services.chain(look.channels.iter().map(Named::Channel));
        let others = look.endpoints.iter().filter(|endpoint| endpoint.place.job.is_none());
        let jobs = Job::all(&look.endpoints);
        let named = channels.chain(others.map(Named::Endpoint)).chain(jobs.iter().map(Named::Job));
        let named = named.chain(look.monitors.iter().map(Named::Monitor));
        let named = named.chain(look.groups.iter().map(Named::Group));
        let named = named.chain(look.windows.iter().map(Named::Window));
        let is_own =
            |named: &Named<'_>| self.shows_all || look.owners.of_part(&named.name()).is_none();
        let named = named.filter(is_own).filter(|named| named.name().contains(&self.filter));
        let mut shown: Vec<_> = named.collect();
        shown.sort_by(|&a, &b| {
            let by_amount = self.sort.of(b).total_cmp(&self.sort.of(a));
            by_amount.then_with(|| a.name().cmp(&b.name()))
        });
        if self.is_reversed {
            shown.reverse();
        }
        let mut lines = Vec::new();
        for named in shown {
            lines.push(named.line());
            if self.shows_parts {
                lines.extend(named.parts());
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::Place;
    use crate::top::lines::short;
    use crate::top::peers::{FarPeer, Flow, Peer};
    use crate::top::rates::{Member, MonitorLink};

    /// A view of what has this in its name.
    fn filtered(filter: &str) -> View {
        View {
            sort: Sort::Messages,
            is_reversed: false,
            filter: filter.to_owned(),
            shows_parts: true,
            shows_all: false,
        }
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0"),
            (9999.0, "9999"),
            (12_345.0, "12.3k"),
            (999_949.0, "1000k"),
            (1_234_567.0, "1.23M"),
            (1.8e10, "18.0G"),
        ] {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn lines_are_sorted_filtered_and_reversed() {
        let channel = |name: &str, messages_per_s, lag| Channel {
            name: name.to_owned(),
            pid: 1,
            senders: 1,
            sent: 0,
            rates: Rates { messages_per_s, ..Rates::default() },
            lag,
            drops: 0,
            deaths: 0,
            receivers_max: 1,
            receivers: Vec::new(),
        };
        let channels = [channel("log", 5.0, 1), channel("image", 7.0, 0), channel("logs", 7.0, 9)];
        let look = Look { channels: channels.into(), ..Look::default() };
        let names = |sort, filter: &str, is_reversed| {
            let filter = filter.to_owned();
            let view = View { sort, is_reversed, filter, shows_parts: true, shows_all: false };
            let lines = view.lines(&look).into_iter().map(|line| line.cells[0].clone());
            lines.collect::<Vec<_>>()
        };
        assert_eq!(names(Sort::Messages, "", false), ["image", "logs", "log"]);
        assert_eq!(names(Sort::Lag, "", false), ["logs", "log", "image"]);
        assert_eq!(names(Sort::Name, "log", true), ["logs", "log"]);
    }

    #[test]
    fn a_monitor_says_how_many_circuits_go_where() {
        let link = |to: &str, circuits| MonitorLink { to: to.into(), circuits };
        let monitor = Monitor {
            monitor: 2,
            pid: 7,
            circuits: 3,
            frames_per_s: 12_345.0,
            stored_lines: 9,
            links: vec![link("monitor 1", 3), link("process 12", 1)],
        };
        let look = Look { monitors: vec![monitor], ..Look::default() };
        let lines = filtered("monitor").lines(&look).into_iter().map(|line| line.cells.join("|"));
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                "monitor 2, 3 circuits|7|12.3k||9",
                "  monitor 1, 3 circuits",
                "  process 12, 1 circuit"
            ]
        );
    }

    #[test]
    fn a_group_says_who_leads_and_who_is_behind() {
        let member = |place, behind| Member {
            place,
            pid: 70 + u32::from(place),
            leads: place == 0,
            accepts: place == 1,
            behind,
            undecided: u64::from(place),
        };
        let group = Group {
            group: "orders".into(),
            view: 3,
            decided: 100,
            decided_per_s: 12_345.0,
            behind: 5,
            ended: 1,
            members: vec![member(0, 0), member(1, 5)],
            silent: vec![2],
        };
        let look = Look { groups: vec![group], ..Look::default() };
        let lines = filtered("orders").lines(&look).into_iter().map(|line| line.cells.join("|"));
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                "group orders, view 3||12.3k||5||||1",
                "  member 0, leads|70|||0",
                "  member 1, accepts, 1 undecided|71|||5",
                "  member 2 does not answer",
            ]
        );
    }

    #[test]
    fn an_endpoint_has_a_line_for_each_direction_of_each_peer() {
        let flow = |messages_per_s| Flow { messages_per_s, bytes_per_s: 0.0 };
        let peer = Peer {
            name: "left".into(),
            pid: 2,
            sent: flow(3.0),
            received: flow(4.0),
            kept: 5,
            kept_bytes: 600,
        };
        let far = FarPeer {
            name: "left@b".into(),
            way: "tls".into(),
            sent: flow(6.0),
            received: flow(8.0),
            round_trip_us: 250,
            unsent_bytes: 2048,
            reconnects: 1,
        };
        let endpoint = Endpoint {
            name: "right".into(),
            pid: 1,
            rates: Rates { messages_per_s: 7.0, ..Rates::default() },
            kept: 5,
            kept_bytes: 600,
            budget_bytes: 1000,
            drops: 1,
            deaths: 0,
            is_asleep: true,
            peers: vec![peer],
            far_peers: vec![far],
            place: Place::default(),
        };
        let look = Look { endpoints: vec![endpoint], ..Look::default() };
        let lines = filtered("").lines(&look);
        let cells: Vec<_> = lines.iter().map(|line| line.cells.join(" ")).collect();
        assert_eq!(
            cells,
            [
                "right, asleep 1 7 0 5 0 0 1 0",
                "  from left 2 4 0 5",
                "  to left 2 3 0",
                "  from left@b - 8 0",
                "  to left@b, tls, 250 us, 2 KiB unsent, 1 reconnect - 6 0"
            ]
        );
        assert!(lines[0].is_bad && !lines[1].is_bad);
    }

    #[test]
    fn the_ranks_of_a_job_stand_below_it_in_their_order() {
        let endpoint = |rank: u32, messages_per_s| Endpoint {
            name: format!("mpi-12-{rank}-0"),
            pid: 90 - rank,
            rates: Rates { messages_per_s, ..Rates::default() },
            kept: 1,
            kept_bytes: 0,
            budget_bytes: 1000,
            drops: 0,
            deaths: u64::from(rank),
            is_asleep: rank == 1,
            peers: Vec::new(),
            far_peers: Vec::new(),
            place: Place { job: Some(12), rank: Some(rank) },
        };
        let look = Look { endpoints: vec![endpoint(1, 5.0), endpoint(0, 7.0)], ..Look::default() };
        let view = View { sort: Sort::Name, ..filtered("12") };
        let lines = view.lines(&look);
        let cells: Vec<_> = lines.iter().map(|line| line.cells.join("|")).collect();
        assert_eq!(
            cells,
            [
                "job 12, 2 endpoints||12|0|2|0|0|0|1",
                "  rank 0|90|7|0|1|0|0|0|0",
                "  rank 1, asleep|89|5|0|1|0|0|0|1",
            ]
        );
        assert!(lines[0].is_bad && !lines[1].is_bad && lines[2].is_bad);
    }
}
