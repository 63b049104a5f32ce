//! Time from `kill()` to the return of the survivor's blocked call, compared with the time from
//! `kill()` until a bare process descriptor becomes readable. Measured on an idle machine, and with two
//! processes per core that never sleep.

use std::process::{Child, Command, Stdio};
use std::thread;

use corewire::ReceiveError;
use corewire_os::event::wait_readable;
use corewire_os::process::life_of;
use corewire_os::processor::{allowed, tick_ns, ticks};
use corewire_ring::sync::Ordering;

use super::peer::Peer;
use super::rig::{Kind, Plan, Rig, done_word};
use super::statistics::percentile;
use super::{Options, Report};
use crate::failure::Failure;

/// Number of deaths of each kind, both idle and loaded.
const DEATHS: usize = 200;

pub(super) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report::new();
    let spinners = 2 * allowed()?.len();
    for (name, spinners) in [("idle", 0), ("loaded", spinners)] {
        let _load = Load::start(spinners)?;
        let (mut bare, mut ours) = (vec![], vec![]);
        for _ in 0..DEATHS {
            bare.push(one_death(options, true)?);
            ours.push(one_death(options, false)?);
        }
        let what = format!("{name}, {spinners} spinning processes");
        let keys = ["bare_ms_p50", "bare_ms_p99", "ms_p50", "ms_p99", "ratio_p99"]
            .map(|key| format!("{name}_{key}"));
        for (keys, words, times) in
            [(&keys[0..2], "process descriptor", &bare), (&keys[2..4], "blocked receive", &ours)]
        {
            for (key, part, label) in [(&keys[0], 0.5, "p50"), (&keys[1], 0.99, "p99")] {
                let ms = percentile(times, part);
                report.value(key, (ms * 1000.0).round() / 1000.0);
                report.note(format!("{:<52} {ms:>9.3} ms", format!("{words}, {label} ({what})")));
            }
        }
        let ratio = percentile(&ours, 0.99) / percentile(&bare, 0.99);
        report.value(&keys[4], (ratio * 1000.0).round() / 1000.0);
        report.note(format!("{:<52} {ratio:>9.2}", format!("ratio of the p99s ({name})")));
    }
    report.value("deaths", DEATHS);
    Ok(report)
}

/// Kills one process, and returns the time until its end is noticed, in milliseconds.
fn one_death(options: &Options, is_bare: bool) -> Result<f64, Failure> {
    let plan = Plan { receivers: 0, ..Plan::new(Kind::Mortal, options)? };
    let mut rig = Rig::start_unpinned(plan, 4096, 1)?;
    let domain = rig.domain()?.clone();
    let mut receiver = domain.receiver("mortal").join_when_created()?;
    rig.await_peer(0, 1)?;
    let victim = rig.take_peer().ok_or_else(|| Failure::other("no victim".to_owned()))?;
    let life = life_of(victim.id())?;
    // The thread that kills must not be the thread that waits.
    let killer = thread::spawn(move || kill_when_asleep(victim));
    let known_at = if is_bare {
        wait_readable(&[std::os::fd::AsFd::as_fd(&life)], None)?;
        ticks()
    } else {
        match receiver.receive().map(|message| message.len()) {
            Err(ReceiveError::SenderDied) => ticks(),
            other => return Err(Failure::other(format!("a dead sender's channel gave {other:?}"))),
        }
    };
    let killed_at = killer.join().map_err(|_| Failure::other("the killer failed".to_owned()))??;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 ticks")]
    let ms = known_at.saturating_sub(killed_at) as f64 * tick_ns() / 1e6;
    Ok(ms)
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

/// The victim: creates a channel, and waits to be killed.
pub(super) fn peer(peer: &Peer) -> Result<(), Failure> {
    let _sender = peer.domain.sender("mortal").create()?;
    peer.done(1);
    loop {
        thread::park();
    }
}

/// Processes that never sleep.
struct Load(Vec<Child>);

impl Load {
    fn start(count: usize) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::other(format!("find this program: {error}")))?;
        let mut load = Self(Vec::new());
        for _ in 0..count {
            let child = Command::new(&program)
                .args(["bench", "spin"])
                .stdin(Stdio::null())
                .spawn()
                .map_err(|error| Failure::other(format!("start a process: {error}")))?;
            load.0.push(child);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Measures the share of a core that three idle receivers use together.
pub(super) fn idle(options: &Options) -> Result<Report, Failure> {
    let plan = Plan { receivers: 3, ..Plan::new(Kind::Idle, options)? };
    let mut rig = Rig::start_unpinned(plan, 4096, 3)?;
    let mut sender = rig.domain()?.sender("idle").receivers(8).create()?;
    sender.wait_for_receivers(3)?;
    for index in 0..3 {
        rig.await_peer(index, 1)?;
    }
    let before = rig.processor_seconds()?;
    let start = std::time::Instant::now();
    // No receiver joins this channel; the time-out of the wait is the measuring time.
    let mut clock = rig.domain()?.sender("clock").create()?;
    clock.wait_for_receivers_timeout(1, std::time::Duration::from_secs(10))?;
    let used = rig.processor_seconds()? - before;
    let share = used / start.elapsed().as_secs_f64() * 100.0;
    let mut report = Report::new();
    report.value("receivers", 3);
    report.value("cpu_percent", (share * 1000.0).round() / 1000.0);
    report.note(format!("{:<52} {share:>9.3} % of a core", "three idle receivers together"));
    sender.send(b"over")?;
    drop(sender);
    rig.finish()?;
    Ok(report)
}

/// An idle receiver.
pub(super) fn idle_peer(peer: &Peer) -> Result<(), Failure> {
    let mut receiver = peer.domain.receiver("idle").join_when_created()?;
    peer.memory.word64(done_word(peer.plan.index)).store(1, Ordering::Release);
    drop(receiver.receive()?);
    Ok(())
}
