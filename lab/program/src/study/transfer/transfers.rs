//! Latency and bandwidth of all mechanisms (III-D), and what buffers and cells do to two of them (III-C).

use corewire_harness::rounds::nanoseconds;
use corewire_harness::statistics::{median, typical};
use corewire_ring::copying::Routine;
use corewire_transfer::mechanisms::driver::introduce;
use corewire_transfer::mechanisms::{MessageQueue, PairLink, SharedBuffer};

use super::arena::Contents;
use super::library::Library;
use super::operations::{Operations, check, open, transfer};
use super::pair::Pair;
use super::plan::{LINE_ROUNDS, LONG_BYTES, Plan, Report};
use super::printed::{Buffers, PrintedBuffer, PrintedQueue};
use super::results::{Key, Measure, State};
use super::ways::Id;
use crate::study::failure::{Doing, Failure};
use crate::study::touch::Mark;

/// The states of data in Figure 4.
pub(super) const STATES: [State; 3] = [State::Cold, State::Touched, State::Warm];
/// Numbers of buffers in Figure 3, and their bytes.
const COUNTS: [usize; 4] = [1, 2, 4, 8];
const BUFFER_KIB: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Bytes of cells as printed, and of the library's, which end earlier.
const CELL_KIB: [u64; 9] = [4, 8, 16, 32, 64, 128, 256, 512, 1024];
const LIBRARY_KIB: [u64; 7] = [4, 8, 16, 32, 64, 128, 256];
/// The cells of a queue hold so many bytes, and are at least eight.
const QUEUE_BYTES: u64 = 2 << 20;

/// From so many iterations on, means of some at a time are counted: some clocks advance in steps of 10 ns.
const TYPICAL_FROM: usize = 64;

/// A mechanism that is open.
pub(super) type Open = (Id, Box<dyn Operations>);

/// Opens all mechanisms that are possible, and notes the others.
pub(super) fn open_all(
    pair: &mut Pair<'_>,
    ids: impl IntoIterator<Item = Id>,
    report: &mut Report,
) -> Result<Vec<Open>, Failure> {
    let mut all = Vec::new();
    for id in ids {
        match open(id, pair)? {
            Ok(way) => all.push((id, way)),
            Err(why) => report.lacks(id.text(), why),
        }
    }
    Ok(all)
}

/// The items in their order, or every other time in the opposite one.
pub(super) fn in_turn<T>(items: &mut [T], round: u32) -> Vec<&mut T> {
    let mut items: Vec<&mut T> = items.iter_mut().collect();
    if round % 2 == 1 {
        items.reverse();
    }
    items
}

/// A block of transfers. Returns the time of one in nanoseconds.
fn block(
    way: &mut dyn Operations,
    pair: &mut Pair<'_>,
    (bytes, state): (usize, State),
    iterations: u64,
) -> Result<f64, Failure> {
    let mut times = Vec::new();
    for number in 0..iterations {
        if state == State::Warm {
            pair.rewind();
        }
        let contents = (state == State::Touched).then(|| Contents::Marked(Mark::of(number)));
        times.push(nanoseconds(transfer(way, pair, bytes, contents)?));
    }
    Ok(figure_of(&times))
}

/// The figure of a block: the median, so that a few iterations in which a process lost its core do not count; of many short
/// iterations that of the means of some at a time.
fn figure_of(times: &[f64]) -> f64 {
    if times.len() < TYPICAL_FROM { median(times.iter().copied()) } else { typical(times) }
}

/// Table II and Figure 4.
pub(super) fn run(pair: &mut Pair<'_>, plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::default();
    let all = std::iter::once(Id::Nothing).chain(Id::all());
    let mut ways = open_all(pair, all, &mut report)?;
    let mut lines = pair.worker().line_around(LINE_ROUNDS)?;
    for &bytes in &plan.sizes {
        for (id, way) in &mut ways {
            way.prepare(pair, bytes)?;
            if *id != Id::Nothing {
                check(way.as_mut(), pair, bytes).doing(format_args!("use {}", id.name()))?;
            }
        }
        for state in STATES {
            let from = report.measured.len();
            for round in 0..=plan.rounds {
                for (id, way) in in_turn(&mut ways, round) {
                    let iterations = plan.iterations(bytes);
                    // Nothing arrives without a mechanism.
                    let data = if *id == Id::Nothing { State::Cold } else { state };
                    let figure = block(way.as_mut(), pair, (bytes, data), iterations)?;
                    if round > 0 {
                        let key = Key::new(Measure::Transfer, id.text(), bytes as u64, state);
                        report.add(&key, figure);
                    }
                }
            }
            report.close(from, lines());
        }
    }
    Ok(report)
}

/// A form of a mechanism in Figure 3.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Buffers(Buffers),
    PrintedCells(u64),
    /// The place of its pair of rings, and the bytes of its cells.
    Pipe(usize, u64),
    Cells(usize, u64),
}

/// How many cells of so many bytes a queue has.
const fn cells(cell_bytes: u64) -> u64 {
    let cells = QUEUE_BYTES / cell_bytes;
    if cells < 8 { 8 } else { cells }
}

impl Form {
    fn key(self) -> Key {
        let key = |way: &str| Key::new(Measure::Pipe, way, LONG_BYTES as u64, State::Cold);
        match self {
            Self::Buffers(Buffers { count, bytes, out, .. }) => {
                let way = out.map_or(Id::PrintedBuffer.text(), |out| out.name().to_owned());
                key(&way).of_parts(count as u64, bytes as u64)
            }
            Self::PrintedCells(bytes) => {
                key(&Id::PrintedQueue.text()).of_parts(cells(bytes), bytes)
            }
            Self::Pipe(_, bytes) => key(&Id::SharedBuffer.text()).of_parts(cells(bytes), bytes),
            Self::Cells(_, bytes) => key(&Id::MessageQueue.text()).of_parts(cells(bytes), bytes),
        }
    }

    fn open(self, pair: &mut Pair<'_>, links: &[PairLink]) -> Result<Box<dyn Operations>, Failure> {
        let (peer, role) = (pair.peer.clone(), pair.role);
        let refused = "open a mechanism";
        Ok(match self {
            Self::Buffers(buffers) => Box::new(PrintedBuffer::open(pair, buffers)?),
            Self::PrintedCells(bytes) => Box::new(PrintedQueue::open(pair, (cells(bytes), bytes))?),
            Self::Pipe(at, _) => {
                let link = links[at].clone();
                Box::new(Library::<SharedBuffer<_>>::open(peer, role, link).doing(refused)?)
            }
            Self::Cells(at, _) => {
                let link = links[at].clone();
                Box::new(Library::<MessageQueue<_>>::open(peer, role, link).doing(refused)?)
            }
        })
    }
}

/// Figure 3: what buffers, cells and routines do to 4 MiB.
pub(super) fn run_forms(pair: &mut Pair<'_>, plan: &Plan) -> Result<Report, Failure> {
    let mut forms = Vec::new();
    for kib in BUFFER_KIB {
        let buffers = |count| Buffers { count, bytes: kib << 10, ..Buffers::PAPER };
        forms.extend(COUNTS.map(|count| Form::Buffers(buffers(count))));
    }
    forms.extend(CELL_KIB.map(|kib| Form::PrintedCells(kib << 10)));
    let mut links = Vec::new();
    for kib in LIBRARY_KIB {
        let bytes = kib << 10;
        let (_, link) =
            introduce(&pair.courier, cells(bytes), bytes, pair.trusted).doing("make rings")?;
        forms.extend([Form::Pipe(links.len(), bytes), Form::Cells(links.len(), bytes)]);
        links.push(link);
    }
    let possible = Routine::ALL.into_iter().filter(|routine| routine.is_possible());
    forms.extend(possible.map(|out| Form::Buffers(Buffers { out: Some(out), ..Buffers::PAPER })));

    let mut report = Report::default();
    let mut lines = pair.worker().line_around(LINE_ROUNDS)?;
    let iterations = plan.iterations(LONG_BYTES);
    for round in 0..=plan.rounds {
        for form in in_turn(&mut forms, round) {
            let mut way = form.open(pair, &links)?;
            if round == 0 {
                check(way.as_mut(), pair, LONG_BYTES)?;
            }
            let shape = (LONG_BYTES, State::Cold);
            let figure = block(way.as_mut(), pair, shape, iterations)?;
            if round > 0 {
                report.add(&form.key(), figure);
            }
            // Before either side makes the next one in the same memory.
            pair.barrier()?;
        }
    }
    report.close(0, lines());
    Ok(report)
}
