//! What everybody has recorded, read from their memory. Nothing in it is taken on trust.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;

use corewire_circuit::wire::trace::{
    AT_COUNT, AT_EVENTS, AT_FIRST, AT_MAGIC, AT_NAME, AT_NAME_LENGTH, AT_PID, AT_TICK, EVENT_BYTES,
    Event, Kind, MAGIC, NAME_BYTES_MAX, Point, bytes_of,
};
use corewire_os::memory::Segment;
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::{Acquire, Relaxed};
use corewire_ring::sync::fence;

/// Places for events that a memory may have.
const EVENTS_MAX: usize = 1 << 20;

/// All parties, in the order of their names.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) parties: Vec<Party>,
}

/// A process.
#[derive(Debug)]
pub(super) struct Party {
    pub(super) name: String,
    pub(super) pid: u32,
    /// In the order in which they began.
    pub(super) events: Vec<Slice>,
    /// Events that were overwritten.
    pub(super) lost: u64,
}

/// An event, in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    pub(super) event: Event,
    /// In nanoseconds since the first event of all.
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
}

/// The name of what was done.
pub(super) const fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Send => "send",
        Kind::Receive => "receive",
        Kind::Serve => "serve",
        Kind::Forward => "forward",
        Kind::Store => "store",
        Kind::Resume => "resume",
    }
}

/// The arrow to or from where a frame was seen: the same for who sent it and who got it.
pub(super) fn arrow_of(point: Point) -> u64 {
    let mut hasher = DefaultHasher::new();
    point.hash(&mut hasher);
    hasher.finish()
}

impl Timeline {
    pub(super) fn read(memory: Vec<OwnedFd>) -> Self {
        let mut seen = BTreeSet::new();
        let mut parties = Vec::new();
        for descriptor in memory {
            // A program with links to several monitors gives its memory to each.
            let file = rustix::fs::fstat(&descriptor).map(|stat| (stat.st_dev, stat.st_ino));
            if file.is_ok_and(|file| seen.insert(file)) {
                parties.extend(read(descriptor));
            }
        }
        let first = parties.iter().flat_map(|(party, _)| &party.events);
        let first = first.map(|slice| slice.event.began).min().unwrap_or(0);
        let mut parties: Vec<Party> = parties
            .into_iter()
            .map(|(mut party, tick_ns)| {
                for slice in &mut party.events {
                    let in_ns = |ticks: u64| to_ns(ticks - first, tick_ns);
                    slice.began_ns = in_ns(slice.event.began);
                    let ended_ns = in_ns(slice.event.ended);
                    slice.ended_ns = ended_ns.max(slice.began_ns.saturating_add(1));
                }
                party.events.sort_by_key(|slice| slice.began_ns);
                party
            })
            .collect();
        parties.sort_by(|one, other| (&one.name, one.pid).cmp(&(&other.name, other.pid)));
        Self { parties }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "hours in nanoseconds have fewer than 53 bits; other numbers saturate"
)]
fn to_ns(ticks: u64, tick_ns: f64) -> u64 {
    (ticks as f64 * tick_ns) as u64
}

/// What one process has recorded, and the length of its ticks.
fn read(descriptor: OwnedFd) -> Option<(Party, f64)> {
    let segment = Segment::adopt(descriptor, false).ok()?;
    let memory = segment.map(bytes_of(1) as u64).ok()?;
    if memory.word64(AT_MAGIC).load(Acquire) != MAGIC {
        return None;
    }
    let places = usize::try_from(memory.word32(AT_EVENTS).load(Relaxed)).ok()?;
    let is_possible =
        places.is_power_of_two() && places <= EVENTS_MAX && memory.bytes() >= bytes_of(places);
    let tick_ns = f64::from_bits(memory.word64(AT_TICK).load(Relaxed));
    let is_possible = is_possible && (1e-3..1e6).contains(&tick_ns);
    let count = memory.word64(AT_COUNT).load(Acquire);
    let kept = is_possible.then(|| count.min(places as u64))?;
    let events = (count - kept..count).filter_map(|number| event(&memory, places, number));
    let slice = |event| Slice { event, began_ns: 0, ended_ns: 0 };
    let events = events.map(slice).collect();
    let (name, pid) = (name(&memory), memory.word32(AT_PID).load(Relaxed));
    Some((Party { name, pid, events, lost: count - kept }, tick_ns))
}

fn name(memory: &Region) -> String {
    let length = usize::try_from(memory.word32(AT_NAME_LENGTH).load(Relaxed)).unwrap_or(0);
    let mut name = vec![0; length.min(NAME_BYTES_MAX)];
    memory.copy_out(AT_NAME, &mut name);
    String::from_utf8_lossy(&name).into_owned()
}

/// The event with this number, if it is there and whole.
fn event(memory: &Region, places: usize, number: u64) -> Option<Event> {
    let at = AT_FIRST + usize::try_from(number % places as u64).ok()? * EVENT_BYTES;
    let is_it = || memory.word64(at + 56).load(Acquire) == number + 1;
    if !is_it() {
        return None;
    }
    let words = std::array::from_fn(|index| memory.word64(at + 8 * index).load(Relaxed));
    // A writer may have come meanwhile.
    fence(Acquire);
    Event::of_words(words).filter(|_| is_it())
}
