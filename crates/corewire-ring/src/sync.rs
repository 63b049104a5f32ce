//! The only place that names atomics. It has several variants: the one for real machines; loom's
//! (`--cfg loom`), under which the same rings are explored in every interleaving; one that can make
//! a role die after any of its stores (`--cfg corewire_kill`, `sync_kill.rs`); and one that reports
//! accesses (`sync_reported.rs`), either to a counter (`--cfg corewire_steps`, `sync_steps.rs`) or
//! to a model of coherent caches (`cfg(corewire_coherence)`, which the crate `corewire-coherence`
//! sets for itself, since it compiles this source, too).
//!
//! Every ordering stronger than relaxed is written as [`order!`](crate::order) or
//! [`fence_at!`](crate::fence_at) with a label. `docs/ordering.md` lists the labels, what each
//! pairs with, and the model that fails when it is weakened: under loom, `weaken` turns the
//! orderings of chosen labels into `Relaxed` (or drops their fences).
//!
//! Proofs: `proof/models/tests/models/ring.rs`.

#[cfg(corewire_coherence)]
use crate::caches as report;
/// Words in every variant those of real machines, since no model depends on them: those of this process alone, which are
/// set when it begins, and those in memory that no ring has.
pub use core::sync::atomic::{
    AtomicPtr as StaticPtr, AtomicU8 as StaticU8, AtomicU16 as StaticU16, AtomicU32 as StaticU32,
    AtomicU64 as StaticU64,
};
#[cfg(not(any(loom, corewire_kill, corewire_steps, corewire_coherence)))]
pub use core::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(loom))]
pub use core::sync::atomic::{Ordering, fence};
#[cfg(any(corewire_steps, corewire_coherence))]
#[path = "sync_reported.rs"]
mod reported;
#[cfg(any(corewire_steps, corewire_coherence))]
pub use reported::{AtomicU32, AtomicU64};
#[cfg(corewire_steps)]
#[path = "sync_steps.rs"]
mod report;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(corewire_steps)]
pub use report::steps;

#[cfg(corewire_kill)]
#[path = "sync_kill.rs"]
pub mod kill;
#[cfg(corewire_kill)]
pub use kill::{AtomicU32, AtomicU64};

/// An ordering with its label: `order!(B1: Release)`.
#[cfg(not(loom))]
#[macro_export]
macro_rules! order {
    ($label:ident : $ordering:ident) => {
        $crate::sync::Ordering::$ordering
    };
}

/// An ordering with its label, weakened when a model asks for it.
#[cfg(loom)]
#[macro_export]
macro_rules! order {
    ($label:ident : $ordering:ident) => {
        if $crate::sync::is_weakened(stringify!($label)) {
            $crate::sync::Ordering::Relaxed
        } else {
            $crate::sync::Ordering::$ordering
        }
    };
}

/// A fence with its label: `fence_at!(B2: Acquire)`.
#[cfg(not(loom))]
#[macro_export]
macro_rules! fence_at {
    ($label:ident : $ordering:ident) => {
        $crate::sync::fence($crate::sync::Ordering::$ordering)
    };
}

/// A fence with its label, dropped when a model asks for it.
#[cfg(loom)]
#[macro_export]
macro_rules! fence_at {
    ($label:ident : $ordering:ident) => {
        if !$crate::sync::is_weakened(stringify!($label)) {
            $crate::sync::fence($crate::sync::Ordering::$ordering)
        }
    };
}

/// The cheap half of an asymmetric fence: it keeps the compiler from moving anything across. The
/// other side's [`Kernel::barrier_everywhere`](crate::Kernel::barrier_everywhere) does the same for
/// the processor. In a model both halves are full fences, which is equivalent to the pair.
#[cfg(not(loom))]
#[inline(always)]
pub fn light_fence() {
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// The cheap half of an asymmetric fence; label W5.
#[cfg(loom)]
pub fn light_fence() {
    if mutant::has_light_fences() {
        crate::fence_at!(W5: SeqCst);
    }
}

/// Tells the processor that this is a spin loop.
#[cfg(not(loom))]
#[inline(always)]
pub fn pause() {
    #[cfg(corewire_kill)]
    kill::step();
    core::hint::spin_loop();
}

/// Tells the model that this is a spin loop.
#[cfg(loom)]
pub fn pause() {
    loom::thread::yield_now();
}

#[cfg(loom)]
pub use mutant::{is_weakened, set_light_fences, weaken};

#[cfg(loom)]
mod mutant {
    use std::cell::Cell;
    use std::string::String;
    use std::sync::Mutex;

    static WEAKENED: Mutex<String> = Mutex::new(String::new());

    std::thread_local! {
        static LIGHT_FENCES: Cell<bool> = const { Cell::new(true) };
    }

    /// Sets whether light fences have an effect in this thread's models from now on. They have none
    /// if the kernel refuses the other half.
    pub fn set_light_fences(are_fences: bool) {
        LIGHT_FENCES.set(are_fences);
    }

    pub(super) fn has_light_fences() -> bool {
        LIGHT_FENCES.get()
    }

    /// Weakens the orderings with these labels (separated by spaces), and no others, in every model
    /// from now on.
    ///
    /// # Panics
    /// If an earlier model panicked inside this function.
    pub fn weaken(labels: &str) {
        *WEAKENED.lock().expect("the lock is never held across a panic") = labels.into();
    }

    /// Must the ordering with this label be weakened?
    ///
    /// # Panics
    /// If an earlier model panicked inside this function.
    #[must_use]
    pub fn is_weakened(label: &str) -> bool {
        let weakened = WEAKENED.lock().expect("the lock is never held across a panic");
        weakened.split_ascii_whitespace().any(|other| other == label)
    }
}
