//! Whose a file is: what processes say that share its lock.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use corewire_os::read_text;

/// Which domain this is, on which boot of which machine.
pub(crate) fn words_of(domain: &Path) -> io::Result<String> {
    let is = domain.metadata()?;
    let boot = read_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Ok(format!("{} {} {}\n", is.dev(), is.ino(), boot.trim()))
}
