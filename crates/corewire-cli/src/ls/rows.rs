//! What there is, as rows: the values that `--json` prints, and the cells of the tables.

use corewire::{ChannelView, EndpointView, WindowView};
use corewire_bind::{Bindings, Identity, MethodTotals};
use corewire_group::GroupView;
use serde::Serialize;

use crate::ranks::Place;
use crate::seen::{self, Silent};
use crate::served::Served;
use crate::units;

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Row {
    Channel(Channel),
    Endpoint(Endpoint),
    Service(Service),
    Window(Window),
    Member(Member),
    Silent(Silent),
}

/// A row, and what it is a part of.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    #[serde(flatten)]
    pub(super) row: Row,
    pub(super) part_of: Option<String>,
}

impl Row {
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Channel(channel) => Some(&channel.name),
            Self::Endpoint(endpoint) => Some(&endpoint.name),
            Self::Service(service) => Some(&service.name),
            Self::Window(window) => Some(&window.name),
            Self::Silent(silent) => Some(&silent.name),
            Self::Member(_) => None,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Channel {
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) receivers: Option<usize>,
    pub(super) receivers_max: u64,
    pub(super) sent: u64,
    pub(super) lag_max: Option<u64>,
    pub(super) largest_message_bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) joining: Vec<u32>,
}

#[derive(Debug, Serialize)]
pub(super) struct Endpoint {
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) peers: usize,
    pub(super) peers_max: u64,
    pub(super) far_peers: usize,
    pub(super) sent_messages: u64,
    pub(super) sent_bytes: u64,
    pub(super) received_messages: u64,
    pub(super) received_bytes: u64,
    pub(super) kept_bytes: u64,
    pub(super) budget_bytes: u64,
    pub(super) most_kept_of: Option<String>,
    pub(super) loan_waits_for: Option<String>,
    pub(super) loan_bytes: Option<u64>,
    pub(super) unreleased_bytes: Option<u64>,
    pub(super) copy_refusal: Option<String>,
    pub(super) memory_bytes: u64,
    #[serde(flatten)]
    pub(super) place: Place,
}

#[derive(Debug, Serialize)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) interface: Option<String>,
    pub(super) hash: Option<String>,
    pub(super) bindings: Option<usize>,
    pub(super) clients: Option<Vec<Client>>,
    pub(super) totals: Option<Served>,
    pub(super) methods: Option<Vec<Method>>,
}

#[derive(Debug, Serialize)]
pub(super) struct Window {
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) bytes: u64,
    pub(super) rights: &'static str,
    pub(super) participants: Option<Vec<Participant>>,
    pub(super) participants_max: u32,
    pub(super) locked_by: Option<u32>,
    pub(super) readers: Option<usize>,
    pub(super) counters: Option<Vec<u64>>,
}

#[derive(Debug, Serialize)]
pub(super) struct Participant {
    pub(super) row: u32,
    pub(super) pid: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct Method {
    pub(super) method: String,
    #[serde(flatten)]
    pub(super) served: Served,
}

#[derive(Debug, Serialize)]
pub(super) struct Member {
    pub(super) group: String,
    pub(super) place: u8,
    pub(super) pid: Option<u32>,
    pub(super) leads: Option<bool>,
    pub(super) accepts: Option<bool>,
    pub(super) view: Option<u64>,
    pub(super) members: Option<usize>,
    pub(super) decided: Option<u64>,
    pub(super) behind: Option<u64>,
    pub(super) undecided: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Client {
    pub(super) pid: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) driver: String,
}

impl Channel {
    /// What is known of a channel. Guests are not shown its receivers.
    pub(super) fn new(view: ChannelView, is_guest: bool) -> Self {
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

    pub(super) fn cells(&self) -> Vec<String> {
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
    pub(super) fn new(view: EndpointView) -> Self {
        let most = view.peers.iter().filter(|peer| peer.kept_bytes > 0);
        let most = most.max_by_key(|peer| peer.kept_bytes).map(|peer| peer.name.clone());
        let waits = view.peers.iter().find(|peer| peer.loan_waiting_bytes > 0);
        Self {
            loan_waits_for: waits.map(|peer| peer.name.clone()),
            loan_bytes: waits.map(|peer| peer.loan_waiting_bytes),
            unreleased_bytes: waits.map(|peer| peer.unreleased_bytes),
            pid: view.pid,
            peers: view.peers.len(),
            far_peers: view.far_peers.len(),
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
    pub(super) fn cells_of_place(&self) -> Option<Vec<String>> {
        let Place { job, rank } = self.place;
        Some(vec![job?.to_string(), rank?.to_string()])
    }

    pub(super) fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            pid_or_dash(self.pid),
            match self.far_peers {
                0 => format!("{}/{}", self.peers, self.peers_max),
                far => format!("{}+{far}/{}", self.peers, self.peers_max),
            },
            units::grouped(self.sent_messages),
            units::grouped(self.received_messages),
            format!("{}/{}", units::size(self.kept_bytes), units::size(self.budget_bytes)),
            self.most_kept_of.clone().unwrap_or_else(|| "-".to_owned()),
            self.waits().unwrap_or_default(),
        ]
    }

    /// What it waits for.
    pub(super) fn waits(&self) -> Option<String> {
        let (bytes, kept) = (units::size(self.loan_bytes?), units::size(self.unreleased_bytes?));
        let peer = self.loan_waits_for.as_ref()?;
        Some(format!("a loan of {bytes} waits: {peer} keeps {kept}"))
    }
}

impl Member {
    /// The members of a group; those that do not answer come last.
    pub(super) fn of(group: GroupView) -> impl Iterator<Item = Self> {
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

    pub(super) fn cells(&self) -> Vec<String> {
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
    pub(super) fn new(seen: seen::Service) -> Self {
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

    pub(super) fn cells(&self) -> Vec<String> {
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

impl Window {
    /// What is known of a window. Guests are not shown who takes part.
    pub(super) fn new(view: WindowView, is_guest: bool) -> Self {
        let participants = view.participants.into_iter();
        let participants = participants.map(|one| Participant { row: one.row, pid: one.pid });
        Self {
            name: view.name,
            pid: view.pid,
            bytes: view.bytes,
            rights: view.rights_of_others.name(),
            participants: (!is_guest).then(|| participants.collect()),
            participants_max: view.participants_max,
            locked_by: view.locked_by,
            readers: (!is_guest).then_some(view.readers),
            counters: (!is_guest).then_some(view.counters),
        }
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let count = self.participants.as_ref().map(Vec::len);
        let count = count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        vec![
            self.name.clone(),
            pid_or_dash(self.pid),
            format!("{count}/{}", self.participants_max),
            units::size(self.bytes),
            self.rights.to_owned(),
            self.lock(),
        ]
    }

    /// Who holds the lock.
    pub(super) fn lock(&self) -> String {
        let pid = |row: u32| {
            let mut participants = self.participants.iter().flatten();
            participants.find(|one| one.row == row).map(|one| one.pid)
        };
        match (self.locked_by, self.readers) {
            (Some(row), _) => match pid(row) {
                Some(pid) => format!("locked by {}", pid_or_dash(pid)),
                None => "locked".to_owned(),
            },
            (None, Some(1)) => "locked by a reader".to_owned(),
            (None, Some(count @ 2..)) => format!("locked by {count} readers"),
            (None, _) => String::new(),
        }
    }
}

/// The number of a process, unless it cannot be seen from here.
fn pid_or_dash(pid: u32) -> String {
    if pid == 0 { "-".to_owned() } else { pid.to_string() }
}
