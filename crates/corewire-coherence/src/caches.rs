//! Private caches, one to a core, kept coherent by a directory (MESI), and what each access to shared
//! memory costs there.
//!
//! A line is held by one core alone, which may write it (modified, or exclusive and not yet written),
//! or by several, which may read it, or by nobody. What a core has not got comes from whoever has it: from
//! a core of its own *domain* (cores that share a last-level cache) if one has it, else from afar. A
//! store needs the line alone: an *upgrade* if this core has it with others, a transfer if not; both
//! invalidate the others' copies. A read-modify-write is a store that holds the line for as long as it
//! takes.
//!
//! Time is each core's own. An access takes what the [`Costs`] say; a line serves one transfer after
//! the other, [`Costs::busy_ns`] apart, and a read-modify-write keeps it to its end. Nobody sees a
//! store before it was made. What is left out: capacity (nothing is evicted); lines that are fetched ahead,
//! by the rings or the hardware; whoever looks while another's call is under way; and that misses and
//! stores overlap. So counts are exact for what was run, times are no less than those of messages one by
//! one, the more so the more a ring stores, and a stream is faster than they say.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use corewire_layout::LINE_BYTES;

/// The most cores of a model.
pub const CORES_MAX: usize = 512;

/// What accesses take, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// A line that is there.
    pub hit_ns: u64,
    /// A line from another core of the same domain.
    pub near_ns: u64,
    /// A line from another domain, or from memory.
    pub far_ns: u64,
    /// How long a line is busy with one transfer before it can serve the next.
    pub busy_ns: u64,
}

impl Default for Costs {
    /// Of the order of a server of the 2020s: 50 ns within a domain, 125 ns beyond.
    fn default() -> Self {
        Self { hit_ns: 1, near_ns: 50, far_ns: 125, busy_ns: 20 }
    }
}

/// The machine that is modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// How many cores share a last-level cache.
    pub domain_cores: usize,
    /// What accesses take.
    pub costs: Costs,
}

impl Default for Machine {
    /// All cores in one domain.
    fn default() -> Self {
        Self { domain_cores: CORES_MAX, costs: Costs::default() }
    }
}

/// What was counted, of one core or one line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines fetched from a core of the same domain.
    pub near: u64,
    /// Lines fetched from another domain, or from memory.
    pub far: u64,
    /// Lines that were shared and had to be had alone.
    pub upgrades: u64,
    /// Copies of others that were invalidated.
    pub invalidations: u64,
    /// Read-modify-writes, each of which the line serves alone.
    pub modifies: u64,
}

impl Counts {
    /// Lines fetched.
    #[must_use]
    pub fn transfers(&self) -> u64 {
        self.near + self.far
    }

    /// What came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            near: self.near - earlier.near,
            far: self.far - earlier.far,
            upgrades: self.upgrades - earlier.upgrades,
            invalidations: self.invalidations - earlier.invalidations,
            modifies: self.modifies - earlier.modifies,
        }
    }
}

/// Addresses that several cores use, with the name of what lies there.
#[derive(Debug, Clone)]
pub struct Part {
    /// Where it lies.
    pub addresses: Range<usize>,
    /// What it is called.
    pub name: &'static str,
    /// After so many bytes, the same lines come again: as if what lies so far apart lay in one place.
    /// `usize::MAX` for memory as it is.
    pub overlay_bytes: usize,
}

impl Part {
    /// The line of an address of this part.
    fn line_of(&self, address: usize) -> usize {
        let start = self.addresses.start;
        (start + (address - start) % self.overlay_bytes) / LINE_BYTES
    }
}

#[derive(Debug, Default)]
struct Line {
    /// Who has it; a single one may write it.
    holders: Vec<usize>,
    /// Nobody is served before.
    free_at_ns: u64,
    /// What it holds was not there before.
    changed_at_ns: u64,
    /// Cores that wait for it to change, each with the number of its wait.
    waiting: Vec<(usize, u64)>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Core {
    now_ns: u64,
    counts: Counts,
    /// Lines that it has read since it was last asked.
    read: Vec<usize>,
    waits: u64,
}

#[derive(Debug)]
struct State {
    machine: Machine,
    parts: Vec<Part>,
    lines: BTreeMap<usize, Line>,
    cores: Vec<Core>,
    current: Option<usize>,
    /// Core, the number of its wait, and when what it waited for changed.
    woken: Vec<(usize, u64, u64)>,
}

std::thread_local! {
    static STATE: RefCell<Option<Rc<RefCell<State>>>> = const { RefCell::new(None) };
}

/// The caches of a model. Accesses of this thread through the rings' atomics are counted while a role
/// runs in [`Caches::run_as`]; what is not in one of the parts is some core's own.
#[derive(Debug)]
pub struct Caches(Rc<RefCell<State>>);

impl Caches {
    /// Empty caches of `cores` cores.
    ///
    /// # Panics
    /// If there are more than [`CORES_MAX`], or a domain has none.
    #[must_use]
    pub fn new(machine: Machine, cores: usize, parts: Vec<Part>) -> Self {
        assert!(cores <= CORES_MAX && machine.domain_cores > 0, "{cores} cores, {machine:?}");
        let cores = (0..cores).map(|_| Core::default()).collect();
        let (lines, woken) = (BTreeMap::new(), Vec::new());
        Self(Rc::new(RefCell::new(State { machine, parts, lines, cores, current: None, woken })))
    }

    /// Runs `job` on `core`.
    pub fn run_as<R>(&self, core: usize, job: impl FnOnce() -> R) -> R {
        self.0.borrow_mut().current = Some(core);
        STATE.set(Some(Rc::clone(&self.0)));
        let result = job();
        STATE.set(None);
        self.0.borrow_mut().current = None;
        result
    }

    /// A core's time.
    #[must_use]
    pub fn now_ns(&self, core: usize) -> u64 {
        self.0.borrow().cores[core].now_ns
    }

    /// Has a core do nothing until then.
    pub fn pass_until(&self, core: usize, then_ns: u64) {
        let now_ns = &mut self.0.borrow_mut().cores[core].now_ns;
        *now_ns = then_ns.max(*now_ns);
    }

    /// What a core's accesses cost so far.
    #[must_use]
    pub fn counts(&self, core: usize) -> Counts {
        self.0.borrow().cores[core].counts
    }

    /// What the accesses to a part cost so far, line by line: the line's offset in the part, and its
    /// counts.
    #[must_use]
    pub fn lines(&self, name: &str) -> Vec<(usize, Counts)> {
        let state = self.0.borrow();
        let parts = state.parts.iter().filter(|part| part.name == name);
        let lines = parts.flat_map(|part| {
            let start = part.addresses.start;
            let lines =
                state.lines.range(start / LINE_BYTES..part.addresses.end.div_ceil(LINE_BYTES));
            lines.map(move |(line, it)| (line * LINE_BYTES - start, it.counts))
        });
        lines.collect()
    }

    /// Begins to take note of what a core reads.
    pub(crate) fn forget_reads(&self, core: usize) {
        self.0.borrow_mut().cores[core].read.clear();
    }

    /// Has a core wait for a change of any line that it has read since then.
    pub(crate) fn await_change(&self, core: usize) {
        let State { cores, lines, .. } = &mut *self.0.borrow_mut();
        let Core { read, waits, .. } = &mut cores[core];
        *waits += 1;
        read.sort_unstable();
        read.dedup();
        for number in read.drain(..) {
            lines.entry(number).or_default().waiting.push((core, *waits));
        }
    }

    /// Those whose wait has ended, each with when that was.
    pub(crate) fn take_woken(&self) -> Vec<(usize, u64)> {
        let State { cores, woken, .. } = &mut *self.0.borrow_mut();
        // Of an earlier wait there may be lines left that had not changed.
        let is_current = |&(core, wait, _): &(usize, u64, u64)| wait == cores[core].waits;
        woken.drain(..).filter(is_current).map(|(core, _, at_ns)| (core, at_ns)).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Load,
    Store,
    Modify,
}

/// Reports a load of the word at `address`.
pub fn load(address: usize) {
    report(address, Access::Load);
}

/// Reports a store to the word at `address`.
pub fn store(address: usize) {
    report(address, Access::Store);
}

/// Reports a read-modify-write of the word at `address`.
pub fn modify(address: usize) {
    report(address, Access::Modify);
}

/// Reports the reading of `bytes` bytes from `address` on, which are no atomics.
pub fn read_bytes(address: usize, bytes: usize) {
    lines_of(address, bytes).for_each(load);
}

/// Reports the writing of `bytes` bytes from `address` on.
pub fn write_bytes(address: usize, bytes: usize) {
    lines_of(address, bytes).for_each(store);
}

fn lines_of(address: usize, bytes: usize) -> impl Iterator<Item = usize> {
    (address / LINE_BYTES..(address + bytes).div_ceil(LINE_BYTES)).map(|line| line * LINE_BYTES)
}

fn report(address: usize, access: Access) {
    STATE.with_borrow(|state| {
        if let Some(state) = state {
            state.borrow_mut().access(address, access);
        }
    });
}

impl State {
    fn access(&mut self, address: usize, access: Access) {
        let Some(core) = self.current else { return };
        let Self { machine, parts, lines, cores, woken, .. } = self;
        let Some(part) = parts.iter().find(|part| part.addresses.contains(&address)) else {
            return;
        };
        let Machine { domain_cores, costs } = *machine;
        let number = part.line_of(address);
        let line = lines.entry(number).or_default();
        let me = &mut cores[core];
        let domain = |core: usize| core / domain_cores;
        let is_alone = line.holders == [core];
        let is_here = line.holders.contains(&core);
        let mut counts =
            Counts { modifies: u64::from(access == Access::Modify), ..Counts::default() };
        let start_ns = me.now_ns.max(line.changed_at_ns);
        let fits = if access == Access::Load { is_here } else { is_alone };
        if fits {
            me.now_ns = start_ns + costs.hit_ns;
        } else {
            let others = || line.holders.iter().filter(|&&other| other != core);
            let has_near = others().any(|&other| domain(other) == domain(core));
            let has_far = others().any(|&other| domain(other) != domain(core));
            // A line comes from the nearest who has it.
            match (is_here, has_near) {
                (true, _) => counts.upgrades = 1,
                (false, true) => counts.near = 1,
                (false, false) => counts.far = 1,
            }
            // Who stores waits for the farthest, too, who must give it up.
            let mut is_far = counts.far == 1;
            if access != Access::Load {
                counts.invalidations = others().count() as u64;
                is_far |= has_far;
            }
            let served_ns = start_ns.max(line.free_at_ns);
            line.free_at_ns = served_ns + costs.busy_ns;
            me.now_ns = served_ns + if is_far { costs.far_ns } else { costs.near_ns };
        }
        if access == Access::Load {
            me.read.push(number);
            if !is_here {
                line.holders.push(core);
            }
        } else {
            line.holders.clear();
            line.holders.push(core);
            line.changed_at_ns = me.now_ns;
            if access == Access::Modify {
                line.free_at_ns = line.free_at_ns.max(me.now_ns);
            }
            let changed_at_ns = line.changed_at_ns;
            woken.extend(line.waiting.drain(..).map(|(core, wait)| (core, wait, changed_at_ns)));
        }
        for total in [&mut me.counts, &mut line.counts] {
            total.near += counts.near;
            total.far += counts.far;
            total.upgrades += counts.upgrades;
            total.invalidations += counts.invalidations;
            total.modifies += counts.modifies;
        }
    }
}
