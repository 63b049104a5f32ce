//! Collective calls among the members of a group: the time of one, when one follows the other. The baseline is a bare
//! cache line, one way, between the first two members.

use corewire::Domain;
use corewire_group::{Communicator, Group};
use corewire_harness::line::LINES;

use super::prelude::*;

pub(super) const ROLE: Role<Options> = Role { name: "collective call", work: member };

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

/// How many calls follow each other, depending on whether each member has a processor of its own.
const fn calls(has_cores: bool) -> u64 {
    if has_cores { 10_000 } else { 500 }
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let crew = setup(options.members - 1).start(&ROLE, |_| options.clone())?;
    let has_cores = !crew.is_oversubscribed();
    let mut raw = crew.board().raw_line()?;
    let (group, mut all) = join(crew.domain()?, options)?;
    let blocks = alternate(options.rounds, |_| {
        let mut figures = vec![if has_cores { raw.ask(LINES as u64) } else { 1.0 }];
        for (name, bytes) in CALLS {
            figures.push(block(&mut all, name, bytes, calls(has_cores))?);
        }
        Ok::<_, Failure>(figures)
    })?;
    report.value("members", options.members);
    report.value("rounds", options.rounds);
    if has_cores {
        report.figure("line_one_way_ns", "a bare cache line, one way", blocks.median(0), "ns");
    }
    for (index, (name, bytes)) in (1..).zip(CALLS) {
        let call = name.trim_end_matches(char::is_numeric).replace('_', " ");
        let words = format!("{}, {bytes} bytes", call.trim_end());
        report.figure(&format!("{name}_ns"), &words, blocks.median(index), "ns");
        if has_cores && bytes <= 8 {
            report.ratios(&format!("{name}_ratio"), "to the line", &blocks.ratios(index, 0));
        }
    }
    drop((all, group));
    crew.finish_with(report)
}

fn member(worker: &Worker, options: Options) -> Result<(), Failure> {
    let has_cores = !worker.must_yield();
    let mut raw = worker.board().raw_line()?;
    let (_group, mut all) = join(&worker.domain()?, &options)?;
    for _ in self::all(options.rounds) {
        if has_cores && worker.index() == 0 {
            raw.answer(LINES as u64);
        }
        for (name, bytes) in CALLS {
            block(&mut all, name, bytes, calls(has_cores))?;
        }
    }
    Ok(())
}

fn join(domain: &Domain, options: &Options) -> Result<(Group, Communicator), Failure> {
    let group = Group::builder(domain, "all").join_timeout(WITHIN)?;
    let view = group.wait_for_members(options.members, WITHIN)?;
    let builder = Communicator::builder(domain, &group, &view).wait(options.wait());
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
