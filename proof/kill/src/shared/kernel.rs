//! A kernel for roles that take turns: no role really sleeps in it, and it knows which parties are
//! dead.

use std::cell::RefCell;
use std::rc::Rc;

use corewire_ring::doorbell::Bells;
use corewire_ring::shared::{Entrance, Party, Roster};
use corewire_ring::sync::Ordering::Relaxed;
use corewire_ring::sync::{AtomicU32, kill};
use corewire_ring::{Control, Kernel};

use super::Role;

/// The calls to the kernel, and the deaths that it knows.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The addresses of the words on which a wake-up was requested.
    pub(super) wakes: Vec<usize>,
    /// The rows whose descriptors were written.
    pub(super) descriptors: Vec<u32>,
    /// Each role that asked for the report of a death, and the party whose death it is.
    pub(super) watched: Vec<(Role, Party, Entrance)>,
    /// The parties that are dead.
    pub(super) dead: Vec<(Party, Entrance)>,
    /// The wait of the last call that would have slept.
    pub(super) waited: Option<Waited>,
}

/// A sleeper on a word: the word's address, its value, and the number of wake-ups before the sleep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waited {
    word: usize,
    seen: u32,
    wakes: usize,
}

impl Log {
    /// Whether this sleeper has been woken.
    pub(super) fn is_woken(&self, waited: Waited, words: [&AtomicU32; 2]) -> bool {
        let is_rung = self.wakes[waited.wakes..].contains(&waited.word);
        let has_changed = words
            .iter()
            .any(|word| address(word) == waited.word && word.load(Relaxed) != waited.seen);
        is_rung && has_changed
    }
}

/// The kernel as one role calls it.
#[derive(Debug, Clone)]
pub struct TurnKernel {
    pub(super) role: Role,
    pub(super) roster: Roster,
    pub(super) log: Rc<RefCell<Log>>,
}

impl Kernel for TurnKernel {
    fn barrier_everywhere(&self) -> bool {
        true
    }

    fn wake(&self, word: &AtomicU32, _count_max: u32) {
        if kill::effect() {
            self.log.borrow_mut().wakes.push(address(word));
        }
    }

    fn wait(&self, bells: Bells<'_>, _cap_ns: u64) -> bool {
        let mut log = self.log.borrow_mut();
        let wakes = log.wakes.len();
        let bell = bells.shared.expect("sleepers of shared channels wait on a shared bell");
        log.waited = Some(Waited { word: address(bell.word), seen: bell.heard, wakes });
        false
    }

    fn cpu(&self) -> u32 {
        7
    }
}

impl Control for TurnKernel {
    fn watch(&self, party: Party, who: Entrance, _socket: u128) {
        let mut log = self.log.borrow_mut();
        if log.dead.contains(&(party, who)) {
            self.roster.record_death(party, who);
        } else if !log.watched.contains(&(self.role, party, who)) {
            log.watched.push((self.role, party, who));
        }
    }

    fn wake_descriptor(&self, row: u32) {
        if kill::effect() {
            self.log.borrow_mut().descriptors.push(row);
        }
    }
}

fn address(word: &AtomicU32) -> usize {
    word.as_ptr().addr()
}
