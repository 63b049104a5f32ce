//! INT, TERM and HUP end a command in order: it stops reading, closes what it holds, and then ends by
//! the signal. A second signal ends it at once.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use corewire::Interrupter;
use corewire_os::event::Bell;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Incoming;
use signal_hook::low_level::emulate_default_handler;

use crate::failure::Failure;

/// How long a command may take to finish what it has begun, before its waiting calls are interrupted.
const GRACE: Duration = Duration::from_secs(1);
/// How often they are interrupted after that: closing can wait again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The signals of this process, caught.
pub(crate) struct Signals {
    shared: Arc<Shared>,
    /// Dropping it ends the thread that interrupts.
    _running: SyncSender<()>,
}

struct Shared {
    caught: OnceLock<i32>,
    stopped: OnceLock<()>,
    bell: Bell,
    /// Ends the calls that wait.
    interrupter: Mutex<Option<Interrupter>>,
    /// Something has begun that is to be finished.
    has_begun: OnceLock<()>,
}

impl Shared {
    fn interrupter(&self) -> MutexGuard<'_, Option<Interrupter>> {
        self.interrupter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Signals {
    /// Catches the signals that are not ignored: `nohup` makes a process ignore HUP, and a shell
    /// that runs it in the background, INT.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::other(format!("cannot catch signals: {error}"));
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter();
        let wanted = wanted.filter(|&signal| !is_ignored(&status, signal));
        let mut incoming = Incoming::new(wanted).map_err(failed)?;
        let shared = Arc::new(Shared {
            caught: OnceLock::new(),
            stopped: OnceLock::new(),
            bell: Bell::new()?,
            interrupter: Mutex::new(None),
            has_begun: OnceLock::new(),
        });
        let (running, ended) = sync_channel::<()>(0);
        let (first, first_caught) = sync_channel::<()>(1);
        let catcher = Arc::clone(&shared);
        let catching = move || {
            for signal in incoming.forever() {
                if catcher.caught.set(signal).is_err() {
                    let _ = emulate_default_handler(signal);
                }
                catcher.bell.ring();
                let _ = first.try_send(());
            }
        };
        let interrupted = Arc::clone(&shared);
        let interrupting = move || {
            let mut wait = match first_caught.recv() {
                Ok(()) if interrupted.has_begun.get().is_some() => GRACE,
                Ok(()) => Duration::ZERO,
                Err(_) => return,
            };
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                if let Some(interrupter) = &*interrupted.interrupter() {
                    interrupter.interrupt();
                }
                wait = AGAIN_AFTER;
            }
        };
        let start = |job: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name("corewire-signals".into()).spawn(job).map_err(failed)
        };
        start(Box::new(catching))?;
        start(Box::new(interrupting))?;
        Ok(Self { shared, _running: running })
    }

    /// The first signal that was caught.
    pub(crate) fn caught(&self) -> Option<i32> {
        self.shared.caught.get().copied()
    }

    /// Ends the command as a signal would, but for the way in which the process ends.
    pub(crate) fn stop(&self) {
        let _ = self.shared.stopped.set(());
        self.shared.bell.ring();
    }

    /// Whether a signal was caught, or the command stopped.
    pub(crate) fn is_over(&self) -> bool {
        self.caught().is_some() || self.shared.stopped.get().is_some()
    }

    /// A descriptor that becomes readable when a signal was caught, and stays so.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// From now on a signal leaves time to finish, before it interrupts.
    pub(crate) fn begin(&self) {
        let _ = self.shared.has_begun.set(());
    }

    /// Lets a signal end the waiting calls of one handle, until the returned value is dropped.
    pub(crate) fn interrupt(&self, interrupter: Interrupter) -> Interrupting<'_> {
        *self.shared.interrupter() = Some(interrupter);
        Interrupting(&self.shared)
    }

    /// Ends the process by the signal that was caught. Returns only if none was.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        let Some(signal) = self.caught() else { return Ok(()) };
        let _ = emulate_default_handler(signal);
        Err(Failure::quiet(u8::try_from(128 + signal).unwrap_or(1)))
    }
}

/// A handle whose waiting calls a signal ends. Keeps the handle's channel open, so it must not outlive
/// it.
pub(crate) struct Interrupting<'a>(&'a Shared);

impl Drop for Interrupting<'_> {
    fn drop(&mut self) {
        *self.0.interrupter() = None;
    }
}

/// Does the process that `/proc/PID/status` describes ignore `signal`?
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_told_from_others() {
        let status = "Name:\tcorewire\nSigBlk:\t0000000000000003\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(!is_ignored(status, SIGINT) && !is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGHUP) && !is_ignored("SigIgn:\tnonsense", SIGHUP));
    }
}
