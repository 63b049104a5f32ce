//! A kernel for roles that take turns: nobody sleeps in it, and it knows who is dead.

use std::cell::RefCell;
use std::rc::Rc;

use corewire_ring::Kernel;
use corewire_ring::shared::{Entrance, Party, Roster};
use corewire_ring::sync::Ordering::Relaxed;
use corewire_ring::sync::{AtomicU32, kill};

use super::Role;

/// What the kernel was asked for, and what it knows.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The words on which somebody was woken.
    pub(super) wakes: Vec<usize>,
    /// The rows whose descriptors were written to.
    pub(super) descriptors: Vec<u32>,
    /// Who asked for whose death.
    pub(super) watched: Vec<(Role, Party, Entrance)>,
    /// Who is dead.
    pub(super) dead: Vec<(Party, Entrance)>,
    /// What the last call that would have slept waited for.
    pub(super) waited: Option<Waited>,
}

/// Somebody who sleeps on a word: which, what it held, and how many wake-ups there had been.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waited {
    word: usize,
    seen: u32,
    wakes: usize,
}

impl Log {
    /// Has this sleeper been woken?
    pub(super) fn is_woken(&self, waited: Waited, words: [&AtomicU32; 2]) -> bool {
        let is_rung = self.wakes[waited.wakes..].contains(&waited.word);
        let has_changed = words
            .iter()
            .any(|word| address(word) == waited.word && word.load(Relaxed) != waited.seen);
        is_rung && has_changed
    }
}

/// The kernel, as one role asks it.
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

    fn wait(&self, shared: (&AtomicU32, u32), _: (&AtomicU32, u32), _cap_ns: u64) -> bool {
        let mut log = self.log.borrow_mut();
        let wakes = log.wakes.len();
        log.waited = Some(Waited { word: address(shared.0), seen: shared.1, wakes });
        false
    }

    fn cpu(&self) -> u32 {
        7
    }

    fn watch(&self, party: Party, who: Entrance, _socket: u128) {
        let mut log = self.log.borrow_mut();
        if log.dead.contains(&(party, who)) {
            self.roster.learn(party, who);
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
