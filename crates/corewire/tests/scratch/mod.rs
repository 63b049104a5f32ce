//! A domain of a test's own.

use std::path::PathBuf;

use corewire::Domain;

/// A domain in a directory of its own, removed at the end.
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
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.domain.take());
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
