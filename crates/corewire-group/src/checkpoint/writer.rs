//! The thread that writes checkpoints, so that the program computes meanwhile.

use std::sync::mpsc;
use std::thread::JoinHandle;

use corewire::OsError;
use corewire_os::process;

use super::ComputationError;
use super::files::{Checkpoint, CheckpointFileError, Files, Progress};

/// The thread that writes checkpoints.
pub(super) struct Writer {
    /// Given, and not answered yet.
    pub(super) under_way: usize,
    given: Option<mpsc::SyncSender<Checkpoint>>,
    written: mpsc::Receiver<Result<Vec<Progress>, CheckpointFileError>>,
    progress: Vec<Progress>,
    failed: Option<CheckpointFileError>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(files: Files) -> Result<Self, ComputationError> {
        // One is written, and one waits.
        let (given, checkpoints) = mpsc::sync_channel::<Checkpoint>(1);
        let (answers, written) = mpsc::channel();
        let write = move || {
            process::block_all_signals();
            for checkpoint in checkpoints {
                let number = checkpoint.mark.number;
                let done = files.write(&checkpoint).and_then(|()| files.progress(number));
                let has_failed = done.is_err();
                if answers.send(done).is_err() || has_failed {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("corewire-checkpoint".to_owned());
        let thread = thread.spawn(write).map_err(|error| OsError {
            what: "start the thread that writes checkpoints".into(),
            errno: error.raw_os_error().unwrap_or_default(),
        })?;
        Ok(Self {
            under_way: 0,
            given: Some(given),
            written,
            progress: Vec::new(),
            failed: None,
            thread: Some(thread),
        })
    }

    /// Waits only if two checkpoints are not written yet.
    pub(super) fn write(&mut self, checkpoint: Checkpoint) -> Result<(), ComputationError> {
        if let Some(given) = &self.given {
            // If the thread has ended, it has said why before.
            self.under_way += usize::from(given.send(checkpoint).is_ok());
        }
        self.check()
    }

    /// Fails if a checkpoint could not be written.
    pub(super) fn check(&mut self) -> Result<(), ComputationError> {
        while let Ok(written) = self.written.try_recv() {
            self.note(written);
        }
        match &self.failed {
            Some(error) => Err(error.clone().into()),
            None => Ok(()),
        }
    }

    fn note(&mut self, written: Result<Vec<Progress>, CheckpointFileError>) {
        self.under_way -= 1;
        match written {
            Ok(progress) => self.progress = progress,
            Err(error) => self.failed = Some(error),
        }
    }

    /// Waits until all that was given is on the disk.
    pub(super) fn sync(&mut self) -> Result<(), ComputationError> {
        while self.under_way > 0
            && let Ok(written) = self.written.recv()
        {
            self.note(written);
        }
        self.check()
    }

    /// What was found out last about the checkpoints of others.
    pub(super) fn progress(&mut self) -> Vec<Progress> {
        std::mem::take(&mut self.progress)
    }

    /// Waits until all is written.
    pub(super) fn finish(&mut self) -> Result<(), ComputationError> {
        self.given = None;
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
