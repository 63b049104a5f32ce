//! One process of a run. It sends messages there and back by NetPIPE's method (Nemesis, section
//! 4.1): each size, and the sizes beside it, repeatedly for a while, from warm or cold buffers, which are written
//! and read or not.

use std::time::{Duration, Instant};

use corewire_harness::board::READY;
use corewire_harness::line::LINES;
use corewire_harness::role::{Role, Worker};
use corewire_os::processor::{tick_ns, ticks};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::results::{Data, Found};
use super::wires::{Id, Seat, Visit, Wire};
use crate::study::failure::{Doing, Failure};
use crate::study::touch::Mark;

/// Size of the memory for cold buffers: more than the private caches of any processor.
pub(crate) const COLD_BYTES: usize = 128 << 20;
/// Distance between cold buffers of short messages. The next buffer is not in the next line, which the
/// processor would prefetch.
const COLD_STEP: usize = 4096 + 64;
/// Number of round trips for warm-up, and minimum number that is counted.
const ROUNDS_MIN: u64 = 8;
/// Maximum number of round trips between two reads of the clock.
const ROUNDS_MAX: u64 = 100_000;
const TICKS_MAX: u64 = 1 << 40;
/// Round trips of a bare line between two sizes.
const LINE_ROUNDS: u64 = 2 * LINES as u64;

/// A size and kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) bytes: usize,
    pub(crate) data: Data,
}

/// Everything that a process needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) wire: Id,
    /// What the set-up of the wire returned.
    pub(crate) ticket: String,
    pub(crate) shapes: Vec<Shape>,
    /// Measuring time for each shape.
    pub(crate) measured: Duration,
}

/// The results of all shapes, in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) found: Vec<Found>,
}

/// The two processes of a run.
pub(crate) const ROLE: Role<Order> = Role { name: "wire", work: follow };

/// Follows an order. The first of the two processes sends a report.
fn follow(worker: &Worker, order: Order) -> Result<(), Failure> {
    order.wire.with(Follow { order: &order, worker })
}

struct Follow<'a> {
    order: &'a Order,
    worker: &'a Worker,
}

impl Visit for Follow<'_> {
    type Out = Result<(), Failure>;

    fn visit<W: Wire>(self) -> Result<(), Failure> {
        let Self { order, worker } = self;
        let longest = order.shapes.iter().map(|shape| shape.bytes).max().unwrap_or_default();
        let has_cold = order.shapes.iter().any(|shape| shape.data.cold);
        let (mut from, mut to) = (Buffers::new(longest, has_cold), Buffers::new(longest, has_cold));
        let mut wire = W::open(&Seat::of(worker, order.wire, 2, &order.ticket))?;
        worker.reach(READY);
        worker.board().await_go();
        let asks = worker.index() == 0;
        let mut lines = worker.line_around(LINE_ROUNDS)?;
        let mut found = Vec::new();
        for &shape in &order.shapes {
            let mut end = End { wire: &mut wire, from: &mut from, to: &mut to, shape };
            let asked = match asks {
                true => Some(end.ask(order.measured)?),
                false => end.answer().map(|()| None)?,
            };
            let line_ns = lines();
            found.extend(asked.map(|asked| Found { line_ns, ..asked }));
        }
        drop(wire);
        if asks { worker.report(&Report { found }) } else { Ok(()) }
    }
}

/// Memory for messages.
struct Buffers {
    memory: Vec<u8>,
    next: usize,
    /// Offset of the first short buffer in the next pass over the memory.
    shift: usize,
}

impl Buffers {
    fn new(longest: usize, has_cold: bool) -> Self {
        let bytes = if has_cold { COLD_BYTES.max(2 * longest) } else { longest };
        let mut memory = vec![0; bytes];
        // Writes to all pages, so that they are allocated.
        for (number, page) in memory.chunks_mut(4096).enumerate() {
            page.fill(number.to_le_bytes()[0]);
        }
        Self { memory, next: 0, shift: 0 }
    }

    /// The next buffer of this shape.
    #[inline(always)]
    fn next(&mut self, shape: Shape) -> &mut [u8] {
        if !shape.data.cold {
            return &mut self.memory[..shape.bytes];
        }
        if self.next + shape.bytes > self.memory.len() {
            // The next pass uses other lines of the same pages.
            self.shift = (self.shift + 64) % 4096;
            self.next = if shape.bytes < 4096 { self.shift } else { 0 };
        }
        let at = self.next;
        self.next = at + COLD_STEP.max(shape.bytes.next_multiple_of(64));
        &mut self.memory[at..at + shape.bytes]
    }
}

struct End<'a, W> {
    wire: &'a mut W,
    from: &'a mut Buffers,
    to: &'a mut Buffers,
    shape: Shape,
}

impl<W: Wire> End<'_, W> {
    fn ask(&mut self, measured: Duration) -> Result<Found, Failure> {
        self.check()?;
        let mut times = Histogram::<u64>::new_with_max(TICKS_MAX, 3).doing("make a histogram")?;
        let mut rounds = ROUNDS_MIN;
        self.rounds(rounds, &mut times)?;
        times.reset();
        let begun = Instant::now();
        while begun.elapsed() < measured || times.len() < ROUNDS_MIN {
            self.rounds(rounds, &mut times)?;
            rounds = (2 * rounds).min(ROUNDS_MAX).min(4 * times.len());
            let left = measured.saturating_sub(begun.elapsed());
            let each = begun.elapsed().as_nanos() / u128::from(times.len().max(1));
            let most = u64::try_from(left.as_nanos() / each.max(1)).unwrap_or(ROUNDS_MAX);
            rounds = rounds.clamp(1, most.max(1));
        }
        self.command(0)?;
        let half_ns = tick_ns() / 2.0;
        #[expect(clippy::cast_precision_loss, reason = "a time")]
        let of = |share: f64| times.value_at_quantile(share) as f64 * half_ns;
        Ok(Found {
            rounds: times.len(),
            p50_ns: of(0.5),
            p99_ns: of(0.99),
            mean_ns: times.mean() * half_ns,
            line_ns: None,
        })
    }

    /// Tells the other process how many round trips follow; 0 ends the shape.
    fn command(&mut self, rounds: u64) -> Result<(), Failure> {
        self.wire.send(&rounds.to_le_bytes())
    }

    fn rounds(&mut self, rounds: u64, times: &mut Histogram<u64>) -> Result<(), Failure> {
        self.command(rounds)?;
        for round in 0..rounds {
            let from = self.from.next(self.shape);
            let to = self.to.next(self.shape);
            let mark = self.shape.data.touched.then(|| Mark::of(round));
            let start = ticks();
            send(self.wire, from, mark)?;
            receive(self.wire, to, mark)?;
            times.saturating_record(ticks() - start);
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<(), Failure> {
        let bytes = self.shape.bytes;
        // Sends the message of the check back as it came.
        self.wire.receive(&mut self.to.memory[..bytes])?;
        self.wire.send(&self.to.memory[..bytes])?;
        loop {
            let mut rounds = [0; 8];
            self.wire.receive(&mut rounds)?;
            let rounds = u64::from_le_bytes(rounds);
            if rounds == 0 {
                return Ok(());
            }
            for round in 0..rounds {
                let mark = self.shape.data.touched.then(|| Mark::of(round));
                receive(self.wire, self.to.next(self.shape), mark)?;
                send(self.wire, self.from.next(self.shape), mark)?;
            }
        }
    }

    /// Sends one message there and back, and compares every byte.
    fn check(&mut self) -> Result<(), Failure> {
        let bytes = self.shape.bytes;
        let sent = &mut self.from.memory[..bytes];
        sent.iter_mut()
            .zip(1u64..)
            .for_each(|(byte, at)| *byte = ((at * 31) >> 3).to_le_bytes()[0]);
        self.to.memory[..bytes].fill(0);
        self.wire.send(sent)?;
        self.wire.receive(&mut self.to.memory[..bytes])?;
        if self.to.memory[..bytes] == self.from.memory[..bytes] {
            return Ok(());
        }
        Err(Failure::other(format!("a message of {bytes} bytes came back damaged")))
    }
}

/// Sends a message, which is written before if it gets a mark.
#[inline(always)]
fn send(wire: &mut impl Wire, from: &mut [u8], mark: Option<Mark>) -> Result<(), Failure> {
    if let Some(mark) = mark {
        mark.write(from);
    }
    wire.send(from)
}

/// Receives a message, which is read after if it has a mark.
#[inline(always)]
fn receive(wire: &mut impl Wire, to: &mut [u8], mark: Option<Mark>) -> Result<(), Failure> {
    wire.receive(to)?;
    mark.map_or(Ok(()), |mark| mark.read(to))
}
