//! Collective calls among the members of a group: the time of one, when one follows the other. The baseline is a bare
//! cache line, one way, between the first two members.

use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_group::{Communicator, Group};
use corewire_harness::line::LINES;
use corewire_harness::report::Report;
use corewire_harness::role::{Role, Worker};
use corewire_harness::rounds::{all, alternate};
use corewire_os::processor::allowed;
use serde::{Deserialize, Serialize};

use super::options::{Options, setup};
use corewire_harness::failure::Failure;

pub(super) const ROLE: Role<Order> = Role { name: "collective call", work: member };

/// What a member has to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    options: Options,
    members: usize,
    /// Whether each member has a processor of its own.
    has_cores: bool,
    calls: u64,
}

/// How long the others may take to come.
const WITHIN: Duration = Duration::from_secs(60);

/// The calls that are measured: the name and the bytes of each.
const CALLS: [(&str, usize); 6] = [
    ("barrier", 0),
    ("allreduce_8", 8),
    ("broadcast_8", 8),
    ("all_to_all_8", 8),
    ("allreduce_65536", 65_536),
    ("broadcast_65536", 65_536),
];

pub(super) fn run(options: &Options, members: usize) -> Result<Report, Failure> {
    let has_cores = members <= allowed()?.len();
    let calls = if has_cores { 10_000 } else { 500 };
    let order = Order { options: options.clone(), members, has_cores, calls };
    let crew = setup(members - 1).start(&ROLE, |_| order.clone())?;
    let mut raw = crew.board().raw_line()?;
    let (group, mut all) = join(crew.domain()?, &order)?;
    let blocks = alternate(options.rounds, |_| {
        let mut figures = vec![if has_cores { raw.ask(LINES as u64) } else { 1.0 }];
        for (name, bytes) in CALLS {
            figures.push(block(&mut all, name, bytes, calls)?);
        }
        Ok::<_, Failure>(figures)
    })?;
    let mut report = Report::default();
    report.value("members", members);
    report.value("rounds", options.rounds);
    if has_cores {
        report.figure("line_one_way_ns", "a bare cache line, one way", blocks.median(0), "ns");
    }
    for (index, (name, bytes)) in CALLS.iter().enumerate() {
        let ns = blocks.median(index + 1);
        let call = name.trim_end_matches(char::is_numeric).replace('_', " ");
        let words = format!("{}, {bytes} bytes", call.trim_end());
        report.figure(&format!("{name}_ns"), &words, ns, "ns");
        if has_cores && *bytes <= 8 {
            let ratios = blocks.ratios(index + 1, 0);
            report.spread_with_line(&format!("{name}_ratio"), "to the line", &ratios);
        }
    }
    crew.describe(&mut report);
    drop((all, group));
    crew.finish()?;
    Ok(report)
}

fn member(worker: &Worker, order: Order) -> Result<(), Failure> {
    let mut raw = worker.board().raw_line()?;
    let (_group, mut all) = join(&worker.domain()?, &order)?;
    for _ in self::all(order.options.rounds) {
        if order.has_cores && worker.index() == 0 {
            raw.answer(LINES as u64);
        }
        for (name, bytes) in CALLS {
            block(&mut all, name, bytes, order.calls)?;
        }
    }
    Ok(())
}

fn join(domain: &Domain, order: &Order) -> Result<(Group, Communicator), Failure> {
    let group = Group::builder(domain, "all").join_timeout(WITHIN)?;
    let view = group.wait_for_members(order.members, WITHIN)?;
    let builder = Communicator::builder(domain, &group, &view).wait(order.options.wait());
    let all = builder.timeout(WITHIN).connect()?;
    Ok((group, all))
}

/// The time of each of `calls` calls, in nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52 calls")]
fn block(all: &mut Communicator, name: &str, bytes: usize, calls: u64) -> Result<f64, Failure> {
    let calls = if bytes > 8 { calls / 50 } else { calls };
    let mut values = vec![1u64; bytes / 8];
    let mut parts = vec![1u64; all.size()];
    let mut received = vec![0u64; all.size()];
    all.barrier()?;
    let start = Instant::now();
    for _ in 0..calls {
        match name.split('_').next() {
            Some("barrier") => all.barrier()?,
            Some("allreduce") => {
                all.allreduce(&mut values, |one, other| one.wrapping_add(other))?
            }
            Some("broadcast") => all.broadcast(0, &mut values)?,
            _ => {
                all.all_to_all(&parts, &mut received)?;
                std::mem::swap(&mut parts, &mut received);
            }
        }
    }
    // A broadcast ends at its root before it does at the others.
    all.barrier()?;
    Ok(start.elapsed().as_nanos() as f64 / calls as f64)
}
