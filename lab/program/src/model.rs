//! `corewire model`: the cost of a ring with any number of receivers, on a model of coherent caches.

use std::path::PathBuf;

use corewire::Topology;
use corewire_coherence::caches::{CORES_MAX, Costs, Counts, Machine};
use corewire_coherence::published::Flow;
use corewire_coherence::rings::{self, Figures, Ring};
use corewire_coherence::scheduler::Rhythm;
use serde::Serialize;

use crate::print;
use corewire_harness::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  corewire model broadcast --receivers 1,2,4,8,16,32,64,128,255
  corewire model zimp --receivers 8,64 --topology two-sockets.json\n\
\n\
Runs the ring's own code, one role on each core, on private caches that a directory \
keeps coherent (MESI). After the ring has wrapped around, it counts for each message: \
lines that the sender fetches; lines that the sender shares and must own (upgrades); \
copies in other caches that this invalidates; lines that the receiver with the most \
fetches; and read-modify-writes of all roles. Then it prints the time that the lines \
take: for one message after the other (from one send to the last receive), and for a \
stream.\n\
\n\
--topology FILE is JSON with the keys domain_cores (cores that share a last-level \
cache), hit_ns, near_ns (a line from a core of the same domain), far_ns (from another \
domain), busy_ns (a line between two requests that change its owner or come from \
another domain), share_ns (between two more readers of one domain), next_ns (between \
two lines that a core requests), under_way_max (lines that a core requests at once), \
locked_ns (a read-modify-write, in addition to its line), and processors and pairs_ns, \
which `corewire doctor --measure FILE` writes and the model does not need. A key that \
is missing has the value that --json prints without --topology.\n\
\n\
--json prints an object with the keys ring, slots, topology, one_way_ns (half a round \
trip through two such rings with one receiver each) and rows: an array of objects with \
the keys receivers, sender_transfers, sender_upgrades, sender_invalidations, \
receiver_transfers, read_modify_writes, one_by_one_ns, stream_ns, all for each \
message.";

/// Compute the cost of a ring with N receivers, on a model of the machine
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    ring: RingName,
    /// Numbers of receivers; each is a row of the table
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=255))]
    receivers: Vec<u32>,
    /// Number of slots of the ring
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    slots: u64,
    /// File that describes the machine
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Seed for the choice between cores whose clocks are equal
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum RingName {
    /// The channel with one sender: every receiver gets every message
    Broadcast,
    /// The same on two levels: with a relay in each domain of cores except the sender's
    #[value(name = "two_level")]
    TwoLevel,
    /// ZIMP as published: a lock, a bitmap for each entry
    Zimp,
    /// Barrelfish's channels, one for each receiver, in the form that the authors of ZIMP ran
    #[value(name = "barrelfish_mp")]
    BarrelfishMp,
    /// The same as in Barrelfish itself, with epochs and acknowledgements (2009)
    #[value(name = "barrelfish_ump")]
    BarrelfishUmp,
    /// The same with a bit that receivers clear (2017)
    #[value(name = "barrelfish_ump_used")]
    BarrelfishUmpUsed,
}

impl RingName {
    fn make(self, receivers: u32, slots: u64, machine: Machine) -> Result<Ring, Failure> {
        Ok(match self {
            Self::Broadcast => rings::broadcast(receivers, slots).map_err(Failure::usage)?,
            Self::TwoLevel => {
                let cores = u32::try_from(machine.domain_cores).unwrap_or(u32::MAX).max(2);
                rings::two_level(receivers, cores, slots).map_err(Failure::usage)?
            }
            Self::Zimp => rings::zimp(receivers, slots),
            Self::BarrelfishMp => rings::barrelfish_mp(receivers, slots),
            Self::BarrelfishUmp => rings::barrelfish_ump(receivers, slots, Flow::Acked),
            Self::BarrelfishUmpUsed => rings::barrelfish_ump(receivers, slots, Flow::Used),
        })
    }

    /// The time of half a round trip between two processes, with one ring in each direction.
    fn one_way_ns(self, slots: u64, machine: Machine, seed: u64) -> Result<f64, Failure> {
        let ring = Ring::ping_pong(self.make(1, slots, machine)?, self.make(1, slots, machine)?);
        let figures = ring.measure(machine, Rhythm::Stream, ROUNDS * slots, seed);
        let Figures { time_ns, messages, .. } = figures.map_err(Failure::other)?;
        Ok(a_message(time_ns, 2 * messages))
    }
}

/// The ratio of ZIMP's one-way time to that of the channel, on the model.
pub(crate) fn zimp_to_broadcast() -> Result<f64, Failure> {
    let one_way_ns = |ring: RingName| ring.one_way_ns(256, Machine::default(), 0);
    Ok(one_way_ns(RingName::Zimp)? / one_way_ns(RingName::Broadcast)?)
}

#[derive(Debug, Serialize)]
struct Report {
    ring: RingName,
    slots: u64,
    topology: Topology,
    /// Time of half a round trip, with one receiver.
    one_way_ns: f64,
    rows: Vec<Row>,
}

/// The machine of the model for a topology.
fn machine_of(topology: &Topology) -> Machine {
    let &Topology { domain_cores, hit_ns, near_ns, far_ns, busy_ns, share_ns, .. } = topology;
    let &Topology { next_ns, locked_ns, under_way_max, .. } = topology;
    let costs =
        Costs { hit_ns, near_ns, far_ns, busy_ns, share_ns, next_ns, locked_ns, under_way_max };
    Machine { domain_cores, costs }
}

/// Rounds of the ring that are counted.
const ROUNDS: u64 = 2;
/// Maximum number of slots: a model of more would take minutes.
const SLOTS_MAX: u64 = 16_384;

/// Costs for each message.
#[derive(Debug, Serialize)]
struct Row {
    receivers: u32,
    sender_transfers: f64,
    sender_upgrades: f64,
    sender_invalidations: f64,
    /// Lines fetched by the receiver that fetches most.
    receiver_transfers: f64,
    /// Read-modify-writes of all roles.
    read_modify_writes: f64,
    one_by_one_ns: f64,
    stream_ns: f64,
}

impl Row {
    fn measure(args: &Args, machine: Machine, receivers: u32) -> Result<Self, Failure> {
        let figures = |rhythm| {
            let ring = args.ring.make(receivers, args.slots, machine)?;
            ring.measure(machine, rhythm, ROUNDS * args.slots, args.seed).map_err(Failure::other)
        };
        let one_by_one = figures(Rhythm::OneByOne)?;
        let stream = figures(Rhythm::Stream)?;
        let Figures { messages, sender, receivers: each, .. } = &stream;
        let worst = each.iter().map(Counts::transfers).max().unwrap_or(0);
        let modifies = sender.modifies + each.iter().map(|counts| counts.modifies).sum::<u64>();
        let a_message = |total: u64| a_message(total, *messages);
        Ok(Self {
            receivers,
            sender_transfers: a_message(sender.transfers()),
            sender_upgrades: a_message(sender.upgrades),
            sender_invalidations: a_message(sender.invalidations),
            receiver_transfers: a_message(worst),
            read_modify_writes: a_message(modifies),
            one_by_one_ns: a_message(one_by_one.time_ns),
            stream_ns: a_message(stream.time_ns),
        })
    }
}

/// The cost for each message, rounded to three decimals.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn a_message(total: u64, messages: u64) -> f64 {
    (total as f64 / messages as f64 * 1000.0).round() / 1000.0
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let is_possible = args.slots.is_power_of_two() && (2..=SLOTS_MAX).contains(&args.slots);
    if !is_possible {
        let limit = format!("a power of two from 2 to {SLOTS_MAX}");
        return Err(Failure::usage(format!("--slots is {limit}, not {}", args.slots)));
    }
    let topology = args.topology.as_deref().map(Topology::read).transpose();
    let topology = topology.map_err(Failure::usage)?.unwrap_or_default();
    let machine = machine_of(&topology);
    let rows = args.receivers.iter().map(|&receivers| Row::measure(args, machine, receivers));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let one_way_ns = args.ring.one_way_ns(args.slots, machine, args.seed)?;
    let report = Report { ring: args.ring, slots: args.slots, topology, one_way_ns, rows };
    let text = match args.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => render(&report),
    };
    print(&text)
}

fn render(Report { slots, topology, one_way_ns, rows, .. }: &Report) -> String {
    let Topology { domain_cores, hit_ns, near_ns, far_ns, busy_ns, share_ns, .. } = topology;
    let Topology { next_ns, locked_ns, under_way_max, .. } = topology;
    let domain = match *domain_cores {
        CORES_MAX.. => "all cores in one domain".to_owned(),
        1 => "each core in a separate domain".to_owned(),
        count => format!("{count} cores in a domain"),
    };
    let most_ns = rows.iter().map(|row| row.one_by_one_ns).fold(0.0, f64::max);
    let cells = |row: &Row| {
        [
            row.receivers.to_string(),
            format!("{:.3}", row.sender_transfers),
            format!("{:.3}", row.sender_upgrades),
            format!("{:.1}", row.sender_invalidations),
            format!("{:.3}", row.receiver_transfers),
            format!("{:.1}", row.read_modify_writes),
            format!("{:.0} ns", row.one_by_one_ns),
            format!("{:.0} ns", row.stream_ns),
            bar(row.one_by_one_ns, most_ns),
        ]
    };
    format!(
        "{slots} slots; {domain}; a hit {hit_ns} ns, a line from the own domain {near_ns} ns, from \
         another {far_ns} ns,\na line busy for {busy_ns} ns, or {share_ns} ns with one more reader; {under_way_max} lines \
         at once, {next_ns} ns apart; {locked_ns} ns to lock\nhalf a round trip between two: {one_way_ns:.0} \
         ns\nfor each message:\n{}",
        table(rows.iter().map(cells))
    )
}

/// The rows under their titles, aligned to the right but for the last column, with two spaces between columns.
fn table(rows: impl Iterator<Item = [String; 9]>) -> String {
    let titles = [
        "receivers",
        "fetched",
        "upgrades",
        "invalidated",
        "fetched by a receiver",
        "locked",
        "one by one",
        "stream",
        "",
    ];
    let all: Vec<_> = std::iter::once(titles.map(str::to_owned)).chain(rows).collect();
    let width = |at: usize| all.iter().map(|row| row[at].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..titles.len() - 1).map(width).collect();
    let line = |row: &[String; 9]| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}  "));
        let line = cells.collect::<String>() + &row[8];
        format!("{}\n", line.trim_end())
    };
    all.iter().map(line).collect()
}

/// A bar of up to 20 characters, drawn in eighths of a character.
fn bar(value: f64, most: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    #[expect(clippy::cast_possible_truncation, reason = "160 at most")]
    #[expect(clippy::cast_sign_loss, reason = "times are not negative")]
    let eighths = (value / most.max(1.0) * 160.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The default costs are defined both in `Topology` and in the model's `Machine`, because neither
    /// crate may depend on the other. They must be equal.
    #[test]
    fn what_a_file_does_not_say_is_as_the_model_has_it() {
        assert_eq!(machine_of(&Topology::default()), Machine::default());
    }
}
