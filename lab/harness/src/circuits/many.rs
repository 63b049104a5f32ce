//! Thousands of circuits over few links: two monitors, a service and a client, each a process of its own.

use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_circuit::monitor::Asking;
use corewire_os::process;

use super::{Does, Part, bind, node, processes};
use crate::calls::{Client, PATIENCE, SERVICE};
use crate::crew::Crew;
use crate::failure::{Doing, Failure};
use crate::program::Program;
use crate::report::Report;
use crate::role::Role;

/// Monitors on the way.
pub(super) const MONITORS: usize = 2;
/// Circuits that are bound first, and stay: what memory and time they need is counted apart.
const FIRST: usize = 64;
/// Threads that bind.
const THREADS: usize = 16;
/// How long idle circuits are watched.
const WATCHED: Duration = Duration::from_secs(3);
/// How long monitors may take to give memory back.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(5);
/// How long it may take until all are forgotten.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(60);

/// Circuits that are idle while processor time is counted.
const IDLE: usize = 1000;

/// Binds `count` clients, and unbinds them: the time of both, until no monitor knows any, the memory of each monitor before,
/// at most and afterwards, and the processor time of both while [`IDLE`] circuits exist and nothing is sent.
///
/// # Errors
/// If a process fails, or a client cannot be bound.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub fn measure(
    program: Program,
    role: &Role<Part>,
    count: usize,
    report: &mut Report,
) -> Result<(), Failure> {
    let service = Does::serve(SERVICE, Some(MONITORS - 1), Some(count + FIRST));
    let crew = processes(program, role, MONITORS, [service])?;
    let domain = crew.domain()?.clone();
    let first = bind_all(&domain, FIRST)?;
    let before = resident(&crew)?;
    let idle_circuits = IDLE.min(count);
    let idle = bind_all(&domain, idle_circuits)?;
    let idle_share = idle_share(&crew)?;
    drop(idle);
    await_count(&domain, FIRST)?;
    let start = Instant::now();
    let all = bind_all(&domain, count)?;
    let setup_s = start.elapsed().as_secs_f64();
    let most = resident(&crew)?;
    let start = Instant::now();
    drop(all);
    await_count(&domain, FIRST)?;
    let teardown_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut after = resident(&crew)?;
    // Monitors look once a second whether there is memory to give back.
    while start.elapsed() < GIVEN_BACK_WITHIN
        && after.iter().zip(before).any(|(a, b)| a / 20 * 20 > b / 20 * 21)
    {
        std::thread::park_timeout(Duration::from_millis(50));
        after = resident(&crew)?;
    }
    drop(first);
    report.value("circuits", count);
    report.figure("setup_s", &format!("{count} circuits, set-up"), setup_s, "s");
    report.figure("teardown_s", "the same, tear-down", teardown_s, "s");
    for monitor in 0..MONITORS {
        let key = |end: &str| format!("monitor_{monitor}_{end}");
        // Without what is reserved for its frames.
        let each = most[monitor].saturating_sub(before[monitor]) as f64 / count as f64;
        let words = format!("memory of monitor {monitor} for each");
        report.figure(&key("bytes_each"), &words, each, "bytes");
        let [before, most, after] = [before, most, after].map(|bytes| bytes[monitor] as f64);
        let words = format!("memory of monitor {monitor} afterwards, to before");
        report.figure(&key("after_ratio"), &words, after / before, "");
        let words = format!("memory of monitor {monitor} given back, of what it had taken");
        let percent = (most - after) / (most - before) * 100.0;
        report.figure(&key("given_back_percent"), &words, percent, "%");
    }
    let words = format!("processor time of both monitors, {idle_circuits} idle circuits");
    report.figure("idle_percent", &words, idle_share * 100.0, "%");
    Ok(())
}

/// Binds `count` clients through monitor 0, in several threads.
pub(super) fn bind_all(domain: &Domain, count: usize) -> Result<Vec<Client>, Failure> {
    let share = count.div_ceil(THREADS);
    std::thread::scope(|scope| {
        let bind_share = |thread| {
            let share = share.min(count.saturating_sub(thread * share));
            scope.spawn(move || {
                (0..share).map(|_| bind(domain, SERVICE)).collect::<Result<Vec<_>, _>>()
            })
        };
        let threads: Vec<_> = (0..THREADS).map(bind_share).collect();
        let mut all = Vec::with_capacity(count);
        for thread in threads {
            all.extend(thread.join().map_err(|_| Failure::other("a thread panicked"))??);
        }
        Ok(all)
    })
}

/// Waits until every monitor has so many circuits.
fn await_count(domain: &Domain, count: usize) -> Result<(), Failure> {
    let start = Instant::now();
    for number in 0..MONITORS {
        let asking = Asking::connect(domain, node(number)?, PATIENCE);
        let mut asking = asking.doing("ask a monitor")?;
        loop {
            let found = asking.routes().doing("ask a monitor")?.circuits;
            if found == count {
                break;
            }
            if start.elapsed() > FORGOTTEN_WITHIN {
                let due = format!("monitor {number} has {found} circuits, not {count}");
                return Err(Failure::other(due));
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Memory of the monitors that no file stands behind.
fn resident(crew: &Crew) -> Result<[u64; MONITORS], Failure> {
    let mut found = [0; MONITORS];
    for (place, pid) in found.iter_mut().zip(crew.pids()) {
        *place = process::anonymous_bytes(pid).doing("read the memory of a process")?;
    }
    Ok(found)
}

/// Processor time of the monitors while nothing happens, as a part of a core.
fn idle_share(crew: &Crew) -> Result<f64, Failure> {
    let used = || -> Result<f64, Failure> {
        let of = |pid| process::processor_seconds(pid).doing("read a processor time");
        crew.pids().take(MONITORS).map(of).sum()
    };
    let (start, before) = (Instant::now(), used()?);
    while start.elapsed() < WATCHED {
        // Nothing else to do: the processes that are watched are others.
        std::thread::park_timeout(WATCHED.saturating_sub(start.elapsed()));
    }
    Ok((used()? - before) / start.elapsed().as_secs_f64())
}
