//! Which lines are shown, and in which order.

use super::rates::{Channel, Rates, Receiver};

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
    fn of(self, channel: &Channel) -> f64 {
        let Rates { messages_per_s, bytes_per_s, waits_per_s, wakes_per_s, .. } = channel.rates;
        match self {
            Self::Name => 0.0,
            Self::Messages => messages_per_s,
            Self::Bytes => bytes_per_s,
            Self::Lag => channel.lag as f64,
            Self::Waits => waits_per_s,
            Self::Wakes => wakes_per_s,
            Self::Drops => channel.drops as f64,
            Self::Deaths => channel.deaths as f64,
        }
    }
}

/// What is shown.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    /// Only channels whose name contains this are shown.
    pub(super) filter: String,
    pub(super) shows_receivers: bool,
}

/// Titles of the columns, and whether they hold numbers.
pub(super) const COLUMNS: [(&str, bool); 9] = [
    ("channel", false),
    ("pid", true),
    ("msg/s", true),
    ("bytes/s", true),
    ("lag", true),
    ("waits/s", true),
    ("wakes/s", true),
    ("drops", true),
    ("deaths", true),
];

/// A line of the table.
pub(super) struct Line {
    pub(super) cells: Vec<String>,
    pub(super) is_receiver: bool,
    /// Messages or receivers were dropped, or a receiver died.
    pub(super) is_bad: bool,
}

impl View {
    /// The text that is shown when there are no lines.
    pub(super) fn nothing(&self, place: &str) -> String {
        match self.filter.as_str() {
            "" => format!("No channels in {place}."),
            filter => format!("No channel in {place} has a name that contains {filter:?}."),
        }
    }

    /// The lines for these channels.
    pub(super) fn lines(&self, channels: &[Channel]) -> Vec<Line> {
        let mut shown: Vec<_> =
            channels.iter().filter(|channel| channel.name.contains(&self.filter)).collect();
        shown.sort_by(|a, b| {
            let by_amount = self.sort.of(b).total_cmp(&self.sort.of(a));
            by_amount.then_with(|| a.name.cmp(&b.name))
        });
        if self.is_reversed {
            shown.reverse();
        }
        let mut lines = Vec::new();
        for channel in shown {
            lines.push(of_channel(channel));
            if self.shows_receivers {
                lines.extend(channel.receivers.iter().map(of_receiver));
            }
        }
        lines
    }
}

fn of_channel(channel: &Channel) -> Line {
    let Channel { name, pid, rates, lag, drops, deaths, .. } = channel;
    Line {
        cells: cells(name.clone(), *pid, rates, [*lag, *drops, *deaths]),
        is_receiver: false,
        is_bad: *drops > 0 || *deaths > 0,
    }
}

fn of_receiver(receiver: &Receiver) -> Line {
    let Receiver { row, pid, rates, lag, drops, is_asleep } = receiver;
    let state = if *is_asleep { ", asleep" } else { "" };
    let mut cells = cells(format!("  row {row}{state}"), *pid, rates, [*lag, *drops, 0]);
    // Deaths are counted for the channel.
    cells.pop();
    Line { cells, is_receiver: true, is_bad: *drops > 0 }
}

fn cells(name: String, pid: u32, rates: &Rates, counts: [u64; 3]) -> Vec<String> {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let [lag, drops, deaths] = counts.map(|count| short(count as f64));
    let is_estimated = rates.estimated_bytes_per_s > 0.0;
    let bytes = format!("{}{}", if is_estimated { "~" } else { "" }, short(rates.bytes_per_s));
    vec![
        name,
        pid.to_string(),
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
fn short(number: f64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let names = |sort, filter: &str, is_reversed| {
            let filter = filter.to_owned();
            let view = View { sort, is_reversed, filter, shows_receivers: true };
            let lines = view.lines(&channels).into_iter().map(|line| line.cells[0].clone());
            lines.collect::<Vec<_>>()
        };
        assert_eq!(names(Sort::Messages, "", false), ["image", "logs", "log"]);
        assert_eq!(names(Sort::Lag, "", false), ["logs", "log", "image"]);
        assert_eq!(names(Sort::Name, "log", true), ["logs", "log"]);
    }
}
