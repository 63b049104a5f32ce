//! Standard input, or a file, read until a signal is caught.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use corewire_os::event::wait_readable;

use crate::failure::Failure;
use crate::signals::Signals;
use crate::units;

/// What is read, and what it is called in errors.
pub(crate) struct Input {
    source: File,
    name: String,
}

impl Input {
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
            let name = "standard input".to_owned();
            // Read past the standard library's own buffer: ours is as large as a message.
            let own = rustix::io::dup(io::stdin());
            let own =
                own.map_err(|error| Failure::other(format!("cannot read {name}: {error}")))?;
            return Ok(Self { source: File::from(own), name });
        };
        let name = units::printable(&path.to_string_lossy());
        let refuse =
            |error: &dyn std::fmt::Display| Failure::usage(format!("cannot read {name}: {error}"));
        let file = File::open(path).map_err(|error| refuse(&error))?;
        if file.metadata().is_ok_and(|found| found.is_dir()) {
            return Err(refuse(&"it is a directory"));
        }
        Ok(Self { source: file, name })
    }

    /// Waits for input, or a signal, for a while. False if there is neither.
    pub(crate) fn is_ready(
        &self,
        signals: &Signals,
        within: Option<Duration>,
    ) -> Result<bool, Failure> {
        let until = within.and_then(|within| Instant::now().checked_add(within));
        let ready = wait_readable(&[self.source.as_fd(), signals.descriptor()], until)?;
        Ok(ready.contains(&true) || signals.is_over())
    }

    /// Waits for input and reads it: 0 bytes at its end, `None` if a signal was caught.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        signals: &Signals,
    ) -> Result<Option<usize>, Failure> {
        loop {
            wait_readable(&[self.source.as_fd(), signals.descriptor()], None)?;
            if signals.is_over() {
                return Ok(None);
            }
            match self.source.read(buffer) {
                // It may be shared with a process that made it non-blocking, and read first.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                other => {
                    return other.map(Some).map_err(|error| {
                        Failure::other(format!("cannot read {}: {error}", self.name))
                    });
                }
            }
        }
    }
}
