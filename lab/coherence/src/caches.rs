//! A model of private caches, one per core, kept coherent by a directory (MESI), and of what each
//! access to shared memory costs.
//!
//! A line is held exclusively by one core, which may write it (modified, or exclusive and not yet
//! written), or shared by several cores, which may only read it, or by no core. A core that does not
//! hold a line gets it from a core that does: from a core of its own *domain* (the cores that share a
//! last-level cache) if possible, otherwise from another domain or from memory. A store needs the line
//! exclusively: this is an *upgrade* if the core already shares the line, otherwise a transfer; both
//! invalidate the other copies. A read-modify-write is a store that occupies the line until it ends.
//!
//! Each core has its own clock and does not stall for a line: it continues with the next accesses, with
//! up to [`Costs::under_way_max`] requests for lines in flight, issued [`Costs::next_ns`] apart, and
//! completes its work in order. It does stall for the first line after a wait, because no predictor
//! foresees the outcome. A store takes effect when the line has arrived and all earlier work is
//! complete, a read-modify-write [`Costs::locked_ns`] later. No other core sees the store before that.
//!
//! The requests for one line are served one after the other. A request that takes the line from its
//! owner or comes from another domain occupies the line for [`Costs::busy_ns`]; one more reader in a
//! domain that holds the line takes [`Costs::share_ns`]; a read-modify-write occupies the line until it
//! ends. The shared cache of a domain serves a line only after the first copy has arrived: a core that
//! asks before that asks another domain, too.
//!
//! Not modelled are capacity (nothing is evicted), prefetching by the rings or by the hardware, reads
//! by one core during a call of another, and instructions, which are free except for [`Costs::hit_ns`]
//! for each access to shared memory. So the counts are exact for the accesses that were run, and the
//! times are what the lines alone would take.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use corewire_layout::LINE_BYTES;

/// Maximum number of cores of a model.
pub const CORES_MAX: usize = 512;

/// What accesses take, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// Access to a line that the core holds.
    pub hit_ns: u64,
    /// Transfer of a line from another core of the same domain.
    pub near_ns: u64,
    /// Transfer of a line from another domain, or from memory.
    pub far_ns: u64,
    /// How long a line is busy with a request that takes it from its owner or comes from another
    /// domain, before it can serve the next request.
    pub busy_ns: u64,
    /// The same for one more reader in a domain that holds the line.
    pub share_ns: u64,
    /// Time between two requests of one core.
    pub next_ns: u64,
    /// What a read-modify-write takes in addition to getting its line.
    pub locked_ns: u64,
    /// Maximum number of requests for lines that a core can have in flight. With 1, requests do not
    /// overlap.
    pub under_way_max: usize,
}

impl Default for Costs {
    /// Typical of a server of the 2020s: 50 ns within a domain, 125 ns between domains.
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

/// Counts of one core or one line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines fetched from a core of the same domain.
    pub near: u64,
    /// Lines fetched from another domain, or from memory.
    pub far: u64,
    /// Lines that the core shared with others and then needed exclusively.
    pub upgrades: u64,
    /// Copies of other cores that were invalidated.
    pub invalidations: u64,
    /// Read-modify-writes. The line serves no other request during one.
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

    /// The counts since `earlier`.
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

/// A range of addresses that several cores use, with a name.
#[derive(Debug, Clone)]
pub struct Part {
    /// The range.
    pub addresses: Range<usize>,
    /// The name, for [`Caches::lines`].
    pub name: &'static str,
    /// For what-if models: addresses in this part that differ by a multiple of this count as
    /// one address, and so share a cache line. `usize::MAX` turns this off.
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
    /// Cores that hold the line. A single holder may write it.
    holders: Vec<Holder>,
    /// The line serves no request before this time.
    free_at_ns: u64,
    /// Time of the last change: the present content was not there before.
    changed_at_ns: u64,
    /// Cores that wait for a change of the line, each with the number of its wait.
    waiting: Vec<(usize, u64)>,
    counts: Counts,
}

#[derive(Debug, Clone, Copy)]
struct Holder {
    core: usize,
    /// The time from which on the core has the line.
    there_ns: u64,
}

#[derive(Debug, Default)]
struct Core {
    /// Time of the next action.
    now_ns: u64,
    /// Time at which everything that it has loaded is there.
    loaded_ns: u64,
    /// Time at which all its stores have taken effect.
    stored_ns: u64,
    /// Earliest time of the next request for a line.
    may_ask_ns: u64,
    /// Arrival times of the requested lines.
    under_way: Vec<u64>,
    /// It has waited, and no line has arrived since.
    has_waited: bool,
    counts: Counts,
    /// Lines that it has read since [`Caches::forget_reads`].
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
    /// Core, number of its wait, and time of the change that it waited for.
    woken: Vec<(usize, u64, u64)>,
}

std::thread_local! {
    static STATE: RefCell<Option<Rc<RefCell<State>>>> = const { RefCell::new(None) };
}

/// The caches of a model. While a role runs in [`Caches::run_as`], the accesses of this thread through
/// the rings' atomics are counted. Memory outside all parts is private to a core, and its accesses are
/// free.
#[derive(Debug)]
pub struct Caches(Rc<RefCell<State>>);

impl Caches {
    /// Empty caches of `cores` cores.
    ///
    /// # Panics
    /// If there are more than [`CORES_MAX`] cores, or a domain has no core.
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

    /// Time of a core's next action.
    #[must_use]
    pub fn now_ns(&self, core: usize) -> u64 {
        self.0.borrow().cores[core].now_ns
    }

    /// Time at which a core has completed everything that it has begun.
    #[must_use]
    pub fn done_ns(&self, core: usize) -> u64 {
        let Core { now_ns, loaded_ns, stored_ns, .. } = self.0.borrow().cores[core];
        now_ns.max(loaded_ns).max(stored_ns)
    }

    /// Lets a core do nothing until `then_ns`.
    pub fn pass_until(&self, core: usize, then_ns: u64) {
        let now_ns = &mut self.0.borrow_mut().cores[core].now_ns;
        *now_ns = then_ns.max(*now_ns);
    }

    /// Ends the wait of a core at `then_ns`. The core stalls for the first line that it then loads.
    pub fn wake_at(&self, core: usize, then_ns: u64) {
        self.pass_until(core, then_ns);
        self.0.borrow_mut().cores[core].has_waited = true;
    }

    /// The counts of a core so far.
    #[must_use]
    pub fn counts(&self, core: usize) -> Counts {
        self.0.borrow().cores[core].counts
    }

    /// The counts of the accesses to a part so far, line by line: the offset of the line in the part,
    /// and its counts.
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

    /// Starts a new record of the lines that a core reads.
    pub(crate) fn forget_reads(&self, core: usize) {
        self.0.borrow_mut().cores[core].read.clear();
    }

    /// Makes a core wait for a change of any line that it has read since [`Self::forget_reads`].
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

    /// Cores whose wait has ended, each with the time of the change.
    pub(crate) fn take_woken(&self) -> Vec<(usize, u64)> {
        let State { cores, woken, .. } = &mut *self.0.borrow_mut();
        // Lines of an earlier wait that had not changed then may still name the core.
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

/// Reports a read of `bytes` bytes from `address` on that does not use atomics.
pub fn read_bytes(address: usize, bytes: usize) {
    lines_of(address, bytes).for_each(load);
}

/// Reports a write of `bytes` bytes from `address` on.
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
            // A load also waits for a store that has not taken effect yet.
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
    /// Issues a request for a line. Returns its time, which may be later than now.
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
    /// The time from which on `core` has the line, if it holds the line in a state that allows
    /// `access`.
    fn there_ns(&self, core: usize, access: Access) -> Option<u64> {
        let fits = access == Access::Load || self.holders.len() == 1;
        let mine = self.holders.iter().find(|holder| holder.core == core);
        mine.filter(|_| fits).map(|holder| holder.there_ns)
    }

    /// Brings the line to `core`, which asks for it at `asked_ns`. Returns the arrival time and the
    /// counts.
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
        // A copy that is still in flight must arrive before the core can ask for more.
        let asked_ns = own.map_or(asked_ns, |holder| asked_ns.max(holder.there_ns));
        let has_far = others().any(|holder| is_far(&holder));
        // The nearest holder supplies the line.
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
        // A store also waits for the farthest holder, which must give up its copy.
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
