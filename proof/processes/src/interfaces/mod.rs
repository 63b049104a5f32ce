//! Interfaces of the tests, and a service that answers with what it was given.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use corewire_bind::{Bind, Domain, Driver, MonitorAt};
use corewire_circuit::monitor::{Asking, Handle, Monitor, Options};
use corewire_circuit::wire::NodeId;

corewire_bind::interface!(all);
corewire_bind::interface!(newer);
corewire_bind::interface!(parts);
corewire_bind::interface!(short);
corewire_bind::interface!(sizes);
corewire_bind::interface!(torture);

macro_rules! version {
    ($(#[$docs:meta])* $name:ident, $path:literal) => {
        $(#[$docs])*
        #[allow(missing_docs, missing_debug_implementations, dead_code, clippy::all)]
        pub mod $name {
            include!(concat!(env!("OUT_DIR"), $path));
        }
    };
}

version!(
    /// The same interface, but `eight` has an argument more.
    other, "/other/all.rs"
);
version!(
    /// An interface as it was at first.
    old, "/old/evolving.rs"
);
version!(
    /// With some of what was added.
    middle, "/middle/evolving.rs"
);
version!(
    /// With everything that was added.
    new, "/new/evolving.rs"
);
version!(
    /// With a change that is not compatible.
    broken, "/broken/evolving.rs"
);

/// Sends all messages of the first one, with random arguments.
#[allow(missing_docs, non_camel_case_types, clippy::all, clippy::pedantic)]
pub mod all_round_trip {
    include!(concat!(env!("OUT_DIR"), "/all_round_trip.rs"));
}

/// The same of the second one.
#[allow(missing_docs, non_camel_case_types, clippy::all, clippy::pedantic)]
pub mod newer_round_trip {
    include!(concat!(env!("OUT_DIR"), "/newer_round_trip.rs"));
}

mod descriptors;
mod echo;
pub mod trip;
pub mod wrong;

pub use descriptors::{descriptor, inode, open_count};
pub use echo::Echo;

/// A number in which each argument counts.
#[must_use]
pub fn sum_of_all(
    (a, b, c, d): (u8, u16, u32, u64),
    (e, f, g, h): (i8, i16, i32, i64),
    (i, j, k, self_): (bool, u8, u32, u64),
) -> u64 {
    let signed = [i64::from(e), i64::from(f), i64::from(g), h].map(i64::cast_unsigned);
    let plain = [u64::from(a), u64::from(b), u64::from(c), d];
    let rest = [u64::from(i), u64::from(j), u64::from(k), self_];
    let all = plain.into_iter().chain(signed).chain(rest);
    all.fold(17, |sum, one| sum.wrapping_mul(31).wrapping_add(one))
}

/// Every driver within one host. Tests of all of them call [`pin`] first.
pub const DRIVERS: [Driver; 5] =
    [Driver::Local, Driver::Lmp, Driver::Ump, Driver::Sock, Driver::Circuit];

/// Pins this thread, and those that it starts, to the first core: `lmp` connects threads of one core.
///
/// # Panics
/// If the kernel refuses.
pub fn pin() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    // All tests of a process choose the same one, as they share the threads in which tasks bind.
    static ALLOWED: OnceLock<CpuSet> = OnceLock::new();
    let allowed =
        ALLOWED.get_or_init(|| sched_getaffinity(None).unwrap_or_else(|error| panic!("{error}")));
    let mut core = CpuSet::new();
    core.set((0..CpuSet::MAX_CPU).find(|index| allowed.is_set(*index)).unwrap_or(0));
    sched_setaffinity(None, &core).unwrap_or_else(|error| panic!("{error}"));
}

/// Binds by one driver. Circuits lead through both monitors of a [`Place`].
pub fn by(driver: Driver) -> Bind {
    let bind = Bind::default().drivers([driver]);
    match driver {
        Driver::Circuit => bind.monitor(MonitorAt::default().number(MONITORS[1])),
        _ => bind,
    }
}

/// The monitors of a place. Services are at the first one: no core has these numbers.
const MONITORS: [usize; 2] = [200, 201];

/// A monitor in a thread.
#[derive(Debug)]
struct Running {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(domain: &Domain, number: usize) -> Self {
        let node = NodeId::new(number).unwrap_or_else(|| panic!("{number}"));
        let monitor = Monitor::start(domain.clone(), Options::new(node));
        let mut monitor = monitor.unwrap_or_else(|error| panic!("{error}"));
        let handle = monitor.handle();
        let run = move || monitor.run().unwrap_or_else(|error| panic!("{error}"));
        Self { handle, thread: Some(thread::spawn(run)) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        // One that panicked has said why.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A domain in a folder of its own, which is removed at the end.
#[derive(Debug)]
pub struct Place {
    /// The domain.
    pub domain: Domain,
    monitors: Vec<Running>,
    path: PathBuf,
}

impl Place {
    /// For the test of this name, with both monitors.
    ///
    /// # Panics
    /// If the domain cannot be opened, or a monitor does not start.
    #[must_use]
    pub fn new(test: &str) -> Self {
        let mut place = Self::without_monitors(test);
        let monitors = MONITORS.map(|number| Running::start(&place.domain, number));
        place.monitors.extend(monitors);
        place
    }

    /// For the test of this name, without a monitor, which would need processor time.
    ///
    /// # Panics
    /// If the domain cannot be opened.
    #[must_use]
    pub fn without_monitors(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corewire-if-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let domain = Domain::open_at(&path).unwrap_or_else(|error| panic!("{error}"));
        Self { domain, monitors: Vec::new(), path }
    }

    /// Waits until so many lines of the only circuit have gone through the service's monitor.
    ///
    /// # Panics
    /// The monitor does not answer, or has no circuit.
    pub fn wait_for_lines(&self, count: u32) {
        let (node, within) = (NodeId::new(MONITORS[0]), Duration::from_secs(20));
        let node = node.unwrap_or_else(|| panic!("no monitor"));
        let asking = Asking::connect(&self.domain, node, within);
        let mut asking = asking.unwrap_or_else(|error| panic!("{error}"));
        loop {
            let answer = asking.circuits().unwrap_or_else(|error| panic!("{error}"));
            let one = &answer.circuits[0];
            if one.lines_up >= count && one.stored_lines == 0 {
                return;
            }
            thread::yield_now();
        }
    }

    /// Ends both monitors.
    pub fn end_monitors(&mut self) {
        self.monitors.clear();
    }

    /// Runs a service while `work` runs, and returns what is left of it.
    ///
    /// # Panics
    /// If the service fails.
    pub fn serve(&self, work: impl FnOnce(&Domain)) -> Echo {
        let create = all::Server::new(&self.domain, "echo", Echo::default());
        let mut server = create.unwrap_or_else(|error| panic!("{error}"));
        server.service().outbox = Some(server.outbox());
        let stopper = server.stopper();
        thread::scope(|scope| {
            let service = scope.spawn(move || {
                server.serve().unwrap_or_else(|error| panic!("{error}"));
                std::mem::take(server.service())
            });
            // Also if `work` panics: the test must end.
            let stop = Stop(stopper);
            work(&self.domain);
            drop(stop);
            service.join().unwrap_or_default()
        })
    }
}

struct Stop(corewire_bind::Stopper);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
