//! Time to wake a receiver that sleeps, after an idle time. The baseline is a bare futex.

use corewire_os::processor::ticks;
use corewire_os::sleep::Linux;
use corewire_ring::Kernel;
use corewire_ring::doorbell::{Bell, Bells};
use corewire_ring::sync::{Ordering, pause};

use super::prelude::*;

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

/// For each wake-up after an idle time whether it is one of the bare futex.
fn kinds() -> impl Iterator<Item = bool> {
    (0..2 * WAKES).map(|wake| (wake / BLOCK).is_multiple_of(2))
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut crew = setup(1).memory_bytes(4096).start(&ROLE, |_| options.clone())?;
    let mut sender = crew.domain()?.sender("wake").receivers(1).create()?;
    sender.wait_for_receivers(1)?;
    let work = crew.board().work()?;
    let linux = Linux::get();
    let mut step = 0;
    for idle_us in IDLE_US {
        let (mut bare, mut ours) = (vec![], vec![]);
        for is_bare in kinds() {
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
            let took_ns = nanoseconds(work.word64(TOOK).load(Ordering::Relaxed));
            if is_bare { bare.push(took_ns) } else { ours.push(took_ns) }
        }
        let after = format!("after {idle_us} us idle");
        let key = |end: &str| format!("after_{idle_us}_us_{end}");
        let [bare_p50, p50] = [&bare, &ours].map(|times| percentile(times, 0.5));
        let words = format!("a bare futex, {after}, p50");
        report.figure(&key("bare_futex_ns_p50"), &words, bare_p50, "ns");
        let ends = [p50, percentile(&ours, 0.99)];
        report.p50_p99(&key("wake_ns"), &format!("a message, {after}"), ends);
        report.number(&key("ratio"), &format!("ratio {after}"), p50 / bare_p50);
    }
    drop(sender);
    crew.finish_with(report)
}

/// The peer: sleeps, and reports how long each wake-up took.
fn peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let domain = worker.domain()?;
    let mut receiver = domain.receiver("wake").wait(options.wait()).join_when_created()?;
    let linux = Linux::get();
    let work = worker.board().work()?;
    let futex = work.word32(FUTEX);
    let mut bare_wakes = 0u32;
    for (step, is_bare) in (1..).zip(IDLE_US.iter().flat_map(|_| kinds())) {
        if is_bare {
            while futex.load(Ordering::Acquire) == bare_wakes {
                let bell = Bell { word: futex, heard: bare_wakes };
                linux.wait(Bells { shared: Some(bell), own: None }, 1_000_000_000);
            }
            bare_wakes = bare_wakes.wrapping_add(1);
        } else {
            drop(receiver.receive()?);
        }
        let sent_at = work.word64(SENT_AT).load(Ordering::Relaxed);
        let took = ticks().saturating_sub(sent_at);
        work.word64(TOOK).store(took, Ordering::Relaxed);
        worker.reach(step);
    }
    Ok(())
}
