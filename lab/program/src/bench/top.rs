//! The cost of `corewire top` for the channels that it shows: throughput with it and without it, block
//! by block, and its share of a core. In the blocks without it, it is stopped.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;

use corewire::Observer;
use corewire_harness::failure::Doing;
use corewire_os::event::wait_readable;
use corewire_os::process::processor_seconds;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::prelude::*;

pub(super) const ROLE: Role<()> = Role { name: "top", work: peer };

/// Number of channels, each with a sender and a receiver.
const CHANNELS: usize = 3;
/// Length of a block: the time between two updates of `top`.
const BLOCK: Duration = Duration::from_secs(1);

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let setup = setup(2 * CHANNELS).places(Places::Anywhere);
    let mut crew = setup.start(&ROLE, |_| ())?;
    for index in 0..2 * CHANNELS {
        crew.await_step(index, 1)?;
    }
    let domain = crew.domain()?;
    let observers = (0..CHANNELS).map(|index| domain.observe(&name(index)));
    let observers = observers.collect::<Result<Vec<_>, _>>()?;
    let top = Terminal::start(domain.runtime_directory())?;
    let (mut used_s, mut shown_s) = (0.0, 0.0);
    // Messages per second without top, and with it.
    let blocks = alternate(options.rounds, |round| {
        let mut per_s = [0.0; 2];
        // The order of the two blocks alternates.
        for block in [round % 2, (round + 1) % 2] {
            let is_shown = block == 1;
            top.signal(if is_shown { Signal::CONT } else { Signal::STOP })?;
            let before_s = processor_seconds(top.child.id())?;
            let (start, sent) = (Instant::now(), sent(&observers));
            wait_readable(&[], Some(start + BLOCK))?;
            let passed_s = start.elapsed().as_secs_f64();
            let moved = self::sent(&observers) - sent;
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            let rate = moved as f64 / passed_s;
            per_s[usize::from(is_shown)] = rate;
            if is_shown && round > WARM_UP {
                used_s += processor_seconds(top.child.id())? - before_s;
                shown_s += passed_s;
            }
        }
        Ok::<_, Failure>(per_s)
    })?;
    let share = used_s / shown_s * 100.0;
    report.value("channels", CHANNELS);
    report.value("rounds", options.rounds);
    let rate = blocks.median(0) / 1e6;
    report.figure("m_per_s", "messages on all channels, without top", rate, "M/s");
    report.ratio("with top to without", &blocks.ratios(1, 0));
    report.value("cpu_percent", thousandths(share));
    report.note(format!("{:<44} {share:>10.3} % of a core", "top, every second"));
    crew.describe(report);
    Ok(())
}

/// Messages sent on all channels so far.
fn sent(observers: &[Observer]) -> u64 {
    observers.iter().map(|observer| observer.look().sent).sum()
}

fn name(index: usize) -> String {
    format!("busy-{index}")
}

/// A peer: the sender or the receiver of a channel, until it is killed.
fn peer(worker: &Worker, (): ()) -> Result<(), Failure> {
    let domain = worker.domain()?;
    let name = name(worker.index() / 2);
    if worker.index().is_multiple_of(2) {
        let mut sender = domain.sender(&name).create()?;
        sender.wait_for_receivers(1)?;
        worker.reach(1);
        loop {
            sender.loan(48)?.send();
        }
    }
    let mut receiver = domain.receiver(&name).join_when_created()?;
    worker.reach(1);
    // The senders are killed first, which ends the loop.
    while receiver.receive().is_ok() {}
    Ok(())
}

/// `corewire top` on a pseudoterminal of its own.
struct Terminal {
    child: Child,
}

impl Terminal {
    fn start(directory: &Path) -> Result<Self, Failure> {
        const MAKING: &str = "make a terminal";
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let own = openpt(flags).doing(MAKING)?;
        grantpt(&own).doing(MAKING)?;
        unlockpt(&own).doing(MAKING)?;
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&own, size).doing(MAKING)?;
        let shown = || ioctl_tiocgptpeer(&own, flags).doing(MAKING);
        const STARTING: &str = "start corewire top, which must be beside this program or in PATH";
        let beside = std::env::current_exe().doing(STARTING)?.with_file_name("corewire");
        let program = if beside.exists() { beside } else { "corewire".into() };
        let mut top = Command::new(program);
        top.arg("top").env("COREWIRE_RUNTIME_DIR", directory);
        top.stdin(shown()?).stdout(shown()?).stderr(shown()?);
        let child = top.spawn().doing(STARTING)?;
        // The output must be read, or `top` would block. The thread ends when the child ends.
        let mut drawn = File::from(own);
        thread::spawn(move || {
            let mut part = [0; 4096];
            while drawn.read(&mut part).is_ok_and(|bytes| bytes > 0) {}
        });
        Ok(Self { child })
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        kill_process(Pid::from_child(&self.child), signal).doing("stop or continue top")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
