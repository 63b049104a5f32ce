//! Rates: the difference between two looks at the channels, endpoints, services, monitors and groups.

use std::collections::BTreeMap;
use std::time::Instant;

use corewire::{
    ChannelView, Domain, EndpointView, FarPeerView, MessageSample, PeerView, ReceiverView,
    WindowView,
};
use corewire_bind::MethodTotals;
use corewire_group::GroupView;
use serde::Serialize;

use super::counting::{counter, per_second};
use super::peers::{FarPeer, Peer};
use super::services::Service;
use crate::failure::Failure;
use crate::parts::Owners;
use crate::ranks::Place;
use crate::seen::{self, Seen};

/// A channel, with its rates since the look before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) senders: usize,
    /// Messages since the channel was created.
    pub(crate) sent: u64,
    #[serde(flatten)]
    pub(crate) rates: Rates,
    /// The lag of its slowest receiver.
    pub(crate) lag: u64,
    /// Messages that receivers missed, and receivers that were evicted or held impossible values.
    pub(crate) drops: u64,
    /// Receivers that died.
    pub(crate) deaths: u64,
    pub(crate) receivers_max: u64,
    pub(crate) receivers: Vec<Receiver>,
}

/// A receiver, with its rates since the look before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Receiver {
    pub(crate) row: u16,
    pub(crate) pid: u32,
    #[serde(flatten)]
    pub(crate) rates: Rates,
    pub(crate) lag: u64,
    /// Messages that it missed.
    pub(crate) drops: u64,
    pub(crate) is_asleep: bool,
}

/// An endpoint, with its rates since the look before: what it sent and what it took in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Endpoint {
    pub(crate) name: String,
    pub(crate) pid: u32,
    #[serde(flatten)]
    pub(crate) rates: Rates,
    /// Messages that it keeps, since no receive has asked for them.
    pub(crate) kept: u64,
    /// What these take of the budget.
    pub(crate) kept_bytes: u64,
    pub(crate) budget_bytes: u64,
    /// Messages that were discarded, and peers whose memory held impossible values.
    pub(crate) drops: u64,
    /// Peers that died.
    pub(crate) deaths: u64,
    pub(crate) is_asleep: bool,
    pub(crate) peers: Vec<Peer>,
    pub(crate) far_peers: Vec<FarPeer>,
    #[serde(flatten)]
    pub(crate) place: Place,
}

/// A monitor, with its rate since the look before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Monitor {
    pub(crate) monitor: usize,
    pub(crate) pid: u32,
    /// Circuits through it.
    pub(crate) circuits: usize,
    /// Frames that it forwarded; a message of up to 4080 bytes is one.
    pub(crate) frames_per_s: f64,
    /// Lines of memory that hold frames which wait.
    pub(crate) stored_lines: usize,
    pub(crate) links: Vec<MonitorLink>,
}

/// A link of a monitor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MonitorLink {
    /// `process 12` or `monitor 1`.
    pub(crate) to: String,
    /// Circuits through it.
    pub(crate) circuits: usize,
}

/// A group, with its rate since the look before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Group {
    pub(crate) group: String,
    /// The number of the view, as the member says that knows the latest one.
    pub(crate) view: u64,
    /// Entries that are decided, as the member says that knows most.
    pub(crate) decided: u64,
    pub(crate) decided_per_s: f64,
    /// By how many entries the member that knows least is behind.
    pub(crate) behind: u64,
    /// Members of the view whose processes have ended.
    pub(crate) ended: usize,
    pub(crate) members: Vec<Member>,
    /// The places of members that do not answer.
    pub(crate) silent: Vec<u8>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Member {
    pub(crate) place: u8,
    pub(crate) pid: u32,
    pub(crate) leads: bool,
    pub(crate) accepts: bool,
    /// By how many entries it is behind.
    pub(crate) behind: u64,
    /// Its own commands that are not decided.
    pub(crate) undecided: u64,
}

/// A window, with the rate of its counters since the look before. What is put and got is not counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Window {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) bytes: u64,
    pub(crate) participants_max: u32,
    pub(crate) participants: Vec<Participant>,
    /// The row that has the lock alone.
    pub(crate) locked_by: Option<u32>,
    /// How many share the lock.
    pub(crate) readers: usize,
    /// Additions to all its counters.
    pub(crate) counts_per_s: f64,
}

/// A participant of a window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Participant {
    pub(crate) row: u32,
    pub(crate) pid: u32,
}

/// What a look has found.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) services: Vec<Service>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) monitors: Vec<Monitor>,
    pub(crate) groups: Vec<Group>,
    pub(crate) windows: Vec<Window>,
    /// What is a part of what.
    pub(crate) owners: Owners,
    /// Why others cannot be seen.
    pub(crate) unseen: Vec<String>,
}

/// Rates per second; zero at the first look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    pub(crate) messages_per_s: f64,
    /// Payload bytes: those of messages of more than 48 bytes, which are counted, and those of
    /// shorter ones.
    pub(crate) bytes_per_s: f64,
    /// The part of these that is an estimate.
    pub(crate) estimated_bytes_per_s: f64,
    pub(crate) waits_per_s: f64,
    pub(crate) wakes_per_s: f64,
}

/// Looks again and again.
pub(crate) struct Watcher {
    domain: Domain,
    channels: Before<ChannelView>,
    endpoints: Before<EndpointView>,
    /// The frames of monitors, by number and process.
    frames: BTreeMap<(usize, u32), (u64, Instant)>,
    /// The decided entries of groups, by name.
    decided: BTreeMap<String, (u64, Instant)>,
    /// The sums of windows' counters, by name and process.
    counted: BTreeMap<(String, u32), (u64, Instant)>,
    /// What services had served, by name and process.
    served: BTreeMap<(String, u32), (Vec<MethodTotals>, Instant)>,
}

/// The views of the look before, by name, and when they were taken.
type Before<View> = BTreeMap<String, (View, Instant)>;

impl Watcher {
    pub(crate) fn new(domain: Domain) -> Self {
        Self {
            domain,
            channels: Before::new(),
            endpoints: Before::new(),
            frames: BTreeMap::new(),
            decided: BTreeMap::new(),
            counted: BTreeMap::new(),
            served: BTreeMap::new(),
        }
    }

    /// The channels, endpoints, monitors and groups, with their rates since the last call.
    pub(crate) fn look(&mut self) -> Result<Look, Failure> {
        let seen = seen::look_and_ask_all(&self.domain)?;
        let owners = Owners::of(&seen);
        let Seen { channels, endpoints, services, windows, monitors, groups, silent, mut unseen } =
            seen;
        unseen.extend(silent.iter().map(|silent| format!("{} {}", silent.name, silent.text())));
        let now = Instant::now();
        let since = |at: &Instant| now.duration_since(*at).as_secs_f64();
        // Another of the same name begins anew.
        let of_channel = |view: &ChannelView| {
            let before = self.channels.get(&view.name);
            let before = before.filter(|(before, _)| before.incarnation == view.incarnation);
            Channel::between(
                before.map(|(before, _)| before),
                view,
                before.map(|(_, at)| since(at)),
            )
        };
        let of_endpoint = |view: &EndpointView| {
            let before = self.endpoints.get(&view.name);
            let before = before.filter(|(before, _)| before.incarnation == view.incarnation);
            Endpoint::between(before.map(|(before, at)| (before, since(at))), view)
        };
        let of_monitor = |monitor: &seen::Monitor| {
            let before = self.frames.get(&(monitor.routes.monitor, monitor.pid));
            Monitor::between(before.map(|(before, at)| (*before, since(at))), monitor)
        };
        let of_group = |view: &GroupView| {
            let before = self.decided.get(&view.name);
            Group::between(before.map(|(before, at)| (*before, since(at))), view)
        };
        let of_service = |service: &seen::Service| {
            let before = self.served.get(&(service.view.name.clone(), service.view.pid));
            Service::between(before.map(|(before, at)| (&before[..], since(at))), service)
        };
        let of_window = |view: &WindowView| {
            let before = self.counted.get(&(view.name.clone(), view.pid));
            Window::between(before.map(|(before, at)| (*before, since(at))), view)
        };
        let look = Look {
            windows: windows.iter().map(of_window).collect(),
            services: services.iter().filter_map(of_service).collect(),
            owners,
            channels: channels.iter().map(of_channel).collect(),
            endpoints: endpoints.iter().map(of_endpoint).collect(),
            monitors: monitors.iter().map(of_monitor).collect(),
            // Those of which nobody has answered are seen as endpoints.
            groups: groups.iter().filter(|view| !view.members.is_empty()).map(of_group).collect(),
            unseen,
        };
        let kept = |name: &String| name.clone();
        self.channels = channels.into_iter().map(|view| (kept(&view.name), (view, now))).collect();
        self.endpoints =
            endpoints.into_iter().map(|view| (kept(&view.name), (view, now))).collect();
        let frames = |monitor: seen::Monitor| {
            ((monitor.routes.monitor, monitor.pid), (monitor.routes.frames, now))
        };
        self.frames = monitors.into_iter().map(frames).collect();
        let decided = |view: &GroupView| (view.name.clone(), (view.most_decided(), now));
        self.decided = groups.iter().map(decided).collect();
        let counted = |view: WindowView| {
            let sum = sum(&view);
            ((view.name, view.pid), (sum, now))
        };
        self.counted = windows.into_iter().map(counted).collect();
        let served =
            |service: seen::Service| ((service.view.name, service.view.pid), (service.totals, now));
        self.served = services.into_iter().map(served).collect();
        Ok(look)
    }

    /// The directory whose channels are watched.
    pub(crate) fn place(&self) -> String {
        self.domain.runtime_directory().display().to_string()
    }
}

/// What all counters of a window hold together.
fn sum(view: &WindowView) -> u64 {
    view.counters.iter().fold(0, |sum, count| sum.wrapping_add(*count))
}

impl Window {
    /// With the sum of its counters at the look before, and the seconds since then.
    fn between(before: Option<(u64, f64)>, now: &WindowView) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = |(before, seconds): (u64, f64)| sum(now).wrapping_sub(before) as f64 / seconds;
        let participants = now.participants.iter();
        Self {
            name: now.name.clone(),
            pid: now.pid,
            bytes: now.bytes,
            participants_max: now.participants_max,
            participants: participants
                .map(|one| Participant { row: one.row, pid: one.pid })
                .collect(),
            locked_by: now.locked_by,
            readers: now.readers,
            counts_per_s: before.map_or(0.0, rate),
        }
    }
}

impl Channel {
    fn between(before: Option<&ChannelView>, now: &ChannelView, seconds: Option<f64>) -> Self {
        let receivers: Vec<_> = now
            .receivers
            .iter()
            .map(|receiver| {
                let same =
                    |other: &&ReceiverView| (other.row, other.pid) == (receiver.row, receiver.pid);
                let before = before.and_then(|before| before.receivers.iter().find(same));
                Receiver::between(before, receiver, &now.sample, seconds)
            })
            .collect();
        let count = |name: &str| counter(&now.counters, name);
        Self {
            name: now.name.clone(),
            pid: now.pid,
            senders: now.senders,
            sent: now.sent,
            rates: Rates::between(
                before.map(|before| (&before.counters[..], before.sent)),
                (&now.counters, now.sent),
                &now.sample,
                seconds,
            ),
            lag: receivers.iter().map(|receiver| receiver.lag).max().unwrap_or(0),
            drops: receivers.iter().map(|receiver| receiver.drops).sum::<u64>()
                + count("evictions")
                + count("violations"),
            deaths: count("deaths"),
            receivers_max: now.receivers_max,
            receivers,
        }
    }
}

impl Receiver {
    fn between(
        before: Option<&ReceiverView>,
        now: &ReceiverView,
        sample: &[MessageSample],
        seconds: Option<f64>,
    ) -> Self {
        Self {
            row: now.row,
            pid: now.pid,
            rates: Rates::between(
                before.map(|before| (&before.counters[..], before.cursor)),
                (&now.counters, now.cursor),
                sample,
                seconds,
            ),
            lag: now.lag,
            drops: counter(&now.counters, "missed"),
            is_asleep: now.is_asleep,
        }
    }
}

impl Endpoint {
    /// With the view of the look before, and the seconds since then.
    fn between(before: Option<(&EndpointView, f64)>, now: &EndpointView) -> Self {
        let peers: Vec<_> = now
            .peers
            .iter()
            .map(|peer| {
                let same = |other: &&PeerView| {
                    (other.row, other.pid, &other.name) == (peer.row, peer.pid, &peer.name)
                };
                let before = before.and_then(|(before, seconds)| {
                    before.peers.iter().find(same).map(|before| (before, seconds))
                });
                Peer::between(before, peer)
            })
            .collect();
        let far_peers = now.far_peers.iter().map(|peer| {
            let before = before.and_then(|(before, seconds)| {
                let same = |other: &&FarPeerView| {
                    (&other.name, other.reconnects) == (&peer.name, peer.reconnects)
                };
                before.far_peers.iter().find(same).map(|before| (before, seconds))
            });
            FarPeer::between(before, peer)
        });
        let far_peers = far_peers.collect();
        let count = |name: &str| counter(&now.counters, name);
        let rate = |name: &str| {
            before.map_or(0.0, |(before, seconds)| {
                per_second(counter(&before.counters, name), count(name), seconds)
            })
        };
        // Also what went to peers that have gone, and came from them.
        let flow = |of: fn(&EndpointView) -> u64| {
            before.map_or(0.0, |(before, seconds)| per_second(of(before), of(now), seconds))
        };
        Self {
            name: now.name.clone(),
            pid: now.pid,
            place: Place::of(&now.name),
            rates: Rates {
                messages_per_s: flow(|view| {
                    view.sent_messages.saturating_add(view.received_messages)
                }),
                bytes_per_s: flow(|view| view.sent_bytes.saturating_add(view.received_bytes)),
                estimated_bytes_per_s: 0.0,
                waits_per_s: rate("waits"),
                wakes_per_s: rate("wakes"),
            },
            kept: peers.iter().map(|peer| peer.kept).sum(),
            kept_bytes: now.kept_bytes,
            budget_bytes: now.budget_bytes,
            drops: count("discarded") + count("violations"),
            deaths: count("deaths"),
            is_asleep: now.is_asleep,
            peers,
            far_peers,
        }
    }
}

impl Monitor {
    /// With the frames of the look before, and the seconds since then.
    fn between(before: Option<(u64, f64)>, now: &seen::Monitor) -> Self {
        let seen::Monitor { pid, routes } = now;
        let links = routes.links.iter();
        Self {
            monitor: routes.monitor,
            pid: *pid,
            circuits: routes.circuits,
            frames_per_s: before.map_or(0.0, |(before, s)| per_second(before, routes.frames, s)),
            stored_lines: routes.stored_lines,
            links: links
                .map(|link| MonitorLink { to: link.to.clone(), circuits: link.circuits })
                .collect(),
        }
    }
}

impl Group {
    /// With the decided entries of the look before, and the seconds since then.
    fn between(before: Option<(u64, f64)>, now: &GroupView) -> Self {
        let decided = now.most_decided();
        let latest = now.members.iter().max_by_key(|seen| seen.view.number);
        let members: Vec<Member> = now
            .members
            .iter()
            .map(|seen| Member {
                place: seen.member.place,
                pid: seen.pid,
                leads: seen.view.leader == seen.member,
                accepts: seen.view.acceptor == seen.member,
                behind: decided - seen.decided,
                undecided: seen.undecided,
            })
            .collect();
        Self {
            group: now.name.clone(),
            view: latest.map_or(0, |seen| seen.view.number),
            decided,
            decided_per_s: before.map_or(0.0, |(before, s)| per_second(before, decided, s)),
            behind: members.iter().map(|member| member.behind).max().unwrap_or(0),
            ended: latest.map_or(0, |seen| seen.ended.len()),
            members,
            silent: now.silent.clone(),
        }
    }
}

type Counters<'a> = (&'a [(&'static str, u64)], u64);

impl Rates {
    /// From counters, and from numbers of messages, which are exact where their counter is not.
    fn between(
        before: Option<Counters<'_>>,
        now: Counters<'_>,
        sample: &[MessageSample],
        seconds: Option<f64>,
    ) -> Self {
        let (Some(before), Some(seconds)) = (before, seconds.filter(|&seconds| seconds > 0.0))
        else {
            return Self::default();
        };
        let rate = |before, now| per_second(before, now, seconds);
        let of = |name| rate(counter(before.0, name), counter(now.0, name));
        let lengths = sample.iter().map(|message| (message.sequence, message.short_bytes));
        let short = ShortBytes::between(lengths, before.1, now.1);
        let estimated = if short.is_exact { 0.0 } else { short.bytes };
        Self {
            messages_per_s: rate(before.1, now.1),
            bytes_per_s: of("bytes") + short.bytes / seconds,
            estimated_bytes_per_s: estimated / seconds,
            waits_per_s: of("waits"),
            wakes_per_s: of("wakes"),
        }
    }
}

/// Bytes of messages of up to 48 bytes. Their sender does not count them: a store for each message
/// would slow it down. Their lengths stand in the ring, where an observer has read some.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ShortBytes {
    bytes: f64,
    /// Every message was read.
    is_exact: bool,
}

impl ShortBytes {
    /// The bytes of the messages `first..end`, from a sample of the channel: sequence numbers, newest
    /// first, and lengths. A message of the sample stands for those between it and the next older one
    /// of the sample; messages beyond the sample are taken to be as long as the others.
    fn between(sample: impl Iterator<Item = (u64, u64)> + Clone, first: u64, end: u64) -> Self {
        let total = end.saturating_sub(first);
        let wanted = sample.clone().filter(|(sequence, _)| (first..end).contains(sequence));
        let is_exact = wanted.clone().count() as u64 == total;
        let (mut bytes, mut covered) = (0, 0);
        let mut wanted = wanted.peekable();
        while let Some((sequence, length)) = wanted.next() {
            let stands_for = wanted.peek().map_or(1, |&(older, _)| sequence.saturating_sub(older));
            bytes += length * stands_for;
            covered += stands_for;
        }
        if covered == 0 {
            // They lie outside of the sample: as long as the sampled messages are on average.
            bytes = sample.clone().map(|(_, length)| length).sum();
            covered = sample.count() as u64;
        }
        let mean = bytes as f64 / covered.max(1) as f64;
        Self { bytes: mean * total as f64, is_exact }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short_bytes(sample: &[(u64, u64)], first: u64, end: u64) -> (f64, bool) {
        let found = ShortBytes::between(sample.iter().copied(), first, end);
        (found.bytes, found.is_exact)
    }

    #[test]
    fn bytes_of_short_messages_are_exact_where_all_were_read_and_else_estimated() {
        let newest = [(9, 5), (8, 7), (7, 0), (6, 1)];
        assert_eq!(short_bytes(&newest, 7, 10), (12.0, true));
        assert_eq!(short_bytes(&newest, 10, 10), (0.0, true));
        // Two messages were not read.
        assert_eq!(short_bytes(&newest, 4, 10), (13.0 / 4.0 * 6.0, false));
        // 9 stands for 9 to 6, and 5 for itself.
        assert_eq!(short_bytes(&[(9, 10), (5, 20)], 5, 10), (10.0 * 4.0 + 20.0, false));
        // A receiver that is far behind.
        assert_eq!(short_bytes(&newest, 1, 3), (13.0 / 4.0 * 2.0, false));
        assert_eq!(short_bytes(&[], 0, 10), (0.0, false));
    }
}
