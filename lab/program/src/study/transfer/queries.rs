//! What pages and claims ask of the points.

use super::cache::user_lines;
use super::plan::{LONG_BYTES, MIDDLE_BYTES};
use super::results::{Key, Measure, Point, State, Transfer};
use super::ways::Id;
use crate::study::results::sorted;

const MIDDLE: u64 = MIDDLE_BYTES as u64;
const LONG: u64 = LONG_BYTES as u64;
/// Shares of the user's buffer from which on an impact is high, and medium: in the middle between the shares that the paper
/// calls low (225 of 4096 lines), medium (1060) and high (2050).
pub(super) const HIGH: f64 = 0.38;
pub(super) const MEDIUM: f64 = 0.16;

impl Transfer {
    /// The time of a message.
    pub(super) fn time(&self, id: Id, bytes: u64, state: State) -> Option<f64> {
        self.median(&Key::new(Measure::Transfer, id.text(), bytes, state))
    }

    /// The time of the shortest message, cold.
    pub(super) fn latency(&self, id: Id) -> Option<f64> {
        self.time(id, *self.sizes.first()?, State::Cold)
    }

    /// The share of the user's buffer that a transfer of so many bytes takes from the cache of a side.
    pub(super) fn share(&self, measure: Measure, id: Id, bytes: u64) -> Option<f64> {
        let lines = self.median(&Key::new(measure, id.text(), bytes, State::Cold))?;
        Some(lines / user_lines(self.cache_bytes))
    }

    /// The shares at the source and at the destination.
    pub(super) fn shares(&self, id: Id) -> Option<[f64; 2]> {
        let share = |measure| self.share(measure, id, LONG);
        Some([share(Measure::SourceLines)?, share(Measure::TargetLines)?])
    }

    /// The share of a computation that is hidden, at a side.
    pub(super) fn hidden(&self, measure: Measure, id: Id) -> Option<f64> {
        self.median(&Key::new(measure, id.text(), MIDDLE, State::Cold))
    }

    /// The time of a part of the set-up.
    pub(super) fn cost(&self, measure: Measure, way: &str) -> Option<f64> {
        let own = |point: &&Point| point.key.way == way;
        Some(self.of(measure).find(own)?.spread()?.median)
    }

    /// The time of a pipe of 4 MiB.
    pub(super) fn pipe(&self, way: &str, count: Option<u64>, part_bytes: u64) -> Option<f64> {
        let is_it = |key: &Key| {
            key.way == way && key.part_bytes == part_bytes && count.is_none_or(|it| it == key.count)
        };
        Some(self.of(Measure::Pipe).find(|point| is_it(&point.key))?.spread()?.median)
    }

    /// The sizes of the buffers or cells of a way in Figure 3, with so many buffers.
    pub(super) fn parts_of(&self, way: &str, count: Option<u64>) -> Vec<u64> {
        let own = self.of(Measure::Pipe).map(|point| &point.key);
        let own = own.filter(|key| key.way == way && count.is_none_or(|it| it == key.count));
        sorted(own.map(|key| key.part_bytes))
    }

    /// The fastest of some copy routines, and its time.
    pub(super) fn best_copy(
        &self,
        size: u64,
        state: State,
        may: impl Fn(&str) -> bool,
    ) -> Option<(String, f64)> {
        let points = self.of(Measure::Copy).filter(|point| {
            (point.key.bytes, point.key.state) == (size, state) && may(&point.key.way)
        });
        let times =
            points.filter_map(|point| Some((point.key.way.clone(), point.spread()?.median)));
        times.min_by(|one, other| one.1.total_cmp(&other.1))
    }
}

/// The word of the paper for a share of the user's buffer.
pub(super) fn impact(share: f64) -> &'static str {
    match share {
        share if share >= HIGH => "high",
        share if share >= MEDIUM => "medium",
        _ => "low",
    }
}
