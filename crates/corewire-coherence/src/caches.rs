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
//! Time is each core's own, and it does not stand still for a line: a core goes on with what comes next,
//! with up to [`Costs::under_way_max`] lines under way at once, [`Costs::next_ns`] apart, and ends its work in
//! order. It stands still for the first line after a wait, for nobody foresees how that comes out. A store is
//! made when the line is there and all before it is done, a read-modify-write too, [`Costs::locked_ns`]
//! later; nobody sees it before.
//!
//! Each line has one place where it is asked for, one request after the other: [`Costs::busy_ns`] for a
//! request that takes the line from its owner, or comes from afar, [`Costs::share_ns`] for one more reader in
//! a domain that has it; a read-modify-write keeps the line to its end. A domain's shared cache
//! serves a line from when the first copy has come: who asks before that asks afar, too.
//!
//! What is left out: capacity (nothing is evicted); lines that are fetched ahead, by the rings or the
//! hardware; whoever looks while another's call is under way; and instructions, which are free but for
//! [`Costs::hit_ns`] each time they touch what is shared. So counts are exact for what was run, and times are
//! what the lines alone would take.

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
    /// How long a line is busy with a request that takes it from its owner or comes from afar, before it
    /// can serve the next.
    pub busy_ns: u64,
    /// The same for one more reader of a line that its domain has.
    pub share_ns: u64,
    /// How far apart a core asks for lines.
    pub next_ns: u64,
    /// What a read-modify-write takes beyond its line.
    pub locked_ns: u64,
    /// For how many lines a core can have asked at once: 1, and nothing overlaps.
    pub under_way_max: usize,
}

impl Default for Costs {
    /// Of the order of a server of the 2020s: 50 ns within a domain, 125 ns beyond.
    fn default() -> Self {
        Self {
            hit_ns: 1,
            near_ns: 50,
            far_ns: 125,
            busy_ns: 20,
            share_ns: 5,
            next_ns: 4,
            locked_ns: 10,
            under_way_max: 10,
        }
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

    pub(crate) fn add(&mut self, more: &Self) {
        self.near += more.near;
        self.far += more.far;
        self.upgrades += more.upgrades;
        self.invalidations += more.invalidations;
        self.modifies += more.modifies;
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
    holders: Vec<Holder>,
    /// Nobody is served before.
    free_at_ns: u64,
    /// What it holds was not there before.
    changed_at_ns: u64,
    /// Cores that wait for it to change, each with the number of its wait.
    waiting: Vec<(usize, u64)>,
    counts: Counts,
}

#[derive(Debug, Clone, Copy)]
struct Holder {
    core: usize,
    /// From when on.
    there_ns: u64,
}

#[derive(Debug, Default)]
struct Core {
    /// When it does what comes next.
    now_ns: u64,
    /// When all that it has loaded is there.
    loaded_ns: u64,
    /// When all that it has stored is made.
    stored_ns: u64,
    /// When it can ask for the next line.
    may_ask_ns: u64,
    /// When the lines come that it has asked for.
    under_way: Vec<u64>,
    /// It has waited, and no line has come since.
    has_waited: bool,
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

    /// When a core does what comes next.
    #[must_use]
    pub fn now_ns(&self, core: usize) -> u64 {
        self.0.borrow().cores[core].now_ns
    }

    /// When a core is done with all that it has begun.
    #[must_use]
    pub fn done_ns(&self, core: usize) -> u64 {
        let Core { now_ns, loaded_ns, stored_ns, .. } = self.0.borrow().cores[core];
        now_ns.max(loaded_ns).max(stored_ns)
    }

    /// Has a core do nothing until then.
    pub fn pass_until(&self, core: usize, then_ns: u64) {
        let now_ns = &mut self.0.borrow_mut().cores[core].now_ns;
        *now_ns = then_ns.max(*now_ns);
    }

    /// Ends a core's wait, in which it did nothing: it stands still for the first line that it loads.
    pub fn wake_at(&self, core: usize, then_ns: u64) {
        self.pass_until(core, then_ns);
        self.0.borrow_mut().cores[core].has_waited = true;
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
        let number = part.line_of(address);
        let line = lines.entry(number).or_default();
        let me = &mut cores[core];
        me.now_ns += machine.costs.hit_ns;
        let there_ns = line.there_ns(core, access).unwrap_or_else(|| {
            let asked_ns = me.ask(&machine.costs);
            let (there_ns, counts) = line.come(core, access, asked_ns, machine);
            me.under_way.push(there_ns);
            // What is not made yet is waited for, too.
            let waits = access != Access::Store && (me.has_waited || line.changed_at_ns > asked_ns);
            if waits {
                me.now_ns = there_ns;
                me.has_waited = false;
            }
            me.counts.add(&counts);
            line.counts.add(&counts);
            there_ns
        });
        me.loaded_ns = me.loaded_ns.max(me.now_ns);
        if access == Access::Load {
            me.loaded_ns = me.loaded_ns.max(there_ns);
            me.read.push(number);
            return;
        }
        me.stored_ns = me.stored_ns.max(me.loaded_ns).max(there_ns);
        if access == Access::Modify {
            me.stored_ns += machine.costs.locked_ns;
            me.loaded_ns = me.stored_ns;
            me.counts.modifies += 1;
            line.counts.modifies += 1;
            line.free_at_ns = line.free_at_ns.max(me.stored_ns);
        }
        line.changed_at_ns = me.stored_ns;
        woken.extend(line.waiting.drain(..).map(|(core, wait)| (core, wait, me.stored_ns)));
    }
}

impl Core {
    /// When a line can be asked for, as things are.
    fn ask(&mut self, costs: &Costs) -> u64 {
        self.now_ns = self.now_ns.max(self.may_ask_ns);
        self.under_way.retain(|&there_ns| there_ns > self.now_ns);
        if self.under_way.len() >= costs.under_way_max {
            self.under_way.sort_unstable();
            self.now_ns = self.under_way.remove(0);
        }
        self.may_ask_ns = self.now_ns + costs.next_ns;
        self.now_ns
    }
}

impl Line {
    /// From when on `core` has it, if it has it and may do that to it.
    fn there_ns(&self, core: usize, access: Access) -> Option<u64> {
        let fits = access == Access::Load || self.holders.len() == 1;
        let mine = self.holders.iter().find(|holder| holder.core == core);
        mine.filter(|_| fits).map(|holder| holder.there_ns)
    }

    /// Comes to `core`, which asks for it then: when it is there, and what that counts as.
    fn come(
        &mut self,
        core: usize,
        access: Access,
        asked_ns: u64,
        Machine { domain_cores, costs }: &Machine,
    ) -> (u64, Counts) {
        let is_far = |holder: &&Holder| holder.core / domain_cores != core / domain_cores;
        let mut counts = Counts::default();
        let others = || self.holders.iter().filter(|holder| holder.core != core);
        let own = self.holders.iter().find(|holder| holder.core == core);
        let is_here = own.is_some();
        // What is under way already must come before more can be asked for.
        let asked_ns = own.map_or(asked_ns, |holder| asked_ns.max(holder.there_ns));
        let has_far = others().any(|holder| is_far(&holder));
        // It comes from the nearest who has it.
        let mut near = others().filter(|holder| !is_far(holder));
        let is_near = if has_far {
            near.any(|holder| holder.there_ns <= asked_ns.max(self.changed_at_ns))
        } else {
            near.next().is_some()
        };
        match (is_here, is_near) {
            (true, _) => counts.upgrades = 1,
            (false, true) => counts.near = 1,
            (false, false) => counts.far = 1,
        }
        let is_load = access == Access::Load;
        if !is_load {
            counts.invalidations = others().count() as u64;
        }
        let is_shared = is_load && is_near && self.holders.len() > 1;
        // Who stores waits for the farthest, too, who must give it up.
        let comes_far = counts.far == 1 || (!is_load && has_far);
        let served_ns = asked_ns.max(self.changed_at_ns).max(self.free_at_ns);
        self.free_at_ns = served_ns + if is_shared { costs.share_ns } else { costs.busy_ns };
        let there_ns = served_ns + if comes_far { costs.far_ns } else { costs.near_ns };
        if !is_load {
            self.holders.clear();
        }
        self.holders.push(Holder { core, there_ns });
        (there_ns, counts)
    }
}
