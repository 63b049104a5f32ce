//! A separate domain for each test.

use std::path::PathBuf;

use corewire::Domain;
use corewire_layout::name::RECORD_BYTES;

/// A domain in a separate directory, which is removed at the end.
pub(crate) struct Scratch {
    pub(crate) domain: Option<Domain>,
    pub(crate) path: PathBuf,
}

impl Scratch {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corewire-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self { domain: Some(Domain::open_at(&path).unwrap()), path }
    }

    pub(crate) fn domain(&self) -> &Domain {
        self.domain.as_ref().unwrap()
    }

    /// Waits until there are `count` complete notes of receivers that wait for a channel. A
    /// receiver whose note is incomplete is not invited yet; it looks for the channel itself
    /// afterwards.
    #[allow(dead_code, reason = "not every test has somebody wait")]
    pub(crate) fn await_notes(&self, count: usize) {
        let is_note = |file: &std::fs::DirEntry| {
            file.file_name().to_string_lossy().starts_with("w.")
                && file.metadata().is_ok_and(|note| note.len() == RECORD_BYTES as u64)
        };
        let notes = || std::fs::read_dir(&self.path).unwrap().flatten().filter(is_note);
        while notes().count() < count {
            std::thread::yield_now();
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.domain.take());
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
