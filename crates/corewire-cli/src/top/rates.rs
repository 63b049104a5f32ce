//! What moves: two looks at the channels, and what lies between them.

use std::collections::BTreeMap;
use std::time::Instant;

use corewire::{ChannelView, Domain, ReceiverView};
use serde::Serialize;

use crate::failure::Failure;
use crate::seen::{self, Seen};

/// A channel, since the look before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) senders: usize,
    /// Messages, since the channel was made.
    pub(crate) sent: u64,
    #[serde(flatten)]
    pub(crate) rates: Rates,
    /// Of its slowest receiver.
    pub(crate) lag: u64,
    /// Messages that receivers missed, receivers that were evicted, or that held impossible values.
    pub(crate) drops: u64,
    /// Receivers that died.
    pub(crate) deaths: u64,
    pub(crate) receivers_max: u64,
    pub(crate) receivers: Vec<Receiver>,
}

/// A receiver, since the look before.
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

/// How often, in a second; zero at the first look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    pub(crate) messages_per_s: f64,
    /// Of messages of more than 48 bytes.
    pub(crate) bytes_per_s: f64,
    pub(crate) waits_per_s: f64,
    pub(crate) wakes_per_s: f64,
}

/// Looks again and again.
pub(crate) struct Watcher {
    domain: Domain,
    before: BTreeMap<String, (ChannelView, Instant)>,
}

impl Watcher {
    pub(crate) fn new(domain: Domain) -> Self {
        Self { domain, before: BTreeMap::new() }
    }

    /// The channels as they are now, and why some of them cannot be seen.
    pub(crate) fn views(&self) -> Result<(Vec<ChannelView>, Vec<String>), Failure> {
        let Seen { channels, silent, mut unseen, .. } = seen::look(&self.domain)?;
        unseen.extend(silent.iter().map(|silent| format!("{} {}", silent.name, silent.text())));
        Ok((channels, unseen))
    }

    /// What has moved since the last call.
    pub(crate) fn look(&mut self) -> Result<(Vec<Channel>, Vec<String>), Failure> {
        let (views, unseen) = self.views()?;
        let now = Instant::now();
        let channels = views.iter().map(|view| {
            let before = self.before.get(&view.name);
            // Another of the same name begins anew.
            let before = before.filter(|(before, _)| before.incarnation == view.incarnation);
            Channel::between(
                before.map(|(before, _)| before),
                view,
                before.map(|(_, at)| now.duration_since(*at).as_secs_f64()),
            )
        });
        let channels = channels.collect();
        self.before = views.into_iter().map(|view| (view.name.clone(), (view, now))).collect();
        Ok((channels, unseen))
    }

    /// Where it looks.
    pub(crate) fn place(&self) -> String {
        self.domain.runtime_directory().display().to_string()
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
                Receiver::between(before, receiver, seconds)
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
    fn between(before: Option<&ReceiverView>, now: &ReceiverView, seconds: Option<f64>) -> Self {
        Self {
            row: now.row,
            pid: now.pid,
            rates: Rates::between(
                before.map(|before| (&before.counters[..], before.cursor)),
                (&now.counters, now.cursor),
                seconds,
            ),
            lag: now.lag,
            drops: counter(&now.counters, "missed"),
            is_asleep: now.is_asleep,
        }
    }
}

type Counters<'a> = (&'a [(&'static str, u64)], u64);

impl Rates {
    /// Counters, and messages, which are exact where their counter is not.
    fn between(before: Option<Counters<'_>>, now: Counters<'_>, seconds: Option<f64>) -> Self {
        let (Some(before), Some(seconds)) = (before, seconds.filter(|&seconds| seconds > 0.0))
        else {
            return Self::default();
        };
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        let of = |name| rate(counter(before.0, name), counter(now.0, name));
        Self {
            messages_per_s: rate(before.1, now.1),
            bytes_per_s: of("bytes"),
            waits_per_s: of("waits"),
            wakes_per_s: of("wakes"),
        }
    }
}

/// A counter by its name; 0 if there is none.
pub(crate) fn counter(counters: &[(&'static str, u64)], name: &str) -> u64 {
    counters.iter().find(|(word, _)| *word == name).map_or(0, |&(_, count)| count)
}
