//! The variant of [`sync`](crate::sync) for `--cfg corewire_kill`: a *role* (the holder of a sender
//! or a receiver) can be made to die after any of its *effects*. An effect is anything that another
//! process may see: a store or a read-modify-write of a word in shared memory, a store of payload
//! bytes, a wake-up.
//!
//! [`run`] runs one operation of one role. When the role has had as many effects as its [`Plan`]
//! allows, the next effect does not take place, and control unwinds out of the operation. What the
//! role does while unwinding has no effect either, as for a killed process. Words outside the
//! shared regions belong to the process itself: they are never counted, and mean nothing once it is
//! dead.
//!
//! All of this runs on one thread: a test drives its roles in turns, as `proof/kill` does.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::ops::Range;
use core::sync::atomic as machine;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::vec::Vec;

use machine::Ordering;

/// A range of addresses.
pub type Stretch = Range<usize>;

/// What one role may do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The role's name, for messages.
    pub role: &'static str,
    /// The shared memory that the role maps writable. A store elsewhere in shared memory would be a
    /// segmentation fault; here it panics.
    pub own: Vec<Stretch>,
    /// Number of effects after which it dies in place of the next one; `None` if it lives.
    pub dies_after: Option<u64>,
}

/// The result of an operation.
#[derive(Debug)]
pub enum Ended<R> {
    /// The operation finished, with this many effects. If the role was to die after exactly this
    /// many, it is dead now.
    Finished(R, u64),
    /// The role died inside the operation.
    Died,
}

/// A deliberate mistake: decides what happens to a store of a value to an address in shared memory,
/// or to a read-modify-write with this operand.
pub type Mistake = Box<dyn FnMut(usize, u64) -> Fate>;

/// What a [`Mistake`] does to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The store is made.
    Made,
    /// The store is made with another value.
    Changed(u64),
    /// The store is omitted, and the role does not notice.
    Lost,
    /// The store comes after the next store that is not held back. For stores only.
    HeldBack,
}

/// What unwinds out of an operation.
struct Died;

struct Running {
    plan: Plan,
    effects: u64,
    is_dead: bool,
}

enum Held {
    AtomicU32(*mut u32, u32),
    AtomicU64(*mut u64, u64),
}

struct State {
    shared: Vec<Stretch>,
    running: Option<Running>,
    mistake: Option<Mistake>,
    held: Vec<Held>,
    /// A store that is not held back has been made since.
    is_held_due: bool,
}

impl State {
    const fn new() -> Self {
        Self {
            shared: Vec::new(),
            running: None,
            mistake: None,
            held: Vec::new(),
            is_held_due: false,
        }
    }
}

std::thread_local! {
    static STATE: RefCell<State> = const { RefCell::new(State::new()) };
    /// Number of accesses left before the run counts as a hang.
    static STEPS_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Sets which memory is shared from now on, and how many accesses of any words are allowed. More
/// accesses count as an endless loop and panic.
pub fn begin(shared: Vec<Stretch>, steps_max: u64) {
    STEPS_LEFT.set(steps_max);
    STATE.with_borrow_mut(|state| *state = State { shared, ..State::new() });
}

/// Until the next [`begin`], calls `mistake` for every store of a role to shared words. Its result says
/// what happens to the store.
pub fn make_mistake(mistake: Mistake) {
    STATE.with_borrow_mut(|state| state.mistake = Some(mistake));
}

/// Runs an operation of a role.
///
/// # Panics
/// If the operation panics.
pub fn run<R>(plan: Plan, operation: impl FnOnce() -> R) -> Ended<R> {
    let running = Running { plan, effects: 0, is_dead: false };
    STATE.with_borrow_mut(|state| state.running = Some(running));
    let result = catch_unwind(AssertUnwindSafe(operation));
    let (held, effects) = STATE.with_borrow_mut(|state| {
        let held = core::mem::take(&mut state.held);
        let running = state.running.take();
        let (effects, dies_after) =
            running.map_or((0, None), |running| (running.effects, running.plan.dies_after));
        (if dies_after == Some(effects) { Vec::new() } else { held }, effects)
    });
    match result {
        Ok(result) => {
            held.iter().for_each(Held::make);
            Ended::Finished(result, effects)
        }
        Err(payload) if payload.is::<Died>() => Ended::Died,
        Err(payload) => resume_unwind(payload),
    }
}

/// An effect other than a store, such as a wake-up. Returns true if it takes place.
pub fn effect() -> bool {
    !matches!(admit(None), Admitted::Nothing)
}

/// A write of payload bytes from `address` on. Returns true if they are written.
pub fn writes(address: usize, bytes: usize) -> bool {
    bytes > 0 && !matches!(admit(Some(address..address + bytes)), Admitted::Nothing)
}

enum Admitted {
    /// It is made as it is.
    Private,
    /// It is made, unless the mistake changes it.
    Shared,
    /// It is not made: its role is dead.
    Nothing,
}

fn admit(at: Option<Stretch>) -> Admitted {
    step();
    let admitted = STATE.with_borrow_mut(|state| {
        let Some(running) = &mut state.running else { return Some(Admitted::Private) };
        if running.is_dead {
            return Some(Admitted::Nothing);
        }
        if let Some(at) = &at {
            let lies_in = |stretch: &Stretch| stretch.start <= at.start && at.end <= stretch.end;
            if !state.shared.iter().any(lies_in) {
                return Some(Admitted::Private);
            }
            let plan = &running.plan;
            assert!(plan.own.iter().any(lies_in), "{} wrote what is not its own", plan.role);
        }
        if running.plan.dies_after == Some(running.effects) {
            running.is_dead = true;
            return None;
        }
        running.effects += 1;
        if core::mem::take(&mut state.is_held_due) {
            state.held.drain(..).for_each(|held| held.make());
        }
        Some(Admitted::Shared)
    });
    admitted.unwrap_or_else(|| resume_unwind(Box::new(Died)))
}

/// What the mistake does to this store.
fn judge(address: usize, value: u64) -> Fate {
    let mistake = STATE.with_borrow_mut(|state| state.mistake.take());
    let Some(mut mistake) = mistake else { return Fate::Made };
    let fate = mistake(address, value);
    STATE.with_borrow_mut(|state| {
        state.mistake = Some(mistake);
        state.is_held_due = !state.held.is_empty() && fate != Fate::HeldBack;
    });
    fate
}

impl Held {
    fn make(&self) {
        match *self {
            // SAFETY: held within one operation of a role, and the role's memory stays mapped.
            Self::AtomicU32(word, value) => unsafe { word.write_volatile(value) },
            // SAFETY: as above.
            Self::AtomicU64(word, value) => unsafe { word.write_volatile(value) },
        }
    }
}

/// Counts one access.
pub(crate) fn step() {
    let left = STEPS_LEFT.get();
    assert!(left > 0, "a loop without end");
    STEPS_LEFT.set(left - 1);
}

macro_rules! atomic {
    ($name:ident, $word:ty, $($change:ident)*) => {
        /// The standard atomic of this name; a role may die before one of its changes.
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $name(machine::$name);

        impl $name {
            /// As the standard type.
            #[must_use]
            pub const fn new(value: $word) -> Self {
                Self(machine::$name::new(value))
            }

            /// As the standard type.
            ///
            /// # Safety
            /// As for the standard type.
            #[must_use]
            pub const unsafe fn from_ptr<'a>(word: *mut $word) -> &'a Self {
                let word: *const Self = word.cast();
                // SAFETY: guaranteed by the caller; the type is transparent down to the word.
                unsafe { &*word }
            }

            /// As the standard type.
            #[must_use]
            pub const fn as_ptr(&self) -> *mut $word {
                self.0.as_ptr()
            }

            /// As the standard type.
            #[must_use]
            pub fn load(&self, ordering: Ordering) -> $word {
                step();
                self.0.load(ordering)
            }

            /// As the standard type; an effect.
            pub fn store(&self, value: $word, ordering: Ordering) {
                match admit(Some(self.stretch())) {
                    Admitted::Nothing => {}
                    Admitted::Private => self.0.store(value, ordering),
                    Admitted::Shared => match judge(self.as_ptr().addr(), value.into()) {
                        Fate::Made => self.0.store(value, ordering),
                        #[allow(clippy::cast_possible_truncation, reason = "half the words are u64")]
                        Fate::Changed(value) => self.0.store(value as $word, ordering),
                        Fate::Lost => {}
                        Fate::HeldBack => STATE.with_borrow_mut(|state| {
                            state.held.push(Held::$name(self.as_ptr(), value));
                        }),
                    },
                }
            }

            $(
                /// As the standard type; an effect. For a dead role it is only a load.
                pub fn $change(&self, value: $word, ordering: Ordering) -> $word {
                    match admit(Some(self.stretch())) {
                        Admitted::Nothing => self.0.load(Ordering::Relaxed),
                        Admitted::Private => self.0.$change(value, ordering),
                        Admitted::Shared => match judge(self.as_ptr().addr(), value.into()) {
                            #[allow(
                                clippy::cast_possible_truncation,
                                reason = "half the words are u64"
                            )]
                            Fate::Changed(value) => self.0.$change(value as $word, ordering),
                            Fate::Lost => self.0.load(Ordering::Relaxed),
                            Fate::Made | Fate::HeldBack => self.0.$change(value, ordering),
                        },
                    }
                }
            )*

            /// As the standard type; an effect if the value is exchanged.
            ///
            /// # Errors
            /// As for the standard type.
            pub fn compare_exchange(
                &self,
                current: $word,
                new: $word,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$word, $word> {
                step();
                // There is only one thread, so the value cannot change after this load.
                let found = self.0.load(Ordering::Relaxed);
                if found != current {
                    return Err(found);
                }
                let new = match admit(Some(self.stretch())) {
                    Admitted::Nothing => return Ok(found),
                    Admitted::Private => new,
                    Admitted::Shared => match judge(self.as_ptr().addr(), new.into()) {
                        #[allow(clippy::cast_possible_truncation, reason = "half the words are u64")]
                        Fate::Changed(new) => new as $word,
                        Fate::Lost => return Ok(found),
                        Fate::Made | Fate::HeldBack => new,
                    },
                };
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As the standard type, but it never fails spuriously; an effect if the value is
            /// exchanged.
            ///
            /// # Errors
            /// As for the standard type.
            pub fn compare_exchange_weak(
                &self,
                current: $word,
                new: $word,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$word, $word> {
                self.compare_exchange(current, new, success, failure)
            }

            fn stretch(&self) -> Stretch {
                let address = self.as_ptr().addr();
                address..address + size_of::<$word>()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

atomic!(AtomicU32, u32, fetch_add fetch_sub fetch_or fetch_xor fetch_and fetch_max fetch_min swap);
atomic!(AtomicU64, u64, fetch_add fetch_sub fetch_or fetch_xor fetch_and fetch_max fetch_min swap);
