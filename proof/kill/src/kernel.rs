//! A kernel in which no role really sleeps, and which records the wake-ups.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corewire_ring::doorbell::Bells;
use corewire_ring::sync::{AtomicU32, kill};
use corewire_ring::{Control, Kernel};

/// The calls to the kernel.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The addresses of the words on which a wake-up was requested.
    pub(crate) wakes: Vec<usize>,
    /// The rows whose descriptors were written.
    pub(crate) descriptors: Vec<u32>,
}

/// The log that all roles of a world share. Roles run on one thread, but a ring may require that its kernel can be used
/// by several.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedLog(Arc<Mutex<Log>>);

impl SharedLog {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kernel as one role calls it.
#[derive(Debug, Clone)]
pub struct TurnKernel {
    /// The CPU that it reports for the role.
    pub(crate) cpu: u32,
    pub(crate) log: SharedLog,
}

impl Kernel for TurnKernel {
    fn barrier_everywhere(&self) -> bool {
        true
    }

    fn wake(&self, word: &AtomicU32, _count_max: u32) {
        if kill::effect() {
            self.log.lock().wakes.push(address(word));
        }
    }

    fn wait(&self, _: Bells<'_>, _cap_ns: u64) -> bool {
        false
    }

    fn cpu(&self) -> u32 {
        self.cpu
    }
}

impl Control for TurnKernel {
    fn wake_descriptor(&self, row: u32) {
        if kill::effect() {
            self.log.lock().descriptors.push(row);
        }
    }
}

pub(crate) fn address(word: &AtomicU32) -> usize {
    word.as_ptr().addr()
}
