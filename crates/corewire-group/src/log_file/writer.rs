//! The thread that writes the file of a group's log, at the member that is the acceptor: a disk takes milliseconds, in
//! which that member has other things to do.

use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corewire::OsError;
use corewire_os::locked::SharedLock;
use corewire_os::process;
use corewire_os::report::Tell;

use crate::error::GroupError;
use crate::frame::Command;
use crate::kept::{Batch, Entry, Snapshot};
use crate::log_file::{LogFile, LogFileError};
use crate::replica::Publication;

/// How long there must be nothing to write before the header is brought to the disk, too.
const SETTLES_AFTER: Duration = Duration::from_secs(1);
/// How long a wait may last before it is reported.
pub(crate) const SAYS_AFTER: Duration = Duration::from_secs(1);

/// What is to be done, in this order.
enum Job {
    /// Entries from this index on follow.
    Begin(u64),
    Entries(Batch<Command>),
    Snapshot(Snapshot<Command>),
}

/// What the thread answers with: how many of its jobs are done.
pub(crate) type Done = Result<u64, LogFileError>;

/// An acceptor's writer. Dropping it waits until what it was given is written.
pub(crate) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    given: u64,
    done: u64,
    /// Goes with this.
    _lives: Arc<()>,
}

impl Writer {
    /// Starts the thread, with the file if this process has it already.
    pub(crate) fn start(
        path: PathBuf,
        lock: Arc<SharedLock>,
        file: Option<LogFile>,
        report: Arc<Tell>,
        tell: impl Fn(Done) + Send + 'static,
    ) -> Result<Self, GroupError> {
        let (jobs, given) = mpsc::channel();
        let lives = Arc::new(());
        let is_wanted = Arc::downgrade(&lives);
        let write = move || {
            process::block_all_signals();
            let what = (&*path, &*lock);
            if let Err(error) = write_all(what, file, &given, &is_wanted, (&*report, &tell)) {
                tell(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("corewire-group-file".to_owned());
        let thread = thread.spawn(write).map_err(|error| OsError {
            what: "start the thread that writes a group's file".into(),
            errno: error.raw_os_error().unwrap_or_default(),
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), given: 0, done: 0, _lives: lives })
    }

    fn give(&mut self, job: Job) {
        self.given += 1;
        // If the thread has ended, its error is on the way.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
    }

    /// What is to be published goes into the file first. Returns how many jobs must be done before.
    pub(crate) fn take(&mut self, publication: &Publication<Command>) -> u64 {
        self.give(match publication {
            Publication::Begin(_, first) => Job::Begin(*first),
            Publication::Learn(_, batch) => Job::Entries(batch.clone()),
        });
        self.given
    }

    /// The log was truncated.
    pub(crate) fn truncate(&mut self, snapshot: Snapshot<Command>) {
        self.give(Job::Snapshot(snapshot));
    }

    /// The thread has said how far it is.
    pub(crate) fn is_done(&mut self, done: u64) {
        self.done = done;
    }

    /// How many jobs are done.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        self._lives = Arc::new(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Does jobs until nobody gives any more.
fn write_all(
    what: (&Path, &SharedLock),
    mut file: Option<LogFile>,
    jobs: &mpsc::Receiver<Job>,
    is_wanted: &Weak<()>,
    (report, tell): (&Tell, &impl Fn(Done)),
) -> Result<(), LogFileError> {
    let mut done = 0;
    loop {
        let first = match (jobs.recv_timeout(SETTLES_AFTER), &mut file) {
            (Ok(first), _) => first,
            (Err(RecvTimeoutError::Timeout), Some(file)) => {
                file.settle()?;
                continue;
            }
            (Err(RecvTimeoutError::Timeout), None) => continue,
            (Err(RecvTimeoutError::Disconnected), _) => break,
        };
        let mut entries = Vec::new();
        // All that has come goes to the disk at once.
        for job in std::iter::once(first).chain(jobs.try_iter()) {
            done += 1;
            match job {
                Job::Entries(batch) => {
                    entries.extend(batch.entries());
                    continue;
                }
                other => {
                    append(&mut file, &mut entries)?;
                    match other {
                        Job::Begin(first) => {
                            let has_it = file.as_ref().is_some_and(|file| file.next() == first);
                            if !has_it {
                                // The lock goes with the last descriptor: so the old one is closed first.
                                drop(file.take());
                                let Some(begun) = begin(what, first, is_wanted, report)? else {
                                    return Ok(());
                                };
                                file = Some(begun);
                            }
                        }
                        Job::Snapshot(snapshot) => {
                            if let Some(file) = &mut file {
                                file.compact(snapshot, report)?;
                            }
                        }
                        Job::Entries(_) => {}
                    }
                }
            }
        }
        append(&mut file, &mut entries)?;
        tell(Ok(done));
    }
    Ok(())
}

fn append(
    file: &mut Option<LogFile>,
    entries: &mut Vec<Entry<Command>>,
) -> Result<(), LogFileError> {
    match file {
        Some(file) if !entries.is_empty() => file.append(std::mem::take(entries)),
        _ => Ok(()),
    }
}

/// Opens the file as soon as the acceptor before has given it up: it may be stopped, or make the file shorter. Nothing if nobody wants it any more.
fn begin(
    (path, lock): (&Path, &SharedLock),
    first: u64,
    is_wanted: &Weak<()>,
    report: &Tell,
) -> Result<Option<LogFile>, LogFileError> {
    let began = Instant::now();
    let mut has_said = false;
    while is_wanted.strong_count() > 0 {
        if let Some(file) = LogFile::begin_at(path, lock, first, report)? {
            return Ok(Some(file));
        }
        if !has_said && began.elapsed() > SAYS_AFTER {
            has_said = true;
            report(&format!("waiting: {}", LogFileError::InUse(path.to_owned())));
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    Ok(None)
}
