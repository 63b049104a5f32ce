//! A last value: what an update costs its writer and a read its reader, and how old a value is when a reader first has it.
//!
//! The writer updates at most once in a microsecond, and readers read without a pause. The bare baseline is a sequence lock.

mod bare;
mod corewire;
#[cfg(feature = "rivals")]
mod iceoryx2;
#[cfg(feature = "rivals")]
mod zeromq;

use corewire_harness::statistics::median;
use corewire_os::processor::{self, ticks};
use corewire_ring::sync::Ordering::Relaxed;
use corewire_ring::sync::pause;
use serde::{Deserialize, Serialize};

use super::prelude::*;
use super::rivals::{PATIENCE, Rivals, await_step};

pub(super) const ROLE: Role<Order> = Role { name: "latest", work };

/// Updates of a block, which takes some 10 ms.
const UPDATES: u64 = 10_000;
/// The shortest time from one update to the next.
const PAUSE_NS: f64 = 1000.0;
/// Reads of the last value of a block, which does not change.
const UNCHANGED: usize = 1600;
/// Reads of a block of which the times are kept.
const READS_MAX: usize = 1 << 20;
/// After this the last value of a block is given again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// A value has its number, the time of its update, and its number again.
const BYTES_MIN: usize = 24;
/// iceoryx2 has values of fixed size, of which this program has some.
const BYTES_MAX: usize = 65_536;

/// What a reader measures in a block, in words of its own on the board.
const FIGURES: [&str; 4] = ["read_ns", "unchanged_ns", "age_ns", "age_p99_ns"];

/// A way to give a last value to readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Way {
    /// A bare sequence lock.
    Bare,
    Latest,
    /// PUB and SUB with `ZMQ_CONFLATE`.
    Zeromq,
    /// A blackboard.
    Iceoryx2,
}

/// What a reader is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    options: Options,
    ways: Vec<Way>,
    /// The processors that the bench may use.
    cpus: Vec<usize>,
}

/// The writer of a way.
trait Writes {
    fn set(&mut self, value: &[u8]) -> Result<(), Failure>;
}

/// A reader of a way.
trait Reads {
    /// Reads the newest value; `None` if there is none, or if the way knows that there is none newer than the last one.
    fn get<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, Failure>;
}

/// A writer of any way. A block is compiled for each way.
trait Writer {
    /// Makes the updates of a block, and returns the typical time of one, in nanoseconds.
    fn update(&mut self, block: u64, value: &mut [u8]) -> Result<f64, Failure>;

    /// Sets a value by itself.
    fn set_once(&mut self, number: u64, value: &mut [u8]) -> Result<(), Failure>;
}

/// A reader of any way.
trait Reader {
    /// Whether there is a value.
    fn has_any(&mut self) -> Result<bool, Failure>;

    /// Reads until the last value of a block is there, and returns [`FIGURES`].
    fn read(&mut self, block: u64, worker: &Worker) -> Result<[f64; FIGURES.len()], Failure>;
}

/// Number of the last value of a block.
fn last_of(block: u64) -> u64 {
    block * UPDATES
}

fn put(value: &mut [u8], number: u64, time: u64) {
    let number = number.to_le_bytes();
    if let Some(head) = value.first_chunk_mut::<8>() {
        *head = number;
    }
    if let Some(word) = value.get_mut(8..16) {
        word.copy_from_slice(&time.to_le_bytes());
    }
    if let Some(tail) = value.last_chunk_mut::<8>() {
        *tail = number;
    }
}

/// Number and time of a value, which must be whole.
#[inline(always)]
fn parse(value: &[u8]) -> Result<(u64, u64), Failure> {
    let word = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |word| u64::from_le_bytes(*word));
    let [head, tail] = [value.first_chunk(), value.last_chunk()].map(word);
    if head != tail {
        return Err(Failure::other(format!(
            "a torn value: it begins as {head} and ends as {tail}"
        )));
    }
    Ok((head, word(value.get(8..).and_then(|rest| rest.first_chunk()))))
}

impl<W: Writes> Writer for W {
    fn update(&mut self, block: u64, value: &mut [u8]) -> Result<f64, Failure> {
        let mut times = vec![];
        let mut last = ticks();
        for number in last_of(block - 1) + 1..=last_of(block) {
            let mut before = ticks();
            while nanoseconds(before.saturating_sub(last)) < PAUSE_NS {
                pause();
                before = ticks();
            }
            put(value, number, before);
            self.set(value)?;
            times.push(nanoseconds(ticks().saturating_sub(before)));
            last = before;
        }
        Ok(typical(&times))
    }

    fn set_once(&mut self, number: u64, value: &mut [u8]) -> Result<(), Failure> {
        put(value, number, 0);
        self.set(value)
    }
}

impl<R: Reads> Reader for R {
    fn has_any(&mut self) -> Result<bool, Failure> {
        // Shared memory that was never written has zeros.
        let found = self.get(parse)?.transpose()?;
        Ok(found.is_some_and(|(number, _)| number > 0))
    }

    fn read(&mut self, block: u64, worker: &Worker) -> Result<[f64; FIGURES.len()], Failure> {
        let (mut seen, mut times, mut ages) = (last_of(block - 1), vec![], vec![]);
        let (mut last, mut unchanged) = (ticks(), vec![]);
        while seen < last_of(block) {
            let found = self.get(parse)?.transpose()?;
            let now = ticks();
            if let Some((number, time)) = found
                && number > seen
            {
                seen = number;
                if times.len() < READS_MAX {
                    times.push(nanoseconds(now - last));
                }
                if time > 0 && ages.len() < READS_MAX {
                    ages.push(nanoseconds(now.saturating_sub(time)));
                }
            } else if worker.must_yield() {
                worker.relax();
            }
            last = ticks();
        }
        last = ticks();
        for _ in 0..UNCHANGED {
            black_box(self.get(parse)?.transpose()?);
            let now = ticks();
            unchanged.push(nanoseconds(now - last));
            last = now;
        }
        let age = [percentile(&ages, 0.5), percentile(&ages, 0.99)];
        // Not of means: ZeroMQ's thread may take the processor during a read.
        Ok([percentile(&times, 0.5), typical(&unchanged), age[0], age[1]])
    }
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if !(BYTES_MIN..=BYTES_MAX).contains(&options.bytes) {
        return Err(Failure::usage(format!(
            "bench latest --bytes {}: a value has {BYTES_MIN} to {BYTES_MAX} bytes here",
            options.bytes
        )));
    }
    let mut ways = vec![Way::Bare, Way::Latest];
    let rivals = Rivals::look();
    ways.extend(rivals.zeromq.then_some(Way::Zeromq));
    ways.extend(rivals.iceoryx2.then_some(Way::Iceoryx2));
    let cpus = processor::allowed()?;
    let order = Order { options: options.clone(), ways, cpus };
    let setup = setup(options.receivers).memory_bytes(bare::memory_bytes(options));
    let mut crew = setup.start(&ROLE, |_| order.clone())?;
    #[cfg(feature = "rivals")]
    crew.keep(Box::new(crate::rivals::iceoryx2::Leftovers::of(crew.directory(), 0)));
    let mut writers = order
        .ways
        .iter()
        .map(|&way| writer(way, &order, &crew))
        .collect::<Result<Vec<Box<dyn Writer>>, Failure>>()?;
    let mut value = vec![0; options.bytes];
    let mut step = 0;
    for writer in &mut writers {
        step += 1;
        // A value that is sent before a reader has come does not reach it.
        let again = || writer.set_once(1, &mut value);
        await_step(&mut crew, options.receivers, step, Duration::ZERO, again)?;
    }
    let readers = 0..options.receivers;
    let blocks = alternate(options.rounds, |round| {
        let mut figures = vec![];
        for writer in &mut writers {
            figures.push(writer.update(round + 1, &mut value)?);
            step += 1;
            let last = last_of(round + 1);
            // A way may lose the last value.
            let again = || writer.set_once(last, &mut value);
            await_step(&mut crew, options.receivers, step, AGAIN_AFTER, again)?;
            for figure in 0..FIGURES.len() {
                let of = |reader| crew.board().word(reader, figure).load(Relaxed);
                figures.push(median(readers.clone().map(|reader| f64::from_bits(of(reader)))));
            }
        }
        Ok::<_, Failure>(figures)
    })?;
    describe(options, &order.ways, &blocks, report);
    rivals.missing.into_iter().for_each(|sentence| report.note(sentence));
    drop(writers);
    crew.finish_with(report)
}

fn writer(way: Way, order: &Order, crew: &Crew) -> Result<Box<dyn Writer>, Failure> {
    let options = &order.options;
    Ok(match way {
        Way::Bare => Box::new(bare::Value::new(options, &crew.board().work()?)),
        Way::Latest => Box::new(corewire::writer(options, crew)?),
        #[cfg(feature = "rivals")]
        Way::Zeromq => Box::new(zeromq::Writer::new(crew, &order.cpus)?),
        #[cfg(feature = "rivals")]
        Way::Iceoryx2 => iceoryx2::writer(options, crew)?,
        #[cfg(not(feature = "rivals"))]
        _ => return Err(Failure::other(super::NO_RIVALS)),
    })
}

fn reader(way: Way, order: &Order, worker: &Worker) -> Result<Box<dyn Reader>, Failure> {
    let options = &order.options;
    Ok(match way {
        Way::Bare => Box::new(bare::Value::new(options, &worker.board().work()?)),
        Way::Latest => Box::new(corewire::reader(options, worker)?),
        #[cfg(feature = "rivals")]
        Way::Zeromq => Box::new(zeromq::Reader::new(options, worker, &order.cpus)?),
        #[cfg(feature = "rivals")]
        Way::Iceoryx2 => iceoryx2::reader(options, worker)?,
        #[cfg(not(feature = "rivals"))]
        _ => return Err(Failure::other(super::NO_RIVALS)),
    })
}

/// A reader of all ways in turn.
fn work(worker: &Worker, order: Order) -> Result<(), Failure> {
    let mut readers = order
        .ways
        .iter()
        .map(|&way| reader(way, &order, worker))
        .collect::<Result<Vec<Box<dyn Reader>>, Failure>>()?;
    let mut step = 0;
    for reader in &mut readers {
        while !reader.has_any()? {
            std::thread::yield_now();
        }
        step += 1;
        worker.reach(step);
    }
    for round in all(order.options.rounds) {
        for reader in &mut readers {
            let figures = reader.read(round + 1, worker)?;
            for (word, figure) in figures.into_iter().enumerate() {
                worker.board().word(worker.index(), word).store(figure.to_bits(), Relaxed);
            }
            step += 1;
            worker.reach(step);
        }
    }
    Ok(())
}

fn describe(options: &Options, ways: &[Way], blocks: &Blocks, report: &mut Report) {
    report.value("bytes", options.bytes);
    report.value("readers", options.receivers);
    report.value("rounds", options.rounds);
    let each = 1 + FIGURES.len();
    for (index, way) in ways.iter().enumerate() {
        let (key, name) = match way {
            Way::Bare => ("bare", "a bare sequence lock"),
            Way::Latest => ("latest", "a last value"),
            Way::Zeromq => ("zeromq", "ZeroMQ, PUB and SUB, conflated"),
            Way::Iceoryx2 => ("iceoryx2", "iceoryx2, a blackboard"),
        };
        for (figure, suffix) in ["update_ns"].into_iter().chain(FIGURES).enumerate() {
            let what = match suffix {
                "update_ns" => "an update",
                "read_ns" => "a read of a newer value",
                "unchanged_ns" => "a read of the same value",
                "age_ns" => "age",
                _ => "age, p99",
            };
            let median = blocks.median(index * each + figure);
            report.figure(&format!("{key}_{suffix}"), &format!("{name}, {what}"), median, "ns");
        }
    }
    let block = |way: Way| ways.iter().position(|&other| other == way);
    let Some(ours) = block(Way::Latest) else { return };
    for (under, key, name) in [
        (Way::Bare, "", "the bare lock"),
        (Way::Iceoryx2, "iceoryx2_", "iceoryx2's blackboard"),
        (Way::Zeromq, "zeromq_", "ZeroMQ"),
    ] {
        let Some(under) = block(under) else { continue };
        for (figure, what) in ["update", "read", "unchanged", "age"].into_iter().enumerate() {
            let ratios = blocks.ratios(ours * each + figure, under * each + figure);
            report.ratios(&format!("{key}{what}_ratio"), &format!("{what}, to {name}"), &ratios);
        }
    }
}
