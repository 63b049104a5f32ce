//! What a transfer does to the data of an application in the second-level cache (III-F): a user buffer of half of the cache,
//! which is read before a transfer of other data, and again after it.
//!
//! Few virtual machines have counters of cache misses. So the time to read the buffer again is compared with the times when
//! all of it is in the cache and when nothing is, which are measured in the same round. The lines are read in an order
//! that no hardware expects, each after the one before it, so that each miss adds the same time.

use std::hint::black_box;

use corewire_harness::rounds::nanoseconds;
use corewire_harness::statistics::median;

use super::arena::LINE_BYTES;
use super::clock::clock;
use super::operations::Operations;
use super::pair::Pair;
use super::plan::{LINE_ROUNDS, Plan, Report};
use super::results::{Key, Measure, State};
use super::transfers::{in_turn, open_all};
use super::ways::Id;
use crate::study::counters::Counters;
use crate::study::failure::Failure;

/// The messages of Figure 5.
pub(super) const SIZES: [usize; 4] = [16 << 10, 128 << 10, 1 << 20, 4 << 20];
/// Transfers of a block.
const TIMES: u64 = 3;
const WORDS: usize = LINE_BYTES / 8;

/// Half of a cache, as a ring of lines each of which says which is next.
struct UserBuffer {
    lines: Vec<[u64; WORDS]>,
}

impl UserBuffer {
    fn new(bytes: u64) -> Self {
        let count = usize::try_from(bytes).unwrap_or(usize::MAX) / LINE_BYTES;
        let mut order: Vec<u64> = (0..count as u64).collect();
        let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
        for at in (1..count).rev() {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            // One ring through all lines (Sattolo).
            order.swap(at, usize::try_from(dice % at as u64).unwrap_or_default());
        }
        let lines = order.into_iter().map(|next| {
            let mut line = [0; WORDS];
            line[0] = next;
            line
        });
        Self { lines: lines.collect() }
    }

    /// Reads all lines. Returns the time in nanoseconds.
    fn read(&self) -> f64 {
        let start = clock();
        let mut next = 0;
        for _ in 0..self.lines.len() {
            next = usize::try_from(self.lines[next][0]).unwrap_or_default();
        }
        black_box(next);
        nanoseconds(clock() - start)
    }
}

/// The times to read the whole buffer in and out of the cache.
#[derive(Debug, Clone, Copy)]
struct Scale {
    hit_ns: f64,
    miss_ns: f64,
}

impl Scale {
    fn measure(user: &UserBuffer, pair: &Pair<'_>) -> Self {
        let of = |prepare: &dyn Fn()| {
            median((0..TIMES).map(|_| {
                prepare();
                user.read()
            }))
        };
        let whole = pair.private.slice(pair.private.whole());
        let evict = || {
            black_box(whole.iter().step_by(LINE_BYTES).fold(0u8, |sum, byte| sum ^ byte));
        };
        let load = || {
            user.read();
            user.read();
        };
        Self { hit_ns: of(&load), miss_ns: of(&evict) }
    }

    /// How many of `lines` lines were not in the cache.
    fn lines(self, took_ns: f64, lines: f64) -> f64 {
        let whole = self.miss_ns - self.hit_ns;
        if whole <= 0.0 {
            return 0.0;
        }
        ((took_ns - self.hit_ns) / whole).clamp(0.0, 1.0) * lines
    }
}

/// Lines of a user buffer.
#[expect(clippy::cast_precision_loss, reason = "a cache")]
pub(super) const fn user_lines(cache_bytes: u64) -> f64 {
    (cache_bytes / 2 / LINE_BYTES as u64) as f64
}

/// Figure 5 and Table IV.
pub(super) fn run(pair: &mut Pair<'_>, plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::default();
    let all = std::iter::once(Id::Nothing).chain(Id::all());
    let mut ways = open_all(pair, all, &mut report)?;
    let mut lines = pair.worker().line_around(LINE_ROUNDS)?;
    let user = UserBuffer::new(plan.cache_bytes / 2);
    for bytes in SIZES {
        for (_, way) in &mut ways {
            way.prepare(pair, bytes)?;
        }
        let from = report.measured.len();
        for round in 0..=plan.rounds {
            pair.barrier()?;
            let scale = Scale::measure(&user, pair);
            for (id, way) in in_turn(&mut ways, round) {
                let block = block(way.as_mut(), pair, bytes, &user, scale)?;
                for (measure, figure) in block.into_iter().filter(|_| round > 0) {
                    report.add(&Key::new(measure, id.text(), bytes as u64, State::Cold), figure);
                }
            }
        }
        report.close(from, lines());
    }
    Ok(report)
}

/// What a transfer took from the user buffers of both sides.
fn block(
    way: &mut dyn Operations,
    pair: &mut Pair<'_>,
    bytes: usize,
    user: &UserBuffer,
    scale: Scale,
) -> Result<Vec<(Measure, f64)>, Failure> {
    #[expect(clippy::cast_precision_loss, reason = "a cache")]
    let lines = user.lines.len() as f64;
    let mut own = [Vec::new(), Vec::new()];
    for _ in 0..TIMES {
        let place = pair.next(way.home(), bytes);
        way.register(pair, place)?;
        user.read();
        user.read();
        pair.barrier()?;
        way.copy(pair)?;
        // The other side may still need its cache.
        pair.barrier()?;
        let counters = Counters::start();
        let took_ns = user.read();
        let (_, misses) = counters.stop();
        own[0].push(scale.lines(took_ns, lines));
        #[expect(clippy::cast_precision_loss, reason = "few misses")]
        own[1].extend(misses.map(|misses| misses as f64));
        pair.barrier()?;
        way.deregister(pair)?;
    }
    let here = own.map(|figures| if figures.is_empty() { f64::NAN } else { median(figures) });
    let mut found = Vec::new();
    let measures = [
        [Measure::TargetLines, Measure::SourceLines],
        [Measure::TargetMisses, Measure::SourceMisses],
    ];
    for ([target, source], here) in measures.into_iter().zip(here) {
        let there = f64::from_bits(pair.swap_numbers(here.to_bits())?);
        let both = [(target, here), (source, there)];
        found.extend(both.into_iter().filter(|(_, figure)| figure.is_finite()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_buffer_is_one_ring_of_all_its_lines() {
        let user = UserBuffer::new(64 << 10);
        assert_eq!(user.lines.len(), 1024);
        let (mut next, mut seen) = (0, vec![false; 1024]);
        for _ in 0..1024 {
            assert!(!std::mem::replace(&mut seen[next], true));
            next = usize::try_from(user.lines[next][0]).unwrap();
        }
        assert_eq!(next, 0);
    }

    #[test]
    fn a_time_between_hit_and_miss_is_a_share_of_the_lines() {
        let scale = Scale { hit_ns: 100.0, miss_ns: 300.0 };
        assert_eq!(
            [50.0, 100.0, 150.0, 400.0].map(|ns| scale.lines(ns, 8.0)),
            [0.0, 0.0, 2.0, 8.0]
        );
        let useless = Scale { hit_ns: 100.0, miss_ns: 90.0 };
        assert_eq!(useless.lines(200.0, 8.0), 0.0);
    }
}
