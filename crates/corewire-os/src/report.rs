//! Who is told what a user should know and what ends nothing.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

/// Takes a sentence, on any thread.
pub type Tell = dyn Fn(&str) + Send + Sync;

/// What sentences are given to.
#[derive(Clone)]
pub struct Report(pub Arc<Tell>);

impl Report {
    /// Nobody is told.
    #[must_use]
    pub fn nobody() -> Self {
        Self(Arc::new(|_| {}))
    }

    /// Lines on standard error, behind `corewire: `.
    #[must_use]
    pub fn standard_error() -> Self {
        Self(Arc::new(|text| {
            // In one piece, since others may write there, too. If nobody can read it, nobody misses it.
            let _ = std::io::stderr().lock().write_all(format!("corewire: {text}\n").as_bytes());
        }))
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}
