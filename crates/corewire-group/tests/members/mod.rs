//! Processes that are members of a group, and when something happens in them.

use std::path::Path;
use std::time::Duration;

use corewire::Domain;
use corewire_group::Group;

/// Milliseconds of the system's clock, which all processes share.
pub(crate) fn now_ms() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_secs_f64() * 1e3
}

/// Joins the group `log`, whose log is in this file, too.
pub(crate) fn join(domain: &Domain, file: Option<&Path>, limit: Duration) -> Group {
    let builder = Group::builder(domain, "log");
    let builder = match file {
        Some(file) => builder.file(file),
        None => builder,
    };
    builder.join_timeout(limit).unwrap()
}
