//! Time from `kill()` to the return of the survivor's blocked call, a receive or a typed call, compared with the time from
//! `kill()` until a bare process descriptor becomes readable. Measured on an idle machine, and with two
//! processes per core that never sleep.

use std::os::fd::AsFd;
use std::process::Child;
use std::thread;

use corewire::{ReceiveError, Receiver};
use corewire_bind::{CallError, Driver};
use corewire_harness::calls::{self, Client};
use corewire_harness::failure::Doing;
use corewire_os::event::wait_readable;
use corewire_os::process::life_of;
use corewire_os::processor::{allowed, ticks};
use corewire_ring::sync::pause;

use super::prelude::*;

pub(super) const MORTAL_ROLE: Role<bool> = Role { name: "mortal", work: mortal };
pub(super) const IDLE_ROLE: Role<()> = Role { name: "idle", work: idle_peer };
pub(super) const SPIN_ROLE: Role<()> = Role { name: "spin", work: spin };

/// Number of deaths of each kind, both idle and loaded.
const DEATHS: u64 = 200;

/// What waits for the death of another process: the beginning of its keys, what it is, and how it waits.
const KINDS: [(&str, &str, Waits); 4] = [
    ("bare_", "process descriptor", Waits::Bare),
    ("", "blocked receive", Waits::Receive),
    ("call_", "call, ump", Waits::Call(Driver::Ump)),
    ("call_sock_", "call, sock", Waits::Call(Driver::Sock)),
];

#[derive(Clone, Copy)]
enum Waits {
    Bare,
    Receive,
    Call(Driver),
}

pub(super) fn run(_: &Options, report: &mut Report) -> Result<(), Failure> {
    for (name, spinners) in [("idle", 0), ("loaded", 2 * allowed()?.len())] {
        // Killed at the end of the round.
        let _load = setup(spinners).places(Places::Anywhere).start(&SPIN_ROLE, |_| ())?;
        let deaths = alternate(DEATHS, |_| {
            KINDS.iter().map(|&(_, _, waits)| one_death(waits)).collect::<Result<Vec<_>, _>>()
        })?;
        let what = format!("{name}, {spinners} spinning processes");
        let bare_p99 = percentile(deaths.of(0), 0.99);
        for (index, (key, words, _)) in KINDS.iter().enumerate() {
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
    Ok(())
}

/// The survivor, and what it waits with.
enum Survivor {
    Bare { _receiver: Receiver },
    Receive(Receiver),
    Call(Client),
}

/// Kills one process, and returns the time until its end is noticed, in milliseconds.
fn one_death(waits: Waits) -> Result<f64, Failure> {
    let serves = matches!(waits, Waits::Call(_));
    let mut crew = setup(1).places(Places::Anywhere).start(&MORTAL_ROLE, |_| serves)?;
    let domain = crew.domain()?.clone();
    let join = || domain.receiver("mortal").join_when_created();
    let mut survivor = match waits {
        Waits::Bare => Survivor::Bare { _receiver: join()? },
        Waits::Receive => Survivor::Receive(join()?),
        Waits::Call(driver) => Survivor::Call(calls::bind(&domain, driver)?),
    };
    crew.await_step(0, 1)?;
    let victim = crew.take_worker().ok_or_else(|| Failure::other("no victim"))?;
    let life = life_of(victim.id())?;
    // The thread that kills must not be the thread that waits.
    let killer = thread::spawn(move || kill_when_asleep(victim));
    let found = match &mut survivor {
        Survivor::Bare { .. } => wait_readable(&[life.as_fd()], None).map(|_| None)?,
        Survivor::Receive(receiver) => match receiver.receive().map(|message| message.len()) {
            Err(ReceiveError::SenderDied) => None,
            other => Some(format!("a dead sender's channel gave {other:?}")),
        },
        Survivor::Call(client) => match client.hold() {
            Err(CallError::PeerDied { .. }) => None,
            other => Some(format!("a call of a dead service gave {other:?}")),
        },
    };
    let known_at = ticks();
    if let Some(other) = found {
        return Err(Failure::other(other));
    }
    let killed_at = killer.join().map_err(|_| Failure::other("the killer failed"))??;
    Ok(nanoseconds(known_at.saturating_sub(killed_at)) / 1e6)
}

/// Kills the process after the waiting thread has had time to go to sleep, and returns the time, in
/// ticks.
fn kill_when_asleep(mut victim: Child) -> Result<u64, Failure> {
    let start = Instant::now();
    while start.elapsed().as_millis() < 2 {
        thread::yield_now();
    }
    let killed_at = ticks();
    victim.kill().doing("kill a process")?;
    victim.wait().doing("wait for a process")?;
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
pub(super) fn idle(_: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut crew = setup(3).places(Places::Anywhere).start(&IDLE_ROLE, |_| ())?;
    let mut sender = crew.domain()?.sender("idle").receivers(8).create()?;
    sender.wait_for_receivers(3)?;
    for index in 0..3 {
        crew.await_step(index, 1)?;
    }
    let before = crew.processor_seconds()?;
    let start = Instant::now();
    // No receiver joins this channel; the time-out of the wait is the measuring time.
    let mut clock = crew.domain()?.sender("clock").create()?;
    clock.wait_for_receivers_timeout(1, Duration::from_secs(10))?;
    let used = crew.processor_seconds()? - before;
    let share = used / start.elapsed().as_secs_f64() * 100.0;
    report.value("receivers", 3);
    report.value("cpu_percent", thousandths(share));
    report.note(format!("{:<52} {share:>9.3} % of a core", "three idle receivers together"));
    sender.send(b"over")?;
    drop(sender);
    crew.finish()
}

/// An idle receiver.
fn idle_peer(worker: &Worker, (): ()) -> Result<(), Failure> {
    let domain = worker.domain()?;
    let mut receiver = domain.receiver("idle").join_when_created()?;
    worker.reach(1);
    drop(receiver.receive()?);
    Ok(())
}
