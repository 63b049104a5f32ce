//! What it costs to set a mechanism up and to tear it down (III-E), page faults apart; buffers that are made for each message
//! (II-A); and memory that others can map beside memory of the process alone (IV-B).

use std::hint::black_box;
use std::io;

use corewire_harness::rounds::nanoseconds;
use corewire_harness::statistics::median;
use corewire_os::memory::{MemoryOptions, Segment};
use corewire_ring::message::Memory;
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::Relaxed;
use corewire_transfer::mechanisms::driver::introduce;
use corewire_transfer::mechanisms::{
    KernelGet, LinkMemory, Mapped, Mechanism, PairLink, Ptrace, SharedBuffer,
};

use super::arena::Place;
use super::clock::clock;
use super::fabric::Fabric;
use super::library::Library;
use super::operations::{Operations, transfer};
use super::pair::{CELL_BYTES, CELLS, Pair};
use super::plan::{LINE_ROUNDS, MIDDLE_BYTES, Plan, Report};
use super::results::{Key, Measure, State};
use super::ways::Id;
use crate::study::failure::{Doing, Failure};

/// Times of a block.
const TIMES: usize = 8;
/// Short calls between two looks at the clock, which may advance in steps of 10 ns.
const TOGETHER: u32 = 64;
const PAGE_BYTES: usize = 4096;
/// Two buffers of 8 KiB and a page of flags: what the paper's processes share.
const SYSTEM_V_BYTES: usize = 5 * PAGE_BYTES;
/// The name of the paper's own call in results.
pub(super) const SYSTEM_V: &str = "system_v";
/// The names of memory in results.
pub(super) const PRIVATE: &str = "private_memory";
pub(super) const SHARABLE: &str = "sharable_memory";
const MEMORY_BYTES: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 4 << 20];
/// The messages that go through buffers made for them.
const ON_DEMAND_BYTES: [usize; 3] = [64 << 10, 1 << 20, 4 << 20];

/// The times of one set-up, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Costs {
    set_up: f64,
    faults: f64,
    tear_down: f64,
}

/// The time since `start`, in nanoseconds.
fn since(start: u64) -> f64 {
    nanoseconds(clock() - start)
}

/// Table III, and what the paper says about it in II-A and IV-B.
pub(super) fn run(pair: &mut Pair<'_>, plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::default();
    let mut lines = pair.worker().line_around(LINE_ROUNDS)?;
    let mut fabric = match Fabric::open() {
        Ok((fabric, _)) => Some(fabric),
        Err(why) => {
            report.lacks(Id::NetworkGet.text(), why);
            None
        }
    };
    for round in 0..=plan.rounds {
        if !pair.is_source() {
            alone(pair, fabric.as_mut(), &mut report, round > 0)?;
        }
        for bytes in ON_DEMAND_BYTES {
            let took = on_demand(pair, bytes)?;
            if round > 0 {
                let way = Id::SharedBuffer.text();
                report.add(&Key::new(Measure::OnDemand, way, bytes as u64, State::Cold), took);
            }
        }
    }
    report.close(0, lines());
    Ok(report)
}

/// Everything that the receiver measures without the sender.
fn alone(
    pair: &Pair<'_>,
    fabric: Option<&mut Fabric>,
    report: &mut Report,
    is_counted: bool,
) -> Result<(), Failure> {
    let mut note = |way: &str, bytes: usize, one: &mut dyn FnMut() -> Result<Costs, Failure>| {
        let all = (0..TIMES).map(|_| one()).collect::<Result<Vec<_>, _>>()?;
        let figures = [
            (Measure::SetUp, all.iter().map(|costs| costs.set_up).collect::<Vec<_>>()),
            (Measure::Faults, all.iter().map(|costs| costs.faults).collect()),
            (Measure::TearDown, all.iter().map(|costs| costs.tear_down).collect()),
        ];
        for (measure, times) in figures.into_iter().filter(|_| is_counted) {
            let figure = median(times);
            report.add(&Key::new(measure, way, bytes as u64, State::Cold), figure);
        }
        Ok::<(), Failure>(())
    };
    note(SYSTEM_V, SYSTEM_V_BYTES, &mut system_v)?;
    let sizes = PairLink::sizes(CELLS, CELL_BYTES).doing("size a pair of rings")?;
    let ring_bytes = usize::try_from(sizes.segment_bytes()).unwrap_or(0);
    note(&Id::SharedBuffer.text(), ring_bytes, &mut || rings(pair))?;
    let place = Place { at: 0, bytes: MIDDLE_BYTES };
    let (peer, role) = (pair.peer.clone(), pair.role);
    let mut get = KernelGet::initialise(peer.clone(), role, ()).doing("use kernel get").ok();
    if let Some(get) = &mut get {
        let mut one = || registration(get, || pair.private.lend(place));
        note(&Id::KernelGet.text(), MIDDLE_BYTES, &mut one)?;
    }
    let mut ptrace = Ptrace::initialise(peer, role, ()).doing("use ptrace").ok();
    if let Some(ptrace) = &mut ptrace {
        let mut one = || registration(ptrace, || pair.private.lend(place));
        note(&Id::Ptrace.text(), MIDDLE_BYTES, &mut one)?;
    }
    note(&Id::Mapped.text(), MIDDLE_BYTES, &mut || mapped(pair))?;
    if let Some(fabric) = fabric {
        let start = pair.private.start(place);
        let mut one = || {
            let began = clock();
            let all = (0..TOGETHER).map(|_| fabric.register(start, place.bytes));
            let registered = all.collect::<Result<Vec<_>, _>>()?;
            let set_up = since(began) / f64::from(TOGETHER);
            let began = clock();
            drop(registered);
            Ok(Costs { set_up, faults: 0.0, tear_down: since(began) / f64::from(TOGETHER) })
        };
        note(&Id::NetworkGet.text(), MIDDLE_BYTES, &mut one)?;
    }
    for bytes in MEMORY_BYTES {
        for (way, price) in [(PRIVATE, private as fn(usize) -> _), (SHARABLE, sharable)] {
            let times = (0..TIMES).map(|_| price(bytes)).collect::<Result<Vec<f64>, Failure>>()?;
            let figure = median(times);
            if is_counted {
                let key = Key::new(Measure::Allocate, way, bytes as u64, State::Touched);
                report.add(&key, figure);
            }
        }
    }
    Ok(())
}

/// Writes a word of each page. Returns how long it took, in nanoseconds.
fn touch(memory: &Region) -> f64 {
    let start = clock();
    for at in (0..memory.bytes()).step_by(PAGE_BYTES) {
        memory.word64(at).store(1, Relaxed);
    }
    since(start)
}

/// One end of a pair of rings: its own segments, and a map of the peer's, which an own one stands for.
fn rings(pair: &Pair<'_>) -> Result<Costs, Failure> {
    let what = "make a pair of rings";
    let sizes = PairLink::sizes(CELLS, CELL_BYTES).doing(what)?;
    let start = clock();
    let made = Segment::create(sizes.segment_bytes(), MemoryOptions::default());
    let (segment, region) = made.doing(what)?;
    let page_bytes = LinkMemory::PAGE_BYTES as u64;
    let (page, page_region) = Segment::create_writable_by_all(page_bytes).doing(what)?;
    let own = LinkMemory { segment: region, page: page_region };
    let peer = LinkMemory {
        segment: segment.map(sizes.segment_bytes()).doing(what)?,
        page: page.map_writable(page_bytes).doing(what)?,
    };
    let link = PairLink::new(&own, &peer, sizes, pair.trusted);
    let set_up = since(start);
    let faults = touch(&own.segment);
    let start = clock();
    drop((link, own, peer, segment, page));
    Ok(Costs { set_up, faults, tear_down: since(start) })
}

/// Registrations of memory, and their ends. Returns the time of one.
fn registration<M>(mechanism: &mut M, memory: impl Fn() -> Memory) -> Result<Costs, Failure>
where
    M: Mechanism<Memory = Memory>,
{
    let mut memories: Vec<Memory> = (0..TOGETHER).map(|_| memory()).collect();
    let mut pieces = Vec::with_capacity(memories.len());
    let start = clock();
    while let Some(memory) = memories.pop() {
        pieces.push(mechanism.register(memory).doing("register memory")?);
    }
    let set_up = since(start) / f64::from(TOGETHER);
    let start = clock();
    for piece in pieces {
        mechanism.deregister(piece).doing("deregister memory")?;
    }
    Ok(Costs { set_up, faults: 0.0, tear_down: since(start) / f64::from(TOGETHER) })
}

/// A segment of the sender for its messages. The map of it at the receiver is a part of the first transfer.
fn mapped(pair: &Pair<'_>) -> Result<Costs, Failure> {
    let role = pair.role.other();
    let mut mechanism =
        Mapped::initialise(pair.peer.clone(), role, ()).doing("use mapped memory")?;
    let start = clock();
    let memory = mechanism.allocate(&[MIDDLE_BYTES]).doing("allocate mapped memory")?;
    let piece = mechanism.register(memory).doing("register memory")?;
    let set_up = since(start);
    let start = clock();
    let mut memory = mechanism.deregister(piece).doing("deregister memory")?;
    let ended = since(start);
    let start = clock();
    for at in (0..MIDDLE_BYTES).step_by(PAGE_BYTES) {
        corewire_ring::message::Sink::put(&mut memory, at, &[1]);
    }
    let faults = since(start);
    let start = clock();
    drop(memory);
    Ok(Costs { set_up, faults, tear_down: ended + since(start) })
}

/// As the paper's program does it (III-E): a System V segment is made, attached, and marked as destroyed; it ends when it is
/// detached.
fn system_v() -> Result<Costs, Failure> {
    let last =
        |what: &str| Failure::other(format!("cannot {what}: {}", io::Error::last_os_error()));
    let start = clock();
    // SAFETY: a new segment, which only this process knows.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, SYSTEM_V_BYTES, libc::IPC_CREAT | 0o600) };
    if id < 0 {
        return Err(last("make a System V segment"));
    }
    // SAFETY: the kernel chooses where.
    let memory = unsafe { libc::shmat(id, std::ptr::null(), 0) }.cast::<u8>();
    // SAFETY: the segment is this process's own. It lasts until it is detached.
    unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
    let set_up = since(start);
    if memory.addr() == usize::MAX {
        return Err(last("attach a System V segment"));
    }
    let start = clock();
    for at in (0..SYSTEM_V_BYTES).step_by(PAGE_BYTES) {
        // SAFETY: inside of the segment.
        let byte = unsafe { memory.add(at) };
        // SAFETY: mapped and writable.
        unsafe { byte.write_volatile(1) };
    }
    let faults = since(start);
    let start = clock();
    // SAFETY: attached above, and not used any more.
    unsafe { libc::shmdt(memory.cast()) };
    Ok(Costs { set_up, faults, tear_down: since(start) })
}

/// Memory of this process alone, made, touched and freed.
#[expect(clippy::unnecessary_wraps, reason = "as the other price")]
fn private(bytes: usize) -> Result<f64, Failure> {
    let start = clock();
    for _ in 0..TOGETHER {
        let mut memory = Vec::<u8>::with_capacity(bytes);
        let pages = memory.spare_capacity_mut().iter_mut().step_by(PAGE_BYTES);
        for byte in pages {
            byte.write(1);
        }
        black_box(&mut memory);
    }
    Ok(since(start) / f64::from(TOGETHER))
}

/// Memory that others can map, made, touched and freed.
fn sharable(bytes: usize) -> Result<f64, Failure> {
    let start = clock();
    let made = Segment::create(bytes as u64, MemoryOptions::default());
    let (segment, memory) = made.doing("make memory that others can map")?;
    touch(&memory);
    drop((segment, memory));
    Ok(since(start))
}

/// A message through a pair of rings that is made for it, by both sides. Returns the time at this side, in nanoseconds.
fn on_demand(pair: &mut Pair<'_>, bytes: usize) -> Result<f64, Failure> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        pair.barrier()?;
        let start = clock();
        let made = introduce(&pair.courier, CELLS, CELL_BYTES, pair.trusted);
        let (peer, link) = made.doing("make rings")?;
        let opened = Library::<SharedBuffer<_>>::open(peer, pair.role, link);
        let mut way: Box<dyn Operations> = Box::new(opened.doing("use rings")?);
        transfer(way.as_mut(), pair, bytes, None)?;
        drop(way);
        times.push(since(start));
    }
    Ok(median(times))
}
