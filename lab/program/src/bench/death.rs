//! Time from `kill()` to the return of the survivor's blocked call, a receive or a typed call, compared with the time from
//! `kill()` until a bare process descriptor becomes readable. Measured on an idle machine, and with two
//! processes per core that never sleep.

use std::process::Child;
use std::thread;

use corewire::ReceiveError;
use corewire_bind::{CallError, Driver};
use corewire_harness::calls;
use corewire_harness::places::Places;
use corewire_harness::report::Report;
use corewire_harness::role::{Role, Worker};
use corewire_harness::rounds::{alternate, nanoseconds};
use corewire_harness::statistics::{percentile, thousandths};
use corewire_os::event::wait_readable;
use corewire_os::process::life_of;
use corewire_os::processor::{allowed, ticks};
use corewire_ring::sync::pause;

use super::options::setup;
use corewire_harness::failure::Failure;

pub(super) const MORTAL_ROLE: Role<bool> = Role { name: "mortal", work: mortal };
pub(super) const IDLE_ROLE: Role<()> = Role { name: "idle", work: idle_peer };
pub(super) const SPIN_ROLE: Role<()> = Role { name: "spin", work: spin };

/// Number of deaths of each kind, both idle and loaded.
const DEATHS: u64 = 200;

pub(super) fn run() -> Result<Report, Failure> {
    let mut report = Report::default();
    let spinners = 2 * allowed()?.len();
    for (name, spinners) in [("idle", 0), ("loaded", spinners)] {
        // Killed at the end of the round.
        let _load = setup(spinners).places(Places::Anywhere).start(&SPIN_ROLE, |_| ())?;
        let deaths = alternate(DEATHS, |_| {
            let [bare, receive, ump, sock] = &KINDS;
            Ok::<_, Failure>([
                one_death(bare)?,
                one_death(receive)?,
                one_death(ump)?,
                one_death(sock)?,
            ])
        })?;
        let what = format!("{name}, {spinners} spinning processes");
        let bare_p99 = percentile(deaths.of(0), 0.99);
        for (index, Kind { key, words, .. }) in KINDS.iter().enumerate() {
            for (part, label) in [(0.5, "p50"), (0.99, "p99")] {
                let ms = percentile(deaths.of(index), part);
                report.value(&format!("{name}_{key}ms_{label}"), thousandths(ms));
                report.note(format!("{:<52} {ms:>9.3} ms", format!("{words}, {label} ({what})")));
            }
            if index > 0 {
                let ratio = percentile(deaths.of(index), 0.99) / bare_p99;
                report.value(&format!("{name}_{key}ratio_p99"), thousandths(ratio));
                let words = format!("{words}, ratio of the p99s ({name})");
                report.note(format!("{words:<52} {ratio:>9.2}"));
            }
        }
    }
    report.value("deaths", DEATHS);
    Ok(report)
}

/// What waits for the death of another process.
struct Kind {
    /// The beginning of its keys.
    key: &'static str,
    words: &'static str,
    waits: Waits,
}

#[derive(Clone, Copy)]
enum Waits {
    Bare,
    Receive,
    Call(Driver),
}

const KINDS: [Kind; 4] = [
    Kind { key: "bare_", words: "process descriptor", waits: Waits::Bare },
    Kind { key: "", words: "blocked receive", waits: Waits::Receive },
    Kind { key: "call_", words: "call, ump", waits: Waits::Call(Driver::Ump) },
    Kind { key: "call_sock_", words: "call, sock", waits: Waits::Call(Driver::Sock) },
];

/// Kills one process, and returns the time until its end is noticed, in milliseconds.
fn one_death(kind: &Kind) -> Result<f64, Failure> {
    let mut crew = setup(1)
        .places(Places::Anywhere)
        .start(&MORTAL_ROLE, |_| matches!(kind.waits, Waits::Call(_)))?;
    let domain = crew.domain()?.clone();
    let mut receiver = match kind.waits {
        Waits::Call(_) => None,
        _ => Some(domain.receiver("mortal").join_when_created()?),
    };
    let mut client = match kind.waits {
        Waits::Call(driver) => Some(calls::bind(&domain, driver)?),
        _ => None,
    };
    crew.await_step(0, 1)?;
    let victim = crew.take_worker().ok_or_else(|| Failure::other("no victim".to_owned()))?;
    let life = life_of(victim.id())?;
    // The thread that kills must not be the thread that waits.
    let killer = thread::spawn(move || kill_when_asleep(victim));
    let known_at = match (&mut receiver, &mut client) {
        (Some(receiver), _) if matches!(kind.waits, Waits::Receive) => {
            match receiver.receive().map(|message| message.len()) {
                Err(ReceiveError::SenderDied) => ticks(),
                other => {
                    return Err(Failure::other(format!("a dead sender's channel gave {other:?}")));
                }
            }
        }
        (_, Some(client)) => match client.hold() {
            Err(CallError::PeerDied { .. }) => ticks(),
            other => {
                return Err(Failure::other(format!("a call of a dead service gave {other:?}")));
            }
        },
        _ => {
            wait_readable(&[std::os::fd::AsFd::as_fd(&life)], None)?;
            ticks()
        }
    };
    let killed_at = killer.join().map_err(|_| Failure::other("the killer failed".to_owned()))??;
    Ok(nanoseconds(known_at.saturating_sub(killed_at)) / 1e6)
}

/// Kills the process after the waiting thread has had time to go to sleep, and returns the time, in
/// ticks.
fn kill_when_asleep(mut victim: Child) -> Result<u64, Failure> {
    let start = std::time::Instant::now();
    while start.elapsed().as_millis() < 2 {
        thread::yield_now();
    }
    let killed_at = ticks();
    victim.kill().map_err(|error| Failure::other(format!("kill a process: {error}")))?;
    victim.wait().map_err(|error| Failure::other(format!("wait for a process: {error}")))?;
    Ok(killed_at)
}

/// The victim: creates a channel or serves calls, and waits to be killed.
fn mortal(worker: &Worker, serves: bool) -> Result<(), Failure> {
    let domain = worker.domain()?;
    if serves {
        return calls::serve_and_tell(&domain, || worker.reach(1));
    }
    let _sender = domain.sender("mortal").create()?;
    worker.reach(1);
    loop {
        thread::park();
    }
}

/// A process that never sleeps.
fn spin(_: &Worker, (): ()) -> Result<(), Failure> {
    loop {
        pause();
    }
}

/// Measures the share of a core that three idle receivers use together.
pub(super) fn idle() -> Result<Report, Failure> {
    let mut crew = setup(3).places(Places::Anywhere).start(&IDLE_ROLE, |_| ())?;
    let mut sender = crew.domain()?.sender("idle").receivers(8).create()?;
    sender.wait_for_receivers(3)?;
    for index in 0..3 {
        crew.await_step(index, 1)?;
    }
    let before = crew.processor_seconds()?;
    let start = std::time::Instant::now();
    // No receiver joins this channel; the time-out of the wait is the measuring time.
    let mut clock = crew.domain()?.sender("clock").create()?;
    clock.wait_for_receivers_timeout(1, std::time::Duration::from_secs(10))?;
    let used = crew.processor_seconds()? - before;
    let share = used / start.elapsed().as_secs_f64() * 100.0;
    let mut report = Report::default();
    report.value("receivers", 3);
    report.value("cpu_percent", thousandths(share));
    report.note(format!("{:<52} {share:>9.3} % of a core", "three idle receivers together"));
    sender.send(b"over")?;
    drop(sender);
    crew.finish()?;
    Ok(report)
}

/// An idle receiver.
fn idle_peer(worker: &Worker, (): ()) -> Result<(), Failure> {
    let domain = worker.domain()?;
    let mut receiver = domain.receiver("idle").join_when_created()?;
    worker.reach(1);
    drop(receiver.receive()?);
    Ok(())
}
