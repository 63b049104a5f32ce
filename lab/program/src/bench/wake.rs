//! Time to wake a receiver that sleeps, after an idle time. The baseline is a bare futex.

use std::time::{Duration, Instant};

use corewire_harness::report::Report;
use corewire_harness::role::{Role, Worker};
use corewire_harness::rounds::nanoseconds;
use corewire_harness::statistics::{percentile, thousandths};
use corewire_os::processor::ticks;
use corewire_os::sleep::Linux;
use corewire_ring::Kernel;
use corewire_ring::doorbell::{Bell, Bells};
use corewire_ring::sync::{Ordering, pause};

use super::options::{Options, setup};
use corewire_harness::failure::Failure;

pub(super) const ROLE: Role<Options> = Role { name: "wake", work: peer };

/// Idle times before a wake-up.
const IDLE_US: [u64; 2] = [60, 1000];

/// Number of wake-ups of each kind after each idle time.
const WAKES: usize = 1000;
/// Number of wake-ups of one kind in a row.
const BLOCK: usize = 50;
/// Offset of the bare futex in the work memory; below, that of the time of the last wake-up.
const FUTEX: usize = 0;
const SENT_AT: usize = 128;
/// Offset of the duration of the last wake-up, as the peer measured it.
const TOOK: usize = 256;

pub(super) fn run(options: &Options) -> Result<Report, Failure> {
    let mut crew = setup(1).memory_bytes(4096).start(&ROLE, |_| options.clone())?;
    let mut sender = crew.domain()?.sender("wake").receivers(1).create()?;
    sender.wait_for_receivers(1)?;
    let work = crew.board().work()?;
    let linux = Linux::get();
    let mut report = Report::default();
    let mut step = 0;
    for idle_us in IDLE_US {
        let (mut bare, mut ours) = (vec![], vec![]);
        for _ in 0..WAKES / BLOCK {
            for is_bare in [true, false] {
                for _ in 0..BLOCK {
                    let idle = Instant::now();
                    while idle.elapsed() < Duration::from_micros(idle_us) {
                        pause();
                    }
                    let sent_at = ticks();
                    work.word64(SENT_AT).store(sent_at, Ordering::Relaxed);
                    if is_bare {
                        work.word32(FUTEX).fetch_add(1, Ordering::Release);
                        linux.wake(work.word32(FUTEX), 1);
                    } else {
                        sender.send(&sent_at.to_le_bytes())?;
                    }
                    step += 1;
                    crew.await_step(0, step)?;
                    let took = work.word64(TOOK).load(Ordering::Relaxed);
                    let took_ns = nanoseconds(took);
                    if is_bare { bare.push(took_ns) } else { ours.push(took_ns) }
                }
            }
        }
        tell(&mut report, idle_us, &bare, &ours);
    }
    crew.describe(&mut report);
    drop(sender);
    crew.finish()?;
    Ok(report)
}

fn tell(report: &mut Report, idle_us: u64, bare: &[f64], ours: &[f64]) {
    let (bare_p50, ours_p50) = (percentile(bare, 0.5), percentile(ours, 0.5));
    let keys = ["bare_futex_ns_p50", "wake_ns_p50", "wake_ns_p99", "ratio"]
        .map(|key| format!("after_{idle_us}_us_{key}"));
    let after = format!("after {idle_us} us idle");
    report.figure(&keys[0], &format!("a bare futex, {after}, p50"), bare_p50, "ns");
    report.figure(&keys[1], &format!("a message, {after}, p50"), ours_p50, "ns");
    report.figure(&keys[2], &format!("a message, {after}, p99"), percentile(ours, 0.99), "ns");
    let ratio = ours_p50 / bare_p50;
    report.value(&keys[3], thousandths(ratio));
    report.note(format!("{:<44} {ratio:>10.3}", format!("ratio {after}")));
}

/// The peer: sleeps, and reports how long each wake-up took.
fn peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let domain = worker.domain()?;
    let mut receiver = domain.receiver("wake").wait(options.wait()).join_when_created()?;
    let linux = Linux::get();
    let work = worker.board().work()?;
    let futex = work.word32(FUTEX);
    let (mut step, mut bare_wakes) = (0, 0u32);
    for _ in IDLE_US {
        for _ in 0..WAKES / BLOCK {
            for is_bare in [true, false] {
                for _ in 0..BLOCK {
                    if is_bare {
                        while futex.load(Ordering::Acquire) == bare_wakes {
                            let bell = Bell { word: futex, heard: bare_wakes };
                            let bells = Bells { shared: Some(bell), own: None };
                            linux.wait(bells, 1_000_000_000);
                        }
                        bare_wakes = bare_wakes.wrapping_add(1);
                    } else {
                        drop(receiver.receive()?);
                    }
                    let sent_at = work.word64(SENT_AT).load(Ordering::Relaxed);
                    let took = ticks().saturating_sub(sent_at);
                    work.word64(TOOK).store(took, Ordering::Relaxed);
                    step += 1;
                    worker.reach(step);
                }
            }
        }
    }
    Ok(())
}
