//! What all users of iceoryx2 here have in common: a node of their own, and no shared memory that is left behind.

use std::path::Path;

use corewire_harness::failure::{Doing, Failure};
use iceoryx2::config::Config;
use iceoryx2::prelude::*;

pub(crate) type Service = ipc::Service;

/// A node whose services are known to those with the same directory and number only.
pub(crate) fn node(directory: &Path, number: usize) -> Result<Node<Service>, Failure> {
    set_log_level(LogLevel::Error);
    let mut config = Config::default();
    let root = directory.join("iceoryx2").display().to_string();
    let root = iceoryx2::prelude::Path::new(root.as_bytes()).doing("name a directory")?;
    config.global.set_root_path(&root);
    let prefix = prefix(directory, number);
    config.global.prefix = FileName::new(prefix.as_bytes()).doing("name a service")?;
    NodeBuilder::new().config(&config).create::<Service>().doing("make an iceoryx2 node")
}

/// Prefix of the names of its shared memory, unique on the machine.
fn prefix(directory: &Path, number: usize) -> String {
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
    format!("{}_{number}_", name.unwrap_or_default())
}

/// Waits until another process has made something.
pub(crate) fn await_others(are_there: impl Fn() -> bool) {
    while !are_there() {
        std::thread::yield_now();
    }
}

/// When it is dropped, removes shared memory that processes leave behind if they are killed.
pub(crate) struct Leftovers {
    prefix: String,
}

impl Leftovers {
    /// Those of the nodes with this directory and number.
    pub(crate) fn of(directory: &Path, number: usize) -> Self {
        Self { prefix: prefix(directory, number) }
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        let Ok(entries) = std::fs::read_dir("/dev/shm") else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&self.prefix) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}
