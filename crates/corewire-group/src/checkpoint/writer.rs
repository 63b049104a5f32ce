//! The thread that writes checkpoints, so that the program computes meanwhile.
//!
//! One is written, and one waits. A program that takes them faster than the disk writes them does not wait as long as it
//! receives nothing: each new one then [stands for](super::part::Mark::stand_for) the one that waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use corewire::OsError;
use corewire_os::process;

use super::ComputationError;
use super::files::{Checkpoint, CheckpointFileError, Files, Progress};
use super::part::PartRules;

/// The thread that writes checkpoints.
pub(super) struct Writer {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the program share.
#[derive(Default)]
struct Desk {
    papers: Mutex<Papers>,
    /// A checkpoint waits or has been written, or no more will come.
    news: Condvar,
}

/// What lies on the desk.
#[derive(Default)]
struct Papers {
    waiting: Option<Checkpoint>,
    is_writing: bool,
    /// What was found out last about the checkpoints of others.
    progress: Vec<Progress>,
    /// Why nothing more is written.
    failed: Option<CheckpointFileError>,
    has_ended: bool,
}

impl Papers {
    fn check(&self) -> Result<(), ComputationError> {
        match &self.failed {
            Some(error) => Err(error.clone().into()),
            None => Ok(()),
        }
    }

    /// The next checkpoint, if it need not be written by itself.
    fn take(&mut self, mut next: Checkpoint) -> Option<Checkpoint> {
        match &self.waiting {
            Some(waiting) if !next.mark.stand_for(&waiting.mark, PartRules::default()) => {
                return Some(next);
            }
            Some(waiting) => next.before = waiting.before,
            None => {}
        }
        self.waiting = Some(next);
        None
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, papers: MutexGuard<'a, Papers>) -> MutexGuard<'a, Papers> {
        self.news.wait(papers).unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what comes, until no more will, or until that fails.
    fn write(&self, files: &Files) {
        let mut papers = self.lock();
        while papers.failed.is_none() {
            let Some(checkpoint) = papers.waiting.take() else {
                if papers.has_ended {
                    return;
                }
                papers = self.wait(papers);
                continue;
            };
            papers.is_writing = true;
            drop(papers);
            // The program may wait for the place of the one that waited.
            self.news.notify_all();
            let number = checkpoint.mark.number;
            let written = files.write(&checkpoint).and_then(|()| files.progress(number));
            papers = self.lock();
            papers.is_writing = false;
            match written {
                Ok(progress) => papers.progress = progress,
                Err(error) => papers.failed = Some(error),
            }
            self.news.notify_all();
        }
    }
}

impl Writer {
    pub(super) fn start(files: Files) -> Result<Self, ComputationError> {
        let desk = Arc::new(Desk::default());
        let theirs = Arc::clone(&desk);
        let thread = std::thread::Builder::new().name("corewire-checkpoint".to_owned());
        let thread = thread.spawn(move || {
            process::block_all_signals();
            theirs.write(&files);
        });
        let thread = thread.map_err(|error| OsError {
            what: "start the thread that writes checkpoints".into(),
            errno: error.raw_os_error().unwrap_or_default(),
        })?;
        Ok(Self { desk, thread: Some(thread) })
    }

    /// Waits only if two checkpoints are not written yet, and something was received since the second one.
    pub(super) fn write(&mut self, checkpoint: Checkpoint) -> Result<(), ComputationError> {
        let mut papers = self.desk.lock();
        let mut next = Some(checkpoint);
        loop {
            papers.check()?;
            next = next.and_then(|next| papers.take(next));
            if next.is_none() {
                break;
            }
            papers = self.desk.wait(papers);
        }
        // While it writes, it looks for the next one by itself.
        if !papers.is_writing {
            self.desk.news.notify_all();
        }
        Ok(())
    }

    /// Fails if a checkpoint could not be written.
    pub(super) fn check(&mut self) -> Result<(), ComputationError> {
        self.desk.lock().check()
    }

    /// Waits until all that was given is on the disk.
    pub(super) fn sync(&mut self) -> Result<(), ComputationError> {
        let mut papers = self.desk.lock();
        while papers.failed.is_none() && (papers.is_writing || papers.waiting.is_some()) {
            papers = self.desk.wait(papers);
        }
        papers.check()
    }

    /// What was found out last about the checkpoints of others, if that is new.
    pub(super) fn progress(&mut self) -> Vec<Progress> {
        std::mem::take(&mut self.desk.lock().progress)
    }

    /// Waits until all is written.
    pub(super) fn finish(&mut self) -> Result<(), ComputationError> {
        self.desk.lock().has_ended = true;
        self.desk.news.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.check()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}
